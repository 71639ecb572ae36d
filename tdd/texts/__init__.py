"""Texts of one role from a file, a folder or a Python object, with paraphrases and groups → `tdd.records.Texts`.

No table library is imported here; an object is read by what it can do. Tables: DataFrames of pandas and polars, pyarrow
Tables, `datasets` Datasets, mappings of columns. Columns: those of pandas, polars, pyarrow, NumPy and `datasets`, and
any ordered iterable of strings or of mappings.
"""

from __future__ import annotations

import collections
import hashlib
import logging
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from tdd.records import Texts
from tdd.texts import rows as checks
from tdd.texts.files import bad_record, read_path, some_rows
from tdd.texts.rows import Rows, joined, kind, shown
from tdd.texts.shards import matched, paths_of_list
from tdd.validate import InputError, some

__all__ = [
    "Rows",
    "TextColumns",
    "hash_texts",
    "load_text_columns",
    "load_texts",
    "paths_of",
    "read_rows",
    "read_samples",
]

_logger = logging.getLogger(__name__)
_SOURCE = "memory"


def load_texts(
    source: Any,
    *,
    text_field: str | None = None,
    id_field: str | None = None,
    label_field: str | None = None,
    format: str | None = None,
) -> Texts:
    """Read and check texts.

    Args:
      source: a path or a Python object. Paths: .jsonl (one object or string a line), .json (an array of objects or of
        strings, lists as columns, or one object with a text), .csv and .tsv (with a header; a .tsv quoted as CSV, or
        not at all, as GLUE's), .parquet, .arrow, .txt (one text a line), the text formats also as .gz and .zst, logs of
        inspect_ai (.eval, .json: the items), or a folder: of .txt files (one text a file, searched recursively, the
        relative path its id, line ends at its end removed), of shards of one format, or what `datasets` saved
        (`save_to_disk`). Several paths, whose rows are read one below the other: a pattern ("data/*.parquet"), or a
        list of paths, as strings where all of these are files that are there. Objects: a list of strings or of dicts, a
        dict of columns, a pandas or polars Series or DataFrame (whose index is a field where it has a name), a pyarrow
        Table or array, a `datasets` Dataset or column, a NumPy array of strings. A `Texts` is returned as it is.
      text_field: field with the text. By default "text", or the only one of
        `tdd.texts.rows.COMMON_TEXT_FIELDS` that is there; the choice is then a warning and part of `source`.
      id_field: field with unique identifiers (strings or whole numbers). Without it: the field "id" where
        there is one, else row numbers counted from 1.
      label_field: field with the known truth, 1 member and 0 non-member; without it no label is read.
      format: one of `tdd.texts.rows.FORMATS`, if not that of the extension; "lm-eval" for the samples that
        lm-evaluation-harness logs (a file, a folder of samples_*.jsonl, a list of such files): the texts are the
        benchmark's items, their ids task and doc_id, and the item's own fields can be named.

    Returns:
      The texts, in the order of the source, with the hash of ids and texts.

    Raises:
      InputError: missing, empty or malformed source; missing field; empty text or one that is not a string;
        repeated ids; a label other than 0 and 1; a repeated key or column; a link that leads out of a folder; a file
        that decompresses to far more than texts do (`tdd.texts.compressed.LARGEST_DECOMPRESSED`); a named pipe; a list
        whose strings may be paths or texts. The
        message names the line, row or index.

    Cost: linear in the bytes read; the source is held in memory once.
    """
    if isinstance(source, Texts):
        return source
    return _texts_of_rows(
        read_rows(source, format=format), text_field=text_field, id_field=id_field, label_field=label_field
    )


def _texts_of_rows(rows: Rows, *, text_field: str | None, id_field: str | None, label_field: str | None) -> Texts:
    named, field = "", ""
    if rows.fields:
        field = checks.text_field_of(rows.source, text_field, rows.fields)
        if field != (text_field or "text"):
            _logger.warning('%s: no field "text", reading the texts from %r', rows.source, field)
            named = f", field {field!r}"
    texts = checks.text_column(rows.source, rows.column(field), rows.place)
    if id_field is not None or "id" in rows.fields:
        id_field = checks.existing_field(rows.source, "id_field", id_field or "id", rows.fields)
        ids = checks.identifier_column(rows.source, rows.column(id_field), rows.place)
    else:
        ids = tuple(str(number) for number in range(1, len(texts) + 1))
    labels: tuple[int, ...] = ()
    if label_field is not None:
        checks.existing_field(rows.source, "label_field", label_field, rows.fields)
        labels = checks.label_column(rows.source, rows.column(label_field), rows.place)
    return Texts(ids=ids, texts=texts, labels=labels, source=rows.source + named, sha256=hash_texts(ids, texts))


def hash_texts(ids: Sequence[str], texts: Sequence[str]) -> str:
    """SHA-256 of ids and texts, in hexadecimal.

    Hashed are id and text of each row in turn: the number of UTF-8 bytes (8 bytes, little endian), then the bytes.

    >>> hash_texts(["ab"], ["c"]) == hash_texts(["a"], ["bc"])
    False
    """
    digest = hashlib.sha256()
    for pair in zip(ids, texts, strict=True):
        for part in pair:
            data = part.encode()
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return digest.hexdigest()


class TextColumns(NamedTuple):
    """The texts of one table."""

    texts: Texts  # N texts with ids and labels
    # k `Texts`, the j-th with the j-th paraphrase of every text, in the same order and with the same ids
    knockoffs: tuple[Texts, ...]
    groups: tuple[str, ...]  # N names of clusters (the book of a passage), or an empty tuple


def load_text_columns(
    source: Any,
    *,
    text_field: str | None = None,
    knockoff_fields: Sequence[str] = (),
    id_field: str | None = None,
    label_field: str | None = None,
    group_field: str | None = None,
    format: str | None = None,
) -> TextColumns:
    """Read a table whose rows hold a text and its paraphrases.

    Args:
      source: a path or a Python table, as in `load_texts`; or `Texts`, where no field is asked of it.
      text_field, id_field, label_field, format: as in `load_texts`.
      knockoff_fields: fields with the paraphrases, one each of every text.
      group_field: field with the cluster of each text.

    Raises:
      InputError: as `load_texts`; a field that does not exist (those that do are listed), is named twice or is the
        text's own; a row without one of its paraphrases (absent, null or blank), with how many there are and the first.

    Cost: the source is read once.

    >>> table = [{"text": "one text", "b": "a text"}, {"text": "two texts", "b": "texts, two"}]
    >>> load_text_columns(table, knockoff_fields=["b"]).knockoffs[0].texts
    ('a text', 'texts, two')
    """
    wanted = (knockoff_fields,) if isinstance(knockoff_fields, str) else tuple(knockoff_fields)
    if isinstance(source, Texts):
        for name, value in (("knockoff_fields", wanted or None), ("group_field", group_field)):
            if value is not None:
                raise InputError(
                    f"{name}={value!r} names columns of a table, and what was given are Texts, which have none; give "
                    "the path or the table itself"
                )
        return TextColumns(source, (), ())
    rows = read_rows(source, format=format)
    texts = _texts_of_rows(rows, text_field=text_field, id_field=id_field, label_field=label_field)
    text_column = checks.text_field_of(rows.source, text_field, rows.fields) if rows.fields else ""
    _check_knockoff_fields(rows.source, wanted, text_column, rows.fields)
    columns = {field: rows.column(field) for field in wanted}
    _check_complete_knockoffs(rows.source, columns, texts.ids, rows.place)
    knockoffs = []
    for field, column in columns.items():
        name = f"{rows.source}, field {field!r}"
        paraphrases = checks.text_column(name, column, rows.place)
        knockoffs.append(Texts(texts.ids, paraphrases, source=name, sha256=hash_texts(texts.ids, paraphrases)))
    groups: tuple[str, ...] = ()
    if group_field is not None:
        checks.existing_field(rows.source, "group_field", group_field, rows.fields)
        groups = checks.group_column(rows.source, group_field, rows.column(group_field), rows.place)
    return TextColumns(texts, tuple(knockoffs), groups)


def _check_knockoff_fields(source: str, wanted: Sequence[str], text_field: str, fields: Sequence[str]) -> None:
    """Check that the fields of the paraphrases exist, differ, and are not the text's own."""
    absent = [field for field in wanted if field not in fields]
    if absent:
        raise InputError(
            f"{source}: there is no knockoff field {', '.join(map(repr, absent))}; {checks.fields_found(fields)}; name "
            "the fields that hold the paraphrases (knockoff_fields)"
        )
    for field in wanted:
        if field == text_field:
            raise InputError(f"knockoff_fields names {field!r}, the field of the texts themselves; leave it out")
        if list(wanted).count(field) > 1:
            raise InputError(f"knockoff_fields names {field!r} twice; leave one out")


def _check_complete_knockoffs(
    source: str, columns: Mapping[str, Sequence[Any]], ids: Sequence[str], place: Callable[[int], str]
) -> None:
    """Check that every row has a paraphrase in each of the columns."""
    missing = []
    for field, values in columns.items():
        blank = [checks.is_absent(value) or (isinstance(value, str) and not value.strip()) for value in values]
        rows = [row for row, is_blank in enumerate(blank) if is_blank]
        if rows:
            named = some([f"{ids[i]!r} ({place(i)})" for i in rows])
            missing.append(f"field {field!r} has none for {len(rows)} of {len(ids)} rows: ids {named}")
    if missing:
        raise InputError(
            f"{source}: knockoffs are missing (absent, null or blank): {'; '.join(missing)}. Every text needs a "
            "paraphrase in each knockoff field: fill them in, remove the rows, or leave the field out"
        )


def read_rows(source: Any, *, format: str | None = None) -> Rows:
    """Rows of a source as `tdd.texts.load_texts` takes it; at least one.

    Raises:
      InputError: nothing can be read, a field is there twice, or there are no rows.
    """
    if format == "lm-eval":
        from tdd.texts.samples import items

        return items(read_samples(source))
    if isinstance(source, Rows):
        return source
    files = paths_of(source)
    rows = joined([read_path(_existing_path(file), format) for file in files]) if files else _rows_of(source)
    repeated = sorted(str(name) for name, count in collections.Counter(rows.fields).items() if count > 1)
    if repeated:
        raise InputError(
            f"{rows.source}: several columns are called {', '.join(map(repr, repeated))}; rename all but one"
        )
    some_rows(rows.source, rows.num_rows)
    return rows


def paths_of(source: Any) -> list[str]:
    """The files and folders that a source names: a path, a pattern or a list of them; none for texts and tables.

    Raises:
      InputError: as `read_rows`.
    """
    listed = [os.fspath(source)] if isinstance(source, (str, os.PathLike)) else paths_of_list(source) or []
    return [found for path in listed for found in ([path] if os.path.exists(path) else matched(path) or [path])]


def read_samples(source: Any) -> Rows:
    """Rows of the samples that lm-evaluation-harness logs, from a file, a folder, a list of files, or records.

    Raises:
      InputError: as `read_rows`; no samples.
    """
    from tdd.texts.samples import joined, sample_files

    return joined([read_rows(file) for file in sample_files(source)])


def _existing_path(source: str | os.PathLike[str]) -> pathlib.Path:
    """The path of a file or folder that exists.

    Named pipes, which would wait for a writer, and devices are refused. The pipes of a shell have no place in the file
    system: /dev/stdin and /dev/fd/N are read.
    """
    text = os.fspath(source)
    if not os.path.exists(text):
        raise InputError(
            f"no such file or folder: {shown(text)}",
            "; a single string is always a path, so pass a list of strings to give the texts themselves",
        )
    place = os.path.realpath(text)
    of_a_shell = os.path.abspath(text).startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/"))
    if os.path.exists(place) and not (os.path.isfile(place) or os.path.isdir(place) or of_a_shell):
        raise InputError(
            f"{text} is neither a file nor a folder but a named pipe or a device; copy what it gives into a "
            "file, or pipe it into /dev/stdin with format=... (--input-format)"
        )
    return pathlib.Path(text)


def _rows_of(source: Any) -> Rows:
    """Rows of a table, a column, or an iterable."""
    if isinstance(source, Mapping):
        return _rows_of_columns(source)
    fields = _field_names(source)
    index = getattr(getattr(source, "index", None), "names", ())  # pandas: an index that has a name is a field
    named = [name for name in index if name is not None and fields is not None and name not in fields]
    if named and len({*named}) == len(named) and not any(isinstance(name, tuple) for name in fields or ()):
        source = source.reset_index(level=named)
        fields = _field_names(source)
    if fields is not None and hasattr(source, "__len__"):
        get = source.column if hasattr(source, "column") and hasattr(source, "schema") else source.__getitem__
        return Rows(_SOURCE, len(source), fields, lambda field: _values(get(field)), _place)
    if isinstance(source, (bytes, bytearray, Set)) or not isinstance(source, Iterable):
        raise InputError(
            f"cannot read rows from {kind(source)}; pass a path, a list of strings or of dicts, a dict of "
            "columns, or a pandas, polars, pyarrow or datasets table or column"
        )
    return _rows_of_items(_values(source))


def _field_names(source: Any) -> tuple[str, ...] | None:
    names = getattr(source, "column_names", None)  # datasets, pyarrow
    if names is None:
        names = getattr(source, "columns", None)  # pandas, polars
    return None if names is None or callable(names) else tuple(names)


def _rows_of_columns(columns: Mapping[Any, Any]) -> Rows:
    if any(_field_names(column) is not None for column in columns.values()):
        raise InputError(f"{_SOURCE}: several tables ({', '.join(map(str, columns))}): pass one of them")
    for name, column in columns.items():
        if isinstance(column, str) or not isinstance(column, Iterable):
            raise InputError(f"{_SOURCE}: a dict must map fields to columns, but {name!r} is one value")
    values = {name: _values(column) for name, column in columns.items()}
    sizes = {name: len(column) for name, column in values.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"{_SOURCE}: columns of unequal length: {sizes}")
    return Rows(_SOURCE, next(iter(sizes.values()), 0), tuple(values), values.__getitem__, _place)


def _rows_of_items(items: Sequence[Any]) -> Rows:
    if items and isinstance(items[0], Mapping):
        for index, item in enumerate(items):
            if not isinstance(item, Mapping):
                raise bad_record(_SOURCE, _place(index), item)
        return Rows.of_records(_SOURCE, items, _place)
    return Rows.of_values(_SOURCE, items, _place)


def _values(column: Any) -> list[Any]:
    for name in ("to_pylist", "to_list", "tolist"):  # pyarrow; polars and pandas; NumPy
        convert = getattr(column, name, None)
        if callable(convert):
            values = convert()
            return values if isinstance(values, list) else [values]
    return list(column)


def _place(index: int) -> str:
    return f"index {index}"
