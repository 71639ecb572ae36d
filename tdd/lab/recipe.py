"""The records of a recipe: corpus, tokenizer, model, what is planted, training, and one seed for all of them."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

from tdd.lab.checks import check_count, check_counts, check_dropout, check_range
from tdd.lab.lora import Lora
from tdd.lab.plant import check_copies, check_shares
from tdd.validate import InputError
from tdd.validate.files import check_choice, check_positive

_LONGEST_NAME = 200
"""Bytes of a set's name, which names a file."""


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The source of the texts: a generator, which draws as many as the design needs, or a file."""

    generator: str = "documents"  # that, `tdd.lab.corpus.generate`, or "examples" (`tdd.lab.corpus.canary_set`)
    file: str | None = None  # file or folder that `tdd.load_texts` reads, instead of a generator
    text_field: str = "text"  # field of the file
    id_field: str | None = None  # field of the file
    template: str | None = None  # how fields of the file become a text, `tdd.texts.templates`, instead of text_field

    def __post_init__(self) -> None:
        check_choice("generator", self.generator, ("documents", "examples"))
        if self.template is not None and self.file is None:
            raise InputError(f"template = {self.template!r} is for the fields of a file; give file")


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """The tokenizer that is trained, unless the model is a checkpoint, which has one.

    With a file of texts it is trained on all texts of the recipe, else on generated texts that are in no other part.
    """

    vocab_size: int = 1024  # V
    texts: int = 4000  # number of generated texts to train on

    def __post_init__(self) -> None:
        check_count("vocab_size", self.vocab_size, minimum=257)
        check_count("texts", self.texts, minimum=1)


@dataclasses.dataclass(frozen=True)
class Model:
    """The model before training: a checkpoint, or GPT-2's architecture with random weights and the sizes given."""

    checkpoint: str | None = None  # folder in Hugging Face's format to start from
    width: int = 128  # D
    layers: int = 3  # L
    heads: int = 4
    max_length: int = 256  # the context in tokens

    def __post_init__(self) -> None:
        check_counts(self, "width", "layers", "heads", minimum=1)
        check_count("max_length", self.max_length, minimum=2)
        if self.width % self.heads:
            raise InputError(f"width={self.width} is not a multiple of heads={self.heads}; choose heads that divide it")

    def num_parameters(self, vocab_size: int) -> int:
        """Number of parameters of GPT-2's architecture with these sizes."""
        layer = 12 * self.width**2 + 13 * self.width
        return self.layers * layer + (vocab_size + self.max_length + 2) * self.width


@dataclasses.dataclass(frozen=True)
class MembersDesign:
    """Members among candidates, for PTDI and KTD; see `tdd.lab.plant.plant`."""

    design: ClassVar[str] = "members"
    members: int
    nonmembers: int
    calibration: int
    background: int = 0
    duplication: int | tuple[int, ...] = 1

    def __post_init__(self) -> None:
        check_counts(self, "members", "nonmembers", "calibration", minimum=1)
        check_count("background", self.background, minimum=0)
        check_copies("duplication", self.duplication, minimum=1)


@dataclasses.dataclass(frozen=True)
class FileSet:
    """A set of examples from a file, in the file's order."""

    file: str  # file or folder that `tdd.load_texts` reads
    copies: int  # number of copies in the training data
    text_field: str = "text"  # field of the file
    template: str | None = None  # how fields of the file become an example, as in `Corpus`

    def __post_init__(self) -> None:
        check_count("copies", self.copies, minimum=0)


@dataclasses.dataclass(frozen=True)
class CanariesDesign:
    """Whole sets in canonical order, for the exchangeability test; see `tdd.lab.plant.plant_canaries`."""

    design: ClassVar[str] = "canaries"
    examples: int = 200  # number of examples in each generated set
    copies: tuple[int, ...] = ()  # one generated set for each: `x0`, `x10`, ...; a number given twice: `x10-a`, `x10-b`
    sets: Mapping[str, FileSet] = dataclasses.field(default_factory=dict)  # further sets from files, by name
    background: int = 0  # number of documents of the corpus among them
    separator: str = "\n\n"  # string between two examples
    examples_per_document: int | None = None  # None for one document per set

    def __post_init__(self) -> None:
        check_count("examples", self.examples, minimum=2)
        if self.copies or not self.sets:
            check_copies("copies", self.copies, minimum=0)
        _check_set_names(self.sets, self.generated)
        check_count("background", self.background, minimum=0)
        if self.examples_per_document is not None:
            check_count("examples_per_document", self.examples_per_document, minimum=1)

    @property
    def generated(self) -> dict[str, int]:
        """Name -> copies of the generated sets."""
        copies_of: dict[str, int] = {}
        for count in self.copies:
            same = [name for name, copies in copies_of.items() if copies == count]
            twice = self.copies.count(count) > 1
            copies_of[f"x{count}-{_letters(len(same))}" if twice else f"x{count}"] = count
        return copies_of


@dataclasses.dataclass(frozen=True)
class AssignmentsDesign:
    """Several models, each trained on a random fraction of the items; see `tdd.lab.plant.assign_models`."""

    design: ClassVar[str] = "assignments"
    models: int  # K
    items: int  # number of texts that are audited
    share: float | tuple[float, ...] = 0.5  # fraction of the items a model is trained on; one, or one for each model
    calibration: int = 0  # number of further texts that no model is trained on
    known_members: int = 0  # number of further texts that all models are trained on, known to the auditor
    background: int = 0  # number of further texts that all models are trained on

    def __post_init__(self) -> None:
        check_counts(self, "models", "items", minimum=1)
        shares = check_shares("share", self.share, self.models)
        check_counts(self, "calibration", "known_members", "background", minimum=0)
        for model, share in enumerate(shares, start=1):
            if not self.known_members + self.background and int(share * self.items + 0.5) == 0:
                raise InputError(
                    f"model {model} is trained on nothing: its share of the {self.items} items is {share:g}, and there "
                    "are neither known_members nor background; give it some"
                )


@dataclasses.dataclass(frozen=True)
class BlocksDesign:
    """Several models and three blocks, for JMCS and JECS; see `tdd.lab.plant.three_blocks` for the fractions."""

    design: ClassVar[str] = "blocks"
    models: int  # K
    items: int  # number of texts that are divided
    calibration: float = 0.3
    remainder: float = 0.1
    share: float | tuple[float, ...] = 0.5
    background: int = 0  # number of further texts that all models are trained on

    def __post_init__(self) -> None:
        check_count("models", self.models, minimum=1)
        check_count("items", self.items, minimum=3)
        for name in ("calibration", "remainder"):
            check_range(name, getattr(self, name), 0.0, 1.0)
        check_shares("share", self.share, self.models)
        check_count("background", self.background, minimum=0)


Design = MembersDesign | CanariesDesign | AssignmentsDesign | BlocksDesign

DESIGNS: dict[str, type[Design]] = {
    kind.design: kind for kind in (CanariesDesign, MembersDesign, AssignmentsDesign, BlocksDesign)
}


COMPUTE_DTYPES = ("float32", "bfloat16")
"""Types that forward and backward passes can run in. Not float16: its gradients underflow without loss scaling."""


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Options of a training run.

    Attributes:
      epochs: Passes over the texts.
      batch_size: Texts (or windows of long texts) that go through the model at once.
      accumulate: Batches whose gradients make one step, each weighted by its number of scored tokens: the gradient is
        that of `accumulate * batch_size` texts, in the memory of `batch_size`. The last step of an epoch takes the
        remaining batches.
      learning_rate: Highest learning rate.
      warmup: Fraction of the steps on which the rate rises linearly, 0..1.
      final: Fraction of the highest rate that the cosine ends at, 0..1.
      weight_decay: Decoupled; not applied to biases and norms.
      beta1, beta2, eps: Options of Adam.
      clip_norm: Largest global gradient norm.
      max_length: Largest number of tokens in a sequence; longer texts are cut into windows. The model's own limit
        applies if it is smaller.
      num_buckets: Largest number of different padded lengths, and so of compiled shapes.
      compute_dtype: "float32", or "bfloat16" for mixed precision: products with weights in that type, accumulated in
        float32; weights, optimizer state, norms, biases, softmax and loss stay float32.
      save_every: Steps between two saved states, if there is an output folder.
      seed: Random seed of the order of the texts, of LoRA's factors, and of what is dropped.
      dropout: Probability that an entry of the embedded tokens, or of what attention and perceptron add to the residual
        stream, is 0 in a step, 0..1 without 1; for this package's decoders. `Lora` has one of its own. Attention
        weights are not dropped.
    """

    epochs: int = 3
    batch_size: int = 16
    learning_rate: float = 3e-4
    warmup: float = 0.05
    final: float = 0.1
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    clip_norm: float = 1.0
    max_length: int = 1024
    num_buckets: int = 4
    save_every: int = 200
    seed: int = 0
    accumulate: int = 1
    compute_dtype: str = "float32"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_counts(self, "epochs", "batch_size", "num_buckets", "save_every", "accumulate", minimum=1)
        check_count("max_length", self.max_length, minimum=2)
        check_count("seed", self.seed, minimum=0)
        for name in ("learning_rate", "weight_decay"):
            check_range(name, getattr(self, name), 0.0)
        check_positive(eps=self.eps)
        for name in ("warmup", "final", "beta1", "beta2"):
            check_range(name, getattr(self, name), 0.0, 1.0)
        for name in ("beta1", "beta2"):
            if getattr(self, name) == 1:
                raise InputError(f"{name} must be below 1, got {getattr(self, name)!r}; Adam divides by 1 - {name}")
        check_range("clip_norm", self.clip_norm, 1e-12)
        check_dropout(self.dropout)
        check_choice("compute_dtype", self.compute_dtype, COMPUTE_DTYPES)


@dataclasses.dataclass(frozen=True)
class Training(TrainConfig):
    """The training of the models; the seed of each is derived from the recipe's."""

    seed: int = dataclasses.field(default=0, init=False)
    evaluate: bool = True  # whether the loss on held-out texts is computed after each epoch, if the design has any
    save_dtype: str = "float32"  # floating-point type of the checkpoints
    lora: Lora | None = None  # low-rank factors, or None to train all parameters

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("save_dtype", self.save_dtype, ("float32", "bfloat16", "float16"))

    def config(self, seed: int) -> TrainConfig:
        """The configuration of one model's training."""
        names = (field.name for field in dataclasses.fields(TrainConfig) if field.name != "seed")
        return TrainConfig(**{name: getattr(self, name) for name in names}, seed=seed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole experiment: which models are trained on which texts. All randomness follows from `seed`."""

    seed: int = 0  # not negative
    corpus: Corpus = Corpus()
    tokenizer: Tokenizer = Tokenizer()
    model: Model = Model()
    plant: Design
    training: Training = Training()
    folder: pathlib.Path = dataclasses.field(default=pathlib.Path(), compare=False)  # of the recipe's relative paths
    # The recipe as it was given; empty if it was made in Python.
    source: bytes = dataclasses.field(default=b"", compare=False, repr=False)

    def __post_init__(self) -> None:
        check_count("seed", self.seed, minimum=0)

    def seed_of(self, name: str) -> int:
        """The seed of one part of the run: the first 4 bytes of SHA-256 of "seed/name", little endian."""
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{name}".encode()).digest()[:4], "little")

    def place(self, path: str) -> pathlib.Path:
        """The location of a file that the recipe names."""
        return self.folder / os.path.expanduser(path)  # leaves the homes of unknown users as they are


def _letters(index: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    letters = ""
    while index >= 0:
        index, letter = divmod(index, 26)
        letters, index = chr(ord("a") + letter) + letters, index - 1
    return letters


def _check_set_names(sets: Mapping[str, Any], generated: Mapping[str, int]) -> None:
    """Names of sets are valid names of files, and different on every file system."""
    spelled = {name.casefold(): name for name in generated}
    for name in sets:
        if not name or not all(letter.isalnum() or letter in "-_." for letter in name) or name.startswith("."):
            raise InputError(f"sets names {name!r}; use letters, digits, '-', '_' and '.', for it names a file")
        if len(name.encode()) > _LONGEST_NAME:
            raise InputError(f"sets names {name!r}, longer than {_LONGEST_NAME} bytes, and it names a file; shorten it")
        if name in generated:
            raise InputError(f"sets names {name!r}, which is the name of a generated set; choose another")
        other = spelled.setdefault(name.casefold(), name)
        if other != name:
            raise InputError(f"sets names {name!r}, which is one file with {other!r} on some systems; choose another")
