"""Statistics of rows → scores of texts, as soon as all windows of a text are there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tdd.audit.programs import Rows
from tdd.records import TokenStats
from tdd.scoring.scores import ScoreRequest

__all__ = ["RowResults"]


class RowResults:
    """Collects one pass. Holds statistics only of texts whose windows are not complete yet.

    Attributes:
      values: label -> [N] float64, the tokens' part of each score; NaN for texts without rows.
      num_tokens: [N] int64, scored tokens.
    """

    def __init__(self, rows: Rows, requests: Sequence[ScoreRequest]) -> None:
        num_texts = len(rows.tokens)
        self.values = {request.label: np.full(num_texts, np.nan) for request in requests}
        self.num_tokens = np.zeros(num_texts, np.int64)
        self._rows, self._requests = rows, requests
        self._missing = np.bincount(rows.text, minlength=num_texts)
        self._parts: dict[int, list[tuple[int, np.ndarray]]] = {}

    def add(self, row_indices: np.ndarray, values: np.ndarray) -> None:
        """Take in the statistics [fields, targets] of some rows, one row after another."""
        ends = np.cumsum(self._rows.num_targets(row_indices))[:-1]
        complete = []
        for row, part in zip(row_indices, np.split(values, ends, axis=1), strict=True):
            text = int(self._rows.text[row])
            self._parts.setdefault(text, []).append((int(row), part))
            self._missing[text] -= 1
            if self._missing[text] == 0:
                complete.append(text)
        if complete:
            self._reduce(complete)

    def _reduce(self, texts: list[int]) -> None:
        """Score complete texts together, padded to the longest of them."""
        columns = [
            np.concatenate([part for _, part in sorted(self._parts.pop(text), key=lambda p: p[0])], axis=1)
            for text in texts
        ]
        counts = np.array([column.shape[1] for column in columns])
        padded = np.zeros((len(self._rows.statistics), len(texts), counts.max()))
        for i, column in enumerate(columns):
            padded[:, i, : column.shape[1]] = column
        found = dict(zip(self._rows.statistics, padded, strict=True))
        absent = np.zeros(padded.shape[1:])
        mask = np.arange(counts.max()) < counts[:, None]
        names = [name for name in TokenStats.__dataclass_fields__ if name != "mask"]
        stats = TokenStats(**{name: found.get(name, absent) for name in names}, mask=mask)  # type: ignore[arg-type]
        self.num_tokens[texts] = counts
        for request in self._requests:
            self.values[request.label][texts] = request.rows(stats)
