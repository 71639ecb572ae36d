"""The items of an audit as one contract: how texts, images and logged samples are read, looked at and scored."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.audit.blind_baseline import blind_baseline
from tdd.audit.duplicates import duplicates
from tdd.audit.excerpts import with_excerpts
from tdd.audit.inputs import Inputs, Reading, Tables
from tdd.audit.overlap import overlap, sharing
from tdd.audit.preparation import preparation
from tdd.audit.sampling import OF_EACH
from tdd.records import Scores, Texts
from tdd.runs.folder import Audit
from tdd.scoring.how import Run
from tdd.scoring.models import identity_of_given, provenance_of
from tdd.scoring.score import score as score_texts
from tdd.scoring.scores.score import Score, as_scores, check_complete, loaded


class Scored(NamedTuple):
    """The scores of all items."""

    tables: Tables  # the columns by owner
    details: list[dict[str, Any]]  # what describes them, under each model
    num_items: int  # distinct items that were scored


class Items(abc.ABC):
    """Items of one kind.

    Attributes:
      score: the score that decides where none is named; None is that of the procedure.
      assumes: what is assumed of them beside what the procedure assumes.
      options: what identifies the kind among the options of a run.
      given: what identifies the texts and models that each score was given, once `identify` has found it.
    """

    score: str | None = None
    assumes: Sequence[str] = ()

    def __init__(self, reading: Reading, how: Run) -> None:
        self.reading, self.how = reading, how
        self.options: Mapping[str, Any] = {}
        self.given: Mapping[str, Mapping[str, Any]] = {}

    @abc.abstractmethod
    def scores(self, given: Any) -> dict[str, Any]:
        """Check scores as a user writes them: column -> score."""

    @abc.abstractmethod
    def read(self, tables: Sequence[Any]) -> tuple[Sequence[Any], Reading]:
        """Read candidates, calibration items and members into what `read_inputs` takes, with how it reads them."""

    @abc.abstractmethod
    def score_under(
        self, models: Sequence[Any], prefixes: Sequence[str], inputs: Inputs, scores: Mapping[str, Any], part: Any
    ) -> Scored:
        """Score all items under every model; in a shard `part` nothing comes back but their number."""

    def identify(self, models: Sequence[Any], scores: Mapping[str, Any], inputs: Inputs) -> list[dict[str, Any]]:
        """What identifies the models, and what else the scores rest on."""
        return [provenance_of(model) for model in models]

    def ready(self, scores: Mapping[str, Any]) -> Mapping[str, Any]:
        """The scores with the texts that they were given, read."""
        return scores

    def values(self, scores: Mapping[str, Any]) -> dict[str, Score]:
        """Those that are values with fields of what they were given."""
        return {name: score for name, score in scores.items() if isinstance(score, Score)}

    def as_text(self, name: str, score: Any) -> str:
        """A score as text, whatever the caller calls its column."""
        return score.label

    def compare(self, known: Texts, candidates: Texts, *, seed: int, groups: Any = None) -> dict[str, Any]:
        """What tells calibration items and candidates apart without a model, by name."""
        return compare_roles(known, candidates, seed=seed, groups=groups)

    def finished(self, audit: Audit, inputs: Inputs, tables: Tables, columns: Sequence[str]) -> Audit:
        """The finished run with what shows the items; `columns` are the scores that decide."""
        return with_excerpts(audit, inputs, tables, columns)


class TextItems(Items):
    """Texts, scored by `tdd.score`."""

    def scores(self, given: Any) -> dict[str, Score]:  # noqa: D102
        scores = as_scores(given, "score")
        check_complete(scores.values())
        return scores

    def read(self, tables: Sequence[Any]) -> tuple[Sequence[Any], Reading]:  # noqa: D102
        return tables, self.reading

    def ready(self, scores: Mapping[str, Score]) -> Mapping[str, Score]:  # noqa: D102
        return loaded(scores, text_field=self.reading.text_field)

    def identify(self, models: Sequence[Any], scores: Mapping[str, Score], inputs: Inputs) -> list[dict[str, Any]]:  # noqa: D102
        provenance = super().identify(models, scores, inputs)
        self.given = identity_of_given(scores)
        references: list[dict[str, Any]] = []
        for models_of_score in (
            one for fields in self.given.values() for one in fields.values() if isinstance(one, list)
        ):
            references += [one for one in models_of_score if one not in references]
        if references:
            provenance[0]["reference"] = references if len(references) > 1 else references[0]
        return provenance

    def score_under(  # noqa: D102
        self, models: Sequence[Any], prefixes: Sequence[str], inputs: Inputs, scores: Mapping[str, Score], part: Any
    ) -> Scored:
        def compute(model: Any, texts: Texts, how: Run) -> Scores | None:
            return score_texts(model, texts, scores, shard=part, run=how)

        return score_joined(models, prefixes, inputs, self.how, compute)


def score_joined(models: Sequence[Any], prefixes: Sequence[str], inputs: Inputs, how: Run, compute: Any) -> Scored:
    """All items in one layout under every model, by `compute(model, texts, how)`; see `Inputs.joined`."""
    texts, places = inputs.joined()
    values: dict[str, np.ndarray] = {}
    details = []
    for number, (prefix, model) in enumerate(zip(prefixes, models, strict=True)):
        own = dataclasses.replace(how, job=f"{how.job}-{number}") if len(models) > 1 else how
        table = compute(model, texts, own)
        if table is not None:
            values |= {f"{prefix}{name}": column for name, column in table.values.items()}
            details.append(dict(table.provenance))
    return Scored(inputs.split(values, places), details, len(texts))


def compare_roles(
    known: Texts, candidates: Texts, *, seed: int, groups: Any = None, likeness: Mapping[str, Any] | None = None,
    view: Any = None, marks: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """What tells calibration items and candidates apart without a model, by name; see `tdd.audit.blind_baseline`.

    `likeness` says how near copies of what is no text are found, as keywords of `duplicates`; `view` and `marks` what
    the blind baseline and the marks of preparation see of it.
    """
    compared: dict[str, Any] = {"seed": seed, "groups": groups}
    near = {name: one for name, one in (likeness or {}).items() if name != "measure"}
    return {
        "duplicates": duplicates(known, candidates, **(likeness or {})),
        **({} if likeness else {"overlap": overlap(known, candidates)}),
        "sharing": sharing(known, candidates, **compared, **near),
        "preparation": preparation(known, candidates, marks=marks, level=OF_EACH, **compared),
        "blind_baseline": blind_baseline(known, candidates, view=view, level=OF_EACH, **compared),
    }
