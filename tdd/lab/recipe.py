"""What a recipe says: corpus, tokenizer, model, planting and training, and one seed for all of them."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib

from tdd.lab.config import TrainConfig
from tdd.lab.designs import Design
from tdd.lab.lora import Lora
from tdd.validate.checkpoints import check_choice
from tdd.validate.errors import InputError
from tdd.validate.lab import check_count

__all__ = ["GENERATORS", "Corpus", "Model", "Recipe", "Tokenizer", "Training", "derive_seed"]

GENERATORS = ("documents", "examples")


def derive_seed(seed: int, name: str) -> int:
    """The seed of one part of a run: the first 4 bytes of SHA-256 of "seed/name", little endian."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:4], "little")


def _check_heads(width: int, heads: int) -> None:
    """Heads divide the width."""
    if width % heads:
        raise InputError(f"width={width} is no multiple of heads={heads}; choose heads that divide it")


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Where texts come from.

    Attributes:
      generator: "documents" (`tdd.lab.corpus.generate`) or "examples" (`tdd.lab.canaries.canary_set`); as many as the
        design needs are drawn.
      file: a file or folder that `tdd.load_texts` reads, in place of a generator.
      text_field, id_field: of the file.
    """

    generator: str = "documents"
    file: str | None = None
    text_field: str = "text"
    id_field: str | None = None

    def __post_init__(self) -> None:
        check_choice("generator", self.generator, GENERATORS)


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """The tokenizer that is trained, where the model is no checkpoint, which has one.

    Attributes:
      vocab_size: V.
      texts: how many generated texts it is trained on, which are in no other part; with a file of texts it is trained
        on all texts of the recipe alike.
    """

    vocab_size: int = 1024
    texts: int = 4000

    def __post_init__(self) -> None:
        check_count("vocab_size", self.vocab_size, minimum=257)
        check_count("texts", self.texts, minimum=1)


@dataclasses.dataclass(frozen=True)
class Model:
    """The model before training.

    Attributes:
      checkpoint: a folder in Hugging Face's format to start from; None starts GPT-2's architecture from random
        weights, of the sizes below.
      width, layers, heads, max_length: D, L, heads, and the context in tokens.
    """

    checkpoint: str | None = None
    width: int = 128
    layers: int = 3
    heads: int = 4
    max_length: int = 256

    def parameters(self, vocab_size: int) -> int:
        """How many parameters GPT-2's architecture has in these sizes."""
        layer = 12 * self.width**2 + 13 * self.width
        return self.layers * layer + (vocab_size + self.max_length + 2) * self.width

    def __post_init__(self) -> None:
        for name in ("width", "layers", "heads"):
            check_count(name, getattr(self, name), minimum=1)
        check_count("max_length", self.max_length, minimum=2)
        _check_heads(self.width, self.heads)


@dataclasses.dataclass(frozen=True)
class Training:
    """How models are trained.

    Attributes:
      config: everything but the seed, which is the recipe's.
      lora: low-rank factors, or None to train all parameters.
      evaluate: whether the loss on held-out texts is computed after each epoch, where the design has any.
      save_dtype: of the checkpoints.
    """

    config: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    lora: Lora | None = None
    evaluate: bool = True
    save_dtype: str = "float32"

    def __post_init__(self) -> None:
        check_choice("save_dtype", self.save_dtype, ("float32", "bfloat16", "float16"))


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A whole experiment: what is trained on what. Everything random follows from `seed` (`derive_seed`).

    Attributes:
      seed: non-negative.
      corpus, tokenizer, model, plant, training: the sections.
      folder: paths in the recipe are relative to it.
      source: the recipe as it was given; empty where it was made in Python.
    """

    plant: Design
    seed: int = 0
    corpus: Corpus = Corpus()
    tokenizer: Tokenizer = Tokenizer()
    model: Model = Model()
    training: Training = Training()
    folder: pathlib.Path = dataclasses.field(default=pathlib.Path(), compare=False)
    source: bytes = dataclasses.field(default=b"", compare=False, repr=False)

    def __post_init__(self) -> None:
        check_count("seed", self.seed, minimum=0)

    def seed_of(self, name: str) -> int:
        """The seed of one part of the run."""
        return derive_seed(self.seed, name)

    def place(self, path: str) -> pathlib.Path:
        """Where a file lies that the recipe names."""
        return self.folder / os.path.expanduser(path)  # leaves the homes of unknown users as they are
