"""Checked streams: agreement with the kernels, precision, save and restore, traces, messages, guarantee records."""

import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_martingale as ref

import tdd
from tdd.kernels import martingale
from tdd.kernels import online as online_kernel
from tdd.procedures import online
from tdd.procedures.martingale import GUARANTEE_ROWS, GUARANTEES
from tdd.procedures.procedure import all_guarantees
from tdd.validate import InputError

KEY = jax.random.key(0)
P = np.random.default_rng(0).random(30) ** 2


# --- online conformal p-values ----------------------------------------------------------------------------------------


def test_scores_keep_their_order_in_double_precision():
    """Float64 scores that differ by less than a float32 can tell are no ties."""
    x = 1e6 + np.random.default_rng(0).permutation(30) * 1e-4
    found = tdd.online_conformal_p_values(x, null="nonmember", uniforms=np.ones(30))
    np.testing.assert_allclose(found, ref.online_p_values(x, np.ones(30), "nonmember"), rtol=1e-6)
    assert (np.unique(found * np.arange(1, 31)).size) > 15


@pytest.mark.slow("long")
def test_every_kind_of_scores_and_traces():
    x = np.array([3.0, 1.0, np.nan, 1.0, 2.0])
    call = lambda x: tdd.online_conformal_p_values(x, null="member", key=KEY, window=2)  # noqa: E731
    expected = call(x)
    assert np.isnan(expected[2])
    for other in (x.tolist(), x.astype(np.float32), jnp.asarray(x), [3, 1, None, 1, 2]):
        np.testing.assert_array_equal(call(other), expected)
    np.testing.assert_array_equal(jax.jit(call)(jnp.asarray(x)), expected)
    np.testing.assert_array_equal(jax.vmap(call)(jnp.asarray(x)[None])[0], expected)
    shorter = tdd.online_conformal_p_values(x[:4], null="member", key=KEY)
    np.testing.assert_array_equal(shorter[:2], expected[:2])


# --- martingales ------------------------------------------------------------------------------------------------------


def test_p_values_and_their_logarithms():
    for bet in ("mixture", "any_start", "simple_jumper"):
        found = tdd.conformal_martingale(P, bet=bet)
        for other in (
            tdd.conformal_martingale(np.log(P), bet=bet, log=True),
            tdd.conformal_martingale(jnp.asarray(P), bet=bet),
            tdd.conformal_martingale(P.tolist(), bet=bet),
            jax.jit(lambda p, bet=bet: tdd.conformal_martingale(p, bet=bet))(jnp.asarray(P)),
        ):
            np.testing.assert_allclose(other.log_martingale, found.log_martingale, rtol=1e-4, atol=1e-5)
        assert found.log_martingale.dtype == np.float32
    assert (
        tdd.conformal_martingale(P).log_martingale[-1]
        == tdd.conformal_martingale(P, bet="any_start").log_martingale[-1]
    )


def test_p_values_far_below_single_precision():
    tiny = np.array([0.5, 1e-300, 1e-300])
    found = tdd.conformal_martingale(tiny, bet="mixture")
    np.testing.assert_allclose(found.log_martingale, ref.log_mixture(np.log(tiny)), rtol=1e-5)
    assert tdd.shiryaev_roberts(tiny, 1e6).alarm.tolist() == [False, True, True]


def test_a_leak_is_found_from_scores():
    """Scores of texts in their order of arrival: from step 300 on they are lower."""
    x = np.random.default_rng(0).normal(size=500)
    clean = tdd.conformal_martingale(tdd.online_conformal_p_values(x, null="nonmember", key=KEY))
    x[300:] -= 2
    p = tdd.online_conformal_p_values(x, null="nonmember", key=KEY)
    assert clean.anytime_p_value[-1] > 0.05
    found = np.flatnonzero(np.asarray(tdd.conformal_martingale(p).anytime_p_value) <= 0.001)
    alarms = np.flatnonzero(np.asarray(tdd.shiryaev_roberts(p, 10_000).alarm))
    assert 300 < found[0] < 330
    assert 300 < alarms[0] < 315


# --- online tests -----------------------------------------------------------------------------------------------------

CALLS = {
    "lond": tdd.lond,
    "lond/any": lambda p, a: tdd.lond(p, a, dependence="any"),
    "e_lond": tdd.e_lond,
    "lord_plus_plus": tdd.lord_plus_plus,
    "saffron": tdd.saffron,
}


@pytest.mark.parametrize("method", online.METHODS)
def test_the_state_machine_is_the_call_and_survives_a_restart(method):
    values = P**4 if method != "e_lond" else 1 / P**4
    expected = CALLS[method](values.astype(np.float32), 0.1)
    test = tdd.online_test(method, 0.1, horizon=100)
    state, found = test.init(), []
    for t, value in enumerate(values):
        if t == 11:
            saved = pickle.dumps([np.asarray(leaf) for leaf in jax.tree.leaves(state)])
            state = jax.tree.unflatten(jax.tree.structure(test.init()), pickle.loads(saved))
        state, decision = test.step(state, value)
        found.append([bool(decision.reject), float(decision.level)])
    assert [one[0] for one in found] == expected.reject.tolist()
    np.testing.assert_array_equal(np.float32([one[1] for one in found]), expected.levels)
    assert 0 < int(state.num_rejected) < 30


def test_inside_a_compiled_loop_without_a_second_program():
    test = tdd.online_test("saffron", 0.1, horizon=50, lambda_=0.4, initial_wealth=0.3)
    expected = tdd.saffron(P**4, 0.1, lambda_=0.4, initial_wealth=0.3)
    state, found = jax.jit(lambda p: jax.lax.scan(test.step, test.init(), p))(jnp.asarray(P**4))
    np.testing.assert_array_equal(found.reject, expected.reject)
    before = online._decide._cache_size()
    for value in P:
        state, _ = test.step(state, value)
    assert online._decide._cache_size() <= before + 1
    assert test == tdd.online_test("saffron", 0.1, horizon=50, lambda_=0.4, initial_wealth=0.3)
    assert hash(test) == hash(dataclasses.replace(test))


def test_nan_and_masked_values_take_no_place():
    test = tdd.online_test("lond", 0.1, horizon=2)
    state = test.init()
    for value, mask in ((float("nan"), True), (0.0, False)):
        state, found = test.step(state, value, mask)
        assert not found.reject
        assert np.isnan(found.level)
    assert int(state.num_tests) == 0


# --- records and messages ---------------------------------------------------------------------------------------------


def test_guarantees_are_listed():
    rows = {(row.call, row.option): row.guarantee for row in all_guarantees()}
    for call, option, guarantee in (*GUARANTEE_ROWS, *online.GUARANTEE_ROWS):
        assert rows[call, option] == guarantee
        assert guarantee.kind == "finite-sample"
    assert len(online.GUARANTEE_ROWS) == 2 + 3 + 5
    assert "no conservative ones" in GUARANTEES["simple_jumper"].assumes[0]
    assert tdd.online_test("lond", 0.1, horizon=1).guarantee == tdd.online_test("lond", 0.2, horizon=1).guarantee


def step(value=0.5, state=None, mask=True, method="lond"):
    test = tdd.online_test(method, 0.1, horizon=5)
    return test.step(test.init() if state is None else state, value, mask)


def scores(x, **options):
    return tdd.online_conformal_p_values(x, **{"null": "nonmember", "key": KEY} | options)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: scores([1.0], null="both"), "null must be one of"),
        (lambda: scores([1.0], key=None), "key is missing"),
        (lambda: scores([1.0] * 4, key=None, uniforms=[1.0] * 4, window=2), "key is missing.*leaves a full window"),
        (lambda: scores([np.inf]), r"scores\[0\] is inf"),
        (lambda: scores([[1.0]]), "one-dimensional"),
        (lambda: scores([1.0], window=0), "window must be a whole number"),
        (lambda: scores([1.0], uniforms=[0.0]), r"uniforms\[0\] is 0.0; they must lie in \(0, 1\]"),
        (lambda: scores([1.0], uniforms=[np.nan]), r"uniforms\[0\] is nan"),
        (lambda: scores([1.0], uniforms=[0.5, 0.5]), "uniforms has 2 entries and scores has 1"),
        (lambda: scores([1.0], mask=[1]), "mask must be boolean"),
        (lambda: tdd.conformal_martingale([1.5]), r"p_values\[0\] is 1.5"),
        (lambda: tdd.conformal_martingale([0.5], log=True), r"p_values\[0\] is 0.5; with log=True"),
        (lambda: tdd.conformal_martingale([-0.5]), r"p_values\[0\] is -0.5"),
        (lambda: tdd.conformal_martingale([0.5], log="e"), "log must be True or False"),
        (lambda: tdd.conformal_martingale([0.5], bet="kelly"), "bet must be one of"),
        (lambda: tdd.conformal_martingale([0.5], mask=[True, False]), "mask has shape"),
        (lambda: tdd.shiryaev_roberts([0.5], 0.5), "mean_time must be one finite number of at least 1"),
        (lambda: tdd.shiryaev_roberts([0.5], "many"), "mean_time must be one finite number"),
        (lambda: tdd.shiryaev_roberts([0.5], np.inf), "mean_time must be one finite number"),
        (lambda: tdd.online_test("bh", 0.1, horizon=3), "method must be one of"),
        (lambda: tdd.online_test("lond", 1.0, horizon=3), "alpha must lie strictly"),
        (lambda: tdd.online_test("lond", jnp.float32(0.1), horizon=3), "alpha must be a Python number"),
        (lambda: tdd.online_test("lond", 0.1, horizon=0), "horizon must be a whole number from 1"),
        (lambda: tdd.online_test("lond", 0.1, horizon=2.0), "horizon must be a whole number from 1"),
        (lambda: tdd.online_test("lond", 0.1, horizon=3, lambda_=0.5), "lambda_ belongs to 'saffron'"),
        (lambda: tdd.online_test("e_lond", 0.1, horizon=3, initial_wealth=0.5), "initial_wealth belongs to"),
        (lambda: tdd.online_test("saffron", 0.1, horizon=3, lambda_=1.0), "lambda_ must lie"),
        (lambda: step(1.5), "value is 1.5; a p-value lies in"),
        (lambda: step(-1.0, method="e_lond"), "value is -1.0; an e-value is not negative"),
        (lambda: step("small"), "value must be a number, got 'small'"),
        (lambda: step([0.5]), "value and mask must be single"),
        (lambda: step(mask=[True]), "value and mask must be single"),
        (lambda: step(state=martingale.start("mixture")), r"state must come from init\(\) or step\(\)"),
        (lambda: step(state=online_kernel.start("lond", 0.1, horizon=6)), "horizon=6, this test of method='lond' with"),
        (lambda: step(state=online_kernel.start("saffron", 0.1, horizon=5)), "state is of method='saffron'"),
    ],
)
def test_messages(call, words):
    with pytest.raises(InputError, match=words):
        call()
