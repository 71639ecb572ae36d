"""Calls outside `jit` find their programs again, and never one that has become wrong."""

import dataclasses
import functools
import sys
import types

import decoder_specs
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tdd
from tdd.models.adapters import from_linen
from tdd.models.language_model import LanguageModel
from tdd.probe.gradients import example_grad_norms
from tdd.scoring import eager

TOKENS, MASK = np.array([[1, 1, 2, 3]], np.int32), np.ones((1, 4), bool)
SCALE = types.SimpleNamespace(value=1.0)
FACTOR = 1.0


def factor():
    return 1.0


def scaled(params, tokens):
    return params * jax.nn.one_hot(tokens, 5)


def by_global(params, tokens):
    return FACTOR * scaled(params, tokens)


def by_object(params, tokens):
    return SCALE.value * scaled(params, tokens)


def by_helper(params, tokens):
    return factor() * scaled(params, tokens)


@dataclasses.dataclass(frozen=True)
class Frozen:
    name: str

    def __call__(self, params, tokens):
        return FACTOR * scaled(params, tokens)


@functools.wraps(jnp.sum)
def wrapper(params, tokens):
    return FACTOR * scaled(params, tokens)


def by_import(params, tokens):
    import test_eager_settings

    return test_eager_settings.FACTOR * scaled(params, tokens)


def through_another(params, tokens):
    return by_global(params, tokens)


class Scaled:
    def __init__(self):
        self.factor = 1.0

    def logits(self, params, tokens):
        return self.factor * scaled(params, tokens)


def by_attribute(params, tokens):
    return by_attribute.factor * scaled(params, tokens)


by_attribute.factor = 1.0


class Settings:
    factor = 1.0


def by_class(params, tokens):
    return Settings.factor * scaled(params, tokens)


def by_default(params, tokens, held={"factor": 1.0}):  # noqa: B006
    return held["factor"] * scaled(params, tokens)


def functions():
    """Name -> (function of parameters and tokens, what sets its factor)."""
    held, entries, factor = Scaled(), {"factor": 1.0}, 1.0

    def by_cell(params, tokens):
        return factor * scaled(params, tokens)

    def set_cell(value):
        nonlocal factor
        factor = value

    return {
        "method": (held.logits, lambda value: setattr(held, "factor", value)),
        "dictionary": (lambda p, t: entries["factor"] * scaled(p, t), lambda value: entries.update(factor=value)),
        "cell": (by_cell, set_cell),
        "global": (by_global, lambda value: globals().update(FACTOR=value)),
        "global of another": (through_another, lambda value: globals().update(FACTOR=value)),
        "helper": (by_helper, lambda value: globals().update(factor=lambda: value)),
        "value": (Frozen("one"), lambda value: globals().update(FACTOR=value)),
        "wrapper": (wrapper, lambda value: globals().update(FACTOR=value)),
        "import": (by_import, lambda value: setattr(sys.modules["test_eager_settings"], "FACTOR", value)),
        "attribute": (by_attribute, lambda value: setattr(by_attribute, "factor", value)),
        "class": (by_class, lambda value: setattr(Settings, "factor", value)),
        "default": (by_default, lambda value: by_default.__defaults__[0].update(factor=value)),
        "part": (functools.partial(held.logits), lambda value: setattr(held, "factor", value)),
        "global object": (by_object, lambda value: setattr(SCALE, "value", value)),
    }


@pytest.fixture
def factors(monkeypatch):
    monkeypatch.setitem(sys.modules, "test_eager_settings", types.SimpleNamespace(FACTOR=1.0))
    yield
    globals().update(FACTOR=1.0, factor=lambda: 1.0)
    SCALE.value = by_attribute.factor = Settings.factor = by_default.__defaults__[0]["factor"] = 1.0


@pytest.mark.parametrize("kind", functions())
def test_what_a_function_reads_is_read_at_every_call(kind, factors):
    function, change = functions()[kind]
    lm = tdd.from_function(function, vocab_size=5, name="scaled")

    def values():
        one = jnp.float32(1)
        squares = example_grad_norms(lambda p, t: function(p, t).sum() ** 2 / 2, one, TOKENS)
        return (
            tdd.token_stats(lm, one, TOKENS, MASK).log_prob[0, 1],
            tdd.grad_norms(lm, one, TOKENS, MASK).total[0],
            squares[0],
        )

    before = values()
    change(3.0)
    plain = tdd.from_function(lambda params, tokens: 3 * scaled(params, tokens), vocab_size=5, name="plain")
    expected = jax.jit(tdd.token_stats, static_argnums=0)(plain, jnp.float32(1), TOKENS, MASK).log_prob[0, 1]
    after = values()
    np.testing.assert_allclose(after[0], expected, rtol=1e-5)
    np.testing.assert_allclose(after[2], 9 * before[2], rtol=1e-5)
    assert abs(after[1] / before[1] - 1) > 0.01


class Module(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        return nn.Dense(5, kernel_init=nn.initializers.normal())(nn.Embed(5, 4)(tokens))


def model(kind):
    """(model, parameters)"""
    if kind == "of a specification":
        return decoder_specs.perturbed_model("gpt2")
    if kind == "of a module":
        module = Module()
        shapes = jax.eval_shape(module.init, jax.random.key(0), TOKENS)
        return from_linen(module, vocab_size=5), jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), shapes)
    return tdd.from_function(jax.jit(by_object), vocab_size=5, name=kind), jnp.float32(1)


@pytest.mark.parametrize("of", [tdd.token_stats, tdd.grad_norms])
@pytest.mark.parametrize("kind", ["of a specification", "of a module", "of a compiled function"])
def test_programs_are_found_again(kind, of):
    lm, params = model(kind)
    of(lm, params, TOKENS, MASK)
    before = eager._program.cache_info()
    of(lm, jax.tree.map(lambda leaf: leaf + 1, params), TOKENS, MASK)
    after = eager._program.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)


def test_models_of_one_spec_have_programs_of_their_functions():
    """Functions that are alike share one; others do not, though the models are equal."""
    once, twice = jax.jit(scaled), jax.jit(lambda params, tokens: 2 * scaled(params, tokens))
    lm = LanguageModel("one spec", 5, None, logits=functools.partial(once))
    alike = dataclasses.replace(lm, logits=functools.partial(once))
    other = dataclasses.replace(lm, logits=twice)
    params = jnp.float32(1)
    first = tdd.token_stats(lm, params, TOKENS, MASK).log_prob
    before = eager._program.cache_info().misses
    np.testing.assert_array_equal(tdd.token_stats(alike, params, TOKENS, MASK).log_prob, first)
    assert eager._program.cache_info().misses == before
    found = tdd.token_stats(other, params, TOKENS, MASK).log_prob
    np.testing.assert_allclose(found, tdd.token_stats(lm, 2 * params, TOKENS, MASK).log_prob, rtol=1e-6)
    assert not np.allclose(found, first)
