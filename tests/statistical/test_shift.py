"""What conditional, weighted, clustered and group-wise procedures promise, each beside a broken twin."""

from functools import partial

import guarantees
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import clusters, conditional, conformal
from tdd.procedures.clusters import cluster_ptdi
from tdd.procedures.conditional import calibration_conditional_p_values
from tdd.procedures.p_values import mondrian_p_values
from tdd.procedures.ptdi import ptdi
from tdd.procedures.weighted import weighted_conformal_p_values, weighted_conformal_selection
from tdd.study.claims.auditor import clustered_scores, exceeds_somewhere, shifted_scores

DELTA = 0.1


def caught(values, bound, level):
    guarantees.assert_exceeds(values, bound, level)


# --- one calibration sample -------------------------------------------------------------------------------------------


def table_of(name, n, key):
    size = {"max_rank": n + 1}
    if name == "plain":
        return jnp.arange(n + 2) / (n + 1)
    if name == "shifted":  # the bound of the rank below
        return jnp.concatenate([jnp.zeros(1), conditional.simes_bounds(n, DELTA, **size)[:-1]])
    if name == "monte_carlo":
        return conditional.monte_carlo_bounds(n, DELTA, **size, key=key, num_draws=19)
    if name == "twice delta":  # a constant that half as many draws exceed
        return conditional.monte_carlo_bounds(n, 2 * DELTA, **size, key=key, num_draws=19)
    return getattr(conditional, f"{name}_bounds")(n, DELTA, **size)


def misses(n, *names):
    def one(key):
        data, own = jax.random.split(key)
        return [exceeds_somewhere(data, table_of(name, n, own), n) for name in names]

    return guarantees.simulate(one, seed=n)


@pytest.mark.guarantee(checks=3)
@pytest.mark.parametrize("n", [1, 2, 39])
def test_simes_misses_with_probability_delta(n, budget):
    right, broken = misses(n, "simes", "shifted")
    guarantees.assert_equals(right, DELTA, budget)
    caught(broken, DELTA, budget)


@pytest.mark.guarantee(checks=5)
@pytest.mark.parametrize(
    ("name", "n"), [("dkwm", 1), ("dkwm", 40), ("monte_carlo", 1), ("monte_carlo", 2), ("monte_carlo", 20)]
)
def test_tables_hold_for_the_sample(name, n, budget):
    guarantees.assert_at_most(misses(n, name)[0], DELTA, budget)


@pytest.mark.guarantee(checks=0)
@pytest.mark.parametrize(("name", "n"), [("plain", 1), ("twice delta", 20)])
def test_broken_tables_are_caught(name, n, budget):
    caught(misses(n, name)[0], DELTA, budget)


VALUES = 6


def misses_with_ties(n, *calls):
    """[nulls][calls] Scores uniform on 0..5: given the calibration sample, P(p <= p(v)) is the share of values as
    extreme as v."""
    values = jnp.arange(VALUES)
    shares = {"nonmember": (values + 1) / VALUES, "member": (VALUES - values) / VALUES}

    def one(key):
        calibration = jax.random.randint(key, (n,), 0, VALUES).astype(jnp.float32)
        scores = values.astype(jnp.float32)
        return [
            [jnp.any(shares[null] > call(calibration, scores, null=null) + 1e-6) for call in calls]
            for null in conformal.NULLS
        ]

    return guarantees.simulate(one, seed=9)


@pytest.mark.guarantee(checks=2)
@pytest.mark.parametrize("method", ["simes", "dkwm", "monte_carlo"])
def test_conditional_p_values_with_ties(method, budget):
    """Through the public call."""
    key = jax.random.key(5)
    call = partial(calibration_conditional_p_values, delta=DELTA, method=method, key=key, num_draws=19)
    plain = lambda c, s, null: conformal.p_values(conformal.rank(c, s, null=null))  # noqa: E731
    for right, broken in misses_with_ties(20, call, plain):
        guarantees.assert_at_most(right, DELTA, budget)
        caught(broken, DELTA, budget)


# --- covariate shift --------------------------------------------------------------------------------------------------


def tied_scores(key, *, calibration, nulls, alternatives):
    """A covariate on 0, 1, 2 with weights 1, 2, 4: uniform when calibrating, tilted by the weight when tested.

    The score is a small integer that falls with the covariate; members score lower by 3.
    """
    first, second, noise = jax.random.split(key, 3)
    many, tested = calibration + nulls + alternatives, nulls + alternatives
    covariate = jnp.concatenate(
        [
            jax.random.randint(first, (calibration,), 0, 3),
            jax.random.categorical(second, jnp.log(jnp.asarray([1.0, 2.0, 4.0])), shape=(tested,)),
        ]
    )
    member = jnp.arange(many) >= calibration + nulls
    scores = (3 - covariate + jax.random.randint(noise, (many,), 0, 2) - 3 * member).astype(jnp.float32)
    weights = 2.0**covariate
    return scores[:calibration], scores[calibration:], weights[:calibration], weights[calibration:]


def as_it_is(*data):
    return data


def ignoring(calibration, scores, own, other):
    """No weights."""
    return calibration, scores, jnp.ones_like(own), jnp.ones_like(other)


def weightless(calibration, scores, own, other):
    """Candidates do not count themselves."""
    return calibration, scores, own, 0 * other


def favoured(calibration, scores, own, other):
    """Ties are broken in favour of candidates that do not count themselves."""
    return calibration, scores - 0.5, own, 0 * other


LEVELS = (0.05, 0.2, 0.5)


def weighted_sizes(draw, n, *changes):
    """[changes][levels] how often a null candidate's p-value is at most the level."""

    def one(key):
        data = draw(key, calibration=n, nulls=1, alternatives=0)
        p = [weighted_conformal_p_values(*change(*data), null="nonmember")[0] for change in changes]
        return [[value <= level + 1e-6 for level in LEVELS] for value in p]

    return guarantees.simulate(one, seed=n)


@pytest.mark.guarantee(checks=9)
@pytest.mark.parametrize(
    ("draw", "n", "broken"),
    [(shifted_scores, 20, (weightless, ignoring)), (tied_scores, 20, (favoured,)), (tied_scores, 1, (favoured,))],
)
@pytest.mark.slow("long")
def test_weighted_p_values(draw, n, broken, budget):
    right, *wrong = weighted_sizes(draw, n, as_it_is, *broken)
    for size, level in zip(right, LEVELS, strict=True):
        guarantees.assert_at_most(size, level, budget)
    for sizes in wrong:
        guarantees.assert_exceeds_somewhere(list(zip(sizes, LEVELS, strict=True)), budget)


def weighted_fdp(draw, n, nulls, alternatives, alpha, *variants):
    """FDP of each (prune, change) on the same data."""
    null = jnp.arange(nulls + alternatives) < nulls

    def one(key):
        own, drawn = jax.random.split(key)
        data = draw(drawn, calibration=n, nulls=nulls, alternatives=alternatives)
        found = [
            weighted_conformal_selection(*change(*data), alpha=alpha, null="nonmember", prune=prune, key=own).selected
            for prune, change in variants
        ]
        return [guarantees.false_discovery_proportion(selected, null) for selected in found]

    return guarantees.simulate(one, seed=nulls)


@pytest.mark.guarantee(checks=6)
@pytest.mark.parametrize(
    ("draw", "nulls", "alternatives", "broken"),
    [(shifted_scores, 12, 8, ignoring), (tied_scores, 12, 8, favoured), (shifted_scores, 10, 0, weightless)],
)
@pytest.mark.slow("long")
def test_weighted_selection(draw, nulls, alternatives, broken, budget):
    alpha = 0.2
    variants = [("homogeneous", as_it_is), ("heterogeneous", as_it_is), ("homogeneous", broken)]
    *right, wrong = weighted_fdp(draw, 40, nulls, alternatives, alpha, *variants)
    for fdp in right:
        guarantees.assert_at_most(fdp, alpha * nulls / (nulls + alternatives), budget)
    caught(wrong, alpha, budget)


@pytest.mark.guarantee(checks=3)
@pytest.mark.parametrize(
    ("prune", "n", "nulls"), [("deterministic", 40, 6), ("homogeneous", 1, 3), ("deterministic", 9, 1)]
)
@pytest.mark.slow("long")
def test_weighted_selection_at_the_edges(prune, n, nulls, budget):
    right, wrong = weighted_fdp(tied_scores, n, nulls, 0, 0.3, (prune, as_it_is), (prune, favoured))
    guarantees.assert_at_most(right, 0.3, budget)
    caught(wrong, 0.3, budget)


# --- clusters ---------------------------------------------------------------------------------------------------------


BOOKS = (24,) * 3 + (2,) * 18
CALIBRATING = 19


def books(*rules, integers=False):
    """How often each rule selects anything of two non-member clusters."""
    labels = np.arange(len(BOOKS)).repeat(max(BOOKS))
    cut = CALIBRATING * max(BOOKS)

    def one(key):
        data, own = jax.random.split(key)
        scores, real = clustered_scores(data, sizes=BOOKS, fraction=0.9)
        scores, real = (jnp.round(2 * scores) if integers else scores).ravel(), real.ravel()
        masks = {"calibration_mask": real[:cut], "mask": real[cut:]}
        found = []
        for rule in rules:
            given = (scores[:cut], scores[cut:] - 0.25 if rule == "favoured" else scores[cut:])
            if rule == "ignored":
                found.append(ptdi(*given, alpha=0.1, proportion="none", **masks).selected.any())
                continue
            how = {"unit": "cluster", "proportion": "none", "key": own} | ({} if rule == "favoured" else rule)
            found.append(cluster_ptdi(*given, labels[:cut], labels[cut:], alpha=0.1, **how, **masks).selected.any())
        return found

    return guarantees.simulate(one, seed=3)


@pytest.mark.guarantee(checks=3)
@pytest.mark.slow("long")
def test_cluster_decisions_are_exact(budget):
    """alpha (C + 1)/m = 1 and scores are continuous: the FDR over clusters, all of them null, is alpha."""
    *right, wrong = books({}, {"aggregate": "median"}, {"unit": "drawn"}, "ignored")
    for fdp in right:
        guarantees.assert_equals(fdp, 0.1, budget)
    caught(wrong, 0.1, budget)


@pytest.mark.guarantee(checks=4)
@pytest.mark.slow("long")
def test_cluster_decisions_with_ties(budget):
    rules = {"aggregate": "min"}, {"unit": "drawn"}, {"unit": "item"}, {"proportion": "storey"}
    *right, wrong = books(*rules, "favoured", integers=True)
    for fdp in right:
        guarantees.assert_at_most(fdp, 0.1, budget)
    caught(wrong, 0.1, budget)


def item_sizes(num_clusters, levels, *rules):
    """One item, drawn at random, of one further cluster; sizes differ and clusters dominate."""
    sizes = ((8,) + (1,) * 4)[:num_clusters] + (2,) * (num_clusters + 1 - min(num_clusters, 5))

    def one(key):
        scores, real = clustered_scores(key, sizes=sizes, fraction=0.9)
        calibration, labels = scores[1:].ravel(), np.arange(num_clusters).repeat(scores.shape[1])
        given = calibration, scores[0, :1], jnp.asarray(labels, jnp.int32), real[1:].ravel(), num_clusters
        return [[rule(*given)[0] <= level + 1e-6 for level in levels] for rule in rules]

    return guarantees.simulate(one, seed=num_clusters)


def hierarchical(calibration, scores, labels, real, num_clusters):
    return clusters.hierarchical_p_values(
        calibration, scores, labels, num_clusters=num_clusters, null="nonmember", calibration_mask=real
    )


def pooled(calibration, scores, labels, real, num_clusters):
    return conformal.p_values(conformal.rank(calibration, scores, null="nonmember", calibration_mask=real))


def without_the_one(calibration, scores, labels, real, num_clusters):
    return (hierarchical(calibration, scores, labels, real, num_clusters) * (num_clusters + 1) - 1) / num_clusters


@pytest.mark.guarantee(checks=6)
@pytest.mark.parametrize(("num_clusters", "broken"), [(1, (without_the_one,)), (9, (without_the_one, pooled))])
@pytest.mark.slow("long")
def test_hierarchical_p_values(num_clusters, broken, budget):
    levels = (0.1, 0.3, 0.5)
    right, *wrong = item_sizes(num_clusters, levels, hierarchical, *broken)
    for size, level in zip(right, levels, strict=True):
        guarantees.assert_at_most(size, level, budget)
    for sizes in wrong:
        caught(sizes[0], levels[0], budget)


@pytest.mark.guarantee(checks=1)
def test_items_of_clusters_by_benjamini_yekutieli(budget):
    """19 calibration clusters, 3 null and 2 member clusters, 4 items each; 40% of the variance between clusters."""
    null, labels, alpha = np.arange(5).repeat(4) < 3, np.arange(24).repeat(4), 0.5

    def one(key):
        scores, _ = clustered_scores(key, sizes=(4,) * 24, fraction=0.4)
        scores = scores.at[22:].add(-4).ravel()
        found = cluster_ptdi(scores[:76], scores[76:], labels[:76], labels[76:], alpha=alpha, unit="item")
        each_alone = found.p_values <= alpha
        return [guarantees.false_discovery_proportion(x, null) for x in (found.selected, each_alone)]

    right, wrong = guarantees.simulate(one, seed=6)
    guarantees.assert_at_most(right, alpha * 0.6, budget)
    caught(wrong, alpha * 0.6, budget)


# --- groups -----------------------------------------------------------------------------------------------------------


def group_sizes(p_values, levels, integers=False):
    """Two groups whose scores differ by 2, nineteen calibration items each; one null candidate of the lower group."""
    groups = np.arange(2).repeat(19)

    def one(key):
        draw = jax.random.normal(key, (39,))
        draw = jnp.round(draw) if integers else draw
        calibration = draw[:38] + 2.0 * groups
        p = p_values(calibration, draw[38:], groups)[0]
        return [p <= level + 1e-6 for level in levels]

    return guarantees.simulate(one, seed=7)


def within_group(calibration, scores, groups):
    return mondrian_p_values(calibration, scores, groups, np.zeros(1, int), null="nonmember")


def over_groups(calibration, scores, groups):
    return conformal.p_values(conformal.rank(calibration, scores, null="nonmember"))


@pytest.mark.guarantee(checks=4)
@pytest.mark.slow("long")
def test_group_p_values(budget):
    levels = (0.1, 0.25)
    for size, level in zip(group_sizes(within_group, levels), levels, strict=True):
        guarantees.assert_equals(size, level, budget)
    for size, level in zip(group_sizes(within_group, levels, integers=True), levels, strict=True):
        guarantees.assert_at_most(size, level, budget)
    caught(group_sizes(over_groups, levels)[0], levels[0], budget)
