"""Audits of images: their tables read, the options that do not apply, and what the checks see of images.

The SHA-256 of an image's file stands for it wherever an audit has a text.
"""

from __future__ import annotations

import base64
import functools
import io
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.audit.blind_baseline import View
from tdd.audit.image_checks import NEAR, image_marks, looks, near_images, view
from tdd.audit.image_files import ImageFiles, image_rows
from tdd.audit.preparation import Marks
from tdd.models.vision import check_vision_language
from tdd.procedures.procedure import Procedure
from tdd.records import Texts
from tdd.runs.folder import Audit
from tdd.validate import InputError

_SIDE, _MOST = 96, 48
"""Pixels of a thumbnail's longer side, and how many a run keeps: about 3 kB each."""
_OPTIONS = ("revision", "dtype", "progress", "store")
_DEVICES = ("device", "devices", "shard_params")


class Pictures(NamedTuple):
    """The images of an audit."""

    likeness: Mapping[str, Any]  # how near copies are found, as keywords of `duplicates`
    view: View  # what the blind baseline sees
    marks: Callable[[Sequence[str]], Marks]  # of their files
    files: ImageFiles


def read_pictures(
    model: Any,
    procedure: Procedure,
    tables: Sequence[Any],
    field: str,
    scoring: dict[str, Any],
    unused: Mapping[str, Any],
) -> tuple[list[Any], Pictures]:
    """Read candidates, calibration and members: SHA-256 in the place of images, and what is known of these.

    The options of scoring lose those for texts and get the files. `unused` are
    arguments of `tdd.run_audit` for texts.

    Raises:
      InputError: no model, a procedure with knockoffs, an option for texts; as `image_rows`; an unreadable image.
    """
    _check_options(model, procedure, scoring, unused)
    files: dict[str, Any] = {}
    rows = []
    for table in tables:
        found, own = (None, ImageFiles({})) if table is None else image_rows(table, field)
        rows.append(found)
        files = {**own.files, **files}
    everything = ImageFiles(files)
    seen = looks(everything, progress=scoring.get("progress", True))
    for name in [name for name in scoring if name not in _OPTIONS]:
        del scoring[name]
    scoring["files"] = everything
    likeness = {
        "near": NEAR,
        "search": functools.partial(near_images, seen),
        "measure": "fraction of equal bits of the perceptual hashes",
    }
    return rows, Pictures(likeness, view(seen), functools.partial(image_marks, seen), everything)


def _check_options(model: Any, procedure: Procedure, scoring: Mapping[str, Any], unused: Mapping[str, Any]) -> None:
    if model is None:
        raise InputError("model is None; image_field (--images) needs a checkpoint of LLaVA-1.5")
    if isinstance(model, (str, os.PathLike)):
        check_vision_language(model, revision=scoring.get("revision"))  # before thousands of images are read
    if "knockoffs" in procedure.needs:
        raise InputError(f"method {procedure.name!r} needs knockoffs and gradients of texts; use 'ptdi' for images")
    given = {**unused, **{n: v for n, v in scoring.items() if n not in _OPTIONS}}
    named = [name for name, value in given.items() if not _is_absent(value)]
    if devices := [name for name in named if name in _DEVICES]:
        raise InputError(f"{', '.join(devices)}: images are computed on JAX's default device; leave it out")
    if named:
        raise InputError(
            f"{', '.join(named)}: for texts, and of no use with images (image_field, --images); leave it out"
        )


def _is_absent(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, (str, list, tuple)) and not value)


def thumbnails(files: ImageFiles, candidates: Texts, audit: Audit) -> list[list[str]]:
    """(id, JPEG in base64) of the selected images with the smallest p-values, at most 48; none without a verdict."""
    chosen = np.flatnonzero(audit.items["selected"]) if audit.verdict_stands else np.empty(0, np.int64)
    found = []
    for row in chosen[np.argsort(audit.items["p_value"][chosen], kind="stable")][:_MOST].tolist():
        with files.open(candidates.texts[row]) as image:
            small = image.convert("RGB")
            small.thumbnail((_SIDE, _SIDE))
            buffer = io.BytesIO()
            small.save(buffer, "JPEG", quality=75)
        found.append([candidates.ids[row], base64.b64encode(buffer.getvalue()).decode()])
    return found
