"""The header of a GGUF file: its metadata, and where each tensor lies.

Layout (version 2 and 3, little-endian): "GGUF", version, number of tensors, number of metadata entries; the entries,
each a name, a type and a value; for each tensor its name, its sizes with the fastest axis first, its type and its
offset; then, at the next multiple of the alignment, the data.

No number of the file is trusted: every length is compared with what is left of the file before anything is made of it.

Source: the specification in ggml's documentation, docs/gguf.md.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tdd.validate import InputError, some
from tdd.validate.files import check_fetched

MAGIC = b"GGUF"

_VERSIONS = (2, 3)
_ALIGNMENT = 32
_ALIGNMENT_KEY = "general.alignment"

_MOST_ENTRIES = 1 << 16
"""Metadata entries, and tensors, of a file at most; published files have some hundreds."""

_MOST_STRINGS = 1 << 22
"""Strings in an array at most; the longest that are published list some hundred thousand merges."""

_LONGEST_NAME = 1 << 10
_STRING, _ARRAY = 8, 9

_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), ("<" + code for code in "BbHhIif?Qqd"), strict=True))
"""Type of a metadata value -> its form, as `struct` and NumPy name it."""


class Kind(NamedTuple):
    """How a tensor's numbers are stored: in blocks of `numbers` that take `size` bytes."""

    name: str
    numbers: int
    size: int


KINDS: Mapping[int, Kind] = {
    number: Kind(*entry)
    for number, entry in {
        0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
        7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
        12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
        16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
        20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
        24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
        29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
        39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
    }.items()
}  # fmt: skip
"""Types of tensors by their numbers in a file."""


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies."""

    shape: tuple[int, ...]  # the axis whose numbers are neighbours is the last
    type: int  # a key of KINDS
    start: int  # first byte in the file
    size: int  # bytes

    @property
    def kind(self) -> Kind:
        """The form of its numbers."""
        return KINDS[self.type]


class Header(NamedTuple):
    """What `read_header` finds."""

    metadata: Mapping[str, Any]  # numbers, strings, truth values; arrays of numbers, lists of strings
    tensors: Mapping[str, StoredTensor]
    data: np.ndarray  # all bytes of the file, mapped


def read_header(path: pathlib.Path) -> Header:
    """The metadata and the places of the tensors of a GGUF file, which is mapped and stays so while data is used.

    Raises:
      InputError: It cannot be opened, is no GGUF file of version 2 or 3, is truncated, or contradicts itself.
    """
    try:
        data = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise InputError(f"{path} cannot be read as a GGUF file: {error}") from error
    try:
        return _parse(data)
    except _Broken as error:
        check_fetched(path)
        raise InputError(
            f"{path} is truncated or not a usable GGUF file ({len(data)} bytes): {error}; download or convert it again"
        ) from error


def single(metadata: Mapping[str, Any], name: str, default: Any, where: str) -> Any:
    """A metadata value that is no array.

    Raises:
      InputError: It is one.
    """
    value = metadata.get(name, default)
    if isinstance(value, (list, np.ndarray)):
        raise InputError(f"{where} has {name} = an array of {len(value)}; one value is supported")
    return value


class _Broken(Exception):
    """What is wrong with a file."""


def _parse(data: np.ndarray) -> Header:
    cursor = _Cursor(data)
    if bytes(data[:4]) != MAGIC:
        raise _Broken(f"it begins with {bytes(data[:4])!r} instead of {MAGIC!r}")
    cursor.place = 4
    version = cursor.number("<I")
    if version not in _VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        written = f"version {swapped} in big-endian order" if swapped in _VERSIONS else f"version {version}"
        raise _Broken(f"{written}, and versions {_VERSIONS[0]} and {_VERSIONS[1]} in little-endian order are read")
    num_tensors, num_entries = cursor.number("<Q"), cursor.number("<Q")
    for count, what in ((num_tensors, "tensors"), (num_entries, "metadata entries")):
        if count > _MOST_ENTRIES:
            raise _Broken(f"it announces {count} {what}; at most {_MOST_ENTRIES} are read")
    metadata: dict[str, Any] = {}
    for _ in range(num_entries):
        name = cursor.name()
        if name in metadata:
            raise _Broken(f"it has {name} twice")
        metadata[name] = cursor.value(cursor.number("<I"), name)
    placed = [_placed(cursor) for _ in range(num_tensors)]
    names = [name for name, _ in placed]
    if twice := sorted({name for name in names if names.count(name) > 1}) if len({*names}) < len(names) else []:
        raise _Broken(f"it has two tensors of the name {some(twice)}")
    alignment = metadata.get(_ALIGNMENT_KEY, _ALIGNMENT)
    if type(alignment) is not int or alignment < 8 or alignment % 8:
        raise _Broken(f"{_ALIGNMENT_KEY} is {alignment!r}; it must be a multiple of 8")
    first = -(-cursor.place // alignment) * alignment
    tensors = {name: dataclasses.replace(tensor, start=first + tensor.start) for name, tensor in placed}
    _check_places(tensors, alignment, first, len(data))
    return Header(metadata, tensors, data)


def _placed(cursor: _Cursor) -> tuple[str, StoredTensor]:
    """A tensor whose place is still counted from the first byte of the data."""
    name = cursor.name()
    axes = cursor.number("<I")
    if not 1 <= axes <= 4:
        raise _Broken(f"tensor {name} has {axes} axes; 1 to 4 are read")
    shape = tuple(cursor.number("<Q") for _ in range(axes))[::-1]
    number, start = cursor.number("<I"), cursor.number("<Q")
    if number not in KINDS:
        raise _Broken(f"tensor {name} is of type {number}, which is not known")
    kind = KINDS[number]
    if 0 in shape or shape[-1] % kind.numbers:
        raise _Broken(f"tensor {name} of shape {[*shape]} cannot be stored as {kind.name}, blocks of {kind.numbers}")
    return name, StoredTensor(shape, number, start, math.prod(shape) // kind.numbers * kind.size)


def _check_places(tensors: Mapping[str, StoredTensor], alignment: int, first: int, end: int) -> None:
    """Every tensor is aligned, inside the file, and has its bytes for itself."""
    before, used = "the header", first
    for name, tensor in sorted(tensors.items(), key=lambda entry: entry[1].start):
        if (tensor.start - first) % alignment:
            raise _Broken(f"tensor {name} does not lie at a multiple of {alignment} bytes")
        if tensor.start < used:
            raise _Broken(f"tensor {name} overlaps {before}")
        before, used = f"tensor {name}", tensor.start + tensor.size
        if used > end:
            raise _Broken(f"tensor {name} would end at byte {used}")


class _Cursor:
    """A place in the bytes of a file, which moves on with what is read."""

    def __init__(self, data: np.ndarray) -> None:
        self.bytes = data.data
        self.place = 0

    def take(self, size: int, what: str) -> int:
        """Move on by `size` bytes, which must be there; returns the place before."""
        place = self.place
        if size > len(self.bytes) - place:
            raise _Broken(f"{what} at byte {place} needs {size} bytes, and {len(self.bytes) - place} are left")
        self.place = place + size
        return place

    def number(self, form: str) -> Any:
        """One number."""
        return struct.unpack_from(form, self.bytes, self.take(struct.calcsize(form), "a number"))[0]

    def string(self, most: int | None = None) -> str:
        """A string with its length before it."""
        size = self.number("<Q")
        if most is not None and size > most:
            raise _Broken(f"a name at byte {self.place} has {size} bytes; at most {most} are read")
        place = self.take(size, "a string")
        try:
            return str(self.bytes[place : place + size], "utf-8")
        except UnicodeDecodeError as error:
            raise _Broken(f"a string at byte {place} is not UTF-8") from error

    def name(self) -> str:
        """A name of an entry or of a tensor, which errors may show."""
        place, name = self.place, self.string(_LONGEST_NAME)
        if not name.isprintable():
            raise _Broken(f"a name at byte {place} has characters that cannot be printed")
        return name

    def value(self, number: int, name: str) -> Any:
        """A metadata value of the type of this number: a scalar, a string or an array of one of them."""
        if number == _STRING:
            return self.string()
        if number == _ARRAY:
            return self._array(name)
        return self.number(self._form(number, name))

    def _array(self, name: str) -> Any:
        number, count = self.number("<I"), self.number("<Q")
        if number == _STRING:
            if count > _MOST_STRINGS:
                raise _Broken(f"{name} announces {count} strings; at most {_MOST_STRINGS} are read")
            return [self.string() for _ in range(count)]
        form = np.dtype(self._form(number, name))
        place = self.take(count * form.itemsize, name)
        return np.frombuffer(self.bytes, form, count, place)

    def _form(self, number: int, name: str) -> str:
        if number not in _SCALARS:
            raise _Broken(f"{name} has a value of type {number}, which is not read")
        return _SCALARS[number]
