"""Audits of the samples that lm-evaluation-harness logs: the scores come from the log-probabilities in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.audit.inputs import Inputs, Reading, Tables
from tdd.audit.items import Items, Scored
from tdd.audit.logprobs import as_dump_scores, score_log_probs
from tdd.procedures.procedure import Procedure
from tdd.runs.folder import fingerprint
from tdd.scoring.how import Run
from tdd.scoring.scores.score import Score, fields_of
from tdd.texts import read_samples
from tdd.texts.samples import items
from tdd.validate import InputError

_OWNERS = ("candidate", "calibration", "member")

OF_SAMPLES = "loss_per_byte"
"""The score that decides where log-probabilities come from samples."""


class SampleItems(Items):
    """Samples of lm-evaluation-harness, scored by `tdd.score_log_probs`.

    Raises:
      InputError: another format; a procedure that needs scores of knockoffs; options that need a model.
    """

    score = OF_SAMPLES
    assumes = (
        "the samples of candidates and calibration items are of one model, asked alike (template, examples in prompts)",
    )

    def __init__(self, procedure: Procedure, reading: Reading, how: Run, shard: Any) -> None:
        super().__init__(reading, how)
        self._tables: Sequence[Any] = ()
        self._scored: tuple[Tables, dict[str, Any]] | None = None
        if reading.format != "lm-eval":
            raise InputError(
                "model is None; give a checkpoint, or samples of lm-evaluation-harness, which hold log-probabilities "
                '(format="lm-eval"; tdd audit --lm-eval SAMPLES)'
            )
        if "knockoffs" in procedure.needs:
            raise InputError(
                f"method {procedure.name!r} needs the scores of knockoffs, which samples of lm-evaluation-harness do "
                "not hold; give a model"
            )
        usual = Run()
        given = [
            field.name
            for field in dataclasses.fields(Run)
            if field.name != "progress" and getattr(how, field.name) != getattr(usual, field.name)
        ]
        if given or shard is not None:
            name = given[0] if given else "shard"
            raise InputError(
                f"{name} has no use for samples of lm-evaluation-harness, which have their scores; leave it out"
            )

    def scores(self, given: Any) -> dict[str, Any]:  # noqa: D102
        return as_dump_scores(given)

    def as_text(self, name: str, score: Any) -> str:  # noqa: D102
        return name if score is None else score.label

    def read(self, tables: Sequence[Any]) -> tuple[Sequence[Any], Reading]:  # noqa: D102
        self._tables = tables
        return tables, self.reading

    def identify(self, models: Sequence[Any], scores: Mapping[str, Any], inputs: Inputs) -> list[dict[str, Any]]:
        """Score the items of every role, which identifies the samples in the place of a model.

        Raises:
          InputError: as `tdd.score_log_probs`.
        """
        tables: Tables = {}
        details = {}
        scores = {name: score and _with_samples(score) for name, score in scores.items()}
        for role, texts in inputs.roles.items():
            rows = read_samples(self._tables[_OWNERS.index(role.owner)])
            scored = score_log_probs(rows, scores, format="lm-eval", id_field="id")
            place = {str(name): index for index, name in enumerate(items(rows).column(self.reading.id_field or "id"))}
            chosen = np.array([place[identifier] for identifier in texts.ids])
            tables[role.owner] = {name: column[chosen] for name, column in scored.values.items()}
            details[role.owner] = dict(scored.provenance)
        self._scored = tables, details
        hashes = {owner: detail["log_probs"]["sha256"] for owner, detail in details.items()}
        for owner, detail in details.items():
            if "reference" in detail:
                hashes[f"reference of {owner}"] = detail["reference"]["sha256"]
        return [{"name": "samples of lm-evaluation-harness", "revision": None, "sha256": fingerprint(hashes)}]

    def score_under(  # noqa: D102
        self, models: Sequence[Any], prefixes: Sequence[str], inputs: Inputs, scores: Mapping[str, Any], part: Any
    ) -> Scored:
        assert self._scored is not None
        tables, details = self._scored
        return Scored(tables, [details], sum(map(len, inputs.roles.values())))


def _with_samples(score: Score) -> Score:
    """The score with the samples of the other model that it was given, read: their items have the ids of the others."""
    others = [name for name, given in fields_of(score).items() if given is not None and given.kind == "model"]
    given = {name: one for name in others if (one := score.given[name]) is not None}
    return dataclasses.replace(score, **{name: read_samples(one) for name, one in given.items()})
