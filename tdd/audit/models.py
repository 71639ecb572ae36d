"""The models of a call: loaded, and identified for records."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tdd.models.checkpoint import load
from tdd.records import LanguageModel
from tdd.runs.folder import fingerprint
from tdd.scoring.devices import Devices, parameters_too_large
from tdd.scoring.inputs import Deferred, Model
from tdd.scoring.store.address import fingerprint as model_fingerprint
from tdd.validate import InputError, is_memory_error


def find_model(name: str, model: Any, params: Any, tokenizer: Any, dtype: Any, where: Devices) -> Model:
    """Load the model that an argument `name` means: a path or hub id, a `LanguageModel`, the triple (lm, params,
    tokenizer), or a `Model`, taken as it is.

    A LanguageModel needs `params` and `tokenizer`; beside a path, `tokenizer` replaces the checkpoint's own. `dtype`
    None leaves parameters as stored. A checkpoint whose parameters the devices divide is loaded into the shards.

    Raises:
      InputError: none of these forms, a LanguageModel without its parts, or parameters that exceed the memory.
    """
    if isinstance(model, (str, os.PathLike)):
        try:
            with jax.default_device(where.home):
                lm, loaded, stored = load(model, dtype=dtype, mesh=where.mesh if where.shard_params else None)
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            if not is_memory_error(error):
                raise
            raise parameters_too_large(where.devices, sharded=where.shard_params) from error
        return Model(lm, loaded, stored if tokenizer is None else tokenizer, os.fspath(model))
    if isinstance(model, Model):
        return model
    if isinstance(model, tuple) and not isinstance(model, LanguageModel):
        if len(model) != 3:
            raise InputError(f"{name} is a tuple of {len(model)}; it must be the triple (lm, params, tokenizer)")
        model, params, tokenizer = model
    if not isinstance(model, LanguageModel):
        raise InputError(
            f"{name} is {type(model).__name__}; pass the folder or hub id of a checkpoint, a LanguageModel, or the "
            "triple (lm, params, tokenizer)"
        )
    for part, value in (("params", params), ("tokenizer", tokenizer)):
        if value is None:
            raise InputError(
                f"{name} is a LanguageModel without {part}; pass {part}=..., or the triple (lm, params, tokenizer), "
                "or the path of a checkpoint"
            )
    if dtype is not None:
        params = jax.tree.map(
            lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, params
        )
    return Model(model, params, tokenizer, str(getattr(model.spec, "name", type(model.spec).__name__)))


def find_references(reference: Any, dtype: Any, where: Devices) -> dict[str, Model]:
    """The reference models, as in `find_model`, under the names "reference", "reference 2", ...

    Of several checkpoints one at a time is in memory.

    Raises:
      InputError: as `find_model`; an empty list.
    """
    if reference is None:
        return {}
    given = reference if isinstance(reference, list) else [reference]
    if not given:
        raise InputError("reference is an empty list; give at least one model, or leave it out")
    found: dict[str, Model] = {}
    for number, one in enumerate(given, start=1):

        def load_again(one: Any = one) -> Any:
            return find_model("reference", one, None, None, dtype, where).params

        model = find_model("reference", one, None, None, dtype, where)
        if len(given) > 1 and isinstance(one, (str, os.PathLike)):
            model = model._replace(params=Deferred(load_again))
        found["reference" if number == 1 else f"reference {number}"] = model
    return found


def check_references(reference: Any, audited: Any = None) -> None:
    """Refuse a checkpoint that is given twice: among the references, or as audited model and as its reference.

    Checkpoints are the same if their files are: those of equal names and sizes are compared by SHA-256, which is
    remembered for the record of the run. Models in memory are not compared.

    Raises:
      InputError: the same checkpoint twice, by its name or by its files; a checkpoint that cannot be found.
    """
    from tdd.models import source

    given = [audited, *(reference if isinstance(reference, list) else [reference])]
    names = [os.fspath(one) if isinstance(one, (str, os.PathLike)) else "" for one in given]
    if twice := [name for name in names[1:] if name and names[1:].count(name) > 1]:
        raise InputError(f"reference names {twice[0]!r} more than once; remove the repetition")
    found = {number: source.resolve(name) for number, name in enumerate(names) if name}
    sizes = {
        number: tuple((name, (place.folder / name).stat().st_size) for name in place.files)
        for number, place in found.items()
    }
    first: dict[str, int] = {}
    for number, place in found.items():
        if list(sizes.values()).count(sizes[number]) == 1:
            continue
        earlier = first.setdefault(source.fingerprint(place.folder), number)
        if earlier == number:
            continue
        if earlier == 0:
            raise InputError(
                f"reference {names[number]!r} is the audited model, {names[0]!r}, to the bit; give a model that was "
                "not trained on the texts"
            )
        raise InputError(
            f"references {earlier} ({names[earlier]!r}) and {number} ({names[number]!r}) are the same to the bit; keep "
            "one of them"
        )


def list_of_models(model: Any, *, several: bool) -> list[Any]:
    """One model, or the list of models that a joint procedure takes."""
    if not isinstance(model, list):
        return [model]
    if not model:
        raise InputError("model is an empty list; give at least one checkpoint")
    if len(model) > 1 and not several:
        raise InputError(f'{len(model)} models were given; only the methods "jmcs" and "jecs" decide on several')
    return model


def provenance_of(model: Any) -> dict[str, Any]:
    """Name, pinned revision and content hash of a checkpoint; the spec of a model in memory."""
    if isinstance(model, (str, os.PathLike)):
        from tdd.models import source

        place = source.resolve(model)
        found = {"name": str(model), "revision": place.revision, "sha256": source.fingerprint(place.folder)}
        return {**found, **_beside(place.folder)}
    if isinstance(model, tuple) and len(model) == 3 and not isinstance(model[0], LanguageModel):
        from tdd.models.vision import VisionLanguageModel

        if isinstance(model, VisionLanguageModel):
            sha256 = model_fingerprint(model.spec, model.params)
            return {"name": "model in memory", "revision": None, "sha256": sha256}
    if not (isinstance(model, tuple) and len(model) == 3 and isinstance(model[0], LanguageModel)):
        raise InputError(f"model must be a path, a hub id or (lm, params, tokenizer), got {type(model).__name__}")
    return {"name": "model in memory", "revision": None, "sha256": model_fingerprint(model[0].spec, model[1])}


def _beside(folder: pathlib.Path) -> dict[str, Any]:
    """What else a record says of a checkpoint: an adapter that is merged, keys of config.json that nothing reads,
    tensors that are left out."""
    from tdd.models.configuration import read_config
    from tdd.models.families import FAMILIES, MULTIMODAL, unread_keys
    from tdd.models.weights import has_adapter

    adapter, config = None, read_config(folder / "config.json")
    if has_adapter(folder):
        from tdd.models.lora import adapter_of

        adapter = adapter_of(folder)
    known = config.get("model_type") in (*FAMILIES, *MULTIMODAL)
    found = {"adapter": adapter, "unread_config_keys": unread_keys(config) if known else None}
    if config.get("model_type") in MULTIMODAL:
        from tdd.models.families.multimodal import left_out

        found["left_out"] = left_out(folder)
    return {name: value for name, value in found.items() if value}


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
