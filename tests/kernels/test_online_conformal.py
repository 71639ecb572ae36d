"""Online conformal p-values: the definition, the step beside the scan, exact laws by listing every order."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_martingale as ref
import rounding

from tdd.kernels import conformal, online_conformal

KEY = jax.random.key(3)
compiled = jax.jit(online_conformal.p_values, static_argnames=("null", "window"))
step = jax.jit(online_conformal.advance)


def scores(seed=0, size=40):
    x = np.random.default_rng(seed).integers(0, 12, size).astype(np.float32)
    x[[3, 17]] = np.nan
    return x


@functools.partial(jax.jit, static_argnames="window")
def drawn(x, window, mask=True):
    """The draws of the keys that fold in one score after another."""

    def draw(key, item):
        key = online_conformal.key_after(key, *item)
        return key, online_conformal.draw(key, window)

    return jax.lax.scan(draw, KEY, (x, jnp.broadcast_to(mask, x.shape)))[1]


@pytest.mark.parametrize("null", conformal.NULLS)
@pytest.mark.parametrize("window", [None, 1, 6, 100])
def test_definition(null, window):
    x = scores()
    uniforms, leaves = map(np.asarray, drawn(x, 40 if window is None else window))
    expected = ref.online_p_values(x, uniforms, null, window, leaves)
    rounding.assert_close(compiled(x, null=null, key=KEY, window=window), expected, roundings=3)
    assert expected[0] == uniforms[0]


def test_the_step_gives_the_scan_to_the_bit():
    x, mask = scores(1), np.random.default_rng(2).random(40) < 0.8
    expected = compiled(x, null="member", key=KEY, window=6, mask=mask)
    state = online_conformal.start(6, null="member")
    for t, (value, real, *draw) in enumerate(zip(x, mask, *drawn(x, 6, mask), strict=True)):
        state, p = step(state, value, *draw, real)
        np.testing.assert_array_equal(p, expected[t])
    assert int(state.num_held) == 6


def test_what_stands_at_t_depends_on_the_past_alone():
    x = scores(1)
    whole, changed = compiled(x, null="nonmember", key=KEY, window=6), x.copy()
    changed[21:] = -1
    np.testing.assert_array_equal(compiled(changed, null="nonmember", key=KEY, window=6)[:21], whole[:21])


def test_the_key_folds_in_what_has_arrived():
    key_of = jax.jit(lambda value, mask=True: jax.random.key_data(online_conformal.key_after(KEY, value, mask)))
    start = np.asarray(jax.random.key_data(KEY))
    for absent in (key_of(jnp.nan), key_of(1.0, False)):
        np.testing.assert_array_equal(absent, start)
    np.testing.assert_array_equal(key_of(0.0), key_of(-0.0))
    found = {np.asarray(key_of(value)).tobytes() for value in (0.0, 1.0, -1.0, 1.5)} | {start.tobytes()}
    assert len(found) == 5
    legacy = online_conformal.key_after(jax.random.key_data(KEY), 1.5)
    np.testing.assert_array_equal(legacy, key_of(1.5))


@pytest.mark.slow("bits")
def test_masked_scores_take_no_place():
    x, u = scores(2), 1 - np.random.default_rng(0).random(40, np.float32)
    mask = np.random.default_rng(2).random(40) < 0.7
    kept = np.flatnonzero(mask & ~np.isnan(x))
    found = compiled(x, null="nonmember", uniforms=u, mask=mask)
    np.testing.assert_array_equal(found[kept], compiled(x[kept], null="nonmember", uniforms=u[kept]))
    assert np.isnan(np.delete(found, kept)).all()


def test_integers_and_no_score():
    assert compiled(jnp.array([2, 1]), null="nonmember", uniforms=jnp.ones(2)).tolist() == [1, 0.5]
    assert compiled(jnp.zeros(0), null="nonmember", key=KEY).shape == (0,)


def law_of_ranks(rule, size, window, chances):
    """Joint law of the ranks over all orders of distinct scores; `chances[t]` places are drawn from at t."""
    orders, law = list(itertools.permutations(range(size))), {}
    choices = list(itertools.product(*map(range, chances)))
    for order, leaves in itertools.product(orders, choices):
        p = rule(np.array(order, float), leaves, window)
        ranks = tuple(np.rint(p * (np.minimum(np.arange(size), window) + 1)).astype(int))
        law[ranks] = law.get(ranks, 0) + 1 / len(orders) / len(choices)
    return law


def each_with_the_same_chance(x, leaves, window):
    return ref.online_p_values(x, np.ones(len(x)), "nonmember", window, leaves)


def the_last_in_a_row(x, leaves, window):
    return np.array(
        [ref.online_p_values(x[max(0, t - window) : t + 1], np.ones(9), "nonmember")[-1] for t in range(len(x))]
    )


@pytest.mark.parametrize(("size", "window"), [(4, 1), (4, 2), (5, 3)])
def test_with_a_window_ranks_are_independent_and_uniform(size, window):
    """Every combination of ranks has the same probability, exactly."""
    law = law_of_ranks(each_with_the_same_chance, size, window, [1] * window + [window + 1] * (size - window))
    combinations = np.prod(np.minimum(np.arange(size), window) + 1)
    assert len(law) == combinations
    np.testing.assert_allclose(list(law.values()), 1 / combinations, rtol=1e-12)


@pytest.mark.parametrize(
    ("rule", "chances"),
    [(the_last_in_a_row, [1, 1, 1, 1]), (each_with_the_same_chance, [1, 2, 3, 1])],
    ids=["the last in a row", "a uniform sample of all so far"],
)
def test_other_windows_are_not(rule, chances):
    """Of one score. The sample: arrival t stays with chance 1/t, where it must be 1/2."""
    law = law_of_ranks(rule, 4, 1, chances)
    assert max(abs(value - 1 / 8) for value in law.values()) > 0.01


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"null": "both", "key": KEY}, "null must be"),
        ({"null": "member", "key": KEY, "window": 0}, "window must be at least 1, got 0"),
        ({"null": "member"}, "key is needed"),
        ({"null": "member", "uniforms": jnp.ones(9), "window": 4}, "key is needed"),
    ],
)
def test_wrong_calls(options, words):
    with pytest.raises(ValueError, match=words):
        online_conformal.p_values(jnp.zeros(9), **options)
