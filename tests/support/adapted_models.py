"""One small causal language model, written in every library that there is an adapter for, with the same weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

VOCABULARY, WIDTH = 300, 16
LIBRARIES = ("linen", "nnx", "equinox")


@functools.cache
def weights():
    rng = np.random.default_rng(3)
    shapes = {"embedding": (VOCABULARY, WIDTH), "kernel": (WIDTH, WIDTH), "bias": (WIDTH,), "head": (WIDTH, VOCABULARY)}
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def past_mean(x):
    """Mean over the positions up to each: causal attention with equal weights; [..., T, D]."""
    count = jnp.arange(1, x.shape[-2] + 1, dtype=x.dtype)[:, None]
    return jnp.cumsum(x, axis=-2) / count


def reference_hidden(params, tokens):
    x = jnp.asarray(params["embedding"])[tokens]
    return x + jnp.tanh(past_mean(x) @ params["kernel"] + params["bias"])


def reference_logits(params, tokens):
    return reference_hidden(params, tokens) @ params["head"]


def reference_readout(params):
    return params["head"].T


def reference():
    from tdd import from_function

    return from_function(reference_logits, vocab_size=VOCABULARY, name="reference"), weights()


def adapted(library, **options):
    """(lm, params) of the model in a library; the test is skipped where the library is absent."""
    pytest.importorskip({"linen": "flax", "nnx": "flax"}.get(library, library))
    return globals()[f"_{library}"](**options)


# flax.linen


@functools.cache
def linen_class():
    from flax import linen as nn

    class Linen(nn.Module):
        width: int

        def setup(self):
            self.embed = nn.Embed(VOCABULARY, self.width)
            self.mix = nn.Dense(self.width)
            self.drop = nn.Dropout(0.5)
            self.norm = nn.BatchNorm(momentum=0.9, epsilon=0.0, use_scale=False, use_bias=False)
            self.head = nn.Dense(VOCABULARY, use_bias=False)

        def encode(self, tokens, deterministic=False):
            x = self.embed(tokens)
            normed = self.norm(past_mean(x), use_running_average=True)
            return self.drop(x + jnp.tanh(self.mix(normed)), deterministic=deterministic)

        def __call__(self, tokens, deterministic=False):
            return {"logits": self.head(self.encode(tokens, deterministic)), "aux": 0}

    return Linen


def linen_variables():
    w = weights()
    zeros, ones = np.zeros(WIDTH, np.float32), np.ones(WIDTH, np.float32)
    return {
        "params": {
            "embed": {"embedding": w["embedding"]},
            "mix": {"kernel": w["kernel"], "bias": w["bias"]},
            "head": {"kernel": w["head"]},
        },
        "batch_stats": {"norm": {"mean": zeros, "var": ones}},
    }


def linen_readout(variables):
    return variables["params"]["head"]["kernel"].T


def _linen(**options):
    from tdd import from_linen

    return from_linen(linen_class()(WIDTH), vocab_size=VOCABULARY, **options), linen_variables()


# flax.nnx


@functools.cache
def nnx_class():
    from flax import nnx

    class Nnx(nnx.Module):
        def __init__(self, rngs):
            self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
            self.mix = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
            self.norm = nnx.BatchNorm(WIDTH, epsilon=0.0, use_scale=False, use_bias=False, rngs=rngs)
            self.drop = nnx.Dropout(0.5, rngs=rngs)
            self.head = nnx.Linear(WIDTH, VOCABULARY, use_bias=False, rngs=rngs)
            self.steps = nnx.Variable(jnp.arange(7))

        def encode(self, tokens):
            x = self.embed(tokens)
            return self.drop(x + jnp.tanh(self.mix(self.norm(past_mean(x)))))

        def __call__(self, tokens):
            return self.head(self.encode(tokens))

    return Nnx


def nnx_model(seed=0):
    from flax import nnx

    w, model = weights(), nnx_class()(nnx.Rngs(seed))
    for variable, value in (
        (model.embed.embedding, w["embedding"]),
        (model.mix.kernel, w["kernel"]),
        (model.mix.bias, w["bias"]),
        (model.head.kernel, w["head"]),
    ):
        variable[...] = jnp.asarray(value)
    return model


def nnx_readout(model):
    return model.head.kernel[...].T


def _nnx(**options):
    from tdd import from_nnx

    return from_nnx(nnx_model(), vocab_size=VOCABULARY, **options)


# Equinox


@functools.cache
def equinox_class():
    import equinox as eqx

    class Equinox(eqx.Module):
        embed: eqx.nn.Embedding
        mix: eqx.nn.Linear
        drop: eqx.nn.Dropout
        head: eqx.nn.Linear
        steps: jax.Array
        activation: object

        def __init__(self, key):
            self.embed = eqx.nn.Embedding(VOCABULARY, WIDTH, key=key)
            self.mix = eqx.nn.Linear(WIDTH, WIDTH, key=key)
            self.drop = eqx.nn.Dropout(0.5)
            self.head = eqx.nn.Linear(WIDTH, VOCABULARY, use_bias=False, key=key)
            self.steps = jnp.arange(7)
            self.activation = jnp.tanh

        def encode(self, tokens):
            x = jax.vmap(self.embed)(tokens)
            return self.drop(x + self.activation(jax.vmap(self.mix)(past_mean(x))))

        def __call__(self, tokens):
            return jax.vmap(self.head)(self.encode(tokens))

    return Equinox


def equinox_model(seed=0):
    import equinox as eqx

    w, model = weights(), equinox_class()(jax.random.key(seed))
    return eqx.tree_at(
        lambda m: (m.embed.weight, m.mix.weight, m.mix.bias, m.head.weight),
        model,
        tuple(map(jnp.asarray, (w["embedding"], w["kernel"].T, w["bias"], w["head"].T))),
    )


def equinox_readout(model):
    return model.head.weight


def _equinox(**options):
    from tdd import from_equinox

    return from_equinox(equinox_model(), vocab_size=VOCABULARY, **options)


def fast_path(library):
    """Options with which a library's adapter gets hidden states and readout."""
    pytest.importorskip({"linen": "flax", "nnx": "flax"}.get(library, library))
    return {"hidden": "encode", "readout": globals()[f"{library}_readout"]}
