"""Weighted p-values and selection: unit weights, units, random pruning, the searches, bad weights."""

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_shift as ref
import rounding
from hypothesis import given, settings
from hypothesis import strategies as st

from tdd.kernels import conformal, weighted
from tdd.procedures.calls import level_operand

selection = jax.jit(weighted.selection, static_argnames=("null", "prune"))
fixed_selection = jax.jit(weighted.selection, static_argnames=("alpha", "null", "prune"))
p_values = jax.jit(weighted.p_values, static_argnames="null")
last_at_most = jax.jit(weighted._last_at_most)
effective_sample_size = jax.jit(weighted.effective_sample_size)


@functools.partial(jax.jit, static_argnames="null")
def plain_p_values(calibration, scores, null):
    return conformal.p_values(conformal.rank(calibration, scores, null=null))


def samples(seed, n=25, m=12, integers=False):
    rng = np.random.default_rng(seed)
    draw = (lambda k: rng.integers(0, 9, k).astype(np.float32)) if integers else (lambda k: rng.normal(size=k))
    weights = lambda k: (rng.integers(1, 17, k) / 4).astype(np.float32)  # noqa: E731
    return tuple(np.asarray(x, np.float32) for x in (draw(n), draw(m) - 1.5, weights(n), weights(m)))


def select(data, alpha=0.2, null="nonmember", prune="deterministic", **options):
    step = selection(*data, level_operand(alpha), null=null, prune=prune, **options)
    return jax.tree.map(np.asarray, step)


def with_fourth(weights, value):
    weights = weights.copy()
    weights[3] = value
    return weights


@pytest.mark.parametrize("null", conformal.NULLS)
@pytest.mark.parametrize("integers", [False, True])
def test_unit_weights_give_plain_p_values(null, integers):
    calibration, scores, *_ = samples(0, integers=integers)
    plain = plain_p_values(calibration, scores, null)
    for unit in (1.0, 0.25, 4096.0):
        own, other = (np.full(x.shape, unit, np.float32) for x in (calibration, scores))
        got = p_values(calibration, scores, own, other, null=null)
        rounding.assert_close(got, plain, roundings=2)  # one rounding of either division


def test_integer_scores_of_any_type_and_sign():
    """The smallest and largest integers keep their order when the null is turned round."""
    both = jax.jit(lambda *given: [weighted.p_values(*given, null=null) for null in ("nonmember", "member")])
    for dtype in (np.int32, np.uint8, np.int8):
        info = np.iinfo(dtype)
        calibration = np.array([info.min, 3, info.max], dtype)
        scores = np.array([info.min, info.max], dtype)
        found = both(calibration, scores, np.ones(3, np.float32), np.ones(2, np.float32))
        assert [p.tolist() for p in found] == [[0.5, 1.0], [1.0, 0.5]]


def test_the_unit_of_the_weights_does_not_matter():
    data = samples(1)
    scaled = (*data[:2], data[2] * 8, data[3] * 8)
    for a, b in zip(select(data), select(scaled), strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=7, max_size=7),
    st.lists(st.tuples(st.integers(-3, 5), st.integers(0, 6)), min_size=8, max_size=8),
    st.sampled_from([0.05, 0.1, 0.25, 0.5, 0.8]),
    st.sampled_from(conformal.NULLS),
)
@pytest.mark.slow("long")
def test_any_small_integers(calibration, candidates, alpha, null):
    (cal, w_cal), (scores, weights) = (np.array(x, np.float32).T for x in (calibration, candidates))
    got = select((cal, scores, w_cal, weights), alpha, null)
    selected, p, sizes, fewest = ref.weighted_selection(cal, scores, w_cal, weights, alpha, null)
    np.testing.assert_array_equal(got.bh_sizes, sizes)
    np.testing.assert_array_equal(got.selected, selected)
    rounding.assert_close(got.p_values, [float(x) for x in p], roundings=2)
    assert int(got.min_selections) == fewest


@pytest.mark.parametrize("prune", ["heterogeneous", "homogeneous"])
@pytest.mark.parametrize("seed", range(8))
def test_random_pruning_is_the_definition_with_these_uniforms(prune, seed):
    data, key = samples(seed, integers=True), jax.random.key(seed)
    uniform = 1 - np.asarray(jax.random.uniform(key, (12,) if prune == "heterogeneous" else ()))
    factor = [Fraction(float(x)) for x in np.broadcast_to(uniform, 12)]
    got = select(data, 0.4, prune=prune, key=key)
    expected = ref.weighted_selection(data[0], data[1], data[2], data[3], 0.4, "nonmember", factor=factor)[0]
    np.testing.assert_array_equal(got.selected, expected)
    np.testing.assert_array_equal(got.adjusted <= np.float32(0.4), got.selected)


@pytest.mark.slow("long")
def test_random_pruning_selects_more_than_none():
    counts = dict.fromkeys(weighted.PRUNES, 0)
    for seed in range(20):
        for prune in counts:
            key = None if prune == "deterministic" else jax.random.key(seed)
            counts[prune] += int(select(samples(seed), 0.3, prune=prune, key=key).num_selected)
    assert 0 < counts["deterministic"] <= min(counts["heterogeneous"], counts["homogeneous"])


@pytest.mark.slow("long")
def test_large_samples_agree_with_the_definition():
    """m = 1,000 against the m² auxiliary p-values, in double precision."""
    rng = np.random.default_rng(5)
    n = m = 1_000
    cal, scores = rng.normal(size=n), rng.normal(size=m) - 3 * (rng.random(m) < 0.3)
    w_cal, weights = np.exp(rng.normal(size=n)), np.exp(rng.normal(size=m))
    with jax.enable_x64(True):
        data, null = (cal, scores, w_cal, weights), "nonmember"
        got = jax.tree.map(np.asarray, fixed_selection(*data, 0.1, null=null, prune="deterministic"))
        key = jax.random.key(0)
        drawn = int(fixed_selection(*data, 0.1, null=null, prune="homogeneous", key=key).num_selected)
    below = np.where(cal[:, None] < scores, w_cal[:, None], 0).sum(0)
    top = below[None] + weights[:, None] * (scores[:, None] < scores[None])
    np.fill_diagonal(top, 0)
    auxiliary = np.sort(top / (w_cal.sum() + weights)[:, None], axis=1)
    places = np.arange(1, m + 1)
    sizes = np.where(auxiliary <= 0.1 * places / m, places, 0).max(1)
    np.testing.assert_array_equal(got.bh_sizes, sizes)
    assert got.bh_sizes.min() < got.bh_sizes.max()
    assert drawn > 50


@pytest.mark.parametrize("m", [1, 2, 3, 8, 13, 64, 100])
def test_last_at_most(m):
    rng = np.random.default_rng(m)
    for _ in range(20):
        values = rng.integers(0, 10, m).astype(np.float32)
        bounds = rng.integers(-1, 10, 50).astype(np.float32)
        ends = rng.integers(0, m + 1, 50).astype(np.int32)
        got = last_at_most(values, bounds, ends)
        expected = [max((i for i in range(e) if values[i] <= b), default=-1) for b, e in zip(bounds, ends)]
        assert got.tolist() == expected


def test_bad_traced_weights():
    """A bad calibration weight spoils every p-value, a bad weight of a candidate its own; no selection survives."""
    data = samples(2)
    for bad in (-1.0, np.nan, np.inf):
        own = (*data[:2], with_fourth(data[2], bad), data[3])
        other = (*data[:3], with_fourth(data[3], bad))
        assert np.isnan(p_values(*own, null="nonmember")).all()
        p = np.asarray(p_values(*other, null="nonmember"))
        assert np.isnan(p[3])
        assert not np.isnan(np.delete(p, 3)).any()
        for spoiled in (own, other):
            step = select(spoiled, 0.5)
            assert not step.selected.any()
            assert np.isnan(step.adjusted).all()
    assert select(data, 0.5).selected.any()
    masked = (*data[:2], with_fourth(data[2], np.nan), data[3])
    assert select(masked, 0.5, calibration_mask=np.arange(25) != 3).selected.any()


def test_no_weight_at_all_is_no_evidence():
    calibration, scores, zeros = np.arange(3, dtype=np.float32), np.array([-1], np.float32), np.zeros(3, np.float32)
    p = p_values(calibration, scores, zeros, zeros[:1], null="nonmember")
    assert p.tolist() == [1.0]


def test_traced_level_out_of_range():
    data = samples(3)
    assert select(data, jnp.float32(0.5)).selected.any()
    for alpha in (0.0, 1.0, -1.0, np.nan):
        step = selection(*data, jnp.float32(alpha), null="nonmember", prune="deterministic")
        step = jax.tree.map(np.asarray, step)
        assert not step.selected.any()
        assert np.isnan(step.adjusted).all()


def test_effective_sample_size_does_not_overflow():
    weights = np.array([1e30, 1e30, 0.0, 1e30], np.float32)
    assert float(effective_sample_size(weights)) == pytest.approx(3)
    assert float(effective_sample_size(np.zeros(4, np.float32))) == 0
    assert float(effective_sample_size(weights, mask=np.arange(4) < 2)) == pytest.approx(2)


def test_unknown_options():
    data = samples(4)
    with pytest.raises(ValueError, match="null"):
        p_values(*data, null="both")
    with pytest.raises(ValueError, match="prune"):
        select(data, prune="none")
    with pytest.raises(ValueError, match="key"):
        select(data, prune="homogeneous")
    with pytest.raises(ValueError, match="alpha"):
        fixed_selection(*data, 1.5, null="nonmember", prune="deterministic")


@pytest.mark.parametrize(
    "scores", [np.arange(100_000) >= 5_000, np.arange(100_000) % 20 > 0], ids=["in two parts", "in turn"]
)
def test_many_equal_scores_weigh_what_they_are(scores):
    """10^5 weights in single precision, added one after the other to one place, were off by .06%."""
    weight, queries = np.float32(0.26), np.arange(2, dtype=np.float32)
    p = p_values(scores.astype(np.float32), queries, np.full(len(scores), weight), np.full(2, weight), null="nonmember")
    expected = ((scores <= queries[:, None]).sum(axis=1) + 1) / (len(scores) + 1)
    assert np.asarray(p) == pytest.approx(expected, rel=32 * float(np.finfo(np.float32).eps))
