"""Recipes with known truth, on a laboratory model, and what they share with the table of all scores."""

import json

import jax
import numpy as np
import pytest
from word_tokenizer import word_tokenizer

import tdd
from benchmarks import known_truth
from benchmarks.recipes import RECIPES
from benchmarks.recipes.__main__ import main
from benchmarks.recipes.run import read_known
from tdd import InputError
from tdd.models import checkpoint
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec

COPIES = (0,) * 60 + (1,) * 15 + (4,) * 15


def texts(copies=COPIES):
    rng = np.random.default_rng(0)
    return [
        {"id": f"x{i}", "text": " ".join(f"w{j}" for j in rng.integers(0, 40, 12)), "copies": count}
        for i, count in enumerate(copies)
    ]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


# Divisions


def test_auc_is_the_probability_of_a_lower_score():
    rng = np.random.default_rng(1)
    scores, member = rng.integers(0, 6, 40).astype(float), rng.random(40) < 0.4
    pairs = scores[member][:, None] - scores[~member]
    assert known_truth.auc(scores, member) == pytest.approx(np.mean((pairs < 0) + 0.5 * (pairs == 0)))
    scores = np.append(scores, np.nan)
    assert known_truth.auc(scores, np.append(member, True)) == pytest.approx(known_truth.auc(scores[:-1], member))


def test_divisions_hold_the_level_and_find_members():
    """Non-members alone: something is selected in at most alpha of the divisions. Members far below: all are found."""
    rng = np.random.default_rng(2)
    scores, member = rng.normal(size=120), np.arange(120) < 30
    nothing = known_truth.divide(scores, member, calibration=60, alpha=0.1, repetitions=400)
    shifted = known_truth.divide(scores - 9.0 * member, member, calibration=60, alpha=0.1, repetitions=400)
    assert nothing.summary()["power"] < 0.2
    assert shifted.summary()["power"] > 0.95
    assert shifted.summary()["fdr"] < 0.1 + 3 * shifted.summary()["fdr_se"]
    assert shifted.any > 0.95


# Texts


def test_equal_texts_are_left_out(tmp_path):
    rows = texts()
    rows += [
        {"id": "again", "text": rows[-1]["text"].upper(), "copies": 0},
        {"id": "twice", "text": rows[0]["text"], "copies": 0},
    ]
    path = write(tmp_path / "texts.jsonl", rows)
    known = read_known([path], "copies", None, deduplicate=True)
    assert known.texts.ids == tuple(row["id"] for row in rows[:-2])
    assert (known.num_repeated, known.member.sum(), len(known.side(False))) == (2, 30, 60)
    assert len(read_known([path], "copies", None, deduplicate=False).copies) == 92


def test_several_files(tmp_path):
    paths = [write(tmp_path / f"{name}.jsonl", rows) for name, rows in (("a", texts()[:60]), ("b", texts()[60:]))]
    known = read_known(paths, "copies", None, deduplicate=True)
    assert known.texts.ids[0] == "0/x0"
    assert known.texts.ids[-1] == "1/x89"
    assert known.copies.tolist() == list(COPIES)


@pytest.mark.parametrize(
    ("copies", "field", "message"),
    [
        (COPIES, "duplicates", "there is no field 'duplicates'"),
        ((-1, *COPIES), "copies", "copies at line 1 must be 0, 1, 2"),
        (("many", *COPIES), "copies", "not 'many'"),
        ((0,) * 60, "copies", "0 members and 60 non-members are too few"),
    ],
)
def test_texts_that_do_not_do(tmp_path, copies, field, message):
    with pytest.raises(InputError, match=message):
        read_known([write(tmp_path / "texts.jsonl", texts(copies))], field, None, deduplicate=True)


# The whole road


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two random models of one layout; neither has seen a text."""
    folder = tmp_path_factory.mktemp("models")
    spec = DecoderSpec.gpt2(vocab_size=64, width=16, num_layers=1, num_heads=2, max_length=32)
    lm, tokenizer = language_model(spec), word_tokenizer(64)
    for name, seed in (("standard", 0), ("perturbed", 1)):
        checkpoint.save(folder / name, lm, init_params(spec, jax.random.key(seed)), tokenizer)
    return folder


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow("long") if RECIPES[name].null else ()) for name in RECIPES]
)
def test_a_recipe_runs(name, models, tmp_path, capsys):
    """Every recipe on a small model of known layout: files, tables, and what belongs to it alone."""
    path, out = write(tmp_path / "texts.jsonl", texts()), tmp_path / "out"
    options = ["--texts", path, "--out", str(out), "--repetitions", "20", "--score", "loss", "min_k"]
    if name == "hubble":
        options += ["--null-model", str(models / "standard")]
        options += ["--checkpoints", str(models / "standard"), str(models / "perturbed")]
    assert main([name, str(models / "perturbed"), *options]) == 0
    result = json.loads((out / "results.json").read_text("utf-8"))
    assert [row["score"] for row in result["rows"]] == ["loss", "min_k"]
    assert result["rows"][0]["by_copies"].keys() == {"1", "4"}
    table = (out / "tables.md").read_text("utf-8")
    assert RECIPES[name].title in table
    assert "power, 4 copies" in table
    loss = tdd.score(str(models / "perturbed"), path, "loss", progress=False)["loss"]
    assert result["rows"][0]["auc"] == pytest.approx(known_truth.auc(loss, np.array(COPIES) > 0))
    assert ("null_any" in result["rows"][0]) == (name == "hubble")
    if name == "hubble":
        assert [look["flagged"] for look in result["time"]["looks"]] == [0, 0]
        assert "First alarm: none." in table
        assert result["rows"][0]["null_any"] < 0.5
