"""Per-example gradient norms of every kind of decoder, against gradients that are really formed."""

import functools

import decoder_specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tdd
from tdd.models import decoder, gradients
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec

LENGTH = 11  # the wide products go by their Gram matrices, the square ones by the gradient of one text at a time
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}  # compiles in half the time
CHUNK = 32  # three blocks of the vocabulary, the last one overlapping


@pytest.fixture(autouse=True)
def highest_precision():
    with jax.default_matmul_precision("highest"):
        yield


@functools.cache
def params_of(name):
    """Random parameters; no bias is 0 and no norm's factor 1."""
    shapes = jax.eval_shape(lambda key: decoder.init_params(decoder_specs.SPECS[name], key), jax.random.key(0))
    leaves, tree = jax.tree.flatten(shapes)
    rng = np.random.default_rng(0)
    drawn = [(0.25 * rng.normal(size=leaf.shape)).astype(np.float32) for leaf in leaves]
    return jax.tree.unflatten(tree, drawn)


def batch(length=LENGTH):
    """Texts in which tokens come back, one of them masked here and there, one padded, the last without a target."""
    rng = np.random.default_rng(3)
    tokens = rng.integers(0, decoder_specs.VOCABULARY, (4, length)).astype(np.int32)
    tokens[:, ::2] = tokens[:, :1]
    mask = np.ones((4, length), bool)
    mask[1] = rng.random(length) < 0.6
    mask[2, length * 2 // 3 :] = False
    mask[3] = False
    return tokens, mask


def summed_loss(spec, params, rows, tokens, mask):
    """Of one text, by plain operations from the logits of all positions."""
    hidden = decoder.trunk(spec, params, decoder.embed(spec, params, tokens[None]) + rows)[0]
    logits = hidden @ decoder.readout(spec, params).T
    capped = logits if spec.soft_cap is None else spec.soft_cap * jnp.tanh(logits / spec.soft_cap)
    log_p = jax.nn.log_softmax(capped, axis=-1)
    return -jnp.where(mask[1:], jnp.take_along_axis(log_p[:-1], tokens[1:, None], axis=1)[:, 0], 0.0).sum()


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def reference(spec, params, tokens, mask):
    """Squared norms from one gradient an example, by the names of the parts; and that of the embedded input."""
    rows = jnp.zeros((*tokens.shape, spec.embedded_width))
    gradient = jax.vmap(jax.grad(functools.partial(summed_loss, spec), (0, 1)), (None, 0, 0, 0))
    found, of_rows = gradient(params, rows, tokens, mask)
    num_texts = tokens.shape[0]
    squares = lambda tree: sum(jnp.square(x).reshape(num_texts, -1).sum(1) for x in jax.tree.leaves(tree))  # noqa: E731
    stacks = [(found.pop(stack), len(layers)) for stack, layers, _ in spec.runs]
    layers = [jax.tree.map(lambda x, i=i: x[:, i], stack) for stack, number in stacks for i in range(number)]
    parts = {"layers": jnp.stack([squares(layer) for layer in layers])}
    parts["embedding"] = squares(found["embedding"].pop("tokens"))
    if not spec.tied_head:
        parts["head"] = squares(found.pop("head"))
    parts["trunk"] = squares(found) + jnp.zeros(num_texts)
    return parts, squares(of_rows)


@functools.partial(jax.jit, static_argnames=("spec", "remat", "chunk"), compiler_options=QUICK)
def ours(spec, params, tokens, mask, *, remat=None, chunk=CHUNK):
    return gradients.grad_sqnorm(spec, params, tokens, mask, remat=remat, chunk=chunk)


norms = jax.jit(tdd.grad_norms, static_argnums=0, compiler_options=QUICK)


def total(parts):
    return sum(np.asarray(part).reshape(-1, part.shape[-1]).sum(0) for part in parts.values())


@pytest.mark.parametrize("name", decoder_specs.SPECS)
@pytest.mark.slow("long")
def test_every_part_is_that_of_one_gradient_an_example(name):
    spec = decoder_specs.SPECS[name]
    params = params_of(name)
    tokens, mask = batch()
    found = ours(spec, params, tokens, mask)
    expected, inputs = reference(spec, params, tokens, mask)
    assert set(found.parts) == set(expected)
    for part, value in expected.items():
        np.testing.assert_allclose(np.sqrt(found.parts[part]), np.sqrt(value), rtol=1e-5, err_msg=part)
    np.testing.assert_allclose(np.sqrt(total(found.parts)), np.sqrt(total(expected)), rtol=1e-5)
    np.testing.assert_allclose(np.sqrt(found.input_embedding), np.sqrt(inputs), rtol=1e-5)
    assert total(found.parts)[3] == 0
    assert (total(found.parts)[:3] > 0).all()


@pytest.mark.slow("long")
def test_recomputed_blocks_change_nothing():
    spec, params = decoder_specs.SPECS["gemma2"], params_of("gemma2")
    kept, recomputed = (ours(spec, params, *batch(), **options) for options in ({}, {"remat": True}))
    for left, right in zip(jax.tree.leaves(kept), jax.tree.leaves(recomputed), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6)


@pytest.mark.parametrize("name", ["opt", "gemma2"])
@pytest.mark.slow("long")
def test_the_cross_term_of_a_tied_head_counts(name, monkeypatch):
    spec = decoder_specs.SPECS[name]
    params = params_of(name)
    tokens, mask = batch()
    expected = total(reference(spec, params, tokens, mask)[0])[:3]
    monkeypatch.setattr(gradients, "tied_cross", lambda *_: 0.0)
    plain = jax.jit(lambda *arrays: gradients.grad_sqnorm(spec, *arrays), compiler_options=QUICK)
    without = total(plain(params, tokens, mask).parts)[:3]
    assert np.abs(np.sqrt(without / expected) - 1).max() > 1e-3


@pytest.mark.slow("long")
def test_the_mask_marks_targets_not_positions():
    spec = decoder_specs.SPECS["gpt2"]
    params = params_of("gpt2")
    tokens, mask = batch()
    expected = total(reference(spec, params, tokens, mask)[0])[1:3]
    moved = total(ours(spec, params, tokens, np.roll(mask, 1, axis=1)).parts)[1:3]
    assert (np.abs(np.sqrt(moved / expected) - 1) > 1e-3).all()


@pytest.mark.slow("long")
def test_padding_and_company_change_nothing():
    spec = decoder_specs.SPECS["gpt_neo"]
    params = params_of("gpt_neo")
    tokens, mask = batch()
    padded, scored = np.full((2, 33), 7, np.int32), np.zeros((2, 33), bool)
    padded[:, :LENGTH], scored[:, :LENGTH] = tokens[1:3], mask[1:3]
    alone = total(ours(spec, params, padded, scored).parts)
    together = total(ours(spec, params, tokens, mask).parts)[1:3]
    np.testing.assert_allclose(np.sqrt(alone), np.sqrt(together), rtol=1e-5)


def test_the_first_column_of_the_mask_is_ignored():
    spec = decoder_specs.SPECS["llama"]
    params = params_of("llama")
    tokens, mask = batch()
    other = mask.copy()
    other[:, 0] = ~mask[:, 0]
    np.testing.assert_array_equal(
        total(ours(spec, params, tokens, mask).parts), total(ours(spec, params, tokens, other).parts)
    )


@pytest.mark.slow("long")
def test_bfloat16_parameters():
    spec = decoder_specs.SPECS["llama"]
    params = params_of("llama")
    low = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    high = jax.tree.map(lambda x: x.astype(jnp.float32), low)
    tokens, mask = batch()
    found = np.sqrt(total(ours(spec, low, tokens, mask).parts))[:3]
    np.testing.assert_allclose(found, np.sqrt(total(reference(spec, high, tokens, mask)[0]))[:3], rtol=2e-2)


@pytest.mark.slow("long")
def test_a_text_that_is_known_by_heart_in_float16():
    """A readout that gives each target 24 more than any other token: losses of 3e-9 and cotangents of the order of
    1e-7, of which float16, whose smallest number is 6e-8, would keep nothing.
    """
    spec, params = decoder_specs.SPECS["llama"], params_of("llama")
    tokens, mask = np.arange(10, 17, dtype=np.int32)[None], np.ones((1, 7), bool)
    states = np.asarray(decoder.hidden(spec, params, tokens), np.float64)[0, :-1]
    wanted = 24.0 * (np.arange(spec.vocab_size) == tokens[0, 1:, None])
    low = {**params, "head": {"kernel": (np.linalg.pinv(states) @ wanted).T}}
    low = jax.tree.map(lambda x: jnp.asarray(x, jnp.float16), low)
    found = ours(spec, low, tokens, mask).parts
    expected = ours(spec, jax.tree.map(lambda x: x.astype(jnp.float32), low), tokens, mask).parts
    for part in ("layers", "trunk", "embedding"):
        assert 0 < np.sqrt(expected[part]).max() < 1e-5
        np.testing.assert_allclose(np.sqrt(found[part]), np.sqrt(expected[part]), rtol=0.05, err_msg=part)


def test_a_text_of_one_token_has_no_gradient():
    spec = decoder_specs.SPECS["gpt2"]
    params = params_of("gpt2")
    found = ours(spec, params, np.array([[4]], np.int32), np.array([[True]]))
    assert total(found.parts) == 0


@pytest.mark.slow("long")
def test_a_language_model_of_a_spec_takes_this_road():
    lm, params = language_model(decoder_specs.SPECS["gpt2"]), params_of("gpt2")
    tokens, mask = batch()
    found = norms(lm, params, tokens, mask)
    assert found.parts["layers"].shape == (2, 4)
    np.testing.assert_allclose(found.total, np.sqrt(total(reference(lm.spec, params, tokens, mask)[0])), rtol=1e-5)


@pytest.mark.slow("long")
def test_activations_beyond_the_budget_are_computed_again(monkeypatch):
    spec = decoder_specs.SPECS["gpt2"]
    params = params_of("gpt2")
    tokens, mask = batch()

    def jaxpr(budget):
        monkeypatch.setattr(gradients, "_BUDGET", budget)
        return str(jax.make_jaxpr(lambda *arrays: gradients.grad_sqnorm(spec, *arrays))(params, tokens, mask))

    needed = gradients.activation_bytes(spec, *tokens.shape)
    assert "checkpoint" in jaxpr(needed - 1) or "remat" in jaxpr(needed - 1)
    assert "checkpoint" not in jaxpr(needed)
    assert "remat" not in jaxpr(needed)


@pytest.mark.slow("long")
def test_no_logits_of_the_batch_and_no_gradients_in_memory():
    """Width 64, one layer, V = 30,000, T = 64, float32. From 2 texts to 18 the temporary memory grows by what 16 texts
    need. The logits of a text would be 64 * 30,000 * 4 = 7.7 MB and its gradient, of 2.0 M parameters (1.92 M of them
    the embedding), 7.9 MB. Needed are a text's share of a block of logits, 64 * 256 * 4 bytes a few times = 0.2 MB,
    and its activations, about 43 * 64 + 2 * 4 * 64 floats at each of 64 positions = 0.8 MB.
    """
    spec = DecoderSpec.gpt2(vocab_size=30_000, width=64, num_layers=1, num_heads=4, max_length=64)
    shapes = jax.eval_shape(lambda key: decoder.init_params(spec, key), jax.random.key(0))

    def temporary(num_texts):
        arrays = [jax.ShapeDtypeStruct((num_texts, 64), dtype) for dtype in (jnp.int32, jnp.bool_)]
        compiled = ours.lower(spec, shapes, *arrays, remat=False, chunk=256).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert (temporary(18) - temporary(2)) / 16 < 1.5e6


@pytest.mark.torch
@pytest.mark.parametrize(
    "name",
    [
        "gpt_neox, tied",
        "gpt_bigcode",
        "gptj",
        "falcon, as its 40B",
        "mpt, clipped, other scale",
        "bloom",
        "phi, norms of heads",
        "opt, as its 350M",
        "gemma2",
        "mixtral",
        "gpt_oss",
        "olmoe",
        "qwen3_moe, plain probabilities",
        "qwen3_moe, dense layers",
    ],
)
def test_against_backward_in_torch_one_text_at_a_time(name):
    import torch
    import torch_models

    torch.set_num_threads(1)
    folder, model, _ = torch_models.saved(name)
    lm, params, _ = tdd.load(folder)
    tokens = np.maximum(torch_models.tokens(), 2)  # torch forms no gradient for the row of a padding token, 0 or 1 here
    found = norms(lm, params, tokens, np.ones(tokens.shape, bool)).total
    for row, norm in zip(tokens, found, strict=True):
        ids = torch.tensor(row[None], dtype=torch.long)
        model.zero_grad(set_to_none=True)
        log_p = torch.log_softmax(model(ids).logits[0].float(), dim=-1)
        (-log_p[:-1].gather(1, ids[0, 1:, None]).sum()).backward()
        squares = sum(float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None)
        np.testing.assert_allclose(norm, squares**0.5, rtol=1e-5)
