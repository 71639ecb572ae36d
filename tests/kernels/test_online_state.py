"""Online procedures one step at a time: the array calls to the bit, fixed shapes, the end of the horizon."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import online

ARRAY = {
    "lond": online.lond,
    "lond/any": lambda p, a, **k: online.lond(p, a, dependence="any", **k),
    "e_lond": online.e_lond,
    "lord_plus_plus": online.lord_plus_plus,
    "saffron": online.saffron,
}
COMPILED = {name: jax.jit(call) for name, call in ARRAY.items()}
DECIDE = jax.jit(online.decide)
every_method = pytest.mark.parametrize("method", online.METHODS)


def stream(method, seed, size=60):
    rng = np.random.default_rng(seed)
    p = rng.random(size) ** rng.choice([1, 9], size)
    p[rng.random(size) < 0.1] = np.nan
    return (1 / p if method == "e_lond" else p).astype(np.float32), rng.random(size) < 0.9


def one_by_one(state, values, mask):
    found = []
    for value, real in zip(values, mask):
        state, decision = DECIDE(state, value, real)
        found.append(decision)
    return state, [np.array(field) for field in zip(*found)]


@every_method
@pytest.mark.parametrize(("seed", "horizon"), [(0, 60), (1, 333)])
def test_the_array_call_to_the_bit(method, seed, horizon):
    """Whatever the horizon: with 333 the sums of the levels have another length."""
    values, mask = stream(method, seed)
    expected = COMPILED[method](jnp.asarray(values), jnp.float32(0.2), mask=mask)
    state, (reject, level) = one_by_one(online.start(method, 0.2, horizon=horizon), values, mask)
    np.testing.assert_array_equal(reject, expected.reject)
    np.testing.assert_array_equal(level, expected.levels)
    assert int(state.num_rejected) == int(expected.num_rejected) > 3
    assert int(state.num_tests) == int(expected.num_tests)


@every_method
def test_in_a_compiled_loop_and_from_saved_arrays(method):
    """Half of the stream under `lax.cond`, the state through NumPy, the other half by `vmap` of one."""
    values, mask = stream(method, 3)
    start = online.start(method, 0.2, horizon=60)
    expected = one_by_one(start, values, mask)[1][0]

    def one(state, item):
        value, real = item
        return jax.lax.cond(real, lambda: online.decide(state, value), lambda: online.decide(state, value, False))

    loop = jax.jit(lambda state, values, mask: jax.lax.scan(one, state, (values, mask)))
    state, first = loop(start, values[:30], mask[:30])
    saved = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
    assert [leaf.shape for leaf in saved] == [np.shape(leaf) for leaf in jax.tree.leaves(start)]
    back = jax.tree.unflatten(jax.tree.structure(start), saved)
    second = jax.vmap(lambda v, m: loop(back, v, m)[1].reject)(values[None, 30:], mask[None, 30:])[0]
    np.testing.assert_array_equal(np.concatenate([first.reject, second]), expected)


@every_method
def test_beyond_the_horizon_there_is_no_level(method):
    """Nothing is rejected there, be the evidence infinite; masked hypotheses take no place before."""
    best = jnp.inf if method == "e_lond" else 0.0
    values, mask = np.full(9, best, np.float32), np.array([1, 1, 0, 1, 1, 1, 1, 1, 0], bool)
    values[3] = np.nan
    state, (reject, level) = one_by_one(online.start(method, 0.2, horizon=4), values, mask)
    assert reject.tolist() == [True, True, False, False, True, True, False, False, False]
    assert level[6:8].tolist() == [0, 0]
    assert np.isnan(level[[2, 3, 8]]).all()
    assert (int(state.num_tests), int(state.num_rejected)) == (4, 4)


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0))
def decide_rows(state, row):
    return jax.lax.scan(online.decide, state, row)[1]


def overspent(state, p, lambda_=None):
    """Largest of sum of alpha_i over alpha max(R, 1) on the way; of SAFFRON over the p > lambda, over 1 - lambda."""
    reject, level = map(np.asarray, decide_rows(state, p))
    spent = level if lambda_ is None else np.where(p > lambda_, level / np.float32(1 - lambda_), 0)
    return float((np.cumsum(spent, axis=1) / np.maximum(np.cumsum(reject, axis=1), 1)).max())


@pytest.mark.parametrize(("method", "lambda_"), [("lord_plus_plus", None), ("saffron", 0.5), ("saffron", 0.2)])
def test_never_more_is_spent_than_was_earned(method, lambda_):
    """The estimate of the false discovery proportion stays at alpha or below whatever the p-values: the whole proof."""
    rng, size = np.random.default_rng(0), 40
    p = rng.random((2_000, size)) ** np.exp(rng.normal(0, 2, (2_000, 1)))
    p[:500] = np.where(rng.random((500, size)) < rng.random((500, 1)), 0, 1)
    state = online.start(method, 0.1, horizon=size, initial_wealth=0.9, lambda_=lambda_ or 0.5)
    share = online.gamma(size, "power" if lambda_ else "log").sum()
    levels, earned = (np.asarray(field) / np.float32(share) for field in (state.levels, state.earned))
    state = dataclasses.replace(state, levels=levels, earned=earned)
    found = overspent(state, p.astype(np.float32), lambda_)
    assert 0.095 < found <= 0.1 * (1 + 1e-5)
    earned = np.array(state.earned)
    earned[0] = earned[1]
    generous = dataclasses.replace(state, earned=earned)
    assert overspent(generous, p.astype(np.float32), lambda_) > 0.12  # the first discovery earns all of alpha


def test_one_program_for_a_stream():
    chex.clear_trace_counter()
    compiled = jax.jit(chex.assert_max_traces(lambda state, value: online.decide(state, value), n=1))
    state = online.start("saffron", 0.1, horizon=50)
    for value in np.random.default_rng(0).random(40).astype(np.float32):
        state, _ = compiled(state, value)
    assert int(state.num_tests) == 40


@every_method
def test_double_precision_and_traced_levels(method):
    values, mask = stream(method, 4)
    with jax.enable_x64(True):
        wide = jax.jit(lambda a: online.start(method, a, horizon=60))(jnp.float64(0.2))
        assert {leaf.dtype for leaf in jax.tree.leaves(wide)} == {np.dtype(np.int32), np.dtype(np.float64)}
        reject = one_by_one(wide, values.astype(float), mask)[1][0]
    np.testing.assert_array_equal(reject, COMPILED[method](jnp.asarray(values), 0.2, mask=mask).reject)
    begin = jax.jit(lambda a: online.start(method, a, horizon=3))
    for alpha in (0.0, 1.0, np.nan):
        state = begin(jnp.float32(alpha))
        _, (reject, level) = one_by_one(state, np.zeros(2, np.float32), [True, True])
        assert not reject.any()
        assert np.isnan(level).all()


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("bh", 0.1), {"horizon": 3}, "method must be one of"),
        (("lond", 0.1), {"horizon": 0}, "horizon must be at least 1, got 0"),
        (("lond", 1.0), {"horizon": 3}, "alpha must lie"),
        (("saffron", 0.1), {"horizon": 3, "lambda_": 0.0}, "lambda_ must lie"),
        (("saffron", 0.1), {"horizon": 3, "initial_wealth": 1.0}, "initial_wealth must lie"),
    ],
)
def test_wrong_calls(arguments, options, words):
    with pytest.raises(ValueError, match=words):
        online.start(*arguments, **options)


@pytest.mark.parametrize(("value", "same_as"), [(0.5, 0.4), (np.nextafter(np.float32(0.5), 1), 0.6)])
def test_a_p_value_equal_to_lambda_is_a_candidate(value, same_as):
    """SAFFRON's clock stands still at p <= lambda."""
    state = online.start("saffron", 0.1, horizon=9)
    after = [DECIDE(state, np.float32(p), True)[0] for p in (value, same_as)]
    jax.tree.map(np.testing.assert_array_equal, *after)
    other = DECIDE(state, np.float32(1 - same_as), True)[0]
    assert any((np.asarray(a) != np.asarray(b)).any() for a, b in zip(*map(jax.tree.leaves, (after[0], other))))
