"""JSON from outside, in which no key may be there twice."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["parse_json"]


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


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {repeated!r} is there {names.count(repeated)} times in one object")
    return found
