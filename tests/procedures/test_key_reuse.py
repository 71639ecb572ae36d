"""Procedures pass JAX's check that no key serves twice, which users turn on with `jax_debug_key_reuse`."""

import jax
import numpy as np
import pytest

import tdd

KNOWN, SCORES = np.arange(24.0).reshape(2, 12), np.arange(16.0).reshape(2, 8) + 0.5
SHARDS, SHUFFLES = SCORES[0], np.arange(24.0).reshape(8, 3)
CALLS = {
    "td4eval/sum": lambda key: tdd.td4eval(KNOWN, SCORES, alpha=0.1, rule="sum", key=key),
    "td4eval/split_weights": lambda key: tdd.td4eval(KNOWN, SCORES, alpha=0.1, combine="split_weights", key=key),
    "td4eval/random": lambda key: tdd.td4eval(KNOWN, SCORES, alpha=0.1, combine="random", key=key),
    "td4eval/e_values": lambda key: tdd.td4eval(KNOWN, SCORES, alpha=0.1, combine="e_values", key=key),
    "td4eval/best_score": lambda key: tdd.td4eval(KNOWN, SCORES, alpha=0.1, combine="best_score", key=key),
    "combined_score": lambda key: tdd.combined_score(KNOWN, SCORES, alpha=0.1, key=key),
    "exchangeability": lambda key: tdd.exchangeability(SHARDS, SHUFFLES, tie_break="randomized", key=key, num_draws=99),
    "sequence": lambda key: tdd.exchangeability_sequence(SHARDS, SHUFFLES, rule="spending", key=key, num_draws=99),
    "online": lambda key: tdd.online_conformal_p_values(SCORES[0], null="nonmember", key=key),
    "online/window": lambda key: tdd.online_conformal_p_values(SCORES[0], null="nonmember", key=key, window=3),
    "conformal": lambda key: tdd.conformal_p_values(
        KNOWN[0], SCORES[0], null="nonmember", tie_break="randomized", key=key
    ),
    "dataset_inference": lambda key: tdd.dataset_inference(KNOWN, SCORES, key=key, num_draws=9),
    "weighted": lambda key: tdd.weighted_conformal_selection(
        KNOWN[0], SCORES[0], np.ones(12), np.ones(8), alpha=0.1, null="nonmember", key=key
    ),
    "e_bh": lambda key: tdd.e_bh(SCORES[0], 0.1, key=key),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("make", [jax.random.key, jax.random.PRNGKey], ids=["typed", "words"])
def test_no_key_serves_twice(name, make):
    with jax.debug_key_reuse(True):
        jax.eval_shape(CALLS[name], make(0))


def test_a_key_that_serves_twice_is_refused():
    with jax.debug_key_reuse(True), pytest.raises(jax.errors.KeyReuseError):
        jax.eval_shape(jax.jit(lambda key: jax.random.normal(key) + jax.random.uniform(key)), jax.random.key(0))
