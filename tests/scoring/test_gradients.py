"""Gradient norms of any language model: one example after the other, and through a model's own road."""

import collections.abc
import dataclasses
import functools

import decoder_specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding

import tdd
from tdd.records import GradSqNorms, LanguageModel
from tdd.validate import InputError

V, D, B, T = 30, 6, 5, 7
ROOT = 4  # roundings of a square root or a division, at most
QUICK = {"xla_backend_optimization_level": 0}  # compiles in half the time
norms = jax.jit(tdd.grad_norms, static_argnames=("lm", "reduction", "microbatch"), compiler_options=QUICK)


def trunk(params, tokens):
    """A causal mean of embeddings, through one layer; `table` only maps ids to ids."""
    rows = params["embedding"][params["table"][tokens]]
    mean = jnp.cumsum(rows, axis=1) / jnp.arange(1, tokens.shape[1] + 1)[None, :, None]
    return jnp.tanh(mean @ params["layer"][0] + params["layer"][1])


def head(params):
    return params["embedding"]


def logits(params, tokens, soft_cap=None):
    z = trunk(params, tokens) @ head(params).T
    return z if soft_cap is None else soft_cap * jnp.tanh(z / soft_cap)


def model(soft_cap=None, *, fast=True):
    return LanguageModel(
        f"causal mean, {soft_cap}, {fast}",
        V,
        None,
        logits=functools.partial(logits, soft_cap=soft_cap),
        hidden=trunk if fast else None,
        readout=head if fast else None,
        soft_cap=soft_cap if fast else None,
    )


@pytest.fixture(scope="module")
def params():
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    return {
        "embedding": normal(V, D),
        "layer": (normal(D, D), normal(D)),
        "table": jnp.asarray(rng.permutation(V), jnp.int32),
    }


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(1)
    mask = rng.random((B, T)) < 0.7
    mask[:, 2] = True
    mask[4] = False
    return rng.integers(0, V, (B, T)).astype(np.int32), mask


def expected(params, tokens, mask, soft_cap=None):
    """Name -> squared norms, example by example."""
    rows = []
    for row, scored in zip(tokens, mask, strict=True):

        def loss(trained, row=row, scored=scored):
            log_p = jax.nn.log_softmax(logits({**params, **trained}, row[None], soft_cap)[0])
            return -sum(log_p[t - 1, row[t]] for t in range(1, T) if scored[t]) if scored[1:].any() else 0.0

        found = jax.grad(loss)({name: params[name] for name in ("embedding", "layer")})
        squares = {k: sum(float(jnp.square(x).sum()) for x in jax.tree.leaves(v)) for k, v in found.items()}
        rows.append(squares)
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


@pytest.mark.parametrize("soft_cap", [None, 2.0])
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.slow("long")
def test_any_model_one_example_at_a_time(params, batch, fast, soft_cap):
    squares = expected(params, *batch, soft_cap)
    found = norms(model(soft_cap, fast=fast), params, *batch)
    np.testing.assert_allclose(found.total, np.sqrt(sum(squares.values())), rtol=1e-5)
    assert set(found.parts) == {"embedding", "layer"}
    for name, square in squares.items():
        np.testing.assert_allclose(found.parts[name], np.sqrt(square), rtol=1e-5)
    assert found.total[4] == 0
    assert np.isnan(found.input_embedding).all()


@pytest.mark.parametrize("microbatch", [2, 5, 9])
def test_the_microbatch_changes_nothing(params, batch, microbatch):
    one, several = (norms(model(), params, *batch, microbatch=size) for size in (None, microbatch))
    np.testing.assert_allclose(several.total, one.total, rtol=decoder_specs.REQUIRED)


@pytest.mark.parametrize("microbatch", [1, 2, 5, 9])
def test_groups_of_a_models_own_road_come_back_in_order(batch, microbatch):
    def own_road(params, tokens, mask):
        assert tokens.shape == (min(microbatch, B), T)
        scored = jnp.where(mask, tokens, 0).astype(jnp.float32)
        return GradSqNorms({"layers": scored[:, 1:4].T, "rest": params * scored.sum(1)}, scored[:, 4])

    lm = dataclasses.replace(model(), spec=("own road", microbatch), grad_sqnorm=own_road)
    found = norms(lm, np.float32(2), *batch, microbatch=microbatch)
    scored = np.where(batch[1], batch[0], 0)
    scored[:, 0] = 0
    squares = {"layers": scored[:, 1:4].T, "rest": 2 * scored.sum(1)}  # integers, exact in float32
    for name, square in squares.items():
        rounding.assert_close(found.parts[name], np.sqrt(square), roundings=ROOT)
    rounding.assert_close(found.input_embedding, np.sqrt(scored[:, 4]), roundings=ROOT)
    rounding.assert_close(found.total, np.sqrt(squares["layers"].sum(0) + squares["rest"]), roundings=ROOT)


@pytest.mark.parametrize("general", [False, True])
def test_no_texts_no_norms(general):
    lm, values = decoder_specs.perturbed_model("llama")
    lm = dataclasses.replace(lm, grad_sqnorm=None) if general else lm
    found = jax.eval_shape(lambda p: tdd.grad_norms(lm, p, jnp.zeros((0, T), int), jnp.ones((0, T), bool)), values)
    assert found.total.shape == found.input_embedding.shape == (0,)
    assert all(part.shape[-1] == 0 for part in found.parts.values())


@pytest.mark.slow("long")
def test_a_models_own_road_and_the_general_one_agree(batch):
    lm, own = decoder_specs.perturbed_model("gpt2")
    fast = norms(lm, own, *batch)
    # another spec: models of equal specs share their compiled programs
    slow = norms(dataclasses.replace(lm, spec=("general", lm.spec), grad_sqnorm=None), own, *batch)
    np.testing.assert_allclose(fast.total, slow.total, rtol=1e-5)
    layers = np.sqrt(np.square(fast.parts["layers"]).sum(0))
    np.testing.assert_allclose(layers, slow.parts["layers"], rtol=1e-5)
    assert np.isfinite(fast.input_embedding).all()


def test_the_mean_divides_by_the_number_of_scored_tokens(params, batch):
    tokens, mask = batch
    summed, mean = (
        jax.tree.map(np.asarray, norms(model(), params, tokens, mask, reduction=kind)) for kind in ("sum", "mean")
    )
    counts = mask[:, 1:].sum(1)
    rounding.assert_close(mean.total[:4], summed.total[:4] / counts[:4], roundings=ROOT)
    rounding.assert_close(mean.parts["layer"][:4], summed.parts["layer"][:4] / counts[:4], roundings=ROOT)
    assert np.isnan(mean.total[4])


def test_it_is_pure_and_compiles_once(params, batch):
    # a function of its own: programs of one function are counted together, those of `norms` too
    compiled = jax.jit(functools.partial(tdd.grad_norms), static_argnames=("lm", "reduction", "microbatch"))
    first = compiled(model(), params, *batch, microbatch=2)
    compiled(model(), params, batch[0][::-1], batch[1][::-1], microbatch=2)
    assert compiled._cache_size() == 1
    np.testing.assert_allclose(first.total, norms(model(), params, *batch).total, rtol=decoder_specs.REQUIRED)


@pytest.mark.slow("long")
def test_tokens_outside_of_the_vocabulary_are_nan(params, batch):
    own_road, values = decoder_specs.perturbed_model("llama")
    for lm, own in ((model(), params), (own_road, values)):
        tokens = np.array(batch[0])
        tokens[0, 1], tokens[1, -1] = lm.vocab_size, -1
        found = norms(lm, own, tokens, batch[1])
        np.testing.assert_array_equal(np.isnan(found.total), [True, True, *[False] * (B - 2)])


def test_parameters_without_names(batch):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(V, V)).astype(np.float32)
    bigram = LanguageModel("bigram", V, None, logits=lambda params, tokens: params[0][tokens])
    found = norms(bigram, [table, np.arange(3)], *batch)
    assert set(found.parts) == {"params"}
    np.testing.assert_array_equal(found.parts["params"], found.total)
    assert (found.total[:4] > 0).all()


class Named(collections.abc.Mapping):
    """Parameters by name, as a library's own mapping."""

    def __init__(self, entries):
        self.entries = dict(entries)

    def __getitem__(self, name):
        return self.entries[name]

    def __iter__(self):
        return iter(self.entries)

    def __len__(self):
        return len(self.entries)


class NamedByAttribute(Named):
    """The same, whose keys are those of attributes."""


def rebuilt(kind):
    return lambda names, values: kind(zip(names, values, strict=True))


jax.tree_util.register_pytree_node(Named, lambda p: ([*p.values()], tuple(p)), rebuilt(Named))
jax.tree_util.register_pytree_with_keys(
    NamedByAttribute,
    lambda p: ([(jax.tree_util.GetAttrKey(name), value) for name, value in p.items()], tuple(p)),
    rebuilt(NamedByAttribute),
)


@pytest.mark.parametrize("kind", [Named, NamedByAttribute])
def test_parts_have_the_names_of_any_mapping(params, batch, kind):
    held = kind({name: params[name] for name in ("table", "layer", "embedding")})
    found, expected = (jax.eval_shape(lambda p: tdd.grad_norms(model(), p, *batch), p) for p in (held, params))
    assert found.parts.keys() == expected.parts.keys() == {"embedding", "layer"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduction": "max"}, r"reduction='max' is unknown; use 'sum' .* or 'mean'"),
        ({"microbatch": 0}, "microbatch=0 must be a whole number of texts, at least 1, or None"),
        ({"microbatch": 2.5}, "microbatch=2.5 must be"),
        ({"microbatch": True}, "microbatch=True must be"),
    ],
)
def test_bad_options_are_named(params, batch, options, message):
    with pytest.raises(InputError, match=message):
        tdd.grad_norms(model(), params, *batch, **options)


def test_bad_shapes_are_named(params, batch):
    tokens, mask = batch
    with pytest.raises(InputError, match=r"\[B, T\]; their shapes are \(5, 7\) and \(5, 6\)"):
        tdd.grad_norms(model(), params, tokens, mask[:, 1:])


def test_parameters_without_a_gradient_are_refused(batch):
    constant = LanguageModel("constant", V, None, logits=lambda params, tokens: jnp.zeros((*tokens.shape, V)))
    with pytest.raises(InputError, match="params of 'constant' hold no floating-point array"):
        tdd.grad_norms(constant, {"ids": jnp.arange(4)}, *batch)
