"""What knockoffs and e-values promise, at 10^5 repetitions, each beside a broken twin that must be caught."""

import guarantees
import jax
import jax.numpy as jnp
import pytest

from tdd.kernels import conformal, evalues, knockoff, stepup
from tdd.procedures.evalues import conformal_e_values, e_bh
from tdd.procedures.knockoff_symmetry import knockoff_symmetry
from tdd.procedures.ktd import ktd

# --- data: an item's copies are exchangeable, members' originals are shifted down -------------------------------------


def normal_copies(key, n, members, k, shift=3.0):
    copies = jax.random.normal(key, (n, k + 1))
    return copies[:, 0].at[:members].add(-shift), copies[:, 1:]


def skewed_copies(key, n, members, k):
    copies = -jax.random.exponential(key, (n, k + 1))
    return copies[:, 0].at[:members].add(-3.0), copies[:, 1:]


def integer_copies(key, n, members, k):
    """Tie-heavy: four values, one common shift within an item."""
    own, shared = jax.random.split(key)
    copies = jax.random.randint(own, (n, k + 1), 0, 4) + jax.random.randint(shared, (n, 1), 0, 3)
    copies = copies.astype(jnp.float32)
    return copies[:, 0].at[:members].add(-3.0), copies[:, 1:]


def bad_copies(key, n, members, k):
    """Knockoffs that look less member-like than any original: the assumption of all rules but one is false."""
    original, knockoffs = normal_copies(key, n, members, k)
    return original, knockoffs + 1.5


def fdp_of(draw, n, members, k, *selects):
    """FDP of each `select(original, knockoffs, key) -> mask` on the same items; members stand first."""
    null = jnp.arange(n) >= members

    def one(key):
        data, own = jax.random.split(key)
        items = draw(data, n, members, k)
        return [guarantees.false_discovery_proportion(select(*items, own), null) for select in selects]

    return guarantees.simulate(one, seed=0)


def by(rule, alpha, **options):
    return lambda original, knockoffs, key: ktd(original, knockoffs, alpha=alpha, rule=rule, **options).selected


def caught(fdp, bound, level):
    guarantees.assert_exceeds(fdp, bound, level)


# --- the rules --------------------------------------------------------------------------------------------------------


def without_the_one(losses):
    """Offset 0: the smallest ratio may be 0 after a single win."""

    def select(original, knockoffs, key):
        statistic = knockoff.multi_statistics(original, knockoffs).statistic
        return knockoff.select(statistic, 0.2, offset=0, num_knockoffs=losses).reject

    return select


@pytest.mark.guarantee(checks=3)
@pytest.mark.parametrize(
    ("draw", "n", "members"), [(skewed_copies, 30, 0), (normal_copies, 30, 15), (integer_copies, 30, 12)]
)
def test_one_knockoff(draw, n, members, budget):
    twins = [without_the_one(1)] if members == 0 else []
    fdp, *broken = fdp_of(draw, n, members, 1, by("ktd", 0.2), *twins)
    guarantees.assert_at_most(fdp, 0.2, budget)
    for twin in broken:
        caught(twin, 0.2, budget)


def ties_to_the_original(original, knockoffs, key):
    """The original wins ties, and the gap is to the mean of the others: what a published package does, nearly."""
    others = jnp.sort(knockoffs, axis=1)
    gap = jnp.abs(jnp.mean(others, axis=1) - jnp.minimum(original, others[:, 0]))
    return knockoff.select(jnp.where(original <= others[:, 0], gap, -gap), 0.2, num_knockoffs=knockoffs.shape[1]).reject


@pytest.mark.guarantee(checks=3)
@pytest.mark.parametrize(
    ("draw", "n", "members", "k", "twin"),
    [
        (skewed_copies, 60, 0, 5, by("ktd", 0.2)),  # the mean of the knockoffs
        (integer_copies, 30, 0, 5, ties_to_the_original),
        (normal_copies, 24, 8, 3, None),
    ],
    ids=["skewed", "integers", "normal"],
)
def test_several_knockoffs(draw, n, members, k, twin, budget):
    fdp, *broken = fdp_of(draw, n, members, k, by("multi", 0.2), *([twin] if twin else []))
    guarantees.assert_at_most(fdp, 0.2, budget)
    for each in broken:
        caught(each, 0.2, budget)


@pytest.mark.guarantee(checks=1)
def test_a_single_item_wins_as_often_as_one_ticket(budget):
    """n = 1 and k = 20 at alpha = .2: selected exactly where the original is the smallest of 21."""
    below_the_median = lambda original, knockoffs, key: original < jnp.median(knockoffs)  # noqa: E731
    fdp, broken = fdp_of(skewed_copies, 1, 0, 20, by("multi", 0.2), below_the_median)
    guarantees.assert_equals(fdp, 1 / 21, budget)
    guarantees.assert_differs(broken, 1 / 21, budget)


def derandomized_without_the_one(original, knockoffs, key):
    """e = p 1{W >= T} / #{W <= -T}, T with offset 0: a single win with no loss beyond it counts without limit."""

    def one(column):
        w = column - original
        cut = knockoff.threshold(w, 0.1, offset=0)
        return jnp.where(w >= cut, w.size / jnp.sum(w <= -cut), 0)

    return evalues.e_bh(jax.vmap(one, 1)(knockoffs).mean(axis=0), 0.2).reject


def closed_on_a_sum_of_all(original, knockoffs, key):
    """Closed e-BH needs e-values of the non-members that sum to at most their number, not to that of all items."""
    w = knockoffs - original[:, None]
    return evalues.closed_e_bh(knockoff.derandomized_e_values(w, 0.1), 0.2).reject


def distant_copies(key, n, members, k):
    return normal_copies(key, n, members, k, shift=8.0)


@pytest.mark.guarantee(checks=4)
@pytest.mark.parametrize(
    ("draw", "n", "members", "k", "twin"),
    [
        (skewed_copies, 30, 15, 3, None),
        (integer_copies, 30, 18, 3, None),
        (normal_copies, 30, 0, 1, derandomized_without_the_one),
        (distant_copies, 40, 28, 15, closed_on_a_sum_of_all),
    ],
    ids=["skewed", "integers", "normal", "distant"],
)
def test_derandomized_knockoffs(draw, n, members, k, twin, budget):
    twins = [twin] if twin else []
    fdp, *broken = fdp_of(draw, n, members, k, by("derandomized", 0.2), *twins)
    guarantees.assert_at_most(fdp, 0.2, budget)
    for twin in broken:
        caught(twin, 0.2, budget)


def conformal_rule(draw, n, proportion, k=3):
    def select(original, knockoffs, key):
        own, copies = draw(key, n, 0, k)
        known = {}
        if proportion == "moment":
            known["members"], known["members_knockoffs"] = draw(jax.random.fold_in(key, 1), n, n, k)
        return ktd(
            original,
            knockoffs,
            alpha=0.2,
            rule="conformal",
            proportion=proportion,
            calibration=own,
            calibration_knockoffs=copies,
            **known,
        ).selected

    return select


@pytest.mark.guarantee(checks=4)
@pytest.mark.parametrize(
    ("draw", "n", "members", "size"),
    [(bad_copies, 30, 15, 19), (integer_copies, 12, 0, 19), (skewed_copies, 3, 0, 1), (bad_copies, 1, 0, 19)],
)
@pytest.mark.slow("long")
def test_known_non_members_mend_bad_knockoffs(draw, n, members, size, budget):
    right = conformal_rule(draw, size, "storey")
    guarantees.assert_at_most(fdp_of(draw, n, members, 3, right)[0], 0.2, budget)
    if draw is bad_copies and n > 1:
        caught(fdp_of(draw, n, members, 3, by("multi", 0.2))[0], 0.2, budget)
        caught(fdp_of(draw, n, 5, 1, by("derandomized", 0.2))[0], 0.2, budget)


@pytest.mark.guarantee(checks=1)
@pytest.mark.slow("long")
def test_the_conformal_rule_without_an_estimate_is_exact(budget):
    """alpha (N + 1)/n = 1 is an integer and W has no ties: FDR = alpha."""
    rules = (conformal_rule(draw, 49, "none") for draw in (bad_copies, normal_copies))  # paraphrased in another way
    fdp, other = fdp_of(bad_copies, 10, 0, 3, *rules)
    guarantees.assert_equals(fdp, 0.2, budget)
    guarantees.assert_differs(other, 0.2, budget)


@pytest.mark.guarantee(checks=2)
@pytest.mark.parametrize(("proportion", "n"), [("subtraction", 39), ("moment", 199)])
@pytest.mark.slow("long")
def test_the_conformal_rule_with_an_estimate_keeps_its_level(proportion, n, budget):
    """Subtraction within (1 + 1/m)(1 + 1/n) of the level; the moments, asymptotic, at a size where they hold it.

    The twin ranks the candidates' bad knockoffs among calibration items whose knockoffs are good.
    """
    bound = 0.2 * ((1 + 1 / 60) * (1 + 1 / n) if proportion == "subtraction" else 1)
    rules = (conformal_rule(draw, n, proportion) for draw in (bad_copies, normal_copies))
    right, other = fdp_of(bad_copies, 60, 30, 3, *rules)
    guarantees.assert_at_most(right, bound, budget)
    caught(other, bound, budget)


# --- the bound for every cut ------------------------------------------------------------------------------------------


def bound_fails(draws, n, members, delta=0.1):
    """[draws] whether any cut has more non-members than its bound c (1 + losses), or members are overcounted.

    Beside it whether a cut beats c losses, without the one, and 1 + losses, without the factor.
    """
    null = jnp.arange(n) >= members

    def of(original, knockoffs):
        w = knockoff.w_statistics(original, knockoffs)
        beyond = jnp.sum((w[None] >= w[:, None]) & null[None], axis=1)
        bound = knockoff.fdp_bound(w, delta)
        losses, factor = jnp.sum(w[None] <= -w[:, None], axis=1), jnp.log(1 / delta) / jnp.log(2 - delta)
        limits = bound.false_bound, jnp.floor(factor * losses), 1 + losses
        right, *broken = (jnp.any((w > 0) & (beyond > limit)) for limit in limits)
        return right | (members < bound.min_true), *broken

    def one(key):
        copies = [draw(key, n, members, 1) for draw in draws]
        found = jax.vmap(of)(*map(jnp.stack, zip(*copies, strict=True)))
        return [[fails[i].astype(jnp.float32) for fails in found] for i in range(len(draws))]

    return guarantees.simulate(one, seed=2)


@pytest.mark.guarantee(checks=2)
@pytest.mark.parametrize(
    ("draws", "n", "members"),
    [((skewed_copies, integer_copies), 40, 0), ((normal_copies, integer_copies), 40, 10), ((normal_copies,), 1, 0)],
)
def test_no_cut_beats_the_bound(draws, n, members, budget):
    for right, without_the_one, without_the_factor in bound_fails(draws, n, members):
        guarantees.assert_at_most(right, 0.1, budget)
        if members == 0:
            caught(without_the_one, 0.1, budget)
        if members == 0 and n > 1:
            caught(without_the_factor, 0.1, budget)


# --- symmetry ---------------------------------------------------------------------------------------------------------


def p_of(draw, n, k, *options):
    def one(key):
        copies = draw(key, n, 0, k)
        return [knockoff_symmetry(*copies, **given).p_value for given in options]

    return guarantees.simulate(one, seed=3)


@pytest.mark.guarantee(checks=10)
@pytest.mark.parametrize(
    ("draw", "k", "options"),
    [
        (normal_copies, 4, {"rule": "ktd"}),
        (integer_copies, 1, {"rule": "ktd", "test": "sign"}),
        (normal_copies, 1, {"rule": "ktd", "test": "tail", "alternative": "greater", "tail": 0.25}),
        (skewed_copies, 4, {"rule": "multi"}),
        (integer_copies, 3, {"rule": "multi", "test": "tail", "tail": 0.3}),
    ],
)
def test_symmetry_is_rarely_refuted_where_it_holds(draw, k, options, budget):
    twins = [{"rule": "ktd"}] if draw is skewed_copies else []  # exchangeable copies do not make their mean symmetric
    p, *broken = p_of(draw, 40, k, options, *twins)
    for level in (0.05, 0.2):
        guarantees.assert_at_most(p <= level, level, budget)
    for twin in broken:
        caught(twin <= 0.05, 0.05, budget)


# --- e-values ---------------------------------------------------------------------------------------------------------


def shared_e_values(key, nulls, others):
    """Null e-values 20·1{U <= 1/20} with one U for all: every mean is 1, the dependence is extreme."""
    low = jax.random.uniform(key) <= 0.05
    return jnp.concatenate([jnp.full(nulls, jnp.where(low, 20.0, 0.0)), jnp.full(others, 30.0)])


def independent_e_values(key, nulls, others):
    """1/(2 sqrt(U)) has mean 1 and a long tail."""
    return jnp.concatenate([0.5 / jnp.sqrt(1 - jax.random.uniform(key, (nulls,))), jnp.full(others, 30.0)])


@pytest.mark.guarantee(checks=4)
@pytest.mark.parametrize("draw", [shared_e_values, independent_e_values])
@pytest.mark.parametrize(("nulls", "others"), [(6, 4), (1, 0)])
def test_e_bh(draw, nulls, others, budget):
    null = jnp.arange(nulls + others) < nulls

    def fdp(key):
        e = draw(key, nulls, others)
        selected = e_bh(e, 0.2).reject, e >= jnp.max(e)  # the best is rejected, come what may
        return [guarantees.false_discovery_proportion(each, null) for each in selected]

    right, broken = guarantees.simulate(fdp, seed=4)
    guarantees.assert_at_most(right, 0.2 * nulls / (nulls + others), budget)
    if others == 0:
        caught(broken, 0.2, budget)


def mean_of_null_e_values(n, nulls, others, alpha, e_values, scores):
    def one(key):
        calibration, test = scores(key, n, nulls, others)
        return jnp.sum(e_values(calibration, test, alpha)[:nulls]) / nulls / (n + 1)

    return guarantees.simulate(one, seed=5)


def normal_scores(key, n, nulls, others):
    draw = jax.random.normal(key, (n + nulls + others,))
    return draw[:n], draw[n:].at[nulls:].add(-2.0)


def integer_scores(key, n, nulls, others):
    draw = jax.random.randint(key, (n + nulls + others,), 0, 5).astype(jnp.float32)
    return draw[:n], draw[n:].at[nulls:].add(-3.0)


def kernel_e_values(calibration, scores, alpha):
    return evalues.conformal_e_values(calibration, scores, alpha, null="nonmember")


def cut_among_test_scores(calibration, scores, alpha):
    """s* as the last *test* score that qualifies: no stopping time, so the mean is lost."""
    ranked = conformal.rank(calibration, scores, null="nonmember")
    n = calibration.shape[0]
    reject = stepup.bh_ranks(ranked.rank, n, alpha, max_rank=n + 1).reject
    return jnp.where(reject, (n + 1) / jnp.max(jnp.where(reject, ranked.rank, 1)), 0)


@pytest.mark.guarantee(checks=4)
@pytest.mark.parametrize(
    ("scores", "n", "nulls", "others", "alpha"),
    [
        (normal_scores, 39, 4, 0, 0.2),
        (integer_scores, 39, 6, 4, 0.3),
        (normal_scores, 1, 3, 0, 0.5),
        (normal_scores, 19, 1, 0, 0.1),
    ],
)
@pytest.mark.slow("long")
def test_the_mean_of_conformal_e_values(scores, n, nulls, others, alpha, budget):
    """At most 1; divided by n + 1, which no e-value exceeds."""
    mean = mean_of_null_e_values(n, nulls, others, alpha, kernel_e_values, scores)
    guarantees.assert_at_most(mean, 1 / (n + 1), budget)
    if (n, nulls) == (39, 4):
        broken = mean_of_null_e_values(n, nulls, others, alpha, cut_among_test_scores, scores)
        caught(broken, 1 / (n + 1), budget)


@pytest.mark.guarantee(checks=1)
@pytest.mark.slow("long")
def test_the_mean_of_conformal_e_values_is_one_on_the_lattice(budget):
    """alpha (n + 1)/m = 2 is an integer: nothing is lost."""
    mean = mean_of_null_e_values(39, 4, 0, 0.2, kernel_e_values, normal_scores)
    guarantees.assert_equals(mean, 1 / 40, budget)
    halved = mean_of_null_e_values(39, 4, 0, 0.2, lambda *given: 0.8 * kernel_e_values(*given), normal_scores)
    guarantees.assert_differs(halved, 1 / 40, budget)


@pytest.mark.guarantee(checks=1)
@pytest.mark.slow("long")
def test_averaged_conformal_e_values(budget):
    """Detectors that share most of their noise; e-BH on the average."""
    nulls, others, n, rows = 9, 3, 19, 3
    null = jnp.arange(nulls + others) < nulls

    def fdp(select):
        def one(key):
            common, own = jax.random.split(key)
            calibration, scores = normal_scores(common, n, nulls, others)
            noise = jax.random.normal(own, (rows, n + nulls + others))
            selected = select(calibration + noise[:, :n], scores + noise[:, n:])
            return guarantees.false_discovery_proportion(selected, null)

        return guarantees.simulate(one, seed=6)

    def right(calibration, scores):
        return e_bh(conformal_e_values(calibration, scores, alpha=0.1, null="nonmember"), 0.2).reject

    def every_one(calibration, scores):
        """Whatever any detector selects."""
        each = jax.vmap(lambda c, s: kernel_e_values(c, s, 0.5))(calibration, scores)
        return jnp.any(each > 0, axis=0)

    guarantees.assert_at_most(fdp(right), 0.2, budget)
    caught(fdp(every_one), 0.2, budget)
