"""The rule of slots and the statistics under it: exact laws by listing every labelling, references, ties."""

import collections
import itertools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_trajectories as ref
import rounding

from tdd.kernels import trajectories
from tdd.kernels.set_statistics import STATISTICS, labellings, set_statistics


def run(paths, shares, alpha=None):
    """Places [T, K] as levels' values, and the evidence, of all looks."""
    state = trajectories.start(paths.shape[1] - 1, alpha=alpha)

    def look(state, step):
        state, evidence = trajectories.advance(state, *step)
        return state, (state.levels.value[state.place], evidence)

    return jax.lax.scan(look, state, (jnp.asarray(paths), jnp.asarray(shares)))[1]


run_compiled = jax.jit(run, static_argnames="alpha")
compiled_statistics = jax.jit(set_statistics, static_argnames="statistic")


def every_labelling(num_items, num_suspect):
    rows = np.zeros((math.comb(num_items, num_suspect), num_items), bool)
    for row, chosen in zip(rows, itertools.combinations(range(num_items), num_suspect), strict=True):
        row[list(chosen)] = True
    return rows


def test_labellings():
    rows = np.asarray(labellings(3, 5, 400, 7))
    assert rows.shape == (401, 8)
    assert rows[0].tolist() == [True] * 3 + [False] * 5
    assert (rows.sum(axis=1) == 3).all()
    np.testing.assert_array_equal(rows, labellings(3, 5, 400, 7))
    assert (rows != np.asarray(labellings(3, 5, 400, 8))).any()
    assert labellings(2, 1, 0, 0).tolist() == [[True, True, False]]


def test_every_labelling_is_drawn_equally_often():
    draws = 60_000
    found = collections.Counter(map(bytes, np.asarray(labellings(2, 3, draws, 0))[1:]))
    assert len(found) == 10
    chi2 = sum((count - draws / 10) ** 2 / (draws / 10) for count in found.values())
    assert chi2 < 33.7  # 9 degrees of freedom, upper 1e-4


@pytest.mark.parametrize("statistic", STATISTICS)
def test_what_a_statistic_is_large_for(statistic):
    labels = every_labelling(8, 3)
    scores = np.arange(8, dtype=np.float32)
    found = np.asarray(compiled_statistics(scores, labels, statistic=statistic))
    assert found.argmax() == np.flatnonzero((labels == (np.arange(8) < 3)).all(axis=1))[0]
    np.testing.assert_array_equal(found, compiled_statistics(np.exp(scores), labels, statistic=statistic))


def test_both_scores_have_mean_zero_and_about_one_variance_over_labellings():
    labels = every_labelling(14, 7)
    scores = np.random.default_rng(0).normal(size=14).astype(np.float32)
    both = [np.asarray(compiled_statistics(scores, labels, statistic=name), float) for name in ("rank_sum", "tail")]
    for found in both:
        assert 0 <= found.mean() <= 7  # the mean of the scores is taken down to a whole number
    np.testing.assert_array_equal(np.max(both, axis=0), compiled_statistics(scores, labels))
    large = labellings(200, 200, 4_000, 0)
    scores = np.random.default_rng(1).normal(size=400).astype(np.float32)
    first, second = (
        np.std(np.asarray(compiled_statistics(scores, large, statistic=name))) for name in ("rank_sum", "tail")
    )
    assert 0.9 < first / second < 1.1


def test_sums_are_exact_beyond_one_product():
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=1_300).astype(np.float32), rng.random((6, 1_300)) < 0.5
    np.testing.assert_array_equal(compiled_statistics(scores, labels), ref.set_statistics(scores, labels))


@pytest.mark.slow("long")
def test_a_baseline_that_explains_everything_leaves_no_order():
    rng = np.random.default_rng(0)
    labels = labellings(20, 30, 9, 0)
    baseline = (3 + rng.normal(size=50)).astype(np.float32)
    for scores in (baseline, 2 * baseline - 1, -0.3 * baseline + 100, np.full(50, 2.5, np.float32)):
        assert np.unique(compiled_statistics(scores.astype(np.float32), labels, baseline=baseline)).tolist() == [0]
    assert np.unique(set_statistics(baseline, labels, baseline=baseline)).tolist() == [0]
    moved = baseline.copy()
    moved[:4] -= 1e-3
    assert np.asarray(compiled_statistics(moved, labels, baseline=baseline)).argmax() == 0


def test_a_constant_baseline_changes_nothing():
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=30).astype(np.float32), labellings(10, 20, 20, 0)
    np.testing.assert_array_equal(
        compiled_statistics(scores, labels, baseline=np.full(30, 3, np.float32)), compiled_statistics(scores, labels)
    )


def test_too_many_items():
    with pytest.raises(ValueError, match="262144 items are too many"):
        compiled_statistics(np.zeros(2**18, np.float32), np.zeros((1, 2**18), bool))


@pytest.mark.parametrize("seed", range(12))
def test_reference(seed):
    """Random paths with and without ties, NaN, schedules that stand still and jump."""
    rng = np.random.default_rng(seed)
    num_rows, num_looks = (2, 37, 90)[seed % 3], 7
    paths = rng.normal(size=(num_looks, num_rows)).cumsum(axis=0)
    if seed % 4 < 2:
        paths = np.round(2 * paths)
    paths = paths.astype(np.float32)
    shares = np.sort(rng.choice([0, 0.1, 0.25, 0.3, 0.7, 0.9, 1], size=num_looks)).astype(np.float32)
    alpha = (None, 0.33, 0.07)[seed % 3]
    levels, evidence = jax.tree.map(np.asarray, run_compiled(paths, shares, alpha))
    exact = None if alpha is None else Fraction(str(alpha))
    expected = ref.crossings(paths.tolist(), shares, exact)
    rounding.assert_close(levels, np.array(expected, float), roundings=2)  # the largest float at or below
    np.testing.assert_array_equal(evidence.anytime_p_value, levels[:, 0])
    rounding.assert_close(evidence.p_value, (paths >= paths[:, :1]).mean(axis=1), roundings=2)
    share, total = np.diff(shares, prepend=0), 0
    for t in range(num_looks):
        z = (paths[t] - paths[t].mean()) / (paths[t].std() or 1)
        total += share[t] * np.exp(3 * z[0]) / np.exp(3 * z).mean()
        np.testing.assert_allclose(np.exp(evidence.log_e_value[t]), total, rtol=2e-5)


@pytest.mark.parametrize("alpha", [None, 0.07])
def test_without_ties_every_slot_is_taken(alpha):
    """So that a level is reached with exactly the probability that the number of rows allows."""
    num_rows, shares = 400, (0.2, 0.2, 0.5, 1.0)
    paths = np.random.default_rng(0).normal(size=(4, num_rows)).astype(np.float32)
    levels, _ = jax.tree.map(np.asarray, run_compiled(paths, np.float32(shares), alpha))
    grid = ref.grid(num_rows, None if alpha is None else Fraction(str(alpha)))
    for after, share in zip(levels, shares, strict=True):
        for level in grid[1:]:
            exact = Fraction(math.floor(np.float32(share) * 2**24), 2**24)
            assert (np.asarray(after) <= float(level)).sum() == math.floor(level * exact * num_rows)


def test_common_levels_are_in_the_grid_and_hold_at_equality():
    state = trajectories.start(9_999, alpha=0.037)
    for alpha in (0.2, 0.1, 0.05, 0.037, 0.025, 0.01, 0.005, 0.001):
        value = np.asarray(state.levels.value)
        at = np.abs(np.asarray(value) - alpha).argmin()
        assert Fraction(int(state.levels.numerator[at]), int(state.levels.denominator[at])) == Fraction(str(alpha))
        assert bool(value[at] <= alpha)
        assert float(value[at]) <= alpha < float(value[at]) * (1 + 2e-7)
    with jax.enable_x64(True):
        wide = np.asarray(trajectories.start(9_999, alpha=0.05).levels.value)
        assert wide.dtype == np.float64
        assert min(abs(wide - 0.05)) < 1e-16
    assert len(state.levels.value) < 50


@pytest.mark.parametrize(
    ("statistic", "scores", "draws"),
    [
        ("rank_sum", [[3, 1, 4, 2, 5], [2, 1, 5, 3, 4], [1, 5, 2, 4, 3]], 2),
        ("combined", [[1, 1, 2, 2, 2], [1, 2, 1, 1, 2], [5, 1, 1, 1, 1]], 2),
        ("combined", [[4, 1, 2, 3], [4, 1, 2, 3], [np.nan, 2, 1, 1], [1, 2, 3, 4]], 3),
    ],
    ids=["distinct", "ties", "four items"],
)
def test_every_choice_of_labellings(statistic, scores, draws):
    """All (labellings)^K choices, equally likely: no level is crossed too often, the e-value has mean at most one."""
    scores = np.array(scores, np.float32)
    num_looks, num_items = scores.shape
    labels = every_labelling(num_items, 2)
    each = np.stack([np.asarray(compiled_statistics(row, labels, statistic=statistic)) for row in scores])
    chosen = np.array(list(itertools.product(range(len(labels)), repeat=draws + 1)))
    shares = np.linspace(0, 1, num_looks + 1, dtype=np.float32)[1:]
    batched = jax.jit(jax.vmap(run, in_axes=(0, None)))

    def rates(favour):
        paths = each[:, chosen].transpose(1, 0, 2).astype(np.float32)
        paths[:, :, 0] += favour
        levels, evidence = batched(paths, shares)
        excess = max(
            (np.asarray(levels)[:, t, 0] <= float(level)).mean() - float(level * Fraction(float(shares[t])))
            for t in range(num_looks)
            for level in ref.grid(draws + 1)[1:]
        )
        return excess, np.exp(np.asarray(evidence.log_e_value, float)).mean(axis=0)

    excess, e_values = rates(0)
    assert excess <= 1e-7
    assert (e_values <= shares * (1 + 1e-5)).all()
    assert rates(0.5)[0] > 0.02  # ties decided for the true labelling


def test_rows_are_treated_alike():
    rng = np.random.default_rng(0)
    paths, shares = np.round(rng.normal(size=(5, 60)), 1).astype(np.float32), np.linspace(0.2, 1, 5)
    order = rng.permutation(60)
    levels, _ = run_compiled(paths, np.float32(shares))
    moved, _ = run_compiled(paths[:, order], np.float32(shares))
    np.testing.assert_array_equal(np.asarray(levels)[:, order], moved)


def test_the_mean_e_value_over_rows_is_one():
    paths = np.random.default_rng(0).normal(size=(1, 40)).astype(np.float32)
    e_values = [
        float(run_compiled(np.roll(paths, b, axis=1), np.ones(1, np.float32))[1].log_e_value[0]) for b in range(40)
    ]
    assert np.exp(e_values).mean() == pytest.approx(1, rel=1e-5)


def test_looks_that_repeat_cost_nothing():
    """With one statistic at all looks, the last look decides as one look at the whole level does."""
    values = np.random.default_rng(0).permutation(200).astype(np.float32)
    shares = np.linspace(0.02, 1, 50, dtype=np.float32)
    for first in (200 - 10, 200 - 11):  # the tenth and the eleventh largest: 10 = .05 K
        paths = np.roll(values, -int(np.flatnonzero(values == first)[0]))
        _, evidence = run_compiled(np.tile(paths, (50, 1)), shares)
        assert bool(evidence.anytime_p_value[-1] <= 0.05) == (first == 190) == bool(evidence.p_value[-1] <= 0.05)


def test_a_look_where_all_tie_uses_no_slot():
    paths = np.stack([np.zeros(50), np.arange(50)[::-1]]).astype(np.float32)
    levels, evidence = jax.tree.map(np.asarray, run_compiled(paths, np.float32([0.5, 0.5])))
    assert (levels[0] == 1).all()
    assert evidence.p_value.tolist() == [1, pytest.approx(0.02)]
    assert float(evidence.anytime_p_value[1]) == pytest.approx(0.04)
    assert np.exp(evidence.log_e_value).tolist() == pytest.approx([0.5, 0.5])


def test_what_is_not_a_number_is_least_extreme():
    paths = np.array([[np.nan, 1, 2, np.nan], [np.nan] * 4], np.float32)
    _, evidence = run_compiled(paths, np.float32([0.5, 1.0]))
    assert evidence.p_value.tolist() == [1, 1]
    assert evidence.anytime_p_value.tolist() == [1, 1]
    assert np.exp(evidence.log_e_value).tolist() == pytest.approx([0, 0.5])


def test_shares_never_fall_and_stay_below_one():
    paths = np.tile(np.arange(20)[::-1], (4, 1)).astype(np.float32)
    state = trajectories.start(19)
    advance, shares = jax.jit(trajectories.advance), []
    for spent in (0.5, 0.2, float("nan"), 7.0):
        state, _ = advance(state, paths[0], spent)
        shares.append(float(state.spent))
    assert shares == [0.5, 0.5, 0.5, 1.0]


def test_one_row_is_no_evidence():
    _, evidence = run_compiled(np.zeros((2, 1), np.float32), np.float32([0.5, 1]))
    assert [float(x[1]) for x in evidence] == [1, 1, 0]


@pytest.mark.slow("long")
def test_compiled_batched_and_double_precision_decide_alike():
    rng = np.random.default_rng(3)
    labels = labellings(25, 35, 299, 0)
    scores = rng.normal(size=(3, 6, 60)).astype(np.float32)

    def paths(scores):
        found = jax.vmap(lambda row: compiled_statistics(row, labels, baseline=scores[0]))(scores)
        return run(found, jax.vmap(trajectories.spending, in_axes=(0, None))(jnp.arange(1, 7), 6))

    compiled, batched = jax.jit(paths), jax.jit(jax.vmap(paths))(scores)
    for i, each in enumerate(scores):
        levels, evidence = compiled(each)
        np.testing.assert_array_equal(levels, batched[0][i])
        np.testing.assert_array_equal(evidence.p_value, batched[1].p_value[i])
        np.testing.assert_allclose(evidence.log_e_value, batched[1].log_e_value[i], rtol=1e-5)
    with jax.enable_x64(True):
        wide = jax.jit(paths)(scores[0].astype(np.float64))
    np.testing.assert_allclose(wide[0], compiled(scores[0])[0], rtol=2e-7)


def test_spending():
    share = jax.jit(jax.vmap(trajectories.spending, in_axes=(0, None)))
    assert share(jnp.arange(6), 4).tolist() == [0, 0.25, 0.5, 0.75, 1, 1]
    open_end = np.asarray(share(jnp.arange(1, 1_000), None))
    assert (np.diff(open_end) > 0).all()
    assert open_end[19] == 0.5
    assert open_end[-1] < 1
    looks, horizons = np.array(list(itertools.product(range(1, 8), (7, 10, 1_000_000_007))), np.int32).T
    found = jax.jit(jax.vmap(trajectories.spending))(looks, horizons)
    for look, horizon, value in zip(looks.tolist(), horizons.tolist(), found.tolist(), strict=True):
        true = Fraction(look, horizon) if look < horizon else Fraction(1)
        assert true <= Fraction(value) < true + Fraction(1, 2**24)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.jit(jax.vmap(trajectories.spending))(looks, horizons), found)


def test_wrong_calls():
    with pytest.raises(ValueError, match="num_draws must not be negative, got -1"):
        trajectories.start(-1)
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.5"):
        trajectories.start(9, alpha=1.5)
    with pytest.raises(ValueError, match="known beforehand"):
        trajectories.start(9, alpha=jnp.float32(0.05))
