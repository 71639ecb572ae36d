"""Texts made of the fields of a row: a template names them, or a paper's form has a name of its own."""

from __future__ import annotations

import dataclasses
import json
import string
from collections.abc import Iterator, Sequence
from typing import Any

from tdd.texts.rows import Rows
from tdd.validate import InputError

WHOLE_ROW = "json"
"""The template that writes each row as one line of JSON, with ", " and ": " and without absent or null fields."""

TEMPLATES = {"td4eval": "### Question:\n{question}\n### Answer:\n{answer}"}
"""Forms of the papers by name: what TD4Eval fine-tunes on (table 6, one form for all four benchmarks; choices of an
item belong to its question)."""


def with_text(rows: Rows, template: str) -> Rows:
    """The rows with what the template makes of each as their field "text".

    Args:
      rows: Rows with named fields.
      template: "Q: {question} A: {answer}" names fields (plain names in braces, doubled braces for braces; values other
        than strings are written as JSON); "json" writes the whole row as one line of JSON, separated by ", " and ": "
        and without null fields, as most .jsonl files are; a name of `TEMPLATES` stands for a form of a paper.

    Raises:
      InputError: Rows without fields; a template that is no string or names an unknown field, or none; a row that lacks
        one of them.
    """
    template = TEMPLATES.get(template, template) if isinstance(template, str) else template
    fields = rows.fields if template == WHOLE_ROW else _named_fields(template, rows.fields, rows.source)
    if not fields:
        raise InputError(f'template="{WHOLE_ROW}" is for rows with fields, and those of {rows.source} are bare texts')
    texts = tuple(_texts(rows, template, fields))

    def column(field: str) -> Sequence[Any]:
        return texts if field == "text" else rows.column(field)

    return dataclasses.replace(rows, fields=tuple(dict.fromkeys((*rows.fields, "text"))), column=column)


def _texts(rows: Rows, template: str, fields: Sequence[str]) -> Iterator[str]:
    parts = [*string.Formatter().parse(template)]
    for index, values in enumerate(zip(*map(rows.column, fields), strict=True)):
        row = {field: value for field, value in zip(fields, values, strict=True) if value is not None}
        if template == WHOLE_ROW:
            yield json.dumps(row, ensure_ascii=False)
            continue
        if absent := [field for field in fields if field not in row]:
            raise InputError(f"{rows.place(index)} has no field {absent[0]!r}, which template {template!r} asks for")
        # not str.format, which reads {a.b} and {0} as more than names of fields
        cells = {
            field: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for field, value in row.items()
        }
        yield "".join(literal + ("" if field is None else cells[field]) for literal, field, _, _ in parts)


def _named_fields(template: Any, existing: Sequence[str], source: str) -> tuple[str, ...]:
    """The fields that a template such as "Q: {question} A: {answer}" names; plain names only, all of them existing."""
    if not isinstance(template, str):
        raise InputError(f"template must be a string such as '{{question}} {{answer}}', got {template!r}")
    try:
        parts = [*string.Formatter().parse(template)]
    except ValueError as error:
        raise InputError(f"template {template!r} cannot be read: {error}; write {{{{ and }}}} for braces") from error
    fields = []
    for _, field, spec, conversion in parts:
        if field is None:
            continue
        if spec or conversion or field not in existing:
            listed = ", ".join(map(repr, existing)) or "none: its rows are bare texts"
            raise InputError(
                f"template {template!r} asks for {{{field}{'!' + conversion if conversion else ''}"
                f"{':' + spec if spec else ''}}}, which is not the plain name of a field of {source}; its fields: "
                f"{listed}"
            )
        fields.append(field)
    if not fields:
        raise InputError(f"template {template!r} names no field, so all examples would be equal; add {{field}}")
    return tuple(dict.fromkeys(fields))
