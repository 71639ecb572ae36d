"""Data sets whose order is tested: any source, with a template for rows of several fields."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import pathlib
import string
from collections.abc import Mapping, Sequence
from typing import Any

from tdd.records import Texts
from tdd.texts import Rows, hash_texts, read_rows
from tdd.validate import exchange as checks
from tdd.validate import texts as text_checks
from tdd.validate.errors import InputError

__all__ = ["ExampleSet", "load_examples", "load_sets"]

_logger = logging.getLogger("tdd")

WHOLE_ROW = "json"
"""The template that writes each row as one line of JSON, with ", " and ": " and without absent or null fields."""

_MOST_LABELS = 50


@dataclasses.dataclass(frozen=True)
class ExampleSet:
    """Examples in their canonical order.

    Attributes:
      name: what reports call the data set.
      examples: N texts.
      source: where they came from.
      sha256: of the examples in their order.
      fields: further fields with few distinct values, as labels; their order is looked at without the model.
    """

    name: str
    examples: tuple[str, ...]
    source: str
    sha256: str
    fields: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.examples)


def load_sets(
    data: Any, *, template: str | None = None, text_field: str | None = None, format: str | None = None
) -> tuple[ExampleSet, ...]:
    """One data set, or several.

    Args:
      data: a source as `tdd.load_texts` takes it (a path, a list of strings, a table), which is one data set; a list of
        paths, `Texts` or tables, or a dict from name to source, which are several. A list of strings is one data set
        of these examples: name several files by `pathlib.Path` or in a dict.
      template: how a row becomes an example, see `load_examples`.
      text_field: field with the text, where there is no template.
      format: of the files, where their ending does not tell.

    Raises:
      InputError: nothing to read, two data sets of one name, a field that is not there, empty or equal examples.
    """
    if isinstance(data, Mapping):
        named = [(str(name), source) for name, source in data.items()]
    elif isinstance(data, (list, tuple)) and data and not isinstance(data[0], (str, Mapping)):
        named = [(_name_of(source, number), source) for number, source in enumerate(data, 1)]
    else:
        named = [(_name_of(data, 1), data)]
    checks.check_names([name for name, _ in named])
    options: dict[str, Any] = {"template": template, "text_field": text_field, "format": format}
    return tuple(load_examples(source, name=name, **options) for name, source in named)


def load_examples(
    source: Any,
    *,
    name: str | None = None,
    template: str | None = None,
    text_field: str | None = None,
    format: str | None = None,
) -> ExampleSet:
    """One data set.

    Args:
      source: a path or a Python object, as in `tdd.load_texts`; its order is the canonical one.
      name: what reports call it; by default the file's name without its ending.
      template: "Q: {question} A: {answer}" writes an example from the fields of a row (plain names in braces, doubled
        braces for braces; what is no string is written as JSON); "json" writes the whole row as one line of JSON,
        separated by ", " and ": " and without null fields, as most .jsonl files are; None takes `text_field`.
      text_field: field with the text.
      format: of a file, where its ending does not tell.

    Raises:
      InputError: as `tdd.load_texts`; a template with an unknown field; a row that lacks one; a blank example; examples
        that are all equal.

    >>> load_examples([{"q": "one?", "a": 1}, {"q": "two?", "a": 2}], template="{q} {a}").examples
    ('one? 1', 'two? 2')
    """
    name = _name_of(source, 1) if name is None else name
    labels: dict[str, tuple[Any, ...]] = {}
    if isinstance(source, Texts):
        if template is not None:
            raise InputError("template is for rows with fields, and Texts have none; leave it out")
        examples, place = source.texts, source.source
    else:
        rows = read_rows(source, format=format)
        examples, place, labels = _examples(rows, template, text_field), rows.source, _labels(rows)
    checks.check_examples(name, examples)
    return ExampleSet(name, tuple(examples), place, hash_texts([""] * len(examples), examples), labels)


def _examples(rows: Rows, template: str | None, text_field: str | None) -> tuple[str, ...]:
    if template is None:
        field = text_checks.text_field_of(rows.source, text_field, rows.fields) if rows.fields else ""
        if field not in ("", text_field or "text"):
            _logger.warning('%s: no field "text", reading the examples from %r', rows.source, field)
        return text_checks.text_column(rows.source, rows.column(field), rows.place)
    fields = rows.fields if template == WHOLE_ROW else checks.template_fields(template, rows.fields, rows.source)
    if not fields:
        raise InputError(f'template="{WHOLE_ROW}" is for rows with fields, and those of {rows.source} are bare texts')
    columns = {field: rows.column(field) for field in fields}
    return tuple(_written(template, columns, index, rows.place) for index in range(rows.num_rows))


def _labels(rows: Rows) -> dict[str, tuple[Any, ...]]:
    """Fields whose values are few, simple and present in every row."""
    found = {}
    for field in rows.fields:
        values = tuple(rows.column(field))
        simple = all(isinstance(value, (str, int, bool)) for value in values)
        if simple and 2 <= len(set(values)) <= min(_MOST_LABELS, len(values) // 2):
            found[field] = values
    return found


def _written(template: str, columns: Mapping[str, Sequence[Any]], index: int, place: Any) -> str:
    row = {field: column[index] for field, column in columns.items()}
    if template == WHOLE_ROW:
        return json.dumps({field: value for field, value in row.items() if value is not None}, ensure_ascii=False)
    for field, value in row.items():
        if value is None:
            raise InputError(f"{place(index)} has no field {field!r}, which template {template!r} asks for")
    # not str.format, which reads {a.b} and {0} as more than names of fields
    return "".join(
        literal + ("" if field is None else _cell(row[field]))
        for literal, field, _, _ in string.Formatter().parse(template)
    )


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _name_of(source: Any, number: int) -> str:
    if isinstance(source, Texts):
        source = source.source if source.source and source.source != "memory" else f"data {number}"
        return pathlib.PurePath(source).name
    if isinstance(source, (str, os.PathLike)):
        name = pathlib.PurePath(source).name
        return name.removesuffix(".gz").rsplit(".", 1)[0] or name
    return f"data {number}"
