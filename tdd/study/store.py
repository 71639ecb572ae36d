"""Totals of a running study in a folder: written whole now and then, read by the run that continues it.

Every process writes a file of its own for each grid point and reads those of all: the file says which repetitions it
holds, so that their union is a sum, whatever number of processes began the study.
"""

from __future__ import annotations

import contextlib
import contextvars
import io
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tdd.atomic import disk_errors, write_atomically
from tdd.processes import Meeting, Processes, current
from tdd.study.fingerprint import described
from tdd.study.parts import Part, unite
from tdd.study.results import Totals
from tdd.study.tables import write_json
from tdd.validate import studies as checks
from tdd.validate.errors import InputError
from tdd.validate.npz import read_npz
from tdd.validate.processes import check_shared_folder

__all__ = ["TotalsStore", "described", "part_of"]

_WHOLE: contextvars.ContextVar[pathlib.Path | None] = contextvars.ContextVar("whole", default=None)


@contextlib.contextmanager
def part_of(folder: pathlib.Path) -> Iterator[None]:
    """Within: stores in folders below this one are parts of one study, whose processes meet here."""
    token = _WHOLE.set(folder)
    try:
        yield
    finally:
        _WHOLE.reset(token)


class TotalsStore:
    """The totals of each grid point, in `<folder>/totals`, under the fingerprint of the study.

    Args:
      folder: of the study; None keeps nothing.
      fingerprint: plain values on which the numbers depend.
      processes: this one among those that work on the study (default: as JAX or the command line has it).

    Attributes:
      processes: as above.
      meeting: where they meet; None for one process.

    Raises:
      InputError: the folder holds another study, or cannot be written; several processes without a folder, or with
        different studies.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        fingerprint: Mapping[str, Any],
        processes: Processes | None = None,
    ):
        self.processes = current() if processes is None else processes
        self.folder = None if folder is None else pathlib.Path(folder) / "totals"
        self.meeting: Meeting | None = None
        self._read: dict[pathlib.Path, tuple[Any, Part]] = {}
        if self.processes.count > 1:
            check_shared_folder(folder, self.processes.count, "folder= (--out)")
        if self.folder is None:
            return
        own = json.loads(json.dumps(described(fingerprint)))
        if self.processes.count > 1:
            self._meet(own)
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        if not self._fingerprint.exists():
            write_json(own, self._fingerprint)
        try:
            there = json.loads(self._fingerprint.read_text("utf-8"))
        except FileNotFoundError as error:
            raise checks.folder_gone(self.folder) from error
        except (OSError, ValueError) as error:
            raise checks.bad_fingerprint(self._fingerprint, error) from error
        checks.check_fingerprint(self.folder.parent, own, there)

    def read(self, cell: int) -> Part | None:
        """What this process has of a grid point so far, or None."""
        return None if self.folder is None else self._part(self.place(cell))

    def union(self, cell: int, own: Part, zero: Totals) -> Part:
        """What all processes have of a grid point, those of earlier runs included.

        Args:
          cell: number of the grid point.
          own: of this process, saved or not.
          zero: totals of no repetition.

        Raises:
          InputError: a damaged file, two with the same repetitions, or the folder is gone.
        """
        if self.folder is None:
            return own
        if not self._fingerprint.exists():
            raise checks.folder_gone(self.folder)
        mine = self.place(cell)
        parts, spare = {str(mine): own}, {}
        for place in sorted(self.folder.glob(f"cell-{cell:05d}*.npz")):
            if place != mine and (part := self._part(place)) is not None:
                (spare if ".in-place-" in place.name else parts)[str(place)] = part
        return unite(parts, spare, zero)

    def write(self, cell: int, part: Part) -> None:
        """Replace what this process has of a grid point."""
        if self.folder is not None:
            self._save(self.place(cell), part)

    def write_spare(self, cell: int, part: Part) -> None:
        """Add a range that this process has run in place of another one."""
        assert self.folder is not None
        ((first, last),) = part.ranges
        self._save(self.folder / f"cell-{cell:05d}.in-place-{first}-{last}.npz", part)

    def place(self, cell: int) -> pathlib.Path:
        """The file of this process for a grid point."""
        assert self.folder is not None
        index = self.processes.index
        return self.folder / f"cell-{cell:05d}{f'.{index}' if index else ''}.npz"

    @property
    def _fingerprint(self) -> pathlib.Path:
        assert self.folder is not None
        return self.folder / "fingerprint.json"

    def _meet(self, facts: Mapping[str, Any]) -> None:
        """With the processes that work on the same study, and on no other."""
        assert self.folder is not None
        own = self.folder.parent
        whole = _WHOLE.get() or own
        if whole != own and (whole / "study.json").exists():
            raise checks.folder_gone(own)
        self.meeting = Meeting(whole, "-".join(("totals", *own.relative_to(whole).parts)), self.processes)
        with self.meeting:
            self.meeting.agree(facts)

    def _save(self, place: pathlib.Path, part: Part) -> None:
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {**part.totals.to_arrays(), "ranges": np.array(part.ranges, np.int64)}
        np.savez_compressed(buffer, **arrays)
        write_atomically(place, buffer.getvalue())

    def _part(self, place: pathlib.Path) -> Part | None:
        """The content of a file, read again only where it has changed."""
        try:
            state = place.stat()
            version = state.st_mtime_ns, state.st_size, state.st_ino
            if self._read.get(place, (None,))[0] != version:
                arrays = read_npz(place)
                totals = Totals.from_arrays(arrays)
                ranges = arrays["ranges"].tolist() if "ranges" in arrays else [[0, totals.repetitions]]
                self._read[place] = version, Part(tuple((int(first), int(last)) for first, last in ranges), totals)
            return self._read[place][1]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{place} is damaged ({error}); delete it to repeat this grid point") from error
