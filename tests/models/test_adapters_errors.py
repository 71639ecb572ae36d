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
    lm, params = tdd.from_equinox(Batched(jnp.ones((V, V)), set()), vocab_size=V, batched=True)
    assert lm.logits(params, TOKENS).shape == (1, 4, V)


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


def of_the_batch(params, tokens):
    """Logits less their mean over the batch, as of statistics that a batch has in common."""
    logits = jnp.asarray(params)[tokens]
    return logits - logits.mean(0, keepdims=True) + 0.5 * logits


def with_room(params, tokens):
    """An expert that takes the first six tokens of a batch, as they come; the others go by it."""
    places = jnp.arange(tokens.size).reshape(tokens.shape)
    return jnp.where((places < 6)[..., None], 1.0, 0.1) * jnp.asarray(params)[tokens]


@pytest.mark.parametrize("model", [of_the_batch, with_room])
@pytest.mark.parametrize("num_texts", [1, 5])
def test_logits_that_depend_on_the_other_texts(model, num_texts):
    lm = tdd.from_function(model, vocab_size=V, name="shared")
    tokens = np.random.default_rng(0).integers(0, V, (num_texts, 8))
    with pytest.raises(InputError, match="the logits of 'shared' depend on the other texts of a batch: with others"):
        tdd.check_causal(lm, TABLE, tokens)
    tdd.check_causal(function(), TABLE.astype(jnp.bfloat16), tokens)
    tdd.check_causal(tdd.from_function(in_half_precision, vocab_size=V, name="half"), TABLE, tokens)


def in_half_precision(params, tokens):
    """Weights and logits of 32 bits, and what is between them of 16."""
    x = jnp.asarray(params, jnp.bfloat16)[tokens]
    for _ in range(4):
        x = x + jnp.tanh(1.5 * x + x.mean(-1, keepdims=True))
    return x.astype(jnp.float32)


def words_for_numbers(tree):
    """The same tree as a file gives it back: with words for keys, sorted as words."""
    if not isinstance(tree, dict):
        return tree
    return {str(key): words_for_numbers(tree[key]) for key in sorted(tree, key=str)}


def stack_of_layers(num_layers=12):
    from flax import nnx

    class Stack(nnx.Module):
        def __init__(self, rngs):
            self.embed = nnx.Embed(V, 8, rngs=rngs)
            self.layers = nnx.List([nnx.Linear(8, 8, rngs=rngs) for _ in range(num_layers)])
            self.head = nnx.Linear(8, V, rngs=rngs)

        def __call__(self, tokens):
            x = self.embed(tokens)
            for layer in self.layers:
                x = x + jnp.tanh(layer(x))
            return self.head(x)

    return Stack(nnx.Rngs(0))


def test_arrays_of_nnx_are_found_by_their_paths():
    """As words, layers 10 and 11 stand before layer 2, and all layers have the same shapes."""
    model = stack_of_layers()
    lm, params = tdd.from_nnx(model, vocab_size=V)
    restored = words_for_numbers(params)
    assert [*restored["params"]["layers"]][:3] == ["0", "1", "10"]
    np.testing.assert_allclose(lm.logits(restored, TOKENS), model(jnp.asarray(TOKENS)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(lm.logits(restored, TOKENS), lm.logits(params, TOKENS))
    layers = restored["params"]["layers"]
    for layer, message in (
        ({}, r"params\['params'\] has no layers.3.bias; pass what from_nnx returned"),
        ({**layers["3"], "scale": np.ones(8)}, r"has layers.3.scale, which the model has not"),
        ({**layers["3"], "bias": np.ones(9)}, r"layers.3.bias has shape \(9,\), the model's has \(8,\)"),
    ):
        wrong = {**restored, "params": {**restored["params"], "layers": {**layers, "3": layer}}}
        with pytest.raises(InputError, match=message):
            lm.logits(wrong, TOKENS)


@pytest.mark.parametrize("switch", ["enable_dropout", "noisy"])
def test_a_model_of_nnx_that_draws_is_refused(switch):
    """A switch of a known name is set; where it has another, the model would score with the same mask for ever."""
    from flax import nnx

    class Noisy(nnx.Module):
        def __init__(self, rngs):
            self.embed, self.rngs = nnx.Embed(V, V, rngs=rngs), rngs

        def __call__(self, tokens, enable_dropout=True, noisy=True):
            x = self.embed(tokens)
            on = {"enable_dropout": enable_dropout, "noisy": noisy}[switch]
            return x * jax.random.bernoulli(self.rngs.dropout(), 0.5, x.shape) if on else x

    model = Noisy(nnx.Rngs(0))
    lm, params = tdd.from_nnx(model, vocab_size=V)
    quiet, _ = tdd.from_nnx(model, vocab_size=V, arguments={switch: False})
    np.testing.assert_array_equal(quiet.logits(params, TOKENS), model.embed(jnp.asarray(TOKENS)))
    if switch == "enable_dropout":
        np.testing.assert_array_equal(lm.logits(params, TOKENS), quiet.logits(params, TOKENS))
    else:
        with pytest.raises(InputError, match="'Noisy' asks for random numbers, and scores must not depend on chance"):
            lm.logits(params, TOKENS)


@pytest.mark.parametrize("form", ["remat", "jit"])
def test_a_generator_that_is_not_used_is_no_draw(form):
    """Dropout in evaluation hands its generator through, in transformations too, and none of it enters the result."""
    from flax import nnx

    class Quiet(nnx.Module):
        def __init__(self, rngs):
            self.embed, self.drop = nnx.Embed(V, V, rngs=rngs), nnx.Dropout(0.1, rngs=rngs)
            self.value, self.bias = nnx.Linear(V, V, rngs=rngs), nnx.Param(jnp.ones(V))

        def __call__(self, tokens):
            inner = {"remat": nnx.remat, "jit": nnx.jit}[form](lambda module, x: module.drop(module.value(x)))
            return inner(self, self.embed(tokens)) + self.bias

    model = Quiet(nnx.Rngs(0))
    lm, params = tdd.from_nnx(model, vocab_size=V)
    model.eval()
    expected = model(jnp.asarray(TOKENS))
    for logits in (lm.logits, jax.jit(lm.logits)):
        np.testing.assert_allclose(logits(params, TOKENS), expected, rtol=1e-5, atol=1e-6)
    tdd.check_causal(lm, params, TOKENS)


def test_an_equinox_model_given_a_dictionary():
    eqx = pytest.importorskip("equinox")

    class Table(eqx.Module):
        weight: jax.Array

        def __call__(self, tokens):
            return self.weight[tokens]

    module = Table(jnp.asarray(TABLE))
    lm, params = tdd.from_equinox(module, vocab_size=V)
    with pytest.raises(InputError, match=r"params are a dict, and the model is a Table; .* give it the parameters"):
        lm.logits({"weight": TABLE}, TOKENS)
    assert lm.logits(params, TOKENS).shape == (1, 4, V)
    with pytest.raises(InputError, match=r"lm is the Equinox module Table itself; pass the first of what tdd.from_eq"):
        tdd.Probe(module, [[1, 2, 3]] * 4, [[2, 3, 4]] * 4)
