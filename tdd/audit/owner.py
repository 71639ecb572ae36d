"""What the data owner's tests share: a checked start, texts to scores, the record of one p-value, the run folder."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.audit.sampling import SLACK
from tdd.models.source import at_revision
from tdd.records import Guarantee, TestResult, Texts
from tdd.runs.display import Displayed, format_p_value, level_in_words, report_module
from tdd.runs.folder import fingerprint, log_findings, open_run_folder, plain, run_head, to_csv, write_run
from tdd.runs.portable import without_folders
from tdd.scoring.how import Run, RunOptions, as_run
from tdd.scoring.models import identity_of_given, provenance_of
from tdd.scoring.score import score as score_texts
from tdd.scoring.scores.score import Score, as_models, as_scores, check_complete, given_by_name, loaded
from tdd.validate import arrays

TABLES = {"versions": "documents.csv", "dataset": "items.csv"}
"""Kind of run -> its table."""

CHECK_LEVEL = 0.01
"""Level of the check without the model."""
_FEW = 20
_LAYOUT = ("dtype", "max_length", "long_texts")


class OwnerOptions(RunOptions, total=False):
    """The further options of the tests of an owner."""

    revision: str | None
    run: Run | None


class Kind(NamedTuple):
    """The sentences of a kind of test."""

    name: str
    subject: str  # what the model may have been trained on
    drawn: str  # the condition of the guarantee
    others: str  # what a model that gives the bound was trained without
    unlike: str  # why the verdict is withheld
    rule: str
    open_points: tuple[str, ...]


@dataclasses.dataclass(frozen=True, repr=False)
class OwnerTest(Displayed):
    """A finished test of a data owner.

    Attributes:
      run: content of run.json, plain values.
      rows: the columns of its table. Versions: document, score of its published version, mean_private, rank (private
        versions that the published one undercuts; -1 where a score is missing), num_private. Data set: id, role,
        group where groups are tested, and scores.
    """

    run: Mapping[str, Any]
    rows: Mapping[str, np.ndarray]

    @property
    def p_value(self) -> float:
        """The p-value, also where the verdict is withheld."""
        return self.run["result"]["p_value"]

    @property
    def verdict_stands(self) -> bool:
        """Whether no check speaks against the assumptions; where one does, `run["verdict"]["failed"]` says why."""
        return self.run["verdict"]["stands"]

    def save(self, folder: pathlib.Path) -> None:
        """Write the table and run.json, then report.html, each whole or not at all."""
        write_run(folder, self.run, {TABLES[self.run["kind"]]: to_csv(self.rows)})
        self.write_page(folder)

    def report(self) -> Any:  # noqa: D102
        return report_module("owner").owner_report(self.run, self.rows)

    def _rows(self) -> dict[str, Any]:
        return dict(self.rows)


@dataclasses.dataclass(frozen=True)
class Start:
    """A run whose inputs have been checked, and whose folder is open."""

    kind: Kind
    model: Any
    provenance: Mapping[str, Any]
    texts: Texts
    options: Mapping[str, Any]
    seed: int
    folder: pathlib.Path | None
    asked: Mapping[str, Score]
    how: Run
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    def scores(self) -> dict[str, np.ndarray]:
        """Name of the score -> [N] scores of the texts."""
        scored = score_texts(self.model, self.texts, self.asked, run=self.how)
        self.details.update(scored.provenance)
        return dict(scored.values)

    def finish(
        self,
        facts: Mapping[str, Any],
        guarantee: Guarantee,
        check: float,
        warnings: Sequence[str],
        rows: Mapping[str, np.ndarray],
        unchecked: Sequence[str] = (),
        against: Sequence[str] = (),
    ) -> OwnerTest:
        """The finished run, written to its folder; what a reader must know is logged. `against` withholds the verdict,
        beside a check without the model whose p-value is small."""
        kind, options = self.kind, self.options
        unlike = [] if check > CHECK_LEVEL * SLACK else [kind.unlike.format(p=format_p_value(check, level=CHECK_LEVEL))]
        failed = [*against, *unlike]
        outcome = _untested(unchecked) + _outcome(kind, facts, options["alpha"], failed, guarantee)
        outcome += " A model may prefer such texts without having seen them." if unlike else ""
        run = {
            **run_head(kind.name, self.seed),
            "options": options,
            "inputs": {"source": self.texts.source, "sha256": self.texts.sha256, "texts": len(self.texts)},
            "model": {**self.provenance, "scoring": self.details},
            "outcome": outcome,
            "verdict": {"stands": not failed, "failed": failed, "unchecked": [*unchecked], "rule": kind.rule},
            "result": facts,
            "guarantee": guarantee,
            "checks": {"without_model": {"p_value": check, "level": CHECK_LEVEL}},
            "warnings": [*warnings],
            "open_points": [*kind.open_points, *_open_beside(self.asked)],
        }
        log_findings((*failed, *warnings))
        finished = OwnerTest(without_folders(plain(run)), rows)
        if self.folder is not None:
            finished.save(self.folder)
        return finished


def start_test(
    kind: Kind,
    model: Any,
    texts: Texts,
    score: Any,
    test: str,
    alpha: float,
    seed: int,
    out: Any,
    scoring: Mapping[str, Any],
    more: Any,
) -> Start:
    """Check the options, identify the run, and open its folder; `more` is what else decides the numbers."""
    how = as_run(scoring.get("run"), {name: one for name, one in scoring.items() if name not in ("run", "revision")})
    arrays.check_level(alpha)
    arrays.check_seed(seed)
    asked = as_scores(score, "score")
    check_complete(asked.values())
    asked = loaded(asked)
    model = at_revision(model, scoring.get("revision"))
    provenance = provenance_of(model)
    layout = {name: str(value) for name in _LAYOUT if (value := getattr(how, name)) is not None}
    given: dict[str, Any] = {name: one.sha256 for name, one in given_by_name(asked.values(), "texts").items()}
    for name, models in given_by_name(asked.values(), "model").items():
        given[name] = [provenance_of(one) for one in as_models(models)]
    options = {"score": [*asked], "test": test, "alpha": alpha, **layout}
    options |= {name: one for name, one in given.items() if name not in options}
    folder = None if out is None else pathlib.Path(out)
    if folder is not None:
        identity = {"kind": kind.name, "model": provenance, "texts": [texts.sha256, texts.labels, more], "seed": seed}
        identity |= {"given": found} if (found := identity_of_given(asked)) else {}
        open_run_folder(folder, fingerprint({**identity, **options}), f"{kind.name} test of {provenance['name']}")
        how = dataclasses.replace(how, store=how.store or folder / "scoring")
    return Start(kind, model, provenance, texts, options, seed, folder, asked, how)


def numbers(result: TestResult, alpha: float) -> dict[str, Any]:
    """The p-value and the decision, as plain values; a p-value of 1/20 is at most a level of .05 in its own type."""
    p = np.asarray(result.p_value)
    smallest = float(getattr(result, "log_smallest_p", -math.inf))
    rejected = bool(p <= np.asarray(alpha, p.dtype))
    return {
        "p_value": float(p),
        "log_p_value": float(result.log_p_value),
        "log_smallest_p": smallest,
        "rejected": rejected,
    }


def _outcome(kind: Kind, facts: Mapping[str, Any], alpha: float, failed: Sequence[str], guarantee: Guarantee) -> str:
    """The verdict in a sentence or two."""
    if failed:
        return f"No verdict: {'; '.join(failed)}."
    level = level_in_words(alpha)
    if math.isnan(facts["p_value"]):
        return f"Whether the model was trained on {kind.subject} cannot be said: no p-value."
    p = f"p = {format_p_value(facts['p_value'], facts['log_p_value'], alpha)}"
    if facts.get("reversed"):
        return (
            f"No evidence at level {level} that the model was trained on {kind.subject}: the two sets differ ({p}), "
            "but it is the held-out texts that look more like training data. That does not show that the model was "
            f"trained without {kind.subject}."
        )
    if not facts["rejected"]:
        return (
            f"No evidence at level {level} that the model was trained on {kind.subject} ({p}). That does not show that "
            "it was trained without them."
        )
    how = "" if guarantee.kind == "finite-sample" else " in the limit of many texts"
    return (
        f"Evidence at level {level} that the model was trained on {kind.subject}, or on some of them ({p}). If "
        f"{kind.drawn}, and the settings were fixed beforehand, a model trained without {kind.others} gives such a "
        f"result with a probability of at most {level}{how}."
    )


def _untested(unchecked: Sequence[str]) -> str:
    """What the verdict rests on without a test, as its first sentence; empty where everything was tested."""
    return f"Not tested: {'; '.join(unchecked)}. " if unchecked else ""


def _open_beside(asked: Mapping[str, Score]) -> list[str]:
    """What is taken from the owner about models and texts that scores rest on."""
    beside = [name for kind in ("model", "texts") for name in given_by_name(asked.values(), kind)]
    fixed = ", ".join([*beside, "scores, test and level"])
    return [f"Not checked: that {fixed} were fixed before any score was seen."]


def few_for_t(units: str, fewest: int) -> list[str]:
    """The warning where the t-test, which holds in the limit, has few units; none where it has many."""
    if fewest >= _FEW:
        return []
    few = f"the t-test relies on many {units}, and there are {fewest}"
    return [f"{few}: its level may not hold; the exact tests hold theirs"]


def nothing_can_be_found(smallest: float, alpha: float) -> str:
    """The warning where no p-value can reach the level."""
    return (
        f"nothing can be found: the smallest p-value to expect from these sizes is {smallest:.3g}, above the level "
        f"{level_in_words(alpha)}"
    )
