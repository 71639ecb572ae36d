"""The checked call: agreement of its tests, precision, masks, traces, edge sizes, messages."""

import jax
import numpy as np
import pytest
import references_permutation as ref
from scipy import stats

from tdd.procedures.exchangeability import GUARANTEE_ROWS, GUARANTEES, TESTS, exchangeability
from tdd.records import TestResult
from tdd.validate import InputError

KEY = jax.random.key(0)
every_test = pytest.mark.parametrize("test", TESTS)


def shards(r=12, k=9, shift=0.6, seed=0, level=0.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=r) + shift + level, rng.normal(size=(r, k)) + level


SMALL = {"r": 6, "k": 4}
"""Few enough shards for every product of permutations; most tests take this size, and KEY, compiled once."""


def log_p(test, canonical, shuffled, **options):
    return float(exchangeability(canonical, shuffled, test=test, key=KEY, **options).log_p_value)


def test_every_field():
    canonical, shuffled = shards()
    result = exchangeability(canonical, shuffled, key=KEY)
    assert isinstance(result, TestResult)
    assert result.method == "exchangeability/combined"
    assert result.guarantee is GUARANTEES["combined"]
    s = canonical - shuffled.mean(axis=1)
    np.testing.assert_allclose(result.shard_statistic, s, rtol=1e-5)
    np.testing.assert_array_equal(result.shard_ranks, (canonical[:, None] > shuffled).sum(axis=1))
    assert float(result.skewness) == pytest.approx(stats.skew(s), rel=1e-5)
    assert (int(result.num_shards), int(result.num_masked)) == (12, 0)
    assert float(result.log_smallest_p) == pytest.approx(np.log(2) - 12 * np.log(10), rel=1e-6)
    for leaf in jax.tree.leaves(result):
        assert leaf.dtype in (np.float32, np.int32, np.bool_)


def test_the_tests_are_what_they_say():
    canonical, shuffled = shards(**SMALL)
    results = {test: exchangeability(canonical, shuffled, test=test, key=KEY) for test in TESTS}
    p = {test: float(result.p_value) for test, result in results.items()}
    s = canonical - shuffled.mean(axis=1)
    assert p["t"] == pytest.approx(stats.ttest_1samp(s, 0, alternative="greater").pvalue, rel=1e-6)
    ranks = ref.rank_sum(canonical, shuffled, 0)
    assert p["rank_sum"] == pytest.approx(ranks["p"], rel=1e-6)
    assert p["permutation"] == pytest.approx((1 + (shuffled.sum(axis=0) >= canonical.sum()).sum()) / 5)
    assert p["combined"] == pytest.approx(2 * min(p["rank_sum"], p["exact"]), rel=1e-6)
    for test, result in results.items():
        assert float(result.log_p_value) == pytest.approx(np.log(p[test]), rel=1e-6)
        assert float(result.log_smallest_p) <= float(result.log_p_value)


def test_combined_never_exceeds_one():
    canonical, shuffled = shards(shift=-3.0)
    result = exchangeability(canonical, shuffled, key=KEY)
    assert (float(result.p_value), float(result.log_p_value)) == (1, 0)


@every_test
def test_order_unit_and_level_do_not_matter(test):
    """Small differences of large log-probabilities count too."""
    canonical, shuffled = shards(**SMALL)
    order, within = np.random.default_rng(1).permutation(6), np.random.default_rng(2).permutation(4)
    expected = log_p(test, canonical, shuffled)
    assert log_p(test, canonical[order], shuffled[order][:, within]) == pytest.approx(expected, rel=1e-6)
    assert log_p(test, canonical * 8, shuffled * 8) == pytest.approx(expected, rel=1e-6)
    assert log_p(test, canonical * 0.1 - 1e5, shuffled * 0.1 - 1e5) == pytest.approx(expected, rel=1e-5)
    assert log_p(test, canonical.tolist(), shuffled.tolist()) == pytest.approx(expected, rel=1e-6)


@every_test
def test_shards_with_nan_are_left_out_and_counted(test):
    canonical, shuffled = shards(**SMALL)
    expected = exchangeability(canonical[[0, 2, 4]], shuffled[[0, 2, 4]], test=test, key=KEY)
    canonical[1], shuffled[3, 2] = np.nan, np.nan
    result = exchangeability(canonical, shuffled, test=test, key=KEY, mask=np.arange(6) != 5)
    assert float(result.log_p_value) == float(expected.log_p_value)
    assert (int(result.num_shards), int(result.num_masked)) == (3, 3)
    assert np.isnan(result.shard_statistic).tolist() == [False, True, False, True, False, True]
    assert (np.asarray(result.shard_ranks) < 0).tolist() == [False, True, False, True, False, True]


def over_rows(test, **options):
    """The test under `jit` and `vmap`: canonical [B, r], shuffled [B, r, k], mask [r] or None -> results in NumPy."""
    one = lambda c, s, mask: exchangeability(c, s, test=test, key=KEY, mask=mask, **options)  # noqa: E731
    many = jax.jit(jax.vmap(one, in_axes=(0, 0, None)))
    return lambda *given: jax.device_get(many(*given))


@pytest.mark.parametrize("test", ["exact", "combined"])
@pytest.mark.parametrize("masked", [False, True])
def test_draws_inside_traces(test, masked):
    canonical, shuffled = (x.astype(np.float32) for x in shards(**SMALL))
    mask = np.arange(6) < 5 if masked else None
    expected = exchangeability(canonical, shuffled, test=test, num_draws=700, key=KEY, mask=mask)
    found = over_rows(test, num_draws=700)(canonical[None], shuffled[None], mask)
    # other draws: the masked shard is dropped before them or drawn in vain
    assert float(found.p_value[0]) == pytest.approx(float(expected.p_value), abs=0.08)
    np.testing.assert_array_equal(found.shard_ranks[0], expected.shard_ranks)
    assert int(found.num_shards[0]) == int(expected.num_shards)
    assert float(found.skewness[0]) == pytest.approx(float(expected.skewness), rel=1e-4)


@every_test
def test_nan_inside_a_trace(test):
    """Without a mask, where it cannot be seen beforehand, the p-value is NaN; with one, the shard is left out."""
    canonical, shuffled = (x.astype(np.float32) for x in shards(**SMALL))
    broken = shuffled.copy()
    broken[1, 1] = np.nan
    call, given = over_rows(test), (np.stack([canonical] * 2), np.stack([shuffled, broken]))
    found = call(*given, None)
    expected = exchangeability(canonical, shuffled, test=test, key=KEY)
    assert float(found.log_p_value[0]) == pytest.approx(float(expected.log_p_value), rel=1e-5)
    np.testing.assert_array_equal(found.shard_ranks[0], expected.shard_ranks)
    assert float(found.skewness[0]) == pytest.approx(float(expected.skewness), rel=1e-4)
    assert np.isnan([found.p_value[1], found.log_p_value[1]]).all()
    found = call(*given, np.isin(np.arange(6), [0, 1, 2, 4]))
    expected = exchangeability(canonical[[0, 2, 4]], shuffled[[0, 2, 4]], test=test, key=KEY)
    assert float(found.p_value[1]) == pytest.approx(float(expected.p_value), rel=1e-5)
    assert (found.num_shards.tolist(), found.num_masked.tolist()) == ([4, 3], [2, 3])
    assert float(found.skewness[1]) == pytest.approx(float(expected.skewness), rel=1e-4)
    np.testing.assert_array_equal(found.shard_ranks[1][np.array([0, 2, 4])], expected.shard_ranks)


def test_known_values_with_a_traced_key_keep_their_digits():
    """-1e5 in float32 has steps of 1/128."""
    canonical, shuffled = shards(r=8, k=4, shift=0.5)
    call = lambda c, s: jax.vmap(lambda key: exchangeability(c, s, key=key, num_draws=2000).p_value)  # noqa: E731
    keys = jax.random.split(KEY, 3)
    expected = call(canonical, shuffled)(keys)
    np.testing.assert_array_equal(call(canonical * 1e-3 - 1e5, shuffled * 1e-3 - 1e5)(keys), expected)
    canonical[2] = np.nan
    assert np.isfinite(call(canonical, shuffled)(keys)).all()


def test_a_constant_key_draws_anew_for_other_data():
    """29 shards are ties, and the last one beats no shuffle, whose order alone differs."""
    canonical, shuffled = np.zeros(30), np.zeros((30, 4))
    shuffled[0] = 1, 2, 3, 4
    p = lambda c, s: float(exchangeability(c, s, test="rank_sum", tie_break="randomized", key=KEY).p_value)  # noqa: E731
    assert p(canonical * 8 - 3, shuffled * 8 - 3) == p(canonical, shuffled)
    assert len({p(canonical, np.roll(shuffled, shift, axis=1)) for shift in range(4)}) > 1


def test_second_call_does_not_compile():
    canonical, shuffled = shards()
    exchangeability(canonical, shuffled, key=KEY)
    with jax.log_compiles(False), jax.check_tracer_leaks(False):
        from tdd.procedures.exchangeability import _test

        before = _test._cache_size()
        exchangeability(canonical + 1, shuffled, key=jax.random.key(5))
        assert _test._cache_size() == before


@every_test
@pytest.mark.parametrize(("r", "k"), [(1, 1), (1, 5), (2, 1)])
def test_smallest_sizes(test, r, k):
    best = exchangeability(np.ones(r), np.zeros((r, k)) - np.arange(r)[:, None] / 10, test=test)
    worst = exchangeability(np.zeros(r), np.ones((r, k)), test=test)
    assert worst.p_value == 1 or test == "t"
    if test == "t":
        assert (best.p_value == 1) == (r == 1)
        return
    expected = {"permutation": 1 / (k + 1), "combined": min(1, 2 / (k + 1) ** r)}.get(test, 1 / (k + 1) ** r)
    assert float(best.p_value) == pytest.approx(expected)
    assert float(best.log_p_value) == pytest.approx(float(best.log_smallest_p), abs=1e-6)


@every_test
def test_all_equal(test):
    """Nothing but ties: no evidence."""
    result = exchangeability(np.full(6, -3.0), np.full((6, 4), -3.0), test=test, key=KEY)
    assert result.p_value == 1
    assert result.log_p_value == 0


def test_rounding_is_a_tie_and_a_repeated_order_too():
    third = np.full(6, 0.1 + 0.2)
    shuffled = np.full((6, 4), 0.3)
    for test in ("rank_sum", "exact", "permutation", "combined"):
        assert exchangeability(third, shuffled, test=test, key=KEY).p_value == 1
    single = third.astype(np.float32) * -1000
    noisy = np.nextafter(single, np.float32(-1e9))[:, None].repeat(4, axis=1)
    assert exchangeability(single, noisy, test="rank_sum", key=KEY).p_value == 1
    assert exchangeability(single.astype(float), noisy.astype(float), test="rank_sum", key=KEY).p_value < 0.01


def test_randomised_ties():
    canonical, shuffled = np.zeros(30), np.zeros((30, 4))
    found = {
        float(exchangeability(canonical, shuffled, test="rank_sum", tie_break="randomized", key=key).p_value)
        for key in jax.random.split(KEY, 12)
    }
    assert len(found) > 3
    continuous = shards(r=30, k=4)
    same = [
        exchangeability(*continuous, test="rank_sum", tie_break=rule, key=KEY).p_value
        for rule in ("conservative", "randomized")
    ]
    assert same[0] == same[1]


def test_p_value_is_positive_where_its_logarithm_is_far_below_the_smallest_float():
    canonical, shuffled = np.ones(40), np.zeros((40, 50)) - np.random.default_rng(0).random((40, 50)) * 1e-3
    for test in ("rank_sum", "combined", "t"):
        result = exchangeability(canonical, shuffled, test=test, key=KEY, num_draws=999)
        assert float(result.log_p_value) < -150
        assert np.isfinite(result.log_p_value)
        assert result.p_value > 0


def test_skew_is_flagged():
    rng = np.random.default_rng(0)
    left = -rng.exponential(size=50)
    shuffled = np.full((50, 2), -1.0)
    assert exchangeability(left, shuffled, test="t").skewed
    assert not exchangeability(-left - 2, shuffled, test="t").skewed
    assert not exchangeability(rng.normal(size=50), shuffled, test="t").skewed


def test_guarantees():
    assert set(GUARANTEES) == set(TESTS)
    assert [row[2] for row in GUARANTEE_ROWS if row[0] == "tdd.exchangeability"] == list(GUARANTEES.values())
    assert {name: g.kind for name, g in GUARANTEES.items() if g.kind != "finite-sample"} == {"t": "asymptotic"}


C, S = np.zeros(3), np.zeros((3, 2))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: exchangeability(C, np.zeros((2, 3))), ("3 shards", "(2, 3)", "transposed", "shuffled.T")),
        (lambda: exchangeability(C, np.zeros((4, 2))), ("3 shards", "(4, 2)", "one row a shard")),
        (lambda: exchangeability(C, np.zeros(3)), ("two axes", "shuffled[:, None]")),
        (lambda: exchangeability(C, np.zeros(7)), ("two axes", "(7,)", "one row a shard")),
        (lambda: exchangeability([1.0], np.zeros(7)), ("two axes", "[shuffled]")),
        (lambda: exchangeability(S, S), ("canonical", "one-dimensional", "(3, 2)")),
        (lambda: exchangeability(3.0, S), ("canonical", "one-dimensional")),
        (lambda: exchangeability([], np.zeros((0, 2))), ("canonical is empty",)),
        (lambda: exchangeability(C, np.zeros((3, 0))), ("(3, 0)", "at least one shuffle")),
        (lambda: exchangeability(C, [[1.0], [1.0, 2.0], [3.0]]), ("shuffled",)),
        (lambda: exchangeability([0.0, -np.inf, 1.0], S), ("canonical[1]", "-inf", "NaN")),
        (lambda: exchangeability(C, [[0, 0], [0, np.inf], [0, 0]]), ("shuffled[1, 1]", "inf")),
        (lambda: exchangeability(C * np.nan, S), ("no shard is left", "3 of 3")),
        (lambda: exchangeability(C, S, mask=np.zeros(3, bool)), ("no shard is left",)),
        (lambda: exchangeability(C, S, mask=[1, 0, 1]), ("mask", "boolean")),
        (lambda: exchangeability(C, S, mask=[True]), ("mask", "(1,)")),
        (lambda: exchangeability(C, S, test="wilcoxon"), ("test", "'wilcoxon'", "'rank_sum'")),
        (lambda: exchangeability(C, S, tie_break="shared"), ("tie_break", "'shared'")),
        (lambda: exchangeability(C, S, test="t", tie_break="randomized"), ("tie_break", "'t'")),
        (lambda: exchangeability(C, S, test="rank_sum", tie_break="randomized"), ("key", "tie_break")),
        (lambda: exchangeability(np.zeros(30), np.zeros((30, 2))), ("key", "3^30", "jax.random.key")),
        (lambda: exchangeability(C, S, key=7, num_draws=5), ("key", "7")),
        (lambda: exchangeability(C, S, num_draws=0), ("num_draws", "0")),
        (lambda: exchangeability(C, S, num_draws=1.5), ("num_draws", "1.5")),
        (lambda: exchangeability(np.array(["a", "b", "c"]), S), ("canonical", "numbers")),
        (
            lambda: exchangeability(np.zeros(10**6), np.zeros((10**6, 4)), test="rank_sum"),
            ("out of reach", "fewer shards"),
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError) as error:
        call()
    for word in words:
        assert word in str(error.value)


def test_densities_may_be_positive_and_integers_are_numbers():
    assert exchangeability([5, 4], [[3, 2], [1, 0]], test="rank_sum").p_value == pytest.approx(1 / 9)
