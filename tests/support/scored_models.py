"""Small models with a word tokenizer, and texts of unequal length for them."""

import functools

import jax
import numpy as np
from decoder_specs import perturbed_params
from word_tokenizer import word_tokenizer

from tdd.models.language_model import language_model
from tdd.models.spec import Attention, DecoderSpec, LayerNorm, LearnedPositions, Mlp
from tdd.scoring import programs

VOCABULARY = 300


def small_model(seed=0, *, vocabulary=VOCABULARY, positions=64, width=16):
    spec = DecoderSpec(
        vocab_size=vocabulary,
        width=width,
        num_layers=2,
        norm=LayerNorm(),
        positions=LearnedPositions(positions),
        attention=Attention(2, width // 2, ((width // 2) ** -0.5,) * 2),
        mlp=Mlp(3 * width, "gelu_tanh"),
    )
    return language_model(spec), perturbed_params(spec, seed)


def scored_model(seed=0, *, bos=False, **sizes):
    """(lm, params, tokenizer), as `tdd.load` returns it."""
    return (*small_model(seed, **sizes), word_tokenizer(sizes.get("vocabulary", VOCABULARY), bos=bos))


def random_texts(count, seed=0, shortest=2, longest=60):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(shortest, longest + 1, count)
    return [" ".join(_word(i) for i in rng.integers(0, VOCABULARY, length)) for length in lengths]


def ids(tokenizer, text):
    return tokenizer([text], add_special_tokens=True)["input_ids"][0]


def log_p_of_tokens(model, before, tokens):
    """Log-probabilities [tokens - 1, vocabulary] of every token but the first, behind `before`, in float64.

    Zeros follow, up to the model's longest row: one shape, which is compiled once, and causal attention ignores them.
    """
    lm, params, _ = model
    row, stop = np.zeros((1, lm.max_length), np.int32), len(before) + len(tokens)
    row[0, :stop] = [*before, *tokens]
    logits = np.asarray(_logits(lm, params, row), np.float64)[0, len(before) : stop - 1]
    top = logits.max(-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


def losses_of_tokens(model, before, tokens):
    """-log p of every token but the first, behind `before`: from the logits of the joined tokens, in float64."""
    return -log_p_of_tokens(model, before, tokens)[np.arange(len(tokens) - 1), tokens[1:]]


@functools.partial(jax.jit, static_argnums=0)
def _logits(lm, params, row):
    return lm.logits(params, row)


class Stopped(Exception):
    """Stands for Ctrl-C."""


def stop_after(batches):
    def on_batch(done, total):
        if done == batches:
            raise Stopped

    return on_batch


def rows_computed(monkeypatch):
    """Rows that go through a model from now on, batch by batch."""
    started, original = [], programs.TokenProgram.start

    def spy(self, pieces, *rest):
        started.append(sum(map(len, pieces)))
        return original(self, pieces, *rest)

    monkeypatch.setattr(programs.TokenProgram, "start", spy)
    return started


def assert_same(found, expected, rtol=0.0):
    """Tables of scores are equal, to the bit or but for rounding."""
    assert found.ids == expected.ids
    np.testing.assert_array_equal(found.num_tokens, expected.num_tokens)
    for name in expected.values:
        np.testing.assert_allclose(found[name], expected[name], rtol=rtol, atol=rtol, err_msg=name)


def _word(index):
    return f"w{index // 2}" if index % 2 else f"W{index // 2}"
