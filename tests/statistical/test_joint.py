"""Joint selections for several models: what JMCS and JECS promise, each beside a broken twin that must be caught."""

from fractions import Fraction
from functools import partial

import guarantees
import jax
import jax.numpy as jnp
import pytest

from tdd.kernels import conformal, stepup
from tdd.procedures.jecs import RULES, jecs, jmcs
from tdd.study import runner
from tdd.study.baselines import joint_metrics
from tdd.study.claims.joint import antithetic_pair, one_model_each


def integer_scores(key, *, num_calibration, contaminated, pure):
    """Tie-heavy scores; contaminated items, first, are members of one of two models in turn."""
    shape = one_model_each(key, num_calibration=num_calibration, contaminated=contaminated, pure=pure)
    own, other, clean = jax.random.split(key, 3)
    size = shape.scores.shape
    scores = jnp.where(
        shape.extra["member"], jax.random.randint(other, size, 0, 4), jax.random.randint(clean, size, 2, 6)
    )
    calibration = jax.random.randint(own, shape.calibration.shape, 0, 4)
    return shape._replace(calibration=calibration.astype(jnp.float32), scores=scores.astype(jnp.float32))


def gcp_of(draw, *selects, batch=2_000, most=guarantees.LONG):
    """GCP of each rule on the same draws."""

    def one(key):
        sample = draw(key)
        return [joint_metrics(select(*sample[:2]), sample.target).gcp for select in selects]

    return guarantees.simulate(one, seed=0, batch=batch, most=most)


def assert_held_and_twin_caught(draw, right, twin, bound, level, **options):
    held, broken = gcp_of(draw, right, twin, **options)
    guarantees.assert_at_most(held, bound, level)
    guarantees.assert_exceeds(broken, bound, level)


def by_rule(rule, alpha, **options):
    return lambda calibration, scores: jmcs(calibration, scores, alpha=alpha, rule=rule, **options).selected


def largest_rank(calibration, scores):
    return jax.vmap(partial(conformal.rank, null="member"))(calibration, scores).rank.max(axis=0)


# --- broken twins -----------------------------------------------------------------------------------------------------


def over_n(alpha):
    """p = rank/n: valid, not exact."""

    def select(calibration, scores):
        n = calibration.shape[1]
        return stepup.bh_ranks(largest_rank(calibration, scores), n - 1, alpha, max_rank=n + 1).reject

    return select


def ties_in_favour(alpha):
    """#{calibration > score} + 1."""

    def select(calibration, scores):
        n = calibration.shape[1]
        above = n + 1 - jax.vmap(partial(conformal.rank, null="nonmember"))(calibration, scores).rank
        return stepup.bh_ranks(1 + above.max(axis=0), n, alpha, max_rank=n + 1).reject

    return select


def smallest_p_value(alpha):
    """The union null: an item passes where one model finds it clean."""

    def select(calibration, scores):
        n = calibration.shape[1]
        rank = jax.vmap(partial(conformal.rank, null="member"))(calibration, scores).rank.min(axis=0)
        return stepup.bh_ranks(rank, n, alpha, max_rank=n + 1).reject

    return select


def storey_twin(alpha, plus_one=1, strict=False, cap=False, eta=0.5):
    """Storey on the largest p-values with one flaw."""

    def select(calibration, scores):
        n, m = calibration.shape[1], scores.shape[1]
        rank, tail = largest_rank(calibration, scores), max(1, int(eta * n))
        above = plus_one + jnp.sum(rank > n - tail + 1 if strict else rank >= n - tail + 1)
        rho = jnp.minimum(above / tail, m / (n + 1)) if cap else above / tail
        return stepup.bh_ranks(rank, n, alpha, max_rank=n + 1, scale=((rho.astype(jnp.float32),), (1,))).reject

    return select


# --- JMCS -------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee(checks=1)
@pytest.mark.slow("long")
def test_one_model_is_bh_and_exact(budget):
    """K = 1, alpha (n+1)/m an integer, no ties: GCR = alpha·m0/m, two-sided."""
    draw = partial(one_model_each, num_calibration=99, contaminated=6, pure=4, num_models=1)
    exact, off = gcp_of(draw, by_rule("bh", 0.1), over_n(0.1))
    guarantees.assert_equals(exact, 0.06, budget)
    guarantees.assert_differs(off, 0.06, budget)


@pytest.mark.guarantee(checks=5)
@pytest.mark.parametrize(
    ("n", "contaminated", "pure", "models"),
    [(39, 12, 8, 2), (19, 20, 0, 2), (39, 9, 6, 3), (19, 1, 0, 2), (1, 2, 0, 2)],
)
@pytest.mark.slow("long")
def test_jmcs_with_independent_models(n, contaminated, pure, models, budget):
    """Every contaminated item is a member of one model only; sizes from many items down to m = 1 and n = 1."""
    draw = partial(one_model_each, num_calibration=n, contaminated=contaminated, pure=pure, num_models=models)
    alpha = 0.5 if n == 1 else 0.1
    bound = alpha * contaminated / (contaminated + pure)
    assert_held_and_twin_caught(draw, by_rule("bh", alpha), smallest_p_value(alpha), bound, budget)


@pytest.mark.guarantee(checks=3)
@pytest.mark.slow("long")
def test_jmcs_with_ties(budget):
    draw = partial(integer_scores, num_calibration=19, contaminated=9, pure=6)
    *held, broken = gcp_of(draw, *(by_rule(rule, 0.2) for rule in RULES), ties_in_favour(0.2))
    for gcp, bound in zip(held, (0.12, 0.2, 0.12), strict=True):
        guarantees.assert_at_most(gcp, bound, budget)
        guarantees.assert_exceeds(broken, bound, budget)


@pytest.mark.guarantee(checks=6)
@pytest.mark.parametrize(
    ("n", "contaminated", "pure", "models", "eta"),
    [
        (39, 10, 10, 2, 0.5),
        (19, 2, 18, 2, 0.5),
        (19, 15, 0, 3, 0.5),
        (19, 10, 10, 1, 0.9),
        (19, 1, 0, 2, 0.1),
        (1, 2, 1, 2, 0.5),
    ],
)
@pytest.mark.slow("long")
def test_storey_on_the_largest_p_values(n, contaminated, pure, models, eta, budget):
    draw = partial(one_model_each, num_calibration=n, contaminated=contaminated, pure=pure, num_models=models)
    alpha = 0.5 if n == 1 else 0.2
    (gcp,) = gcp_of(draw, by_rule("storey", alpha, eta=eta))
    guarantees.assert_at_most(gcp, alpha, budget)


@pytest.mark.guarantee(checks=0)
@pytest.mark.parametrize(
    ("flaw", "n", "contaminated", "pure"),
    [({"plus_one": 0}, 39, 2, 2), ({"strict": True, "eta": 0.06}, 19, 80, 80), ({"cap": True}, 199, 5, 0)],
    ids=["no plus one", "strict", "capped"],
)
@pytest.mark.slow("long")
def test_broken_storey_on_the_largest_p_values_is_caught(flaw, n, contaminated, pure, budget):
    draw = partial(one_model_each, num_calibration=n, contaminated=contaminated, pure=pure)
    (gcp,) = gcp_of(draw, storey_twin(0.2, **flaw), batch=1_000)
    guarantees.assert_exceeds(gcp, 0.2, budget)


@pytest.mark.slow("long")
def test_the_frame_of_the_broken_twins_is_sound():
    """Without a flaw it selects what JMCS selects."""
    draw = partial(one_model_each, num_calibration=39, contaminated=20, pure=20)

    def one(key):
        calibration, scores = draw(key)[:2]
        framed, right = (rule(calibration, scores) for rule in (storey_twin(0.2), by_rule("storey", 0.2)))
        return (framed == right).all(), right.any()

    same, some = runner.simulate(one, seed=0, repetitions=200)
    assert same.all()
    assert some.any()


@pytest.mark.guarantee(checks=1)
@pytest.mark.slow("long")
def test_bh_keeps_the_harmonic_bound_under_dependence(budget):
    """alpha (1 + 1/2) for two items, as they may depend as they like."""
    draw, alpha = partial(antithetic_pair, num_calibration=2, tests=2), Fraction(1, 3)
    assert_held_and_twin_caught(draw, by_rule("bh", alpha), smallest_p_value(alpha), 0.5, budget)


# --- JECS: asymptotic, so these are observations about one setting each ----------------------------------------------


def by_jecs(alpha):
    return lambda calibration, scores: jecs(calibration, scores, alpha=alpha).selected


def members_of_all(key, *, num_calibration, contaminated, pure):
    """Contaminated items are members of all three models: P is the largest of three uniforms, strictly convex."""
    sample = one_model_each(
        key, num_calibration=num_calibration, contaminated=contaminated, pure=pure, num_models=3, signal=0.0
    )
    return sample._replace(scores=sample.scores + 4.0 * sample.target[None])


@pytest.mark.guarantee(checks=1)
@pytest.mark.slow("long")
def test_jecs_where_the_null_is_strictly_convex(budget):
    """The line lies well above the null distribution there, and the error below alpha at moderate sizes."""
    draw = partial(members_of_all, num_calibration=59, contaminated=30, pure=30)
    tight = partial(one_model_each, num_calibration=59, contaminated=30, pure=30)
    (held,), (broken,) = (gcp_of(law, by_jecs(0.1)) for law in (draw, tight))
    guarantees.assert_at_most(held, 0.1, budget)
    guarantees.assert_exceeds(broken, 0.1, budget)


@pytest.mark.slow("long")
def test_the_excess_of_jecs_shrinks_with_the_sizes():
    """At the edge of the assumptions (a uniform null) the error comes down to alpha slowly."""
    mean, error = [], []
    for size, repetitions, batch in ((200, 4_000, 500), (20_000, 60, 5)):
        draw = partial(one_model_each, num_calibration=size, contaminated=size // 2, pure=size // 2)
        (draws,) = gcp_of(draw, by_jecs(0.1), batch=batch, most=repetitions)
        gcp = draws.first(repetitions)
        mean.append(gcp.mean())
        error.append(gcp.std(ddof=1) / len(gcp) ** 0.5)
    assert mean[0] - 4 * error[0] > 0.12
    assert mean[1] + 4 * error[1] < mean[0] - 4 * error[0]
    assert mean[1] < 0.125
