"""Numbers beyond float and odd types, wherever a number is taken: a result, or one line that says what is wrong."""

import decimal
import fractions

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


def test_what_is_a_number_counts_as_one():
    plain = tdd.bh([0.01, 0.5], alpha=0.1)
    for value in (decimal.Decimal("0.01"), np.float64(0.01), fractions.Fraction(1, 100), np.longdouble("0.01")):
        np.testing.assert_array_equal(tdd.bh([value, 0.5], alpha=0.1).adjusted, plain.adjusted)
    assert tdd.score_log_probs([DUMP], "loss", floor=fractions.Fraction(-3, 2))["loss"].tolist() == [1.25]
