"""Totals of a running study in a folder: written whole after each chunk, read by the run that continues it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import io
import json
import os
import pathlib
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tdd.atomic import disk_errors, write_atomically
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
        own = json.loads(json.dumps(fingerprint))
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


def described(value: Any) -> Any:
    """A design, function or option as plain values that change when it does: arrays by hash, functions by source."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = {field.name: described(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"kind": type(value).__qualname__, **own}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): described(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [described(item) for item in value]
    if isinstance(value, functools.partial):
        return {"partial": described(value.func), "args": described(value.args), "options": described(value.keywords)}
    if callable(value):
        return _function(value)
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
        return array.item() if array.ndim == 0 else f"{array.dtype}{list(array.shape)} {digest}"
    return repr(value)


def _function(function: Callable[..., Any]) -> dict[str, Any]:
    """Name, hash of the source, and what a closure holds."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        source = "" if code is None else f"{code.co_code!r}{code.co_consts!r}"
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    own: dict[str, Any] = {"function": getattr(function, "__qualname__", type(function).__qualname__), "source": digest}
    held = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    if held:
        own["closure"] = [described(item) if not callable(item) else getattr(item, "__qualname__", "") for item in held]
    return own
