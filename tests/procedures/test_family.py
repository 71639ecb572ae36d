"""`tdd.sidak`, `tdd.holm_sidak` and `tdd.two_stage_bh`: messages, masks, types, transformations."""

import functools

import jax
import numpy as np
import pytest

import tdd
from tdd.procedures.testing import GUARANTEE_ROWS, GUARANTEES
from tdd.validate import InputError

RULES = [tdd.sidak, tdd.holm_sidak, tdd.two_stage_bh, functools.partial(tdd.two_stage_bh, variant="bh")]
P = [0.001, 0.011, np.nan, 0.07, 0.9, 0.2]

every_rule = pytest.mark.parametrize("rule", RULES, ids=["sidak", "holm_sidak", "bky", "bh"])


@every_rule
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([0.2, 1.5], 0.1), r"p_values\[1\] is 1.5"),
        (([0.2, -0.1], 0.1), r"p_values\[1\] is -0.1"),
        ((0.2, 0.1), "p_values must have its items along a last axis"),
        (([0.2], 1.0), "alpha must lie"),
        (([0.2], np.nan), "alpha must lie"),
    ],
)
def test_messages(rule, given, message):
    with pytest.raises(InputError, match=message):
        rule(*given)


def test_unknown_variant():
    with pytest.raises(InputError, match=r"variant.*'tst'"):
        tdd.two_stage_bh([0.2], 0.1, variant="tst")


@every_rule
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_masks_and_types(rule, dtype):
    p = np.array(P, dtype)
    step = rule(p, 0.05)
    assert step.num_tests == 5
    assert np.isnan(step.adjusted).tolist() == [False, False, True, False, False, False]
    np.testing.assert_array_equal(step.reject, np.asarray(step.adjusted) <= np.float32(0.05))
    kept = rule(p, 0.05, mask=[True, True, True, True, True, False])
    alone = rule(p[:5], 0.05)
    np.testing.assert_array_equal(kept.reject[:5], alone.reject)
    np.testing.assert_allclose(kept.adjusted[:5], alone.adjusted, rtol=1e-6)
    assert np.isnan(kept.adjusted[5])
    assert rule(np.zeros(0, dtype), 0.05).num_rejected == 0


@every_rule
def test_transformations(rule):
    p = np.array(P, np.float32)
    expected = rule(p, 0.05).reject
    call = jax.jit(jax.vmap(lambda x, a: rule(x, a).reject, in_axes=(None, 0)))
    many = np.asarray(call(p, np.array([0.01, 0.05, 2.0], np.float32)))
    np.testing.assert_array_equal(many[1], expected)
    assert not many[2].any()


def test_every_option_has_its_guarantee():
    rows = {(call, option): guarantee for call, option, guarantee in GUARANTEE_ROWS}
    for call, option, name in [
        ("tdd.sidak", "", "sidak"),
        ("tdd.holm_sidak", "", "holm_sidak"),
        ("tdd.two_stage_bh", 'variant="bky"', "two_stage_bh"),
        ("tdd.two_stage_bh", 'variant="bh"', "two_stage_bh/bh"),
    ]:
        assert rows[call, option] == GUARANTEES[name]
