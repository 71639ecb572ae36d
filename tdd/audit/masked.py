"""A key in what a service says: found in every usual spelling and masked."""

from __future__ import annotations

import base64
import functools
import html.entities
import re

_SHORTEST = 6
"""Characters of a key from which its base64 and hexadecimal forms are looked for."""

_BETWEEN = r"(?:\s|\\{1,8}[nrt]|%(?:25){0,8}0[adAD9]|<w?br ?/?>|[\u00ad\u200b-\u200f\u2060\ufeff]){0,80}"
"""What may stand between two characters of a key that was broken: line ends and blanks, escaped too, unseen ones."""


def masked(text: str, key: str, mask: str = "[key]") -> str:
    r"""The text with `mask` in the place of the key, however it is spelled.

    Spellings of a character: itself in either case, escapes of JSON and of programs (`\u002f`, `\x2f`, `\/`), percent
    signs, HTML's numbers and names, each of them escaped again up to eight times; of the whole key: base64 at any
    place of a longer text, and hexadecimal digits. Line ends and blanks may stand between characters.

    >>> masked("no such key: secret%2Fkey, or secret\\u002fkey", "secret/key")
    'no such key: [key], or [key]'
    """
    return _pattern(key).sub(mask.replace("\\", r"\\"), text) if key else text


@functools.lru_cache(maxsize=8)
def _pattern(key: str) -> re.Pattern[str]:
    plain = _BETWEEN.join(map(_spellings, key))
    forms = [f"(?i:{plain})"]
    if len(key) >= _SHORTEST:
        forms += [_BETWEEN.join(map(_spellings, form)) for form in _encoded(key.encode())]
    return re.compile("|".join(forms))


def _spellings(character: str) -> str:
    number = ord(character)
    of_hex = "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{number:02x}")
    names = "|".join(_names().get(character, ()))
    entity = rf"&(?:amp;){{0,8}}(?:#0{{0,8}}{number}|#[xX]0{{0,8}}{of_hex}{'|' if names else ''}{names});?"
    slashed = rf"\\{{1,8}}(?:u00{of_hex}|u\{{0{{0,8}}{of_hex}\}}|x{of_hex}|{number:03o})"
    return rf"(?:\\{{0,8}}{re.escape(character)}|{slashed}|%(?:25){{0,8}}{of_hex}|{entity})"


@functools.cache
def _names() -> dict[str, list[str]]:
    """Character -> its names in HTML."""
    found: dict[str, list[str]] = {}
    for name, value in html.entities.html5.items():
        if value.isascii() and name.endswith(";"):
            found.setdefault(value, []).append(re.escape(name[:-1]))
    return found


def _encoded(key: bytes) -> set[str]:
    """The characters of base64 that the key alone decides, at each of three places, in both alphabets; its digits."""
    found = {key.hex(), key.hex().upper()}
    for before in range(3):
        start, end = -(-8 * before // 6), 8 * (before + len(key)) // 6
        for alphabet in (None, b"-_"):
            found.add(base64.b64encode(bytes(before) + key, alphabet).decode()[start:end])
    return found
