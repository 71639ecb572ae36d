"""Totals of a running study in a folder: written whole after each chunk, read by the run that continues it."""

from __future__ import annotations

import io
import json
import os
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from tdd.atomic import disk_errors, write_atomically
from tdd.study.fingerprint import described
from tdd.study.results import Totals
from tdd.study.tables import write_json
from tdd.validate import studies as checks
from tdd.validate.errors import InputError

__all__ = ["TotalsStore", "described"]


class TotalsStore:
    """The totals of each grid point, in `<folder>/totals`, under the fingerprint of the study.

    Args:
      folder: of the study; None keeps nothing.
      fingerprint: plain values on which the numbers depend.

    Raises:
      InputError: the folder holds another study, or cannot be written.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, fingerprint: Mapping[str, Any]):
        self.folder = None if folder is None else pathlib.Path(folder) / "totals"
        if self.folder is None:
            return
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        place = self.folder / "fingerprint.json"
        own = json.loads(json.dumps(described(fingerprint)))
        if place.exists():
            checks.check_fingerprint(self.folder.parent, own, json.loads(place.read_text("utf-8")))
        else:
            write_json(own, place)

    def read(self, cell: int) -> Totals | None:
        """The totals of a grid point so far, or None."""
        if self.folder is None or not self._place(cell).exists():
            return None
        try:
            with np.load(self._place(cell), allow_pickle=False) as arrays:
                return Totals.from_arrays(arrays)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise InputError(
                f"{self._place(cell)} is damaged ({error}); delete it to repeat this grid point"
            ) from error

    def write(self, cell: int, totals: Totals) -> None:
        """Replace the totals of a grid point."""
        if self.folder is None:
            return
        buffer = io.BytesIO()
        arrays: dict[str, Any] = totals.to_arrays()
        np.savez_compressed(buffer, **arrays)
        write_atomically(self._place(cell), buffer.getvalue())

    def _place(self, cell: int) -> pathlib.Path:
        assert self.folder is not None
        return self.folder / f"cell-{cell:05d}.npz"
