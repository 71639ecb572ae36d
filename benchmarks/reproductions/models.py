"""Small models for the reproductions: a pretrained base, fine-tuning it in memory, scoring many short texts.

A reproduction trains and scores a dozen models of one shape. So everything here keeps to one compiled program a shape:
texts are scored in batches of one size and one padded length.
"""

from __future__ import annotations

import functools
import math
import pathlib
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.lab.config import TrainConfig
from tdd.lab.corpus import generate
from tdd.lab.train import CHECKPOINT_FOLDER, train
from tdd.records import LanguageModel
from tdd.scoring.gradients import grad_norms
from tdd.scoring.scores import parse_score
from tdd.scoring.scores.record import Evidence
from tdd.scoring.token_stats import token_stats
from tdd.scoring.tokenise import encode

__all__ = ["Base", "answer_log_probs", "base_model", "fine_tune", "score_table", "width_at"]

_STEP = 16
_TOKENIZER_SEED, _BACKGROUND_SEED, _PARAMETER_SEED = 71_001, 71_002, 71_003
_MIN_WIDTH, _HEAD_WIDTH = 16, 32


class Base(NamedTuple):
    """A pretrained model: its description, its parameters, its tokenizer."""

    lm: LanguageModel
    params: Any
    tokenizer: Any


def width_at(scale: float, width: int = 128) -> int:
    """The width of a model at a scale: `width` at 1, growing with the root of the scale, a multiple of 16."""
    return max(_MIN_WIDTH, round(width * math.sqrt(scale) / 16) * 16)


def base_model(folder: pathlib.Path | None, *, scale: float, seed: int, progress: bool = False) -> Base:
    """A model that was trained on synthetic documents other than those that a reproduction plants.

    At scale 1 the packaged checkpoint (width 128, three layers). At any other a GPT-2 of `width_at(scale)`, trained on
    `300 scale` documents into `folder/base`, and read from there when it is finished.

    Args:
      folder: of the run; None keeps nothing.
      scale: of the run.
      seed: of the run.
      progress: whether to show a bar.
    """
    import tdd
    from tdd.demo.data import demo_files
    from tdd.lab.tokenizer import train_tokenizer
    from tdd.models.decoder import init_params
    from tdd.models.language_model import language_model
    from tdd.models.spec import DecoderSpec

    if scale == 1:
        return Base(*tdd.load(demo_files().checkpoint))
    out = None if folder is None else folder / "base"
    if out is not None and (out / "training.json").exists():
        return Base(*tdd.load(out / CHECKPOINT_FOLDER))
    width, documents = width_at(scale), max(32, round(300 * scale))
    vocabulary = generate(max(64, min(4000, documents * 10)), seed=_TOKENIZER_SEED).texts
    tokenizer = train_tokenizer(vocabulary, vocab_size=1024 if scale > 0.1 else 400)
    spec = DecoderSpec.gpt2(
        vocab_size=len(tokenizer),
        width=width,
        num_layers=3 if scale > 0.1 else 2,
        num_heads=max(1, width // _HEAD_WIDTH),
        max_length=256,
    )
    lm = language_model(spec)
    config = TrainConfig(
        epochs=12 if scale > 0.1 else 2,
        batch_size=16,
        learning_rate=2e-3,
        max_length=256,
        num_buckets=2 if scale > 0.1 else 1,
        seed=seed,
    )
    params = init_params(spec, jax.random.key(_PARAMETER_SEED + seed))
    texts = generate(documents, seed=_BACKGROUND_SEED + seed).texts
    found = train(lm, params, tokenizer, texts, config=config, out=out, progress=progress)
    return Base(lm, found.params, tokenizer)


def fine_tune(
    base: Base,
    texts: Sequence[str],
    *,
    epochs: int,
    learning_rate: float,
    seed: int,
    max_length: int,
    batch_size: int = 16,
    progress: bool = False,
) -> Base:
    """The base with all its parameters trained further on `texts`, each once an epoch; in memory.

    Every text is cut to its first `max_length` tokens, and all of them are padded to one length.
    """
    kept = encode(base.tokenizer, texts, max_tokens=max_length).kept
    config = TrainConfig(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_length=max_length,
        num_buckets=1,
        seed=seed,
    )
    found = train(base.lm, base.params, base.tokenizer, kept, config=config, progress=progress)
    return base._replace(params=found.params)


def score_table(
    model: Base, texts: Sequence[str], names: Sequence[str], *, max_length: int, batch_size: int = 32
) -> dict[str, np.ndarray]:
    """Loss-like scores of every text (lower = more member-like), each [N] float64.

    Args:
      model: whose scores.
      texts: N texts, cut to their first `max_length` tokens as `fine_tune` cuts them.
      names: scores as in `tdd.score`, but those that need another model or other texts.
      max_length: most tokens; all texts are padded to this length.
      batch_size: texts a batch.
    """
    requests = [parse_score(name) for name in names]
    encoded = encode(model.tokenizer, texts, max_tokens=max_length)
    size = np.array([len(zlib.compress(text.encode())) for text in encoded.kept], np.float64)
    tokens, mask = _laid_out(encoded.tokens, max_length, batch_size)
    gradient = any("gradient" in request.score.passes for request in requests)
    labels = tuple(request.label for request in requests)
    found: dict[str, list[np.ndarray]] = {name: [] for name in (*labels, "gradient")}
    for batch in zip(tokens, mask, strict=True):
        for name, column in zip(labels, _rows(model.lm, model.params, *batch, names=labels), strict=True):
            found[name].append(np.asarray(column, np.float64))
        if gradient:
            found["gradient"].append(np.asarray(_norms(model.lm, model.params, *batch), np.float64))
    columns = {name: np.concatenate(parts)[: len(texts)] for name, parts in found.items() if parts}
    evidence = Evidence(compressed_bytes=size, grad_norm=columns.get("gradient"))
    return {
        request.label: np.asarray(request.score.finish(columns[request.label], evidence), np.float64)
        for request in requests
    }


def answer_log_probs(
    model: Base, prompts: Sequence[str], answers: Sequence[Sequence[str]], *, max_length: int, batch_size: int = 32
) -> np.ndarray:
    """Log-probability of each answer after its prompt: [N, options] float64, summed over the answer's tokens.

    The tokens of a text are those of prompt and answer together; the answer's are those that the prompt alone, as far
    as the two agree, does not have.
    """
    alone = encode(model.tokenizer, prompts).tokens
    joined = [prompt + answer for prompt, options in zip(prompts, answers, strict=True) for answer in options]
    rows = encode(model.tokenizer, joined, max_tokens=max_length).tokens
    count = len(answers[0])
    first = [_common(alone[i // count], row) for i, row in enumerate(rows)]
    tokens, mask = _laid_out(rows, max_length, batch_size)
    starts = np.zeros(mask.shape[:2], np.int32)
    starts.reshape(-1)[: len(first)] = first
    mask &= np.arange(mask.shape[2]) >= starts[..., None]
    parts = [np.asarray(_sums(model.lm, model.params, *batch), np.float64) for batch in zip(tokens, mask, strict=True)]
    return np.concatenate(parts)[: len(rows)].reshape(len(prompts), count)


def _common(prompt: np.ndarray, row: np.ndarray) -> int:
    """How many leading tokens agree; at least one, for the first token of a text is never scored."""
    shared = min(len(prompt), len(row))
    differ = np.flatnonzero(prompt[:shared] != row[:shared])
    return max(1, int(differ[0]) if differ.size else shared)


def _laid_out(rows: Sequence[np.ndarray], max_length: int, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and mask of scored targets, [batches, batch_size, T]."""
    length = -(-max_length // _STEP) * _STEP
    batches = -(-len(rows) // batch_size)
    tokens = np.zeros((batches * batch_size, length), np.int32)
    mask = np.zeros(tokens.shape, bool)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = row
        mask[i, 1 : len(row)] = True
    return tokens.reshape(batches, batch_size, length), mask.reshape(batches, batch_size, length)


@functools.partial(jax.jit, static_argnames=("lm", "names"))
def _rows(lm: LanguageModel, params: Any, tokens: jax.Array, mask: jax.Array, *, names: tuple[str, ...]) -> Any:
    stats = token_stats(lm, params, tokens, mask)
    return [parse_score(name).rows(stats) for name in names]


@functools.partial(jax.jit, static_argnames="lm")
def _norms(lm: LanguageModel, params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    return grad_norms(lm, params, tokens, mask).total


@functools.partial(jax.jit, static_argnames="lm")
def _sums(lm: LanguageModel, params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    stats = token_stats(lm, params, tokens, mask)
    return jnp.sum(jnp.where(stats.mask, stats.log_prob, 0), axis=1)
