"""The tensors of a GGUF file under a family's names, dequantised when they are read."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from tdd.models.gguf.header import KINDS, Header, StoredTensor
from tdd.models.weights import DTYPES, StoredTensors
from tdd.validate import InputError

_BLOCK = 1 << 20
"""Numbers that are dequantised together: the arrays between the steps stay small."""


@dataclasses.dataclass(frozen=True)
class Form:
    """How a tensor of a family is stored in the file."""

    name: str  # name in the file
    order: np.ndarray | None = None  # row i of the family's tensor is row order[i] of the file's; None: row i
    added: float = 0.0  # what was added to every number


class GgufTensors(StoredTensors):
    """Tensors by a family's names. Quantised ones are float32 here, others keep their type.

    Values are those of the package gguf, which ggml's authors publish: exact in float32 up to one rounding of each
    operation of the type's definition.

    Raises:
      InputError: A quantised tensor, and gguf is not installed or does not know the type.
    """

    def __init__(self, header: Header, forms: Mapping[str, Form], where: str) -> None:
        self._data, self._forms = header.data, forms
        self._stored = {name: header.tensors[form.name] for name, form in forms.items()}
        self._dequantise = _dequantise(quantised_types(header), where)

    def __exit__(self, *exception: object) -> None:
        """Nothing is open; the file stays mapped as long as the object lives."""

    def names(self) -> frozenset[str]:
        """The family's names of all tensors in the file."""
        return frozenset(self._forms)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor, without reading it."""
        return self._stored[name].shape

    def dtype(self, name: str) -> str:
        """Type of one tensor as it is read."""
        kind = self._stored[name].kind
        return "F32" if kind.numbers > 1 else kind.name

    def read(self, name: str) -> np.ndarray:
        """One tensor."""
        return self.cut(name, (slice(None),))

    def cut(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        """A slice of one tensor; of a matrix only its rows are dequantised."""
        form, stored = self._forms[name], self._stored[name]
        rows, *rest = index
        order = np.arange(stored.shape[0]) if form.order is None else form.order
        if len(stored.shape) == 2:
            values = self._rows(stored, order[rows])[(slice(None), *rest)]
        else:
            lines = np.arange(stored.size // _line(stored))
            values = self._rows(stored, lines).reshape(stored.shape)[order[rows]][(slice(None), *rest)]
        return values - values.dtype.type(form.added) if form.added else values

    def equal(self, name: str, other: str) -> bool:
        """True if two tensors are equal number for number; reads a block of rows of each at a time."""
        shape = self.shape(name)
        if shape != self.shape(other):
            return False
        step = max(1, _BLOCK // max(1, int(np.prod(shape[1:]))))
        blocks = (slice(start, start + step) for start in range(0, shape[0], step))
        return all(np.array_equal(self.cut(name, (rows,)), self.cut(other, (rows,))) for rows in blocks)

    def _rows(self, stored: StoredTensor, rows: np.ndarray) -> np.ndarray:
        """Rows of a matrix, of their own memory: [len(rows), width]."""
        width, kind = stored.shape[-1], stored.kind
        lines = self._data[stored.start : stored.start + stored.size].reshape(-1, _line(stored))
        if kind.numbers == 1:
            return np.ascontiguousarray(lines[rows]).view(DTYPES.get(kind.name, np.dtype(f"V{kind.size}")))
        found = np.empty((len(rows), width), np.float32)
        step = max(1, _BLOCK // width)
        for start in range(0, len(rows), step):
            chosen = np.asarray(lines[rows[start : start + step]])
            with np.errstate(all="ignore"):  # NaN and infinity are looked for where the numbers are used
                found[start : start + step] = self._dequantise(chosen, stored.type)
        return found


def _line(stored: StoredTensor) -> int:
    """Bytes of a row."""
    return stored.shape[-1] // stored.kind.numbers * stored.kind.size


def types(header: Header) -> dict[str, int]:
    """How many tensors are stored in each type, by its name, the most frequent first."""
    return dict(Counter(tensor.kind.name for tensor in header.tensors.values()).most_common())


def quantised_types(header: Header) -> dict[str, int]:
    """Those of `types` that must be dequantised, with their numbers."""
    return {tensor.kind.name: tensor.type for tensor in header.tensors.values() if tensor.kind.numbers > 1}


def _dequantise(quantised: Mapping[str, int], where: str) -> Any:
    """(bytes [rows, size of a row], number of the type) -> float32 [rows, width]; None where nothing is quantised."""
    if not quantised:
        return None
    names = ", ".join(sorted(quantised))
    try:
        from gguf import GGMLQuantizationType, dequantize
    except ImportError as error:
        raise InputError(
            f"{where} has tensors of type {names}, and the package gguf reads them: pip install 'tdd[gguf]'"
        ) from error

    def values(rows: np.ndarray, number: int) -> np.ndarray:
        return dequantize(rows, GGMLQuantizationType(number))

    for name, number in quantised.items():
        try:
            values(np.zeros((1, KINDS[number].size), np.uint8), number)
        except (ValueError, NotImplementedError) as error:
            raise InputError(
                f"{where} has tensors of type {name}, which the installed gguf does not read ({error}); "
                "pip install --upgrade gguf, or convert the file to another type"
            ) from error
    return values
