"""Totals of a running study in a folder: written whole now and then, read by the run that continues or joins it.

Each shard writes a file of its own for each grid point, and so does the run without a shard. A file says which
repetitions it holds, so that the union of files is a sum, whatever number of shards they are of.
"""

from __future__ import annotations

import io
import json
import logging
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tdd.runs.atomic import disk_errors, write_atomically
from tdd.runs.folder import fingerprint as digest_of
from tdd.runs.shards import Shard, as_shard
from tdd.study.fingerprint import described
from tdd.study.parts import Part, merge
from tdd.study.results import Totals
from tdd.study.tables import write_json
from tdd.validate import studies as checks
from tdd.validate.errors import InputError
from tdd.validate.npz import read_npz

__all__ = ["TotalsStore", "as_study_shard", "described"]

_logger = logging.getLogger("tdd.study")


def as_study_shard(shard: Any, folder: Any, target_se: Any) -> Shard | None:
    """A shard of a study; None stays None.

    Raises:
      InputError: no shard, one without a folder, or with a target that only all shards together can meet.
    """
    found = as_shard(shard, folder, "folder= (--out)")
    if found is not None and target_se is not None:
        raise InputError(
            f"target_se={target_se} does not go with shard={found}: a shard does not know the totals of the others; "
            "give repetitions alone"
        )
    return found


class TotalsStore:
    """The totals of each grid point, in `<folder>/totals`, under the fingerprint of the study.

    Args:
      folder: of the study; None keeps nothing.
      fingerprint: plain values on which the numbers depend.
      shard: (i, n) or "i/n", of this run; None joins all shards.

    Attributes:
      shard: as above.

    Raises:
      InputError: the folder holds another study, or cannot be written; a shard that cannot be, see `as_study_shard`.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, fingerprint: Mapping[str, Any], shard: Any = None):
        self.shard = as_study_shard(shard, folder, fingerprint.get("target_se"))
        self.folder = None if folder is None else pathlib.Path(folder) / "totals"
        self._told = False
        if self.folder is None:
            return
        own = json.loads(json.dumps(described(fingerprint)))
        self._study = digest_of(own)
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        if not self._fingerprint.exists():
            write_json(own, self._fingerprint)
        try:
            there = json.loads(self._fingerprint.read_text("utf-8"))
        except FileNotFoundError as error:
            raise _folder_gone(self.folder) from error
        except (OSError, ValueError) as error:
            raise checks.bad_fingerprint(self._fingerprint, error) from error
        checks.check_fingerprint(self.folder.parent, own, there)

    def read(self, cell: int, zero: Totals, repetitions: int) -> tuple[Part, Part]:
        """What there is of a grid point: in the file of this run, and beside it in the files of others.

        Files that overlap are of shards of different n, or of a shard that came late: the larger ones count. Where the
        shards alone hold more than this run's file and what fits beside it, the run gives its own up.

        Args:
          cell: number of the grid point.
          zero: totals of no repetition.
          repetitions: wanted, for the log.

        Raises:
          InputError: a damaged file, or one of another study.
        """
        empty = Part((), zero)
        if self.folder is None:
            return empty, empty
        mine = self.place(cell)
        places = {*self.folder.glob(f"cell-{cell:05d}.shard-*.npz"), self.folder / f"cell-{cell:05d}.npz"} - {mine}
        others = [part for place in sorted(places) if (part := self._part(place)) is not None]
        others.sort(key=lambda part: -part.repetitions)
        own = self._part(mine) or empty
        beside = merge(others, zero, own.ranges)
        if self.shard is None and others:
            if (shards := merge(others, zero)).repetitions > own.repetitions + beside.repetitions:
                own, beside = empty, shards
            self._tell(repetitions - own.repetitions - beside.repetitions)
        return own, beside

    def write(self, cell: int, part: Part) -> None:
        """Replace what this run has of a grid point. A copy of this shard that is further ahead keeps its file."""
        if self.folder is None:
            return
        if not self._fingerprint.exists():
            raise _folder_gone(self.folder)
        place = self.place(cell)
        if self.shard and (there := self._part(place)) is not None and there.repetitions > part.repetitions:
            return
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {**part.totals.to_arrays(), "ranges": np.array(part.ranges, np.int64)}
        np.savez_compressed(buffer, study=np.array(self._study), **arrays)
        write_atomically(place, buffer.getvalue())

    def place(self, cell: int) -> pathlib.Path:
        """The file of this run for a grid point."""
        assert self.folder is not None
        name = f"cell-{cell:05d}"
        return self.folder / (
            f"{name}.shard-{self.shard.index}-of-{self.shard.count}.npz" if self.shard else f"{name}.npz"
        )

    @property
    def _fingerprint(self) -> pathlib.Path:
        assert self.folder is not None
        return self.folder / "fingerprint.json"

    def _tell(self, lacking: int) -> None:
        """Once a run: that the shards have left work."""
        if lacking and not self._told:
            self._told = True
            _logger.warning(
                "%s: the shards have left %s repetitions of a grid point (a shard was not started, did not finish, or "
                "overlaps with one of another N); what is missing is computed now",
                self.folder,
                f"{lacking:,}",
            )

    def _part(self, place: pathlib.Path) -> Part | None:
        """The content of a file."""
        try:
            arrays = read_npz(place)
            study, ranges = str(arrays.get("study", self._study)), arrays["ranges"].reshape(-1, 2).tolist()
            part = Part(tuple((int(first), int(last)) for first, last in ranges), Totals.from_arrays(arrays))
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


def _folder_gone(folder: pathlib.Path) -> InputError:
    """The folder of a running study was removed."""
    return InputError(f"{folder} was removed while the study ran; run the same command again")
