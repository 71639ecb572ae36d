"""A reproduction, its result, and the folder in which an interrupted one continues.

A reproduction divides its work into cells: a trained model and its measurements, as plain values. `cell` keeps each
finished one as a JSON file, and a later run of the same folder reads it. Whether it is read or computed, the value went
through JSON, so an interrupted and continued run gives the same rows as an uninterrupted one.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import pathlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tdd.lab.checks import check_range
from tdd.runs.atomic import disk_errors, write_atomically
from tdd.runs.folder import fingerprint, plain, versions
from tdd.validate import InputError
from tdd.validate.arrays import check_seed

if TYPE_CHECKING:
    from benchmarks.reproductions.models import Base

__all__ = ["Options", "Outcome", "Reproduction", "Row", "Run", "cell", "cell_seconds", "provenance"]

Row = dict[str, Any]
Tables = Mapping[str, Sequence[Row]]
"""Title -> rows for people: column heading -> value, the same headings in each row."""

_CELLS = "cells"


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of every reproduction.

    Attributes:
      folder: Keeps cells and results; None keeps nothing.
      seed: Random seed.
      scale: 1 is that of the results in the repository; more grows models, corpora and repetitions, less shrinks them.
      progress: Whether to show bars on standard error.

    Raises:
      InputError: A seed that is negative or 2^32 and more, or a scale outside 0.001..1000.
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
    """The result of a reproduction.

    Attributes:
      name: Name of the reproduction.
      title: Title of its figure.
      rows: The long table, one plain value per column, the same columns in each row; `results.csv`.
      tables: Title -> rows for people.
      seconds: Seconds that its cells took, whichever run computed them.
      provenance: Seed, scale, settings, versions, seconds of each cell; see `provenance`.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    tables: Tables
    seconds: float
    provenance: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of a reproduction: its options, and the settings that its cells depend on."""

    options: Options
    settings: Mapping[str, Any]

    def cell(self, key: str, compute: Callable[[], Any]) -> Any:
        """The value of a finished cell of this run, or else of `compute()`; see `cell`."""
        return cell(self.options.folder, key, compute, self.settings)

    def place(self, name: str) -> pathlib.Path | None:
        """A path in the run's folder; None if the run keeps nothing."""
        return None if self.options.folder is None else self.options.folder / name

    @functools.cached_property
    def base(self) -> Base:
        """The base model of the run's scale and seed."""
        from benchmarks.reproductions.models import base_model

        return base_model(self.options.folder, scale=self.options.scale, seed=self.options.seed)


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """A reproduction that the command line knows by name.

    Attributes:
      name: Name of the reproduction.
      title: Title of its figure.
      sizes: Scale -> the sizes of the experiment, a dataclass.
      measure: (run, sizes) -> (rows, tables, further provenance); does its work through `run.cell`, and writes nothing
        else.
    """

    name: str
    title: str
    sizes: Callable[[float], Any]
    measure: Callable[[Run, Any], tuple[Sequence[Row], Tables, Mapping[str, Any]]]

    def run(self, options: Options, sizes: Any = None) -> Outcome:
        """Measure with the sizes of the scale, or with other ones."""
        sizes = self.sizes(options.scale) if sizes is None else sizes
        settings = {"scale": float(options.scale), "seed": options.seed, **dataclasses.asdict(sizes)}
        rows, tables, extra = self.measure(Run(options, settings), sizes)
        return Outcome(
            name=self.name,
            title=self.title,
            rows=tuple(rows),
            tables=tables,
            seconds=float(sum(cell_seconds(options.folder).values())),
            provenance={**provenance(options, settings), **extra},
        )


def cell(
    folder: pathlib.Path | None,
    key: str,
    compute: Callable[[], Any],
    settings: Mapping[str, Any] | None = None,
) -> Any:
    """The value of a finished cell, or else that of `compute()`, which is kept.

    Args:
      folder: Folder of the run; the file is `<folder>/cells/<key>.json`. None keeps nothing.
      key: Name of the cell, unique within the run.
      compute: Gives plain values, arrays or records, which are turned into JSON's own types (NaN and infinities into
        None) and come back so.
      settings: Plain values on which the cell depends (seed, scale, sizes). A kept cell of other settings is an error.

    Raises:
      InputError: The kept cell is damaged or of other settings, or the folder cannot be written.
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
    record = {"key": key, "identity": identity, "settings": plain(settings or {}), "seconds": seconds}
    record |= {"versions": versions(), "value": value}
    write_atomically(place, (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode())
    return value


def cell_seconds(folder: pathlib.Path | None) -> dict[str, float]:
    """Key -> seconds that it took, of every finished cell of a folder, in the order of the keys."""
    return dict(sorted((each["key"], round(float(each["seconds"]), 3)) for each in _cells(folder)))


def provenance(options: Options, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Seed, scale, settings, versions and the seconds of each cell, for `Outcome.provenance`.

    Cells that an earlier run computed with other versions are named.

    Args:
      options: Options of the run.
      settings: Sizes and constants of the design, as plain values.
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
    record = _load(place)
    if record["identity"] != identity:
        then, now = record["settings"], plain(settings)
        names = sorted(name for name in {**then, **now} if then.get(name) != now.get(name))
        shown = "; ".join(f"{name}: {then.get(name)!r} there, {now.get(name)!r} now" for name in names[:3])
        raise InputError(
            f"{place.parent.parent} holds a run of other settings ({shown or 'another cell of the same name'}); "
            "choose another folder, or delete this one to start anew"
        )
    return record


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
