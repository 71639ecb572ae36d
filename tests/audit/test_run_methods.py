"""Audits of checkpoints by the procedures that take several scores, several models, or paraphrases."""

import json

import gpt2_files
import numpy as np
import pytest

import tdd
from tdd.cli import main
from tdd.records import Texts

WORDS = [f"w{i}" for i in range(40)]


def write(folder, seed):
    """A checkpoint with weights of its own."""
    config = gpt2_files.CONFIG
    rng = np.random.default_rng(seed)
    tensors = {name: array + 0.1 * rng.normal(size=array.shape) for name, array in gpt2_files.tensors(config).items()}
    return gpt2_files.write(folder, stored=tensors)[0]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return [str(write(folder / name / "gpt2", seed)) for seed, name in enumerate("ab")]


def some(seed, count, labels=()):
    rng = np.random.default_rng(seed)
    texts = tuple(" ".join(rng.choice(WORDS, rng.integers(6, 20))) for _ in range(count))
    return Texts(tuple(f"{seed}-{i}" for i in range(count)), texts, labels, sha256=str(seed))


def paraphrases(texts, seed):
    rng = np.random.default_rng(seed)
    shuffled = tuple(" ".join(rng.permutation(text.split())) for text in texts.texts)
    return Texts(texts.ids, shuffled, sha256=f"{texts.sha256}/{seed}")


CANDIDATES, CALIBRATION = some(1, 16), some(2, 30)


@pytest.mark.slow("long")
def test_td4eval_combines_several_scores(checkpoints, tmp_path):
    scores = ("loss", "min_k", "zlib")
    audit = tdd.run_audit(
        checkpoints[0],
        CANDIDATES,
        CALIBRATION,
        alpha=0.3,
        score=scores,
        method="td4eval",
        out=tmp_path / "run",
        progress=False,
    )
    panel = [np.stack([table[name] for name in scores]) for table in (audit.calibration, audit.items)]
    direct = tdd.td4eval(*panel, alpha=0.3)
    np.testing.assert_array_equal(direct.selected, audit.items["selected"])
    assert audit.run["decision"]["columns"] == list(scores)
    assert audit.run["checks"]["duplicates"]["num_exact_pairs"] == 0


@pytest.mark.slow("long")
def test_joint_procedures_score_every_model(checkpoints, tmp_path):
    audit = tdd.run_audit(
        checkpoints,
        CANDIDATES,
        CALIBRATION,
        alpha=0.3,
        score="loss",
        method="jmcs",
        out=tmp_path / "run",
        progress=False,
    )
    names = audit.run["decision"]["columns"]
    assert names == ["gpt2#1:loss", "gpt2#2:loss"]
    panel = [np.stack([table[name] for name in names]) for table in (audit.calibration, audit.items)]
    assert not np.array_equal(panel[1][0], panel[1][1])
    np.testing.assert_array_equal(tdd.jmcs(*panel, alpha=0.3).selected, audit.items["selected"])
    assert len(audit.run["model"]["models"]) == 2
    single = tdd.run_audit(checkpoints[1], CANDIDATES, CALIBRATION, alpha=0.3, score="loss", progress=False)
    np.testing.assert_array_equal(single.items["loss"], audit.items["gpt2#2:loss"])


def test_ktd_scores_originals_and_paraphrases(checkpoints, tmp_path):
    copies = [paraphrases(CANDIDATES, seed) for seed in range(3)]
    audit = tdd.run_audit(
        checkpoints[0], CANDIDATES, alpha=0.5, score="loss", method="ktd", knockoffs=copies, progress=False
    )
    columns = [audit.items[f"loss (knockoff {j})"] for j in (1, 2, 3)]
    direct = tdd.ktd(audit.items["loss"], np.stack(columns, axis=1), alpha=0.5)
    np.testing.assert_array_equal(direct.selected, audit.items["selected"])
    np.testing.assert_array_equal(direct.statistic, audit.items["statistic"])
    assert "blind_baseline" not in audit.run["checks"]


@pytest.mark.slow("long")
def test_ktd_with_known_nonmembers(checkpoints):
    audit = tdd.run_audit(
        checkpoints[0],
        CANDIDATES,
        CALIBRATION,
        alpha=0.5,
        score="loss",
        method="ktd:rule=conformal",
        knockoffs=[paraphrases(CANDIDATES, 0)],
        calibration_knockoffs=[paraphrases(CALIBRATION, 1)],
        progress=False,
    )
    assert audit.run["checks"]["symmetry"]["num_items"] == 30
    assert audit.run["decision"]["num_calibration"] == 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "td4eval", "calibration": None}, "calibration is missing"),
        ({"method": "ktd"}, "knockoffs are missing"),
        ({"method": "ktd", "knockoffs": [some(5, 15)]}, "15 texts for 16 items"),
        ({"method": "ktd", "knockoffs": [some(5, 16)]}, "another order"),
        ({"score": ("loss", "zlib")}, "best_score or combined_score"),
        ({"model": ["a", "b"]}, "jmcs"),
        ({"model": []}, "empty list"),
        ({"knockoffs": [some(5, 16)]}, "belongs to method 'ktd'"),
        ({"method": "td4eval", "score": ("loss", "loss")}, "twice"),
    ],
    ids=str,
)
def test_bad_input_is_refused_before_anything_is_scored(checkpoints, options, message):
    arguments = {"model": checkpoints[0], "calibration": CALIBRATION, "score": "loss"} | options
    model, calibration = arguments.pop("model"), arguments.pop("calibration")
    with pytest.raises(tdd.InputError, match=message):
        tdd.run_audit(model, CANDIDATES, calibration, alpha=0.2, progress=False, **arguments)


def test_paraphrases_on_the_command_line(checkpoints, tmp_path, capsys):
    rows = [
        {"id": name, "text": text, "b": other}
        for name, text, other in zip(CANDIDATES.ids, CANDIDATES.texts, paraphrases(CANDIDATES, 3).texts, strict=True)
    ]
    path = tmp_path / "candidates.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = "--method ktd --knockoffs b --score loss --alpha 0.5 --quiet --json"
    assert main(["audit", checkpoints[0], "--candidates", str(path), *options.split()]) == 0
    run = json.loads(capsys.readouterr().out)
    assert run["decision"]["method"] == "ktd/multi"
    assert run["decision"]["num_tests"] == 16
