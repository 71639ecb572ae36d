"""Plain functions as models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.models.adapters import from_function
from tdd.validate import InputError


def bigram(params, tokens):
    return params["table"][tokens].astype(jnp.bfloat16)


def too_narrow(params, tokens):
    return params["table"][tokens][..., :-1]


PARAMS = {"table": np.random.default_rng(0).normal(size=(7, 7)).astype(np.float32)}
TOKENS = np.asarray([[1, 2, 6]], np.int32)


def test_a_function_becomes_a_model():
    lm = from_function(bigram, vocab_size=7, max_length=5, name="bigram")
    logits = jax.jit(lm.logits)(PARAMS, TOKENS)
    assert logits.dtype == jnp.float32
    np.testing.assert_allclose(logits[0], PARAMS["table"][TOKENS[0]], rtol=1e-2)
    assert (lm.vocab_size, lm.max_length, lm.hidden, lm.readout) == (7, 5, None, None)


def test_the_same_function_is_the_same_model():
    calls = []

    def counted(lm, params, tokens):
        calls.append(1)
        return lm.logits(params, tokens)

    compiled = jax.jit(counted, static_argnums=0)
    for _ in range(2):
        compiled(from_function(bigram, vocab_size=7, name="bigram"), PARAMS, TOKENS)
    assert len(calls) == 1
    same_name = from_function(lambda params, tokens: 2 * bigram(params, tokens), vocab_size=7, name="bigram")
    assert same_name != from_function(bigram, vocab_size=7, name="bigram")


def test_unbounded_length():
    lm = from_function(bigram, vocab_size=7, name="bigram")
    assert lm.max_length is None
    assert lm.logits(PARAMS, np.zeros((2, 3000), np.int32)).shape == (2, 3000, 7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"logits_fn": 3}, "logits_fn must be a function, got 3"),
        ({"vocab_size": 0}, "vocab_size must be a positive number, got 0"),
        ({"max_length": -1}, "max_length must be a positive number, got -1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        from_function(**{"logits_fn": bigram, "vocab_size": 7, "name": "bigram", **arguments})


def test_unhashable_function():
    class Callable:
        __hash__ = None

        def __call__(self, params, tokens):
            return bigram(params, tokens)

    with pytest.raises(InputError, match="must be hashable, Callable is not"):
        from_function(Callable(), vocab_size=7, name="bigram")


def test_bad_logits_and_tokens():
    narrow = from_function(too_narrow, vocab_size=7, name="narrow")
    with pytest.raises(InputError, match=r"logits of 'narrow' have shape \(1, 3, 6\).* \(1, 3, 7\)"):
        jax.eval_shape(narrow.logits, PARAMS, TOKENS)
    bounded = from_function(bigram, vocab_size=7, max_length=2, name="bigram")
    with pytest.raises(InputError, match="length 3, but the model accepts at most 2"):
        bounded.logits(PARAMS, TOKENS)
