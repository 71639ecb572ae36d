"""The guard on the order of the stream: equal to ranks and bets written down in NumPy, whole or in batches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd import InputError
from tdd.kernels import online_conformal
from tdd.probe import order
from tdd.probe.order import OrderGuard

MEMORY = 16


def slow(values, key, alpha, memory=MEMORY, restart=()):
    """(p-values, log wealth, example of the crossing); `restart`: examples before which everything held is dropped."""
    held, accounts, log_wealth, largest, crossed = [], np.full(3, 1 / 3), 0.0, 0.0, -1
    p_values, wealths = [], []
    for t, value in enumerate(values):
        if t in restart:
            held = []
        key = online_conformal.key_after(key, value)
        uniform, leaves = map(float, online_conformal.draw(key, memory))
        lower, equal = sum(x < value for x in held), sum(x == value for x in held)
        p = (lower + uniform * (1 + equal)) / (len(held) + 1)
        if len(held) < memory:
            held.append(value)
        elif leaves < memory:
            held[int(leaves)] = value
        mixed = accounts * 0.99 + 0.01 / 3
        parts = mixed * (1 + np.array([-1, 0, 1]) * (p - 0.5))
        accounts = parts / parts.sum()
        log_wealth += np.log(parts.sum())
        largest = max(largest, log_wealth)
        if crossed < 0 and np.exp(-largest) <= alpha:
            crossed = t
        p_values.append(p)
        wealths.append(log_wealth)
    return np.array(p_values), np.array(wealths), crossed


def stream(kind, seed=0, length=60):
    rng = np.random.default_rng(seed)
    return {
        "shuffled": rng.normal(size=length),
        "ties": rng.integers(0, 3, length).astype(float),
        "sorted": np.sort(rng.normal(size=length)),
        "blocks": np.repeat([0.0, 1, 0], length // 3),
    }[kind]


@functools.cache
def guard_against(against):
    guard = OrderGuard(alpha=0.1, against=against, memory=MEMORY, seed=3)
    guard.fresh = guard.state_dict()
    return guard


def anew(guard):
    """The same guard, and its compiled programs, before the first batch."""
    guard.load_state_dict(guard.fresh)
    return guard


@pytest.mark.parametrize("kind", ["shuffled", "ties", "sorted", "blocks"])
@pytest.mark.parametrize("against", ["stream", "batch"])
def test_as_ranks_and_bets_in_numpy(kind, against):
    values, guard = stream(kind), anew(guard_against(against))
    restart = range(0, 60, 12) if against == "batch" else ()
    p, wealth, crossed = slow(values, jax.random.key(3), 0.1, restart=restart)
    state, got = guard.init(), []
    for batch in values.reshape(5, 12):
        state, evidence = guard.observe(state, jnp.asarray(batch))
        got.append(evidence)
    np.testing.assert_allclose(np.concatenate([e.p_value for e in got]), p, rtol=1e-5)
    np.testing.assert_allclose(np.concatenate([e.log_martingale for e in got]), wealth, rtol=1e-4, atol=1e-5)
    assert int(state.crossed_at) == crossed
    for step, batch in enumerate(values.reshape(5, 12)):
        record = guard(step, batch)
        assert record.crossed_at == (crossed if crossed < 12 * (step + 1) else -1)
        assert record.alarm == (record.crossed_at >= 0)
    assert record.num_examples == 60
    assert guard.first_alarm == (None if crossed < 0 else crossed // 12)


def test_streams_that_are_not_shuffled_are_noticed_and_a_shuffled_one_is_not():
    alarms, guard = {}, OrderGuard(alpha=0.01, memory=256)
    guard.fresh = guard.state_dict()
    for kind in ("shuffled", "ties", "sorted", "blocks"):
        anew(guard)
        for step, batch in enumerate(stream(kind, length=600).reshape(10, 60)):
            guard(step, batch)
        alarms[kind] = guard.first_alarm
    assert alarms == {"shuffled": None, "ties": None, "sorted": 0, "blocks": 3}


def test_the_size_of_batches_does_not_matter():
    values = stream("ties", seed=5)
    wealth = []
    for size in (1, 7, 60):
        guard = OrderGuard(memory=MEMORY)
        state = guard.init()
        for start in range(0, 60, size):
            state, _ = guard.observe(state, values[start : start + size])
        wealth.append(state.wealth)
    for other in wealth[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), wealth[0], other)


def test_what_is_masked_or_nan_takes_no_place():
    values = stream("shuffled", seed=2)
    guard = OrderGuard(memory=MEMORY)
    plain, evidence = guard.observe(guard.init(), values)
    gaps = np.insert(values, [3, 20, 20], [np.nan, 7.0, 8.0])
    mask = np.insert(np.ones(60, bool), [20, 20], [False, False])
    mask = np.insert(mask, 3, True)
    gapped, with_gaps = guard.observe(guard.init(), gaps, mask)
    assert int(gapped.num_examples) == 60
    real = mask & ~np.isnan(gaps)
    assert np.isnan(np.asarray(with_gaps.p_value)[~real]).all()
    np.testing.assert_array_equal(np.asarray(with_gaps.p_value)[real], evidence.p_value)
    np.testing.assert_array_equal(gapped.wealth.log_martingale, plain.wealth.log_martingale)


def test_a_restarted_run_goes_on():
    values = stream("blocks").reshape(6, 10)
    whole, again = (OrderGuard(alpha=0.2, memory=MEMORY) for _ in range(2))
    for step, batch in enumerate(values):
        if step == 3:
            saved = whole.state_dict()
        whole(step, batch)
    with jax.default_prng_impl("rbg"):  # the state says what its key is of
        again.load_state_dict(saved)
    for step in range(3, 6):
        again(step, values[step])
    assert again.history == whole.history
    with pytest.raises(InputError, match="memory is 16, this guard's is 4"):
        OrderGuard(alpha=0.2, memory=4).load_state_dict(saved)


def test_one_trace_for_many_batches():
    """Of one guard, and of a second one that is alike."""
    before = order._observe._cache_size()
    for guard in (OrderGuard(memory=MEMORY, alpha=0.07) for _ in range(2)):
        for step in range(10):
            guard(step, stream("ties", seed=step))
    assert order._observe._cache_size() == before + 1
    assert guard.history[-1].scalars()["tdd/order/alarm"] in (0, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0}, "alpha"),
        ({"alpha": 1.5}, "alpha"),
        ({"against": "past"}, "against"),
        ({"memory": 0}, "memory must be a whole number"),
    ],
)
def test_options(options, message):
    with pytest.raises(InputError, match=message):
        OrderGuard(**options)


@pytest.mark.parametrize("key", [0, jax.random.split(jax.random.key(0), 3)])
def test_what_is_no_key(key):
    with pytest.raises(InputError, match="key must be a PRNG key"):
        OrderGuard().init(key)


@pytest.fixture(scope="module")
def at_step_four():
    guard = OrderGuard()
    guard(4, [1, 2, 3])
    return guard


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ((3, [1.0]), "step=3 comes after step 4"),
        ((True, [1.0]), "step=True must be"),
        ((4, [[1.0]]), r"shape \(1, 1\)"),
        ((4, []), r"shape \(0,\)"),
        ((4, ["a"]), "one number an example"),
    ],
)
def test_what_is_no_batch(at_step_four, call, message):
    with pytest.raises(InputError, match=message):
        at_step_four(*call)
