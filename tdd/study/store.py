"""Totals of a running study in a folder: written whole now and then, read by the run that continues or joins it.

Each shard writes a file of its own for each grid point, and so does the run without a shard. A file says which
repetitions it holds, so that the union of files is a sum, for any number of shards.
"""

from __future__ import annotations

import bisect
import io
import json
import logging
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tdd.runs.atomic import disk_errors, read_regular, write_atomically
from tdd.runs.described import described
from tdd.runs.folder import fingerprint as digest_of
from tdd.runs.folder import to_json
from tdd.runs.shards import Shard, as_shard
from tdd.study.results import Totals
from tdd.validate import InputError
from tdd.validate.files import read_npz

_logger = logging.getLogger("tdd.study")

Ranges: TypeAlias = tuple[tuple[int, int], ...]


class TotalsStore:
    """The totals of each grid point, in `<folder>/totals`, under the fingerprint of the study.

    Without a folder nothing is kept. The numbers depend on the plain values of the fingerprint; without a shard, (i, n)
    or "i/n", those of all shards are joined.

    Raises:
      InputError: the folder holds another study, or cannot be written.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, fingerprint: Mapping[str, Any], shard: Any = None):
        self.shard = as_study_shard(shard, folder, fingerprint.get("target_se"))
        self.folder = None if folder is None else pathlib.Path(folder) / "totals"
        self._warned = False
        if self.folder is None:
            return
        expected = json.loads(json.dumps(described(fingerprint)))
        self._study = digest_of(expected)
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        if not self._fingerprint.exists():
            write_atomically(self._fingerprint, to_json(expected).encode())
        try:
            stored = json.loads(read_regular(self._fingerprint))
        except FileNotFoundError as error:
            raise _folder_gone(self.folder) from error
        except (OSError, ValueError) as error:
            raise _bad_fingerprint(self._fingerprint, error) from error
        check_fingerprint(self.folder.parent, expected, stored)

    def read(self, cell: int, zero: Totals, repetitions: int) -> tuple[PartialTotals, PartialTotals]:
        """The totals of a grid point in the file of this run, and beside it in the files of others.

        Files that overlap are of shards of different n, or of a shard that came late: the larger ones count. If the
        shards alone hold more than this run's file and what fits beside it, the run gives its own up. `repetitions`,
        the number wanted, is for the log.

        Raises:
          InputError: a damaged file, or one of another study.
        """
        empty = PartialTotals((), zero)
        if self.folder is None:
            return empty, empty
        place = self.place(cell)
        places = {*self.folder.glob(f"cell-{cell:05d}.shard-*.npz"), self.folder / f"cell-{cell:05d}.npz"} - {place}
        others = [part for other in sorted(places) if (part := self._read(other)) is not None]
        others.sort(key=lambda part: -part.repetitions)
        own = self._read(place) or empty
        beside = merge(others, zero, own.ranges)
        if self.shard is None and others:
            if (shards := merge(others, zero)).repetitions > own.repetitions + beside.repetitions:
                own, beside = empty, shards
            self._warn(repetitions - own.repetitions - beside.repetitions)
        return own, beside

    def write(self, cell: int, part: PartialTotals) -> None:
        """Replace this run's totals of a grid point. A copy of this shard that is further ahead keeps its file."""
        if self.folder is None:
            return
        if not self._fingerprint.exists():
            raise _folder_gone(self.folder)
        place = self.place(cell)
        if self.shard and (there := self._read(place)) is not None and there.repetitions > part.repetitions:
            return
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {**part.totals.to_arrays(), "ranges": np.array(part.ranges, np.int64)}
        np.savez_compressed(buffer, study=np.array(self._study), **arrays)
        write_atomically(place, buffer.getvalue())

    def place(self, cell: int) -> pathlib.Path:
        """The file of this run for a grid point."""
        assert self.folder is not None
        suffix = f".shard-{self.shard.index}-of-{self.shard.count}" if self.shard else ""
        return self.folder / f"cell-{cell:05d}{suffix}.npz"

    @property
    def _fingerprint(self) -> pathlib.Path:
        assert self.folder is not None
        return self.folder / "fingerprint.json"

    def _warn(self, lacking: int) -> None:
        """Warn once a run that the shards have left work."""
        if lacking and not self._warned:
            self._warned = True
            _logger.warning(
                "%s: the shards have left %s repetitions of a grid point (a shard was not started, did not finish, or "
                "overlaps with one of another N); what is missing is computed now",
                self.folder,
                f"{lacking:,}",
            )

    def _read(self, place: pathlib.Path) -> PartialTotals | None:
        try:
            arrays = read_npz(place)
            study, ranges = str(arrays.get("study", self._study)), arrays["ranges"].reshape(-1, 2).tolist()
            part = PartialTotals(tuple((int(first), int(last)) for first, last in ranges), Totals.from_arrays(arrays))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{place} is damaged ({error}); delete it to repeat its repetitions") from error
        if study != self._study:
            raise InputError(
                f"{place} holds totals of another study: two studies were started in this folder at the same time; "
                "delete the file and run the same command again, and the other study in another folder"
            )
        return part


def as_study_shard(shard: Any, folder: Any, target_se: Any) -> Shard | None:
    """A shard of a study; None stays None.

    Raises:
      InputError: no shard, one without a folder, or with a target that only all shards together can meet.
    """
    checked = as_shard(shard, folder, "folder= (--out)")
    if checked is not None and target_se is not None:
        raise InputError(
            f"target_se={target_se} does not go with shard={checked}: a shard does not know the totals of the others; "
            "give repetitions alone"
        )
    return checked


def check_fingerprint(folder: pathlib.Path, expected: Mapping[str, Any], stored: Any) -> None:
    """Check that a folder belongs to this study."""
    if not isinstance(stored, Mapping):
        raise _bad_fingerprint(folder / "totals" / "fingerprint.json", "no object of JSON")
    names = [name for name in {**expected, **stored} if expected.get(name) != stored.get(name)]
    if names:
        shown = (f"{name}: {_short(stored.get(name))} there, {_short(expected.get(name))} now" for name in names[:3])
        raise InputError(
            f"{folder} holds another study ({'; '.join(shown)}). A run continues where its own left off; choose "
            "another folder, or delete this one to start anew"
        )


def _short(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= 60 else f"{words[:57]}..."


def _bad_fingerprint(place: pathlib.Path, error: Any) -> InputError:
    return InputError(
        f"{place} is damaged ({error}): of which study the totals beside it are cannot be told; delete {place.parent} "
        "and run the same command again"
    )


def _folder_gone(folder: pathlib.Path) -> InputError:
    return InputError(f"{folder} was removed while the study ran; run the same command again")


class PartialTotals(NamedTuple):
    """Totals over some of the repetitions of a study."""

    ranges: Ranges  # (first, last) pairs of the repetitions first..last-1: sorted, none touches the next
    totals: Totals  # exact sums over these repetitions

    @property
    def repetitions(self) -> int:
        """Number of repetitions."""
        return self.totals.repetitions

    @property
    def end(self) -> int:
        """One more than the last repetition; 0 without any."""
        return self.ranges[-1][1] if self.ranges else 0

    def add(self, first: int, last: int, tally: Any) -> PartialTotals:
        """Add the tally of the repetitions first..last-1, which must be new."""
        return PartialTotals(joined([*self.ranges, (first, last)]), self.totals.add(tally))

    def plus(self, other: PartialTotals) -> PartialTotals:
        """Add totals of other repetitions."""
        return PartialTotals(joined([*self.ranges, *other.ranges]), self.totals.plus(other.totals))


def merge(parts: Iterable[PartialTotals], zero: Totals, beside: Ranges = ()) -> PartialTotals:
    """Sum partial totals in order; one that shares a repetition with `beside` or an earlier one is left out."""
    whole = PartialTotals((), zero)
    for part in parts:
        if not overlap(beside, part.ranges) and not overlap(whole.ranges, part.ranges):
            whole = whole.plus(part)
    return whole


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sort ranges and join those that touch or overlap; empty ones go."""
    out: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if out and first <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        elif first < last:
            out.append((first, last))
    return tuple(out)


def gaps(wanted: Iterable[tuple[int, int]], done: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of some ranges that are not in `done`, which may overlap itself."""
    out = []
    covering = joined(done)
    starts = [low for low, _ in covering]
    for at, last in wanted:
        for i in range(max(0, bisect.bisect_right(starts, at) - 1), bisect.bisect_left(starts, last)):
            low, high = covering[i]
            if high <= at:
                continue
            if at < low:
                out.append((at, low))
            at = high
        if at < last:
            out.append((at, last))
    return out


def overlap(one: Ranges, other: Ranges) -> bool:
    """Whether two lists of sorted disjoint ranges have a repetition in common."""
    return gaps(one, other) != list(one)
