"""KTD with a T5 that is trained for it: the files of the T5, the divisions, and a tiny run from beginning to end."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from t5_files import CONFIGURATIONS, write_t5

from benchmarks import audit_tables
from benchmarks import paraphrased_ktd as script
from benchmarks.paraphrases import split_sentences
from benchmarks.reproductions import models
from tdd.models.t5 import load_t5

SIZES = script.Sizes(
    width=32, layers=1, steps=3, batch=4, pairs=80, members=24, nonmembers=40, epochs=1, labelled=20, divisions=8
)


@pytest.mark.parametrize("name", [name for name in CONFIGURATIONS if "own" not in name])
def test_parameters_are_written_as_they_are_read(tmp_path, name):
    folder = write_t5(tmp_path, name)
    spec, params, _ = load_t5(folder)
    before = load_file(folder / "model.safetensors")
    after = script.stored(spec, jax.tree.map(np.asarray, params))
    assert before.keys() == after.keys()
    for tensor in before:
        np.testing.assert_array_equal(before[tensor], after[tensor])
    save_file(after, folder / "model.safetensors")
    assert jax.tree.all(jax.tree.map(np.array_equal, params, load_t5(folder)[1]))


def test_texts_are_different_and_short():
    texts = script.texts_of(3, 60, script.Sizes())
    assert len({*texts}) == 60
    assert any(len(split_sentences(text)) > 1 for text in texts)
    for text in texts:
        assert len(text.split()) <= 16 or len(split_sentences(text)) == 1


def test_rules_count_what_they_select(monkeypatch):
    """Members far below their paraphrases, and non-members that are exchangeable with theirs."""
    monkeypatch.setattr(script, "ALPHAS", (0.2,))
    rng = np.random.default_rng(0)
    scores = {name: rng.normal(size=(64, 4)) for name in script.SCORES}
    for table in scores.values():
        table[:24, 0] -= 50
    rows = script.evaluate(scores, True, 0, SIZES)
    for row in rows:
        if row["rule"] in ("W > 0", "ktd", "multi"):
            assert row["power"] == 1
        if row["rule"].startswith("threshold"):
            assert row["fdp"] == 0
            assert row["power"] > 0.5  # a threshold is the score of a labelled text, beyond which members remain
    always = next(row for row in rows if row["rule"] == "W > 0")
    own, copies = scores["grad_norm"][24:, 0], scores["grad_norm"][24:, 1:]
    false = 20 * (copies.mean(1) > own).mean()  # of the 20 non-members of a division, beside 14 members
    assert abs(always["fdp"] - false / (false + 14)) < 0.04
    null = script.evaluate(scores, False, 0, SIZES)
    assert {row["fdp"] for row in null} <= {one / 8 for one in range(9)}
    assert next(row for row in null if row["rule"] == "W > 0")["fdp"] == 1


@pytest.mark.slow("training")
def test_a_tiny_run(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "DECODINGS", {"temperature 1.9": {}})
    small = models._untrained(models.base_model(None, scale=1, seed=0).tokenizer, 16, 1, 0)
    monkeypatch.setattr(script, "base_model", lambda *_, **__: small)
    training = script.train_paraphraser(tmp_path / "t5", SIZES)
    assert script.train_paraphraser(tmp_path / "t5", SIZES) == training  # read, not trained again
    found = json.loads(json.dumps(script.measure(0, tmp_path, SIZES)))
    joined = script.joined([found, found])
    assert {row["rule"] for row in joined["rows"]} == {
        "ktd", "multi", "conformal", "W > 0", *(f"threshold on {name}" for name in script.SCORES),
    }  # fmt: skip
    assert all(0 <= row["fdp"] <= 1 for row in joined["rows"])
    assert [one["model"] for one in joined["audits"]] == ["trained", "null"]
    assert (tmp_path / "temperature-1.9-0" / "candidates" / "report.html").exists()
    page = audit_tables.paraphrased({"command": "x", "sizes": vars(SIZES), "paraphraser": training, **joined})
    assert page.count("\n| temperature 1.9 | 3 | ktd |") == 1
    assert page.count("\n| none |  | threshold on zlib |") == 1
