"""Checks of what files hold: JSON and .npz whole and unambiguous, the sizes of models, token arrays."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tdd.validate import InputError

_POINTER = b"version https://git-lfs.github.com/spec/"
_FETCH = "a pointer of Git LFS, not the file: run git lfs pull there, or download it"


def check_fetched(path: str | os.PathLike[str], content: bytes | None = None) -> None:
    """Refuse the few lines that Git leaves in the place of a large file that was not fetched."""
    if content is None:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            content = file.read(len(_POINTER))
    if content is not None and content.startswith(_POINTER):
        raise InputError(f"{path} is {_FETCH}")


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
      ValueError: no JSON, too deeply nested, an object with a repeated key, of which it cannot be told which value
        counts, or what Git leaves in the place of a file that was not fetched.

    >>> parse_json('{"a": 1, "b": [2]}')
    {'a': 1, 'b': [2]}
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except json.JSONDecodeError:
        if text.startswith(_POINTER) if isinstance(text, bytes) else text.startswith(_POINTER.decode()):
            raise ValueError(f"it is {_FETCH}") from None
        raise


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
        repeated, count = collections.Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {repeated!r} is there {count} times in one object")
    return found


def check_positive(**values: float) -> None:
    """Check that every named number is above zero, and finite."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
            raise InputError(f"{name} must be a positive number, got {value!r}")


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Check that `value` is one of `choices`."""
    if value not in choices:
        raise InputError(f"{name}={value!r} is not supported; supported: {', '.join(map(str, choices))}")


def check_divides(**sizes: int) -> None:
    """Check that the first named size divides the second."""
    (part_name, part), (whole_name, whole) = sizes.items()
    check_positive(**sizes)
    if whole % part:
        raise InputError(f"{whole_name}={whole} must be a multiple of {part_name}={part}")


def check_tokens(shape: Sequence[int], dtype: Any, max_length: int | None) -> None:
    """Check that token ids are integers [B, T] with T within the model's positions."""
    if len(shape) != 2 or not np.issubdtype(dtype, np.integer) or shape[1] == 0:
        raise InputError(f"tokens must be an integer array [B, T], T >= 1; got {dtype} {tuple(shape)}")
    if max_length is not None and shape[1] > max_length:
        raise InputError(
            f"tokens have length {shape[1]}, but the model accepts at most {max_length}; "
            "truncate the texts or score them in windows"
        )


@contextlib.contextmanager
def reading(path: pathlib.Path, wanted: str) -> Iterator[None]:
    """Turn whatever a foreign reader raises into an InputError that names the file."""
    try:
        with panics(f"{path} does not hold {wanted}"):
            yield
    except InputError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())  # some readers write several lines
        raise InputError(f"{path} does not hold {wanted}: {type(error).__name__}: {reason}") from error


@contextlib.contextmanager
def panics(message: str) -> Iterator[None]:
    """Turn a panic of a library in Rust, which is no `Exception`, into an InputError."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise InputError(f"{message}: {error}; mend or replace tokenizer.json") from error
