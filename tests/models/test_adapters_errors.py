"""What the adapters refuse, and how they say it."""

import adapted_models as models
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import tdd
from tdd import InputError

TOKENS = np.asarray([[1, 2, 6, 4]], np.int32)
V = models.VOCABULARY


class Careless(nn.Module):
    """Dropout that nobody can switch off from outside, and a counter."""

    kind: str

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(V, V)(tokens)
        if self.kind == "random":
            return x * jax.random.bernoulli(self.make_rng("dropout"), 0.5, x.shape)
        counter = self.variable("cache", "count", jnp.zeros, ())
        counter.value = counter.value + 1
        return x + counter.value


class Acausal(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(V, V)(tokens)
        return x + x.mean(axis=1, keepdims=True)


def variables(module):
    return module.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, TOKENS)


@pytest.mark.parametrize("adapter", ["from_linen", "from_nnx", "from_equinox"])
def test_wrong_library(adapter):
    with pytest.raises(InputError, match=r"must be a .* (module|transform), got int; adapters: tdd.from_linen"):
        getattr(tdd, adapter)(3, vocab_size=V)


def test_linen_errors():
    lm = tdd.from_linen(models.linen_class()(models.WIDTH), vocab_size=V)
    params = models.linen_variables()
    with pytest.raises(InputError, match=r"params of Linen must be the variables .* they hold embed, mix, head"):
        lm.logits(params["params"], TOKENS)
    with pytest.raises(InputError, match="params do not fit 'Linen'"):
        lm.logits({"params": params["params"]}, TOKENS)
    shorter = {**params, "params": {k: v for k, v in params["params"].items() if k != "mix"}}
    with pytest.raises(InputError, match="params do not fit 'Linen'"):
        lm.logits(shorter, TOKENS)
    with pytest.raises(InputError, match="Linen has no method 'logits'"):
        tdd.from_linen(models.linen_class()(models.WIDTH), vocab_size=V, method="logits")
    with pytest.raises(InputError, match=r"arguments\['table'\] cannot be hashed"):
        tdd.from_linen(models.linen_class()(models.WIDTH), vocab_size=V, arguments={"table": {}})


def test_linen_randomness_and_state():
    random = Careless("random")
    with pytest.raises(
        InputError, match=r"'Careless' asks for random numbers.*switch dropout off.* or build the module with it set"
    ):
        tdd.from_linen(random, vocab_size=V).logits(variables(random), TOKENS)
    counting = Careless("count")
    params = variables(counting)
    with pytest.raises(InputError, match=r"'Careless' writes into a collection.*mutable="):
        tdd.from_linen(counting, vocab_size=V).logits(params, TOKENS)
    lm = tdd.from_linen(counting, vocab_size=V, mutable=("cache",))
    twice = [lm.logits(params, TOKENS) for _ in range(2)]
    np.testing.assert_array_equal(*twice)


def test_equinox_batch_and_static_fields():
    eqx = pytest.importorskip("equinox")

    class Batched(eqx.Module):
        table: jax.Array
        options: object

        def __call__(self, tokens):
            assert tokens.ndim == 2
            return self.table[tokens]

    lm, params = tdd.from_equinox(Batched(jnp.ones((V, V)), 3), vocab_size=V, batched=True)
    assert lm.logits(params, TOKENS).shape == (1, 4, V)
    with pytest.raises(InputError, match="module cannot be hashed"):
        tdd.from_equinox(Batched(jnp.ones((V, V)), set()), vocab_size=V)


def table(params, tokens):
    return params[tokens]


def pair(params, tokens):
    return params[tokens], 0


def integers(params, tokens):
    return params[tokens].astype(jnp.int32)


def hidden(params, tokens):
    return params[tokens]


def transposed(params):
    return params[:, :7]


def square(params):
    return params


TABLE = np.random.default_rng(0).normal(size=(V, V)).astype(np.float32)


def function(logits_fn=table, **options):
    return tdd.from_function(logits_fn, vocab_size=V, name="f", **options)


def test_outputs():
    with pytest.raises(InputError, match=r"'f' returned a tuple of 2, not one array.*output="):
        function(pair).logits(TABLE, TOKENS)
    np.testing.assert_array_equal(function(pair, output=0).logits(TABLE, TOKENS), TABLE[TOKENS])
    with pytest.raises(InputError, match="a tuple of 2, in which there is no output=5"):
        function(pair, output=5).logits(TABLE, TOKENS)
    with pytest.raises(InputError, match="the logits of 'f' are int32; they must be floating"):
        function(integers).logits(TABLE, TOKENS)


def test_head_errors():
    with pytest.raises(InputError, match="hidden is given without readout"):
        function(hidden=hidden)
    with pytest.raises(InputError, match="soft_cap=3 belongs to hidden and readout"):
        function(soft_cap=3)
    with pytest.raises(InputError, match="soft_cap must be a positive number, got -1"):
        function(hidden=hidden, readout=square, soft_cap=-1)
    lm = function(hidden=hidden, readout=transposed)
    narrow = tdd.from_function(table, vocab_size=7, name="f", hidden=hidden, readout=transposed)
    with pytest.raises(
        InputError, match=r"readout of 'f' has shape \(300, 7\), expected \[V, D\] = \(7, D\); transpose it"
    ):
        narrow.readout(TABLE)
    assert lm.readout(TABLE).shape == (V, 7)


def test_causality():
    acausal = Acausal()
    lm = tdd.from_linen(acausal, vocab_size=V)
    with pytest.raises(InputError, match=r"'Acausal' is not causal: its logits at position 0 change by .* causal"):
        tdd.check_causal(lm, variables(acausal), TOKENS)
    with pytest.raises(InputError, match="two tokens or more"):
        tdd.check_causal(lm, variables(acausal), TOKENS[:, :1])
    with pytest.raises(InputError, match="hidden and readout of 'f' do not reproduce its logits"):
        tdd.check_causal(function(hidden=hidden, readout=square), TABLE, TOKENS)
    with pytest.raises(InputError, match="the logits of 'f' hold NaN"):
        tdd.check_causal(function(), TABLE * np.nan, TOKENS)
    excluded = np.where(np.arange(V) == 5, -np.inf, TABLE).astype(np.float32)
    tdd.check_causal(function(), excluded, TOKENS)


def shifted(params, tokens):
    """As decoders that are given their targets: a first token of their own, and the logits at t describe token t."""
    return jnp.asarray(params)[jnp.pad(tokens[:, :-1], ((0, 0), (1, 0)))]


def test_a_model_that_shifts_its_input():
    lm = tdd.from_function(shifted, vocab_size=V, name="decoder")
    with pytest.raises(InputError, match=r"'decoder' shifts its input: .* drop the first, with output=lambda"):
        tdd.check_causal(lm, TABLE, TOKENS)
    unshifted = tdd.from_function(
        shifted, vocab_size=V, name="decoder", output=lambda logits: jnp.roll(logits, -1, axis=1)
    )
    tdd.check_causal(unshifted, TABLE, TOKENS)
    tokens, mask = np.asarray(TOKENS), np.ones(np.shape(TOKENS), bool)
    own, plain = (tdd.token_stats(model, TABLE, tokens, mask).log_prob for model in (unshifted, function()))
    assert np.array_equal(own[:, 1:], plain[:, 1:])
    tdd.check_causal(function(), np.zeros_like(TABLE), TOKENS)  # a head that is still zero
