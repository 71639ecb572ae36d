"""Models trained from random parameters on planted documents, kept in the run's folder and read from there."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tdd.lab.canaries import canary_set
from tdd.lab.config import TrainConfig
from tdd.lab.corpus import generate
from tdd.records import Texts

if TYPE_CHECKING:
    from benchmarks.reproductions.models import Base

__all__ = ["Shape", "canary_tokenizer", "joined", "scratch_model", "seed_of"]

_HEAD_WIDTH = 64
_TOKENIZER_SEED = 72_001
_SEEDS = 1_000_000


@dataclasses.dataclass(frozen=True)
class Shape:
    """A GPT-2 by its sizes.

    Attributes:
      width: D, of the hidden states; heads are 64 wide.
      num_layers: L.
      context: most tokens of a sequence.
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

    def language_model(self, vocab_size: int) -> Any:
        """The model, without parameters; the same object for equal sizes, so that compiled steps are shared."""
        from tdd.models.language_model import language_model
        from tdd.models.spec import DecoderSpec

        return language_model(
            DecoderSpec.gpt2(
                vocab_size=vocab_size,
                width=self.width,
                num_layers=self.num_layers,
                num_heads=math.gcd(self.width, max(1, self.width // _HEAD_WIDTH)),
                max_length=self.context,
            )
        )


def seed_of(seed: int, part: int) -> int:
    """The seed of a part of a run; no part of one run has that of a part of another."""
    return seed * _SEEDS + part


def canary_tokenizer(vocab_size: int) -> Any:
    """A tokenizer that learned from documents and canary examples which no run plants."""
    from tdd.lab.tokenizer import train_tokenizer

    number = min(3_000, 3 * vocab_size)
    texts = (*generate(number // 2, seed=_TOKENIZER_SEED).texts, *canary_set(number, seed=_TOKENIZER_SEED).texts)
    return train_tokenizer(texts, vocab_size=vocab_size)


def scratch_model(
    folder: pathlib.Path | None,
    lm: Any,
    tokenizer: Any,
    documents: Sequence[str],
    *,
    config: TrainConfig,
    progress: bool = False,
) -> tuple[Base, list[dict[str, Any]]]:
    """A model trained on `documents` from random parameters.

    Args:
      folder: where its state is kept while it is trained and its checkpoint afterwards; a finished one is read. None
        keeps nothing.
      lm: the model, as of `Shape.language_model`.
      tokenizer: as of `canary_tokenizer`.
      documents: what to train on.
      config: how; its seed is that of the parameters too.
      progress: whether to show a bar.

    Returns:
      The model, and a line an epoch: epoch, step, loss.
    """
    import json

    import jax

    from benchmarks.reproductions.models import Base
    from tdd.lab.train import CHECKPOINT_FOLDER, train
    from tdd.models.checkpoint import load
    from tdd.models.decoder import init_params

    if folder is not None and (folder / "training.json").exists():
        history = json.loads((folder / "training.json").read_text("utf-8"))["history"]
    else:
        params = init_params(lm.spec, jax.random.key(config.seed))
        found = train(lm, params, tokenizer, documents, config=config, out=folder, progress=progress)
        if folder is None:
            return Base(lm, found.params, tokenizer), [*found.history]
        history = [*found.history]
    return Base(lm, load(folder / CHECKPOINT_FOLDER)[1], tokenizer), history


def joined(examples: Texts, size: int, *, separator: str = " ") -> list[str]:
    """Passages of `size` consecutive examples each."""
    return [separator.join(examples.texts[i : i + size]) for i in range(0, len(examples) - size + 1, size)]
