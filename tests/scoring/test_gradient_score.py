"""The score grad_norm: by definition, whatever the batch, through interruptions and memory errors."""

import dataclasses
import functools
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_specs import POSITIONS, VOCABULARY, perturbed_model
from padded_statistics import score_rows
from word_tokenizer import word_tokenizer

from tdd.records import TokenStats
from tdd.scoring import programs
from tdd.scoring.score import score
from tdd.scoring.scores.score import parse_score
from tdd.validate import InputError

NAMES = ("grad_norm", "grad_norm:reduction=mean")


@functools.cache
def model(name="gpt2"):
    return (*perturbed_model(name), word_tokenizer(VOCABULARY))


def random_texts(count, seed=0, shortest=2, longest=POSITIONS):
    rng = np.random.default_rng(seed)
    return [
        " ".join(f"{'Ww'[i % 2]}{i // 2}" for i in rng.integers(0, VOCABULARY, length))
        for length in rng.integers(shortest, longest + 1, count)
    ]


def run(given, texts, names=NAMES, **options):
    return score(given, texts, names, **{"token_budget": 256, "progress": False, **options})


TEXTS = random_texts(10, shortest=POSITIONS - 6)  # few lengths: few programs


@functools.cache
def whole():
    return run(model(), TEXTS)


def by_definition(given, text):
    """One backward pass for one text by itself; norm over all parameters, in float64."""
    lm, params, tokenizer = given
    ids = np.array(tokenizer(text)["input_ids"])
    padded = np.zeros((1, POSITIONS), np.int32)
    padded[0, : len(ids)] = ids
    gradient = _gradient(lm)(params, padded, len(ids))
    return np.sqrt(sum(np.square(np.asarray(leaf, np.float64)).sum() for leaf in jax.tree.leaves(gradient)))


@functools.cache
def _gradient(lm):
    def loss(params, tokens, length):
        log_p = jax.nn.log_softmax(lm.logits(params, tokens)[0, :-1], axis=-1)
        taken = jnp.take_along_axis(log_p, tokens[0, 1:, None], axis=1)[:, 0]
        return -jnp.where(jnp.arange(1, tokens.shape[1]) < length, taken, 0).sum()

    return jax.jit(jax.grad(loss))


def test_the_norm_by_definition():
    found = whole()
    expected = [by_definition(model(), text) for text in TEXTS]
    np.testing.assert_allclose(found["grad_norm"], expected, rtol=1e-5)
    np.testing.assert_allclose(found["grad_norm:reduction=mean"] * found.num_tokens, expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "opt", "gemma2"])
@pytest.mark.slow("long")
def test_no_norm_depends_on_batch_bucket_or_padding(name):
    """Tied and untied, projected embeddings, every layout, windows, shared heads, soft caps."""
    texts = TEXTS if name == "gpt2" else TEXTS[:6]
    found = whole() if name == "gpt2" else run(model(name), texts)
    order = np.random.default_rng(1).permutation(len(texts))
    other = run(model(name), [texts[i] for i in order], token_budget=100)
    assert other.provenance["gradient"]["batch_shapes"] != found.provenance["gradient"]["batch_shapes"]
    for label in NAMES:
        np.testing.assert_allclose(other[label], found[label][order], rtol=1e-5)


@pytest.mark.slow("long")
def test_beside_other_scores_nothing_changes():
    texts = TEXTS
    both = run(model(), texts, ("loss", *NAMES))
    np.testing.assert_array_equal(both["grad_norm"], whole()["grad_norm"])
    np.testing.assert_array_equal(both["loss"], run(model(), texts, "loss")["loss"])
    np.testing.assert_array_equal(both.num_tokens, whole().num_tokens)


@pytest.mark.slow("long")
def test_a_model_of_logits_alone():
    lm, params, tokenizer = model()
    bare = dataclasses.replace(lm, spec="bare", hidden=None, readout=None, grad_sqnorm=None)
    found = run((bare, params, tokenizer), random_texts(3), "grad_norm")
    expected = [by_definition(model(), text) for text in random_texts(3)]
    np.testing.assert_allclose(found["grad_norm"], expected, rtol=1e-5)
    assert found.provenance["gradient"]["computed_by"].startswith("automatic differentiation")


@pytest.mark.slow("long")
def test_the_provenance_says_what_was_computed():
    found = whole().provenance
    assert found["gradient"]["token_budget"] == 128
    assert "summed loss over all parameters" in found["gradient"]["definition"]
    assert all(size * length <= 128 for size, length in found["gradient"]["batch_shapes"])
    assert found["batch_shapes"] == []  # no pass for token statistics
    assert 0 <= found["padding_share"] < 1
    assert "gradient" not in run(model(), random_texts(2), "loss").provenance


@pytest.mark.slow("long")
def test_texts_beyond_the_context():
    """Norms of windows do not add up: an error that names the text, unless the texts may be cut."""
    texts = random_texts(3, longest=20) + random_texts(2, seed=3, longest=POSITIONS)
    with pytest.raises(
        InputError, match=r"text '\d' has \d+ tokens .* the limit of 20.*not a sum over windows.*truncate"
    ):
        run(model(), texts, max_length=20)
    for policy in ("window", "error"):
        with pytest.raises(InputError, match=r"limit of 48 \(1 further text is too long as well\); the norm"):
            run(model(), ["w1 " * 60, "w2 " * 50, "w3 w4"], ("loss", *NAMES), long_texts=policy)
    cut = run(model(), texts, max_length=20, long_texts="truncate")
    expected = [by_definition(model(), " ".join(text.split()[:20])) for text in texts]
    np.testing.assert_allclose(cut["grad_norm"], expected, rtol=1e-5)


class Stopped(Exception):
    """Stands for Ctrl-C."""


@pytest.mark.slow("long")
def test_an_interrupted_run_continues_with_the_same_bits(tmp_path, monkeypatch):
    def stop(done, total):
        if done == total - 2:
            raise Stopped

    texts, started = TEXTS, []
    with pytest.raises(Stopped):
        run(model(), texts, ("loss", *NAMES), on_batch=stop, store=tmp_path)
    original, expected = programs.GradientProgram.start, whole()["grad_norm"]

    def spy(self, *arguments):
        started.append(arguments)
        return original(self, *arguments)

    monkeypatch.setattr(programs.GradientProgram, "start", spy)
    found = run(model(), texts, ("loss", *NAMES), store=tmp_path)
    assert len(started) == 2
    np.testing.assert_array_equal(found["grad_norm"], expected)


@pytest.mark.slow("long")
def test_memory_errors_halve_the_batches(monkeypatch, caplog):
    original, rows, expected = programs._norms, [], whole()["grad_norm"]

    def limited(lm, where, params, tokens, mask):
        rows.append(tokens.shape[0])
        if tokens.shape[0] > 1:
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes."
            )
        return original(lm, where, params, tokens, mask)

    monkeypatch.setattr(programs, "_norms", limited)
    with caplog.at_level(logging.WARNING, "tdd"):
        found = run(model(), TEXTS, token_budget=1024)
    np.testing.assert_allclose(found["grad_norm"], expected, rtol=1e-5)
    assert max(rows) > 2
    assert rows[-1] == 1
    assert "out of memory: going on with batches of 1 row of" in caplog.text


def test_tables_of_statistics_and_norms():
    mask = np.array([[False, True, True, True], [False, True, False, False], [False] * 4])
    stats = TokenStats(*[np.zeros((3, 4))] * 8, mask=mask)
    evidence = {"gradient": np.array([6.0, 5.0, 0.0])}
    np.testing.assert_array_equal(score_rows(stats, "grad_norm", evidence), [6, 5, np.nan])
    np.testing.assert_array_equal(score_rows(stats, "grad_norm:reduction=mean", evidence), [2, 5, np.nan])
    with pytest.raises(InputError, match="reduction='max' is unknown; use 'sum'"):
        parse_score("grad_norm:reduction=max")
    with pytest.raises(InputError, match="'grad_norm' has no parameter 'k'; it has reduction"):
        parse_score("grad_norm:k=1")
