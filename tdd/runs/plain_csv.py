"""CSV that Arrow and Python's strict reader read alike: a fast road for large tables, which gives up in doubt."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np

from tdd.validate.string_columns import StringColumn

__all__ = ["LARGE", "read_plain_csv"]

LARGE = 2**22
"""Bytes from which a file is worth it: importing Arrow takes longer than reading less."""

_MARK = b"\xef\xbb\xbf"
_SEPARATORS = np.frombuffer(b",\r\n", np.uint8)


def read_plain_csv(data: bytes) -> dict[str, StringColumn] | None:
    """Columns by their names, one row a line from the second on; None where only the strict reader can tell.

    That is the case where a line is blank, a row is longer or shorter than the header, a column's name is repeated, a
    field in quotes holds a quote or the end of a line, lines end in a carriage return alone, bytes are not UTF-8, or
    there is a NUL, or a second byte-order mark at the start of a line.

    Args:
      data: the file, without its byte-order mark.
    """
    import pyarrow
    import pyarrow.csv

    returns = data.count(b"\r")
    start = data.find(b"\n") + 1
    marked = data.startswith(_MARK) or data.startswith(_MARK, start)
    if not start or marked or b"\0" in data or (returns and returns != data.count(b"\r\n")):
        return None
    if b'"' in data and not _plainly_quoted(data):
        return None
    try:
        header = next(csv.reader([data[:start].decode("utf-8")], strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        return None
    if not header or len(set(header)) < len(header):
        return None
    num_lines = data.count(b"\n") - data.endswith(b"\n")
    arrow: Any = pyarrow.csv
    try:
        table = arrow.read_csv(
            pyarrow.py_buffer(data).slice(start),
            read_options=arrow.ReadOptions(column_names=header, use_threads=False),
            parse_options=arrow.ParseOptions(newlines_in_values=False),
            convert_options=arrow.ConvertOptions(
                column_types=dict.fromkeys(header, pyarrow.string()), strings_can_be_null=False
            ),
        )
    except pyarrow.ArrowException:
        return None
    if table.num_rows != num_lines:
        return None
    return {name: StringColumn(table.column(i)) for i, name in enumerate(header)}


def _plainly_quoted(data: bytes) -> bool:
    """Whether every quote opens a field at its start or closes it at its end, on one line."""
    content = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(content == ord('"'))
    opening, closing = quotes[0::2], quotes[1::2]
    if opening.size != closing.size:
        return False
    before, after = opening[opening > 0] - 1, closing[closing + 1 < content.size] + 1
    outside = np.isin(content[before], _SEPARATORS).all() and np.isin(content[after], _SEPARATORS).all()
    ends = np.flatnonzero(content == ord("\n"))
    return bool(outside) and not (np.searchsorted(quotes, ends) % 2).any()
