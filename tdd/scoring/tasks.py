"""The distinct passes of a call: which models and texts they go through, and which scores read what is kept."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tdd.records import Texts
from tdd.scoring.devices import Devices
from tdd.scoring.inputs import OTHER, OWN, Model, is_gradient
from tdd.scoring.models import find_reference
from tdd.scoring.scores.score import Pass, Score, Tuned, given_by_name, known_by_name
from tdd.scoring.scores.tokens import Loss
from tdd.validate import InputError


@dataclasses.dataclass(frozen=True)
class Task:
    """A distinct pass."""

    name: str  # tells it from others; "gradient" begins the names of backward passes
    of: str  # the name of its model
    made_by: Pass  # what a score asked for
    keep: dict[str, Score]  # label -> score whose part from the tokens is kept; empty for gradients
    prefix: np.ndarray | None = None  # token ids before every text
    over: str | None = None  # the pass of the scored model over the same texts, if this one has another model
    like: str | None = None  # the pass of the same model over the same texts as they are, if they are changed here

    @property
    def statistics(self) -> tuple[str, ...]:
        """Fields of `TokenStats` that it delivers."""
        if self.made_by.gradient:
            return ("grad_norm",)
        fields = dict.fromkeys(field for score in self.keep.values() for field in score.computed)
        return tuple(field for field in fields if field != "tokens")


@dataclasses.dataclass(frozen=True)
class Tasks:
    """All passes of a call."""

    scores: Mapping[str, Score]  # column -> score
    models: Mapping[str, Model]  # name -> model; OWN is the one that is scored
    tasks: Mapping[str, Task]  # name -> pass
    # column -> name by which the score reads -> (pass, label of what is kept); a list where it reads a tuple of passes
    read: Mapping[str, Mapping[str, tuple[str, str] | list[tuple[str, str]]]]
    facts: Mapping[str, Any]  # what identifies texts and tuned models in a record, by the names of fields

    @property
    def windowed(self) -> bool:
        """Whether every score may be computed in windows."""
        return not any(map(is_gradient, self.tasks))


def tasks_of(scores: Mapping[str, Score], model: Model, dtype: Any, where: Devices) -> Tasks:
    """Find the models and the distinct passes of the scores, whose texts have been read.

    Raises:
      InputError: as `find_model` and `tdd.lab.train.tune`.
    """
    bound = {label: score.bound(model.tokenizer, model.lm.vocab_size) for label, score in scores.items()}
    return _Builder(bound, model, dtype, where, given_by_name(scores.values(), "texts")).build()


def check_scorable(scores: Mapping[str, Score], texts: Texts) -> None:
    """Check that no score rests on a text to score.

    Raises:
      InputError: naming the field of the score and the texts.
    """
    given = {
        name: one.texts if _is_counted(one) else one for name, one in given_by_name(scores.values(), "texts").items()
    }
    if not given:
        return
    from tdd.scoring.corpus import check_apart

    check_apart(given, texts, known_by_name(scores.values()))


def _is_counted(texts: Any) -> bool:
    """Whether texts came as a `Corpus`."""
    return hasattr(texts, "log_frequency")


class _Builder:
    """Gathers the passes of all scores."""

    def __init__(
        self, scores: Mapping[str, Score], model: Model, dtype: Any, where: Devices, beside: Mapping[str, Any]
    ) -> None:
        self._scores, self._dtype, self._where, self._beside = scores, dtype, where, beside
        self._models = {OWN: model}
        self._names: dict[Any, str] = {None: OWN}  # what tells models apart -> name
        self._tasks: dict[str, Task] = {}
        self._keys: dict[Any, str] = {}  # what tells passes apart -> name
        self._prefixes: dict[Any, np.ndarray] = {}
        self._tuned: dict[str, Any] = {}
        asked = [
            one.model
            for score in scores.values()
            for made in score.passes().values()
            for one in (made if isinstance(made, tuple) else (made,))
        ]
        others = {_key_of_model(one): one for one in asked if one is not None and not isinstance(one, Tuned)}
        self._several = sum(isinstance(one, (str, os.PathLike)) for one in others.values()) > 1 or len(others) > 1

    def build(self) -> Tasks:
        """Everything."""
        own = Pass()
        self._keys[self._key(own)] = OWN
        self._tasks[OWN] = Task(OWN, OWN, own, dict(self._scores))
        read: dict[str, dict[str, Any]] = {}
        for label, score in self._scores.items():
            read[label] = {}
            for name, made in score.passes().items():
                several = isinstance(made, tuple)
                found = [self._add(name, one) for one in (made if several else (made,))]
                read[label][name] = found if several else found[0]
        tasks = {name: dataclasses.replace(task, over=self._over(task)) for name, task in self._tasks.items()}
        return Tasks(self._scores, self._models, tasks, read, self._facts())

    def _over(self, task: Task) -> str | None:
        """The pass of the scored model over the texts of another model's pass, once all passes are known."""
        if not task.of.startswith(OTHER) or task.made_by.gradient:
            return None
        return self._keys.get(self._key(dataclasses.replace(task.made_by, model=None, keep=None)))

    def _add(self, name: str, made: Pass) -> tuple[str, str]:
        """The task of a pass, and the label of what the score reads of it."""
        key = self._key(made)
        task = self._tasks.get(self._keys.get(key, ""))
        if task is None:
            of = self._model(made.model)
            like = self._keys.get(self._key(dataclasses.replace(made, change=None, keep=None))) if made.change else None
            named = "gradient" if made.gradient else f"pass {name}" if is_gradient(name) else name
            named = next(one for number in itertools.count(1) if (one := _numbered(named, number)) not in self._tasks)
            prefix = None if made.prefix is None else self._prefix(of, made.prefix)
            task = self._tasks[named] = Task(named, of, made, {}, prefix, like=like)
            self._keys[key] = named
        if made.gradient:
            return task.name, ""
        keep = made.keep or Loss()
        task.keep[keep.label] = keep
        return task.name, keep.label

    def _key(self, made: Pass) -> Any:
        """What tells a pass from others."""
        texts = tuple(None if one is None else one.sha256 for one in (made.texts, made.prefix))
        return (_key_of_model(made.model), *texts, made.change, made.gradient)

    def _model(self, given: Any) -> str:
        """The name of a model, which is found or made when it is first asked for."""
        key = _key_of_model(given)
        if key not in self._names:
            kind = "tuned" if isinstance(given, Tuned) else OTHER
            name = next(one for number in itertools.count(1) if (one := _numbered(kind, number)) not in self._models)
            self._names[key] = name
            if isinstance(given, Tuned):
                self._models[name] = self._tune(given, name)
            else:
                self._models[name] = find_reference(given, self._dtype, self._where, deferred=self._several)
        return self._names[key]

    def _tune(self, tuned: Tuned, name: str) -> Model:
        from tdd.lab.train import tune

        if self._where.shard_params:
            raise InputError("tune_on with shard_params=True: a model that is fine-tuned must fit on one device")
        model = self._models[OWN]
        options = dict(tuned.options)
        with jax.default_device(self._where.home):
            params, record = tune(model.lm, model.parameters(), model.tokenizer, tuned.texts.texts, **options)
        self._tuned[name] = (tuned.texts.sha256, record)
        return Model(model.lm, params, model.tokenizer, f"{model.name}, fine-tuned")

    def _prefix(self, of: str, texts: Texts) -> np.ndarray:
        """The token ids of a prefix under a model."""
        key, model = (of, texts.sha256), self._models[of]
        if key not in self._prefixes:
            from tdd.scoring.corpus import read_prefix

            self._prefixes[key] = read_prefix(texts, model.tokenizer, model.lm.vocab_size)
        return self._prefixes[key]

    def _facts(self) -> dict[str, Any]:
        """What identifies the texts that scores rest on."""
        found: dict[str, Any] = {}
        counted = given_by_name(self._scores.values(), "texts")
        for name, texts in self._beside.items():
            if _is_counted(counted[name]):
                found[name] = counted[name].facts()
                continue
            from tdd.scoring.corpus import facts_of

            found[name] = facts_of(texts)
            if (tokens := self._prefixes.get((OWN, texts.sha256))) is not None:
                found[name]["tokens"] = len(tokens)
            for sha256, record in self._tuned.values():
                if sha256 == texts.sha256:
                    found[name] |= record
        return found


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name} {number}"


def _key_of_model(model: Any) -> Any:
    """What tells one model from others: the path of a checkpoint, the object in memory."""
    if isinstance(model, Tuned):
        return "tuned", model.texts.sha256, model.options
    return os.fspath(model) if isinstance(model, (str, os.PathLike)) else None if model is None else id(model)


def reserved(tasks: Mapping[str, Task], of: str) -> int:
    """Positions that windows under a model leave free: its longest prefix. Own and tuned models have one layout."""

    def group(name: str) -> str:
        return name if name.startswith(OTHER) else OWN

    alike = [task.prefix for task in tasks.values() if group(task.of) == group(of) and task.prefix is not None]
    return max(map(len, alike), default=0)


def names_of_references(models: Mapping[str, Model]) -> Sequence[str]:
    """The names of reference models that reports show."""
    return [model.name for name, model in models.items() if name.startswith(OTHER)]
