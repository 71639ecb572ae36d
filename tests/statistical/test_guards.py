"""False alarms of the guards of a training run, at 10^5 repetitions, each beside a broken twin."""

import guarantees
import jax
import jax.numpy as jnp
import pytest

from tdd.probe.order import OrderGuard

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
def test_the_order_guard_stays_silent_on_shuffled_streams(law, false_alarm_level):
    guarantees.assert_at_most(ever_alarms(law), ALPHA, false_alarm_level)
    if law is normal:
        with pytest.raises(guarantees.GuaranteeViolated):
            guarantees.assert_at_most(ever_alarms(sorted_within_batches), ALPHA, false_alarm_level)


@pytest.mark.guarantee(checks=2)
def test_losses_are_compared_within_batches(false_alarm_level):
    guarantees.assert_at_most(ever_alarms(falling_losses, against="batch"), ALPHA, false_alarm_level)
    with pytest.raises(guarantees.GuaranteeViolated):
        guarantees.assert_at_most(ever_alarms(falling_losses), ALPHA, false_alarm_level)
