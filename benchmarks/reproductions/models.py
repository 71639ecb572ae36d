"""Small models for the reproductions: training kept in the run's folder, fine-tuning in memory, scoring short texts.

A reproduction trains and scores a dozen models of one shape, with one compiled program for each shape: texts are scored
in batches of one size and one padded length.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import pathlib
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import tdd
from tdd.demo import retrain
from tdd.demo.data import demo_files
from tdd.lab.corpus import canary_set, generate
from tdd.lab.recipe import TrainConfig
from tdd.lab.state import CHECKPOINT_FOLDER
from tdd.lab.tokens import train_tokenizer
from tdd.lab.train import train
from tdd.models.checkpoint import load
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec
from tdd.records import LanguageModel, Texts
from tdd.scoring.gradients import grad_norms
from tdd.scoring.scores.parts import orders_of
from tdd.scoring.scores.score import as_scores, parse_score
from tdd.scoring.token_stats import token_stats
from tdd.scoring.tokenise import encode

__all__ = [
    "Base",
    "Shape",
    "answer_log_probs",
    "base_model",
    "canary_tokenizer",
    "fine_tune",
    "joined",
    "score_table",
    "scratch_model",
    "seed_of",
    "trained_stages",
    "width_at",
]

_STEP = 16
_TOKENIZER_SEED, _BACKGROUND_SEED, _PARAMETER_SEED, _CANARY_TOKENIZER_SEED = 71_001, 71_002, 71_003, 72_001
_STAGE_CORPUS, _STAGE_TOKENIZER, _STAGE_PARAMETERS = 830_000, 840_000, 850_000
_MIN_WIDTH, _HEAD_WIDTH = 16, 32
_SEEDS = 1_000_000


class Base(NamedTuple):
    """A model: its description, its parameters, its tokenizer."""

    lm: LanguageModel
    params: Any
    tokenizer: Any

    @property
    def num_parameters(self) -> int:
        """The number of parameters."""
        return int(sum(np.size(leaf) for leaf in jax.tree_util.tree_leaves(self.params)))


def seed_of(seed: int, part: int) -> int:
    """The seed of a part of a run, different for all parts of all runs."""
    return seed * _SEEDS + part


def width_at(scale: float, width: int = 128) -> int:
    """The width of a model at a scale: `width` at 1, growing with the root of the scale, a multiple of 16."""
    return max(_MIN_WIDTH, round(width * math.sqrt(scale) / 16) * 16)


@dataclasses.dataclass(frozen=True)
class Shape:
    """The sizes of a GPT-2.

    Attributes:
      width: D; heads are 64 wide.
      num_layers: L.
      context: Largest number of tokens in a sequence.
    """

    width: int
    num_layers: int
    context: int

    @classmethod
    def at(cls, scale: float, *, width: int, num_layers: int = 2, context: int = 128) -> Shape:
        """`width` and `num_layers` at scale 1; the width grows with the root of the scale, the depth with its logarithm
        above 1. Below .1 one layer."""
        wide = max(32, round(width * math.sqrt(scale) / 32) * 32)
        return cls(wide, 1 if scale < 0.1 else num_layers + max(0, round(math.log2(max(scale, 1)))), context)

    def language_model(self, vocab_size: int) -> LanguageModel:
        """The model, without parameters; the same object for equal sizes, so that compiled steps are shared."""
        return language_model(
            DecoderSpec.gpt2(
                vocab_size=vocab_size,
                width=self.width,
                num_layers=self.num_layers,
                num_heads=math.gcd(self.width, max(1, self.width // 64)),
                max_length=self.context,
            )
        )


def base_model(
    folder: pathlib.Path | None, *, scale: float, seed: int, width: int | None = None, progress: bool = False
) -> Base:
    """A model that was trained on synthetic documents other than those that a reproduction plants.

    At scale 1 the packaged checkpoint (width 128, three layers), or a narrower or wider one trained as that was. At any
    other scale a GPT-2 trained on `300 scale` documents. A trained one is kept in `folder/base-WIDTH`, and read from
    there when it is finished.

    Args:
      folder: Folder of the run; None keeps nothing.
      scale: Scale of the run.
      seed: Random seed of the run.
      width: Width of the model; None is `width_at(scale)`.
      progress: Whether to show a bar.
    """
    width = width_at(scale) if width is None else width
    out = None if folder is None else folder / f"base-{width}"
    if scale == 1:
        packaged = Base(*tdd.load(demo_files().checkpoint))
        if width == retrain.WIDTH:
            return packaged
        start = _untrained(packaged.tokenizer, width, retrain.LAYERS, seed)
        return _trained(start, retrain.planted_corpus().training.texts, retrain.CONFIG, out, progress)[0]
    documents = max(32, round(300 * scale))
    vocabulary = generate(max(64, min(4000, documents * 10)), seed=_TOKENIZER_SEED).texts
    tokenizer = train_tokenizer(vocabulary, vocab_size=1024 if scale > 0.1 else 400)
    config = TrainConfig(
        epochs=12 if scale > 0.1 else 2,
        batch_size=16,
        learning_rate=2e-3,
        max_length=256,
        num_buckets=2 if scale > 0.1 else 1,
        seed=seed,
    )
    start = _untrained(tokenizer, width, retrain.LAYERS if scale > 0.1 else 2, seed)
    texts = generate(documents, seed=_BACKGROUND_SEED + seed).texts
    return _trained(start, texts, config, out, progress)[0]


def _untrained(tokenizer: Any, width: int, num_layers: int, seed: int) -> Base:
    """A base model with random parameters."""
    spec = DecoderSpec.gpt2(
        vocab_size=len(tokenizer),
        width=width,
        num_layers=num_layers,
        num_heads=max(1, width // _HEAD_WIDTH),
        max_length=retrain.POSITIONS,
    )
    return Base(language_model(spec), init_params(spec, jax.random.key(_PARAMETER_SEED + seed)), tokenizer)


def canary_tokenizer(vocab_size: int) -> Any:
    """A tokenizer trained on documents and canary examples that no run plants."""
    number = min(3_000, 3 * vocab_size)
    documents = generate(number // 2, seed=_CANARY_TOKENIZER_SEED).texts
    return train_tokenizer((*documents, *canary_set(number, seed=_CANARY_TOKENIZER_SEED).texts), vocab_size=vocab_size)


def scratch_model(
    folder: pathlib.Path | None,
    lm: Any,
    tokenizer: Any,
    documents: Sequence[str],
    *,
    config: TrainConfig,
    progress: bool = False,
) -> tuple[Base, list[dict[str, Any]]]:
    """Train a model on `documents` from random parameters, whose seed is that of `config`.

    Args:
      folder: Holds its state while it is trained and its checkpoint afterwards; a finished one is read. None keeps
        nothing.
      lm: The model, as `Shape.language_model` gives it.
      tokenizer: As `canary_tokenizer` gives it.
      documents: Training texts.
      config: Options of the training.
      progress: Whether to show a bar.

    Returns:
      The model, and one record for each epoch: epoch, step, loss.
    """
    start = Base(lm, init_params(lm.spec, jax.random.key(config.seed)), tokenizer)
    return _trained(start, documents, config, folder, progress)


def trained_stages(
    folder: pathlib.Path | None,
    *,
    documents: int,
    stages: Sequence[int],
    width: int,
    seed: int,
    progress: bool = False,
) -> list[Base]:
    """Models of different skill: model i is model i - 1, trained `stages[i]` epochs more on the same documents.

    Every stage has its own warm-up and cosine, so each model is a finished one; all share their compiled programs.

    Args:
      folder: Folder of the run, which keeps the models as checkpoints `stage-1`, ...; None keeps nothing. Finished
        stages are read from there, and an interrupted one continues.
      documents: Number of synthetic documents to train on.
      stages: Epochs of each stage.
      width: Width of the models, which have two layers.
      seed: Random seed of documents, parameters and order.
      progress: Whether to show bars.
    """
    vocabulary = generate(max(64, min(4000, 8 * documents)), seed=_STAGE_TOKENIZER).texts
    tokenizer = train_tokenizer(vocabulary, vocab_size=1024 if documents > 100 else 400)
    texts = generate(documents, seed=_STAGE_CORPUS + seed).texts
    spec = DecoderSpec.gpt2(
        vocab_size=len(tokenizer), width=width, num_layers=2, num_heads=max(1, width // 32), max_length=128
    )
    models = [Base(language_model(spec), init_params(spec, jax.random.key(_STAGE_PARAMETERS + seed)), tokenizer)]
    for i, epochs in enumerate(stages):
        config = TrainConfig(
            epochs=epochs,
            batch_size=16,
            learning_rate=4e-3,
            warmup=0.1,
            max_length=64,
            num_buckets=1,
            seed=int(np.random.default_rng([seed, i]).integers(2**31)),
        )
        out = None if folder is None else folder / f"stage-{i + 1}"
        models.append(_trained(models[-1], texts, config, out, progress)[0])
    return models[1:]


def joined(examples: Texts, size: int) -> list[str]:
    """Passages of `size` consecutive examples each."""
    return [" ".join(examples.texts[i : i + size]) for i in range(0, len(examples) - size + 1, size)]


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
    """Train all parameters of the base further on `texts`, each once an epoch; in memory.

    Every text is cut to its first `max_length` tokens, and all of them are padded to one length.
    """
    cut = encode(base.tokenizer, texts, max_tokens=max_length).kept
    config = TrainConfig(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_length=max_length,
        num_buckets=1,
        seed=seed,
    )
    return _trained(base, cut, config, None, progress)[0]


def score_table(
    model: Base, texts: Sequence[str], names: Sequence[str], *, max_length: int, batch_size: int = 32
) -> dict[str, np.ndarray]:
    """Loss-like scores of every text (lower = more member-like), each [N] float64.

    Args:
      model: whose scores.
      texts: N texts, cut to their first `max_length` tokens as `fine_tune` cuts them.
      names: scores as in `tdd.score`, but those that need another model, other texts or a prefix.
      max_length: most tokens; all texts are padded to this length.
      batch_size: texts a batch.
    """
    scores = as_scores(names)
    encoded = encode(model.tokenizer, texts, max_tokens=max_length)
    size = np.array([len(zlib.compress(text.encode())) for text in encoded.kept], np.float64)
    batches = _laid_out(encoded.tokens, max_length, batch_size)
    labels = tuple(scores)
    columns = {
        name: np.concatenate(parts) for name, parts in zip(labels, _columns(model, batches, labels), strict=True)
    }
    evidence: dict[str, Any] = {"compressed_bytes": size}
    wanted: dict[str, Any] = {name: one for score in scores.values() for name, one in score.passes().items()}
    for name, one in wanted.items():
        if one.gradient:
            parts = [_norms(model.lm, model.params, *batch) for batch in zip(*batches, strict=True)]
        else:
            changed = [one.change(text) for text in encoded.kept]
            rows = encode(model.tokenizer, changed, max_tokens=max_length).tokens
            (parts,) = _columns(model, _laid_out(rows, max_length, batch_size), ("loss",))
        evidence[name] = np.concatenate([np.asarray(part, np.float64) for part in parts])[: len(texts)]
    return {
        label: np.asarray(score.finish(columns[label][: len(texts)], evidence), np.float64)
        for label, score in scores.items()
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


def _trained(
    start: Base, texts: Sequence[str], config: TrainConfig, folder: pathlib.Path | None, progress: bool
) -> tuple[Base, list[dict[str, Any]]]:
    """The model after training and a record for each epoch; a finished one is read from `folder`."""
    if folder is not None and (folder / "training.json").exists():
        history = json.loads((folder / "training.json").read_text("utf-8"))["history"]
        return start._replace(params=load(folder / CHECKPOINT_FOLDER)[1]), history
    result = train(start.lm, start.params, start.tokenizer, texts, config=config, out=folder, progress=progress)
    return start._replace(params=result.params), [*result.history]


def _columns(model: Base, batches: tuple[np.ndarray, np.ndarray], names: tuple[str, ...]) -> list[list[np.ndarray]]:
    """What each score makes of the tokens alone, a list of batches for each."""
    rows = [_rows(model.lm, model.params, *batch, names=names) for batch in zip(*batches, strict=True)]
    return [[np.asarray(part, np.float64) for part in parts] for parts in zip(*rows, strict=True)]


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
    scores = [parse_score(name) for name in names]
    orders = orders_of([name for score in scores for name in score.reads])
    stats = token_stats(lm, params, tokens, mask, orders=orders)
    return [score.rows(stats) for score in scores]


@functools.partial(jax.jit, static_argnames="lm")
def _norms(lm: LanguageModel, params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    return grad_norms(lm, params, tokens, mask).total


@functools.partial(jax.jit, static_argnames="lm")
def _sums(lm: LanguageModel, params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    stats = token_stats(lm, params, tokens, mask)
    return jnp.sum(jnp.where(stats.mask, stats.log_prob, 0), axis=1)
