"""Adapted models whose configuration is no frozen dataclass."""

import dataclasses
import threading

import jax
import numpy as np
import pytest
from flax import linen as nn

import tdd
from tdd.runs.described import described

V = 7
TOKENS = np.asarray([[1, 2, 6]], np.int32)


@dataclasses.dataclass
class Configuration:
    """As in tunix: no frozen dataclass, so that it cannot be hashed."""

    scale: float = 2.0
    kinds: list = dataclasses.field(default_factory=lambda: ["global"])


class OfLinen(nn.Module):
    """A table of logits."""

    configuration: Configuration

    @nn.compact
    def __call__(self, tokens):
        return self.configuration.scale * nn.Embed(V, V)(tokens)


def adapted(library, configuration):
    """A model of this configuration, with parameters that are always the same."""
    if library == "linen":
        module = OfLinen(configuration)
        return tdd.from_linen(module, vocab_size=V), module.init(jax.random.key(0), TOKENS)
    nnx = pytest.importorskip("flax.nnx")

    class OfNnx(nnx.Module):
        def __init__(self):
            self.configuration = configuration
            self.table = nnx.Embed(V, V, rngs=nnx.Rngs(0))

    def logits(model, tokens):
        return model.configuration.scale * model.table(tokens)

    return tdd.from_nnx(OfNnx(), vocab_size=V, method=logits)


@pytest.mark.parametrize("library", ["linen", "nnx"])
def test_configurations_that_cannot_be_hashed(library):
    """They are copied, and equal ones find their programs again."""
    given = Configuration()
    lm, params = adapted(library, given)
    expected = np.asarray(lm.logits(params, TOKENS))
    if library == "linen":
        assert adapted(library, Configuration())[0].spec == lm.spec
        assert hash(adapted(library, Configuration())[0].spec) == hash(lm.spec)
    given.scale = 4.0
    given.kinds.append("local")
    np.testing.assert_array_equal(lm.logits(params, TOKENS), expected)
    other, _ = adapted(library, given)
    assert other.spec != lm.spec
    np.testing.assert_array_equal(other.logits(params, TOKENS), 2 * expected)


@dataclasses.dataclass
class Partly:
    """Equal to others that compute something else."""

    scale: float = dataclasses.field(default=2.0, compare=False)


def test_equal_configurations_may_compute_something_else():
    models = [adapted("linen", Partly(scale)) for scale in (2.0, 4.0)]
    first, second = (tdd.token_stats(lm, params, TOKENS, TOKENS > 0).log_prob for lm, params in models)
    assert not np.array_equal(first, second)
    assert adapted("linen", Partly())[0].spec == models[0][0].spec
    ones, trues = adapted("linen", Partly(1))[0], adapted("linen", Partly(True))[0]
    assert ones.spec != trues.spec


def test_what_can_be_neither_hashed_nor_copied_is_refused():
    @dataclasses.dataclass
    class Locked:
        lock: object = dataclasses.field(default_factory=threading.Lock)

    with pytest.raises(tdd.InputError, match=r"module can be neither hashed .* nor copied"):
        adapted("linen", Locked())


def test_the_code_of_flax_is_not_part_of_a_description():
    """Its version is; to describe all that it names takes for ever."""
    assert len(repr(described(adapted("nnx", Configuration())[0].spec))) < 10_000
