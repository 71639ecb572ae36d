"""Audits of images: their tables read, the options that do not apply, and what the checks see of images."""

from __future__ import annotations

import base64
import dataclasses
import functools
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.audit.excerpts import with_excerpts
from tdd.audit.image_checks import NEAR, image_marks, looks, near_images, view
from tdd.audit.image_files import ImageFiles, image_rows
from tdd.audit.images import of_slice, score_image_files
from tdd.audit.inputs import Inputs, Reading, Tables
from tdd.audit.items import Items, Scored, compare_roles, score_joined
from tdd.models.vision import check_vision_language
from tdd.procedures.procedure import Procedure
from tdd.records import Scores, Texts
from tdd.runs.folder import Audit
from tdd.scoring.how import Run
from tdd.validate import InputError

_SIDE, _MOST = 96, 48
"""Pixels of a thumbnail's longer side, and how many a run keeps: about 3 kB each."""

OF_IMAGES = "max_renyi:gamma=0.5,k=0.1 image"
"""The score that decides on images: that of PTDI under LLaVA-1.5, on the slice that no text is part of."""

_DEVICES = ("device", "devices", "shard_params")
_READ, _RUN = ("image_field", "id_field", "label_field", "group_field"), ("dtype", "progress", "store")
"""How images are read, and how an audit of them runs."""


class ImageItems(Items):
    """Images, scored by `tdd.score_images`: the SHA-256 of a file stands for it wherever an audit has a text.

    Raises:
      InputError: no model, a procedure with knockoffs, an option for texts.
    """

    score = OF_IMAGES

    def __init__(self, model: Any, procedure: Procedure, reading: Reading, how: Run, shard: Any) -> None:
        super().__init__(reading, how)
        self._files, self._seen = ImageFiles({}), {}
        self._model = model
        self.options = {"image_field": reading.image_field}
        if model is None:
            raise InputError("model is None; image_field (--images) needs a checkpoint of LLaVA-1.5")
        if "knockoffs" in procedure.needs:
            raise InputError(f"method {procedure.name!r} needs knockoffs and gradients of texts; use 'ptdi' for images")
        fields = [field.name for field in dataclasses.fields(Reading) if field.name not in _READ]
        given = [name for name in fields if not _is_absent(getattr(reading, name))]
        layout = [field.name for field in dataclasses.fields(Run) if field.name not in _RUN]
        named = [*given, *(name for name in layout if getattr(how, name) != getattr(Run(), name))]
        named += ["shard"] * (shard is not None)
        if devices := [name for name in named if name in _DEVICES]:
            raise InputError(f"{', '.join(devices)}: images are computed on JAX's default device; leave it out")
        if named:
            raise InputError(
                f"{', '.join(named)}: for texts, and of no use with images (image_field, --images); leave it out"
            )

    def scores(self, given: Any) -> dict[str, Any]:  # noqa: D102
        named = given if isinstance(given, Mapping) else {name: name for name in given}
        return {str(label): of_slice(one) for label, one in named.items()}

    def read(self, tables: Sequence[Any]) -> tuple[Sequence[Any], Reading]:
        """Read SHA-256 in the place of images, and what is known of these.

        Raises:
          InputError: as `image_rows`; an unreadable image; a checkpoint that is none of LLaVA-1.5.
        """
        if isinstance(self._model, (str, os.PathLike)):
            check_vision_language(self._model)  # before thousands of images are read
        files: dict[str, Any] = {}
        rows = []
        for table in tables:
            found, own = (None, ImageFiles({})) if table is None else image_rows(table, self.options["image_field"])
            rows.append(found)
            files = {**own.files, **files}
        self._files = ImageFiles(files)
        self._seen = looks(self._files, progress=self.how.progress)
        return rows, dataclasses.replace(self.reading, text_field=self.options["image_field"])

    def score_under(  # noqa: D102
        self, models: Sequence[Any], prefixes: Sequence[str], inputs: Inputs, scores: Mapping[str, Any], part: Any
    ) -> Scored:
        def compute(model: Any, texts: Texts, how: Run) -> Scores:
            options = {"dtype": how.dtype, "progress": how.progress, "store": how.store}
            return score_image_files(model, texts, scores, files=self._files, **options)

        return score_joined(models, prefixes, inputs, self.how, compute)

    def compare(self, known: Texts, candidates: Texts, *, seed: int, groups: Any = None) -> dict[str, Any]:  # noqa: D102
        likeness = {
            "near": NEAR,
            "search": functools.partial(near_images, self._seen),
            "measure": "fraction of equal bits of the perceptual hashes",
        }
        sight = {"view": view(self._seen), "marks": functools.partial(image_marks, self._seen)}
        return compare_roles(known, candidates, seed=seed, groups=groups, likeness=likeness, **sight)

    def as_text(self, name: str, score: Any) -> str:  # noqa: D102
        value, part = score
        return f"{value.label} {part}"

    def finished(self, audit: Audit, inputs: Inputs, tables: Tables, columns: Sequence[str]) -> Audit:  # noqa: D102
        audit = with_excerpts(audit, inputs, tables, columns, texts=False)  # a hash is no text to read
        shown = thumbnails(self._files, inputs.candidates, audit)
        return dataclasses.replace(audit, run={**audit.run, "thumbnails": shown})


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, (str, list, tuple)) and not value)


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
