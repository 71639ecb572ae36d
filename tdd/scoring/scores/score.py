"""Scores as values: what one needs of a model and of other texts, and how it reduces that to a number.

A user writes one as "loss", "min_k:k=0.1" or "recall:prefix=unseen.jsonl", or as the value, `ReCall(prefix=unseen)`.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from tdd.records import LanguageModel, Texts, TokenStats
from tdd.validate import InputError
from tdd.validate.options import KnownFields, kind_of, parse_option, split_options

Array = Any
"""A NumPy or JAX array; scores are written once for both."""

Evidence = Mapping[str, Array]
"""What a score is made of beside the tokens of its text: [B] by name of a measure or a pass, [K, B] of a tuple of
passes, [Z] of passes over other texts."""

Known = Literal["unseen", "seen", ""]
"""What must be true of texts that a score rests on: no model was trained on them, the audited one was, or neither."""


class Given(NamedTuple):
    """What a field of a score takes that is no option: models or texts."""

    what: str  # what to pass, for messages
    kind: Literal["model", "texts"]
    known: Known = ""  # of texts
    least: int = 1  # fewest models


def option(default: Any, check: Callable[[Any], Any]) -> Any:
    """A field of a score for an option: `check` returns what the score computes with, or raises an `InputError`."""
    return dataclasses.field(default=default, metadata={"check": check})


def models_given(what: str, *, least: int = 1) -> Any:
    """A field of a score for a model in any form that `tdd.score` takes, or a list or tuple of several."""
    return dataclasses.field(default=None, metadata={"given": Given(what, "model", least=least)})


def texts_given(what: str, *, known: Known) -> Any:
    """A field of a score for texts in any form that `tdd.texts.load_texts` takes. No text to score may be in them."""
    return dataclasses.field(default=None, metadata={"given": Given(what, "texts", known)})


@dataclasses.dataclass(frozen=True)
class Pass:
    """Texts that go through a model, and what is kept of each of them.

    Attributes:
      model: a model that the score was given; a `Tuned` one; None is the model that is scored.
      texts: other texts; None is the texts to score.
      prefix: texts before each of them, joined without a separator, which are not scored.
      change: what happens to each text first, as `str.lower`.
      gradient: keep the norm of the gradient of the summed loss over all parameters instead, a backward pass.
      keep: the score whose part from the tokens is kept; None is the mean loss.
    """

    model: Any = None
    texts: Texts | None = None
    prefix: Texts | None = None
    change: Callable[[str], str] | None = None
    gradient: bool = False
    keep: Score | None = None


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The scored model after fine-tuning on texts, by the options of `tdd.lab.train.tune`."""

    texts: Texts
    options: tuple[tuple[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Score(KnownFields):
    """A loss-like score of a text: LOWER = MORE member-like.

    Subclasses are frozen dataclasses. Their fields are the options, and what the score needs beside model and texts
    (`models_given`, `texts_given`). With `name`, `statistics` and `rows` defined, `tdd.score`, `tdd.run_audit`, the
    command line (`--score module:Class`) and all that reads their tables accept it.

    Attributes:
      name: one word.
      meaning: one line for listings.
      statistics: fields of `TokenStats` that `rows` may read; the model computes all but "tokens".

    >>> parse_score("min_k:k=0.1")
    MinK(k=Fraction(1, 10))
    """

    name: ClassVar[str] = ""
    meaning: ClassVar[str] = ""
    statistics: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # those that dataclasses generate compare arrays and hash lists
        for name, method in (("__eq__", Score._equals), ("__hash__", Score._hash)):
            if name not in vars(cls):
                setattr(cls, name, method)

    def _equals(self, other: object) -> Any:
        """Whether class, options and what was given are the same: models and tables in memory are only themselves."""
        if type(self) is not type(other) or not isinstance(other, Score):
            return NotImplemented
        return self.parameters == other.parameters and all(map(_alike, self.given.values(), other.given.values()))

    def _hash(self) -> int:
        return hash((type(self), *self.parameters.values()))

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if (check := field.metadata.get("check")) is not None:
                object.__setattr__(self, field.name, check(getattr(self, field.name)))

    def rows(self, stats: TokenStats) -> Array:
        """Return the part that comes from the tokens of the text: [B, T] -> [B]. NumPy and JAX alike."""
        raise NotImplementedError

    def finish(self, rows: Array, evidence: Evidence) -> Array:
        """Return the score, from what `rows` returned and what measures and passes gave: [B].

        Losses are means over tokens. Where a model has another tokenizer, the losses of its passes, and of those of the
        scored model over the same other texts, are per byte, and `evidence["tokens_per_byte"]` is not 1.
        """
        return rows

    def passes(self) -> Mapping[str, Pass | tuple[Pass, ...]]:
        """Return the passes beyond the one over the texts themselves, by the name that `finish` reads them by."""
        return {}

    def measures(self) -> Mapping[str, Callable[[str], float]]:
        """Return numbers of a text that `finish` reads, by name, as the size of its compressed form."""
        return {}

    def bound(self, tokenizer: Any, vocab_size: int) -> Score:
        """Return the score for one model, where it depends on the tokenizer; texts have been read."""
        return self

    @property
    def computed(self) -> tuple[str, ...]:
        """The statistics that are computed, whatever the options: stored ones serve all of them."""
        return self.statistics

    @property
    def reads(self) -> tuple[str, ...]:
        """The statistics that `rows` reads with these options."""
        return self.computed

    @property
    def batchwise(self) -> bool:
        """Whether the score of a text depends on that text alone, and on no training."""
        return True

    @classmethod
    def spelled(cls, written: Sequence[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
        """Return the options of the text form; a score that is made of another one gives it some of them."""
        return written

    @property
    def parameters(self) -> dict[str, Any]:
        """Option -> value, defaults included."""
        return {name: getattr(self, name) for name, given in fields_of(self).items() if given is None}

    @property
    def usual(self) -> dict[str, Any]:
        """Option -> its value by default; `dataclasses.MISSING` where it has to be given."""
        return {field.name: _usual(field) for field in dataclasses.fields(self)}

    @property
    def given(self) -> dict[str, Any]:
        """Field -> the models or texts that it was given; None where they are missing."""
        return {name: getattr(self, name) for name, given in fields_of(self).items() if given is not None}

    @property
    def label(self) -> str:
        """The score as text, without what it was given: "min_k:k=0.1"."""
        usual = self.usual
        changed = {name: value for name, value in self.parameters.items() if usual[name] != value}
        return self.name + ":" * bool(changed) + ",".join(f"{name}={_plain(value)}" for name, value in changed.items())


def as_models(given: Any) -> tuple[Any, ...]:
    """The models that a field of a score was given; a triple (lm, params, tokenizer) is one."""
    if given is None:
        return ()
    several = isinstance(given, (list, tuple)) and not hasattr(given, "_fields")
    if several and not (len(given) == 3 and isinstance(given[0], LanguageModel)):
        return tuple(given)
    return (given,)


def fields_of(score: Score | type[Score]) -> dict[str, Given | None]:
    """Field -> what it takes that is no option, None of an option."""
    return {field.name: field.metadata.get("given") for field in dataclasses.fields(score)}


def _usual(field: dataclasses.Field[Any]) -> Any:
    """What a field has by default, as `option` checks it; MISSING where it has to be given."""
    made = field.default_factory
    usual = field.default if made is dataclasses.MISSING else made()
    check = field.metadata.get("check")
    return usual if check is None or usual is dataclasses.MISSING else check(usual)


def _plain(value: Any) -> str:
    """A value as the text form has it."""
    from fractions import Fraction

    if isinstance(value, tuple):
        return ":".join(map(_plain, value))
    return f"{float(value):g}" if isinstance(value, Fraction) else str(value)


OWN: Mapping[str, tuple[str, str]] = {
    "loss": ("tokens", "Loss"),
    "zlib": ("tokens", "Zlib"),
    "lowercase": ("passes", "Lowercase"),
    "reference": ("references", "Reference"),
    "min_k": ("tokens", "MinK"),
    "min_k_plus_plus": ("tokens", "MinKPlusPlus"),
    "m_entropy": ("tokens", "MEntropy"),
    "max_renyi": ("tokens", "MaxRenyi"),
    "grad_norm": ("passes", "GradNorm"),
    "acmia": ("tokens", "AcMia"),
    "surp": ("tokens", "Surp"),
    "dc_pdd": ("tokens", "DcPdd"),
    "camia": ("camia", "Camia"),
    "diversity": ("tokens", "Diversity"),
    "recall": ("passes", "ReCall"),
    "con_recall": ("passes", "ConReCall"),
    "lira": ("references", "Lira"),
    "rmia": ("references", "Rmia"),
    "fsd": ("fsd", "Fsd"),
}
"""Name of a score of `tdd` -> its file here and its class, loaded where it is used."""


class _ByName(Mapping[str, type[Score]]):
    """Scores of `tdd` by name, then the user's."""

    def __getitem__(self, name: str) -> type[Score]:
        if name in OWN:
            module, cls = OWN[name]
            return getattr(importlib.import_module(f"tdd.scoring.scores.{module}"), cls)
        return self._of_users()[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*OWN, *self._of_users()))

    def __len__(self) -> int:
        return len(OWN) + len(self._of_users())

    def _of_users(self) -> dict[str, type[Score]]:
        found: dict[str, type[Score]] = {}
        for cls in _below(Score):
            name = vars(cls).get("name")
            if not name or cls.__module__.startswith("tdd.scoring.scores."):
                continue
            if name in OWN:
                raise InputError(f"{cls.__module__}.{cls.__qualname__} has the name of tdd's own {name!r}; change it")
            found[name] = cls
        return found


SCORES: Mapping[str, type[Score]] = _ByName()
"""Name -> class."""


def _below(cls: type[Score]) -> Iterator[type[Score]]:
    for one in cls.__subclasses__():
        yield one
        yield from _below(one)


def parse_score(text: str) -> Score:
    """Read "name" or "name:option=value,option=value"; "module:Class" is a user's, "module:Class:option=value" too.

    What a score needs is named like an option, "recall:prefix=FILE"; several models each by its own,
    "lira:references=A,references=B".

    Raises:
      InputError: an unknown name or option, listing those that exist; a value out of range.
    """
    return _written(text)[1]


def _written(text: str) -> tuple[str, Score]:
    """The label of a score as it was written, without what it was given, and the score."""
    name, written = split_options(text)
    cls = None
    if name not in SCORES:
        cls, text = _of_module(text)
        if cls is None:
            listing = "; ".join(f"{known}: {score.meaning}" for known, score in SCORES.items())
            raise InputError(f"there is no score {name!r}; existing scores are {listing}")
        name, written = split_options(text)
    cls = cls or SCORES[name]
    if written is None:
        raise bad_syntax(text)
    fields = fields_of(cls)
    options: dict[str, Any] = {}
    for key, value in cls.spelled(written):
        if key not in fields:
            known = f"it has {', '.join(fields)}" if fields else "it has none"
            raise InputError(f"score {name!r} has no parameter {key!r}; {known}")
        given, before = fields[key], options.get(key)
        if before is not None and (given is None or given.kind != "model"):
            raise bad_syntax(text)
        if given is not None:
            options[key] = value if before is None else [*(before if isinstance(before, list) else [before]), value]
        else:
            checked = "check" in next(field for field in dataclasses.fields(cls) if field.name == key).metadata
            read = not checked and isinstance(value, str)
            options[key] = parse_option(key, value, kind_of(cls, key)) if read else value
    lacking = [field.name for field in dataclasses.fields(cls) if _usual(field) is dataclasses.MISSING]
    if missing := [key for key in lacking if key not in options]:
        raise InputError(f"score {name!r} has no default for {missing[0]}; write '{name}:{missing[0]}=...'")
    kept = [f"{key}={value}" for key, value in written if fields.get(key) is None]
    whole = len(kept) == len(written)
    return text if whole else name + ":" * bool(kept) + ",".join(kept), cls(**options)


def _of_module(text: str) -> tuple[type[Score] | None, str]:
    """The class that "module:Class:options" names, and the text with the name of the score in their place.

    A module that is not installed is looked for in the current folder.
    """
    module, colon, rest = text.strip().partition(":")
    cls, colon_of_options, options = rest.partition(":")
    if not (colon and cls.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        return None, text
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module), cls, None)
    except (ImportError, SyntaxError) as error:
        raise InputError(f"score {text!r} names the module {module}, which cannot be imported: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Score) and found.name):
        raise InputError(f"score {text!r} names {module}.{cls}, which is no class of a tdd.Score with a name")
    return found, found.name + colon_of_options + options


def as_scores(given: Any, argument: str = "scores") -> dict[str, Score]:
    """Column -> score, of names, values or a mapping of both.

    Raises:
      InputError: none, one twice, or as `parse_score`. Scores that differ only in what they are given are numbered.
    """
    if isinstance(given, Mapping):
        found = {}
        for label, one in given.items():
            if not isinstance(one, (str, Score)):
                raise bad_syntax(one)
            found[str(label)] = one if isinstance(one, Score) else parse_score(one)
        return found or _none(argument)
    if not isinstance(given, (str, Score, Iterable)):
        if isinstance(given, type):
            raise bad_syntax(given)
        raise InputError(
            f"{argument}={given!r} is neither a name nor a sequence of names; give for example {argument}=('loss',)"
        )
    several = (given,) if isinstance(given, (str, Score)) else tuple(given)
    named: list[tuple[str, Score]] = []
    for one in several:
        if not isinstance(one, (str, Score)):
            raise bad_syntax(one)
        if isinstance(one, str) and several.count(one) > 1:
            raise InputError(f"{argument} names {one!r} more than once; remove the repetition")
        named.append(_written(one) if isinstance(one, str) else (one.label, one))
    labels = [label for label, _ in named]
    found = {}
    for label, one in named:
        if labels.count(label) > 1 and not any(value is not None for value in one.given.values()):
            raise InputError(f"{argument} names {label!r} more than once; remove the repetition")
        number = sum(other == label or other.startswith(f"{label}#") for other in found) + 1
        found[label if labels.count(label) == 1 else f"{label}#{number}"] = one
    return found or _none(argument)


def _none(argument: str) -> Any:
    raise InputError(f"{argument} is empty; name at least one score, for example {argument}=('loss',)")


def bad_syntax(text: Any) -> InputError:
    """The error for a text or another value that is no score."""
    if isinstance(text, type) and issubclass(text, Score):
        return InputError(f"{text.__name__} is the class of a score and no score; call it, as in {text.__name__}()")
    divided = isinstance(text, str) and any("=" not in part for part in text.partition(":")[2].split(",")[1:])
    advice = "; a comma begins the next option: a path with one is given in Python, or under another name"
    return InputError(
        f"cannot read the score {text!r}; write a name such as 'min_k', or 'min_k:k=0.1', or 'max_renyi:gamma=2,k=0.1'"
        f"{advice * divided}"
    )


def check_complete(scores: Iterable[Score]) -> None:
    """Check that every score was given what it needs.

    Raises:
      InputError: naming the first field without it, and how to give it.
    """
    for score in scores:
        for name, given in fields_of(score).items():
            if given is None:
                continue
            value = getattr(score, name)
            form = "FILE" if given.kind == "texts" else "MODEL"
            value_form = f"{'tdd.scores.' * (score.name in OWN)}{type(score).__name__}({name}=...)"
            how = f"{name}=..., as in '{score.name}:{name}={form}' or {value_form}"
            if value is None:
                raise InputError(f"the score {score.name!r} needs {given.what}: give {how}, or leave the score out")
            models = as_models(value) if given.kind == "model" else ()
            if any(one is None for one in models):
                raise InputError(f"{name} of the score {score.name!r} has None among its models; give {given.what}")
            if wrong := [one for one in models if isinstance(one, (int, float, bytes))]:
                raise InputError(
                    f"{name} of the score {score.name!r} is {reprlib.repr(wrong[0])}, no model; give {given.what}: the "
                    "folder or hub id of a checkpoint, or the triple (lm, params, tokenizer)"
                )
            if given.kind == "model" and (count := len(models)) < given.least:
                if not count:
                    raise InputError(f"{name} is an empty list; give at least one model, or leave the score out")
                raise InputError(
                    f"the score {score.name!r} needs at least {given.least} reference models, got {count}; give "
                    f"{name}=[...], a list of models that were not trained on the texts"
                )


def check_no_fields(keywords: Iterable[str]) -> None:
    """Refuse keywords of a call that scores have as fields, or had as arguments of the call.

    Raises:
      InputError: one of them is; the message says how to write it.
    """
    for keyword in keywords:
        owners = [
            (cls, name)
            for cls in map(SCORES.__getitem__, OWN)
            for name, given in fields_of(cls).items()
            if given is not None and (name == keyword or (keyword == "reference" and given.kind == "model"))
        ]
        if owners:
            values = " or ".join(f"tdd.scores.{cls.__name__}({name}=...)" for cls, name in owners)
            text = f"{owners[0][0].name}:{owners[0][1]}=..."
            raise InputError(f"{keyword} belongs to the scores that need it: write scores={text!r}, or {values}")


def loaded(scores: Mapping[str, Score], *, text_field: str | None = None) -> dict[str, Score]:
    """The scores with the texts that they were given, read; what is read already stays as it is.

    Raises:
      InputError: as `tdd.texts.load_texts`, naming the score and its field.
    """
    from tdd.texts import load_texts

    read: dict[int | str, Any] = {}  # one file for two scores is read once

    def of_field(score: Score, name: str, value: Any) -> Any:
        key = os.fspath(value) if isinstance(value, (str, os.PathLike)) else id(value)
        if key not in read:
            try:
                read[key] = value if hasattr(value, "sha256") else load_texts(value, text_field=text_field)
            except InputError as error:
                raise InputError(f"{name} of the score {score.name!r}: {error}") from error
        return read[key]

    found = {}
    for label, score in scores.items():
        texts = {
            name: of_field(score, name, value)
            for name, given in fields_of(score).items()
            if given is not None and given.kind == "texts" and (value := getattr(score, name)) is not None
        }
        found[label] = dataclasses.replace(score, **texts) if texts else score
    return found


def given_by_name(scores: Iterable[Score], kind: Literal["model", "texts"]) -> dict[str, Any]:
    """What the scores were given, by the name of the field; a name is numbered where it was given different things."""
    found: dict[str, Any] = {}
    for score in scores:
        for name, given in fields_of(score).items():
            if given is None or given.kind != kind or (value := getattr(score, name)) is None:
                continue
            same = [key for key, other in found.items() if key.split(" ")[0] == name and _same(other, value)]
            if not same:
                number = 1 + sum(key.split(" ")[0] == name for key in found)
                found[name if number == 1 else f"{name} {number}"] = value
    return found


def known_by_name(scores: Iterable[Score]) -> dict[str, set[Known]]:
    """What must be true of the texts that the scores were given, by the names of `given_by_name`."""
    every = [*scores]
    named = given_by_name(every, "texts")
    found: dict[str, set[Known]] = {name: set() for name in named}
    for score in every:
        for field, given in fields_of(score).items():
            if given is None or given.kind != "texts" or (value := getattr(score, field)) is None:
                continue
            for name, texts in named.items():
                if name.split(" ")[0] == field and _same(texts, value):
                    found[name].add(given.known)
    return found


def _same(a: Any, b: Any) -> bool:
    """Whether two fields were given the same: texts by what they hold, models by name or identity."""
    if hasattr(a, "sha256") and hasattr(b, "sha256"):
        return a.sha256 == b.sha256
    if isinstance(a, (str, os.PathLike)) and isinstance(b, (str, os.PathLike)):
        return os.fspath(a) == os.fspath(b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        return all(map(_same, a, b))
    return a is b


def _alike(a: Any, b: Any) -> bool:
    """Whether two fields make the same score: as `_same`, but frequencies of tokens are only themselves."""
    return a is b if hasattr(a, "log_frequency") or hasattr(b, "log_frequency") else _same(a, b)


def finished(score: Score, rows: Array, evidence: Evidence) -> Array:
    """`score.finish`; what has no value, as the difference of two infinite losses, is NaN without a warning."""
    with np.errstate(invalid="ignore"):
        return score.finish(rows, evidence)
