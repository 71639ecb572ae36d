"""Checks of input texts: files, rows, fields, identifiers, labels.

Functions named after a column return the checked column; functions that begin with `bad_` or `no_` return the
`InputError` to raise where a parser gave up. `place` always turns a row index into words such as "line 7".
"""

from __future__ import annotations

import numbers
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError
from tdd.validate.string_columns import StringColumn, coded_words

__all__ = [
    "COMMON_TEXT_FIELDS",
    "FORMATS",
    "bad_json",
    "bad_object",
    "bad_record",
    "bad_source",
    "existing_field",
    "existing_path",
    "fields_found",
    "identifier_column",
    "is_absent",
    "label_column",
    "no_text_files",
    "some_rows",
    "text_column",
    "text_field_of",
    "unreadable",
]

FORMATS = ("jsonl", "json", "csv", "parquet", "txt")
"""File formats that can be read; all but parquet also as .gz."""

COMMON_TEXT_FIELDS = (
    "input",
    "content",
    "passage",
    "document",
    "sentence",
    "snippet",
    "body",
    "example",
    "raw_text",
    "raw_content",
)
"""Fields taken for the text where there is no field "text" and exactly one of these."""


_NAMED = 5
_LABELS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}

Place = Callable[[int], str]


def existing_path(source: str | os.PathLike[str]) -> pathlib.Path:
    """The path of a file or folder that exists."""
    text = os.fspath(source)
    if not os.path.exists(text):
        raise InputError(
            f"no such file or folder: {_short(text)}; a single string is always a path, "
            "so pass a list of strings to give the texts themselves"
        )
    check_readable(text)
    return pathlib.Path(text)


def check_readable(path: str) -> None:
    """A file or folder that can be read to an end: no pipe in the file system, which would wait for a writer, and no
    device. The pipes of a shell have no place in the file system: /dev/stdin and /dev/fd/N are read."""
    place = os.path.realpath(path)
    if os.path.exists(place) and not (os.path.isfile(place) or os.path.isdir(place) or _of_a_shell(path)):
        raise InputError(
            f"{path} is neither a file nor a folder but a named pipe or a device; copy what it gives into a "
            "file, or pipe it into /dev/stdin with format=... (--format)"
        )


def _of_a_shell(path: str) -> bool:
    return os.path.abspath(path).startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/"))


def unreadable(source: str, detail: object) -> InputError:
    """A file that the operating system or the decompressor refuses."""
    return InputError(f"{source}: cannot be read: {detail}")


def bad_json(source: str, place: str, line: str, error: Exception) -> InputError:
    """A line (or file) that is not JSON."""
    return InputError(f"{source}: {place} is not JSON ({error}): {_short(line)}")


def bad_record(source: str, place: str, value: object) -> InputError:
    """A row that should be a record of named fields."""
    return InputError(
        f"{source}: {place} is no object with named fields but {_kind(value)}: {_short(value)}; "
        'expected for example {"id": "a1", "text": "..."}'
    )


def bad_object(source: str, detail: str) -> InputError:
    """A Python object whose shape does not fit."""
    return InputError(f"{source}: {detail}")


def bad_source(value: object) -> InputError:
    """A Python object of a type that holds no rows."""
    return InputError(
        f"cannot read rows from {_kind(value)}; pass a path, a list of strings or of dicts, a dict of "
        "columns, or a pandas, polars, pyarrow or datasets table or column"
    )


def no_text_files(path: pathlib.Path) -> InputError:
    """A folder without a text file."""
    found = ", ".join(sorted(entry.name for entry in path.iterdir())[:_NAMED])
    return InputError(f"{path}: the folder holds no .txt file; " + (f"it holds {found}" if found else "it is empty"))


def some_rows(source: str, num_rows: int) -> None:
    """At least one row."""
    if num_rows == 0:
        raise InputError(f"{source}: empty, there is not a single row in it")


def existing_field(source: str, argument: str, field: str, fields: Sequence[str]) -> str:
    """A field that is there."""
    if field not in fields:
        raise InputError(f"{source}: there is no field {argument}={field!r}; {fields_found(fields)}")
    return field


def text_field_of(source: str, field: str | None, fields: Sequence[str]) -> str:
    """The field that holds the text: the named one; where none is named "text", or the only common name there is."""
    if (field or "text") in fields:
        return field or "text"
    common = [] if field else [name for name in COMMON_TEXT_FIELDS if name in fields]
    field = field or "text"
    if len(common) == 1:
        return common[0]
    hint = f"; it could be any of {', '.join(common)}" if common else ""
    raise InputError(
        f"{source}: there is no text field {field!r}{hint}; {fields_found(fields)}; name it with text_field="
    )


def text_column(source: str, values: Sequence[Any], place: Place) -> tuple[str, ...]:
    """Texts: strings of valid Unicode that are not blank."""
    for index, value in enumerate(values):
        if is_absent(value):
            raise InputError(f"{source}: {place(index)} has no text (missing or null)")
        if not isinstance(value, str):
            raise InputError(f"{source}: the text at {place(index)} is {_kind(value)}, no string: {_short(value)}")
        if not value or value.isspace():
            raise InputError(f"{source}: the text at {place(index)} is empty; remove the row or fill it in")
        _check_unicode(source, f"the text at {place(index)}", value)
    return tuple(values)


def identifier_column(source: str, values: Sequence[Any], place: Place) -> tuple[str, ...]:
    """Identifiers: unique strings or whole numbers, as strings."""
    identifiers = [*map(str, values)]
    if not all(identifiers) or not (isinstance(values, StringColumn) or _are_plain(values)):
        _check_identifiers(source, values, place)
    if len(set(identifiers)) != len(identifiers):
        first: dict[str, int] = {}
        repeated = [
            f"{name!r} at {place(first[name])} and {place(index)}"
            for index, name in enumerate(identifiers)
            if first.setdefault(name, index) != index
        ]
        more = f" and {len(repeated) - _NAMED} more" if len(repeated) > _NAMED else ""
        raise InputError(f"{source}: ids must be unique; repeated: {'; '.join(repeated[:_NAMED])}{more}")
    return tuple(identifiers)


def _are_plain(values: Sequence[Any]) -> bool:
    """Whether all values are integers or strings of ASCII, which need no closer look."""
    return set(map(type, values)) <= {str, int} and all(type(value) is int or value.isascii() for value in values)


def _check_identifiers(source: str, values: Sequence[Any], place: Place) -> None:
    for index, value in enumerate(values):
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not (whole or isinstance(value, str)) or value == "":
            raise InputError(
                f"{source}: the id at {place(index)} must be a non-empty string or a whole number, not {_short(value)}"
            )
        _check_unicode(source, f"the id at {place(index)}", str(value))


def label_column(source: str, values: Sequence[Any], place: Place, *, missing: int | None = None) -> tuple[int, ...]:
    """Labels: 1 member, 0 non-member; `missing` stands for an absent one, or None where all must be there."""

    def label_of(value: Any) -> int | None:
        if missing is not None and (is_absent(value) or value == ""):
            return missing
        return _LABELS.get(str(value).strip().lower())

    labels, codes = coded_words(values, label_of)
    if None in labels:
        index = int(np.argmax(codes == labels.index(None)))
        raise InputError(
            f"{source}: the label at {place(index)} must be 1 (member) or 0 (non-member), not {_short(values[index])}"
        )
    return tuple(np.array(labels, np.int64)[codes].tolist())


def is_absent(value: object) -> bool:
    """Whether a value is what a table library puts where there is none: None, NaN, pandas' NA and NaT."""
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _check_unicode(source: str, what: str, text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{source}: {what} holds half a surrogate pair, which is no text: {_short(text)}") from error


def fields_found(fields: Sequence[str]) -> str:
    """The fields that there are, for messages."""
    return f"fields found: {', '.join(map(str, fields))}" if fields else "the rows have no named fields"


def _kind(value: object) -> str:
    return "null" if value is None else f"a value of type {type(value).__name__}"


def _short(value: object, length: int = 60) -> str:
    shown = repr(value)
    return shown if len(shown) <= length else shown[: length - 3] + "..."
