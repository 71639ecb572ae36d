"""`tdd.study.expected_exchange_power` against closed forms and the tests themselves on the same draws; its messages."""

import math
from statistics import NormalDist

import jax
import numpy as np
import pytest

import tdd
from tdd.study.designs import SkewedShards
from tdd.study.power.shards import TESTS, ResampledShards, log10_floor
from tdd.study.power.simulate import smallest_effect

RNG = np.random.default_rng(0)
ORDERS = RNG.normal(size=(24, 11)) * RNG.uniform(1, 9, size=(24, 1))
GAIN = ORDERS[:, 0] + 0.8 * ORDERS[:, 1:].std(axis=1)
COUNTS, WIDTH = (5, 12), 4  # shards and shuffles


def plan(source=None, *, effect=0.7, law="normal", shard_tokens=None, **options):
    options = {"num_shards": COUNTS, "num_shuffles": WIDTH, "search": False, "repetitions": 300} | options
    return tdd.study.expected_exchange_power(source or tdd.study.ShardEffect(effect, law, shard_tokens), **options)


@pytest.fixture(scope="module")
def every():
    """All tests at two levels, and their smallest effects."""
    return plan(test=TESTS, alpha=[0.05, 0.2], search=True)


@pytest.mark.slow("long")
def test_each_test_rejects_where_its_own_call_does(every):
    """The same draws, shard by shard, given to the public tests; places beyond the number of shards do not count."""
    key, repetitions = jax.random.key(0, impl="threefry2x32"), 300
    design = SkewedShards(12, WIDTH, np.float32(0.7), np.float32(4 / 12), "normal")
    drawn = jax.jit(jax.vmap(lambda i: design.draw(jax.random.split(jax.random.fold_in(key, i))[0]).extra))
    extra = drawn(np.arange(repetitions, dtype=np.uint32))
    own = plan(test=TESTS, alpha=[0.05, 0.2], num_shards=(5, 12), shifted_share=0.8)
    rows = {(row["test"], row["alpha"]): row for row in own.rows if row["num_shards"] == 5}
    for name in ("rank_sum", "t", "permutation"):
        found = [
            float(tdd.exchangeability(np.asarray(a[:5]), np.asarray(b[:5]), test=name).p_value)
            for a, b in zip(extra["canonical"], extra["shuffled"], strict=True)
        ]
        for alpha in (0.05, 0.2):
            assert rows[name, alpha]["power"] == pytest.approx(np.mean(np.array(found) <= alpha + 1e-6), abs=1e-9)
    paths = [
        np.asarray(tdd.exchangeability_sequence(a[:5], b[:5], looks=(1, 2, 3, 4)).p_value)
        for a, b in zip(np.asarray(extra["canonical"]), np.asarray(extra["shuffled"]), strict=True)
    ]
    reached = np.array(paths) <= 0.2
    row = rows["e_process", 0.2]
    assert row["power"] == pytest.approx(reached[:, -1].mean(), abs=1e-9)
    stopped = np.where(reached.any(axis=1), 1 + reached.argmax(axis=1), WIDTH)
    assert row["calls"] == pytest.approx(5 * (1 + stopped.mean()))


@pytest.mark.slow("long")
def test_the_general_engine_finds_the_same_power():
    """`tdd.study.run` draws its own relabellings; so does "exact" here, more of them."""
    slow = tdd.study.run(
        SkewedShards(12, WIDTH, 0.7, 1.0, "normal"), "exchangeability/exact", alphas=[0.05], repetitions=2_048, seed=5
    )
    row = plan(num_shards=12, test="exact", repetitions=2_048).rows[0]
    assert abs(row["power"] - slow.power[0, 0]) < 4.5 * np.hypot(row["power_se"], slow.power_se[0, 0])


def test_the_owners_test_is_planned_alike():
    """Documents in place of shards, private versions in place of shuffles: lower losses of the published ones."""
    planned = plan(effect=0.5, num_shards=16, num_shuffles=9, test="rank_sum", alpha=0.05, repetitions=4_096).rows[0]
    losses = jax.random.normal(jax.random.key(3), (4_096, 16, 10))
    test = jax.jit(jax.vmap(lambda rows: tdd.version_test(rows[:, 0] - 0.5, rows[:, 1:]).p_value))
    rejected = float((test(losses) <= 0.05).mean())
    assert 0.2 < rejected < 0.9
    assert abs(rejected - planned["power"]) < 5 * (2 * 0.25 / 4_096) ** 0.5


def test_one_shard_with_one_shuffle():
    """p is 1/2 where the canonical order is the more likely one: the power at 1/2 is that of two normal scores."""
    wanted = 0.8
    own = plan(num_shards=1, num_shuffles=1, effect=0.9, test="rank_sum", alpha=0.5, power=wanted, search=True,
               repetitions=20_000)  # fmt: skip
    row = own.rows[0]
    assert abs(row["power"] - NormalDist().cdf(0.9 / math.sqrt(2))) < 4.5 * row["power_se"]
    exact = math.sqrt(2) * NormalDist().inv_cdf(wanted)
    assert row["smallest_effect_low"] < row["smallest_effect"] < row["smallest_effect_high"]
    assert row["smallest_effect"] == pytest.approx(exact, rel=0.03)
    assert (row["calls"], row["tokens"], row["log10_floor"]) == (2, None, -math.log10(2))


def test_few_relabellings_are_listed_whatever_else_is_planned():
    """One shard with 19 shuffles has p = 1/20 and 2/20, as in `tdd.exchangeability`, beside a setting that draws."""
    own = plan(
        effect=8.0, num_shards=(1, 10), num_shuffles=19, test=("exact", "combined"), alpha=(0.0495, 0.05, 0.099, 0.1)
    )
    found = {(row["test"], row["alpha"]): row["power"] for row in own.rows if row["num_shards"] == 1}
    smallest = {"exact": 0.05, "combined": 0.1}
    assert found == {(test, alpha): float(alpha >= smallest[test]) for test, alpha in found}
    for row in own.rows:
        assert row["power"] == 0 or row["log10_floor"] <= math.log10(row["alpha"]) + 1e-9


def test_nothing_there_is_found_at_the_level_only():
    for row in plan(effect=1e-6, test=("combined", "rank_sum", "permutation", "e_process"), alpha=0.2).rows:
        assert row["power"] <= 0.2 + 4 * row["power_se"]


@pytest.mark.slow("long")
def test_power_and_smallest_effects_move_as_they_should(every):
    rows = {(row["test"], row["alpha"], row["num_shards"]): row for row in every.rows}
    for name in TESTS:
        for alpha in (0.05, 0.2):
            few, many = rows[name, alpha, 5], rows[name, alpha, 12]
            assert few["power"] <= many["power"] + 0.03
            if few["smallest_effect"] is not None:
                assert many["smallest_effect"] <= few["smallest_effect"]
            for row in (few, many):
                assert row["reaches"] == (row["power"] >= 0.8)
                if row["smallest_effect"] is None:
                    assert row["log10_floor"] > math.log10(alpha)
                else:
                    assert row["smallest_effect_low"] <= row["smallest_effect"] <= row["smallest_effect_high"]
        assert rows[name, 0.05, 12]["power"] <= rows[name, 0.2, 12]["power"]
    assert rows["permutation", 0.05, 12]["smallest_effect"] is None  # 1/(k + 1) is 0.2
    assert any("permutation" in words for words in every.about["warnings"])
    costs = [row["calls"] for row in every.rows]
    assert costs == sorted(costs)


@pytest.mark.slow("long")
def test_the_cheapest_setting_reaches_the_power(every):
    for one in every.cheapest:
        same = [row for row in every.rows if (row["test"], row["alpha"]) == (one["test"], one["alpha"])]
        enough = [row for row in same if row["power"] >= 0.8]
        assert one["row"] == (min(enough, key=lambda row: row["calls"]) if enough else None)


def test_tokens_and_sequential_calls():
    own = plan(test=("rank_sum", "e_process"), num_shards=12, effect=8.0, shard_tokens=50)
    whole = next(row for row in own.rows if row["test"] == "rank_sum")
    early = next(row for row in own.rows if row["test"] == "e_process")
    assert (whole["calls"], whole["tokens"]) == (60, 3000)
    assert early["power"] == 1
    assert early["calls"] < 40
    assert early["tokens"] == pytest.approx(50 * early["calls"])


def test_the_search_for_an_effect():
    def curve(effect):
        tried.append(effect)
        return NormalDist().cdf(math.log2(effect)), 0.01

    tried = []
    found = smallest_effect(curve, 1.0, 0.8)
    exact = 2 ** NormalDist().inv_cdf(0.8)
    assert found.smallest_effect == pytest.approx(exact, rel=0.02)
    assert found.smallest_effect_low < exact < found.smallest_effect_high
    assert len(set(tried)) == len(tried) < 10
    assert smallest_effect(lambda effect: (curve(effect)[0] / 2, 0.01), 1.0, 0.8) == (None, None, None)
    assert smallest_effect(lambda effect: (1.0, 0.0), 0.5, 0.8).smallest_effect == 1 / 64


def test_no_effect_is_searched_for_where_no_shard_shows_it():
    row = plan(num_shards=12, shifted_share=0.01, test="rank_sum", search=True).rows[0]
    assert row["smallest_effect"] is None


# --- shards of a finished test ----------------------------------------------------------------------------------------


def test_resampled_shards_keep_to_their_rows():
    rows = np.arange(6.0)[:, None] * 100
    shuffled, canonical = rows + np.arange(1.0, 8), rows[:, 0] + 50
    design = ResampledShards(40, 4, True, canonical, shuffled)
    extra = jax.jit(design.draw)(jax.random.key(1)).extra
    own, others = np.asarray(extra["canonical"]), np.asarray(extra["shuffled"])
    np.testing.assert_array_equal(own % 100, 50)
    np.testing.assert_array_equal(others // 100, np.repeat(own[:, None] // 100, 4, axis=1))
    assert len(np.unique(own)) > 3
    assert all(len(set(row)) == 4 for row in others)  # without replacement
    raised = jax.jit(ResampledShards(40, 12, False, canonical, shuffled, 1e3, 0.5).draw)(jax.random.key(1)).extra
    gain = np.asarray(raised["canonical"]) - np.asarray(raised["shuffled"]).max(axis=1)
    assert (gain[:20] > 100).all()
    assert (gain[20:] < 10).all()
    same = np.asarray(raised["canonical"])[20:, None] == np.asarray(raised["shuffled"])[20:]
    assert not same.any()  # a canonical order is none of its own shuffles, though these repeat


def test_all_shuffles_of_a_shard_are_drawn_again():
    """With two shuffles of each shard and three asked for, both come."""
    design = ResampledShards(40, 3, True, np.zeros(1), np.array([[1.0, 2.0]]))
    shuffled = np.asarray(jax.jit(design.draw)(jax.random.key(0)).extra["shuffled"])
    both = (np.ptp(shuffled, axis=1) > 0).mean()
    assert abs(both - 0.75) < 4.5 * np.sqrt(0.75 * 0.25 / 40)


@pytest.mark.slow("long")
def test_shards_of_a_finished_test():
    options = {"num_shards": 24, "num_shuffles": [10, 15], "test": "rank_sum"}
    found = plan(tdd.study.ShardLogProbs(GAIN, ORDERS[:, 1:]), search=True, **options)
    assert [row["num_shuffles"] for row in found.rows] == [10, 15]
    assert [row["extrapolated"] for row in found.rows] == [False, True]
    assert "24 shards with 10 shuffles" in found.about["source"]
    assert min(row["power"] for row in found.rows) > 0.8
    effect = ((GAIN - ORDERS[:, 1:].mean(axis=1)) / ORDERS[:, 1:].std(axis=1, ddof=1)).mean()
    assert found.about["measured_effect"]["mean"] == pytest.approx(effect, rel=1e-4)
    assert all(0.2 < row["smallest_effect"] < 0.9 for row in found.rows)
    options["num_shuffles"] = 10
    offset = 1e4 * np.arange(24)
    shifted = plan(tdd.study.ShardLogProbs(GAIN - offset, ORDERS[:, 1:] - offset[:, None]), **options)
    for row, other in zip(found.rows, shifted.rows, strict=False):
        assert row["power"] == pytest.approx(other["power"], abs=0.02)  # single precision of differences


@pytest.mark.parametrize(
    ("test", "expected"),
    [("rank_sum", -3 * math.log10(5)), ("exact", -2), ("permutation", -math.log10(5)), ("t", -math.inf)],
)
def test_the_smallest_p_values(test, expected):
    assert log10_floor(test, 3, 4, 99) == pytest.approx(expected)
    assert log10_floor("combined", 3, 4, 99) == pytest.approx(-3 * math.log10(5) + math.log10(2))
    assert log10_floor("exact", 3, 4, 10_000) == pytest.approx(-3 * math.log10(5))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"source": GAIN.tolist()}, r"source must be tdd.study.ShardLogProbs\(canonical, shuffled\) or .* got list"),
        ({"effect": 0}, "effect must be positive"),
        ({"shifted_share": 0}, r"shifted_share \(--shifted-fraction\) must lie above 0"),
        ({"law": "cauchy"}, "law must be one of 'normal', 'exponential', 'lognormal'"),
        ({"test": "sign"}, "test must be one of 'combined'"),
        ({"test": ()}, "test is empty"),
        ({"num_shards": 0}, "num_shards must be whole numbers"),
        ({"num_shuffles": 1.5}, "num_shuffles must be whole numbers"),
        ({"shard_tokens": 0}, "shard_tokens must be a positive number"),
        ({"power": 2}, "power must lie strictly between"),
        ({"alpha": 0}, "alpha"),
        ({"repetitions": 0}, "repetitions must lie from 1"),
    ],
)
def test_messages(options, words):
    with pytest.raises(tdd.InputError, match=words):
        plan(**options)


@pytest.mark.parametrize(
    ("canonical", "shuffled", "words"),
    [
        (GAIN[1:], ORDERS, r"got shapes \(23,\) and \(24, 11\)"),
        (GAIN, ORDERS[:, :1], "at least one shard with two shuffles"),
        (GAIN * np.nan, ORDERS, "24 of 24 shards"),
    ],
)
def test_messages_on_shards(canonical, shuffled, words):
    with pytest.raises(tdd.InputError, match=words):
        tdd.study.ShardLogProbs(canonical, shuffled)
