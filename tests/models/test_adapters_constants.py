"""Adapted models whose configuration is no frozen dataclass."""

import dataclasses

import jax
import numpy as np
import pytest
from flax import linen as nn

import tdd

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
