"""A shared prefix gives the hidden states of whole sequences, in every way a decoder can differ."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding
from decoder_specs import POSITIONS, SPECS, VOCABULARY, assert_logits, perturbed_model, perturbed_params, roundings
from family_configs import CONFIGURATIONS
from family_files import golden, write

from tdd.models.attention import PrefixCache
from tdd.models.checkpoint import load
from tdd.models.language_model import language_model
from tdd.validate import InputError


@functools.cache
def model(name):
    """Model, parameters, and its functions compiled."""
    lm, params = perturbed_model(name)
    return lm, params, *map(hasty, (lm.hidden, lm.prefix, lm.hidden_after))


def hasty(function):
    """Compiled without optimisation: compiling is most of the time here."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def draw(rows, length, vocabulary=VOCABULARY, seed=0):
    return np.random.default_rng(seed).integers(0, vocabulary, (rows, length)).astype(np.int32)


def sequences(shared, own):
    return np.concatenate([np.broadcast_to(shared, (len(own), shared.shape[1])), own], axis=1)


def close(found, expected, spec, length):
    """Both are float32, so that each may be off by its chain of roundings."""
    rounding.assert_close(found, expected, roundings=2 * roundings(spec, length), scale=np.abs(expected).max())


@pytest.mark.parametrize(("before", "after"), [(11, 1), (POSITIONS - 7, 7)])
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.slow("long")
def test_hidden_after_is_hidden_of_the_whole(name, before, after):
    check(*perturbed_model(name), before, after)


def test_one_token_after_one():
    check(*perturbed_model("gemma2"), 1, 1)


def check(lm, params, before, after):
    shared, own = draw(1, before, lm.vocab_size), draw(3, after, lm.vocab_size, seed=1)

    def both(params, shared, own, whole):
        return lm.hidden(params, whole)[:, before:], lm.hidden_after(params, lm.prefix(params, shared), own)

    with jax.default_matmul_precision("highest"):
        expected, found = hasty(both)(params, shared, own, sequences(shared, own))
    assert found.dtype == expected.dtype
    assert np.abs(expected).max() > 0.1
    close(found, expected, lm.spec, before + after)


@pytest.mark.parametrize("name", ["opt", "gpt_neo", "qwen3", "gemma2"])  # positions and windows of every kind
@pytest.mark.slow("long")
def test_padding_of_the_prefix_changes_nothing(name):
    """One program for prefixes of many lengths: what stands in the padding is irrelevant, to the last bit."""
    lm, params, hidden, prefix, hidden_after = model(name)
    own = draw(2, 5, seed=1)
    shared = draw(1, 20)
    for real in (1, 13):
        # padding on the right leaves what stands before it alone, so one program gives every expected value
        whole = np.pad(sequences(shared[:, :real], own), [(0, 0), (0, 20 - real)])
        expected = hidden(params, whole)[:, real : real + 5]
        found = hidden_after(params, prefix(params, shared, np.int32(real)), own)
        close(found, np.asarray(expected), lm.spec, 25)
        other = shared.copy()
        other[:, real:] = 3
        again = hidden_after(params, prefix(params, other, np.int32(real)), own)
        np.testing.assert_array_equal(found, again)
    assert hidden_after._cache_size() == 1


EACH_KIND = "opt", "gpt_neo", "gptj", "bloom", "mistral, window", "gemma2", "gemma3_text", "cohere2", "deepseek_v2"
"""Of positions, windows and attention, one by one; the others repeat them."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in EACH_KIND else pytest.mark.slow("grid")) for name in CONFIGURATIONS]
)
def test_every_family(tmp_path, name):
    """Rotary stretches, windows by layer, offsets, widths of their own: the golden logits, behind a prefix of 13."""
    lm, params, _ = load(write(tmp_path, name)[0])
    tokens = np.asarray(golden()["tokens"], np.int32)

    def logits(params, shared, own):
        found = lm.hidden_after(params, lm.prefix(params, shared), own) @ lm.readout(params).T
        return found if lm.soft_cap is None else lm.soft_cap * jnp.tanh(found / lm.soft_cap)

    with jax.default_matmul_precision("highest"):
        found = hasty(logits)(params, tokens[:, :13], np.repeat(tokens[:, 13:], 2, axis=0))
    expected = np.asarray(golden()["configurations"][name]["logits"])[0, 3:]  # of the tokens 15 and 20
    for row in np.asarray(found)[:, 2::5, ::7]:
        assert_logits(row, expected, roundings(lm.spec, tokens.shape[1]))


@pytest.mark.parametrize("name", ["qwen3", "gemma2"])
@pytest.mark.slow("long")
def test_long_suffixes_go_in_blocks_of_queries(name):
    """Beyond 128 queries there are several blocks; a window then leaves out blocks of the sequence's own keys."""
    spec = dataclasses.replace(SPECS[name], positions=dataclasses.replace(SPECS[name].positions, max_length=380))
    check(language_model(spec), perturbed_params(spec, 1), 90, 290)


def test_bfloat16_parameters():
    _, _, hidden, prefix, hidden_after = model("llama")
    params = perturbed_params(SPECS["llama"], dtype=jnp.bfloat16)
    shared, own = draw(1, 8), draw(2, 6, seed=1)
    cache = prefix(params, shared)
    assert {cache.key.dtype, cache.value.dtype} == {jnp.dtype("float32")}
    found = hidden_after(params, cache, own)
    assert found.dtype == jnp.bfloat16
    expected = np.asarray(hidden(params, sequences(shared, own))[:, 8:], np.float32)
    assert np.abs(np.asarray(found, np.float32) - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.slow("long")
def test_the_cache_has_one_row_and_grouped_heads():
    lm, params, *_ = model("llama")
    cache = jax.eval_shape(lm.prefix, params, draw(1, 8))
    assert isinstance(cache, PrefixCache)
    assert cache.key.shape == cache.value.shape == (2, 1, 8, 2, 4)
    assert cache.num_real is None


def test_the_prefix_is_not_copied_for_each_row():
    """Nothing of B P G d numbers exists in the program: its largest array is that of the scores, B H T P."""
    lm, params, *_ = model("llama")
    cache = jax.eval_shape(lm.prefix, params, draw(1, 40))
    jaxpr = str(jax.make_jaxpr(lm.hidden_after)(params, cache, draw(5, 2)))
    assert "f32[5,2,2,2,40]" in jaxpr
    assert "[5,40,2,4]" not in jaxpr
    assert "[5,2,40,4]" not in jaxpr


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.slow("long")
def test_beyond_the_last_position(name):
    lm, params, hidden, prefix, hidden_after = model(name)
    shared, own = draw(1, POSITIONS - 4), draw(2, 5, seed=1)
    message = f"prefix of {POSITIONS - 4} tokens and 5 tokens after it make {POSITIONS + 1}.*at most {POSITIONS}"
    padded = prefix(params, draw(1, POSITIONS), np.int32(POSITIONS - 4))
    for function, cache in [
        (lm.hidden_after, prefix(params, shared)),
        (hidden_after, prefix(params, shared)),
        (lm.hidden_after, padded),
    ]:
        with pytest.raises(InputError, match=message):
            function(params, cache, own)
    found = np.asarray(hidden_after(params, padded, own))  # the length is not known while tracing
    np.testing.assert_array_equal(np.isnan(found).any(axis=(0, 2)), [False] * 4 + [True])
    whole = sequences(draw(1, POSITIONS)[:, : POSITIONS - 4], own[:, :4])
    close(found[:, :4], np.asarray(hidden(params, whole))[:, -4:], lm.spec, POSITIONS)


@pytest.mark.parametrize(
    ("tokens", "num_real", "message"),
    [
        (np.zeros((2, 3), np.int32), None, r"one row \[1, P\], got \(2, 3\)"),
        (np.zeros((1, 0), np.int32), None, "T >= 1"),
        (np.zeros((1, 3)), None, "integer array"),
        (np.zeros((1, POSITIONS + 1), np.int32), None, f"at most {POSITIONS}"),
        (np.zeros((1, 3), np.int32), 0, r"num_real must be in 1\.\.3, the tokens given, got 0"),
        (np.zeros((1, 3), np.int32), 4, r"num_real must be in 1\.\.3"),
        (np.zeros((1, 3), np.int32), 1.5, "num_real must be one integer, got 1.5"),
    ],
)
def test_unusable_prefixes(tokens, num_real, message):
    lm, params, *_ = model("gpt2")
    with pytest.raises(InputError, match=message):
        lm.prefix(params, tokens, num_real)


def test_a_token_beyond_the_vocabulary_is_nan():
    _, params, _, prefix, hidden_after = model("gpt2")
    own = draw(2, 4, seed=1)
    own[1, 2] = VOCABULARY
    found = np.isnan(hidden_after(params, prefix(params, draw(1, 6)), own))
    np.testing.assert_array_equal(found.all(axis=(1, 2)), [False, True])
    assert not found[0].any()
