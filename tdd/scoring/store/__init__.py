"""The folder of a score store: its format, its namespaces, and what its runs planned."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
import os
import pathlib
import secrets
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

import tdd
from tdd.runs.atomic import check_name, disk_errors, read_regular
from tdd.scoring.store.namespace import Namespace
from tdd.scoring.store.shards import sync_folder, write_durably
from tdd.validate import InputError

FORMAT = 1
_DIGITS = 32
"""Digits of an address or a run in the name of its folder or file."""

_logger = logging.getLogger("tdd")


class ScoreStore:
    """Scores and statistics of rows of tokens on disk, in a folder that is made if absent; a context manager.

    `store.json` holds the format. Each namespace is a folder named after the SHA-256 of its address, with the address
    in `namespace.json`: model, versions, platform, everything that the numbers depend on beside the row itself. So
    other models and other versions never mix. Several processes may use one store at once: nobody ever changes what
    another has written, and no lock outlives a kill. All of them must be trusted: a SHA-256 tells damage, not forgery.

    Raises:
      InputError: it is a file, holds something else or a store of another version, or cannot be written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        check_name(folder)
        self.folder = pathlib.Path(folder).expanduser()
        self._namespaces: dict[str, Namespace] = {}
        header = self.folder / "store.json"
        with disk_errors(self.folder):
            if not header.exists():
                _check_store_folder(self.folder)
                self.folder.mkdir(parents=True, exist_ok=True)
                write_durably(header, _json({"format": FORMAT, "what": "score store", "tdd": tdd.__version__}))
            _check_header(header)

    def __enter__(self) -> ScoreStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write what is in memory, after an interruption too."""
        for namespace in self._namespaces.values():
            try:
                namespace.flush()
            except InputError:
                if kind is None:
                    raise

    def namespace(self, address: Mapping[str, Any]) -> Namespace:
        """The rows of an address (`tdd.scoring.store.address`).

        Raises:
          InputError: the folder cannot be written.
        """
        name = hashlib.sha256(json.dumps(address, sort_keys=True).encode()).hexdigest()[:_DIGITS]
        if name not in self._namespaces:
            folder = self.folder / name
            with disk_errors(folder):
                folder.mkdir(exist_ok=True)
                if not (folder / "namespace.json").exists():
                    write_durably(folder / "namespace.json", _json(address))
                self._namespaces[name] = Namespace(folder)
        return self._namespaces[name]

    def plans(self, run: str, missing: np.ndarray) -> list[np.ndarray]:
        """The rows that a run planned to compute, each time that it met some that were neither stored nor planned.

        A run that is continued, or joined by another process, gets the plans that were recorded, and one more only for
        what has been lost since: so it makes the same batches, and ends with the same bits.

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
                planned = _read_plan(place, run, len(missing))
                if planned is None:
                    if not left.any():
                        return plans
                    planned = _record_plan(place, run, left)
                plans.append(planned)
                left &= ~planned


def _read_plan(place: pathlib.Path, run: str, num_rows: int) -> np.ndarray | None:
    """[rows] bool of a recorded plan; None if there is none. A damaged one is set aside, and planned anew."""
    try:
        content = json.loads(read_regular(place))
        bits = np.frombuffer(zlib.decompress(base64.b64decode(content["planned"])), np.uint8)  # has a checksum
        if content["run"] == run and len(bits) == -(-num_rows // 8):
            return np.unpackbits(bits, count=num_rows).astype(bool)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, zlib.error):
        pass
    _logger.warning("%s is damaged; what is missing of the run is planned anew", place)
    os.replace(place, place.with_name(place.name + ".damaged"))
    return None


def _record_plan(place: pathlib.Path, run: str, planned: np.ndarray) -> np.ndarray:
    """Write a plan down; returns it, or that of another process that came first."""
    packed = base64.b64encode(zlib.compress(np.packbits(planned).tobytes())).decode()
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(6)}.part")
    try:
        write_durably(temporary, json.dumps({"run": run, "planned": packed}).encode())
        try:
            os.link(temporary, place)  # unlike a rename, this fails where another process came first
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            os.replace(temporary, place)
        sync_folder(place.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    recorded = _read_plan(place, run, len(planned))
    return planned if recorded is None else recorded


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, sort_keys=True).encode() + b"\n"


def _check_store_folder(folder: pathlib.Path) -> None:
    """A folder without a store's header may become a store if it is absent, or empty but for hidden files."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"store={str(folder)!r} is a file; a score store is a folder: name another place")
    if not folder.is_dir():
        return
    others = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    if others and not (folder / "store.json").exists():  # unless another process has just made it a store
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise InputError(
            f"{folder} is not a score store: it holds {others[0]}{more}, but no store.json; choose an empty or new "
            "folder"
        )


def _check_header(place: pathlib.Path) -> None:
    """The header of a store is of a format that this version reads."""
    try:
        header = json.loads(read_regular(place))
    except ValueError:
        header = None
    if not isinstance(header, dict) or not isinstance(header.get("format"), int):
        raise InputError(
            f"{place} is damaged or not the header of a score store; choose another folder, or remove {place.parent} "
            "(its texts are scored again)"
        )
    if header["format"] != FORMAT:
        raise InputError(
            f"{place} names format {header['format']}, written by tdd {header.get('tdd', '?')}; tdd {tdd.__version__} "
            f"reads format {FORMAT}: use the version that wrote it, or choose another folder"
        )
