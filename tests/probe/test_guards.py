"""What the guards have in common: several threads, checkpoints of any library, copies, settings of a training."""

import copy
import itertools
import pickle
import sys
import threading
import time

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from adapted_models import reference_logits, weights
from flax import serialization
from probed import small_probe, token_rows

from tdd.probe import stream
from tdd.probe.gradients import example_grad_norms, record_grad_norms
from tdd.probe.order import OrderGuard
from tdd.probe.stream import StreamGuard, StreamState

ROWS = np.stack(token_rows(6))
VALUES = np.arange(6.0)


def order_guard():
    return OrderGuard(alpha=0.1, memory=16)


def stream_guard():
    return StreamGuard(ROWS[:3], ngram=4, capacity=64)


GUARDS = {"order": (order_guard, VALUES), "stream": (stream_guard, ROWS)}


def at_once(*calls):
    """Every call in a thread of its own; they begin together and are interrupted often."""
    ready, interval = threading.Barrier(len(calls)), sys.getswitchinterval()

    def begin(call):
        ready.wait()
        call()

    threads = [threading.Thread(target=begin, args=(call,)) for call in calls]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)


def test_one_look_of_a_probe_that_several_threads_call():
    def slow(params, tokens):
        time.sleep(0.05)  # while it is traced
        return reference_logits(params, tokens)

    probe = small_probe(slow, every=1)
    found, params = [], weights()
    at_once(*[lambda: found.append(probe(0, params))] * 4)
    assert len(probe.history) == int(probe.state.look) == 1
    assert sum(record is not None for record in found) == 1


def test_no_batch_of_several_threads_is_lost():
    order, watch = order_guard(), stream_guard()
    for guard, batch in ((order, VALUES), (watch, ROWS)):
        guard(0, batch)  # compiles
        at_once(*[lambda guard=guard, batch=batch: [guard(0, batch) for _ in range(10)]] * 4)
    assert sorted(record.num_examples for record in order.history) == [6 * n for n in range(1, 42)]
    assert {text.times for text in watch.seen()} == {41}


def through_orbax(state, place):
    with ocp.StandardCheckpointer() as orbax:
        orbax.save(place / "state", state)
        orbax.wait_until_finished()
        return orbax.restore(place / "state")


def through_flax(state, place):
    return serialization.msgpack_restore(serialization.msgpack_serialize(serialization.to_state_dict(state)))


@pytest.mark.parametrize("through", [through_orbax, through_flax])
@pytest.mark.parametrize("calls", [0, 2])
@pytest.mark.parametrize("kind", GUARDS)
def test_a_state_of_arrays_and_numbers_goes_through_a_checkpoint(kind, calls, through, tmp_path):
    make, batch = GUARDS[kind]
    guard, again = make(), make()
    for step in range(calls):
        guard(step, batch)
    again.load_state_dict(through(guard.state_dict(), tmp_path))
    jax.tree.map(np.testing.assert_array_equal, again.state_dict(), guard.state_dict())
    assert again(7, batch) == guard(7, batch)


def earlier_state(guard):
    """As earlier versions saved it."""
    state = jax.device_get(guard._state)
    if isinstance(guard, StreamGuard):
        return {"sha256": guard.sha256, "last_step": guard._last_step, "state": state}
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))]
    options = {"alpha": guard.alpha, "against": guard.against, "memory": guard.memory}
    history = [dict(vars(record)) for record in guard.history]
    return {"options": options, "history": history, "state": leaves, "generator": "threefry2x32"}


@pytest.mark.parametrize("made_plain", [False, True])
@pytest.mark.parametrize("kind", GUARDS)
def test_a_state_of_an_earlier_version_is_read(kind, made_plain):
    make, batch = GUARDS[kind]
    guard, again = make(), make()
    saved = earlier_state(guard)
    again.load_state_dict(saved)
    guard(3, batch)
    saved = earlier_state(guard)
    again.load_state_dict(serialization.to_state_dict(saved) if made_plain else saved)
    assert again(3, batch) == guard(3, batch)
    if kind == "stream":
        assert isinstance(guard._state, StreamState)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda guard: pickle.loads(pickle.dumps(guard))])
@pytest.mark.parametrize("kind", GUARDS)
def test_a_copy_goes_on_by_itself(kind, copied):
    make, batch = GUARDS[kind]
    guard = make()
    guard(0, batch)
    other = copied(guard)
    assert other._lock is not guard._lock
    assert other(1, batch) == guard(1, batch)
    assert len(other.history) == len(guard.history) == 2


@pytest.mark.parametrize("kind", GUARDS)
def test_a_copy_beside_another_thread_is_whole(kind):
    """A state whose memory the next look takes over, and a history that grows."""
    make, batch = GUARDS[kind]
    guard = make()
    guard(0, batch)
    done = threading.Event()

    def look():
        for step in itertools.takewhile(lambda _: not done.is_set(), itertools.count(1)):
            guard(step, batch)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        lengths = [0]
        while len(lengths) < 30 or lengths[-1] < 30:
            other = copy.deepcopy(guard)
            lengths.append(len(other.history))
            assert other(lengths[-1], batch).step == lengths[-1]
    finally:
        done.set()
        thread.join()
    assert lengths == sorted(lengths)


def test_a_guard_that_is_alike_compiles_nothing():
    stream_guard()(0, ROWS)
    before = stream._advance._cache_size()
    stream_guard()(0, ROWS)
    assert stream._advance._cache_size() == before


def test_settings_of_a_training_do_not_stop_the_guards(strict_training):
    order, watch, given = order_guard(), stream_guard(), np.array([0.5, np.nan, 1.0])
    assert order(0, given).num_examples == 2
    jax.jit(order.observe)(order.init(), jax.device_put(np.arange(3, dtype=np.float32)))
    assert watch(0, ROWS).new == ("1", "2", "3")
    matches = jax.jit(watch.evaluate)(jax.device_put(ROWS.astype(np.int32)))
    jax.jit(watch.observe)(watch.init(), jax.device_put(np.int32(0)), matches)
    assert len(watch.seen()) == 3
    for guard, again in ((order, order_guard()), (watch, stream_guard())):
        again.load_state_dict(guard.state_dict())


def test_settings_of_a_training_do_not_stop_gradient_norms(strict_training):
    w, x = jax.device_put((np.ones(3, np.float32), np.eye(3, dtype=np.float32)))
    norms = example_grad_norms(lambda w, x: (w * x).sum() / 2, w, x, microbatch=2)
    tx = optax.chain(record_grad_norms(), optax.identity())
    state = jax.jit(tx.init)(w)  # a program that returns the state
    _, state = jax.jit(lambda g, s, n: tx.update(g, s, grad_norms=n))(w, state, norms)
    np.testing.assert_array_equal(jax.device_get(optax.tree.get(state, "grad_norm_quantiles")), 0.5)


def test_a_step_that_looks_later_returns_numbers_alone():
    """`observe` in a program under `jax_debug_nans` before any look, and after one that misses a score."""
    probe = small_probe(every=1, num_steps=4)
    result = probe.evaluate(weights())
    result = jax.tree.map(lambda leaf: leaf, result)
    missing = copy.copy(result)
    object.__setattr__(missing, "suspect_scores", result.suspect_scores.at[0].set(np.inf))
    step = jax.jit(lambda state, result, due: jax.lax.cond(due, lambda: probe.observe(state, result)[0], lambda: state))
    state = probe.init()
    with jax.debug_nans(True):
        for given, due in ((result, False), (missing, True), (result, True)):
            state = step(state, given, due)
    baseline = np.asarray(state.baseline)
    np.testing.assert_array_equal(baseline[:20], result.suspect_scores)
    plain, earlier = small_probe(every=1, num_steps=4), probe.init()
    earlier = earlier._replace(baseline=np.full_like(baseline, np.nan))  # as earlier versions began
    for given in (missing, result):
        earlier = plain.observe(earlier, given)[0]
    jax.tree.map(np.testing.assert_array_equal, earlier, state)
