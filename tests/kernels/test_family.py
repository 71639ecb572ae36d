"""Šidák's and the two-stage procedures: digits, equality, relations, levels, sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding
from statsmodels.stats.multitest import multipletests

from tdd.kernels import stepup, stepup_parts

RULES = {
    "sidak": stepup.sidak,
    "holm_sidak": stepup.holm_sidak,
    "bky": stepup.two_stage_bh,
    "bh": lambda p, alpha, **options: stepup.two_stage_bh(p, alpha, variant="bh", **options),
}
COMPILED = {name: jax.jit(rule) for name, rule in RULES.items()}
FIXED = {name: jax.jit(rule, static_argnames="alpha") for name, rule in RULES.items()}
NAMES = {"sidak": "sidak", "holm_sidak": "holm-sidak", "bky": "fdr_tsbky", "bh": "fdr_tsbh"}


def drawn(seed, m):
    rng = np.random.default_rng(seed)
    return (rng.random(m) ** rng.integers(1, 6, m)).astype(np.float32)


@pytest.mark.parametrize("rule", RULES)
def test_another_implementation(rule):
    """expm1 and log1p of a p-value, or a product, a quotient and the share of nulls."""
    for alpha in (0.05, 0.2):
        for seed in range(6):
            p = drawn(seed, 25)
            reject, adjusted, *_ = multipletests(p.astype(np.float64), alpha, method=NAMES[rule])
            step = COMPILED[rule](p, alpha)
            np.testing.assert_array_equal(step.reject, reject)
            rounding.assert_close(step.adjusted, adjusted, roundings=2 * 4 + 2)


@pytest.mark.parametrize("rule", ["sidak", "holm_sidak"])
def test_tiny_values_keep_their_digits(rule):
    """1 - (1 - p)^m by powers is 0 in single precision."""
    p = np.array([1e-30, 1e-12, 1e-8, 3e-5], np.float32)
    left = 4 if rule == "sidak" else np.arange(4, 0, -1)
    adjusted = FIXED[rule](p, 0.05).adjusted
    rounding.assert_close(adjusted, -np.expm1(left * np.log1p(-p.astype(np.float64))), roundings=2 * 4 + 1)
    assert FIXED[rule](np.ones(4, np.float32), 0.05).adjusted.tolist() == [1] * 4


@pytest.mark.parametrize("wide", [False, True])
def test_equality_is_rejected(wide):
    """alpha = 1 - (1 - p)^m exactly, for p in per cent."""
    with jax.enable_x64(wide):
        dtype = np.float64 if wide else np.float32
        decide = COMPILED["sidak"]
        for m in (1, 2, 3):
            for percent in range(1, 61):
                alpha = 1 - (100 - percent) ** m / 100**m
                p = np.array([percent / 100] + [1.0] * (m - 1) + [np.nan] * (3 - m), dtype)
                assert int(decide(p, dtype(alpha)).num_rejected) == 1
                assert int(decide(p * (1 + 2e-5), dtype(alpha)).num_rejected) == 0


@jax.jit
def rejections(p):
    rules = (stepup.sidak, stepup.holm_sidak, stepup.holm, stepup.bonferroni, stepup.two_stage_bh)
    return *(rule(p, 0.1).reject for rule in rules), stepup.bh(p, 0.1 / 1.1).reject


def test_what_contains_what():
    for seed in range(4):
        one, down, holm, few, staged, bh = map(np.asarray, rejections(drawn(seed, 25)))
        assert (one <= down).all()
        assert (holm <= down).all()
        assert (few <= one).all()
        assert (bh <= staged).all()


def test_stages():
    """No second stage where the first rejects nothing or everything; the estimate of the share of nulls otherwise."""
    step = FIXED["bky"](np.float32([0.01, 0.02, 0.03, 0.04]), 0.05)  # all at 0.05/1.05: 0.04 <= 0.0476
    assert (int(step.num_rejected), float(step.null_proportion)) == (4, 1.0)
    rounding.assert_close(step.adjusted, [0.042] * 4, roundings=4)  # 0.04, and 1.05
    step = FIXED["bky"](np.float32([0.3, 0.02, 0.03, 0.04]), 0.05)
    assert (int(step.num_rejected), float(step.null_proportion)) == (0, 1.0)
    step = FIXED["bky"](np.float32([0.001, 0.011, 0.07, 0.9]), 0.05)
    assert (step.reject.tolist(), float(step.null_proportion)) == ([True, True, True, False], 0.5)


@pytest.mark.parametrize("rule", RULES)
def test_levels(rule):
    p = drawn(9, 25)
    p[3] = np.nan
    decide = COMPILED[rule]
    for alpha in (0.05, 0.3):
        fixed = FIXED[rule](p, alpha)
        for step in (fixed, decide(p, jnp.float32(alpha))):
            np.testing.assert_array_equal(step.reject, np.asarray(step.adjusted) <= np.float32(alpha))
            assert np.isnan(step.adjusted).tolist() == np.isnan(p).tolist()
            np.testing.assert_array_equal(step.reject, fixed.reject)
    for alpha in (0.0, 1.0, -0.5, 2.0, np.nan):
        step = decide(p, jnp.float32(alpha))
        assert int(step.num_rejected) == 0
        assert np.isnan(step.adjusted).all()
        if alpha == alpha:
            with pytest.raises(ValueError, match="alpha must lie"):
                RULES[rule](p, alpha)


@pytest.mark.parametrize("rule", RULES)
def test_edges(rule):
    assert int(FIXED[rule](np.zeros(0, np.float32), 0.1).num_rejected) == 0
    nothing = np.full(4, np.nan, np.float32)
    one = np.float32([0.05, *nothing[1:]])
    assert FIXED[rule](one, 0.05).reject.tolist() == [rule != "bky", False, False, False]
    assert np.asarray(FIXED[rule](np.zeros(4, np.float32), 0.05).reject).all()
    step = FIXED[rule](nothing, 0.05)
    assert (int(step.num_rejected), int(step.num_tests)) == (0, 0)


def test_the_direct_answer_of_the_step_down_rule(monkeypatch):
    p = drawn(4, 25) / 3
    expected = np.asarray(COMPILED["holm_sidak"](p, 0.3).reject)
    monkeypatch.setattr(stepup_parts, "_MAX_PASSES", 0)
    direct = jax.jit(lambda p: stepup.holm_sidak(p, 0.3).reject)  # traced anew
    np.testing.assert_array_equal(direct(p), expected)
    assert 0 < expected.sum() < p.size


def test_unknown_variant():
    with pytest.raises(ValueError, match="variant must be one of"):
        stepup.two_stage_bh(jnp.array([0.1]), 0.1, variant="tst")


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="reads the program that XLA makes for the CPU")
@pytest.mark.parametrize(
    ("rule", "batch"),
    [(stepup.bh, True), *((rule, False) for rule in (stepup.holm, stepup.hochberg, stepup.holm_sidak))]
    + [(rule, False) for rule in (stepup.storey_bh, stepup.two_stage_bh)],
)
def test_a_decision_sorts_in_no_call_but_the_slow_one(rule, batch):
    """XLA must leave the sort inside the loop that runs where 32 passes were not enough."""
    decide = lambda p: rule(p, 0.1).reject  # noqa: E731
    p = drawn(0, 64)
    text = jax.jit(jax.vmap(decide) if batch else decide).lower(p[None] if batch else p).compile().as_text()
    assert " sort(" in text
    assert " sort(" not in text[text.index("ENTRY ") :]
