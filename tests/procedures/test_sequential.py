"""The checked sequential test: agreement with the fixed tests, continuation, precision, traces, messages, planning."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_sequential as ref

import tdd
from tdd.kernels import sequential
from tdd.procedures.sequential import GUARANTEE_ROWS, GUARANTEES, RULES
from tdd.validate import InputError

KEY = jax.random.key(0)
every_rule = pytest.mark.parametrize("rule", RULES)


def shards(r=8, b=10, shift=0.6, seed=0, level=0.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=r) + shift + level, rng.normal(size=(r, b)) + level


def sequence(canonical, shuffled, rule, **options):
    options = {"test": "rank_sum"} | options if rule == "spending" else options
    return tdd.exchangeability_sequence(canonical, shuffled, rule=rule, key=KEY, **options)


def test_bets_against_the_definition():
    canonical, shuffled = shards(level=-1e4)
    found = tdd.exchangeability_sequence(canonical, shuffled)
    counts = ref.exceedances(canonical, shuffled, 1e-14)
    at = np.array([1, 2, 5, 10]) - 1
    assert found.looks == (1, 2, 5, 10)
    log_e = ref.log_e(counts)
    np.testing.assert_allclose(found.log_e_value, log_e[at], rtol=1e-5)
    np.testing.assert_allclose(found.log_p_value, np.minimum(-np.maximum.accumulate(log_e)[at], 0), rtol=1e-5)
    np.testing.assert_array_equal(found.num_exceedances, counts["total"][at])
    assert (found.method, found.guarantee) == ("exchangeability/e_process", GUARANTEES["e_process"])
    for leaf in jax.tree.leaves(found):
        assert leaf.dtype in (np.float32, np.int32)


@pytest.mark.parametrize("test", ["combined", "t"])
def test_spending_is_the_fixed_test_at_every_look(test):
    canonical, shuffled = shards()
    found = tdd.exchangeability_sequence(canonical, shuffled, rule="spending", test=test, looks=(2, 6, 12), key=KEY)
    fixed = [
        tdd.exchangeability(canonical, shuffled[:, :look], test=test, key=jax.random.fold_in(KEY, look)).p_value
        for look in (2, 6)
    ]
    np.testing.assert_allclose(
        found.p_value, np.minimum.accumulate(np.array(fixed) / [0.1, 0.3]).clip(max=1), rtol=1e-5
    )
    assert found.looks == (2, 6)
    assert found.guarantee.kind == ("asymptotic" if test == "t" else "finite-sample")
    assert found.method == f"exchangeability/spending/{test}"
    assert np.isnan(found.log_e_value).all()


def test_besag_clifford_at_its_looks():
    canonical, shuffled = shards(r=3, b=30, shift=0.1)
    found = tdd.exchangeability_sequence(canonical, shuffled, rule="besag_clifford", num_exceedances=2)
    every = ref.besag_clifford(ref.exceedances(canonical, shuffled, 1e-14), 2)
    np.testing.assert_allclose(found.p_value, every[np.array(found.looks) - 1], rtol=1e-6)


@every_rule
def test_more_shuffles_continue_the_sequence(rule):
    canonical, shuffled = shards(b=10)
    whole = sequence(canonical, shuffled, rule, horizon=50)
    assert whole.looks == (1, 2, 5, 10)
    for b in (1, 7):
        part = sequence(canonical, shuffled[:, :b], rule, horizon=50)
        count = len(part.looks)
        assert part.looks == tuple(look for look in whole.looks if look <= b)
        for name in ("p_value", "log_p_value", "log_e_value", "num_exceedances"):
            np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[:count])


@every_rule
def test_unit_level_and_order_of_the_shards_do_not_matter(rule):
    canonical, shuffled = shards()
    expected = sequence(canonical, shuffled, rule).log_p_value
    order = np.random.default_rng(2).permutation(8)
    for other in (
        (canonical[order], shuffled[order]),
        (canonical * 8, shuffled * 8),
        (canonical * 0.1 - 1e5, shuffled * 0.1 - 1e5),
        (canonical.tolist(), shuffled.tolist()),
    ):
        np.testing.assert_allclose(sequence(*other, rule).log_p_value, expected, rtol=1e-5)


def test_equal_log_probabilities_are_ties_up_to_rounding():
    """0.1 + 0.2 is no win over 0.3, nor a loss to it: it counts as an exceedance both ways."""
    rows = np.full((8, 10), 0.3 - 1e-17)
    for canonical in (np.full(8, 0.1 + 0.2), np.full(8, 0.3)):
        found = tdd.exchangeability_sequence(canonical, rows)
        assert found.num_exceedances.tolist() == [1, 2, 5, 10]
        assert np.asarray(found.p_value).tolist() == [1, 1, 1, 1]


@every_rule
def test_masked_and_nan_shards(rule):
    canonical, shuffled = shards(r=10)
    expected = sequence(canonical[:8], shuffled[:8], rule)
    canonical[8] = np.nan
    found = sequence(canonical, shuffled, rule, mask=np.arange(10) != 9)
    np.testing.assert_array_equal(found.log_p_value, expected.log_p_value)
    assert (int(found.num_shards), int(found.num_masked)) == (8, 2)


@every_rule
@pytest.mark.slow("long")
def test_inside_traces(rule):
    canonical, shuffled = (jnp.asarray(x, jnp.float32) for x in shards())
    expected = sequence(canonical, shuffled, rule)
    jitted = jax.jit(lambda c, s: sequence(c, s, rule))(canonical, shuffled)
    batched = jax.vmap(lambda c, s: sequence(c, s, rule))(canonical[None], shuffled[None])
    np.testing.assert_allclose(jitted.log_p_value, expected.log_p_value, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(batched.log_p_value)[0], expected.log_p_value, rtol=1e-5)
    assert jitted.looks == expected.looks
    np.testing.assert_array_equal(jitted.num_exceedances, expected.num_exceedances)


def test_known_values_with_a_traced_mask_keep_their_digits():
    """-1e5 in float32 has steps of 1/128."""
    canonical, shuffled = shards()
    call = lambda c, s: jax.jit(lambda mask: tdd.exchangeability_sequence(c, s, mask=mask).log_e_value)  # noqa: E731
    expected = call(canonical, shuffled)(np.ones(8, bool))
    np.testing.assert_array_equal(call(canonical * 1e-3 - 1e5, shuffled * 1e-3 - 1e5)(np.ones(8, bool)), expected)


@pytest.mark.slow("long")
def test_parts_of_a_schedule_share_one_program():
    from tdd.procedures.sequential import _counted

    canonical, shuffled = shards(b=20)
    sequence(canonical, shuffled[:, :2], "e_process", horizon=20)
    before = _counted._cache_size()
    for b in (5, 13, 20):
        sequence(canonical, shuffled[:, :b], "e_process", horizon=20)
    assert _counted._cache_size() == before


def test_a_horizon_far_away_takes_no_memory():
    canonical, shuffled = shards()
    found = tdd.exchangeability_sequence(canonical, shuffled, horizon=10**9)
    assert found.looks == (1, 2, 5, 10)


def test_guarantees_name_what_they_assume():
    assert [row[1] for row in GUARANTEE_ROWS][:3] == [f'rule="{rule}"' for rule in RULES]
    assert "fixed before" in GUARANTEES["spending"].assumes[-1]
    assert "not because p is small" in GUARANTEES["besag_clifford"].assumes[-1]
    assert {row[2].kind for row in GUARANTEE_ROWS} == {"finite-sample", "asymptotic"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rule": "ville"}, "rule must be one of 'e_process'"),
        ({"rule": "spending", "test": "z"}, "test must be one of"),
        ({"looks": (1, 5, 5)}, "looks must rise, got 5 after 5"),
        ({"looks": ()}, "looks must be whole numbers"),
        ({"looks": "1,5"}, "looks must be whole numbers of shuffles in rising order"),
        ({"looks": (0, 5)}, r"looks\[0\] must be a whole number from 1"),
        ({"looks": (2.5,)}, r"looks\[0\] must be a whole number from 1"),
        ({"looks": (1, 20), "horizon": 15}, "the last look is at 20 shuffles, beyond horizon=15"),
        ({"looks": (1, 5)}, r"10 columns, more than horizon=5.*pass shuffled\[:, :5\]"),
        ({"horizon": 8}, "10 columns, more than horizon=8"),
        ({"horizon": True}, "horizon must be a whole number"),
        ({"looks": (30, 60)}, "fewer than the first look at 30 shuffles"),
        ({"rule": "besag_clifford", "num_exceedances": 0}, "num_exceedances must be a whole number from 1"),
        ({"rule": "spending", "num_draws": 0}, "num_draws must be a whole number"),
        ({"rule": "spending"}, "key is missing"),
    ],
)
def test_messages(options, words):
    with pytest.raises(InputError, match=words):
        tdd.exchangeability_sequence(*shards(), **options)


def test_shapes_are_checked_as_in_the_fixed_test():
    canonical, shuffled = shards()
    with pytest.raises(InputError, match="it looks transposed"):
        tdd.exchangeability_sequence(canonical, shuffled.T)
    canonical[0] = np.inf
    with pytest.raises(InputError, match=r"canonical\[0\] is inf"):
        tdd.exchangeability_sequence(canonical, shuffled)


# --- planning ---------------------------------------------------------------------------------------------------------


def smallest_log_p(test, r, k):
    canonical, shuffled = np.ones(r), np.zeros((r, k)) - np.arange(k)
    return float(tdd.exchangeability(canonical, shuffled, test=test, key=KEY).log_smallest_p)


@pytest.mark.parametrize("test", ["combined", "rank_sum", "exact", "permutation"])
def test_the_planned_number_of_shuffles_reaches_the_level_and_one_fewer_does_not(test):
    r, alpha = 3, 0.051
    k = tdd.shuffles_needed(r, alpha, test)
    assert smallest_log_p(test, r, k) <= np.log(alpha) + 1e-6 < smallest_log_p(test, r, k - 1)


def best_path(r, k):
    """log p of betting where the canonical order beats every shuffle, after each of k draws."""
    every = tuple(range(1, k + 1))
    return tdd.exchangeability_sequence(np.ones(r), np.zeros((r, k)), looks=every).log_p_value.tolist()


@pytest.mark.parametrize(("r", "alpha"), [(1, 0.05), (2, 0.05), (6, 0.0013), (50, 0.001), (3, 0.0002)])
def test_plans_by_their_formula(r, alpha):
    k = np.arange(1, 60_000, dtype=float)
    floors = {"rank_sum": -r * np.log(k + 1), "permutation": -np.log(k + 1)}
    floors["exact"] = np.maximum(floors["rank_sum"], -np.log(1e5))
    floors["combined"] = np.minimum(floors["rank_sum"], floors["exact"]) + np.log(2)
    for test, floor in floors.items():
        assert tdd.shuffles_needed(r, alpha, test) == 1 + np.argmax(floor <= np.log(alpha) + 1e-12)
    needed = tdd.shuffles_needed(r, alpha, "e_process")
    log_p = best_path(r, needed)
    assert log_p[-1] <= np.log(alpha) + 1e-6
    assert needed == 1 or log_p[-2] > np.log(alpha)


def test_exact_levels_of_the_plan():
    """At 1/20 nineteen shuffles suffice, though 1/0.05 is no whole number of floats; the t-test has no smallest p."""
    assert [tdd.shuffles_needed(7, alpha, "permutation") for alpha in (0.05, 0.01, 0.001, 0.3)] == [19, 99, 999, 3]
    assert tdd.shuffles_needed(2, 0.04, "rank_sum") == 4
    assert tdd.shuffles_needed(2, 0.02, "combined") == 9
    assert tdd.shuffles_needed(2, 0.001, "t") == 1
    assert tdd.shuffles_needed(10**6, 1e-9) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 0.05), "num_shards must be a whole number"),
        ((5, 0.0), "alpha must lie strictly between 0 and 1"),
        ((5, 0.05, "spending"), "test must be one of"),
        ((1, 0.05, "t"), "needs at least two shards"),
        ((5, 1e-6, "exact"), "give num_draws=999999 or more"),
    ],
)
def test_plans_that_cannot_be(arguments, words):
    with pytest.raises(InputError, match=words):
        tdd.shuffles_needed(*arguments)


def test_the_default_schedule_is_the_kernels():
    canonical, shuffled = shards(b=37)
    assert tdd.exchangeability_sequence(canonical, shuffled).looks == sequential.default_looks(37)


@pytest.mark.parametrize("rule", ["e_process", "besag_clifford"])
def test_a_shuffle_that_no_shard_has_does_not_count(rule):
    canonical, shuffled = np.array([3.0, 5.0, 2.0]), np.array([[1.0, 2.0], [4.0, 1.0], [2.0, 0.0]])
    longer = np.concatenate([shuffled, np.full((3, 1), np.nan)], axis=1)
    known = tdd.exchangeability_sequence(canonical, shuffled, rule=rule, looks=(2,))
    found = tdd.exchangeability_sequence(canonical, longer, rule=rule, looks=(2, 3))
    np.testing.assert_array_equal(found.p_value, np.repeat(known.p_value, 2))


def test_spending_needs_every_shuffle():
    """Its looks are tested by `exchangeability`, which takes no shard with a missing shuffle."""
    shuffled = np.arange(12.0).reshape(3, 4)
    shuffled[:, 2] = np.nan
    with pytest.raises(tdd.InputError, match="no shard is left"):
        tdd.exchangeability_sequence([3.0, 5.0, 2.0], shuffled, looks=(1, 4), rule="spending")
