"""False alarms of the guards of a training run, at 10^5 repetitions, each beside a broken twin."""

import guarantees
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import evalues
from tdd.kernels.trajectories import spending
from tdd.probe.evidence import ProbeResult, SetEvidence
from tdd.probe.order import OrderGuard
from tdd.probe.shards import ShardEvidence, shard_labels
from tdd.procedures.bounds import fdp_bounds
from tdd.procedures.fdp_template import fdp_template
from tdd.validate.arrays import key_of_seed

LENGTH, BATCH, ALPHA = 48, 12, 0.2


def normal(key):
    return jax.random.normal(key, (LENGTH,))


def integers(key):
    """Lengths of few kinds, a mixture that differs from stream to stream."""
    mixture, own = jax.random.split(key)
    return jnp.floor(jnp.exp(jax.random.normal(mixture)) * jax.random.uniform(own, (LENGTH,)) * 3)


def falling_losses(key):
    """Losses of a shuffled stream while the model learns: not exchangeable, but so within each batch."""
    return jax.random.normal(key, (LENGTH,)) - 3.0 * (jnp.arange(LENGTH) // BATCH)


def sorted_within_batches(key):
    """Examples of like length side by side, batch after batch."""
    return jnp.sort(jax.random.normal(key, (LENGTH // BATCH, BATCH)), axis=1).reshape(-1)


def ever_alarms(law, **options):
    """[repetitions] 1 where the alarm went off at some example."""
    guard = OrderGuard(alpha=ALPHA, memory=16, **options)

    def one(key):
        data, own = jax.random.split(key)
        state, _ = jax.lax.scan(guard.observe, guard.init(own), law(data).reshape(-1, BATCH))
        return (state.crossed_at >= 0).astype(jnp.float32)

    return guarantees.simulate(one, seed=0)


@pytest.mark.guarantee(checks=2 + 1)
@pytest.mark.parametrize("law", [normal, integers])
@pytest.mark.slow("long")
def test_the_order_guard_stays_silent_on_shuffled_streams(law, budget):
    guarantees.assert_at_most(ever_alarms(law), ALPHA, budget)
    if law is normal:
        guarantees.assert_exceeds(ever_alarms(sorted_within_batches), ALPHA, budget)


@pytest.mark.guarantee(checks=2)
@pytest.mark.slow("long")
def test_losses_are_compared_within_batches(budget):
    guarantees.assert_at_most(ever_alarms(falling_losses, against="batch"), ALPHA, budget)
    guarantees.assert_exceeds(ever_alarms(falling_losses), ALPHA, budget)


SHARDS, ORDERS, LOOKS, DRAWS = 3, 3, 4, 39


def orders_of_shards(key):
    """[L, r, k + 1] scores: shards of unlike level, spread and drift, dependent looks; orders exchangeable."""
    scale, level, common, own = jax.random.split(key, 4)
    spread = jnp.exp(jax.random.normal(scale, (SHARDS, 1)))
    drift = jnp.cumsum(jax.random.normal(common, (LOOKS, SHARDS, 1)), axis=0)
    paths = jnp.cumsum(jax.random.normal(own, (LOOKS, SHARDS, ORDERS)), axis=0)
    return 5 * jax.random.normal(level, (SHARDS, 1)) + spread * (drift + jnp.round(2 * paths) / 2)


def of_shards(scores):
    """What a look at these scores [r, k + 1] returns."""
    empty = jnp.zeros(0)
    fields = dict.fromkeys(ProbeResult.__dataclass_fields__, empty)
    return ProbeResult(**{**fields, "suspect_scores": scores[:, 0], "reference_scores": scores[:, 1:].reshape(-1)})


@pytest.mark.guarantee(checks=2 * 2 + 1)
@pytest.mark.parametrize("from_first", [True, False])
@pytest.mark.slow("long")
def test_the_order_of_a_benchmark_raises_no_alarm_by_itself(from_first, budget):
    """Relabelled orders within shards; broken: the best of all looks, each at the whole level."""
    rule = ShardEvidence(SHARDS, SHARDS * ORDERS, DRAWS, ALPHA, LOOKS, from_first, "combined", num_shards=SHARDS)

    def one(key):
        data, draw = jax.random.split(key)
        chosen = jax.random.randint(draw, (DRAWS, SHARDS), 0, ORDERS)  # the relabellings are part of the law
        chosen = jnp.concatenate([jnp.zeros((1, SHARDS), jnp.int32), chosen])
        places = jnp.arange(SHARDS * ORDERS)
        shard = jnp.where(places < SHARDS, places, (places - SHARDS) // (ORDERS - 1))
        number = jnp.where(places < SHARDS, 0, 1 + (places - SHARDS) % (ORDERS - 1))
        labels = chosen[:, shard] == number
        _, evidence = jax.lax.scan(
            lambda state, scores: rule.observe(labels, state, of_shards(scores)), rule.init(), orders_of_shards(data)
        )
        return {"rule": jnp.min(evidence.anytime_p_value), "every look": jnp.min(evidence.p_value)}

    found = guarantees.simulate(one, seed=0)
    for level in (ALPHA, 0.5):
        guarantees.assert_at_most((found["rule"] <= level * (1 + 1e-6)), level, budget)
    if from_first:
        guarantees.assert_exceeds(found["every look"] <= ALPHA, ALPHA, budget)


@pytest.mark.guarantee(checks=1)
@pytest.mark.slow("long")
def test_items_flagged_at_the_best_look(budget):
    """Read at the look that flags most, a third of the suspects leaked; broken: e-values of looks as if each had all of
    the level."""
    m, n, looks = 9, 39, 20
    rule = SetEvidence(m, m + n, 9, ALPHA, looks, False, "combined")
    labels = jnp.ones((10, m + n), bool)  # what the set's test says is not asked

    def one(key):
        scores = jax.random.normal(key, (looks, m + n)).at[:, : m // 3].add(-3.0)

        def look(state, now):
            fields = dict.fromkeys(ProbeResult.__dataclass_fields__, jnp.zeros(0))
            result = ProbeResult(**{**fields, "suspect_scores": now[:m], "reference_scores": now[m:]})
            state, _ = rule.observe(labels, state, result)
            return state, (rule.flagged(state).reject, rule.item_e_values(result))

        _, (flagged, e_values) = jax.lax.scan(look, rule.init(), scores)
        greedy = jax.vmap(lambda e: evalues.e_bh(e, ALPHA).reject)(jnp.cumsum(e_values, axis=0))

        def worst(chosen):
            return jnp.max(jnp.sum(chosen[:, m // 3 :], axis=1) / jnp.maximum(jnp.sum(chosen, axis=1), 1))

        return {"rule": worst(flagged), "greedy": worst(greedy)}

    found = guarantees.simulate(one, seed=0)
    guarantees.assert_at_most(found["rule"], ALPHA * (1 - (m // 3) / m), budget)
    guarantees.assert_exceeds(found["greedy"], ALPHA, budget)


def test_the_relabellings_of_a_watch_are_those_of_the_simulation():
    labels = shard_labels(SHARDS, ORDERS - 1, 2_000, seed=0)
    places = jnp.arange(SHARDS * ORDERS)
    shard = jnp.where(places < SHARDS, places, (places - SHARDS) // (ORDERS - 1))
    for one in range(SHARDS):
        assert (labels[:, shard == one].sum(axis=1) == 1).all()


@pytest.mark.guarantee(checks=1)
@pytest.mark.slow("long")
def test_the_bounds_of_a_leak_hold_at_all_looks_together(budget):
    """No item leaked: "at least one is" must be said at no look; broken: the whole level at each."""
    items, references = 6, 9
    shares = [float(spending(t, LOOKS) - spending(t - 1, LOOKS)) for t in range(1, LOOKS + 1)]
    key = jax.random.key(0)
    templates = [
        [fdp_template(references, items, key=key, delta=ALPHA * share, num_draws=999) for share in weights]
        for weights in (shares, [1.0] * LOOKS)
    ]

    def one(key):
        scores = jax.random.normal(key, (LOOKS, items + references))
        wrong = [
            [
                fdp_bounds(row[items:], row[:items], null="nonmember", template=template).min_true > 0
                for row, template in zip(scores, kind)
            ]
            for kind in templates
        ]
        return {
            "shared": jnp.any(jnp.stack(wrong[0])).astype(jnp.float32),
            "whole": jnp.any(jnp.stack(wrong[1])).astype(jnp.float32),
        }

    found = guarantees.simulate(one, seed=0)
    guarantees.assert_at_most(found["shared"], ALPHA, budget)
    guarantees.assert_exceeds(found["whole"], ALPHA, budget)


@pytest.mark.slow("long")
def test_what_the_draws_of_one_look_miss_those_of_the_next_do_not():
    """2,560 references, 64 items, 20 looks as far apart as can be, none leaked: each look has its own draws. The twin
    has those of the first at all of them, and these happen to be too narrow."""
    references, items, looks, delta, rng = 2_560, 64, 20, 0.05 / 20, np.random.default_rng(0)

    def failures(key, repetitions):
        """Share of data in which more than the bound of some rank's nulls reach it."""
        template = fdp_template(references, items, key=key, delta=delta, num_draws=1_600)
        rank = np.asarray(template.rank)[np.asarray(template.rank) <= references]
        bound = np.asarray(template.bound)[np.searchsorted(np.asarray(template.num_nulls), items)][: len(rank)]
        shape = np.diff(rank, prepend=0, append=references + 1).astype(float)
        wrong = 0
        for _ in range(repetitions // 20_000):
            between = rng.standard_gamma(shape, (20_000, len(shape)))
            counts = rng.multinomial(items, between / between.sum(axis=1, keepdims=True))
            wrong += int((np.cumsum(counts[:, :-1], axis=1) > bound).any(axis=1).sum())
        return wrong / repetitions

    key = key_of_seed(0)
    own = np.array([failures(jax.random.fold_in(key, look), 20_000) for look in range(1, looks + 1)])
    same = failures(key, 200_000)
    error = 5 * np.sqrt((own * (1 - own) / 20_000).sum())
    assert 1 - np.prod(1 - own) + error < 0.05
    assert 1 - (1 - same + 5 * np.sqrt(same / 200_000)) ** looks > 0.05
