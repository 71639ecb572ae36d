"""Are the knockoffs of known non-members treated like the originals? The assumption of every knockoff rule.

What can be seen of it: the symmetry of scores on known non-members, and texts that are no paraphrases at all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.audit.evidence import Panels
from tdd.audit.run_inputs import Inputs
from tdd.procedures.knockoff_symmetry import knockoff_symmetry

__all__ = ["KnockoffTexts", "LongTexts", "Symmetry", "copies", "cut_texts", "symmetry"]

_LEVEL = 0.01
_NAMED = 3
_MUCH = 0.1


@dataclasses.dataclass(frozen=True)
class Symmetry:
    """The symmetry test on known non-members.

    Attributes:
      p_value: of the null that original and knockoff scores of a non-member are exchangeable.
      num_items: known non-members with their knockoffs.
      method: name of the test.
      num_leaning: of them, those that look like members: W > 0 for rule="ktd", for the others those whose own score is
        the lowest of the k + 1.
      expected: how many would by chance, num_items / 2 or num_items / (k + 1).
      warning: empty where nothing was found; that it is empty proves nothing for the candidates.
    """

    p_value: float
    num_items: int
    method: str
    num_leaning: int
    expected: float
    warning: str


def symmetry(panels: Panels, rule: str) -> dict[str, Symmetry]:
    """{"symmetry": finding} where known non-members have knockoffs, else {}.

    What is tested is what the rule assumes: "ktd" that the averaged statistic is symmetric, the others that the copies
    of a text are exchangeable.
    """
    known = ~np.isnan(panels.calibration[0])
    if not panels.calibration_knockoffs.size or not known.any():
        return {}
    known &= ~np.isnan(panels.calibration_knockoffs).any(axis=1)
    if not known.any():
        return {}
    own, copies = panels.calibration[0], panels.calibration_knockoffs
    result = knockoff_symmetry(own, copies, rule="ktd" if rule == "ktd" else "multi")
    rival = copies[known].mean(axis=1) if rule == "ktd" else copies[known].min(axis=1)
    leaning, items = int((own[known] < rival).sum()), int(known.sum())
    expected = items / (2 if rule == "ktd" else copies.shape[1] + 1)
    p_value = float(result.p_value) or math.exp(float(result.log_p_value))  # too small for single precision
    warning = ""
    if p_value <= _LEVEL:
        found = (
            "the averaged statistic of known non-members is not symmetric"
            if rule == "ktd"
            else "the scores of known non-members and of their knockoffs differ"
        )
        warning = (
            f"{found} (symmetry test, p = {p_value:.3g}): {leaning} of {items} look like members, about "
            f"{expected:.0f} would by chance"
        )
        if rule != "conformal":
            warning += f'; rule="{rule}" is not valid here, and rule="conformal" needs no symmetry'
    return {"symmetry": Symmetry(p_value, items, result.method, leaning, expected, warning)}


@dataclasses.dataclass(frozen=True)
class KnockoffTexts:
    """Knockoffs that are no paraphrases, among candidates and calibration items; texts are compared as they are.

    Attributes:
      num_items: items with knockoffs.
      num_unchanged: items with a knockoff that is the text itself.
      num_repeated: items of which two knockoffs are the same.
      num_foreign: items with a knockoff that is the text of another item: a sign of columns out of step.
      warning: empty where none of this was found.
    """

    num_items: int
    num_unchanged: int
    num_repeated: int
    num_foreign: int
    warning: str


def copies(inputs: Inputs) -> dict[str, KnockoffTexts]:
    """{"knockoff_texts": finding}: knockoffs equal to their text, to one another, or to another item's text."""
    unchanged, repeated, foreign, total = [], [], [], 0
    owners = [owner for owner in ("candidate", "calibration") if inputs.knockoffs(owner)]
    originals = {text for owner in owners for text in inputs.roles[owner].texts}
    for owner in owners:
        items = inputs.roles[owner]
        total += len(items)
        columns = zip(*(texts.texts for texts in inputs.knockoffs(owner)), strict=True)
        for name, text, own in zip(items.ids, items.texts, columns, strict=True):
            if text in own:
                unchanged.append(name)
            if len(set(own)) < len(own):
                repeated.append(name)
            if any(other in originals and other != text for other in own):
                foreign.append(name)
    found = []
    if unchanged:
        found.append(
            f"{_of(unchanged, total)} have a knockoff that is the text itself: both score the same, W = 0, and where "
            "it is the only knockoff, or with rule=multi, such an item is never selected"
        )
    if repeated:
        found.append(f"{_of(repeated, total)} have two knockoffs that are the same text, which say no more than one")
    if foreign:
        found.append(
            f"{_of(foreign, total)} have a knockoff that is the text of another item: are the columns out of step?"
        )
    return {
        "knockoff_texts": KnockoffTexts(total, len(unchanged), len(repeated), len(foreign), "; ".join(found)),
    }


@dataclasses.dataclass(frozen=True)
class LongTexts:
    """Texts that exceed the context of the model.

    Attributes:
      num_texts: distinct texts, knockoffs included.
      num_cut: of them, cut where the context ends.
      warning: empty where at most one text in ten was cut.
    """

    num_texts: int
    num_cut: int
    warning: str


def cut_texts(details: Sequence[Mapping[str, Any]], total: int) -> dict[str, LongTexts]:
    """{"long_texts": finding} where long texts are cut, else {}.

    Args:
      details: provenance of the scores under each model.
      total: distinct texts, knockoffs included.
    """
    counts = [one["num_truncated"] for one in details if "num_truncated" in one]
    if not counts:
        return {}
    cut = max(counts)
    warning = ""
    if cut > _MUCH * total:
        warning = (
            f"{cut} of {total} texts are longer than the model's context and were cut there, originals and knockoffs "
            "alike: what lies beyond was not looked at"
        )
    return {"long_texts": LongTexts(total, cut, warning)}


def _of(names: Sequence[str], total: int) -> str:
    """ "2 of 40 items ('a', 'b')"."""
    more = ", ..." if len(names) > _NAMED else ""
    return f"{len(names)} of {total} items ({', '.join(map(repr, names[:_NAMED]))}{more})"
