"""Dumps of servers that computed nothing: refused, whoever reads them, with the likely cause."""

import json

import numpy as np
import pytest

import tdd
from tdd.cli import main
from tdd.validate import InputError

CAUSE = "a server that does not compute the prompt's log-probabilities"


def sample(number, sums):
    """A line of lm-evaluation-harness with the log-likelihoods of two choices."""
    return {
        "doc_id": number,
        "doc": {"question": f"Question {number}?", "choices": ["one", "two"], "answer": 0},
        "target": 0,
        "arguments": [[f"Question {number}?", f" {choice} words"] for choice in ("one", "two")],
        "filtered_resps": [[str(value), "True"] for value in sums],
        "resps": [[[str(value), "True"]] for value in sums],
    }


def sound(count):
    rng = np.random.default_rng(0)
    return [sample(number, -rng.exponential(5, 2).round(4)) for number in range(count)]


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([{"log_probs": [None, *[0.0] * 20]}], "index 0: all 20 log-probabilities are 0"),
        (
            [{"log_probs": [None, -1.0, -2.0]}, {"log_probs": [None, 0.0, 0.0]}],
            "index 1: all 2 log-probabilities are 0",
        ),
        ([{"log_probs": [-1.5] * 4}], "index 0: all 4 log-probabilities are -1.5"),
        ([{"log_probs": [None, *[float("-inf")] * 5]}], "index 0: all 5 log-probabilities are -inf"),
        ([{"log_probs": [-1.5]}] * 4, "all 4 items have the log-likelihood -1.5"),
        ([sample(9, (0.0, 0.0)), *sound(3)], "index 0: the log-likelihoods of all 2 choices are 0"),
    ],
)
def test_refused(rows, complaint):
    with pytest.raises(InputError, match=complaint) as refusal:
        tdd.score_log_probs(rows, ["loss" if "log_probs" in rows[0] else "choice_loss"])
    assert CAUSE in str(refusal.value)


@pytest.mark.parametrize(
    "rows",
    [
        [{"log_probs": [0.0]}, {"log_probs": [-2.0, -2.0]}, {"log_probs": [-1.0, 0.0, 0.0, 0.0]}],
        [{"log_probs": [-1.5]}] * 3,
        [sample(8, (0.0, -3.0)), sample(9, (-2.0, -2.0)), *sound(3)],
    ],
)
def test_read(rows):
    assert len(tdd.score_log_probs(rows, ["loss" if "log_probs" in rows[0] else "choice_loss"]).ids) == len(rows)


def test_an_audit_of_samples_says_so(tmp_path, capsys):
    files = {"empty": [sample(number, (0.0, 0.0)) for number in range(100)], "sound": sound(200)}
    for name, rows in files.items():
        (tmp_path / f"samples_{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    empty, known = (str(tmp_path / f"samples_{name}.jsonl") for name in files)
    assert main(["audit", "--lm-eval", empty, "--calibration", known, "--alpha", "0.1"]) == 2
    assert CAUSE in capsys.readouterr().err
    assert main(["score-logprobs", empty, "--score", "loss_per_byte", "--out", str(tmp_path / "scores.csv")]) == 2
    assert CAUSE in capsys.readouterr().err
    assert not (tmp_path / "scores.csv").exists()
