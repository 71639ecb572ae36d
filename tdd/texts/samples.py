"""Samples that lm-evaluation-harness logs (`--log_samples`): a line a benchmark item → rows of items.

A line of `samples_TASK_DATE.jsonl` has `doc_id` and `doc` (the item, in the benchmark's own fields), `target` (the
right answer), `arguments` (what the model was asked, one request a choice: [[context, continuation], ...] or
{"gen_args_0": {"arg_0": context, "arg_1": continuation}, ...}) and its answers, `resps` and `filtered_resps`.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tdd.texts import rows as table
from tdd.texts.rows import Rows, shown
from tdd.validate import InputError

_NAME = re.compile(r"(?:samples_)?(.+?)(?:_\d{4}-\d\d-\d\dT[\d.:-]+)?\.(?:jsonl?|parquet)(?:\.gz)?")


def sample_files(source: Any) -> list[Any]:
    """The files of samples that a source means: itself, those of a folder, or those of a list of paths."""
    if isinstance(source, (str, os.PathLike)) and os.path.isdir(source):
        if found := sorted(pathlib.Path(source).glob("samples_*.jsonl*")):
            return found
        raise InputError(f"{os.fspath(source)}: the folder holds no samples_*.jsonl; run lm_eval with --log_samples")
    if isinstance(source, (list, tuple)) and source and all(isinstance(one, (str, os.PathLike)) for one in source):
        return list(source)
    return [source]


def joined(parts: Sequence[Rows]) -> Rows:
    """The samples of all files one below the other, with a field "id"; each sample has its item."""
    for part in parts:
        if missing := [name for name in ("doc_id", "doc") if name not in part.fields]:
            raise InputError(
                f"{part.source}: no samples of lm-evaluation-harness: there is no field {missing[0]!r}; give a "
                "samples_*.jsonl that lm_eval wrote with --log_samples"
            )
    return identified(parts)


def identified(parts: Sequence[Rows], same: Sequence[str] = ("doc", "arguments")) -> Rows:
    """The samples of all files one below the other, with a field "id": task (the file's name) and `doc_id`.

    A task with several filters logs each item once for each; of these the first is kept.

    Raises:
      InputError: an item that its filters show with other values in the fields `same`.
    """
    parts = [of_one_filter(part, same) for part in parts]
    rows = table.joined(parts)
    names = [_NAME.fullmatch(pathlib.PurePath(part.source).name) for part in parts]
    tasks = [
        f"{name[1]}/" if name else "" for name, part in zip(names, parts, strict=True) for _ in range(part.num_rows)
    ]

    def column(field: str) -> Sequence[Any]:
        if field == "id" and "doc_id" in rows.fields:
            return [f"{task}{doc_id}" for task, doc_id in zip(tasks, rows.column("doc_id"), strict=True)]
        return rows.column(field)

    return dataclasses.replace(rows, fields=tuple(dict.fromkeys((*rows.fields, "id"))), column=column)


def of_one_filter(rows: Rows, same: Sequence[str]) -> Rows:
    """The samples with the first filter of each item; see `identified`."""
    if not {"filter", "doc_id"} <= {*rows.fields}:
        return rows
    filters, numbers = rows.column("filter"), rows.column("doc_id")
    compared = {name: rows.column(name) for name in same if name in rows.fields}
    seen: dict[str, int] = {}
    kept = []
    for index, number in enumerate(numbers):
        first = seen.setdefault(str(number), index)
        if filters[index] == filters[first]:
            kept.append(index)
        elif differ := [name for name, of in compared.items() if _in_words(of[index]) != _in_words(of[first])]:
            raise InputError(
                f"{rows.source}: {rows.place(first)} and {rows.place(index)}, one item with the filters "
                f"{filters[first]!r} and {filters[index]!r}, differ in {' and '.join(differ)}; keep the lines "
                "of one filter"
            )

    def column(field: str) -> list[Any]:
        values = rows.column(field)
        return [values[index] for index in kept]

    return dataclasses.replace(rows, num_rows=len(kept), column=column, place=lambda index: rows.place(kept[index]))


def _in_words(value: Any) -> Any:
    """Lists of words: numbers may be written as strings, and lists may be NumPy's arrays."""
    if isinstance(value, Mapping):
        return {key: _in_words(part) for key, part in value.items()}
    return [*map(_in_words, value)] if isinstance(value, (list, tuple, np.ndarray)) else str(value)


def items(rows: Rows) -> Rows:
    """Samples → items: "id", "text", `doc_id`, `doc_hash`, and the fields of `doc` that have other names.

    The text holds the strings of `doc` that the model was shown, each once, a line each. Identifiers and names of
    splits, which would tell one benchmark from another, are not among them, nor are the examples of a prompt.
    """
    records = []
    for index, (identifier, doc, arguments) in enumerate(
        zip(*map(rows.column, ("id", "doc", "arguments")), strict=True)
    ):
        if not isinstance(doc, Mapping):
            raise InputError(f"{rows.source}: {rows.place(index)}: doc must be an object, not {shown(doc)}")
        records.append({**doc, "id": identifier, "text": _text(doc, request_parts(arguments))})
    for name in ("doc_id", "doc_hash"):
        for record, value in zip(records, rows.column(name), strict=True):
            record[name] = value
    return Rows.of_records(rows.source, records, rows.place)


def request_parts(arguments: Any) -> list[list[Any]]:
    """The parts of each request: its strings (a context and a continuation, or one text), or options of generation."""
    listed = list(arguments.values()) if isinstance(arguments, Mapping) else arguments
    if not isinstance(listed, list):
        return []
    parts = [list(one.values()) if isinstance(one, Mapping) else one for one in listed]
    return [one if isinstance(one, list) else [one] for one in parts]


def _text(doc: Mapping[str, Any], requests: list[list[Any]]) -> str:
    """The longest strings of the item that were part of a request; all of the request, where it has none of them."""
    asked = "\n".join("".join(part for part in parts if isinstance(part, str)) for parts in requests)
    strings = list(dict.fromkeys(text for text in _strings(doc) if text and (not asked or text in asked)))
    kept = [text for text in strings if not any(text != other and text in other for other in strings)]
    return "\n".join(kept) or asked


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, (Mapping, list)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(part)
