"""What a reproduction is, what it gives, and the folder in which an interrupted one goes on.

A reproduction divides its work into cells: a trained model and what was measured on it, as plain values. `cell` keeps
each finished one as a JSON file, and a later run of the same folder reads it. Whether it is read or computed, what
comes back went through JSON, so an interrupted and continued run gives the same rows as an uninterrupted one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from tdd.runs.atomic import disk_errors, write_atomically
from tdd.runs.folder import fingerprint, plain, versions
from tdd.validate.arrays import check_seed
from tdd.validate.errors import InputError
from tdd.validate.lab import check_range

__all__ = ["Options", "Outcome", "Reproduction", "cell", "cell_seconds", "provenance"]

Row = dict[str, Any]

_CELLS = "cells"


@dataclasses.dataclass(frozen=True)
class Options:
    """How a reproduction is run; what is the same for all of them.

    Attributes:
      folder: where cells and results are kept; None keeps nothing.
      seed: of everything random.
      scale: 1 takes minutes on two cores; more grows models, corpora and repetitions, less shrinks them.
      progress: whether to show bars on standard error.

    Raises:
      InputError: a seed that is negative or 2^32 and more, or a scale outside 0.001..1000.
    """

    folder: pathlib.Path | None
    seed: int = 0
    scale: float = 1.0
    progress: bool = False

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_range("scale", self.scale, 1e-3, 1e3)
        if self.folder is not None:
            object.__setattr__(self, "folder", pathlib.Path(self.folder).expanduser())


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a reproduction gives.

    Attributes:
      name: of the reproduction.
      title: what is shown, in a few words.
      rows: the long table, one plain value a column, the same columns in each row; `results.csv`.
      tables: title -> rows for people: column heading -> value, the same headings in each row.
      seconds: that its cells took, whichever run computed them.
      provenance: seed, scale, settings, versions, seconds of each cell; see `provenance`.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    tables: Mapping[str, tuple[Row, ...]]
    seconds: float
    provenance: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """A reproduction that the command line knows by name.

    Attributes:
      name: of the reproduction.
      title: of its figure.
      paper: whose question it is.
      run: `(options) -> Outcome`; does its work through `cell`, and writes nothing else.
      minutes: about how long it takes at scale 1 on two cores.
    """

    name: str
    title: str
    paper: str
    run: Callable[[Options], Outcome]
    minutes: float


def cell(
    folder: pathlib.Path | None,
    key: str,
    compute: Callable[[], Any],
    settings: Mapping[str, Any] | None = None,
) -> Any:
    """The value of a finished cell, or else that of `compute()`, which is kept.

    Args:
      folder: of the run; the file is `<folder>/cells/<key>.json`. None keeps nothing.
      key: names the cell; unique within the run.
      compute: gives plain values, arrays or records; what it gives is turned into JSON's own types (NaN and infinities
        into None) and comes back so.
      settings: plain values on which the cell depends (seed, scale, sizes). A kept cell of other settings is an error.

    Raises:
      InputError: the kept cell is damaged or of other settings, or the folder cannot be written.
    """
    if folder is None:
        return plain(compute())
    place, identity = _place(folder, key), fingerprint({"key": key, "settings": settings or {}})
    if place.exists():
        return _read(place, identity, settings or {})["value"]
    began = time.perf_counter()
    value = plain(compute())
    seconds = time.perf_counter() - began
    with disk_errors(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    kept = {"key": key, "identity": identity, "settings": plain(settings or {}), "seconds": seconds}
    kept |= {"versions": versions(), "value": value}
    write_atomically(place, (json.dumps(kept, ensure_ascii=False, allow_nan=False) + "\n").encode())
    return value


def cell_seconds(folder: pathlib.Path | None) -> dict[str, float]:
    """Key -> seconds that it took, of every finished cell of a folder, in the order of the keys."""
    return dict(sorted((each["key"], round(float(each["seconds"]), 3)) for each in _cells(folder)))


def provenance(options: Options, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Seed, scale, settings, versions and the seconds of each cell, for `Outcome.provenance`.

    Cells that an earlier run computed with other versions are named.

    Args:
      options: of the run.
      settings: sizes and constants of the design, as plain values.
    """
    import jax

    now = versions()
    others = sorted(each["key"] for each in _cells(options.folder) if each["versions"] not in (now, None))
    return {
        "seed": options.seed,
        "scale": options.scale,
        "settings": plain(settings),
        "versions": now,
        **({"cells_of_other_versions": others} if others else {}),
        "device": jax.devices()[0].device_kind,
        "cells": cell_seconds(options.folder),
    }


def _place(folder: pathlib.Path, key: str) -> pathlib.Path:
    """The cell's file: its key where that can be a file's name, else made so, with a hash that keeps it unique."""
    name = re.sub(r"[^A-Za-z0-9._=-]+", "-", key).strip(".-")[:80]
    if name != key:
        name = f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    return folder / _CELLS / f"{name}.json"


def _read(place: pathlib.Path, identity: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A kept cell of these settings."""
    found = _load(place)
    if found["identity"] != identity:
        then, now = found["settings"], plain(settings)
        names = sorted(name for name in {**then, **now} if then.get(name) != now.get(name))
        shown = "; ".join(f"{name}: {then.get(name)!r} there, {now.get(name)!r} now" for name in names[:3])
        raise InputError(
            f"{place.parent.parent} holds a run of other settings ({shown or 'another cell of the same name'}); "
            "choose another folder, or delete this one to start anew"
        )
    return found


def _cells(folder: pathlib.Path | None) -> list[dict[str, Any]]:
    """Every finished cell of a folder."""
    if folder is None or not (folder / _CELLS).is_dir():
        return []
    return [_load(place) for place in sorted((folder / _CELLS).glob("*.json"))]


def _load(place: pathlib.Path) -> dict[str, Any]:
    try:
        found = json.loads(place.read_text("utf-8"))
        kept = {name: found[name] for name in ("key", "identity", "settings", "seconds", "value")}
        return {**kept, "versions": found.get("versions")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{place} is damaged ({error}); delete it to repeat this cell") from error
