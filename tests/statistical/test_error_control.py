"""What the procedures promise, at 10^5 repetitions, each beside a broken twin that must be caught."""

import guarantees
import jax
import jax.numpy as jnp
import pytest

import tdd
from tdd.kernels import conformal, lattice, stepup
from tdd.study.claims.estimates import integer_scores, normal_scores, selected, storey_with


def fdp_of(select, scores, n, nulls, alternatives, seed=0):
    """FDP of `select(calibration, scores, key) -> mask` over the repetitions."""
    null = jnp.arange(nulls + alternatives) < nulls

    def one(key):
        data, own = jax.random.split(key)
        return guarantees.false_discovery_proportion(select(*scores(data, n, nulls, alternatives), own), null)

    return guarantees.simulate(one, seed=seed)


def bh(calibration, scores, key, alpha=0.1):
    del key
    ranked = conformal.rank(calibration, scores, null="nonmember")
    return stepup.bh_ranks(ranked.rank, ranked.num_calibration, alpha, max_rank=calibration.shape[0] + 1).reject


def bh_without_the_one(calibration, scores, key, alpha=0.1):
    """p = #{T_i <= T_j}/n."""
    rank = conformal.rank(calibration, scores, null="nonmember").rank - 1
    n = calibration.shape[0]
    return stepup.bh(rank / n, alpha).reject


def bh_over_n(calibration, scores, key, alpha=0.1):
    """p = (1 + #{T_i <= T_j})/n: valid, but not exact."""
    rank = conformal.rank(calibration, scores, null="nonmember").rank
    return stepup.bh_ranks(rank, calibration.shape[0] - 1, alpha, max_rank=calibration.shape[0] + 1).reject


def bh_strict(calibration, scores, key, alpha=0.1):
    """p_(k) < k·alpha/m."""
    rank = conformal.rank(calibration, scores, null="nonmember").rank
    n, m = calibration.shape[0], scores.shape[0]
    k = jnp.arange(1, m + 1)
    passing = jnp.sort(rank) * m * 10 < k * (n + 1)
    count = jnp.max(jnp.where(passing, k, 0))
    return rank * m * 10 < count * (n + 1)


def bh_wrong_side(calibration, scores, key, alpha=0.1):
    """Ties broken in favour of selection: #{T_i < T_j} + 1."""
    rank = conformal.rank(-calibration, -scores, null="member")
    less = calibration.shape[0] + 1 - conformal.rank(calibration, scores, null="member").rank
    return stepup.bh_ranks(less + 1, rank.num_calibration, alpha, max_rank=calibration.shape[0] + 1).reject


# --- p-values ---------------------------------------------------------------------------------------------------------


BOTH_SCORES = normal_scores, integer_scores


def p_values_of_a_null(n, *rules):
    """[scores][nulls][rules] of `rule(calibration, test, null, key) -> p [1]`, of continuous scores and of integers."""

    def one(key):
        data, own = jax.random.split(key)
        samples = [scores(data, n, 1, 0) for scores in BOTH_SCORES]

        def of(calibration, test):
            sides = {"nonmember": (calibration, test), "member": (-calibration, -test)}
            return [[rule(*sides[null], null, own)[0] for rule in rules] for null in sorted(conformal.NULLS)]

        found = jax.vmap(of)(*map(jnp.stack, zip(*samples, strict=True)))
        return [jax.tree.map(lambda p, i=i: p[i], found) for i in range(len(BOTH_SCORES))]

    return guarantees.simulate(one, seed=1)


def ranked_p(tie_break):
    return lambda calibration, test, null, key: conformal.p_values(
        conformal.rank(calibration, test, null=null, tie_break=tie_break, key=key)
    )


def p_without_the_one(calibration, test, null, key):
    """Of few calibration items: the p-value is often 0."""
    return (conformal.rank(calibration[:3], test, null=null).rank - 1) / calibration[:3].shape[0]


def randomized_p(calibration, test, null, key):
    return conformal.randomized_p_values(calibration, test, null=null, key=key)


def wrong_direction(calibration, test, null, key):
    other = "member" if null == "nonmember" else "nonmember"
    return 1 - conformal.rank(calibration, test, null=other).rank / (calibration.shape[0] + 1)


@pytest.mark.guarantee(checks=2 * 2 * 3)
@pytest.mark.parametrize("n", [1, 19])
def test_conservative_p_values_are_super_uniform(n, budget):
    for of_scores in p_values_of_a_null(n, ranked_p("conservative"), p_without_the_one):
        for p, broken in of_scores:
            for t in (0.05, 0.2, 0.5):
                guarantees.assert_at_most(p <= t, t, budget)
            guarantees.assert_exceeds(broken <= 0, 0, budget)


@pytest.mark.guarantee(checks=2 * 3 * 2)
def test_randomized_p_values_are_uniform(budget):
    found = p_values_of_a_null(19, randomized_p, wrong_direction)
    for _, (p, _) in found:
        for t in (0.013, 0.2, 0.77):
            guarantees.assert_equals(p <= t, t, budget)
    guarantees.assert_differs(found[1][1][1] <= 0.2, 0.2, budget)


@pytest.mark.guarantee(checks=2 * 3 * 2)
def test_a_shared_random_order_is_exact_on_the_lattice(budget):
    for p, broken in p_values_of_a_null(19, ranked_p("shared"), ranked_p("conservative"))[1]:
        for t in (0.05, 0.2, 0.75):
            guarantees.assert_equals(p <= t + 1e-6, t, budget)
        guarantees.assert_differs(broken <= 0.2 + 1e-6, 0.2, budget)  # exact only without ties


# --- BH ---------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee(checks=3)
@pytest.mark.parametrize(("n", "nulls", "alternatives"), [(199, 20, 0), (199, 12, 8), (99, 1, 9)])
@pytest.mark.slow("long")
def test_bh_fdr_is_exactly_alpha_m0_over_m_on_the_lattice(n, nulls, alternatives, budget):
    """alpha (n+1)/m is an integer and scores are continuous, so FDR = alpha·m0/m, two-sided."""
    target = 0.1 * nulls / (nulls + alternatives)
    fdp = fdp_of(bh, normal_scores, n, nulls, alternatives)
    guarantees.assert_equals(fdp, target, budget)
    for broken in (bh_over_n, bh_strict):
        guarantees.assert_differs(fdp_of(broken, normal_scores, n, nulls, alternatives), target, budget)


@pytest.mark.guarantee(checks=2)
@pytest.mark.slow("long")
def test_bh_between_lattice_points(budget):
    """alpha (n+1)/m = 2.5: FDR lies in [m0·floor(2.5)/(n+1), alpha·m0/m]."""
    fdp = fdp_of(bh, normal_scores, 49, 2, 0)
    guarantees.assert_at_most(fdp, 0.1, budget)
    guarantees.assert_at_most(1 - fdp, 1 - 2 * 2 / 50, budget)
    guarantees.assert_exceeds(fdp_of(bh_without_the_one, normal_scores, 49, 2, 0), 0.1, budget)


@pytest.mark.guarantee(checks=1)
@pytest.mark.slow("long")
def test_bh_with_ties(budget):
    guarantees.assert_at_most(fdp_of(bh, integer_scores, 39, 12, 8), 0.06, budget)
    guarantees.assert_exceeds(fdp_of(bh_wrong_side, integer_scores, 39, 12, 8), 0.06, budget)


# --- PTDI -------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee(checks=6)
@pytest.mark.parametrize(
    ("scores", "n", "nulls", "alternatives"),
    [
        (normal_scores, 39, 200, 200),
        (normal_scores, 199, 100, 100),
        (integer_scores, 39, 40, 40),
        (normal_scores, 199, 5, 0),
        (normal_scores, 1, 3, 1),
        (normal_scores, 19, 1, 0),
    ],
)
@pytest.mark.slow("long")
def test_ptdi_storey(scores, n, nulls, alternatives, budget):
    guarantees.assert_at_most(fdp_of(selected("storey"), scores, n, nulls, alternatives), 0.1, budget)


def test_the_frame_of_the_broken_estimates_is_sound():
    """With the right rule the frame selects what PTDI selects: the twins differ by their flaw alone."""

    @jax.jit
    def agree(key):
        calibration, scores = normal_scores(key, 39, 40, 40)
        framed, direct = (rule(calibration, scores, key) for rule in (storey_with(), selected("storey")))
        return (framed == direct).all(), direct.any()

    same, some = zip(*(agree(jax.random.key(seed)) for seed in range(20)), strict=True)
    assert all(same)
    assert any(some)


@pytest.mark.guarantee(checks=2)
@pytest.mark.parametrize(("nulls", "alternatives"), [(20, 0), (12, 8)])
@pytest.mark.slow("long")
def test_ptdi_none_is_exact(nulls, alternatives, budget):
    target = 0.1 * nulls / (nulls + alternatives)
    fdp = fdp_of(selected("none"), normal_scores, 199, nulls, alternatives)
    guarantees.assert_equals(fdp, target, budget)
    off = fdp_of(selected("storey"), normal_scores, 199, nulls, alternatives)
    guarantees.assert_differs(off, target, budget)


@pytest.mark.guarantee(checks=3)
@pytest.mark.parametrize(("n", "nulls", "alternatives"), [(39, 200, 200), (199, 100, 100), (19, 6, 2)])
@pytest.mark.slow("long")
def test_ptdi_subtraction(n, nulls, alternatives, budget):
    m = nulls + alternatives
    bound = 0.1 * (1 + 1 / m) * (1 + 1 / n)
    fdp = fdp_of(selected("subtraction"), normal_scores, n, nulls, alternatives)
    guarantees.assert_at_most(fdp, bound, budget)


@pytest.mark.guarantee(checks=5)
@pytest.mark.parametrize(
    ("known", "n", "nulls", "members", "away", "alpha", "eta"),
    [
        (99, 99, 10, 0, 2.0, 0.2, 0.05),
        (199, 199, 5, 0, 2.0, 0.2, 0.5),
        (20, 99, 10, 0, 0.3, 0.2, 0.05),
        (39, 39, 200, 200, 4.0, 0.1, 0.05),
        (199, 199, 20, 180, 1.0, 0.1, 0.05),
    ],
)
@pytest.mark.slow("long")
def test_ptdi_moment(known, n, nulls, members, away, alpha, eta, budget):
    """Asymptotic, but at its level with few candidates too."""
    null = jnp.arange(nulls + members) < nulls

    def one(key):
        own, shared = jax.random.split(key)
        sample = normal_scores(shared, n, nulls, members, shift=away)
        options = {"proportion": "moment", "members": jax.random.normal(own, (known,)) - away}
        chosen = tdd.ptdi(*sample, alpha=alpha, eta=eta, **options).selected
        return guarantees.false_discovery_proportion(chosen, null)

    guarantees.assert_at_most(guarantees.simulate(one, seed=0), alpha, budget)


# --- p-values that are not conformal ---------------------------------------------------------------------------------


def independent_p(key, nulls, alternatives):
    p = jax.random.uniform(key, (nulls + alternatives,))
    return p.at[nulls:].power(8.0)


def comonotone_p(key, nulls, alternatives):
    """Every null p-value is U: positively dependent to the extreme."""
    return jnp.full(nulls + alternatives, jax.random.uniform(key))


def negative_p(key, nulls, alternatives):
    """Pairs U, 1 - U."""
    u = jax.random.uniform(key, (nulls // 2,))
    return jnp.concatenate([u, 1 - u])


def fdp_of_p(selects, draw, nulls, alternatives):
    """FDP of each `select(p) -> mask` on the same p-values."""
    null = jnp.arange(nulls + alternatives) < nulls

    def one(key):
        p = draw(key, nulls, alternatives)
        return [guarantees.false_discovery_proportion(select(p), null) for select in selects]

    return guarantees.simulate(one, seed=5)


@pytest.mark.guarantee(checks=5)
def test_independent_p_values(budget):
    bounds = {stepup.bh: 0.12, stepup.storey_bh: 0.2, stepup.by: 0.12, stepup.holm: 0.2, stepup.hochberg: 0.2}
    selects = [lambda p, procedure=procedure: procedure(p, 0.2).reject for procedure in bounds]
    *found, broken = fdp_of_p([*selects, lambda p: p <= 0.2], independent_p, 6, 4)
    for fdp, bound in zip(found, bounds.values(), strict=True):
        guarantees.assert_at_most(fdp, bound, budget)
        guarantees.assert_exceeds(broken, bound, budget)


@pytest.mark.guarantee(checks=2)
@pytest.mark.parametrize("draw", [comonotone_p, negative_p, independent_p])
def test_family_wise_error_under_any_dependence(draw, budget):
    """All hypotheses are null, so FDP is the indicator of any rejection."""
    selects = [lambda p: stepup.holm(p, 0.1).reject, lambda p: stepup.bonferroni(p, 0.1).reject]
    *found, broken = fdp_of_p([*selects, lambda p: p <= 0.13], draw, 4, 0)
    for fdp in found:
        guarantees.assert_at_most(fdp, 0.1, budget)
    guarantees.assert_exceeds(broken, 0.1, budget)


def test_the_budget_is_shared(budget):
    assert 0 < budget.level <= guarantees.SUITE_FALSE_ALARM


def test_exact_levels_reach_the_simulations():
    """The engine decides exactly: a level known as a fraction stays one through vmap and map."""
    assert lattice.is_exact(lattice.as_level(0.1))
