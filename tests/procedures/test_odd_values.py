"""Numbers beyond float and odd types, wherever a number is taken: a result, or one line that says what is wrong."""

import decimal
import fractions
import os
import subprocess
import sys

import numpy as np
import pytest

import tdd

ODD = {
    "large": 10**400,
    "small": -(10**400),
    "fraction": fractions.Fraction(10**400, 3),
    "bool": True,
    "numpy bool": np.True_,
    "decimal": decimal.Decimal("1e999"),
    "signalling": decimal.Decimal("sNaN"),
    "bytes": b"1",
    "complex": 1j,
    "word": "x",
    "list": [1],
    "object": object(),
}
DUMP = {"log_probs": [None, -2.0, -1.0]}
CALLS = {
    "bh": lambda value: tdd.bh([value, 0.5], alpha=0.1),
    "alpha": lambda value: tdd.bh([0.1], alpha=value),
    "ptdi": lambda value: tdd.ptdi([value, 1.0, 2.0], [0.5, 1.0], alpha=0.1),
    "eta": lambda value: tdd.ptdi([1.0, 2.0], [0.5, 1.0], alpha=0.1, eta=value),
    "jecs": lambda value: tdd.jecs([[value, 1.0], [1.0, 2.0]], [[1.0, 2.0]], alpha=0.1),
    "ktd": lambda value: tdd.ktd([value, 1.0], [[1.0], [2.0]], alpha=0.1),
    "td4eval": lambda value: tdd.td4eval([[value], [1.0]], [[1.0], [2.0]], alpha=0.1),
    "table": lambda value: tdd.load_score_table([{"s": value}, {"s": 1.0}], scores="s", calibrated=False),
    "dump": lambda value: tdd.score_log_probs([{"log_probs": [None, value, -1.0]}], "loss"),
    "base": lambda value: tdd.score_log_probs([DUMP], "loss", base=value),
    "floor": lambda value: tdd.score_log_probs([DUMP], "loss", floor=value),
    "olmes": lambda value: tdd.score_log_probs(
        [{"doc_id": 0, "label": 0, "model_output": [{"sum_logits": value, "num_tokens": 2}]}], "loss"
    ),
    "samples": lambda value: tdd.score_log_probs(
        [{"doc_id": 0, "arguments": [["a"]], "filtered_resps": [value]}], "loss_per_byte"
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_odd_values_are_refused_in_one_line(call):
    for kind, value in ODD.items():
        with pytest.raises(tdd.InputError) as raised:
            CALLS[call](value)
        assert "\n" not in str(raised.value), kind


@pytest.mark.parametrize("name", ["fdp_bounds", "conformal_e_values", "conformal_p_values"])
def test_lists_of_unequal_lengths_are_refused(name):
    more = {"alpha": 0.1} if name == "conformal_e_values" else {}
    with pytest.raises(tdd.InputError, match="calibration must be"):
        getattr(tdd, name)([1.0, [2.0, 3.0]], [0.5], null="nonmember", **more)


def test_a_message_is_one_printable_line():
    with pytest.raises(tdd.InputError) as raised:
        tdd.bh([0.1], alpha=np.zeros((2, 2, 2)))
    assert str(raised.value).isprintable()
    assert str(tdd.InputError("a\x1b[2J\nb")) == r"a\x1b[2J\nb"


FORKED = """
import multiprocessing, numpy as np, tdd, tdd.study
from tdd.models.checkpoint import load
from tdd.demo.data import demo_files

def work(name, queue):
    try:
        CALLS[name]()
        queue.put("computed")
    except tdd.InputError as error:
        queue.put(str(error))

place, scores = demo_files().checkpoint, np.arange(40) / 40
CALLS = {
    "bh": lambda: tdd.bh(scores, 0.1), "combine": lambda: tdd.combine_p_values(scores, method="fisher"),
    "ptdi": lambda: tdd.ptdi(scores, scores, alpha=0.1), "load": lambda: load(place),
    "score": lambda: tdd.score(place, ["an owl"], "loss", progress=False),
    "study": lambda: tdd.study.run(tdd.study.NormalShift(20, 20), ["ptdi"], alphas=[0.1], repetitions=8),
    "guard": lambda: tdd.probe.OrderGuard(), "order": lambda: order(1, scores),
    "stream": lambda: stream(1, [[1, 2, 3]]), "probe": lambda: probe(1, {"e": table}),
    "statistics": lambda: tdd.token_stats(lm, {"e": table}, rows, rows > 0),
    "gradients": lambda: tdd.grad_norms(lm, {"e": table}, rows, rows > 0),
    "examples": lambda: tdd.probe.example_grad_norms(lambda e, x: (e * x).sum(), table, table[None]),
    "causal": lambda: tdd.check_causal(lm, {"e": table}, rows),
}
rows, table = np.arange(240).reshape(40, 6) % 9 + np.arange(40)[:, None], np.ones((60, 60), np.float32)
lm = tdd.from_function(lambda params, tokens: params["e"][tokens], vocab_size=60, name="table")
context = multiprocessing.get_context("fork")
for turn in range(2):
    for name in CALLS:
        if turn == 0 and name != "bh":
            continue
        queue = context.SimpleQueue()
        child = context.Process(target=work, args=(name, queue))
        child.start()
        child.join(60)
        print(turn, name, "hangs" if child.exitcode is None else queue.get())
        child.kill()
    tdd.bh(scores, 0.1)
    order, stream = tdd.probe.OrderGuard(), tdd.probe.StreamGuard([[1, 2, 3]], ngram=3)
    probe = tdd.Probe(lm, rows[:16], rows[16:], every=1, num_draws=199)
"""


def test_a_fork_of_a_process_that_computed_is_refused():
    """Before its parent computes a child may compute; afterwards JAX would wait for ever in it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, env=environment
    )
    first, *after = done.stdout.splitlines()
    assert first == "0 bh computed", done.stderr
    assert len(after) == 14
    for line in after:
        assert "this process is a fork of one that has used JAX" in line


def test_what_is_a_number_counts_as_one():
    plain = tdd.bh([0.01, 0.5], alpha=0.1)
    for value in (decimal.Decimal("0.01"), np.float64(0.01), fractions.Fraction(1, 100), np.longdouble("0.01")):
        np.testing.assert_array_equal(tdd.bh([value, 0.5], alpha=0.1).adjusted, plain.adjusted)
    assert tdd.score_log_probs([DUMP], "loss", floor=fractions.Fraction(-3, 2))["loss"].tolist() == [1.25]
