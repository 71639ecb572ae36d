"""One model or several: the list of an audit, their columns, and how records describe them."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

from tdd.runs.folder import fingerprint
from tdd.validate import InputError


def list_of_models(model: Any, *, several: bool) -> list[Any]:
    """One model, or the list of models that a joint procedure takes."""
    if not isinstance(model, list):
        return [model]
    if not model:
        raise InputError("model is an empty list; give at least one checkpoint")
    if len(model) > 1 and not several:
        raise InputError(f'{len(model)} models were given; only the methods "jmcs" and "jecs" decide on several')
    return model


def column_prefixes(provenance: Sequence[dict[str, Any]]) -> list[str]:
    """The prefix of each model's columns: none for one model, else its folder's name, numbered where not unique."""
    if len(provenance) == 1:
        return [""]
    short = [pathlib.PurePath(str(model["name"])).name or str(model["name"]) for model in provenance]
    return [f"{name}{'' if short.count(name) == 1 else f'#{number + 1}'}:" for number, name in enumerate(short)]


def describe(provenance: Sequence[dict[str, Any]], details: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The audited model for run.json; several models are listed under one name."""
    models = [{**model, "scoring": detail} for model, detail in zip(provenance, details, strict=True)]
    if len(models) == 1:
        return models[0]
    return {
        "name": ", ".join(model["name"] for model in models),
        "revision": None,
        "sha256": fingerprint([model["sha256"] for model in models]),
        "models": models,
    }
