"""Texts of one role, from a file, a folder or a Python object."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Any

from tdd.records import Texts
from tdd.texts.read import read_rows
from tdd.texts.rows import Rows
from tdd.validate import texts as checks

__all__ = ["hash_texts", "load_texts", "texts_of_rows"]

_logger = logging.getLogger(__name__)


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
      source: a path or a Python object. Paths: .jsonl (one object a line), .json (an array of objects or
        of strings), .csv (with a header), .parquet, .txt (one text a line), the text formats also as .gz,
        or a folder of .txt files (one text a file, searched recursively, the relative path its id, line ends
        at its end removed). Objects: a list of strings or of dicts, a dict of columns, a pandas or polars
        Series or DataFrame, a pyarrow Table or array, a `datasets` Dataset or column, a NumPy array of
        strings. A `Texts` is returned as it is.
      text_field: field with the text. Where none is named: "text", or the only one of
        `tdd.validate.texts.COMMON_TEXT_FIELDS` that is there; the choice is then a warning and part of `source`.
      id_field: field with unique identifiers (strings or whole numbers). Without it: the field "id" where
        there is one, else row numbers counted from 1.
      label_field: field with the known truth, 1 member and 0 non-member; without it no label is read.
      format: one of `tdd.validate.texts.FORMATS`, where the extension does not tell.

    Returns:
      The texts, in the order of the source, with the hash of ids and texts.

    Raises:
      InputError: missing, empty or malformed source; missing field; empty text or one that is no string;
        repeated ids; a label other than 0 and 1; a repeated key or column; a link that leads out of a folder; a file
        that decompresses to far more than texts do (`tdd.texts.files.LARGEST_DECOMPRESSED`); a named pipe. The
        message names the line, row or index.

    Cost: linear in the bytes read; the source is held in memory once.
    """
    if isinstance(source, Texts):
        return source
    return texts_of_rows(
        read_rows(source, format=format), text_field=text_field, id_field=id_field, label_field=label_field
    )


def texts_of_rows(rows: Rows, *, text_field: str | None, id_field: str | None, label_field: str | None) -> Texts:
    """Texts, ids and labels of rows that have been read; see `load_texts`."""
    named = ""
    if rows.fields:
        field = checks.text_field_of(rows.source, text_field, rows.fields)
        if field != (text_field or "text"):
            _logger.warning('%s: no field "text", reading the texts from %r', rows.source, field)
            named = f", field {field!r}"
    else:
        field = ""
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

    Of id and text of each row in turn: the number of UTF-8 bytes (8 bytes, little endian), then the bytes.

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
