"""The models of an audit: what they are, and every score of every text under each of them."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.audit.score import score as score_texts
from tdd.records import LanguageModel, Texts
from tdd.runs.folder import fingerprint
from tdd.runs.shards import Shard
from tdd.scoring.store.address import fingerprint as model_fingerprint
from tdd.validate.errors import InputError

__all__ = ["describe", "labels_of", "models_of", "provenance_of", "score_under"]


def models_of(model: Any, *, several: bool) -> list[Any]:
    """One model, or the list of models that a joint procedure takes."""
    if not isinstance(model, list):
        return [model]
    if not model:
        raise InputError("model is an empty list; give at least one checkpoint")
    if len(model) > 1 and not several:
        raise InputError(f'{len(model)} models were given; only the methods "jmcs" and "jecs" decide on several')
    return model


def score_under(
    models: Sequence[Any],
    provenance: Sequence[Mapping[str, Any]],
    texts: Texts,
    names: Sequence[str],
    scoring: Mapping[str, Any],
    shard: Shard | None = None,
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Every score under every model, [texts] each, and the provenance of each table; of a shard neither."""
    values: dict[str, np.ndarray] = {}
    details = []
    for number, (label, model) in enumerate(zip(labels_of(provenance), models, strict=True)):
        job = f"{scoring['job']}-{number}" if len(models) > 1 else scoring["job"]
        if shard is not None:
            score_texts(model, texts, names, shard=shard, **{**scoring, "job": job})
            continue
        table = score_texts(model, texts, names, **{**scoring, "job": job})
        values |= {f"{label}{name}": column for name, column in table.values.items()}
        details.append(dict(table.provenance))
    return values, details


def labels_of(provenance: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a model's columns begin with: nothing for one model, else its folder's name, numbered where not unique."""
    if len(provenance) == 1:
        return [""]
    short = [pathlib.PurePath(str(one["name"])).name or str(one["name"]) for one in provenance]
    return [f"{name}{'' if short.count(name) == 1 else f'#{number + 1}'}:" for number, name in enumerate(short)]


def describe(provenance: Sequence[dict[str, Any]], details: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The audited model for run.json; of several, the list of them under one name."""
    full = [{**one, "scoring": detail} for one, detail in zip(provenance, details, strict=True)]
    if len(full) == 1:
        return full[0]
    return {
        "name": ", ".join(one["name"] for one in full),
        "revision": None,
        "sha256": fingerprint([one["sha256"] for one in full]),
        "models": full,
    }


def provenance_of(model: Any) -> dict[str, Any]:
    """Name, pinned revision and content hash of a checkpoint; the spec of a model in memory."""
    if isinstance(model, (str, os.PathLike)):
        from tdd.models import source

        place = source.resolve(model)
        return {"name": str(model), "revision": place.revision, "sha256": source.fingerprint(place.folder)}
    if not (isinstance(model, tuple) and len(model) == 3 and isinstance(model[0], LanguageModel)):
        raise InputError(f"model must be a path, a hub id or (lm, params, tokenizer), got {type(model).__name__}")
    return {"name": "model in memory", "revision": None, "sha256": model_fingerprint(model[0].spec, model[1])}
