"""Columns of strings that Arrow holds: a tenth of the memory of a list of Python strings, and no loop over values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

__all__ = ["StringColumn", "coded_words"]

_DECIMAL = r"^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$"


class StringColumn(Sequence[str]):
    """A sequence of strings, none of them absent, each of them valid Unicode.

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
        return chunks[0].dictionary.to_pylist(), np.concatenate([chunk.indices.to_numpy() for chunk in chunks])

    def take(self, rows: np.ndarray) -> list[str]:
        """The strings of some rows."""
        return self.array.take(rows).to_pylist()

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
            numbers = compute.cast(compute.if_else(decimal, self.array, None), pyarrow.float64())
        values = np.array(numbers.to_numpy())
        return values, ~np.isfinite(values)


def coded_words(values: Sequence[Any], word_of: Any) -> tuple[list[Any], np.ndarray]:
    """`word_of` of every value: the different words in the order of their first appearance, and each row's number."""
    distinct, codes = values.coded() if isinstance(values, StringColumn) else (values, slice(None))
    numbers: dict[Any, int] = {}
    order = [numbers.setdefault(word_of(value), len(numbers)) for value in distinct]
    return list(numbers), np.array(order, np.int64)[codes]
