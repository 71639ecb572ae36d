"""The knockoff kernels beyond the laws that every kernel obeys."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_knockoff as ref
import rounding
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tdd.kernels import knockoff, knockoff_symmetry
from tdd.procedures.calls import level_operand

select = jax.jit(knockoff.select, static_argnames=("offset", "num_knockoffs"))
e_values = jax.jit(knockoff.derandomized_e_values)
fdp_bound = jax.jit(knockoff.fdp_bound)
fixed_select = jax.jit(knockoff.select, static_argnames=("alpha", "offset"))
fixed_threshold = jax.jit(knockoff.threshold, static_argnames=("alpha", "num_knockoffs"))
fixed_e_values = jax.jit(knockoff.derandomized_e_values, static_argnames="alpha")
fixed_fdp_bound = jax.jit(knockoff.fdp_bound, static_argnames="delta")
w_statistics = jax.jit(knockoff.w_statistics)
multi_statistics = jax.jit(knockoff.multi_statistics)
binomial_tails = jax.jit(knockoff_symmetry.binomial_tails, static_argnames=("num_knockoffs", "bound"))
count_signs = jax.jit(knockoff_symmetry.count_signs)
SIZE = 24


def padded(values):
    return np.append(values, np.full(SIZE - len(values), np.nan)).astype(np.float32)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-3, 5), min_size=1, max_size=SIZE),
    st.integers(1, 99),
    st.sampled_from([0, 1]),
    st.sampled_from([1, 4]),
)
@pytest.mark.slow("long")
def test_every_percent_is_decided_exactly(w, percent, offset, losses):
    alpha = percent / 100
    found = select(padded(w), level_operand(alpha), offset=offset, num_knockoffs=losses)
    tau, reject, _ = ref.knockoff_filter(ref.kept(np.array(w, float)), alpha, offset, losses)
    assert float(found.threshold) == tau
    np.testing.assert_array_equal(np.asarray(found.reject)[: len(w)], reject)
    np.testing.assert_array_equal(found.reject, np.asarray(found.adjusted) <= np.float32(alpha))
    traced = select(padded(w), jnp.float32(alpha), offset=offset, num_knockoffs=losses)
    np.testing.assert_array_equal(traced.reject, found.reject)  # equality is within the tolerance, and nothing else is
    np.testing.assert_array_equal(traced.reject, np.asarray(traced.adjusted) <= np.float32(alpha))


def test_a_traced_level_out_of_range_selects_nothing():
    w = padded(np.arange(1.0, 21.0))
    for alpha in (-0.1, 0.0, 1.0, 1.7, math.nan):
        found = select(w, jnp.float32(alpha))
        assert not np.asarray(found.reject).any()
        assert np.isnan(found.adjusted).all()
        assert float(found.threshold) == math.inf
        assert np.isnan(e_values(w[:, None], jnp.float32(alpha))).all()
        trivial = fdp_bound(w, jnp.float32(alpha))
        assert np.isnan(trivial.fdp_bound).all()
        np.testing.assert_array_equal(trivial.false_bound, trivial.num_selected)
        assert int(trivial.min_true) == 0


def test_static_options_out_of_range():
    w = np.ones(3, np.float32)
    with pytest.raises(ValueError, match="alpha must lie strictly between 0 and 1, got 0"):
        fixed_select(w, 0)
    with pytest.raises(ValueError, match="offset must be 0 or 1, got 2"):
        fixed_select(w, 0.1, offset=2)
    with pytest.raises(ValueError, match="num_knockoffs must be at least 1, got 0"):
        fixed_threshold(w, 0.1, num_knockoffs=0)
    with pytest.raises(ValueError, match=r"delta must lie strictly between 0 and 1, got 1\.5"):
        fixed_fdp_bound(w, 1.5)
    for kernel in (w_statistics, multi_statistics):
        with pytest.raises(ValueError, match="knockoffs has no column"):
            kernel(w, np.ones((3, 0), np.float32))


def test_a_tie_is_counted_whole():
    """Ten wins and ten losses of one size are not ten wins."""
    w = np.repeat(np.array([3, -3], np.float32), 10)
    assert float(select(padded(w), 0.2).threshold) == math.inf
    w[10:] = -2
    assert float(select(padded(w), 0.2).threshold) == 3


def test_zeros_of_both_signs_are_no_threshold():
    found = select(padded([0.0, -0.0, 0.0, 0.0, 1.0, 1.0, 1.0]), 0.4)
    assert found.reject.tolist()[:7] == [False] * 4 + [True] * 3
    assert found.adjusted.tolist()[:4] == [1.0] * 4
    assert int(found.num_tests) == 7


def test_the_smallest_floats_have_an_order():
    tiny = np.float32(2e-45)  # below the smallest normal number
    assert int(select(padded([tiny] * 5 + [-tiny / 2]), 0.2).num_rejected) == 5
    assert float(select(padded([3e38] * 5 + [-1.0]), 0.2).threshold) == np.float32(3e38)


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.bfloat16])
def test_narrow_and_whole_types(dtype):
    w = np.array([-2, -1, 1, 2, 3, 4, 5, 6, 7, 8], dtype)
    found = fixed_select(w, 0.2)
    assert float(found.threshold) == 3
    assert found.reject.tolist() == [x >= 3 for x in w.tolist()]
    low = jnp.iinfo(dtype).min if jnp.issubdtype(dtype, jnp.integer) else -jnp.inf
    assert not fixed_select(np.array([low, *[3] * 9], dtype), 0.2).reject.any()  # 2/9: the loss counts


def test_equal_copies_give_exactly_zero():
    """The mean of three equal floats differs from them; the mean of differences does not."""
    own = np.random.default_rng(0).normal(size=200).astype(np.float32)
    assert (np.asarray(w_statistics(own, np.repeat(own[:, None], 3, axis=1))) == 0).all()


def test_swapping_an_item_and_its_knockoff_turns_the_sign():
    draw = np.random.default_rng(1).normal(size=(2, 50)).astype(np.float32)
    w = np.asarray(w_statistics(draw[0], draw[1][:, None]))
    assert (np.asarray(w_statistics(draw[1], draw[0][:, None])) == -w).all()
    both = multi_statistics(draw[0], draw[1][:, None])
    np.testing.assert_array_equal(both.statistic, w)  # with one knockoff the two statistics are one


def test_several_knockoffs_in_any_order():
    rng = np.random.default_rng(2)
    own, others = rng.integers(0, 9, 60).astype(np.float32), rng.integers(0, 9, (60, 4)).astype(np.float32)
    first = multi_statistics(own, others)
    again = multi_statistics(own, others[:, ::-1])
    np.testing.assert_array_equal(first.tau, again.tau)
    np.testing.assert_array_equal(np.asarray(first.kappa) == 0, np.asarray(again.kappa) == 0)


def test_one_draw_of_e_values_is_the_knockoff_filter():
    rng = np.random.default_rng(3)
    for _ in range(20):
        w, level = rng.integers(-3, 9, SIZE).astype(np.float32), level_operand(0.25)
        np.testing.assert_array_equal(e_values(w[:, None], level) > 0, select(w, level).reject)


def test_the_bound_is_never_above_the_selection_and_grows_with_it():
    w = (np.random.default_rng(4).normal(size=300) + 0.7).astype(np.float32)
    bound = jax.tree.map(np.asarray, fixed_fdp_bound(w, 0.1))
    chosen = np.argsort(-w)[: int((w > 0).sum())]
    found, false = bound.num_selected[chosen], bound.false_bound[chosen]
    assert (np.diff(found) >= 0).all()
    assert (np.diff(false) >= 0).all()
    assert (np.diff(found - false) >= 0).all()  # members found stay found
    assert (false <= found).all()
    assert bound.min_true == (found - false).max() > 0
    assert np.isnan(bound.fdp_bound[w <= 0]).all()
    looser = fixed_fdp_bound(w, 0.01)
    assert (np.asarray(looser.false_bound) >= bound.false_bound).all()


@pytest.mark.parametrize(("successes", "trials", "losses"), [(900, 1000, 1), (50_000, 100_000, 1), (60, 60, 3)])
def test_binomial_tails_far_out(successes, trials, losses):
    """The largest term by logarithms, and the sum relative to it: a tree over the trials."""
    tails = binomial_tails(successes, trials, num_knockoffs=losses, bound=trials)
    law, depth = stats.binom(trials, 1 / (1 + losses)), round(math.log2(trials))
    for found, exact in ((tails.log_upper, law.logsf(successes - 1)), (tails.log_lower, law.logcdf(successes))):
        rounding.assert_close(found, exact, roundings=depth + 2 * 4, scale=max(1, abs(exact)))


def test_no_item_at_all():
    nothing = np.zeros(0, np.float32)
    assert float(fixed_threshold(nothing, 0.1)) == math.inf
    assert int(fixed_select(nothing, 0.1).num_tests) == 0
    assert int(fixed_fdp_bound(nothing, 0.1).min_true) == 0
    assert fixed_e_values(np.zeros((0, 2), np.float32), 0.1).shape == (0,)
    assert int(count_signs(nothing).total) == 0
