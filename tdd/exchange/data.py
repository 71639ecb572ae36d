"""What enters a test of order: its options; data sets from any source, cut into shards and put into other orders."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.procedures.exchangeability import TESTS
from tdd.records import Texts
from tdd.scoring.devices import Devices
from tdd.scoring.how import Run, RunOptions
from tdd.texts import Rows, hash_texts, read_rows
from tdd.texts import rows as text_checks
from tdd.texts.shards import paths_of_list
from tdd.texts.templates import with_text
from tdd.validate import InputError, arrays
from tdd.validate.arrays import as_count

_logger = logging.getLogger("tdd")

_MOST_LABELS = 50
_SHOWN = 60


@dataclasses.dataclass(frozen=True)
class ExampleSet:
    """Examples in their canonical order."""

    name: str  # what reports call the data set
    examples: tuple[str, ...]  # N texts
    source: str  # their origin
    sha256: str  # SHA-256 of the examples in their order
    # further fields with few distinct values, as labels; their order is looked at without the model
    fields: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.examples)


def load_sets(
    data: Any, *, template: str | None = None, text_field: str | None = None, format: str | None = None
) -> tuple[ExampleSet, ...]:
    """One data set, or several.

    Args:
      data: A source as `tdd.load_texts` takes it (a path, a list of strings, a table), which is one data set; a list of
        paths, `Texts` or tables, or a dict from name to source, which are several. A list of strings
        that are no paths is one data set of these examples.
      template: As in `load_examples`, as are `text_field` and `format`.

    Raises:
      InputError: as `load_examples`; no data set, or two of one name.
    """
    if isinstance(data, Mapping):
        named = [(str(name), source) for name, source in data.items()]
    elif isinstance(data, (list, tuple)) and data and (paths_of_list(data) or not isinstance(data[0], (str, Mapping))):
        named = [(_name_of(source, number), source) for number, source in enumerate(data, 1)]
    else:
        named = [(_name_of(data, 1), data)]
    if not named:
        raise InputError("data names no data set; give at least one")
    names = [name for name, _ in named]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"two data sets are called {twice[0]!r}; give data as a dict with a name for each")
    return tuple(
        load_examples(source, name=name, template=template, text_field=text_field, format=format)
        for name, source in named
    )


def load_examples(
    source: Any,
    *,
    name: str | None = None,
    template: str | None = None,
    text_field: str | None = None,
    format: str | None = None,
) -> ExampleSet:
    """One data set.

    Args:
      source: A path or a Python object, as in `tdd.load_texts`; its order is the canonical one.
      name: What reports call it; by default the file's name without its ending.
      template: How a row becomes an example, as in `tdd.texts.templates.with_text`; None takes `text_field`.
      text_field: Field with the text.
      format: Format of a file, if its ending does not tell.

    Raises:
      InputError: as `tdd.load_texts`; a template with an unknown field; a row that lacks one; a blank example; examples
        that are all equal.

    >>> load_examples([{"q": "one?", "a": 1}, {"q": "two?", "a": 2}], template="{q} {a}").examples
    ('one? 1', 'two? 2')
    """
    name = _name_of(source, 1) if name is None else name
    labels: dict[str, tuple[Any, ...]] = {}
    if isinstance(source, Texts):
        if template is not None:
            raise InputError("template is for rows with fields, and Texts have none; leave it out")
        examples, place = source.texts, source.source
    else:
        rows = read_rows(source, format=format)
        examples, place, labels = _examples(rows, template, text_field), rows.source, _labels(rows)
    _check_examples(name, examples)
    return ExampleSet(name, tuple(examples), place, hash_texts([""] * len(examples), examples), labels)


def _examples(rows: Rows, template: str | None, text_field: str | None) -> tuple[str, ...]:
    if template is None:
        field = text_checks.text_field_of(rows.source, text_field, rows.fields) if rows.fields else ""
        if field not in ("", text_field or "text"):
            _logger.warning('%s: no field "text", reading the examples from %r', rows.source, field)
        return text_checks.text_column(rows.source, rows.column(field), rows.place)
    return text_checks.text_column(rows.source, with_text(rows, template).column("text"), rows.place)


def _labels(rows: Rows) -> dict[str, tuple[Any, ...]]:
    """Fields whose values are few, simple and present in every row."""
    labels = {}
    for field in rows.fields:
        values = tuple(rows.column(field))
        simple = all(isinstance(value, (str, int, bool)) for value in values)
        if simple and 2 <= len(set(values)) <= min(_MOST_LABELS, len(values) // 2):
            labels[field] = values
    return labels


def _name_of(source: Any, number: int) -> str:
    if isinstance(source, Texts):
        source = source.source if source.source and source.source != "memory" else f"data {number}"
        return pathlib.PurePath(source).name
    if not isinstance(source, (str, os.PathLike)):
        return f"data {number}"
    name = pathlib.PurePath(source).name
    return name.removesuffix(".gz").rsplit(".", 1)[0] or name


def _check_examples(name: str, examples: Sequence[str]) -> None:
    """Examples that are not blank, and not all the same."""
    for index, example in enumerate(examples):
        if not example.strip():
            count = sum(not one.strip() for one in examples)
            raise InputError(
                f"data set {name!r}: example {index + 1} is empty ({count} of {len(examples)} are); remove them, or "
                "name the field or template that holds the text"
            )
    if len(set(examples)) == 1 and len(examples) > 1:
        shown = examples[0] if len(examples[0]) <= _SHOWN else examples[0][:_SHOWN] + "…"
        raise InputError(
            f"data set {name!r}: all {len(examples)} examples are equal ({shown!r}), so every order is the "
            "same text and there is nothing to test; name the field or template that tells them apart"
        )


def shard_bounds(num_examples: int, num_shards: int) -> tuple[tuple[int, int], ...]:
    """Contiguous shards (first, stop) that cover all examples; the first N mod r have one example more.

    >>> shard_bounds(7, 3)
    ((0, 3), (3, 5), (5, 7))
    """
    size, more = divmod(num_examples, num_shards)
    edges = np.cumsum([0, *(size + (shard < more) for shard in range(num_shards))])
    return tuple((int(a), int(b)) for a, b in itertools.pairwise(edges))


@dataclasses.dataclass(frozen=True)
class Shards:
    """The orders of every shard of a data set.

    Order 0 is the canonical one. Order b >= 1 is an independent uniform draw from the permutations of the last
    `num_free(shard)` examples of the shard, the identity among them: a group, as the tests require. It depends on
    the seed, the data set, the shard and b alone, so that more shuffles leave those before them as they are.
    """

    data: ExampleSet  # the data set
    bounds: tuple[tuple[int, int], ...]  # (first, stop) of each shard
    suffix: float  # fraction of each shard that is permuted
    seed: int  # random seed of the draws

    @classmethod
    def cut(cls, data: ExampleSet, *, num_shards: int, suffix: float, seed: int) -> Shards:
        """Contiguous shards.

        Raises:
          InputError: fewer than two examples a shard.
        """
        if num_shards * 2 > len(data):
            most = len(data) // 2
            fix = f"use num_shards={most} or fewer" if most else "a data set needs two examples at least"
            fewer = "fewer examples than shards" if len(data) < num_shards else "shards of a single example"
            raise InputError(
                f"data set {data.name!r} has {len(data)} examples for num_shards={num_shards}: {fewer}, and a shard of "
                f"one has no other order; {fix}"
            )
        return cls(data, shard_bounds(len(data), num_shards), suffix, seed)

    def __len__(self) -> int:
        return len(self.bounds)

    def size(self, shard: int) -> int:
        """Examples of a shard."""
        first, stop = self.bounds[shard]
        return stop - first

    def num_free(self, shard: int) -> int:
        """Number of examples at the end of a shard that are permuted: `suffix` of it, rounded up, at least two."""
        return max(2, math.ceil(self.suffix * self.size(shard) - 1e-9))

    @property
    def permuted(self) -> tuple[tuple[int, int], ...]:
        """(first, stop) of the part of each shard that is permuted."""
        return tuple((stop - self.num_free(shard), stop) for shard, (_, stop) in enumerate(self.bounds))

    def order(self, shard: int, number: int) -> np.ndarray:
        """Order `number` of a shard, as indices of examples of the data set."""
        first, stop = self.bounds[shard]
        indices = np.arange(first, stop)
        if number > 0:
            free = self.num_free(shard)
            words = [self.seed, int(self.data.sha256[:16], 16), shard, number]
            indices[-free:] = np.random.default_rng(words).permutation(indices[-free:])
        return indices

    def fixed_text(self, shard: int, separator: str) -> str:
        """The examples that keep their places, joined; empty if all are permuted."""
        first, stop = self.bounds[shard]
        return separator.join(self.data.examples[first : stop - self.num_free(shard)])

    def text(self, shard: int, number: int, separator: str) -> str:
        """A shard in one of its orders, as one text."""
        return separator.join(self.data.examples[index] for index in self.order(shard, number))


_STOPS = ("none", "e_process", "spending", "besag_clifford")
_UNUSED = ("long_texts", "on_batch")
"""Fields of `Run`."""


class ExchangeOptions(RunOptions, total=False):
    """The further options of `tdd.run_exchange`."""

    template: str | None
    revision: str | None
    text_field: str | None
    format: str | None
    separator: str
    suffix: float
    allow_sorted: bool
    bos: str
    stride: int | None
    params: Any
    tokenizer: Any
    command: str | None
    run: Run | None


@dataclasses.dataclass(kw_only=True)
class Options:
    """Keyword arguments of `tdd.run_exchange`.

    Attributes:
      num_shards: See `tdd.run_exchange`, as for `num_shuffles`, `test`, `alpha`, `stop` and `target_p`.
      template: How a row becomes an example: "Q: {question} A: {answer}", or "json" for the row as a line of JSON.
      revision: Branch, tag or commit of the model, where that is a hub id.
      text_field: Field with the text, without a template.
      format: Format of the files, if their ending does not tell.
      separator: Text between two examples; take what the training data is likely to have had. A special token that is
        written in it is tokenised as text, with a warning.
      suffix: Fraction of each shard, at its end, that is permuted. What stands before is the same in all orders and is
        computed once; permuting less costs power. The orders remain a group, so the tests remain valid.
      allow_sorted: Test data sets whose order is sorted, which by itself voids the guarantee.
      bos: When a window begins with the token for the beginning of a sequence: "auto" as the tokenizer does it,
        "always", "never".
      stride: Tokens that each further window of a shard longer than the context adds. By default all but one, so that
        each token is computed once; less gives each token more context and costs more.
      params: Parameters, if `model` is a LanguageModel.
      tokenizer: Tokenizer, if `model` is a LanguageModel.
      command: Command line for run.json.
      how: How to run. `store` is by default the folder `scoring` in `out`; a run with the same orders takes from there
        what another has computed, and only if it computed the very same batches: the bits of a run do not depend on
        what is stored. `max_length` is that of a window. `long_texts` and `on_batch` are refused: shards
        go through the context in windows, and a bar shows the progress.
    """

    num_shards: int = 50
    num_shuffles: int = 50
    test: str = "combined"
    alpha: float = 0.05
    stop: str = "none"
    target_p: float | None = None
    template: str | None = None
    revision: str | None = None
    text_field: str | None = None
    format: str | None = None
    separator: str = "\n\n"
    suffix: float = 1.0
    allow_sorted: bool = False
    bos: str = "auto"
    stride: int | None = None
    params: Any = None
    tokenizer: Any = None
    command: str | None = None
    how: Run = dataclasses.field(default_factory=Run)

    def __post_init__(self) -> None:
        self.num_shards = as_count(self.num_shards, "num_shards")
        self.num_shuffles = as_count(self.num_shuffles, "num_shuffles")
        arrays.check_choice(self.test, TESTS, "test")
        arrays.check_level(self.alpha)
        arrays.check_choice(self.stop, _STOPS, "stop")
        check_target(self.target_p, self.stop)
        if not isinstance(self.separator, str):
            raise InputError(f"separator must be a string, got {self.separator!r}")
        arrays.check_choice(self.bos, ("auto", "always", "never"), "bos")
        number = isinstance(self.suffix, (int, float, np.integer, np.floating)) and not isinstance(self.suffix, bool)
        if not number or not 0 < self.suffix <= 1:
            raise InputError(
                f"suffix={self.suffix!r} must be a fraction of each shard's examples, above 0 and at most 1"
            )
        self.suffix = float(self.suffix)
        self.how.check_unused(_UNUSED, "a test of order")

    def record(self, devices: Devices) -> dict[str, Any]:
        """The options that the numbers depend on, for run.json and the identity of the run."""
        names = (
            "separator", "bos", "stride", "num_shards", "num_shuffles", "test", "alpha", "template", "suffix", "stop",
            "target_p",
        )  # fmt: skip
        return {
            **{name: getattr(self, name) for name in names},
            "max_length": self.how.max_length,
            "token_budget": self.how.budget(devices.platform),
            "dtype": None if self.how.dtype is None else str(self.how.dtype),
            "platform": devices.platform,
            "device_kind": devices.devices[0].device_kind,
        }


def check_target(value: Any, stop: str | None = None) -> None:
    """A level at which a sequential run stops; with `stop`, by a rule that stops for evidence."""
    if value is not None and not (isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1):
        raise InputError(f"target_p={value!r} must be a number between 0 and 1")
    if value is not None and stop in ("none", "besag_clifford"):
        raise InputError(
            f'target_p={value!r} asks to stop for evidence, which stop="{stop}" never does; use stop="spending" or '
            'stop="e_process", or leave target_p out'
        )
