"""Tables of ground truth: one row a planted text or set, plain values, as CSV."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

from tdd.runs.atomic import write_atomically

__all__ = ["Row", "csv_bytes", "write_rows"]

Row = Mapping[str, Any]


def csv_bytes(rows: Sequence[Row]) -> bytes:
    """Rows as CSV in UTF-8, the keys of the first one as header; every row has the same keys."""
    content = io.StringIO(newline="")
    writer = csv.DictWriter(content, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return content.getvalue().encode()


def write_rows(path: str | os.PathLike[str], rows: Sequence[Row]) -> None:
    """Write rows as CSV, whole or not at all."""
    write_atomically(path, csv_bytes(rows))
