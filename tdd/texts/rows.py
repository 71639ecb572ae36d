"""Rows of named fields from any source, and the checks of their columns: texts, identifiers, labels, groups.

Functions named after a column return the checked column.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tdd.runs.plain_csv import MOST_FIELDS, StringColumn, coded_words
from tdd.validate import InputError, some

FORMATS = ("jsonl", "json", "csv", "tsv", "parquet", "arrow", "eval", "txt")
"""File formats that can be read; all but parquet, arrow and eval also as .gz and .zst."""

COMMON_TEXT_FIELDS = (
    "input", "content", "passage", "document", "sentence", "snippet", "body", "example", "raw_text", "raw_content",
)  # fmt: skip
"""Fields taken for the text if there is no field "text" and exactly one of these."""

_LABELS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}

Place = Callable[[int], str]
"""Turns the index of a row into words that lead a person to it, such as "line 7"."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """A table that is read one column at a time."""

    source: str  # what messages call it, a path or "memory"
    num_rows: int  # how many rows there are
    # names of the fields in the order of their first appearance; empty where rows are bare values
    fields: tuple[str, ...]
    # `(field) -> values`, one a row, None where a row lacks the field; `column("")` for bare values
    column: Callable[[str], Sequence[Any]]
    place: Place  # `(index) -> words` that lead a person to the row, such as "line 7"

    def __post_init__(self) -> None:
        check_fields(self.source, len(self.fields))

    @classmethod
    def of_values(cls, source: str, values: Sequence[Any], place: Place) -> Rows:
        """Rows that are bare values without fields."""
        return cls(source, len(values), (), lambda field: values, place)

    @classmethod
    def of_records(cls, source: str, records: Sequence[Mapping[str, Any]], place: Place) -> Rows:
        """Rows that are mappings; they need not have the same fields."""
        fields = tuple(dict.fromkeys(field for record in records for field in record))

        def column(field: str) -> list[Any]:
            return [record.get(field) for record in records]

        return cls(source, len(records), fields, column, place)


def check_fields(source: str, count: int) -> None:
    """Check that a table has no more columns than tables of texts and scores have."""
    if count > MOST_FIELDS:
        raise InputError(
            f"{source}: {count:,} columns, and at most {MOST_FIELDS:,} are read; keep those that are needed (is it a "
            "table with a row a column?)"
        )


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts one below the other; a part lacks the fields that only others have."""
    if len(parts) == 1:
        return parts[0]
    filled = [part for part in parts if part.num_rows]
    bare = next((part for part in filled if not part.fields), None)
    if bare is not None and (named := next((part for part in filled if part.fields), None)) is not None:
        raise InputError(
            f"{bare.source} holds bare texts and {named.source} named fields ({some(named.fields)}); read them apart"
        )
    starts = np.cumsum([0, *(part.num_rows for part in parts)])

    def place(index: int) -> str:
        number = int(np.searchsorted(starts, index, side="right")) - 1
        return f"{parts[number].source}, {parts[number].place(index - int(starts[number]))}"

    def column(field: str) -> list[Any]:
        held = (part.column(field) if field in part.fields or not field else [None] * part.num_rows for part in parts)
        return [value for values in held for value in values]

    fields = tuple(dict.fromkeys(field for part in filled for field in part.fields))
    source = some([part.source for part in parts], between=" + ")
    return Rows(source, int(starts[-1]), fields, column, place)


def existing_field(source: str, argument: str, field: str, fields: Sequence[str]) -> str:
    """A field that is there."""
    if field not in fields:
        raise InputError(f"{source}: there is no field {argument}={field!r}; {fields_found(fields)}")
    return field


def text_field_of(source: str, field: str | None, fields: Sequence[str]) -> str:
    """The field that holds the text: the named one; where none is named "text", or the only common name there is."""
    common = [] if field else [name for name in COMMON_TEXT_FIELDS if name in fields]
    field = field or "text"
    if field in fields:
        return field
    if len(common) == 1:
        return common[0]
    hint = f"; it could be any of {', '.join(common)}" if common else ""
    raise InputError(
        f"{source}: there is no text field {field!r}{hint}; {fields_found(fields)}; name it with text_field "
        "(--text-field)"
    )


def text_column(source: str, values: Sequence[Any], place: Place) -> tuple[str, ...]:
    """Texts: strings of valid Unicode that are not blank."""
    for index, value in enumerate(values):
        if is_absent(value):
            raise InputError(f"{source}: {place(index)} has no text (missing or null)")
        if not isinstance(value, str):
            raise InputError(f"{source}: the text at {place(index)} is {kind(value)}, no string: {shown(value)}")
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
        raise InputError(f"{source}: ids must be unique; repeated: {some(repeated, between='; ')}")
    return tuple(identifiers)


def _are_plain(values: Sequence[Any]) -> bool:
    """True if all values are integers or ASCII strings, which need no further check."""
    return set(map(type, values)) <= {str, int} and all(type(value) is int or value.isascii() for value in values)


def _check_identifiers(source: str, values: Sequence[Any], place: Place) -> None:
    for index, value in enumerate(values):
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not (whole or isinstance(value, str)) or value == "":
            raise InputError(
                f"{source}: the id at {place(index)} must be a non-empty string or a whole number, not {shown(value)}"
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
            f"{source}: the label at {place(index)} must be 1 (member) or 0 (non-member), not {shown(values[index])}"
        )
    return tuple(np.array(labels, np.int64)[codes].tolist())


def group_column(source: str, field: str, values: Sequence[Any], place: Place) -> tuple[str, ...]:
    """Groups: one non-empty word a row."""
    values = [*values]
    if set(map(type, values)) == {str} and all(values):
        return tuple(values)
    for index, value in enumerate(values):
        if is_absent(value) or value == "":
            raise InputError(f"{source}: group column {field!r} is empty at {place(index)}")
    return tuple(str(value) for value in values)


def number_of(value: Any) -> float:
    """`float(value)`, but neither of words with an underscore, as 1_000, nor of digits of other scripts.

    Raises:
      ValueError: no number.
    """
    if isinstance(value, str) and ("_" in value or not value.strip().isascii()):
        raise ValueError(f"could not convert string to float: {value!r}")
    return float(value)


def is_absent(value: object) -> bool:
    """True for the values by which table libraries mark missing ones: None, NaN, pandas' NA and NaT."""
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _check_unicode(source: str, what: str, text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{source}: {what} holds half a surrogate pair, which is not valid text: {shown(text)}"
        ) from error


def fields_found(fields: Sequence[str]) -> str:
    """The fields that there are, for messages."""
    if not fields:
        return "the rows have no named fields"
    return f"fields found: {', '.join(map(str, fields))}{one_column(fields)}"


def one_column(fields: Sequence[str]) -> str:
    """What to do with a table whose header is one column because something else separates them; "" for others."""
    if len(fields) == 1 and ";" in str(fields[0]):
        return " (one column: save the file with commas between columns, and points in numbers)"
    if len(fields) == 1 and "\t" in str(fields[0]):
        return " (one column: name the file .tsv, or its format tsv)"
    return ""


def kind(value: object) -> str:
    """The type of a value, for messages."""
    return "null" if value is None else f"a value of type {type(value).__name__}"


def shown(value: object, length: int = 60) -> str:
    """The value, cut to a length, for messages."""
    text = repr(value)
    return text if len(text) <= length else text[: length - 3] + "..."
