"""JSON and .npz from outside, whole and unambiguous or refused."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

__all__ = ["parse_json", "read_npz"]


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
      ValueError: no JSON, too deeply nested, or an object with a repeated key: which of its values counts cannot be
        told.

    >>> parse_json('{"a": 1, "b": [2]}')
    {'a': 1, 'b': [2]}
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a file, by name.

    Raises:
      ValueError: whatever NumPy, zipfile and zlib have to say of a damaged, cut or empty file.
      OSError: it cannot be opened.
    """
    try:
        with np.load(path, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    except OSError:
        raise
    except Exception as error:  # a dozen types, of which not all are listed anywhere
        raise ValueError(str(error) or type(error).__name__) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {repeated!r} is there {names.count(repeated)} times in one object")
    return found
