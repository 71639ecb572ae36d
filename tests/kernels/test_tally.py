"""Exact statistics of repetitions."""

import fractions

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import tally

CELLS, REPETITIONS, ITEMS = (2, 3), 200, 37


@pytest.fixture(scope="module")
def outcomes():
    rng = np.random.default_rng(0)
    selected = rng.integers(0, ITEMS + 1, (*CELLS, REPETITIONS))
    targets = rng.integers(0, ITEMS + 1, REPETITIONS)
    least = np.maximum(0, selected - targets)
    most = np.minimum(selected, ITEMS - targets)
    false = least + rng.integers(0, 10**6, selected.shape) % np.maximum(most - least + 1, 1)
    selected[..., :5], false[..., :5] = 0, 0
    return [jnp.asarray(x, jnp.int32) for x in (false, selected, targets, ITEMS)]


def totals(found):
    sums = np.asarray(found.sums, np.int64)
    return sums[..., [0, 2]] * 2**tally.LOW_BITS + sums[..., [1, 3]]


def reference(false, selected, targets, items, cell):
    """The four proportions of each repetition as fractions."""
    for r in range(REPETITIONS):
        v, s, t, m = (int(x) for x in (false[cell][r], selected[cell][r], targets[r], items))
        yield [
            fractions.Fraction(part, max(whole, 1))
            for part, whole in ((v, s), (s - v, t), (v + t - (s - v), m), (s, m))
        ]


@pytest.mark.slow("long")
def test_sums_against_fractions(outcomes):
    found = totals(tally.update(tally.zero(CELLS), *outcomes))
    for cell in np.ndindex(CELLS):
        exact = list(reference(*outcomes, cell))
        for metric in range(4):
            values = [row[metric] for row in exact]
            for moment, got in enumerate(found[cell][metric], start=1):
                want = float(sum(value**moment for value in values))
                assert abs(got / tally.UNIT - want) <= REPETITIONS * 1.5 / tally.UNIT


@pytest.mark.slow("long")
def test_histogram_against_fractions(outcomes):
    found = np.asarray(tally.update(tally.zero(CELLS), *outcomes).histogram)
    assert (found.sum(-1) == REPETITIONS).all()
    for cell in np.ndindex(CELLS):
        for metric, values in enumerate(zip(*reference(*outcomes, cell), strict=True)):
            bins = [round(value * tally.BINS) for value in values]
            np.testing.assert_array_equal(found[cell][metric], np.bincount(bins, minlength=tally.BINS + 1))


def test_zero_and_one_are_themselves():
    found = tally.update(tally.zero(()), jnp.array([0, 3]), jnp.array([0, 3]), jnp.array([2, 0]), jnp.array([3, 3]))
    histogram = np.asarray(found.histogram)
    assert histogram[0, 0] == 1
    assert histogram[0, tally.BINS] == 1
    assert histogram[1, 0] == 2  # nothing to find counts as power 0
    assert totals(found)[0].tolist() == [tally.UNIT, tally.UNIT]


@pytest.mark.parametrize("size", [1, 7, 250])
@pytest.mark.slow("long")
def test_any_cut_into_calls_gives_the_same_integers(outcomes, size):
    whole = tally.update(tally.zero(CELLS), *outcomes)
    parts = tally.zero(CELLS)
    false, selected, targets, items = outcomes
    for start in range(0, REPETITIONS if size > 1 else 40, size):
        cut = slice(start, start + size)
        parts = tally.update(parts, false[..., cut], selected[..., cut], targets[cut], items)
    if size == 1:
        whole = tally.update(tally.zero(CELLS), false[..., :40], selected[..., :40], targets[:40], items)
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow("long")
def test_repetitions_that_do_not_count(outcomes):
    false, selected, targets, items = outcomes
    real = jnp.arange(REPETITIONS) % 3 > 0
    masked = tally.update(tally.zero(CELLS), *outcomes, real=real)
    kept = tally.update(tally.zero(CELLS), false[..., real], selected[..., real], targets[real], items)
    for a, b in zip(masked, kept, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_sums_hold_as_many_repetitions_as_they_say():
    ones = jnp.ones(2**16, jnp.int32)

    def body(_, sums):
        return tally.update(sums, ones, ones, ones, jnp.int32(1))

    found = jax.jit(lambda: jax.lax.fori_loop(0, tally.MAX_REPETITIONS // 2**16, body, tally.zero(())))()
    assert totals(found)[0].tolist() == [tally.UNIT * tally.MAX_REPETITIONS] * 2
    assert int(found.histogram[0, tally.BINS]) == tally.MAX_REPETITIONS


@pytest.mark.parametrize("copies", [1, 32])
def test_sums_by_bin_are_those_of_numpy(copies):
    """Those of one table, and of the copies that a GPU adds to."""
    rng = np.random.default_rng(0)
    bins, counted = rng.integers(0, tally.BINS + 1, (3, 200)), rng.integers(0, 2, 200)
    bins[0] = 7
    found = tally._sums_by_bin(copies, jnp.asarray(bins, jnp.int32), jnp.asarray(counted, jnp.uint32))
    for row, sums in zip(bins, found, strict=True):
        np.testing.assert_array_equal(sums, np.bincount(row, counted, minlength=tally.BINS + 1))
