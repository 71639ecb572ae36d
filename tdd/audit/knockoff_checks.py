"""Diagnostics of knockoffs: does the model treat those of known non-members like the originals, and are they
paraphrases at all? The first is the assumption of every knockoff rule.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tdd.audit.decide import complete_calibration
from tdd.audit.inputs import Inputs
from tdd.procedures.knockoff_symmetry import knockoff_symmetry
from tdd.records import Evidence

__all__ = ["KnockoffTexts", "LongTexts", "Symmetry", "cut_texts", "knockoff_texts", "symmetry"]

_LEVEL = 0.01
_NAMED = 3
_MANY_CUT = 0.1


@dataclasses.dataclass(frozen=True)
class Symmetry:
    """The symmetry test on known non-members.

    Attributes:
      p_value: p-value of the null that original and knockoff scores of a non-member are exchangeable.
      num_items: known non-members with their knockoffs.
      method: name of the test.
      num_leaning: items that look like members: W > 0 for rule="ktd", for the others those whose own score is the
        lowest of the k + 1.
      expected: their expected number under the null, num_items / 2 or num_items / (k + 1).
      warning: empty where nothing was found; that it is empty proves nothing for the candidates.
    """

    p_value: float
    num_items: int
    method: str
    num_leaning: int
    expected: float
    warning: str


def symmetry(evidence: Evidence, rule: str) -> Symmetry | None:
    """Test what a knockoff rule assumes, on known non-members; None unless some have knockoffs.

    Tested is what the rule assumes: for "ktd" that the averaged statistic is symmetric, for the others that the copies
    of a text are exchangeable.
    """
    scores, copies, known = evidence.calibration, evidence.calibration_knockoffs, complete_calibration(evidence)
    if copies is None or not known.any():
        return None
    averaged = rule == "ktd"
    result = knockoff_symmetry(scores, copies, rule="ktd" if averaged else "multi")
    rival = copies[known].mean(axis=1) if averaged else copies[known].min(axis=1)
    num_leaning, num_items = int((scores[known] < rival).sum()), int(known.sum())
    expected = num_items / (2 if averaged else copies.shape[1] + 1)
    p_value = float(result.p_value) or math.exp(float(result.log_p_value))  # too small for single precision
    warning = ""
    if p_value <= _LEVEL:
        finding = (
            "the averaged statistic of known non-members is not symmetric"
            if averaged
            else "the scores of known non-members and of their knockoffs differ"
        )
        warning = (
            f"{finding} (symmetry test, p = {p_value:.3g}): {num_leaning} of {num_items} look like members, about "
            f"{expected:.0f} would by chance"
        )
        if rule != "conformal":
            warning += f'; rule="{rule}" is not valid here, and rule="conformal" needs no symmetry'
    return Symmetry(p_value, num_items, result.method, num_leaning, expected, warning)


@dataclasses.dataclass(frozen=True)
class KnockoffTexts:
    """Knockoffs of candidates and calibration items that are not paraphrases; texts are compared as they are.

    Attributes:
      num_items: items with knockoffs.
      num_unchanged: items with a knockoff that is the text itself.
      num_repeated: items of which two knockoffs are the same.
      num_foreign: items with a knockoff that is the text of another item: a sign of misaligned columns.
      warning: empty where nothing was found.
    """

    num_items: int
    num_unchanged: int
    num_repeated: int
    num_foreign: int
    warning: str


def knockoff_texts(inputs: Inputs) -> KnockoffTexts:
    """Find knockoffs that equal their text, one another, or another item's text."""
    unchanged, repeated, foreign, total = [], [], [], 0
    paraphrased = [
        (items, knockoffs)
        for items, knockoffs in (
            (inputs.candidates, inputs.knockoffs("candidate")),
            (inputs.calibration, inputs.knockoffs("calibration")),
        )
        if items is not None and knockoffs
    ]
    originals = {text for items, _ in paraphrased for text in items.texts}
    for items, knockoffs in paraphrased:
        total += len(items)
        versions = zip(*(texts.texts for texts in knockoffs), strict=True)
        for name, text, copies in zip(items.ids, items.texts, versions, strict=True):
            if text in copies:
                unchanged.append(name)
            if len(set(copies)) < len(copies):
                repeated.append(name)
            if any(copy in originals and copy != text for copy in copies):
                foreign.append(name)
    parts = []
    if unchanged:
        parts.append(
            f"{_some_of(unchanged, total)} have a knockoff that is the text itself: both score the same, W = 0, and "
            "where it is the only knockoff, or with rule=multi, such an item is never selected"
        )
    if repeated:
        parts.append(
            f"{_some_of(repeated, total)} have two knockoffs that are the same text, which say no more than one"
        )
    if foreign:
        parts.append(
            f"{_some_of(foreign, total)} have a knockoff that is the text of another item: are the columns out of step?"
        )
    return KnockoffTexts(total, len(unchanged), len(repeated), len(foreign), "; ".join(parts))


@dataclasses.dataclass(frozen=True)
class LongTexts:
    """Texts that exceed the context of the model.

    Attributes:
      num_texts: distinct texts, knockoffs included.
      num_cut: texts that were cut where the context ends.
      warning: empty where at most one text in ten was cut.
    """

    num_texts: int
    num_cut: int
    warning: str


def cut_texts(details: Sequence[Mapping[str, Any]], total: int) -> LongTexts | None:
    """Count the texts that were cut; None where long texts are not cut.

    Args:
      details: provenance of the scores under each model.
      total: distinct texts, knockoffs included.
    """
    counts = [detail["num_truncated"] for detail in details if "num_truncated" in detail]
    if not counts:
        return None
    num_cut = max(counts)
    warning = ""
    if num_cut > _MANY_CUT * total:
        warning = (
            f"{num_cut} of {total} texts are longer than the model's context and were cut there, originals and "
            "knockoffs alike: what lies beyond was not looked at"
        )
    return LongTexts(total, num_cut, warning)


def _some_of(names: Sequence[str], total: int) -> str:
    """ "2 of 40 items ('a', 'b')"."""
    more = ", ..." if len(names) > _NAMED else ""
    return f"{len(names)} of {total} items ({', '.join(map(repr, names[:_NAMED]))}{more})"
