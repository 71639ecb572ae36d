"""The folder of a score store: its format, its spaces, and what its runs planned."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

import tdd
from tdd.runs.atomic import disk_errors
from tdd.scoring.store.files import write_durably
from tdd.scoring.store.plans import read_plan, record_plan
from tdd.scoring.store.space import Space
from tdd.validate.errors import InputError

__all__ = ["ScoreStore"]

FORMAT = 1
_DIGITS = 32
"""Digits of an address or a run in the name of its folder or file."""


class ScoreStore:
    """What models said of rows of tokens, on disk; a context manager.

    `store.json` holds the format. Each space is a folder named after the SHA-256 of its address, with the address in
    `space.json`: model, versions, platform, whatever the numbers depend on beside the row itself. So another model or
    another version never meets these numbers. Several processes may use one store at once: nobody ever changes what
    another has written, and no lock outlives a kill. All of them must be trusted: a SHA-256 tells damage, not forgery.

    Args:
      folder: made if absent.

    Raises:
      InputError: it is a file, holds something else or a store of another version, or cannot be written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = pathlib.Path(folder).expanduser()
        self._spaces: dict[str, Space] = {}
        header = self.folder / "store.json"
        with disk_errors(self.folder):
            if not header.exists():
                _check_store_folder(self.folder)
                self.folder.mkdir(parents=True, exist_ok=True)
                write_durably(header, _json({"format": FORMAT, "what": "score store", "tdd": tdd.__version__}))
            _check_store_header(header, _parsed(header), FORMAT, tdd.__version__)

    def __enter__(self) -> ScoreStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write what is in memory, after an interruption too."""
        for space in self._spaces.values():
            try:
                space.flush()
            except InputError:
                if kind is None:
                    raise

    def space(self, about: Mapping[str, Any]) -> Space:
        """The rows of an address.

        Args:
          about: plain values, everything that the numbers depend on beside the row itself.

        Raises:
          InputError: the folder cannot be written.
        """
        content = json.loads(json.dumps(about, sort_keys=True))
        address = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        if address not in self._spaces:
            folder = self.folder / address[:_DIGITS]
            with disk_errors(folder):
                (folder / "manifest").mkdir(parents=True, exist_ok=True)
                place = folder / "space.json"
                known = _parsed(place) if place.exists() else None
                if not isinstance(known, dict) or "address" not in known:
                    write_durably(place, _json({"address": address, "about": content}))
                elif known["address"] != address:
                    raise _wrong_space(place)
                self._spaces[address] = Space(folder)
        return self._spaces[address]

    def plans(self, run: str, missing: np.ndarray) -> list[np.ndarray]:
        """Which rows a run planned to compute, each time that it met some that were neither stored nor planned.

        The first time that is what is missing then. A run that is continued, or joined by another process, gets the
        plans that were recorded, and one more only for what has been lost since: so it makes the same batches, and
        ends with the same bits.

        Args:
          run: SHA-256 of the rows of the run and of everything that its batches depend on.
          missing: [rows] bool, those that are not stored.

        Returns:
          [rows] bool each; no row is in two of them.

        Raises:
          InputError: the folder cannot be written.
        """
        folder = self.folder / "runs"
        with disk_errors(folder):
            folder.mkdir(exist_ok=True)
            plans: list[np.ndarray] = []
            left = missing.copy()
            while True:
                place = folder / f"{run[:_DIGITS]}-{len(plans):03d}.json"
                found = read_plan(place, run, len(missing))
                if found is None:
                    if not left.any():
                        return plans
                    found = record_plan(place, run, left)
                plans.append(found)
                left &= ~found


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, sort_keys=True).encode() + b"\n"


def _parsed(place: pathlib.Path) -> Any:
    """What a JSON file holds, or None where it is damaged."""
    try:
        return json.loads(place.read_bytes())
    except ValueError:
        return None


def _check_store_folder(folder: pathlib.Path) -> None:
    """A folder without a store's header may become a store: it is absent, or empty but for hidden files."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"store={str(folder)!r} is a file; a score store is a folder: name another place")
    if not folder.is_dir():
        return
    others = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    if others and not (folder / "store.json").exists():  # unless another process has just made it a store
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise InputError(
            f"{folder} is no score store: it holds {others[0]}{more}, but no store.json; choose an empty or new folder"
        )


def _check_store_header(place: pathlib.Path, header: Any, known: int, version: str) -> None:
    """The header of a store is of a format that this version reads."""
    if not isinstance(header, dict) or not isinstance(header.get("format"), int):
        raise InputError(
            f"{place} is damaged or no header of a score store; choose another folder, or remove {place.parent} (its "
            "texts are scored again)"
        )
    if header["format"] != known:
        raise InputError(
            f"{place.parent} is a score store of format {header['format']}, written by tdd {header.get('tdd', '?')}; "
            f"tdd {version} reads format {known}: use the version that wrote it, or choose another folder"
        )


def _wrong_space(place: pathlib.Path) -> InputError:
    """Two addresses begin alike, or somebody moved folders."""
    return InputError(f"{place} describes other scores than its folder's name; remove {place.parent}")
