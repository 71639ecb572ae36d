"""What a tokenizer.json may do to a text before it is read: files come from strangers."""

from __future__ import annotations

import math
import pathlib
from typing import Any

from tdd.validate import InputError
from tdd.validate.files import parse_json

MOST_GROWTH = 1_000
"""How many times as long the normalisers, pre-tokenisers or decoders of a file may make a text."""

MOST_ADDED = 1_000
"""Characters that may be put before a text, and tokens that may be added to it."""


def check_tokenizer_file(file: pathlib.Path) -> None:
    """Refuse a tokenizer.json that turns a text into one that fills the memory.

    A replacement by L characters of a string of P makes a text at most L/P times as long, of a pattern that may match
    nothing 1 + L times; those in sequence multiply. Files that cannot be read are left to who reads them.

    Raises:
      InputError: parts of it make a text more than 1,000 times as long, or add more than 1,000 characters or tokens.
    """
    try:
        content: Any = parse_json(file.read_bytes())
    except (OSError, ValueError):
        return
    if not isinstance(content, dict):
        return
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        growth, added = _growth(content.get(part))
        if growth > MOST_GROWTH or added > MOST_ADDED:
            what = f"make a text {growth:,.0f} times as long" if growth > MOST_GROWTH else f"add {added:,} characters"
            raise _refused(file, part, what, MOST_GROWTH if growth > MOST_GROWTH else MOST_ADDED)
    if (added := _template(content.get("post_processor"))) > MOST_ADDED:
        raise _refused(file, "post_processor", f"add {added:,} tokens to a text", MOST_ADDED)


def _refused(file: pathlib.Path, part: str, what: str, most: int) -> InputError:
    return InputError(f"{file}: its {part} can {what}, and at most {most:,} are allowed; replace tokenizer.json")


def _growth(node: Any) -> tuple[float, int]:
    """Times that a part lengthens a text, and characters that it adds once."""
    if not isinstance(node, dict):
        return 1.0, 0
    logarithm, added = 0.0, 0
    for name in ("normalizers", "pretokenizers", "decoders"):
        for part in _list(node.get(name)):
            times, more = _growth(part)
            logarithm, added = logarithm + math.log(times), added + more
    if node.get("type") == "Replace" and isinstance(content := node.get("content"), str):
        pattern = node.get("pattern")
        replaced = pattern.get("String") if isinstance(pattern, dict) else None
        times = len(content) / len(replaced) if isinstance(replaced, str) and replaced else 1 + len(content)
        logarithm += math.log(max(1.0, times))
    for name in ("prepend", "prefix", "suffix", "replacement"):
        if isinstance(node.get(name), str):
            added += len(node[name])
    return math.exp(min(logarithm, 700.0)), added


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _template(node: Any) -> int:
    """Tokens that a post-processor adds."""
    if not isinstance(node, dict):
        return 0
    added = sum(map(_template, _list(node.get("processors"))))
    ids = node.get("special_tokens")
    sizes = {
        name: len(one["ids"])
        for name, one in (ids.items() if isinstance(ids, dict) else ())
        if isinstance(one, dict) and isinstance(one.get("ids"), list)
    }
    for piece in _list(node.get("single")):
        special = piece.get("SpecialToken") if isinstance(piece, dict) else None
        if isinstance(special, dict):
            added += sizes.get(str(special.get("id")), 1)
        elif isinstance(piece, dict) and "Sequence" in piece:
            added += 1  # a text that is repeated grows as by so many tokens at least
    return added
