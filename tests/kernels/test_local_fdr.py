"""The concave majorant, and the rates read from it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding

from tdd.kernels import hommel, local_fdr, majorant

compiled = jax.jit(lambda p, share: local_fdr.local_fdr(p, null_proportion=share))


def rates(p, share=1.0):
    return jax.tree.map(np.asarray, compiled(np.array(p, np.float32), np.float32(share)))


def concave_majorant(form):
    """Under `jit`, with the form that programs for CPUs take, or that for accelerators."""

    @jax.jit
    def left_and_right(x, y):
        with pytest.MonkeyPatch.context() as patch:  # while it is traced
            patch.setattr(majorant, "_by_stack", form)
            return majorant.concave_majorant(x, y)

    return left_and_right


FORMS = {"by stack": concave_majorant(majorant._by_stack), "by merging": concave_majorant(majorant.by_merging)}
every_form = pytest.mark.parametrize("majorant_of", FORMS.values(), ids=FORMS)


def vertices(x, y):
    """Indices of the upper hull by the definition: above every chord that spans them."""
    kept = []
    for i in range(len(x)):
        chords = [
            y[a] + (y[b] - y[a]) * (x[i] - x[a]) / (x[b] - x[a])
            for a in range(len(x))
            for b in range(len(x))
            if x[a] < x[i] < x[b]
        ]
        if not chords or y[i] > max(chords) + 1e-12:
            kept.append(i)
    return kept


@every_form
def test_majorant(majorant_of):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = np.sort(rng.choice(200, 25, replace=False)).astype(np.float32)
        y = np.cumsum(rng.integers(0, 9, 25)).astype(np.int32) - (rng.integers(0, 30, 25) if seed % 2 else 0)
        left, right = map(np.asarray, majorant_of(x, y.astype(np.int32)))
        hull = vertices(x.astype(float), y.astype(float))
        assert right[1:].tolist() == [min(v for v in hull if v >= i) for i in range(1, 25)]
        assert left[1:].tolist() == [max(v for v in hull if v < i) for i in range(1, 25)]


@every_form
def test_majorant_with_ties(majorant_of):
    """Of points with one abscissa the last counts; items at the first abscissa have a vertical segment."""
    x = np.array([0, 0, 0, 1, 1, 2], np.float32)
    left, right = majorant_of(x, np.arange(6, dtype=np.int32))
    assert right[1:].tolist() == [2, 2, 4, 4, 5]
    assert left[1:].tolist() == [0, 0, 2, 2, 4]


@pytest.mark.parametrize("size", [1, 3, 25])
def test_both_forms_are_one_hull(size):
    """Of whole numbers, whose products are exact, with ties in x."""
    rng = np.random.default_rng(size)
    for _ in range(4):
        x = np.sort(rng.integers(1, 40, size)).astype(np.float32)
        y = np.cumsum(rng.integers(1, 9, size)).astype(np.int32)
        slopes = []
        for form in FORMS.values():
            left, right = (np.asarray(end)[1:] for end in form(x, y))
            with np.errstate(divide="ignore", invalid="ignore"):  # points at the first abscissa
                slopes.append((y[right] - y[left]) / (x[right] - x[left]))
        np.testing.assert_array_equal(*slopes)


@pytest.mark.slow("grid")
@pytest.mark.parametrize("size", [3, 65, 300])
@pytest.mark.parametrize("ties", [False, True])
def test_both_forms_give_the_same_rates(size, ties, monkeypatch):
    """Points that lie on an edge but for rounding may be vertices or not: their slopes differ by roundings."""
    rng = np.random.default_rng(size)
    p = rng.integers(1, 40, (4, size)) / 64 if ties else rng.random((4, size)) ** 3  # products of these are exact
    p = jnp.asarray(p, jnp.float32).at[:, ::7].set(jnp.nan)

    def decisions(p):
        found = local_fdr.local_fdr(p)
        return found.local_fdr, found.tail_fdr, hommel.hommel(p, 0.3)

    one = jax.jit(jax.vmap(decisions))(p)
    monkeypatch.setattr(majorant, "_by_stack", majorant.by_merging)
    other = jax.jit(jax.vmap(lambda p: decisions(p)))(p)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5 if a.dtype.kind == "f" else 0)


def test_a_mixture_is_recovered():
    """Nulls uniform, others Beta(1/4, 1): lfdr = pi0/(pi0 + (1 - pi0) p^(-3/4)/4)."""
    rng = np.random.default_rng(0)
    m, pi0 = 20_000, 0.7
    p = rng.random(m)
    p[int(m * pi0) :] **= 4
    got = rates(p, pi0)
    truth = pi0 / (pi0 + (1 - pi0) * p**-0.75 / 4)
    middle = (p > 0.001) & (p < 0.9)
    assert np.abs(got.local_fdr - truth)[middle].mean() < 0.02
    assert np.corrcoef(got.local_fdr[middle], truth[middle])[0, 1] > 0.99


def test_edges():
    zero = rates([0.0, 0.0, 0.5, 1.0])
    assert zero.local_fdr[:2].tolist() == zero.tail_fdr[:2].tolist() == [0, 0]
    assert np.isinf(zero.density[:2]).all()
    assert rates([1.0] * 4).local_fdr.tolist() == [1] * 4
    single = rates([0.25])
    assert single.local_fdr.tolist() == single.tail_fdr.tolist() == [0.25]
    assert np.isnan(rates([np.nan] * 4).local_fdr).all()


def test_traced_null_proportion_out_of_range():
    for share in (0.0, 1.5, np.nan):
        got = rates([0.1, 0.4, 0.0, 1.0], share)
        assert np.isnan(got.local_fdr).all()
        assert np.isnan(got.tail_fdr).all()


def test_local_rate_is_monotone_and_above_the_tail_rate():
    """But for the roundings of a quotient of differences of numbers up to 1, of which the smallest is 1e-4."""
    p = np.sort(np.random.default_rng(2).random(100) ** 2).astype(np.float32)
    got = rates(p)
    slack = rounding.gamma(8)
    assert (np.diff(got.local_fdr) >= -slack).all()
    assert (got.tail_fdr <= got.local_fdr + slack).all()
