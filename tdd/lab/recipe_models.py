"""The models of a recipe: where each begins, its training, and what it has learned of each part."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

from tdd.lab.recipe import Recipe
from tdd.lab.recipe_plan import Plan
from tdd.lab.state import CHECKPOINT_FOLDER, RECORD_FILE
from tdd.lab.truth import Row
from tdd.records import LanguageModel

__all__ = ["describe", "model_folder", "train_model"]


def model_folder(plan: Plan, model: int) -> pathlib.PurePath:
    """Where a model's files lie within the run's folder: in it where there is one, else in `model-1`, `model-2`, ..."""
    return pathlib.PurePath("." if len(plan.training) == 1 else f"model-{model}")


def train_model(
    recipe: Recipe,
    plan: Plan,
    model: int,
    folder: pathlib.Path,
    *,
    progress: bool,
    on_step: Callable[[int, int, Any], None] | None,
) -> None:
    """Train a model of the run, unless it is trained already; an interrupted training goes on."""
    from tdd.lab.train import train

    place = folder / model_folder(plan, model)
    if (place / RECORD_FILE).exists():
        return
    lm, params, tokenizer = _start(recipe, plan, model)
    evaluated = recipe.training.evaluate and plan.held_out
    train(
        lm,
        params,
        tokenizer,
        plan.training[model - 1],
        config=_config(recipe, model),
        lora=recipe.training.lora,
        out=place,
        eval_texts=plan.held_out if evaluated else None,
        save_dtype=recipe.training.save_dtype,
        on_step=None if on_step is None else functools.partial(on_step, model),
        progress=progress,
    )


def describe(recipe: Recipe, plan: Plan, model: int, folder: pathlib.Path) -> Row:
    """A trained model: its files, its history, and its loss on each part, as its checkpoint gives it."""
    from tdd.lab.train import evaluation_loss
    from tdd.models.checkpoint import load

    name = model_folder(plan, model)
    record = json.loads((folder / name / RECORD_FILE).read_text("utf-8"))
    lm, params, tokenizer = load(folder / name / CHECKPOINT_FOLDER)
    parts = [
        {
            "model": model,
            "part": part.name,
            "copies": part.copies,
            "num_texts": len(part.texts),
            "loss": evaluation_loss(lm, params, tokenizer, part.texts, config=recipe.training.config),
        }
        for part in plan.parts[model - 1]
    ]
    weights = sorted((folder / name / CHECKPOINT_FOLDER).glob("*.safetensors"))
    return {
        "checkpoint": (name / CHECKPOINT_FOLDER).as_posix(),
        "sha256": {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in weights},
        "seeds": {"params": recipe.seed_of(f"model-{model}/params"), "training": _config(recipe, model).seed},
        "num_documents": len(plan.training[model - 1]),
        "steps": record["steps"],
        "history": record["history"],
        "parts": parts,
    }


def _config(recipe: Recipe, model: int) -> Any:
    return dataclasses.replace(recipe.training.config, seed=recipe.seed_of(f"model-{model}/training"))


def _start(recipe: Recipe, plan: Plan, model: int) -> tuple[LanguageModel, Any, Any]:
    """(lm, params, tokenizer) before training: the checkpoint's, or random ones of the model's own seed."""
    import jax

    from tdd.models.checkpoint import load
    from tdd.models.decoder import init_params
    from tdd.models.language_model import language_model
    from tdd.models.spec import DecoderSpec

    sizes = recipe.model
    if sizes.checkpoint is not None:
        return load(recipe.place(sizes.checkpoint))
    spec = DecoderSpec.gpt2(
        vocab_size=recipe.tokenizer.vocab_size,
        width=sizes.width,
        num_layers=sizes.layers,
        num_heads=sizes.heads,
        max_length=sizes.max_length,
    )
    params = init_params(spec, jax.random.key(recipe.seed_of(f"model-{model}/params")))
    return language_model(spec), params, _tokenizer(plan.tokenizer_texts, recipe.tokenizer.vocab_size)


@functools.lru_cache(maxsize=1)
def _tokenizer(texts: tuple[str, ...], vocab_size: int) -> Any:
    from tdd.lab.tokenizer import train_tokenizer

    return train_tokenizer(texts, vocab_size=vocab_size)
