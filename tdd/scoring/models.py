"""The models of a call: loaded, and identified for records."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tdd.models.checkpoint import as_dtype, load
from tdd.records import LanguageModel
from tdd.scoring.devices import Devices, parameters_too_large
from tdd.scoring.inputs import Deferred, Model
from tdd.scoring.scores.score import Score, as_models
from tdd.scoring.store.address import fingerprint as model_fingerprint
from tdd.validate import InputError, is_memory_error
from tdd.validate.arrays import check_params


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
        return Model(lm, loaded, stored if tokenizer is None else tokenizer, os.fspath(model), stored_as(model))
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
    check_params(params, "tdd.token_stats")
    if (target := as_dtype(dtype)) is not None:
        params = jax.tree.map(
            # a Python number has the type of what it meets
            lambda leaf: leaf.astype(target) if jnp.issubdtype(getattr(leaf, "dtype", int), jnp.floating) else leaf,
            params,
        )
    return Model(model, params, tokenizer, str(getattr(model.spec, "name", type(model.spec).__name__)))


def find_reference(given: Any, dtype: Any, where: Devices, *, deferred: bool) -> Model:
    """A reference model, as in `find_model`; `deferred`: a checkpoint is loaded when it is needed, and not kept.

    Raises:
      InputError: as `find_model`.
    """

    def load_again() -> Any:
        return find_model("reference", given, None, None, dtype, where).params

    model = find_model("reference", given, None, None, dtype, where)
    if not deferred or not isinstance(given, (str, os.PathLike)):
        return model
    return model._replace(params=Deferred(load_again, model.num_parameters()))


def check_references(references: Sequence[Any], audited: Any = None) -> None:
    """Refuse a checkpoint that is given twice: among the references, or as audited model and as its reference.

    Checkpoints are the same if their files are: those of equal names and sizes are compared by SHA-256, which is
    remembered for the record of the run. Models in memory are not compared.

    Raises:
      InputError: the same checkpoint twice, by its name or by its files; a checkpoint that cannot be found.
    """
    from tdd.models import source

    given = [audited, *references]
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
        earlier = first.setdefault(source.fingerprint(place.path), number)
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


def provenance_of(model: Any) -> dict[str, Any]:
    """Name, pinned revision and content hash of a checkpoint; hashes of a model in memory and of its tokenizer."""
    if isinstance(model, (str, os.PathLike)):
        from tdd.models import source

        place = source.resolve(model)
        found = {"name": str(model), "revision": place.revision, "sha256": source.fingerprint(place.path)}
        return {**found, **_beside(place.path)}
    if isinstance(model, tuple) and len(model) == 3 and not isinstance(model[0], LanguageModel):
        from tdd.models.vision import VisionLanguageModel

        triple: Any = model if isinstance(model, VisionLanguageModel) else None
    else:
        triple = (model[0].spec, *model[1:]) if isinstance(model, tuple) and len(model) == 3 else None
    if triple is None:
        raise InputError(f"model must be a path, a hub id or (lm, params, tokenizer), got {type(model).__name__}")
    sha256, tokenizer = model_fingerprint(triple[0], triple[1]), _tokenizer_hash(triple[2])
    return {"name": "model in memory", "revision": None, "sha256": sha256, "tokenizer": tokenizer}


def _tokenizer_hash(tokenizer: Any) -> str | None:
    """Hash of what a tokenizer does: of a fast one its tokenizer.json without the cuts and padding of the last call;
    None of one whose content cannot be read."""
    if hasattr(backend := getattr(tokenizer, "backend_tokenizer", tokenizer), "to_str"):
        content = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
    else:
        from tdd.runs.described import described

        try:
            content = described(tokenizer)
        except InputError:
            return None
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def identity_of_given(scores: Mapping[str, Score]) -> dict[str, dict[str, Any]]:
    """Column -> field -> what identifies the texts and the models that a score was given, and "code" -> class and
    options of a user's score; a column without any is left out. The texts have been read."""
    known: dict[int, dict[str, Any]] = {}  # a model in memory is hashed once

    def of(model: Any) -> dict[str, Any]:
        if id(model) not in known:
            known[id(model)] = provenance_of(model)
        return known[id(model)]

    found: dict[str, dict[str, Any]] = {}
    for column, score in scores.items():
        if not type(score).__module__.startswith("tdd."):
            from tdd.runs.described import described

            found[column] = {"code": described([type(score), score.parameters])}
        for field, given in score.given.items():
            if given is not None:
                texts = hasattr(given, "sha256")
                found.setdefault(column, {})[field] = given.sha256 if texts else [of(one) for one in as_models(given)]
    return found


def _beside(folder: pathlib.Path) -> dict[str, Any]:
    """What else a record says of a checkpoint: how weights are stored, an adapter that is merged, keys of config.json
    that nothing reads, tensors that are left out."""
    if "gguf_types" in (stored := stored_as(folder)):
        return dict(stored)
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
    return {**stored, **{name: value for name, value in found.items() if value}}


def stored_as(model: str | os.PathLike[str]) -> Mapping[str, Any]:
    """How a checkpoint stores its weights, where they are not plain numbers: of a GGUF file the number of tensors of
    each type, of quantised weights the method and what became of them."""
    from tdd.models.configuration import quantisation_record
    from tdd.models.source import gguf_file, resolve_config

    if (file := gguf_file(model)) is not None:
        from tdd.models.gguf import GgufFile

        return {"gguf_types": dict(GgufFile(file).types)}
    found = quantisation_record(resolve_config(model))
    return {} if found is None else {"quantisation": found}
