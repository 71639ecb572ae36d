"""What the combinations of detectors promise, at 10^5 repetitions, each beside a broken twin that must be caught."""

import guarantees
import jax
import jax.numpy as jnp
import pytest

from tdd.kernels import combine, conformal, merge, pooled_ranks, stepup
from tdd.procedures.owner import dataset_inference
from tdd.procedures.several_scores import combined_score
from tdd.procedures.td4eval import td4eval
from tdd.study import runner
from tdd.study.claims.combination import detector_scores, learned_without_split, pooled_by_rejections

ALPHA = 0.2


def normal_panels(key, k, n, nulls, clean, correlation=0.3):
    """Correlated detectors of unequal strength; large scores are evidence of being clean."""
    shifts = jnp.where(jnp.arange(nulls + clean) < nulls, 0, 3.0) * jnp.linspace(1, 0.3, k)[:, None]
    return detector_scores(key, n, shifts, correlation)


def integer_panels(key, k, n, nulls, clean):
    """Tie-heavy scores on three integers, shared between detectors half of the time."""
    one, two, three = jax.random.split(key, 3)
    own = jax.random.randint(one, (k, n + nulls + clean), 0, 3)
    common = jax.random.randint(two, (1, n + nulls + clean), 0, 3)
    draw = jnp.where(jax.random.bernoulli(three, 0.5, own.shape), own, common).astype(jnp.float32)
    return draw[:, :n], draw[:, n:].at[:, nulls:].add(1)


def fdps_of(selects, panels, sizes, seed=0):
    """FDP of each `select(calibration, scores, key) -> mask` on the same data; sizes are (K, n, nulls, clean)."""
    null = jnp.arange(sizes[2] + sizes[3]) < sizes[2]

    def one(key):
        data, own = jax.random.split(key)
        arrays = panels(data, *sizes)
        return [guarantees.false_discovery_proportion(select(*arrays, own), null) for select in selects]

    return guarantees.simulate(one, seed=seed)


def by(name, keyed=False, **options):
    def select(calibration, scores, key):
        more = {"key": key} if keyed else {}
        return td4eval(calibration, scores, alpha=ALPHA, combine=name, **more, **options).selected

    return select


def weights_by_rejections(calibration, scores, key):
    return pooled_by_rejections(calibration, scores)


def ties_in_favour(calibration, scores, key):
    """The rank of the combined evidence counts ties for the item."""
    found = pooled_ranks.rank(calibration, scores, null="member", rule="sum")
    return bh(found.calibration, jnp.nextafter(found.scores, jnp.inf))


def strict(calibration, scores, key):
    """p = #{evidence of calibration strictly beyond}/n: no + 1, and ties in favour."""
    found = pooled_ranks.rank(calibration, scores, null="member", rule="sum")
    return bh(found.calibration, jnp.nextafter(found.scores, jnp.inf), plus_one=0)


def without_the_one(calibration, scores, key):
    found = pooled_ranks.rank(calibration, scores, null="member", rule="sum")
    return bh(found.calibration, found.scores, plus_one=0)


def bh(calibration, scores, plus_one=1):
    n = calibration.shape[0]
    rank = conformal.rank(calibration, scores, null="member").rank - 1 + plus_one
    return stepup.bh_ranks(rank, n + plus_one - 1, ALPHA, max_rank=n + 1).reject


def must_be_caught(fdp, bound, level):
    guarantees.assert_exceeds(fdp, bound, level)


# --- pooled ranks -----------------------------------------------------------------------------------------------------


@pytest.mark.guarantee(checks=2)
@pytest.mark.slow("long")
def test_pooled_ranks_are_exact_on_the_lattice(budget):
    """alpha (n+1)/m is an integer and a key leaves no ties: FDR = alpha·m0/m, two-sided."""
    exact = [by("pooled_rank", keyed=True, rule=rule) for rule in pooled_ranks.RULES]
    *found, broken = fdps_of([*exact, without_the_one], normal_panels, (3, 49, 7, 3))
    for fdp in found:
        guarantees.assert_equals(fdp, ALPHA * 0.7, budget)
    guarantees.assert_differs(broken, ALPHA * 0.7, budget)


@pytest.mark.guarantee(checks=8)
@pytest.mark.parametrize(
    ("sizes", "twin"),
    [
        ((4, 29, 10, 0), strict),
        ((3, 19, 1, 0), ties_in_favour),
        ((3, 1, 3, 1), without_the_one),
        ((1, 29, 6, 4), ties_in_favour),
    ],
)
@pytest.mark.slow("long")
def test_pooled_ranks_with_ties(sizes, twin, budget):
    bound = ALPHA * sizes[2] / (sizes[2] + sizes[3])
    weighted = by("pooled_rank", rule="cauchy", weights=[1, 0.3, 2, 0.01][: sizes[0]])
    plain, cauchy, broken = fdps_of([by("pooled_rank"), weighted, twin], integer_panels, sizes)
    guarantees.assert_at_most(plain, bound, budget)
    guarantees.assert_at_most(cauchy, bound, budget)
    must_be_caught(broken, bound, budget)


@pytest.mark.guarantee(checks=3)
@pytest.mark.parametrize(
    ("panels", "sizes", "twins"),
    [
        (normal_panels, (4, 49, 10, 0), (weights_by_rejections, by("cauchy"), by("max"))),
        (integer_panels, (4, 29, 6, 4), (strict,)),
        (normal_panels, (3, 1, 1, 0), (without_the_one,)),
    ],
)
@pytest.mark.slow("long")
def test_weights_learned_on_a_split(panels, sizes, twins, budget):
    """The twins of the first case learn their weights, or choose their detector, without a split."""
    bound = ALPHA * sizes[2] / (sizes[2] + sizes[3])
    split, *broken = fdps_of([by("split_weights", keyed=True), *twins], panels, sizes)
    guarantees.assert_at_most(split, bound, budget)
    for fdp in broken:
        must_be_caught(fdp, bound, budget)


# --- a score learned on the same data ---------------------------------------------------------------------------------


def learned(rule):
    return lambda calibration, scores, key: (
        combined_score(calibration, scores, alpha=ALPHA, rule=rule, null="member").selected
    )


@pytest.mark.guarantee(checks=4)
@pytest.mark.parametrize(("panels", "sizes"), [(normal_panels, (3, 29, 8, 2)), (integer_panels, (3, 39, 8, 2))])
@pytest.mark.slow("long")
def test_a_learned_score_keeps_its_level_where_it_is_compared_with_items_it_could_not_tell_from_candidates(
    panels, sizes, budget
):
    """Its twin learns with all calibration items in one class, and compares with the same items."""
    bound = ALPHA * sizes[2] / (sizes[2] + sizes[3])
    twin = lambda calibration, scores, key: learned_without_split(calibration, scores)  # noqa: E731
    split, cross_fit, broken = fdps_of([learned("split"), learned("cross_fit"), twin], panels, sizes)
    guarantees.assert_at_most(split, bound, budget)
    guarantees.assert_at_most(cross_fit, bound, budget)
    must_be_caught(broken, bound, budget)


@pytest.mark.guarantee(checks=2)
@pytest.mark.slow("long")
def test_splits_of_two_sets_are_merged_under_any_dependence(budget):
    """The twins take the smallest p-value of the splits, and Fisher's combination of them."""

    def one(key):
        data, own = jax.random.split(key)
        heldout, suspect = normal_panels(data, 3, 16, 16, 0)
        found = dataset_inference(suspect, heldout, key=own, num_splits=4, num_draws=39)
        twins = {"smallest": found.split_p_values.min(), "fisher": combine.fisher(found.split_p_values).p_value}
        p = {"merged": found.p_value, "one": found.split_p_values[0], **twins}
        return jax.tree.map(lambda x: (x <= 0.05 * (1 + 1e-5)).astype(jnp.float32), p)

    found = guarantees.simulate(one, seed=9)
    guarantees.assert_at_most(found["merged"], 0.05, budget)
    guarantees.assert_at_most(found["one"], 0.05, budget)
    must_be_caught(found["smallest"], 0.05, budget)
    must_be_caught(found["fisher"], 0.05, budget)


@pytest.mark.guarantee(checks=1)
@pytest.mark.slow("long")
def test_means_of_documents_keep_the_level_where_passages_do_not(budget):
    """Documents of one or three passages share a level of their own; the twin takes passages for items."""
    passages = jnp.arange(3)

    def one(key):
        own, noise, sizes, split = jax.random.split(key, 4)
        values = 2 * jax.random.normal(own, (2, 32, 1)) + jax.random.normal(noise, (2, 32, 3))
        real = passages < jnp.where(jax.random.bernoulli(sizes, 0.5, (32, 1)), 3, 1)
        means = jnp.sum(jnp.where(real, values, 0), -1) / jnp.sum(real, -1)
        options = {"key": split, "num_splits": 4, "num_draws": 39}
        found = dataset_inference(means[:, :16], means[:, 16:], **options)
        masks = {"suspect_mask": real[:16].reshape(-1), "heldout_mask": real[16:].reshape(-1)}
        twin = dataset_inference(values[:, :16].reshape(2, -1), values[:, 16:].reshape(2, -1), **options, **masks)
        return [(p <= 0.05 * (1 + 1e-5)).astype(jnp.float32) for p in (found.p_value, twin.p_value)]

    means, broken = guarantees.simulate(one, seed=10)
    guarantees.assert_at_most(means, 0.05, budget)
    must_be_caught(broken, 0.05, budget)


# --- across items under any dependence --------------------------------------------------------------------------------


@pytest.mark.guarantee(checks=6)
@pytest.mark.slow("long")
def test_merges_and_e_values(budget):
    names = ("bonferroni", "hommel", "twice_mean", "geometric", "harmonic")
    valid = [by(name) for name in (*names, "e_values")]
    *merged, e_values, broken = fdps_of([*valid, strict], integer_panels, (2, 29, 4, 1))
    for fdp in merged:
        guarantees.assert_at_most(fdp, ALPHA * 4 / 5, budget)
    guarantees.assert_at_most(e_values, ALPHA, budget)
    must_be_caught(broken, ALPHA, budget)


# --- one group of p-values --------------------------------------------------------------------------------------------


def independent_p(key, k):
    return jax.random.uniform(key, (k,))


def comonotone_p(key, k):
    return jnp.full(k, jax.random.uniform(key))


def spread_p(key, k):
    """Each marginally uniform; one of them is small whenever any could be: the worst case of K·min."""
    which, where = jax.random.split(key)
    u = jax.random.uniform(where)
    return (jnp.arange(k) / k + u + jax.random.randint(which, (), 0, k) / k) % 1


def worst_for_hommel(key, k):
    """One block of equal small p-values: with probability proportional to 1/j, j of them lie below j·t/K."""
    block, place, order = jax.random.split(key, 3)
    t = ALPHA / sum(1 / j for j in range(1, k + 1))
    sizes = jnp.arange(1, k + 1)
    chosen = jax.random.categorical(block, -jnp.log(sizes.astype(jnp.float32)))
    u, rest = jax.random.uniform(place, (2,))
    low = (chosen + u) * t / k
    high = t + rest * (1 - t)
    small = jnp.where(jax.random.uniform(order) < ALPHA, jnp.arange(k) <= chosen, False)
    return jax.random.permutation(block, jnp.where(small, low, high))


MERGES = {
    "bonferroni": merge.bonferroni,
    "hommel": merge.hommel,
    "ruger": merge.ruger,
    "maximum": merge.maximum,
    "twice_mean": merge.twice_mean,
    "geometric": merge.geometric,
    "harmonic": merge.harmonic,
}


def test_the_dependent_p_values_are_uniform():
    """The laws that the merges are tried on have uniform marginals, or trying them would mean nothing."""
    for draw in (independent_p, comonotone_p, spread_p, worst_for_hommel):
        p = runner.simulate(lambda key, draw=draw: draw(key, 4)[0], seed=4, repetitions=20_000)
        for t in (0.01, 0.05, 0.1, 0.3, 0.7):
            assert abs((p <= t).mean() - t) < 5 * (t * (1 - t) / 20_000) ** 0.5


@pytest.mark.guarantee(checks=28)
@pytest.mark.parametrize("draw", [independent_p, comonotone_p, spread_p, worst_for_hommel])
def test_merges_hold_under_any_dependence(draw, budget):
    def one(key):
        p = draw(key, 4)
        found = {name: kernel(p) <= ALPHA for name, kernel in MERGES.items()}
        # without their factors
        found["broken"] = {"min": jnp.min(p) <= ALPHA, "mean": p.mean() <= ALPHA, "simes": merge.simes(p) <= ALPHA}
        return jax.tree.map(lambda x: x.astype(jnp.float32), found)

    found = guarantees.simulate(one, seed=5)
    broken = found.pop("broken")
    for values in found.values():
        guarantees.assert_at_most(values, ALPHA, budget)
    worst = {spread_p: "min", independent_p: "min", worst_for_hommel: "simes"}.get(draw)
    if worst:
        guarantees.assert_exceeds(broken[worst], ALPHA, budget)


@pytest.mark.guarantee(checks=10)
@pytest.mark.slow("long")
def test_combinations_of_independent_p_values_are_exact(budget):
    kernels = {
        "fisher": lambda p: combine.fisher(p).p_value,
        "pearson": lambda p: combine.pearson(p).p_value,
        "stouffer": lambda p: combine.stouffer(p, weights=jnp.array([1.0, 2, 3, 0.5])).p_value,
        "tippett": lambda p: combine.tippett(p).p_value,
        "cauchy": lambda p: combine.cauchy(p, weights=jnp.array([1.0, 2, 3, 0.5])),
    }

    def one(key):
        return {name: kernel(independent_p(key, 4)) for name, kernel in kernels.items()}

    def dependent(key):
        return {name: kernel(comonotone_p(key, 4)) for name, kernel in kernels.items()}

    found, broken = guarantees.simulate(one, seed=6), guarantees.simulate(dependent, seed=7)
    for name, p in found.items():
        for t in (0.05, 0.2):
            guarantees.assert_equals(p <= t, t, budget)
        if name != "cauchy":  # of equal p-values it gives back the p-value
            guarantees.assert_differs(broken[name] <= 0.05, 0.05, budget)


@pytest.mark.guarantee(checks=0)
@pytest.mark.slow("long")
def test_the_cauchy_combination_of_correlated_p_values_is_caught(budget):
    def one(key):
        found = td4eval(*normal_panels(key, 10, 99, 1, 0), alpha=ALPHA, combine="average")
        return (found.p_values[0] <= ALPHA).astype(jnp.float32)

    must_be_caught(guarantees.simulate(one, seed=8), ALPHA, budget)
