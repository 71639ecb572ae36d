"""Public calls for one calibration sample, covariate shift, clusters and groups: laws, masks, messages."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import conditional
from tdd.procedures import clusters as cluster_module
from tdd.procedures.calls import draws_for
from tdd.procedures.clusters import cluster_ptdi
from tdd.procedures.conditional import calibration_conditional_p_values
from tdd.procedures.p_values import (
    conformal_p_values,
    hierarchical_p_values,
    mondrian_p_values,
)
from tdd.procedures.procedure import Row
from tdd.procedures.ptdi import ptdi
from tdd.procedures.weighted import (
    GUARANTEES,
    effective_sample_size,
    weighted_conformal_p_values,
    weighted_conformal_selection,
)
from tdd.records import CLUSTER_UNITS, ClusterSelection
from tdd.validate import InputError

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
CALIBRATION, SCORES = RNG.normal(size=60), RNG.normal(size=40) - 2 * (np.arange(40) < 20)
OWN, OTHER = np.exp(RNG.normal(size=60) / 2), np.exp(RNG.normal(size=40) / 2)
LABELS, OTHERS = [f"c{i // 3}" for i in range(60)], [f"t{i // 4}" for i in range(40)]
GROUPS, OTHER_GROUPS = RNG.integers(0, 3, 60), RNG.integers(0, 3, 40)

P_VALUES = {
    **{
        method: lambda c, s, method=method, **masks: calibration_conditional_p_values(
            c, s, null="nonmember", method=method, key=KEY, num_draws=99, **masks
        )
        for method in ("simes", "dkwm", "monte_carlo", "asymptotic")
    },
    "weighted": lambda c, s, **masks: weighted_conformal_p_values(
        c, s, OWN[: len(c)], OTHER[: len(s)], null="nonmember", **masks
    ),
    "mondrian": lambda c, s, **masks: mondrian_p_values(
        c, s, GROUPS[: len(c)], OTHER_GROUPS[: len(s)], null="nonmember", **masks
    ),
    "hierarchical": lambda c, s, **masks: hierarchical_p_values(c, s, LABELS[: len(c)], null="nonmember", **masks),
}
SELECTIONS = {
    **{
        prune: lambda c, s, prune=prune, alpha=0.3, **masks: weighted_conformal_selection(
            c, s, OWN[: len(c)], OTHER[: len(s)], alpha=alpha, null="nonmember", prune=prune, key=KEY, **masks
        )
        for prune in ("homogeneous", "heterogeneous", "deterministic")
    },
    **{
        unit: lambda c, s, unit=unit, alpha=0.3, **masks: cluster_ptdi(
            c, s, LABELS[: len(c)], OTHERS[: len(s)], alpha=alpha, unit=unit, proportion="none", key=KEY, **masks
        )
        for unit in CLUSTER_UNITS
    },
}


@pytest.mark.parametrize("name", P_VALUES)
def test_nan_and_masked_items_are_left_out(name):
    """Hidden values change nothing, wherever they stand."""
    calibration, scores = CALIBRATION.copy(), SCORES.copy()
    calibration[5], scores[7] = np.nan, np.nan
    keep, keep_scores = np.arange(60) != 11, np.arange(40) != 3
    p = P_VALUES[name](calibration, scores, calibration_mask=keep, mask=keep_scores)
    calibration[11], scores[3] = 50.0, -50.0
    again = P_VALUES[name](calibration, scores, calibration_mask=keep, mask=keep_scores)
    np.testing.assert_array_equal(p, again)
    assert np.flatnonzero(np.isnan(p)).tolist() == [3, 7]
    assert not np.array_equal(p, P_VALUES[name](calibration, scores), equal_nan=True)
    real = np.asarray(p)[~np.isnan(p)]
    assert ((real > 0) & (real <= 1)).all()


@pytest.mark.parametrize("name", P_VALUES)
def test_order_of_float64_scores_survives(name):
    """Scores that single precision cannot tell apart."""
    near = P_VALUES[name](1 + CALIBRATION * 1e-12, 1 + SCORES * 1e-12)
    np.testing.assert_array_equal(near, P_VALUES[name](CALIBRATION, SCORES))


@pytest.mark.parametrize("name", P_VALUES)
def test_under_jit_and_vmap(name):
    calibration, scores = CALIBRATION.astype(np.float32), np.stack([SCORES, SCORES + 0.5]).astype(np.float32)
    whole = jax.jit(jax.vmap(lambda s: P_VALUES[name](jax.device_put(calibration), s)))(scores)
    for row, s in zip(np.asarray(whole), scores):
        np.testing.assert_allclose(row, P_VALUES[name](calibration.astype(float), s.astype(float)), rtol=1e-6)


@pytest.mark.parametrize("name", P_VALUES)
def test_smallest_sizes(name):
    if name != "asymptotic":
        assert P_VALUES[name](CALIBRATION[:1], SCORES[:1]).shape == (1,)
    assert P_VALUES[name](CALIBRATION, SCORES[:0]).shape == (0,)
    with pytest.raises(InputError, match="calibration"):
        P_VALUES[name](CALIBRATION[:0], SCORES)


@pytest.mark.parametrize("name", SELECTIONS)
def test_selected_is_adjusted_at_most_alpha(name):
    found = 0
    for alpha in (0.05, 0.1, 0.25, 0.3, 0.5, 0.9):
        got = SELECTIONS[name](CALIBRATION, SCORES, alpha=alpha)
        np.testing.assert_array_equal(np.asarray(got.adjusted) <= alpha, got.selected)
        assert int(got.num_selected) == int(got.selected.sum())
        assert got.num_selected == 0 or got.num_selected >= got.min_selections
        assert float(got.threshold) == pytest.approx(float(np.max(np.where(got.selected, got.p_values, 0))))
        found += int(got.num_selected)
    assert found > 0


@pytest.mark.parametrize("name", SELECTIONS)
def test_selections_with_masks(name):
    scores, keep, keep_scores = SCORES.copy(), np.arange(60) != 11, np.arange(40) != 3
    scores[7] = np.nan
    got = SELECTIONS[name](CALIBRATION, scores, calibration_mask=keep, mask=keep_scores)
    scores[3] = -99.0
    again = SELECTIONS[name](CALIBRATION, scores, calibration_mask=keep, mask=keep_scores)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    for hidden in (3, 7):
        assert not got.selected[hidden]
        assert np.isnan(got.adjusted[hidden])
        assert np.isnan(got.p_values[hidden])
    tested = int((~np.isnan(np.asarray(got.adjusted))).sum())
    assert int(got.num_tests) == tested == (10 if name == "drawn" else 38)
    assert int(got.num_calibration) == (20 if name in CLUSTER_UNITS else 59)


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.slow("long")
def test_traced_levels(name):
    data = jnp.asarray(CALIBRATION, jnp.float32), jnp.asarray(SCORES, jnp.float32)
    levels = np.array([0.1, 0.3, 0.6, 0.0, 1.5, np.nan], np.float32)
    got = jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda alpha: SELECTIONS[name](*data, alpha=alpha)))(levels))
    for i, alpha in enumerate((0.1, 0.3, 0.6)):
        np.testing.assert_array_equal(got.selected[i], SELECTIONS[name](*data, alpha=alpha).selected)
    assert not got.selected[3:].any()
    assert np.isnan(got.adjusted[3:]).all()


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.slow("long")
def test_smallest_selections(name):
    for n, m in ((1, 1), (5, 1), (60, 0)):
        got = SELECTIONS[name](CALIBRATION[:n], SCORES[:m], alpha=0.6)
        assert got.selected.shape == (m,)
        assert int(got.num_tests) == m
    alone = SELECTIONS[name](CALIBRATION, SCORES[:1] - 100, alpha=0.1)
    assert alone.selected.tolist() == [True]


@pytest.mark.parametrize("name", SELECTIONS)
def test_nothing_can_be_selected_is_said(name):
    got = SELECTIONS[name](CALIBRATION, SCORES - 100, alpha=0.001)
    assert not got.selected.any()
    assert int(got.min_selections) > int(got.num_tests)


# --- one calibration sample -------------------------------------------------------------------------------------------


def test_conditional_p_values_are_the_table_at_the_rank():
    plain = np.asarray(conformal_p_values(CALIBRATION, SCORES, null="member"), float)
    p = np.asarray(calibration_conditional_p_values(CALIBRATION, SCORES, null="member", delta=0.05))
    table = np.asarray(jax.jit(lambda: conditional.simes_bounds(60, 0.05, max_rank=61))())
    np.testing.assert_allclose(p, table[np.rint(plain * 61).astype(int)], rtol=1e-6)
    assert (p[plain < 1] > plain[plain < 1]).all()
    assert (p[plain == 1] == 1).all()


def test_delta_may_be_traced():
    call = jax.jit(lambda delta: calibration_conditional_p_values(CALIBRATION, SCORES, null="member", delta=delta))
    np.testing.assert_allclose(
        call(0.2), calibration_conditional_p_values(CALIBRATION, SCORES, null="member", delta=0.2), rtol=1e-6
    )
    assert np.isnan(call(1.2)).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"null": "both"}, ("null", "'both'")),
        ({"method": "exact"}, ("method", "'exact'", "'simes'")),
        ({"delta": 1.5}, ("delta", "1.5")),
        ({"delta": 0}, ("delta", "0")),
        ({"k": 0}, ("k", "1 to", "60", "0")),
        ({"k": 61}, ("k", "60", "61")),
        ({"k": 2.0}, ("k", "2.0")),
        ({"k": 3, "method": "dkwm"}, ("k", "simes", "'dkwm'")),
        ({"method": "monte_carlo"}, ("key", "monte_carlo")),
        ({"method": "monte_carlo", "key": KEY, "num_draws": 0}, ("num_draws", "0")),
        ({"method": "monte_carlo", "key": KEY, "num_draws": 5}, ("num_draws", "5", "0.1", "9")),
        ({"calibration": np.arange(16.0), "method": "asymptotic"}, ("calibration", "16", "17")),
        ({"calibration": [np.nan, 1.0], "calibration_mask": [True, False]}, ("calibration", "2")),
        ({"scores": [np.inf]}, ("scores[0]", "inf")),
    ],
    ids=str,
)
def test_conditional_messages(change, words):
    given = {"calibration": CALIBRATION, "scores": SCORES, "null": "member", **change}
    with pytest.raises(InputError) as error:
        calibration_conditional_p_values(**given)
    for word in words:
        assert word in str(error.value)


# --- weights ----------------------------------------------------------------------------------------------------------


def test_unit_weights_are_plain_and_units_do_not_matter():
    plain = conformal_p_values(CALIBRATION, SCORES, null="nonmember")
    for unit in (1.0, 1e-200, 1e200):
        p = weighted_conformal_p_values(CALIBRATION, SCORES, np.full(60, unit), np.full(40, unit), null="nonmember")
        np.testing.assert_allclose(p, plain, rtol=1e-6)


def test_effective_sample_size():
    got = weighted_conformal_selection(
        CALIBRATION, SCORES, OWN, OTHER, alpha=0.1, null="nonmember", calibration_mask=np.arange(60) < 30, key=KEY
    )
    kept = OWN[:30]
    assert float(got.effective_sample_size) == pytest.approx(kept.sum() ** 2 / (kept**2).sum(), rel=1e-5)
    assert float(effective_sample_size(OWN[:30] * 1e100)) == pytest.approx(float(got.effective_sample_size), rel=1e-5)
    missing = np.where(np.arange(60) < 30, CALIBRATION, np.nan).astype(np.float32)
    traced = jax.jit(SELECTIONS["heterogeneous"])(missing, np.float32(SCORES))
    assert float(traced.effective_sample_size) == pytest.approx(float(got.effective_sample_size), rel=1e-5)
    assert float(effective_sample_size(np.ones(7))) == pytest.approx(7, rel=2**-22)
    with pytest.raises(InputError, match="zero"):
        effective_sample_size(np.zeros(3))


def test_weighted_record():
    got = SELECTIONS["heterogeneous"](CALIBRATION, SCORES)
    assert got.method == "weighted_conformal_selection/heterogeneous"
    assert got.guarantee == GUARANTEES["heterogeneous"]
    assert got.null == "nonmember"
    assert ((np.asarray(got.bh_sizes) >= 1) & (np.asarray(got.bh_sizes) <= 40)).all()
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(got))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"calibration_weights": OWN[:5]}, ("calibration_weights", "(5,)", "60")),
        ({"weights": [1.0] * 39}, ("weights", "(39,)", "40")),
        ({"weights": [[1.0] * 40]}, ("weights", "(1, 40)")),
        ({"weights": ["a"] * 40}, ("weights", "numbers")),
        ({"weights": [-1.0] * 40}, ("weights[0]", "-1.0", "not negative")),
        ({"calibration_weights": [np.nan] * 60}, ("calibration_weights[0]", "nan")),
        ({"calibration_weights": [np.inf] * 60}, ("calibration_weights[0]", "inf")),
        ({"calibration_weights": np.zeros(60)}, ("calibration_weights", "zero")),
        ({"prune": "none"}, ("prune", "'none'")),
        ({"key": None}, ("key", "heterogeneous")),
        ({"alpha": 0}, ("alpha", "0")),
        ({"null": "x"}, ("null", "'x'")),
    ],
    ids=str,
)
def test_weighted_messages(change, words):
    given = {
        "calibration": CALIBRATION,
        "scores": SCORES,
        "calibration_weights": OWN,
        "weights": OTHER,
        "alpha": 0.1,
        "null": "nonmember",
        "key": KEY,
        **change,
    }
    with pytest.raises(InputError) as error:
        weighted_conformal_selection(**given)
    for word in words:
        assert word in str(error.value)


def test_weights_of_masked_items_are_not_looked_at():
    bad = OTHER.copy()
    bad[4] = np.nan
    scores = SCORES.copy()
    scores[4] = np.nan
    p = weighted_conformal_p_values(CALIBRATION, scores, OWN, bad, null="member")
    assert np.flatnonzero(np.isnan(p)).tolist() == [4]


# --- clusters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregate", ["mean", "median", "min"])
@pytest.mark.parametrize("proportion", ["none", "storey", "subtraction"])
def test_cluster_unit_is_ptdi_on_one_score_a_cluster(aggregate, proportion):
    function = getattr(np, aggregate)
    first = [function(CALIBRATION[3 * i : 3 * i + 3]) for i in range(20)]
    second = [function(SCORES[4 * i : 4 * i + 4]) for i in range(10)]
    expected = ptdi(first, second, alpha=0.4, proportion=proportion)
    order = np.random.default_rng(1).permutation(40)
    got = cluster_ptdi(
        CALIBRATION,
        SCORES[order],
        LABELS,
        np.array(OTHERS)[order],
        alpha=0.4,
        aggregate=aggregate,
        proportion=proportion,
    )
    assert isinstance(got, ClusterSelection)
    first_seen = list(dict.fromkeys(order // 4))
    np.testing.assert_array_equal(got.cluster_selected, np.asarray(expected.selected)[first_seen])
    for field in ("selected", "p_values", "adjusted"):
        np.testing.assert_array_equal(getattr(got, field), np.asarray(getattr(expected, field))[order // 4])
    assert int(got.num_clusters) == 10
    assert int(got.num_calibration) == 20
    assert int(got.num_tests) == 40
    assert float(got.proportion) == float(expected.proportion)
    assert got.method == f"cluster_ptdi/cluster/{proportion}"
    assert "clusters" in got.guarantee.controls


@pytest.mark.slow("long")
def test_fewest_selections_are_counted_in_items():
    """Two clusters at least, of which the smallest two have 1 + 2 items."""
    labels = ["a"] * 5 + ["b"] * 2 + ["c"]
    got = cluster_ptdi(np.arange(9.0), np.full(8, -1.0), range(9), labels, alpha=0.15, proportion="none")
    assert int(ptdi(np.arange(9.0), np.full(3, -1.0), alpha=0.15, proportion="none").min_selections) == 2
    assert int(got.min_selections) == 3
    assert got.selected.all()


def test_fewest_selections_of_single_items():
    """4 (1 + 1/2 + 1/3 + 1/4) / 10 <= .5 k: at least two of four items."""
    items = (np.arange(9.0), np.full(4, -1.0), range(9), [20, 20, 21, 22])
    got = cluster_ptdi(*items, alpha=0.5, unit="item", sizes="uninformative")
    assert int(got.min_selections) == 2
    # no e-value exceeds (4/3) 10, and 4/(.5 k) of it is needed; at .2 (3/10)/.2 items
    assert [int(cluster_ptdi(*items, alpha=level, unit="item").min_selections) for level in (0.5, 0.2)] == [1, 2]


def test_items_of_both_sides_are_drawn_apart():
    """Equal scores on both sides, drawn at the same places, would tie one by one: p = 2/7, 3/7, ..., 1."""
    scores, labels = np.arange(12.0), np.arange(12) // 2

    def p_values(seed):
        got = cluster_ptdi(
            scores, scores, labels, 10 + labels, alpha=0.4, unit="drawn", proportion="none", key=jax.random.key(seed)
        )
        return np.sort(np.asarray(got.p_values)[~np.isnan(np.asarray(got.p_values))])

    assert any(not np.allclose(p_values(seed), np.arange(2, 8) / 7) for seed in range(4))


def test_drawn_items_are_one_a_cluster():
    seen = set()
    for seed in range(12):
        got = cluster_ptdi(
            CALIBRATION, SCORES, LABELS, OTHERS, alpha=0.4, unit="drawn", proportion="none", key=jax.random.key(seed)
        )
        tested = np.flatnonzero(~np.isnan(np.asarray(got.p_values)))
        assert (tested // 4).tolist() == list(range(10))
        seen |= set(tested.tolist())
        assert not np.asarray(got.selected)[np.isnan(np.asarray(got.p_values))].any()
    assert len(seen) > 30


def test_item_unit_is_by_on_hierarchical_p_values():
    from tdd.procedures.testing import by

    p = hierarchical_p_values(CALIBRATION, SCORES, LABELS, null="nonmember")
    expected = by(p, 0.5)
    got = cluster_ptdi(CALIBRATION, SCORES, LABELS, OTHERS, alpha=0.5, unit="item", sizes="uninformative")
    np.testing.assert_array_equal(got.selected, expected.reject)
    np.testing.assert_allclose(got.adjusted, expected.adjusted, rtol=1e-6)
    assert got.guarantee.controls.startswith("FDR over items")


def test_labels_are_anything_hashable():
    names = cluster_ptdi(CALIBRATION, SCORES, LABELS, OTHERS, alpha=0.3)
    for own, other in (
        ([int(x[1:]) for x in LABELS], [(x, 1) for x in OTHERS]),
        (np.arange(60) // 3, -1 - np.arange(40) // 4),
        (np.array(LABELS), jnp.arange(40) // 4),
    ):
        again = cluster_ptdi(CALIBRATION, SCORES, own, other, alpha=0.3)
        np.testing.assert_array_equal(again.adjusted, names.adjusted)


def test_pandas_columns():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"score": SCORES, "book": OTHERS})
    got = cluster_ptdi(CALIBRATION, frame["score"], LABELS, frame["book"], alpha=0.3)
    np.testing.assert_array_equal(got.adjusted, cluster_ptdi(CALIBRATION, SCORES, LABELS, OTHERS, alpha=0.3).adjusted)
    frame.loc[2, "book"] = None
    with pytest.raises(InputError, match=r"clusters\[2\] is missing"):
        cluster_ptdi(CALIBRATION, frame["score"], LABELS, frame["book"], alpha=0.3)


def test_the_same_pool_on_both_sides_with_masks():
    """A split by masks: clusters may stand in both arrays as long as their real items stand in one."""
    scores, labels = np.concatenate([CALIBRATION, SCORES]), LABELS + OTHERS
    calibrates = np.arange(100) < 60
    got = cluster_ptdi(
        scores, scores, labels, labels, alpha=0.3, proportion="none", calibration_mask=calibrates, mask=~calibrates
    )
    plain = cluster_ptdi(CALIBRATION, SCORES, LABELS, OTHERS, alpha=0.3, proportion="none")
    np.testing.assert_array_equal(got.selected[60:], plain.selected)
    np.testing.assert_allclose(got.p_values[60:], plain.p_values, rtol=1e-6)
    assert not got.selected[:60].any()
    with pytest.raises(InputError, match="share 20 clusters"):
        cluster_ptdi(scores, scores, labels, labels, alpha=0.3, calibration_mask=calibrates)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"clusters": ["c4", *OTHERS[1:]]}, ("calibration_clusters", "'c4'", "split by cluster")),
        ({"clusters": OTHERS[:3]}, ("clusters", "(3,)", "40")),
        ({"clusters": "t" * 40}, ("clusters", "single text")),
        ({"clusters": 7}, ("clusters", "sequence")),
        ({"clusters": [*OTHERS[:39], None]}, ("clusters[39]", "missing")),
        ({"clusters": [*OTHERS[:39], float("nan")]}, ("clusters[39]", "missing")),
        ({"clusters": [*OTHERS[:39], ["a"]]}, ("clusters[39]", "hashable")),
        ({"clusters": [*OTHERS[:39], (["a"],)]}, ("clusters[39]", "hashable")),
        ({"calibration_clusters": np.ones((60, 2))}, ("calibration_clusters", "hashable")),
        ({"unit": "book"}, ("unit", "'book'", "'cluster'")),
        ({"aggregate": "max"}, ("aggregate", "'max'")),
        ({"unit": "item", "aggregate": "min"}, ("aggregate='min' belongs to unit='cluster', not to unit='item'",)),
        ({"sizes": "uninformative"}, ("sizes='uninformative' belongs to unit='item', not to unit='cluster'",)),
        ({"unit": "item", "sizes": "even"}, ("sizes", "'even'")),
        ({"size": 3}, ("there is no option 'size'; those of a unit are aggregate, sizes",)),
        ({"proportion": "moment"}, ("proportion", "'moment'")),
        ({"unit": "drawn"}, ("key", "drawn")),
        ({"alpha": 2}, ("alpha", "2")),
        ({"eta": 0}, ("eta", "0")),
    ],
    ids=str,
)
def test_cluster_messages(change, words):
    given = {
        "calibration": CALIBRATION,
        "scores": SCORES,
        "calibration_clusters": LABELS,
        "clusters": OTHERS,
        "alpha": 0.1,
        **change,
    }
    with pytest.raises(InputError) as error:
        cluster_ptdi(**given)
    for word in words:
        assert word in str(error.value)


def test_traced_labels_are_refused():
    with pytest.raises(InputError, match="before tracing"):
        jax.jit(lambda labels: cluster_ptdi(CALIBRATION, SCORES, LABELS, labels, alpha=0.1))(jnp.arange(40))


def test_one_compilation_for_all_levels():
    before = cluster_module._items._cache_size()
    for alpha in (0.06, 0.11, 0.21):
        SELECTIONS["item"](CALIBRATION, SCORES, alpha=alpha)
    assert cluster_module._items._cache_size() - before <= 1


# --- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("null", ["member", "nonmember"])
def test_mondrian_is_plain_within_each_group(null):
    p = mondrian_p_values(CALIBRATION, SCORES, GROUPS, OTHER_GROUPS, null=null)
    for group in range(3):
        inside = group == OTHER_GROUPS
        plain = conformal_p_values(CALIBRATION, SCORES, null=null, calibration_mask=group == GROUPS, mask=inside)
        np.testing.assert_allclose(np.asarray(p)[inside], np.asarray(plain)[inside], rtol=1.2e-7)


def test_a_group_without_calibration_items_has_p_1():
    p = mondrian_p_values([1.0, 2.0], [-5.0, -5.0], ["a", "a"], ["b", "a"], null="nonmember")
    np.testing.assert_allclose(p, [1, 1 / 3], rtol=1e-6)


def test_groups_that_differ_in_type_alone():
    with pytest.raises(InputError, match=r"no label in common: '1' is not 1"):
        mondrian_p_values([1.0], [2.0], [1], ["1"], null="member")
    assert mondrian_p_values([1.0], [2.0], [1], ["2"], null="member").tolist() == [1.0]


def test_items_of_single_clusters_are_decided_by_bh():
    """Where every cluster has one item, unit="item" is BH on conformal p-values."""
    from tdd.procedures.testing import bh

    expected = bh(conformal_p_values(CALIBRATION, SCORES, null="nonmember"), 0.4)
    got = cluster_ptdi(CALIBRATION, SCORES, range(60), range(60, 100), alpha=0.4, unit="item")
    assert int(got.num_selected) > 10
    np.testing.assert_array_equal(got.selected, expected.reject)
    assert got.method == "cluster_ptdi/item"


def test_long_clusters_pay_for_their_length():
    """A cluster of 30 items counts 30 times among its own false discoveries; the other rule takes it for one."""
    scores, labels = np.concatenate([np.full(30, -9.0), np.full(2, -9.0)]), [100] * 30 + [101] * 2
    one = {"alpha": 0.2, "unit": "item"}
    assert not cluster_ptdi(np.arange(60.0), scores, range(60), labels, **one).selected.any()
    assert cluster_ptdi(np.arange(60.0), scores, range(60), labels, sizes="uninformative", **one).selected.all()


def test_every_option_has_a_guarantee():
    from tdd.procedures import conditional as conditional_module
    from tdd.procedures import p_values as p_values_module
    from tdd.procedures import weighted as weighted_module

    modules = p_values_module, conditional_module, weighted_module, cluster_module
    rows = [Row(*row) for module in modules for row in module.GUARANTEE_ROWS]
    assert len({(row.call, row.option) for row in rows}) == len(rows) == 5 + 8 + 4 + 8
    for row in rows:
        assert row.guarantee.controls
        assert row.guarantee.assumes


def test_items_without_a_score_have_no_effective_size():
    holed = CALIBRATION.copy()
    holed[:9] = np.nan
    got = weighted_conformal_selection(holed, SCORES, OWN, OTHER, alpha=0.3, null="nonmember", key=KEY)
    assert float(got.effective_sample_size) == pytest.approx(float(effective_sample_size(OWN[9:])), rel=1e-5)


def test_the_simes_bound_shares_k_order_statistics():
    few, half = (
        calibration_conditional_p_values(CALIBRATION, SCORES, delta=0.1, null="nonmember", method="simes", k=k)
        for k in (5, None)
    )
    table = np.asarray(jax.jit(lambda: conditional.simes_bounds(60, 0.1, max_rank=61, k=5))())
    rank = 1 + (CALIBRATION[:, None] <= SCORES).sum(axis=0)
    np.testing.assert_allclose(few, table[rank], rtol=1e-6)
    assert not np.allclose(few, half)


@pytest.mark.parametrize("delta", [0.001, 0.05, 0.1, 0.2, 0.5])
def test_draws_of_one_seed_move_delta_by_half_a_percent(delta):
    """Given B draws, the chance that a new data set exceeds the chosen one is Beta(k, B + 1 - k)."""
    draws = draws_for(delta)
    place = round(delta * (draws + 1))
    mean = place / (draws + 1)
    assert math.sqrt(mean * (1 - mean) / (draws + 2)) <= 0.005
    assert mean == pytest.approx(delta, rel=1e-3)
    assert place >= 1


def test_conditional_p_values_draw_as_often():
    sample = np.random.default_rng(0).normal(size=(2, 40))
    options = {"null": "nonmember", "method": "monte_carlo", "delta": 0.01, "key": jax.random.key(0)}
    by_default = calibration_conditional_p_values(*sample, **options)
    np.testing.assert_array_equal(by_default, calibration_conditional_p_values(*sample, num_draws=399, **options))
