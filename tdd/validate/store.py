"""Checks of the folder of a score store, and what is said where it cannot be used."""

from __future__ import annotations

import pathlib
from typing import Any

from tdd.validate.errors import InputError

__all__ = ["check_store_folder", "check_store_header", "damaged_during_run", "wrong_space"]


def check_store_folder(folder: pathlib.Path) -> None:
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


def check_store_header(place: pathlib.Path, header: Any, known: int, version: str) -> None:
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


def wrong_space(place: pathlib.Path) -> InputError:
    """Two addresses begin alike, or somebody moved folders."""
    return InputError(f"{place} describes other scores than its folder's name; remove {place.parent}")


def damaged_during_run(path: pathlib.Path) -> InputError:
    """A shard that was whole when the run began."""
    return InputError(
        f"{path} was damaged or removed while the run was going on; it is set aside: run the same command again, and "
        "its rows are scored again"
    )
