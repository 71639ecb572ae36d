"""What a user gives as a model → the model, loaded."""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp

from tdd.models.checkpoint import load
from tdd.records import LanguageModel
from tdd.scoring.devices import Devices, parameters_too_large
from tdd.scoring.inputs import Model
from tdd.validate import scoring as checks
from tdd.validate.errors import InputError

__all__ = ["find_model"]


def find_model(name: str, model: Any, params: Any, tokenizer: Any, dtype: Any, where: Devices) -> Model:
    """The model that an argument means.

    Args:
      name: the argument's name, for messages.
      model: a path or hub id, a `LanguageModel`, the triple (lm, params, tokenizer), or a `Model`, taken as it is.
      params: parameters of a LanguageModel.
      tokenizer: tokenizer of a LanguageModel; with a path, it replaces the checkpoint's own.
      dtype: of the parameters, None as stored.
      where: devices; a checkpoint whose parameters they share is loaded straight into the shares.
    """
    if isinstance(model, (str, os.PathLike)):
        try:
            with jax.default_device(where.home):
                lm, loaded, own = load(model, dtype=dtype, mesh=where.mesh if where.shard_params else None)
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            if not checks.is_memory_error(error):
                raise
            raise parameters_too_large(where.devices, sharded=where.shard_params) from error
        return Model(lm, loaded, own if tokenizer is None else tokenizer, os.fspath(model))
    if isinstance(model, Model):
        return model
    if isinstance(model, tuple) and not isinstance(model, LanguageModel):
        model, params, tokenizer = _check_triple(name, model)
    lm = _check_language_model(name, model)
    _check_model_parts(name, params, tokenizer)
    if dtype is not None:
        params = jax.tree.map(
            lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, params
        )
    return Model(lm, params, tokenizer, str(getattr(lm.spec, "name", type(lm.spec).__name__)))


def _check_language_model(name: str, model: Any) -> LanguageModel:
    """Something that can be scored."""
    if not isinstance(model, LanguageModel):
        raise InputError(
            f"{name} is {type(model).__name__}; pass the folder or hub id of a checkpoint, a LanguageModel, or the "
            "triple (lm, params, tokenizer)"
        )
    return model


def _check_triple(name: str, model: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """(lm, params, tokenizer), as `tdd.load` returns it."""
    if len(model) != 3:
        raise InputError(f"{name} is a tuple of {len(model)}; it must be the triple (lm, params, tokenizer)")
    return model


def _check_model_parts(name: str, params: Any, tokenizer: Any) -> None:
    """A LanguageModel comes with its parameters and its tokenizer."""
    for part, value in (("params", params), ("tokenizer", tokenizer)):
        if value is None:
            raise InputError(
                f"{name} is a LanguageModel without {part}; pass {part}=..., or the triple (lm, params, tokenizer), "
                "or the path of a checkpoint"
            )
