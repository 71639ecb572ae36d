"""Token statistics against their definitions in float64, and what they cost."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding
from hypothesis import given, settings
from hypothesis import strategies as st

from tdd.kernels import token_stats as kernel
from tdd.kernels.token_stats import tile_statistics
from tdd.kernels.token_stats_fused import FUSED, fused_token_stats

FIELDS = kernel.TokenStatistics._fields


def reference(logits, targets):
    """Every statistic by its definition, in float64, row by row; maxima apart so that 1 - p loses no digit."""
    rows = []
    for z, y in zip(np.asarray(logits, np.float64), np.asarray(targets), strict=True):
        d = z - z.max()
        log_p = d - np.log(np.exp(d).sum())
        p = np.exp(log_p)
        log_one_minus = np.log1p(-np.minimum(p, 0.5))
        for v in np.flatnonzero(p > 0.5):
            others = np.delete(d, v)
            top = others.max()
            log_rest = top + np.log(np.exp(others - top).sum()) if np.isfinite(top) else -np.inf
            log_one_minus[v] = log_rest - np.logaddexp(d[v], log_rest)
        weighted = np.where(p > 0, p * np.where(p > 0, log_p, 0), 0)
        mu = weighted.sum()
        others = np.delete(np.where(p > 0, p * np.where(p > 0, log_one_minus, 0), 0), y)
        surprise = 0.0 if log_p[y] == 0 else -np.exp(log_one_minus[y]) * log_p[y]
        rows.append(
            (
                log_p[y],
                mu,
                np.sqrt(np.where(p > 0, p * np.square(np.where(p > 0, log_p - mu, 0)), 0).sum()),
                2 * np.log(np.exp(log_p / 2).sum()),
                -np.log(np.exp(2 * log_p).sum()),
                -log_p.max(),
                surprise - others.sum(),
                (z > z[y]).sum(),
            )
        )
    return kernel.TokenStatistics(*np.array(rows, np.float64).T)


def roundings(vocabulary, width=0):
    """A logit of the width, two exponents, and sums over the vocabulary that are binary trees or of 128 lanes."""
    return width + 3 * 4 + min(vocabulary, 128) + int(np.log2(vocabulary))


def assert_close(got, expected, count, scale=1.0, fields=FIELDS):
    """Relative to each value, or to `scale`, what is summed in it."""
    for name in fields:
        found, exact = (np.asarray(of[name] if isinstance(of, dict) else getattr(of, name)) for of in (got, expected))
        if name == "rank":
            np.testing.assert_array_equal(found, exact)
        else:
            rounding.assert_close(found, exact, roundings=count, scale=np.maximum(np.abs(exact), scale))


def random_logits(seed, rows, vocabulary, scale=1.0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, vocabulary)) * scale * np.linspace(0.1, 4, rows)[:, None]
    return logits.astype(np.float32), rng.integers(0, vocabulary, rows).astype(np.int32)


@functools.cache
def compiled(kernel_fn, **options):
    return jax.jit(functools.partial(kernel_fn, **options))


def of_logits(logits, targets, block=2048, chunk=128):
    call = compiled(kernel.token_stats_from_logits, chunk=chunk, block=block)
    mask = np.ones(len(targets), bool)
    return jax.tree.map(np.asarray, call(logits, targets, mask))


@pytest.mark.parametrize(
    ("vocabulary", "block"), [(2, None), (3, 256), (255, 256), (256, None), (1000, 256), (1000, None)]
)
def test_statistics_match_float64(vocabulary, block):
    logits, targets = random_logits(vocabulary, 23, vocabulary)
    targets[::4] = logits.argmax(-1)[::4]
    scale = np.abs(logits).max(-1) + np.log(vocabulary)
    assert_close(of_logits(logits, targets, block, chunk=8), reference(logits, targets), roundings(vocabulary), scale)


def test_peaked_rows_keep_their_digits():
    """One logit stands `gap` above the rest: the target is the top, the runner-up, or any other."""
    for gap in (0.5, 3.0, 10.0, 30.0, 60.0, 80.0, 100.0, 150.0, 1000.0):
        logits, _ = random_logits(1, 1, 300, 0.2)
        logits = np.repeat(logits, 3, 0)
        top, second = np.argsort(-logits[0])[:2]
        logits[:, top] = logits[0].max() + gap
        targets = np.array([top, second, 17], np.int32)
        # a rounding of a logit is `gap` roundings of an exponent; below 1e-9 the reference's log(1 + x) has no digits
        scale = 1e-14 / rounding.gamma(roundings(300))
        for name in FIELDS[:-1]:
            found, exact = (getattr(of, name) for of in (of_logits(logits, targets), reference(logits, targets)))
            allowed = np.maximum(np.abs(exact) * (1 + gap), scale)
            rounding.assert_close(found, exact, roundings=roundings(300), scale=allowed)


@pytest.mark.parametrize("vocabulary", [2, 5000])
def test_uniform_rows(vocabulary):
    got = of_logits(np.full((2, vocabulary), -7.5, np.float32), np.array([0, vocabulary - 1], np.int32))
    entropy, p = np.log(vocabulary), 1 / vocabulary
    surprise = (1 - p) * entropy - (vocabulary - 1) * p * np.log1p(-p)
    exact = (-entropy, -entropy, 0, entropy, entropy, entropy, surprise, 0)
    expected = kernel.TokenStatistics(*(np.full(2, value) for value in exact))
    assert_close(got, expected, roundings(vocabulary))


def test_one_hot_rows_are_finite_and_certain():
    logits = np.full((2, 50), -np.inf, np.float32)
    logits[:, 3] = 2.0
    got = of_logits(logits, np.array([3, 3], np.int32))
    for name in FIELDS:
        assert (getattr(got, name) == 0).all(), name


def test_a_target_that_cannot_occur_is_infinitely_surprising():
    logits = np.zeros((1, 5), np.float32)
    logits[0, 2] = -np.inf
    got = of_logits(logits, np.array([2], np.int32))
    assert got.log_prob[0] == -np.inf
    assert got.m_entropy[0] == np.inf
    assert got.rank[0] == 4
    rounding.assert_close(got.mu, [-np.log(4)], roundings=roundings(4))
    rounding.assert_close(got.sigma, [0], roundings=roundings(4), scale=1)


def test_moments_are_weighted_by_probability():
    """p = (0.9, 0.1): the unweighted mean of the log-probabilities would be -1.204, its deviation 1.099."""
    got = of_logits(np.log([[0.9, 0.1]]).astype(np.float32), np.array([0], np.int32))
    rounding.assert_close(got.mu, [0.9 * np.log(0.9) + 0.1 * np.log(0.1)], roundings=roundings(2), scale=1)
    rounding.assert_close(got.sigma, [0.3 * np.log(9)], roundings=roundings(2))


def test_renyi_half_has_no_clamp_bias():
    """A peaked row over 32,000 tokens: clamping p at 1e-10 would turn 0.0127 into about 0.1."""
    logits = np.full((1, 32_000), -40.0, np.float32)
    logits[0, :2] = (0.0, -10.0)
    found, exact = of_logits(logits, np.array([0], np.int32)), reference(logits, [0])
    rounding.assert_close(found.renyi_half, exact.renyi_half, roundings=roundings(32_000), scale=1)


def test_rank_is_strict():
    logits = np.array([[1, 1, 3, 0, 1]] * 3, np.float32)
    assert of_logits(logits, np.array([0, 2, 3], np.int32)).rank.tolist() == [1, 0, 4]


@pytest.mark.parametrize("vocabulary", [40, 3000])
@pytest.mark.parametrize("place", [0, 11, -1])
def test_nan_logits_stay_in_their_row(vocabulary, place):
    """XLA's maximum of more than 1,024 numbers leaves NaN out on a CPU."""
    logits, targets = random_logits(5, 6, vocabulary)
    clean = of_logits(logits, targets)
    logits[2, place] = np.nan
    got = of_logits(logits, targets)
    mask = np.ones(len(targets), bool)
    assert np.isnan(kernel.token_renyi_from_logits(logits, targets, mask, order=3.0)[2])
    assert np.isnan(kernel.token_renyi_from_logits(logits, targets, mask, order=1.25)[2])
    assert np.isnan(kernel.tile_log_prob(jnp.asarray(logits), jnp.asarray(targets), 1024)[2])
    for name in FIELDS[:-1]:
        assert np.isnan(getattr(got, name)[2]), name
        np.testing.assert_array_equal(np.delete(getattr(got, name), 2), np.delete(getattr(clean, name), 2))


def head(seed=0, rows=37, width=16, vocabulary=700):
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(rows, width)).astype(np.float32)
    readout = rng.normal(size=(vocabulary, width)).astype(np.float32)
    return hidden, readout, rng.integers(0, vocabulary, rows).astype(np.int32), rng.random(rows) < 0.6


def terms(hidden, readout):
    """The largest sum of magnitudes that a logit is, in each row, and log V."""
    sums = np.abs(np.asarray(hidden, np.float64)) @ np.abs(np.asarray(readout, np.float64)).T
    return sums.max(-1) + np.log(len(readout))


@pytest.mark.parametrize(("chunk", "soft_cap"), [(1, None), (8, 5.0), (64, None)])
def test_hidden_states_and_readout(chunk, soft_cap):
    hidden, readout, targets, mask = head()
    logits = hidden.astype(np.float64) @ readout.T.astype(np.float64)
    if soft_cap is not None:
        logits = soft_cap * np.tanh(logits / soft_cap)
    call = compiled(kernel.token_stats, soft_cap=soft_cap, chunk=chunk, block=256)
    got = call(hidden, readout, targets, mask)
    expected = jax.tree.map(lambda x: np.where(mask, x, 0), reference(logits, targets))
    assert_close(got, expected, roundings(*readout.shape), terms(hidden, readout))


def test_log_prob_alone_agrees():
    hidden, readout, targets, mask = head(3)
    full = compiled(kernel.token_stats, soft_cap=9.0, chunk=8)(hidden, readout, targets, mask)
    alone = compiled(kernel.token_log_prob, soft_cap=9.0, chunk=8)(hidden, readout, targets, mask)
    rounding.assert_close(alone, full.log_prob, roundings=2 * roundings(*readout.shape), scale=terms(hidden, readout))


def test_bfloat16_weights_accumulate_in_float32():
    hidden, readout, targets, mask = head(4, width=256)
    narrow = [jnp.asarray(x, jnp.bfloat16) for x in (hidden, readout)]
    wide = [np.asarray(x, np.float64) for x in narrow]
    got = compiled(kernel.token_stats, chunk=16)(*narrow, targets, mask)
    expected = jax.tree.map(lambda x: np.where(mask, x, 0), reference(wide[0] @ wide[1].T, targets))
    assert_close(got, expected, roundings(*readout.shape), terms(*wide))


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_permuting_and_padding_rows_changes_nothing(seed):
    hidden, readout, targets, mask = head(seed, rows=19)
    order = np.random.default_rng(seed).permutation(19)
    call = compiled(kernel.token_stats, chunk=4, block=256)
    hidden[~mask] = 0
    plain = call(hidden, readout, targets, mask)
    moved = call(hidden[order], readout, targets[order], mask[order])
    hidden[~mask], targets[~mask] = 1e3, 0  # padding may hold anything
    padded = call(hidden, readout, targets, mask)
    chex.assert_trees_all_equal(padded, plain)
    expected = jax.tree.map(lambda x: np.asarray(x)[order], plain)
    assert_close(moved, expected, 2 * roundings(*readout.shape), terms(hidden, readout)[order])


@pytest.mark.parametrize("mask", [np.zeros(5, bool), np.eye(5, dtype=bool)[4]], ids=["nothing", "one row"])
def test_few_scored_rows(mask):
    hidden, readout, targets, _ = head(6, rows=5)
    got = compiled(kernel.token_stats, chunk=3, block=None)(hidden, readout, targets, mask)
    expected = jax.tree.map(lambda x: np.where(mask, x, 0), reference(hidden.astype(np.float64) @ readout.T, targets))
    assert_close(got, expected, roundings(*readout.shape), terms(hidden, readout))


@functools.cache
def fused(platform, soft_cap=None, wanted=FUSED):
    return jax.jit(
        functools.partial(fused_token_stats, platform=platform, soft_cap=soft_cap, wanted=wanted, interpret=True)
    )


def assert_fused_close(platform, hidden, readout, targets, mask, soft_cap=None):
    got = fused(platform, soft_cap)(hidden, readout, targets, mask)
    logits = np.asarray(hidden, np.float64) @ np.asarray(readout, np.float64).T
    expected = reference(logits if soft_cap is None else soft_cap * np.tanh(logits / soft_cap), targets)
    assert set(got) == set(FUSED)
    expected = jax.tree.map(lambda x: np.where(mask, x, 0), expected)
    assert_close(got, expected, roundings(*readout.shape), terms(hidden, readout), FUSED)
    return got, expected


@pytest.mark.parametrize(("platform", "soft_cap"), [("gpu", 5.0), ("tpu", None)])
def test_the_fused_kernel_in_interpret_mode(platform, soft_cap):
    """Two blocks of rows on a GPU, a last block of columns that overlaps the one before, and lanes beyond the last."""
    hidden, readout, targets, mask = head(rows=137, width=128)
    assert_fused_close(platform, hidden / 3, readout, targets, mask, soft_cap)


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_a_nan_logit_stays_in_the_fused_kernel(platform):
    """One of each row: that of token 300."""
    hidden, readout, targets, mask = head(rows=137, width=128)
    readout[300] = np.nan
    got = fused(platform)(hidden, readout, targets, mask)
    for name in {*FUSED} - {"rank"}:
        assert np.isnan(got[name][mask]).all(), name


@pytest.mark.slow("long")
@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_the_fused_kernel_takes_bfloat16(platform):
    hidden, readout, targets, mask = head(4, width=128)
    narrow = [jnp.asarray(x, jnp.bfloat16) for x in (hidden / 3, readout)]
    assert_fused_close(platform, *narrow, targets, mask)


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_the_fused_kernel_on_peaked_uniform_and_tied_rows(platform):
    """Rows of logits as they stand: the hidden state of row i is a unit vector; the first nine stand twice."""
    logits, targets = random_logits(5, 128, 700, 0.2)
    logits[:8] = logits[0]
    for row, gap in enumerate((0.5, 3, 10, 30, 60, 80, 100, 1000)):
        logits[row, 650] += gap
        targets[row] = (650, 17)[row % 2]
    logits[8:10] = -7.5
    logits[10:12, ::3] = 2.0  # the maximum many times, in every block
    logits[12, 300], targets[12] = logits[12].max() + 1, 300
    logits[12, 20] = logits[12, 690] = logits[12, 300]
    rows = np.arange(137) % 128
    hidden, readout, targets = np.eye(128, dtype=np.float32)[rows], np.ascontiguousarray(logits.T), targets[rows]
    got, expected = assert_fused_close(platform, hidden, readout, targets, np.ones(137, bool))
    for name in ("log_prob", "mu", "renyi_half", "renyi_two", "renyi_inf"):  # 1 - p keeps its digits
        np.testing.assert_allclose(got[name][:8:2], getattr(expected, name)[:8:2], rtol=1e-5, atol=1e-14, err_msg=name)
    assert got["rank"][12] == 0


@pytest.mark.slow("long")
def test_vmap_and_scan():
    hidden, readout, targets, mask = head(7, rows=12)
    stacked = [x.reshape(3, 4, *x.shape[1:]) for x in (hidden, targets, mask)]
    call = compiled(kernel.token_stats, chunk=4, block=None)
    whole = call(hidden, readout, targets, mask)
    mapped = jax.vmap(lambda h, y, m: call(h, readout, y, m))(*stacked)
    scanned = jax.lax.scan(lambda _, a: (None, call(a[0], readout, *a[1:])), None, tuple(stacked))[1]
    for got in (mapped, scanned):
        found = jax.tree.map(np.ravel, got)
        assert_close(found, whole, 2 * roundings(*readout.shape), terms(hidden, readout))


@pytest.mark.parametrize("call", [kernel.token_stats, kernel.token_log_prob])
def test_memory_never_holds_all_logits(call):
    """N = 4,096 rows, V = 8,192: all logits would be 4 N V = 128 MiB.

    One tile of chunk = 64 rows is 64 * 8,192 * 4 B = 2 MiB; soft-capping and the compiler may keep up to two more
    copies of it. Block of 1,024 columns: 64 * 1,024 * 4 B = 0.25 MiB, six of them at most. Lane accumulators, the
    index and the gathered rows are below 0.5 MiB, and the results 8 * 4 B * 4,096 = 0.13 MiB. Bound: 8 MiB.
    """
    rows, vocabulary, width = 4096, 8192, 32
    shapes = (
        jax.ShapeDtypeStruct((rows, width), jnp.float32),
        jax.ShapeDtypeStruct((vocabulary, width), jnp.float32),
        jax.ShapeDtypeStruct((rows,), jnp.int32),
        jax.ShapeDtypeStruct((rows,), bool),
    )
    compiled = jax.jit(functools.partial(call, soft_cap=30.0, chunk=64, block=1024)).lower(*shapes).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 8 * 2**20


@pytest.mark.slow("long")
def test_statistics_of_a_tile_run_eagerly():
    logits, targets = random_logits(8, 5, 77)
    found = tile_statistics(jnp.asarray(logits), jnp.asarray(targets), 256)
    assert_close(found, reference(logits, targets), roundings(77), np.abs(logits).max(-1) + np.log(77))
