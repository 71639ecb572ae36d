"""Large tables in Arrow: CSV that it reads as Python's strict reader does, and columns of strings that it holds."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

LARGE = 2**22
"""Bytes from which a file is worth it: importing Arrow takes longer than reading less."""

MOST_FIELDS = 10_000
"""Most columns of a table; Arrow needs kilobytes for each of them, however few rows there are."""

SEPARATOR_ROW = ["sep=", ""]  # the first line, "sep=,", by which Excel is told what separates the columns
_MARK = b"\xef\xbb\xbf"
_SEPARATORS = np.frombuffer(b",\r\n", np.uint8)
_DECIMAL = r"^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$"


_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")


def lines(content: str) -> Iterator[str]:
    """The lines of a text with their ends, one at a time; `io.StringIO` holds four bytes for each character."""
    if "\r" in content:
        yield from (match[0] for match in _LINE.finditer(content))
        return
    start = 0
    while end := content.find("\n", start) + 1:
        yield content[start:end]
        start = end
    if start < len(content):
        yield content[start:]


def read_plain_csv(data: bytes) -> dict[str, StringColumn] | None:
    """Columns by their names, one row a line from the second on; None where only the strict reader can tell.

    That is the case where there are more than 10,000 columns, the first line is "sep=,", a line is blank, a row is
    longer or shorter than the header, a column's name is repeated, a field in quotes holds a quote or the end of a
    line, lines end in a carriage return alone, bytes are not UTF-8, or there is a NUL, or a second byte-order mark at
    the start of a line.

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
    if not header or len(header) > MOST_FIELDS or len(set(header)) < len(header) or header == SEPARATOR_ROW:
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


class StringColumn(Sequence[str]):
    """A sequence of strings, none of them absent, each of them valid Unicode: a tenth of the memory of a list.

    Attributes:
      array: the `pyarrow.ChunkedArray` of strings.
    """

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self.array[index].to_pylist() if isinstance(index, slice) else self.array[index].as_py()

    def __iter__(self) -> Iterator[str]:
        for chunk in self.array.chunks:
            yield from chunk.to_pylist()

    def coded(self) -> tuple[list[str], np.ndarray]:
        """The different strings in the order of their first appearance, and [N] the number of each row's string."""
        chunks = self.array.dictionary_encode().unify_dictionaries().chunks
        return chunks[0].dictionary.to_pylist(), _numpy([chunk.indices for chunk in chunks], np.int32)

    def take(self, rows: np.ndarray) -> list[str]:
        """The strings of some rows."""
        return self.array.take(rows).to_pylist() if len(rows) else []

    def decimals(self) -> tuple[np.ndarray, np.ndarray]:
        """The decimal numbers: [N] float64 with the bits of Python's `float`, and [N] where the string is none.

        Words, blanks, white space, digits of other scripts, and numbers beyond the range of floats are left to the
        caller: a row counts as a decimal number where its string is one, written in ASCII digits, and finite.
        """
        import pyarrow
        import pyarrow.compute

        compute: Any = pyarrow.compute
        try:
            numbers = compute.cast(self.array, pyarrow.float64())
        except pyarrow.ArrowInvalid:
            decimal = compute.match_substring_regex(self.array, _DECIMAL)
            numbers = compute.cast(compute.if_else(decimal, self.array, "nan"), pyarrow.float64())
        values = _numpy(numbers.chunks, np.float64)
        return values, ~np.isfinite(values)


def _numpy(chunks: Sequence[Any], dtype: type[np.generic]) -> np.ndarray:
    """The numbers in Arrow's chunks, all of them there; Arrow's own `to_numpy` imports pandas first."""
    parts = [np.frombuffer(chunk.buffers()[1], dtype)[chunk.offset :][: len(chunk)] for chunk in chunks if len(chunk)]
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def coded_words(values: Sequence[Any], word_of: Any) -> tuple[list[Any], np.ndarray]:
    """`word_of` of every value: the different words in the order of their first appearance, and each row's number."""
    distinct, codes = values.coded() if isinstance(values, StringColumn) else (values, slice(None))
    numbers: dict[Any, int] = {}
    order = [numbers.setdefault(word_of(value), len(numbers)) for value in distinct]
    return list(numbers), np.array(order, np.int64)[codes]
