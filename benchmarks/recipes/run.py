"""Run a recipe: scores of texts with known truth → realised FDR, power by number of copies, the null twin, time."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import tdd
from benchmarks.known_truth import auc, divide
from benchmarks.recipes import Recipe
from tdd.audit.blind_baseline import blind_baseline
from tdd.records import Texts
from tdd.report.page import markdown_table
from tdd.scoring.models import provenance_of
from tdd.texts import hash_texts, load_texts, read_rows
from tdd.texts.rows import number_of
from tdd.texts.words import normalise
from tdd.validate import InputError

__all__ = ["Known", "read_known", "run", "tables"]


class Known(NamedTuple):
    """Texts with the number of copies of each in the training data.

    Attributes:
      texts: N texts.
      copies: [N] int64, 0 for non-members.
      num_repeated: texts that were left out because another one is equal, case and white space aside.
    """

    texts: Texts
    copies: np.ndarray
    num_repeated: int

    @property
    def member(self) -> np.ndarray:
        """[N] bool."""
        return self.copies > 0

    def side(self, member: bool) -> Texts:
        """The members, or the others."""
        return take(self.texts, np.flatnonzero(self.member == member))


def read_known(paths: Sequence[Any], copies_field: str, text_field: str | None, *, deduplicate: bool) -> Known:
    """Read texts and how often each was trained on, from files that are read one below the other.

    Args:
      paths: files of texts, as `tdd.load_texts` reads them.
      copies_field: field with the number of copies in the training data; a label 0 or 1 is one too.
      text_field: field with the text.
      deduplicate: leave out a text that a member equals, and all but the first of equal ones.

    Raises:
      InputError: a number of copies that is none; fewer than 20 members or 40 non-members.
    """
    parts, copies = [], []
    for path in paths:
        rows = read_rows(path)
        parts.append(load_texts(rows, text_field=text_field))
        if copies_field not in rows.fields:
            raise InputError(f"{rows.source}: there is no field {copies_field!r}; fields: {', '.join(rows.fields)}")
        for index, value in enumerate(rows.column(copies_field)):
            try:
                number = number_of(value)
            except (TypeError, ValueError):
                number = -1.0
            if number < 0 or number != int(number):
                raise InputError(
                    f"{rows.source}: {copies_field} at {rows.place(index)} must be 0, 1, 2, ..., not {value!r}"
                )
            copies.append(int(number))
    ids = [f"{part}/{name}" if len(parts) > 1 else name for part, texts in enumerate(parts) for name in texts.ids]
    whole = Texts(tuple(ids), tuple(text for texts in parts for text in texts.texts))
    counts, kept = np.array(copies), np.arange(len(ids))
    if deduplicate:
        first: dict[str, int] = {}
        for index in np.argsort(counts == 0, kind="stable").tolist():  # members first: a non-member must equal none
            first.setdefault(normalise(whole.texts[index]), index)
        kept = np.sort(np.fromiter(first.values(), np.int64))
    found = Known(take(whole, kept), counts[kept], len(ids) - len(kept))
    members = int(found.member.sum())
    if members < 20 or len(kept) - members < 40:
        raise InputError(
            f"{members} members and {len(kept) - members} non-members are too few; give 20 and 40 at least"
        )
    return found


def take(texts: Texts, indices: np.ndarray) -> Texts:
    """The texts at some places."""
    ids, chosen = tuple(texts.ids[i] for i in indices), tuple(texts.texts[i] for i in indices)
    return Texts(ids, chosen, sha256=hash_texts(ids, chosen))


def run(
    recipe: Recipe,
    model: Any,
    known: Known,
    *,
    null_model: Any = None,
    checkpoints: Sequence[Any] = (),
    scores: Sequence[str] = (),
    alpha: float = 0.1,
    repetitions: int = 200,
    seed: int = 0,
    out: pathlib.Path | None = None,
    **scoring: Any,
) -> dict[str, Any]:
    """Measure what scores and decisions achieve under a model whose training data is known.

    Half of the non-members calibrate, drawn anew `repetitions` times; the other half and all members are candidates.
    Under `null_model`, which was trained on none of the texts, the same is done: there every selection is false, so
    that in at most alpha of the divisions anything is selected. Standard errors are over divisions of one model and
    one set of texts.

    Args:
      recipe: what is measured.
      model: the model, as `tdd.score` takes it.
      known: texts and truth.
      null_model: the twin, or None.
      checkpoints: models in the order of training, or none: `tdd.probe.over_checkpoints` then says when the members
        come in.
      scores: scores instead of those of the recipe.
      alpha: level.
      repetitions: random divisions.
      seed: random seed of the divisions.
      out: folder of the probe over the checkpoints, or None.
      **scoring: passed to `tdd.score`.
    """
    names, member = tuple(scores) or recipe.scores, known.member
    calibration = int((~member).sum()) // 2
    options = {"calibration": calibration, "alpha": alpha, "repetitions": repetitions, "seed": seed}
    result: dict[str, Any] = {
        "title": recipe.title,
        "truth": recipe.truth,
        "model": provenance_of(model),
        "texts_sha256": known.texts.sha256,
        "members": int(member.sum()),
        "nonmembers": int((~member).sum()),
        "repeated": known.num_repeated,
        **options,
        "blind_baseline": blind_baseline(known.side(False), known.side(True), seed=seed).auc,
        "rows": [],
    }
    table = tdd.score(model, known.texts, names, **scoring)
    twin = None if null_model is None else tdd.score(null_model, known.texts, names, **scoring)
    for name in names:
        found = divide(table[name], member, **options)
        row = {"score": name, "auc": auc(table[name], member), **found.summary()}
        row["by_copies"] = {
            str(count): float(found.selected[known.copies[member] == count].mean())
            for count in sorted(set(known.copies[member].tolist()))
        }
        if twin is not None:
            row |= {"null_auc": auc(twin[name], member), "null_any": divide(twin[name], member, **options).any}
        result["rows"].append(row)
    if null_model is not None:
        result["null_model"] = provenance_of(null_model)
    if checkpoints:
        result["time"] = _over_time(known, checkpoints, alpha, seed, out)
    return result


def _over_time(
    known: Known, checkpoints: Sequence[Any], alpha: float, seed: int, out: pathlib.Path | None
) -> dict[str, Any]:
    """When the members come in: the first alarm of the anytime test, and how many are named by then."""
    probe = tdd.probe.over_checkpoints(
        checkpoints, known.side(True), known.side(False), alpha=alpha, seed=seed, out=out, name="recipe"
    )
    copies = known.copies[known.member]
    looks = [
        {
            "checkpoint": place["name"],
            "p_value": float(look.evidence.p_value),
            "anytime_p_value": float(look.evidence.anytime_p_value),
            "alarm": bool(look.alarm),
            "flagged": int(look.flagged.sum()),
            "flagged_by_copies": {
                str(count): int(look.flagged[copies == count].sum()) for count in sorted(set(copies.tolist()))
            },
        }
        for place, look in zip(probe.checkpoints, probe.history, strict=True)
    ]
    first = probe.first_alarm
    return {"alarm": None if first is None else looks[first]["checkpoint"], "looks": looks}


def tables(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    copies = list(result["rows"][0]["by_copies"])
    twin = "null_any" in result["rows"][0]
    header = ["score", "AUC", "FDR ± s.e.", "power"]
    header += [f"power, {count} {'copy' if count == '1' else 'copies'}" for count in copies if len(copies) > 1]
    header += ["AUC under the twin", "any selection under the twin"] * twin
    rows = []
    for row in result["rows"]:
        cells = [row["score"], f"{row['auc']:.3f}", f"{row['fdr']:.3f} ± {row['fdr_se']:.3f}", f"{row['power']:.3f}"]
        cells += [f"{row['by_copies'][count]:.3f}" for count in copies if len(copies) > 1]
        rows.append([*cells, *([f"{row['null_auc']:.3f}", f"{row['null_any']:.3f}"] if twin else [])])
    text = (
        f"**{result['title']}**, {result['model']['name']}: {result['members']} members, {result['nonmembers']} "
        f"non-members, of which {result['calibration']} calibrate in each of {result['repetitions']} random divisions; "
        f"α = {result['alpha']:g}. Truth: {result['truth']}. Without the model, members are told from "
        f"non-members at AUC {result['blind_baseline']:.3f}.\n\n{markdown_table(header, rows)}"
    )
    if "time" in result:
        looks = result["time"]["looks"]
        shown = [
            [
                look["checkpoint"],
                *(f"{look[name]:.4f}" for name in ("p_value", "anytime_p_value")),
                str(look["flagged"]),
            ]
            for look in looks
        ]
        header = ["checkpoint", "p-value of the look", "anytime p-value", "members flagged"]
        text += f"\n\nFirst alarm: {result['time']['alarm'] or 'none'}.\n\n{markdown_table(header, shown)}"
    return text + "\n"
