"""The fixed-pool engine against exact rational arithmetic on the splits that it drew; the law of the splits."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references
from scipy import stats

from tdd.kernels import fill_down, lattice, proportion, resample, resample_pool

ALPHAS = (0.05, 0.1, 0.25, 0.5)
EXACT = ("none", "storey", "subtraction")
LANES = 12


def levels(alphas):
    return jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *map(lattice.as_level, alphas))


def words(seed, lanes):
    return jnp.asarray(np.random.default_rng(seed).integers(0, 2**32, (2, lanes), dtype=np.uint32))


def make_pool(seed, num_nonmembers, num_members, step):
    rng = np.random.default_rng(seed)
    scores = np.concatenate([rng.normal(size=num_nonmembers), rng.normal(size=num_members) - 1.5])
    if step:
        scores = np.round(scores / step) * step
    labels = np.arange(len(scores)) >= num_nonmembers
    order = rng.permutation(len(scores))
    return scores[order], labels[order]


@jax.jit
def drawn_splits(pool, split, keys):
    return resample.draw(pool, split, keys)


decide = jax.jit(resample.decide, static_argnames="proportions")
scaled_draw = jax.jit(resample._scaled_draw, static_argnames="bound")


def run(pool, drawn, proportions, alphas=ALPHAS, eta=0.05):
    tails = resample_pool.tails(len(pool.nonmembers), eta)
    return jax.tree.map(np.asarray, decide(pool, drawn, levels(alphas), proportions=proportions, tails=tails))


def taken(drawn, lane):
    """Which non-members calibrate, which are tested, which members are tested."""
    calibration, members = (np.diff(np.asarray(t)[:, lane].astype(int)) for t in (drawn.calibration, drawn.members))
    tested = np.diff(np.asarray(drawn.tested)[:, lane].astype(int)) if drawn.tested.shape[0] else 1 - calibration
    assert set(calibration) | set(members) | set(tested) <= {0, 1}
    assert not (calibration * tested).any()
    return calibration.astype(bool), tested.astype(bool), members.astype(bool)


SPLITS = {
    "halves": lambda n0, n1: resample_pool.half_split(n0, n1),
    "fixed": lambda n0, n1: resample_pool.fixed_split(n0 // 2, n0 // 3 + n1 // 2, n1 // 2),
    "all tested": lambda n0, n1: resample_pool.fixed_split(n0 // 2, n0 - n0 // 2 + n1, n1),
    "no members": lambda n0, n1: resample_pool.fixed_split(n0 - 3, 3, 0),
}


@pytest.mark.parametrize("step", [0, 0.25, 1], ids=["distinct", "ties", "many ties"])
@pytest.mark.parametrize("kind", SPLITS)
@pytest.mark.parametrize("eta", [0.05, 0.3])
def test_decisions_against_rational_arithmetic(kind, step, eta):
    scores, labels = make_pool(1, 41, 30, step)
    pool, split = resample_pool.prepare(scores, labels), SPLITS[kind](41, 30)
    drawn = jax.tree.map(np.asarray, drawn_splits(pool, split, words(2, LANES)))
    found = run(pool, drawn, EXACT, eta=eta)
    low, high = np.sort(scores[~labels]), np.sort(scores[labels])
    some = 0
    for lane in range(LANES):
        calibration, tested, members = taken(drawn, lane)
        assert calibration.sum() == drawn.num_calibration[lane]
        assert members.sum() == drawn.test_members[lane]
        assert tested.sum() + members.sum() == drawn.num_tests[lane]
        test = np.concatenate([low[tested], high[members]])
        for i, name in enumerate(EXACT):
            for a, alpha in enumerate(ALPHAS):
                reject = np.array(references.ptdi(low[calibration], test, alpha, name, eta)[0])
                assert found.selected[i, a, lane] == reject.sum(), (kind, name, alpha, lane)
                assert found.false[i, a, lane] == reject[: tested.sum()].sum()
                some += reject.any()
    assert kind == "no members" or some > LANES


@pytest.mark.parametrize("name", ["moment", "moment_paper"])
@pytest.mark.parametrize("kind", ["halves", "fixed"])
def test_moment_against_double_precision(kind, name):
    scores, labels = make_pool(3, 60, 50, 0)
    pool = resample_pool.prepare(1e6 + scores, labels)
    drawn = drawn_splits(pool, SPLITS[kind](60, 50), words(4, 2 * LANES))
    found = run(pool, drawn, (name,))
    low, high, others = np.sort(scores[~labels]), np.sort(scores[labels]), 0
    for lane in range(2 * LANES):
        calibration, tested, members = taken(drawn, lane)
        test = np.concatenate([low[tested], high[members]])
        pi0 = references.moment_pi0(high[~members], low[calibration], test, printed=name == "moment_paper")
        ranks, n = references.conformal_ranks(low[calibration], test, "nonmember")
        if exact := name == "moment" and pi0 == 1:
            pi0 = float(references.storey_pi0(ranks, n, 0.05))
        others += exact
        p = np.sort(np.array(ranks) / (n + 1) * pi0)
        for a, alpha in enumerate(ALPHAS):
            allowed = alpha * np.arange(1, len(p) + 1) / len(p)
            assert exact or np.abs(p / allowed - 1).min() > 1e-5  # no case that rounding could decide
            count = max(np.flatnonzero(p <= allowed * (1 + 1e-9)) + 1, default=0)
            assert found.selected[0, a, lane] == count
    assert name == "moment_paper" or kind == "halves" or others > 0


def test_a_place_that_the_float_bound_lets_through_is_refused():
    """With a denominator of 10^9, alpha just below k/m differs from it by less than the slack of the search."""
    scores, labels = make_pool(1, 41, 30, 0)
    pool = resample_pool.prepare(scores, labels)
    drawn = drawn_splits(pool, resample_pool.fixed_split(19, 40, 20), words(2, LANES))
    close = 0
    for lane in range(LANES):
        calibration, tested, members = taken(drawn, lane)
        low, high = np.sort(scores[~labels]), np.sort(scores[labels])
        test = np.concatenate([low[tested], high[members]])
        ranks, n = references.conformal_ranks(low[calibration], test, "nonmember")
        ordered = sorted(ranks)
        k = max(range(5, 30), key=lambda k: ordered[k] - ordered[k - 1])
        exact = ordered[k - 1] * 40 / (k * (n + 1))
        for alpha in (exact, exact - 1e-8, exact + 1e-8):
            if not 0 < alpha < 0.9:
                continue
            alpha = round(alpha, 9)
            reject = np.array(references.ptdi(low[calibration], test, f"{alpha:.9f}", "none")[0])
            found = run(pool, drawn, ("none",), (alpha,))
            assert found.selected[0, 0, lane] == reject.sum()
            close += 1
        if lane == 3:
            break
    assert close > 5


@pytest.mark.parametrize("sizes", [(2, 2), (1, 5), (5, 1)])
def test_small_pools(sizes):
    scores, labels = make_pool(5, *sizes, 0)
    pool = resample_pool.prepare(scores, labels)
    drawn = drawn_splits(pool, resample_pool.half_split(*sizes), words(6, LANES))
    found = run(pool, drawn, resample.PROPORTIONS)
    empty = np.asarray(drawn.num_calibration) == 0
    assert (found.selected[:, :, empty] == 0).all()
    assert (found.selected <= np.asarray(drawn.num_tests)).all()


def test_tails():
    etas, sizes = (0.05, 0.29, 0.5, 1e-6, 0.999), np.array([0, 1, 20, 100, 300], np.int32)
    found = jax.jit(jax.vmap(lambda n: [proportion.tail_size(n, eta, 300) for eta in etas]))(sizes)
    for eta, of_sizes in zip(etas, found, strict=True):
        expected = [references.tail(n, eta) for n in range(301)]
        assert resample_pool.tails(300, eta).tolist() == expected
        assert of_sizes.tolist() == [expected[n] for n in sizes]


@pytest.mark.parametrize("bound", [2**16 - 1, 2**24 - 1])
def test_share_of_what_is_left(bound):
    rng = np.random.default_rng(0)
    word = np.concatenate([rng.integers(0, 2**32, 1000), [0, 2**32 - 1, 2**31, 2**16]]).astype(np.uint64)
    for left in [1, 2, 255, bound // 3, bound]:
        found = scaled_draw(word.astype(np.uint32), np.int32(left), bound)
        np.testing.assert_array_equal(np.asarray(found), (word * np.uint64(left)) >> np.uint64(32))


def test_unknown_proportion():
    pool = resample_pool.prepare(*make_pool(1, 4, 4, 0))
    drawn = drawn_splits(pool, resample_pool.half_split(4, 4), words(0, 2))
    with pytest.raises(ValueError, match="proportions must be among"):
        resample.decide(pool, drawn, levels([0.1]), proportions=("all",), tails=resample_pool.tails(4, 0.05))


def test_a_repetition_does_not_depend_on_its_neighbours():
    scores, labels = make_pool(1, 41, 30, 0.25)
    pool, split = resample_pool.prepare(scores, labels), resample_pool.half_split(41, 30)
    keys = words(2, LANES)
    whole = run(pool, drawn_splits(pool, split, keys), EXACT)
    part = run(pool, drawn_splits(pool, split, keys[:, 5:12]), EXACT)
    for a, b in zip(whole, part, strict=True):
        np.testing.assert_array_equal(a[..., 5:12], b)


@pytest.mark.parametrize(
    ("kind", "sizes", "unroll"),
    [
        ("halves", (41, 30), 5),
        ("fixed", (41, 30), 2),
        ("all tested", (11, 6), 8),
        pytest.param("no members", (11, 6), 8, marks=pytest.mark.slow("grid")),
    ],
)
def test_several_items_in_one_step_change_nothing(kind, sizes, unroll):
    """The sizes are no multiples of these; with 8 the members are one step, shorter than the others."""
    scores, labels = make_pool(1, *sizes, 0.25)
    pool, split = resample_pool.prepare(scores, labels), SPLITS[kind](*sizes)
    keys = words(2, LANES)
    drawn = drawn_splits(pool, split, keys)
    stepped = jax.jit(partial(resample.draw, unroll=unroll))(pool, split, keys)
    for a, b in zip(drawn, stepped, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    again = jax.jit(partial(resample.decide, proportions=EXACT, unroll=unroll))(
        pool, drawn, levels(ALPHAS), tails=resample_pool.tails(sizes[0], 0.05)
    )
    for a, b in zip(run(pool, drawn, EXACT), again, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize(
    "kind", ["halves", "fixed", *(pytest.param(kind, marks=pytest.mark.slow("grid")) for kind in list(SPLITS)[2:])]
)
def test_one_kernel_fills_the_same_tables(kind, monkeypatch):
    """The form for GPUs, on the lanes of two programs."""
    scores, labels = make_pool(1, 13, 9, 0.25)
    pool = jax.tree.map(jnp.asarray, resample_pool.prepare(scores, labels))
    split, tails = SPLITS[kind](13, 9), jnp.asarray(resample_pool.tails(13, 0.05))

    def tables():
        drawn = resample.draw(pool, split, words(2, 2 * fill_down._BLOCK))
        return drawn, resample.decide(pool, drawn, levels(ALPHAS), proportions=EXACT, tails=tails)

    def fused(item, state, fixed, tables, *, rows, kinds, unroll):
        return fill_down._fused(item, rows, kinds, state, fixed, tables, interpret=True)

    looped = jax.jit(lambda: tables())()
    monkeypatch.setattr(resample, "fill_down", fused)
    jax.tree.map(partial(np.testing.assert_array_equal, strict=True), jax.jit(lambda: tables())(), looped)


def test_the_size_of_the_calibration_half_is_hypergeometric():
    split = resample_pool.half_split(40, 35)
    law = stats.hypergeom(75, 40, 37)
    reached = int(split.least) + np.arange(len(split.steps))
    np.testing.assert_allclose(split.steps / 2**32, law.cdf(reached), atol=2**-31)
    assert law.cdf(int(split.least) - 1) < 2**-31


INCLUDED = 100_000


def inclusion(generator, seed):
    """How often each item, and each pair of items, of a small pool is tested; over 5·10^6 draws in all."""
    scores, labels = make_pool(7, 26, 24, 0)
    pool, split = resample_pool.prepare(scores, labels), resample_pool.fixed_split(12, 22, 10)

    def one(carry, keys):
        drawn = resample.draw(pool, split, keys, generator=generator)
        rows = [jnp.diff(table, axis=0) for table in (drawn.calibration, drawn.tested, drawn.members)]
        x = jnp.concatenate(rows).astype(jnp.float32)
        return carry + jnp.dot(x, x.T, precision="highest").astype(jnp.int32), None

    keys = jax.random.bits(jax.random.key(seed), (INCLUDED // 1000, 2, 1000), jnp.uint32)
    return np.asarray(jax.jit(lambda keys: jax.lax.scan(one, jnp.zeros((76, 76), jnp.int32), keys)[0])(keys))


def chi_square(found):
    """p-values of the inclusion of items and of pairs against the uniform fixed-size split."""
    sizes = {"calibration": (0, 26, 12), "tested": (26, 26, 12), "members": (52, 24, 10)}
    p = []
    for start, count, size in sizes.values():
        block = found[start : start + count, start : start + count] / INCLUDED
        single, rate = np.diag(block), size / count
        # The sum over items is fixed, so that they are negatively correlated: hence count/(count - 1).
        statistic = INCLUDED * ((single - rate) ** 2).sum() / (rate * (1 - rate) * count / (count - 1))
        p.append(stats.chi2.sf(statistic, count - 1))
        pair = size * (size - 1) / (count * (count - 1))
        off = block[np.triu_indices(count, 1)]
        z = (off - pair) / np.sqrt(pair * (1 - pair) / INCLUDED)
        p.append(min(1, 2 * len(z) * stats.norm.sf(np.abs(z).max())))
    return p


def test_splits_are_uniform():
    found = inclusion("hash", 0)
    assert min(chi_square(found)) > 1e-4 / 6
    # Two categories of the same items: never both, and the right rate for each pair of different items.
    cross = found[:26, 26:52]
    assert (np.diag(cross) == 0).all()
    rate = 12 * 12 / (26 * 25)
    z = (cross[~np.eye(26, dtype=bool)] / INCLUDED - rate) / np.sqrt(rate * (1 - rate) / INCLUDED)
    assert 2 * len(z) * stats.norm.sf(np.abs(z).max()) > 1e-4


def test_the_check_of_uniformity_can_fail(monkeypatch):
    """Too few bits a draw, and a counter without a hash."""
    coarse = lambda words, counter: resample.hashed_bits(words, counter) & jnp.uint32(0xFC000000)  # noqa: E731
    plain = lambda words, counter: words[0] + counter * jnp.uint32(0x9E3779B9)  # noqa: E731
    for weak in (coarse, plain):
        monkeypatch.setitem(resample.GENERATORS, "weak", weak)
        assert min(chi_square(inclusion("weak", 0))) < 1e-6


@pytest.mark.slow("long")
def test_error_rates_agree_with_threefry():
    scores, labels = make_pool(8, 60, 60, 0)
    pool, split = resample_pool.prepare(scores, labels), resample_pool.half_split(60, 60)
    means = {}
    for generator in ("hash", "threefry"):
        drawn = jax.jit(lambda keys, g=generator: resample.draw(pool, split, keys, generator=g))(words(9, 20_000))
        found = run(pool, drawn, ("none", "subtraction"))
        fdp = found.false / np.maximum(found.selected, 1)
        means[generator] = fdp.mean(-1), fdp.var(-1) / fdp.shape[-1]
    (a, va), (b, vb) = means["hash"], means["threefry"]
    some = va + vb > 0
    assert some.sum() > 5
    assert np.abs((a - b)[some] / np.sqrt(va + vb)[some]).max() < stats.norm.isf(1e-4 / a.size / 2)
