"""Conformal p-values: the key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tdd


@pytest.mark.parametrize("tie_break", ["randomized", "shared"])
@pytest.mark.parametrize(
    "key",
    [
        None, 3, "a", [0, 1], np.zeros(2, np.uint32), jnp.zeros(3), jnp.zeros(2, jnp.int32), np.random.default_rng(0),
        jax.random.split(jax.random.key(0), 3), jax.random.key,
    ],
    ids=["none", "number", "words", "list", "numpy", "floats", "whole", "generator", "several", "function"],
)  # fmt: skip
def test_a_wrong_key_is_one_error(tie_break, key):
    with pytest.raises(tdd.InputError, match=r"key (is missing|must be a PRNG key from jax.random.key\(seed\))"):
        tdd.conformal_p_values([1.0, 2.0], [0.5], null="nonmember", tie_break=tie_break, key=key)


def test_a_key_that_is_not_needed_is_not_looked_at():
    p_values = tdd.conformal_p_values([1.0, 2.0, 3.0], [0.5, 2.0], null="nonmember", key="a")  # type: ignore[arg-type]
    assert p_values.tolist() == [0.25, 0.75]
