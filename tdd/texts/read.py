"""Any source → rows of named fields."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tdd.texts.files import read_path
from tdd.texts.objects import rows_of
from tdd.texts.rows import Rows
from tdd.validate import texts as checks
from tdd.validate.errors import InputError

__all__ = ["read_rows"]


def read_rows(source: Any, *, format: str | None = None) -> Rows:
    """Rows of a file, a folder of .txt files, or a Python object; at least one.

    Args:
      source: see `tdd.texts.load_texts`.
      format: format of a file, where its extension does not tell.

    Raises:
      InputError: nothing can be read, a field is there twice, or there are no rows.
    """
    if isinstance(source, (str, os.PathLike)):
        rows = read_path(checks.existing_path(source), format)
    else:
        rows = rows_of(source)
    _check_fields_once(rows.source, rows.fields)
    checks.some_rows(rows.source, rows.num_rows)
    return rows


def _check_fields_once(source: str, fields: Sequence[str]) -> None:
    """No two columns have one name."""
    repeated = sorted({str(name) for name in fields if list(fields).count(name) > 1})
    if repeated:
        raise InputError(f"{source}: several columns are called {', '.join(map(repr, repeated))}; rename all but one")
