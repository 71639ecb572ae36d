"""Properties of the decoder that hold for any parameters."""

import dataclasses
import functools
import math

import gpt2_files
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding
from decoder_specs import SPECS, assert_logits, perturbed_model, perturbed_params, roundings
from family_files import word_tokenizer

import tdd
from tdd.models import attention, decoder
from tdd.models.checkpoint import load
from tdd.models.language_model import language_model
from tdd.models.spec import Attention, DecoderSpec, LayerNorm, LearnedPositions, Mlp
from tdd.validate import InputError


def spec_of(num_layers=2, *, width=16, heads=2, positions=12, tied=True, vocab=40, activation="gelu_tanh"):
    return DecoderSpec(
        vocab_size=vocab,
        width=width,
        num_layers=num_layers,
        norm=LayerNorm(),
        positions=LearnedPositions(positions),
        attention=Attention(heads, width // heads, (0.3,) * num_layers),
        mlp=Mlp(3 * width, activation),
        tied_head=tied,
    )


perturbed = functools.partial(perturbed_params, spread=0.1)
compiled_logits = jax.jit(decoder.logits, static_argnums=0)
compiled_hidden = jax.jit(decoder.hidden, static_argnums=0)


def close(found, expected, spec):
    """Both are float32, so that each may be off by its chain of roundings."""
    chain = 2 * roundings(spec, expected.shape[1])
    rounding.assert_close(found, expected, roundings=chain, scale=np.abs(expected).max())


@pytest.fixture
def model():
    spec = spec_of()
    return language_model(spec), perturbed(spec)


@pytest.fixture
def tokens():
    return np.random.default_rng(1).integers(0, 40, (3, 12)).astype(np.int32)


def test_logits_are_hidden_times_readout(model, tokens):
    lm, params = model
    hidden, readout = np.asarray(compiled_hidden(lm.spec, params, tokens)), np.asarray(lm.readout(params))
    assert hidden.shape == (3, 12, 16)
    assert readout.shape == (40, 16)
    magnitudes = np.abs(hidden) @ np.abs(readout).T
    rounding.assert_close(
        compiled_logits(lm.spec, params, tokens), hidden @ readout.T, roundings=2 * 16, scale=magnitudes
    )


def test_hidden_is_after_the_final_norm(tokens):
    spec = spec_of()
    params = decoder.init_params(spec, jax.random.key(3))
    hidden = np.asarray(compiled_hidden(spec, params, tokens))
    rounding.assert_close(hidden.mean(-1), np.zeros((3, 12)), roundings=2 * 16, scale=np.abs(hidden).max())
    np.testing.assert_allclose(hidden.var(-1), 1, atol=0.05)


def test_against_a_plain_float64_reference(tokens):
    """Definition by definition, in NumPy."""
    spec = dataclasses.replace(spec_of(tied=False), attention=Attention(2, 8, (0.3, 0.7)))
    params = perturbed(spec)
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)

    def norm(x, w):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w["scale"] + w["bias"]

    stream = p["embedding"]["tokens"][tokens] + p["embedding"]["positions"][:12]
    for layer in range(2):
        w = jax.tree.map(lambda leaf, layer=layer: leaf[layer], p["layers"])
        fused = norm(stream, w["attention_norm"]) @ w["qkv"]["kernel"] + w["qkv"]["bias"]
        mixed = np.zeros_like(stream)
        for head in range(2):
            q, k, v = (fused[..., part * 16 + head * 8 : part * 16 + head * 8 + 8] for part in range(3))
            for t in range(12):
                score = np.einsum("bk,bsk->bs", q[:, t], k[:, : t + 1]) * spec.attention.scales[layer]
                weight = np.exp(score) / np.exp(score).sum(-1, keepdims=True)
                mixed[:, t, head * 8 : head * 8 + 8] = np.einsum("bs,bsk->bk", weight, v[:, : t + 1])
        stream = stream + mixed @ w["attention_out"]["kernel"] + w["attention_out"]["bias"]
        inner = norm(stream, w["mlp_norm"]) @ w["mlp_in"]["kernel"] + w["mlp_in"]["bias"]
        inner = inner / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
        stream = stream + inner @ w["mlp_out"]["kernel"] + w["mlp_out"]["bias"]
    expected = norm(stream, p["final_norm"]) @ p["head"]["kernel"].T
    with jax.default_matmul_precision("highest"):
        found = compiled_logits(spec, params, tokens)
    assert_logits(found, expected, roundings(spec, 12))


@pytest.mark.parametrize("length", [1, 5, 11])
def test_causal(model, tokens, length):
    """Changing a later token leaves every earlier logit alone, and does change what follows."""
    lm, params = model
    changed = tokens.copy()
    changed[:, length] = (changed[:, length] + 1) % 40
    logits, other = (np.asarray(compiled_logits(lm.spec, params, array)) for array in (tokens, changed))
    np.testing.assert_array_equal(logits[:, :length], other[:, :length])
    assert (np.abs(logits[:, length:] - other[:, length:]).max(axis=(0, 2)) > 1e-4).all()


@pytest.mark.slow("long")
def test_long_sequences_in_blocks_of_queries(monkeypatch):
    """Blocks of queries, the last of them shorter, give what one block gives; causality holds across their edges."""
    spec = spec_of(positions=80)
    params = perturbed(spec)
    tokens = np.random.default_rng(2).integers(0, 40, (2, 75)).astype(np.int32)
    whole = np.asarray(decoder.logits(spec, params, tokens))
    monkeypatch.setattr(attention, "QUERY_BLOCK", 32)
    blocks = np.asarray(decoder.logits(spec, params, tokens))
    close(blocks, whole, spec)
    changed = tokens.copy()
    changed[:, 40] = (changed[:, 40] + 1) % 40
    np.testing.assert_array_equal(np.asarray(decoder.logits(spec, params, changed))[:, :40], blocks[:, :40])


@pytest.mark.parametrize("padding", [0, 39])
def test_padding_and_batch_mates_change_nothing(model, tokens, padding):
    lm, params = model
    alone = np.asarray(compiled_logits(lm.spec, params, tokens[:1, :7]))
    padded = np.full((3, 12), padding, np.int32)
    padded[1, :7] = tokens[0, :7]
    together = np.asarray(compiled_logits(lm.spec, params, padded))[1:2, :7]
    close(together, alone, lm.spec)


@pytest.mark.slow("long")
def test_jit_equals_eager(model, tokens):
    lm, params = model
    for function in (lm.logits, lm.hidden):
        close(jax.jit(function)(params, tokens), function(params, tokens), lm.spec)


def test_no_retrace_after_a_second_load(tmp_path, tokens):
    """Two loads give equal models, and a jitted function with a static model is traced once."""
    folder, *_ = gpt2_files.write(tmp_path)

    traces = []

    def counted(lm, params, tokens):
        traces.append(lm.spec)
        return lm.logits(params, tokens)

    compiled = jax.jit(counted, static_argnums=0)
    lm, params, _ = load(folder)
    first = compiled(lm, params, tokens)
    again, params_again, _ = load(folder)
    assert again == lm
    assert hash(again) == hash(lm)
    assert again.logits is lm.logits
    np.testing.assert_array_equal(compiled(again, params_again, tokens), first)
    assert len(traces) == 1


def test_different_specs_are_different_models():
    one = language_model(spec_of())
    assert one == language_model(spec_of())
    assert one != language_model(spec_of(activation="relu"))


def test_program_does_not_grow_with_depth(tokens):
    def size(num_layers):
        spec = spec_of(num_layers)
        params = jax.eval_shape(lambda: decoder.init_params(spec, jax.random.key(0)))
        return len(jax.make_jaxpr(lambda p, t: decoder.hidden(spec, p, t))(params, tokens).pretty_print())

    # the only thing that grows is the digits of the layer count in the shapes
    assert size(24) < 1.02 * size(2)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.slow("long")
def test_gradients_reach_every_parameter(tokens, tied):
    """Directional derivatives by finite differences, and no parameter without a gradient."""
    spec = spec_of(tied=tied)
    params = perturbed(spec)

    def loss(params):
        log_prob = jax.nn.log_softmax(decoder.logits(spec, params, tokens)[:, :-1])
        return -jnp.mean(jnp.take_along_axis(log_prob, tokens[:, 1:, None], axis=-1))

    gradient = jax.jit(jax.grad(loss))(params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.isfinite(leaf).all(), path
        assert np.abs(leaf).max() > 0, path
    direction = perturbed(spec, seed=7)
    step = 1e-2
    ahead, behind = (
        loss(jax.tree.map(lambda x, d, sign=sign: x + sign * step * d, params, direction)) for sign in (1, -1)
    )
    slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: jnp.vdot(g, d), gradient, direction)))
    np.testing.assert_allclose((ahead - behind) / (2 * step), slope, rtol=2e-3)


@pytest.mark.slow("long")
def test_initialisation_follows_gpt2():
    spec = spec_of(8, width=64, heads=4, vocab=500)
    params = decoder.init_params(spec, jax.random.key(0))
    layers = params["layers"]
    for name in ("qkv", "mlp_in"):
        np.testing.assert_allclose(np.std(layers[name]["kernel"]), 0.02, rtol=0.02)
    for name in ("attention_out", "mlp_out"):
        np.testing.assert_allclose(np.std(layers[name]["kernel"]), 0.02 / math.sqrt(16), rtol=0.02)
    np.testing.assert_allclose(np.std(params["embedding"]["tokens"]), 0.02, rtol=0.02)
    assert not np.any(layers["qkv"]["bias"])
    assert np.all(layers["mlp_norm"]["scale"] == 1)
    first, second = layers["qkv"]["kernel"][:2]
    assert not np.array_equal(first, second)
    lower = decoder.init_params(spec, jax.random.key(0), jnp.bfloat16)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(lower)} == {"bfloat16"}


def test_half_precision_parameters_are_not_promoted(tokens):
    """The residual stream is float32; parameters and readout stay what they are."""
    spec = spec_of()
    params = perturbed(spec, dtype=jnp.bfloat16)
    assert decoder.readout(spec, params).dtype == jnp.bfloat16
    assert jax.eval_shape(functools.partial(decoder.hidden, spec), params, tokens).dtype == jnp.bfloat16
    logits = compiled_logits(spec, params, tokens)
    assert logits.dtype == jnp.float32
    wide = compiled_logits(spec, jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params), tokens)
    assert np.abs(np.asarray(logits) - np.asarray(wide)).max() < 0.05


def test_weights_in_bfloat16_are_sliced_as_they_are(tokens):
    """Same bits and same gradients as the plain scan, whose program, the twin, widens the weights of all layers."""
    spec = spec_of(3)
    params, embedded = perturbed(spec, dtype=jnp.bfloat16), np.ones((3, 12, 16), np.float32)
    ours, plain = (
        functools.partial(of, spec)
        for of in (decoder.trunk, lambda spec, params, stream: decoder._plain_forward(spec, params, stream, None))
    )
    bits = decoder.as_bits(spec, params)
    calls = (ours, bits), (ours, params), (plain, params)
    programs = [jax.jit(of).lower(given, embedded).compile() for of, given in calls]
    of_bits, of_weights, expected = (
        np.asarray(program(given, embedded)) for program, (_, given) in zip(programs, calls, strict=True)
    )
    np.testing.assert_array_equal(of_weights, expected)
    np.testing.assert_array_equal(of_bits, expected)

    def gradient(trunk):
        return jax.jit(jax.grad(lambda *given: jnp.sum(trunk(*given) ** 2), (0, 1)))(params, embedded)

    found = gradient(ours)
    jax.tree.map(np.testing.assert_array_equal, found, gradient(plain))
    assert all(np.any(leaf) for leaf in jax.tree.leaves(found[0]["layers"]))
    texts = [program.as_text() for program in programs]
    assert ["bf16[3,16,48]" in text for text in texts] == [False, True, True]  # copied from weights to bits
    assert ["f32[3,16,48]" in text for text in texts] == [False, False, True]


def test_bits_share_their_memory_with_the_weights(tokens):
    spec = spec_of(2)
    params = perturbed(spec, dtype=jnp.bfloat16)
    weights, bits = (jax.tree.leaves(tree["layers"]) for tree in (params, decoder.as_bits(spec, params)))
    assert [leaf.unsafe_buffer_pointer() for leaf in bits] == [leaf.unsafe_buffer_pointer() for leaf in weights]
    wide = perturbed(spec)
    assert decoder.as_bits(spec, wide) is wide


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_statistics_are_computed_of_bits(dtype, monkeypatch):
    """On one CPU; nothing else of a model changes."""
    spec = spec_of(2, vocab=43)  # of no other test: nothing of it is compiled yet
    given = language_model(spec), perturbed(spec, dtype=jnp.dtype(dtype)), word_tokenizer(43)
    seen = []
    of = decoder._plain_forward
    monkeypatch.setattr(decoder, "_plain_forward", lambda *args, **named: seen.append(named) or of(*args, **named))
    assert np.isfinite(tdd.score(given, ["a b c d", "b c"], "loss", progress=False)["loss"]).all()
    assert seen == ([{"of_bits": True}] if dtype == "bfloat16" else [])


def test_a_function_in_place_of_the_decoders_gets_the_weights():
    """Of a model whose other functions are the decoder's."""
    spec = spec_of(2, vocab=47)
    lm, params = language_model(spec), perturbed(spec, dtype=jnp.bfloat16)

    def halved(params, tokens):
        block = jax.tree.map(lambda leaf: leaf / 2, params["layers"])
        return lm.hidden({**params, "layers": block}, tokens)

    own = dataclasses.replace(lm, spec=("halved", spec), hidden=halved)  # equal specs share their programs
    texts, options = ["a b c d", "b c"], {"progress": False}
    found = tdd.score((own, params, word_tokenizer(47)), texts, "loss", **options)["loss"]
    halves = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf) / 2, jnp.bfloat16), params["layers"])
    scaled = {**params, "layers": halves}
    expected = tdd.score((lm, scaled, word_tokenizer(47)), texts, "loss", **options)["loss"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow("long")
@pytest.mark.parametrize("name", SPECS)
def test_every_kind_of_block_is_sliced_so(name, tokens):
    lm, params = perturbed_model(name)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    parts = tokens[:1, :3], tokens[:, 3:9]

    @jax.jit
    def sliced(params, first, rest):
        past, embedded = lm.prefix(params, first), decoder.embed(lm.spec, params, rest)
        return past, embedded, [decoder.trunk(lm.spec, params, embedded, past=before) for before in (None, past)]

    @jax.jit
    def plain(params, past, embedded):
        return [decoder._plain_forward(lm.spec, params, embedded, before) for before in (None, past)]

    found = sliced(params, *parts)
    jax.tree.map(np.testing.assert_array_equal, sliced(decoder.as_bits(lm.spec, params), *parts), found)
    jax.tree.map(np.testing.assert_array_equal, plain(params, *found[:2]), found[2])


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in ("gpt2", "llama", "bloom") else pytest.mark.slow("grid")) for n in SPECS],
)
def test_hidden_at_places_is_hidden(name):
    """Of the first tokens of rows, with room behind the last of them; the rest of a row may hold anything."""
    lm, params = perturbed_model(name)
    tokens, kept = np.random.default_rng(1).integers(0, 40, (4, 12)).astype(np.int32), [12, 5, 9, 1]
    places = np.concatenate([12 * i + np.arange(count) for i, count in enumerate(kept)])
    room = np.pad(places, (0, 5), constant_values=tokens.size).astype(np.int32)
    found = jax.jit(functools.partial(lm.hidden_at, lm))(params, tokens, room)[: len(places)]
    expected = np.asarray(compiled_hidden(lm.spec, params, tokens)).reshape(48, -1)[places]
    rounding.assert_close(found, expected, roundings=2 * roundings(lm.spec, 12), scale=np.abs(expected).max())
    assert found.shape == (27, expected.shape[1])


def test_an_id_beyond_the_vocabulary_is_nan(model):
    lm, params = model
    logits = np.asarray(compiled_logits(lm.spec, params, np.asarray([[1, 40, 2], [1, 2, 3]], np.int32)))
    assert np.isfinite(logits[1]).all()
    assert np.isnan(logits[0, 1]).all()


@pytest.mark.parametrize("shape", [(0, 4), (2, 1), (1, 12)])
def test_edge_sizes(model, shape):
    lm, params = model
    assert jax.eval_shape(lm.logits, params, np.zeros(shape, np.int32)).shape == (*shape, 40)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (np.zeros((1, 13), np.int32), "length 13, but the model accepts at most 12"),
        (np.zeros((1, 0), np.int32), r"\[B, T\], T >= 1"),
        (np.zeros(5, np.int32), r"\[B, T\]"),
        (np.zeros((1, 5), np.float32), "integer array.*float32"),
    ],
)
def test_bad_tokens(model, tokens, message):
    lm, params = model
    with pytest.raises(InputError, match=message):
        lm.logits(params, tokens)
