"""PTDI against KTD on fine-tuned models of which it is known what they were trained on.

A small base is fine-tuned on members. Each document has k + 1 versions: itself and k paraphrases by a paraphraser that
no model had a part in. Two designs differ in which version is the text that is trained on and audited:

- "original": the document itself, as an auditor would have it. A document and its paraphrases are not exchangeable, so
  the paraphrases of a non-member score higher than the text, and rules that trust them find members where there are
  none.
- "drawn": one of the k + 1 versions, drawn at random. The versions of a non-member are exchangeable by construction.

Each model's scores are divided at random many times: half of the non-members calibrate, where a rule needs any; the
other half and all members are audited.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.paraphrases import paraphrases
from benchmarks.reproductions.models import fine_tune, score_table
from benchmarks.reproductions.record import Reproduction, Row, Run
from benchmarks.reproductions.summary import by_level
from tdd.lab.corpus import generate
from tdd.records import Null, pytree
from tdd.study import method
from tdd.study import run as study
from tdd.study.designs import Sample

__all__ = ["DESIGNS", "METHODS", "REPRODUCTION", "Divisions", "Sizes"]

DESIGNS = ("original", "drawn")
SCORES = ("loss", "grad_norm")

METHODS: dict[str, str] = {
    "PTDI, Storey": "ptdi/storey",
    "PTDI, subtraction": "ptdi/subtraction",
    "KTD (the paper)": "ktd/ktd",
    "KTD multi": "ktd/multi",
    "KTD derandomized": "ktd/derandomized",
    "PTDI on W": "ktd/conformal",
}
"""Name in the tables -> method of `tdd.study`. "PTDI on W" is KTD's statistic, ranked among known non-members."""

_POOL, _PARAPHRASE, _DRAW = 500_000, 600_000, 700_000
_CALIBRATED = ("PTDI, Storey", "PTDI, subtraction", "PTDI on W")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of the experiment.

    Attributes:
      models: Fine-tuned models per design.
      members: Number of documents that are trained on.
      nonmembers: Number of documents that are not.
      knockoffs: k.
      words: Probability that the paraphraser replaces a word it knows; sentences between the first and the last move.
      max_length: Tokens of a text.
      epochs, learning_rate: Options of fine-tuning.
      alphas: Levels.
      repetitions: Random divisions per model.
    """

    models: int = 4
    members: int = 120
    nonmembers: int = 240
    knockoffs: int = 3
    words: float = 0.5
    max_length: int = 96
    epochs: int = 4
    learning_rate: float = 1e-3
    alphas: tuple[float, ...] = (0.1, 0.2)
    repetitions: int = 1000

    @classmethod
    def at(cls, scale: float) -> Sizes:
        """Texts and models grow with the scale, models with its root."""
        return cls(
            models=max(2, round(4 * scale**0.5)),
            members=max(24, round(120 * scale)),
            nonmembers=max(48, round(240 * scale)),
            max_length=96 if scale > 0.1 else 48,
            epochs=4 if scale > 0.1 else 2,
            repetitions=1000 if scale > 0.1 else 64,
        )


@pytree("half")
class Divisions:
    """A model's scored texts, divided anew in each repetition.

    Attributes:
      members: [M, k + 1] scores of members, the text's own first.
      others: [N, k + 1] scores of non-members.
      half: Number of non-members that calibrate.
    """

    null: ClassVar[Null] = "nonmember"

    members: Any
    others: Any
    half: int = 1

    def draw(self, key: jax.Array) -> Sample:
        """`half` non-members for calibration; all members and the other non-members are audited."""
        members, others = (jnp.asarray(table, jnp.result_type(float)) for table in (self.members, self.others))
        mixed = jax.random.permutation(key, others, axis=0)
        calibration, tested = mixed[: self.half], jnp.concatenate([members, mixed[self.half :]])
        return Sample(
            calibration[:, 0],
            tested[:, 0],
            jnp.arange(len(tested)) < len(members),
            extra={"knockoffs": tested[:, 1:], "calibration_knockoffs": calibration[:, 1:]},
        )


def _measure(run: Run, sizes: Sizes) -> tuple[list[Row], dict[str, Any], dict[str, Any]]:
    """Fine-tune, score, divide; see the module."""
    rows: list[Row] = []
    for design in DESIGNS:
        for index in range(sizes.models):
            rates = run.cell(f"{design}-{index}", functools.partial(_rates, run, design, index, sizes))
            rows += [{"design": design, "model": index, **row} for row in rates]
    return rows, _tables(rows), {}


def _rates(run: Run, design: str, index: int, sizes: Sizes) -> list[Row]:
    """One model: error and power of each rule with each score, as rows."""
    seed = run.options.seed * 1_000 + index
    versions = versions_of(design, seed, sizes)
    model = fine_tune(
        run.base,
        versions[: sizes.members, 0].tolist(),
        epochs=sizes.epochs,
        learning_rate=sizes.learning_rate,
        seed=seed,
        max_length=sizes.max_length,
    )
    table = score_table(model, versions.reshape(-1).tolist(), SCORES, max_length=sizes.max_length)
    rules_seed = run.options.seed + index
    return [row for name in SCORES for row in _rules(name, table[name].reshape(versions.shape), rules_seed, sizes)]


def versions_of(design: str, seed: int, sizes: Sizes) -> np.ndarray:
    """[members + nonmembers, k + 1] texts, members first: the audited text, then its knockoffs."""
    texts = generate(sizes.members + sizes.nonmembers, seed=_POOL + seed).texts
    others = paraphrases(texts, sizes.knockoffs, seed=_PARAPHRASE + seed, words=sizes.words, order="middle")
    versions = np.array([(text, *more) for text, more in zip(texts, others, strict=True)], object)
    if design == "drawn":
        versions = np.random.default_rng(_DRAW + seed).permuted(versions, axis=1)
    return versions


def _rules(name: str, copies: np.ndarray, seed: int, sizes: Sizes) -> list[Row]:
    """Means over divisions of one table of scores [items, k + 1]."""
    members, others = copies[: sizes.members], copies[sizes.members :]
    rows: list[Row] = []
    for k in sorted({1, sizes.knockoffs}, reverse=True):
        names = list(METHODS) if k == sizes.knockoffs else ["KTD (the paper)"]
        result = study(
            Divisions(members[:, : k + 1], others[:, : k + 1], len(others) // 2),
            [method(METHODS[rule], label=rule) for rule in names],
            alphas=sizes.alphas,
            repetitions=sizes.repetitions,
            seed=seed % 2**32,
        )
        for i, rule in enumerate(names):
            for j, alpha in enumerate(sizes.alphas):
                rows.append(
                    {
                        "score": name,
                        "rule": rule,
                        "knockoffs": 0 if METHODS[rule].startswith("ptdi") else k,
                        "alpha": alpha,
                        "fdp": float(result.fdr[i, j]),
                        "power": float(result.power[i, j]),
                        "selected": float(result.num_selected[i, j]),
                        "leaning": _leaning(others[:, : k + 1], rule),
                        "auc": _auc(members, others),
                    }
                )
    return rows


def _leaning(others: np.ndarray, rule: str) -> float | None:
    """Rate at which non-members' statistics say "member", relative to that under exchangeable versions."""
    if rule in _CALIBRATED:
        return None
    if rule == "KTD multi":
        return float(np.mean(others.argmin(axis=1) == 0) * others.shape[1])
    return float(2 * np.mean(others[:, 1:].mean(axis=1) > others[:, 0]))


def _auc(members: np.ndarray, others: np.ndarray) -> float:
    """Probability that a member's own score is below a non-member's."""
    return float(np.mean(members[:, 0, None] < others[None, :, 0]))


def promised(design: str, rule: str, knockoffs: int) -> str:
    """Whether the rule's guarantee covers the design."""
    if rule in _CALIBRATED:
        return "yes"
    if design == "original":
        return "no: the versions of a non-member are not exchangeable"
    return "no: averaging paraphrases" if rule == "KTD (the paper)" and knockoffs > 1 else "yes"


def _tables(rows: Sequence[Row]) -> dict[str, tuple[Row, ...]]:
    """Means over models with the standard errors of models and divisions together, a table a design."""
    tables = {}
    for design in DESIGNS:
        mine = [row for row in rows if row["design"] == design]
        lines = []
        for score, rule, knockoffs in dict.fromkeys((row["score"], row["rule"], row["knockoffs"]) for row in mine):
            of_rule = [row for row in mine if (row["score"], row["rule"], row["knockoffs"]) == (score, rule, knockoffs)]
            leaning = [row["leaning"] for row in of_rule]
            lines.append(
                {
                    "score": score,
                    "rule": rule,
                    "k": knockoffs or None,
                    **by_level(of_rule, {"fdp": "FDP", "power": "power"}),
                    "non-members leaning": None if leaning[0] is None else float(np.mean(leaning)),
                    "FDR <= level promised": promised(design, rule, knockoffs),
                }
            )
        tables[f"Text = {_DESIGN_WORDS[design]}"] = tuple(lines)
    return tables


_DESIGN_WORDS = {"original": "the original (the papers' design)", "drawn": "one of its k + 1 versions at random"}


REPRODUCTION = Reproduction(
    "ptdi-ktd", "PTDI and KTD on the same fine-tuned models: who keeps the level, and at what power", Sizes.at, _measure
)
