"""PTDI against KTD on fine-tuned models of which it is known what they were trained on.

A small base is fine-tuned on members. Each document has k + 1 versions: itself and k paraphrases by a paraphraser that
no model had a part in. Two designs differ in which version is the text that is trained on and audited:

- "original": the document itself, as an auditor would have it. A document and its paraphrases are not exchangeable, so
  the paraphrases of a non-member score higher than the text, and rules that trust them find members where there are
  none.
- "drawn": one of the k + 1 versions, drawn at random. The versions of a non-member are exchangeable by construction.

Each model's scores are divided at random many times: half of the non-members calibrate, where a rule needs any; the
other half and all members are audited. Every rule decides at all levels q of a grid, as in KTD's figure 1; the rules of
`CURVES` with the first k of the same knockoffs (figure 4) and on models of several widths (figures 1 and 5).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import t

from benchmarks.paraphrases import paraphrases
from benchmarks.reproductions.models import Base, base_model, fine_tune, score_table, width_at
from benchmarks.reproductions.record import Reproduction, Row, Run
from benchmarks.reproductions.summary import by_level, standard_error
from tdd.lab.corpus import generate
from tdd.records import Null, pytree
from tdd.study import method
from tdd.study import run as study
from tdd.study.designs import Sample

__all__ = ["CURVES", "DESIGNS", "METHODS", "REPRODUCTION", "SCORES", "SHOWN", "Divisions", "Sizes"]

DESIGNS = ("original", "drawn")
SCORES = ("grad_norm", "loss")
"""KTD's score first."""
SHOWN = (0.1, 0.2, 0.5)
"""Levels of the tables, marked in the figures."""

METHODS: dict[str, str] = {
    "PTDI, Storey": "ptdi/storey",
    "PTDI, subtraction": "ptdi/subtraction",
    "KTD (the paper)": "ktd/ktd",
    "KTD multi": "ktd/multi",
    "KTD derandomized": "ktd/derandomized",
    "PTDI on W": "ktd/conformal",
}
"""Name in the tables -> method of `tdd.study`. "PTDI on W" is KTD's statistic, ranked among known non-members."""

CURVES = ("KTD (the paper)", "KTD multi", "PTDI on W")
"""Rules that are followed over the number of knockoffs and the size of the model."""

_CLEAR = 0.025  # level of the one-sided t-tests whether an FDP lies above q

_POOL, _PARAPHRASE, _DRAW = 500_000, 600_000, 700_000
_CALIBRATED = ("PTDI, Storey", "PTDI, subtraction", "PTDI on W")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of the experiment.

    Attributes:
      models: Fine-tuned models per design and width.
      widths: Widths of the models; the last one's meet all rules and scores.
      members: Number of documents that are trained on.
      nonmembers: Number of documents that are not.
      knockoffs: k, ascending; the first k of the last one's knockoffs.
      words: Probability that the paraphraser replaces a word it knows; sentences between the first and the last move.
      max_length: Tokens of a text.
      epochs, learning_rate: Options of fine-tuning.
      alphas: Levels q.
      repetitions: Random divisions per model.
    """

    models: int = 4
    widths: tuple[int, ...] = (32, 64, 128)
    members: int = 120
    nonmembers: int = 240
    knockoffs: tuple[int, ...] = (1, 3, 5, 10)
    words: float = 0.5
    max_length: int = 96
    epochs: int = 4
    learning_rate: float = 1e-3
    alphas: tuple[float, ...] = tuple(round(0.05 * i, 2) for i in range(1, 20))
    repetitions: int = 1000

    @classmethod
    def at(cls, scale: float) -> Sizes:
        """Texts and models grow with the scale, models and their widths with its root."""
        return cls(
            models=max(2, round(4 * scale**0.5)),
            widths=tuple(dict.fromkeys(width_at(scale, width) for width in cls.widths)),
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
    options = run.options
    base = functools.cache(
        lambda width: base_model(options.folder, scale=options.scale, seed=options.seed, width=width)
    )
    rows: list[Row] = []
    for design in DESIGNS:
        for width in reversed(sizes.widths):
            for index in range(sizes.models):
                rates = run.cell(
                    f"{design}-{width}-{index}", functools.partial(_rates, run, base, design, width, index, sizes)
                )
                rows += [{"design": design, "width": width, **row} for row in rates]
    return _means(rows), _tables(rows, sizes), {}


def _rates(run: Run, base: Callable[[int], Base], design: str, width: int, index: int, sizes: Sizes) -> list[Row]:
    """One model: error and power of each rule with each score, as rows."""
    seed = run.options.seed * 1_000 + index
    versions = versions_of(design, seed, sizes)
    model = fine_tune(
        base(width),
        versions[: sizes.members, 0].tolist(),
        epochs=sizes.epochs,
        learning_rate=sizes.learning_rate,
        seed=seed,
        max_length=sizes.max_length,
    )
    full = width == sizes.widths[-1]
    table = score_table(
        model, versions.reshape(-1).tolist(), SCORES if full else SCORES[:1], max_length=sizes.max_length
    )
    rows: list[Row] = []
    for name, values in table.items():
        copies = values.reshape(versions.shape)
        for k in sizes.knockoffs if full and name == SCORES[0] else sizes.knockoffs[-1:]:
            rules = METHODS if full and k == sizes.knockoffs[-1] else CURVES
            rows += _rules(name, copies[:, : k + 1], list(rules), run.options.seed + index, sizes)
    return [{"parameters": model.num_parameters, **row} for row in rows]


def versions_of(design: str, seed: int, sizes: Sizes) -> np.ndarray:
    """[members + nonmembers, largest k + 1] texts, members first: the audited text, then its knockoffs."""
    texts = generate(sizes.members + sizes.nonmembers, seed=_POOL + seed).texts
    others = paraphrases(texts, sizes.knockoffs[-1], seed=_PARAPHRASE + seed, words=sizes.words, order="middle")
    versions = np.array([(text, *more) for text, more in zip(texts, others, strict=True)], object)
    if design == "drawn":
        versions = np.random.default_rng(_DRAW + seed).permuted(versions, axis=1)
    return versions


def _rules(name: str, copies: np.ndarray, rules: Sequence[str], seed: int, sizes: Sizes) -> list[Row]:
    """Means over divisions of one table of scores [items, k + 1], by rule and level."""
    members, others = copies[: sizes.members], copies[sizes.members :]
    result = study(
        Divisions(members, others, len(others) // 2),
        [method(METHODS[rule], label=rule) for rule in rules],
        alphas=sizes.alphas,
        repetitions=sizes.repetitions,
        seed=seed % 2**32,
    )
    return [
        {
            "score": name,
            "rule": rule,
            "knockoffs": 0 if METHODS[rule].startswith("ptdi") else copies.shape[1] - 1,
            "alpha": alpha,
            "fdp": float(result.fdr[i, j]),
            "power": float(result.power[i, j]),
            "leaning": _leaning(others, rule),
            "auc": _auc(members, others),
        }
        for i, rule in enumerate(rules)
        for j, alpha in enumerate(sizes.alphas)
    ]


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


def _means(rows: Sequence[Row]) -> list[Row]:
    """Means over models with the standard errors of models and divisions together."""
    keys = ("design", "width", "parameters", "score", "rule", "knockoffs", "alpha")
    return [
        dict(zip(keys, key, strict=True))
        | {name: float(np.mean([row[name] for row in group])) for name in ("fdp", "power")}
        | {f"{name}_se": standard_error([row[name] for row in group]) for name in ("fdp", "power")}
        for key, group in _groups(rows, keys).items()
    ]


def _tables(rows: Sequence[Row], sizes: Sizes) -> dict[str, tuple[Row, ...]]:
    """Means over models at the levels `SHOWN`: by k, by size, and all rules of the largest model, a table a design."""
    own, largest, most = SCORES[0], sizes.widths[-1], sizes.knockoffs[-1]
    text, rule = {"text": "design"}, {"rule": "rule"}
    curves = [row for row in rows if row["score"] == own and row["rule"] in CURVES]
    tables = {
        f"By number of knockoffs: {own}, width {largest}": _lines(
            [row for row in curves if row["width"] == largest], {**text, **rule, "k": "knockoffs"}
        ),
        f"By size: {own}, k = {most}": _lines(
            [row for row in curves if row["knockoffs"] == most],
            {**text, **rule, "width": "width", "parameters": "parameters"},
        ),
    }
    for design in DESIGNS:
        mine = [row for row in rows if row["design"] == design and row["width"] == largest]
        tables[f"Text = {_DESIGN_WORDS[design]}; k = {most}, width {largest}"] = _lines(
            [row for row in mine if row["knockoffs"] in (0, most)], {"score": "score", **rule}
        )
    return tables


def _lines(rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[Row, ...]:
    """A line for each combination of the values in `columns` (heading -> column)."""
    lines = []
    for key, group in _groups(rows, [*columns.values()]).items():
        leaning = [row["leaning"] for row in group]
        lines.append(
            {
                **dict(zip(columns, key, strict=True)),
                **by_level([row for row in group if row["alpha"] in SHOWN], {"fdp": "FDP", "power": "power"}),
                _exceeded_heading(group): _exceeded(group),
                "non-members leaning": None if leaning[0] is None else float(np.mean(leaning)),
                "AUC": float(np.mean([row["auc"] for row in group])),
                "FDR <= q promised": promised(*(group[0][name] for name in ("design", "rule", "knockoffs"))),
            }
        )
    return tuple(lines)


def _groups(rows: Sequence[Row], columns: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Values of the columns -> their rows."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return groups


def _exceeded_heading(rows: Sequence[Row]) -> str:
    return f"FDP > q (p < {_CLEAR:g}), of {len({row['alpha'] for row in rows})} levels"


def _exceeded(rows: Sequence[Row]) -> str:
    """At how many levels the mean FDP lies above the level, and at how many a t-test over models finds so."""
    excesses = [[row["fdp"] - alpha for row in group] for (alpha,), group in _groups(rows, ["alpha"]).items()]
    clear = sum(np.mean(excess) > t.isf(_CLEAR, len(excess) - 1) * standard_error(excess) for excess in excesses)
    return f"{sum(np.mean(excess) > 0 for excess in excesses)} ({clear})"


_DESIGN_WORDS = {"original": "the original (the papers' design)", "drawn": "one of its k + 1 versions at random"}


REPRODUCTION = Reproduction(
    "ptdi-ktd", "PTDI and KTD on the same fine-tuned models: who keeps the level, and at what power", Sizes.at, _measure
)
