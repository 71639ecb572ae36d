"""Records that may be sent: the names of models and files without the folders of the machine that made them."""

from __future__ import annotations

import contextlib
import contextvars
import os
import pathlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

_PLACES = frozenset((
    "audited", "base_model_name_or_path", "checkpoint", "checkpoints", "images", "model", "name", "paraphraser",
    "reference", "source", "table",
))  # fmt: skip
"""Fields of records that name models and files, also by paths that begin in the working directory."""

_JOINED = re.compile(r"( \+ |, )")
_ROOTED = r"(?<![\w/.:~])(?:~[\w-]*|\.{1,2})?(?:/[^\s/'\"`,;:()<>|]+)+/?"
_CACHED = re.compile(r"models--(.+)")

_typed: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("typed", default=())


@contextlib.contextmanager
def typed_command(words: Sequence[str]) -> Iterator[None]:
    """While it lasts, runs are those of this command line; records name it, see `command_of`."""
    token = _typed.set(tuple(words))
    try:
        yield
    finally:
        _typed.reset(token)


def typed_words() -> tuple[str, ...]:
    """The command line of this run as it was typed, paths and all; empty where a program called the function."""
    return _typed.get()


def command_of(words: Sequence[str]) -> str:
    """A command line for a shell, in which files and folders have their names alone; folders that share a name have
    as many parts of their paths as tell them apart.

    >>> command_of(["tdd", "select", "/tmp/scores.csv", "--alpha", "0.1", "--template={q} / {a}"])
    "tdd select scores.csv --alpha 0.1 '--template={q} / {a}'"
    >>> command_of(["tdd", "power", "--out", "absent/plan"])
    'tdd power --out plan'
    """
    shown = [_word(word, before) for word, before in zip(words, ("", *words), strict=False)]
    return shlex.join(_told_apart(word, name, words, shown) for word, name in zip(words, shown, strict=True))


def _told_apart(word: str, name: str, words: Sequence[str], shown: Sequence[str]) -> str:
    """The name of a path, with the folders above it that other paths of this name do not have."""
    others = [other for other, same in zip(words, shown, strict=True) if same == name and other != word]
    if not others or not _exists(word):
        return name
    own, *parts = (pathlib.Path(os.path.abspath(pathlib.Path(one).expanduser())).parts for one in (word, *others))
    tails = (own[-count:] for count in range(1, len(own)))
    return next(("/".join(tail) for tail in tails if all(one[-len(tail) :] != tail for one in parts)), name)


def place_name(text: str) -> str:
    """The name of a model or a file: the last part of a path, the id of a snapshot in the hub's cache.

    Names that are no paths, and hub ids, stay as they are; so do the parts of several names that are joined.

    >>> place_name("/data/a/model + /data/b/texts.jsonl, field 'body'")
    "model + texts.jsonl, field 'body'"
    >>> place_name("owner/name")
    'owner/name'
    """
    parts = [text] if _exists(text) else _JOINED.split(text)
    return "".join(_last(part) if _is_path(part) else part for part in parts)


def without_folders(record: Any, *, own: Iterable[str] = ()) -> Any:
    """A plain record in which no string tells a folder: fields that name models and files by `place_name`, and in
    every other string the paths from the root, from a home or from the working directory (`/`, `~`, `.`).

    Args:
      record: plain values, as `tdd.runs.folder.plain` gives them.
      own: words of the user's data that the record holds, as names of columns, ids of items and parts of texts: they
        look like paths where the user wrote them so, tables hold them too, and they stay what they are.

    >>> without_folders({"id": "/books/a.txt", "warnings": ["/books/a.txt of /home/me/all.csv"]}, own=["/books/a.txt"])
    {'id': '/books/a.txt', 'warnings': ['/books/a.txt of all.csv']}
    """
    kept = sorted({word for word in own if "/" in word}, key=len, reverse=True)
    whole = rf"(?<![\w/.:~])(?P<own>{'|'.join(map(re.escape, kept))})(?!\.?[\w/])|" if kept else "(?P<own>(?!))|"
    return _portable(record, frozenset(kept), re.compile(whole + _ROOTED), names=False)


def _portable(record: Any, own: frozenset[str], paths: re.Pattern[str], *, names: bool) -> Any:
    """`names`: whether `record` is the value of a field that names a model or a file."""
    if isinstance(record, Mapping):
        return {key: _portable(value, own, paths, names=key in _PLACES) for key, value in record.items()}
    if isinstance(record, list):
        return [_portable(value, own, paths, names=names) for value in record]
    if not isinstance(record, str) or record in own:
        return record
    return paths.sub(_shortened, place_name(record) if names else record)


def _shortened(found: re.Match[str]) -> str:
    path = found.group()
    return _last(path) if found["own"] is None and _is_path(path) else path


def _is_path(text: str) -> bool:
    """Whether a text is a path with a folder in it: one from the root with a folder that is there, or one that is."""
    if text in (".", ".."):
        return True
    if "/" not in text or "://" in text or "\0" in text or "\n" in text:
        return False
    below_root = text.startswith("/") and len(pathlib.PurePath(text).parts) > 2
    return below_root or text.startswith(("~/", "./", "../")) or _exists(text)


def _exists(text: str) -> bool:
    """Whether a text is the path of a file or a folder, or would be one in a folder that is there."""
    if "/" not in text or "\0" in text:
        return False
    try:
        path = pathlib.Path(text).expanduser()
        return path.exists() or (path.parent not in (pathlib.Path(), pathlib.Path("/")) and path.parent.is_dir())
    except (OSError, RuntimeError):  # a name too long, no such home
        return False


def _last(text: str) -> str:
    """The last part of a path, of a snapshot of the hub's cache the hub id."""
    parts = pathlib.PurePath(text).parts
    if len(parts) > 2 and parts[-2] == "snapshots" and (cached := _CACHED.fullmatch(parts[-3])):
        return cached.group(1).replace("--", "/")
    if parts and parts[-1] not in ("..", "~"):
        return parts[-1]
    return pathlib.Path(os.path.abspath(pathlib.Path(text).expanduser())).name


def _word(word: str, before: str) -> str:
    """A word of a command line: an argument, an option, `--option=value`, or values with commas between them.

    What follows `--out` is a path, whether or not it is there.
    """
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    of_out = any(len(one) > 2 and "--out".startswith(one) for one in (option, before))  # parsers take abbreviations
    is_path = (value not in ("", "~") and of_out) or _exists(value)
    whole = _last(value) if is_path else ",".join(map(place_name, value.split(",")))
    return f"{option}{equals}{whole}"
