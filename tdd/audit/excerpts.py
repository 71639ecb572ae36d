"""What a reader checks by eye: the beginning of each selected text, and two examples of what each check found."""

from __future__ import annotations

import collections
import dataclasses
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tdd.audit.inputs import Inputs, Role, Tables, knockoff_column
from tdd.records import Texts
from tdd.runs.extremes import most_extreme
from tdd.runs.folder import Audit

LENGTH, MOST = 160, 200
"""Characters of an excerpt, and items that have one."""

_READ = 20 * LENGTH
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn")


def excerpt(text: str, length: int = LENGTH) -> str:
    """The beginning of a text in one line of at most `length` characters.

    White space becomes one blank; control and format characters, those that reorder what stands beside them among them,
    unpaired surrogates and characters without a meaning become U+FFFD.

    >>> excerpt("one\\n  two \\u202ethree\\x1b[2J", 14)
    'one two \ufffdthre…'
    """
    line = " ".join(text[:_READ].split())
    line = "".join("\ufffd" if unicodedata.category(c) in _UNSEEN else c for c in line[: length + 1])
    return line if len(line) <= length and len(text) <= _READ else line[: length - 1] + "…"


def with_excerpts(audit: Audit, inputs: Inputs, tables: Tables, columns: Sequence[str], *, texts: bool = True) -> Audit:
    """The run with `excerpts`, (id, beginning) of at most 200 selected texts, the most extreme first, where a verdict
    stands, and `examples`, by check with a warning two items that show it (role, id, text).

    Args:
      audit: the finished run.
      inputs, tables: the texts and the scores by role.
      columns: the scores that decide.
      texts: False where what stands for items, as the SHA-256 of images, is no text to read.
    """
    run, known = dict(audit.run), inputs.candidates
    if texts and audit.verdict_stands and run["decision"]["num_selected"]:
        rows = most_extreme(audit.items, run["decision"]["columns"], run["decision"]["null"])[:MOST]
        run["excerpts"] = [[str(known.ids[row]), excerpt(known.texts[row])] for row in rows]
    examples = {}
    for check, finding in run["checks"].items():
        if check in _EXAMPLES and finding["warning"]:
            shown = _EXAMPLES[check](finding, inputs, tables, columns[0])
            found = [
                {"role": role, "id": str(name), "text": excerpt(text) if texts else ""} for role, name, text in shown
            ]
            examples |= {check: found} if found else {}
    return dataclasses.replace(audit, run={**run, "examples": examples} if examples else run)


Shown = Iterator[tuple[str, str, str]]
"""Role, id and text of an item."""

_CALIBRATION, _CANDIDATE = "calibration", "candidate"


def _by_id(texts: Texts | None, name: str) -> str:
    return "" if texts is None or name not in texts.ids else texts.texts[texts.ids.index(name)]


def _pair(names: Sequence[str], inputs: Inputs) -> Shown:
    """A calibration item and a candidate."""
    if len(names) == 2:
        yield _CALIBRATION, names[0], _by_id(inputs.calibration, names[0])
        yield _CANDIDATE, names[1], _by_id(inputs.candidates, names[1])


def _of_preparation(finding: Mapping[str, Any], inputs: Inputs, tables: Tables, column: str) -> Shown:
    """The items that show the clearest mark, and the part of them that does."""
    if finding["found"]:
        mark = finding["found"][0]
        for role, shown in ((_CALIBRATION, mark[4]), (_CANDIDATE, mark[5])):
            for name, part in shown[:1]:
                yield role, name, part


def _of_duplicates(finding: Mapping[str, Any], inputs: Inputs, tables: Tables, column: str) -> Shown:
    for pair in finding["pairs"][:1]:
        yield from _pair((pair["calibration"], pair["candidate"]), inputs)


def _of_pair(finding: Mapping[str, Any], inputs: Inputs, tables: Tables, column: str) -> Shown:
    yield from _pair(finding["example"], inputs)


def _of_values(finding: Mapping[str, Any], inputs: Inputs, tables: Tables, column: str) -> Shown:
    """Two items with the repeated value."""
    role = _CANDIDATE if finding["role"] == "candidates" else _CALIBRATION
    values, texts = tables.get(role, {}).get(finding["score"]), inputs.roles.get(Role(role))
    if values is not None and texts is not None:
        for row in np.flatnonzero(np.asarray(values, np.float64) == finding["value"])[:2].tolist():
            yield role, texts.ids[row], texts.texts[row]


def _of_clusters(finding: Mapping[str, Any], inputs: Inputs, tables: Tables, column: str) -> Shown:
    """The first item of the largest cluster of each role."""
    for role, clusters, texts in (
        (_CALIBRATION, inputs.calibration_clusters, inputs.calibration),
        (_CANDIDATE, inputs.clusters, inputs.candidates),
    ):
        if clusters and texts is not None:
            name, count = collections.Counter(clusters).most_common(1)[0]
            row = clusters.index(name)
            yield role, texts.ids[row], f"one of {count} items of {name}: {texts.texts[row]}"


def _of_symmetry(finding: Mapping[str, Any], inputs: Inputs, tables: Tables, column: str) -> Shown:
    """The known non-member that the model prefers most to one of its knockoffs, and that knockoff."""
    copies, scores = inputs.knockoffs(_CALIBRATION), tables.get(_CALIBRATION, {})
    if inputs.calibration is None or not copies:
        return
    panel = np.stack([scores[knockoff_column(column, 1 + number)] for number in range(len(copies))])
    gap = panel - np.asarray(scores[column])
    if not np.isnan(gap).all():
        number, row = np.unravel_index(np.nanargmax(gap), gap.shape)
        for role, texts in (("known non-member", inputs.calibration), (f"its knockoff {number + 1}", copies[number])):
            yield role, texts.ids[row], texts.texts[row]


_EXAMPLES = {
    "preparation": _of_preparation,
    "blind_baseline": _of_pair,
    "duplicates": _of_duplicates,
    "overlap": _of_pair,
    "repeated_value": _of_values,
    "cluster_sizes": _of_clusters,
    "symmetry": _of_symmetry,
}
"""Check -> the two items that show what it found."""
