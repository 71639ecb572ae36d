"""Running a recipe: from one TOML file to checkpoints, the texts to be audited, and the ground truth."""

from __future__ import annotations

import csv
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from tdd.lab.checks import check_out
from tdd.lab.plan import Plan, make_plan
from tdd.lab.plant import Row, csv_bytes, jsonl_bytes
from tdd.lab.recipe import Recipe
from tdd.lab.recipe_file import load_recipe, parse_recipe, recipe_dict, recipe_toml
from tdd.lab.state import CHECKPOINT_FOLDER, RECORD_FILE
from tdd.records import LanguageModel
from tdd.runs.atomic import disk_errors, read_regular, write_atomically
from tdd.runs.folder import to_json, versions
from tdd.validate import InputError
from tdd.validate.arrays import key_of_seed
from tdd.validate.files import parse_json, reading

_RECIPE, _FULL, _TRUTH, _SUMMARY = "recipe.toml", "recipe.full.toml", "truth.csv", "lab.json"
_COUNTS = ("label", "copies", "num_examples")


@dataclasses.dataclass(frozen=True)
class LabRun:
    """A finished run.

    Attributes:
      folder: The run's folder.
      recipe: The recipe.
      truth: Rows of the ground truth, `truth.csv`; counts and labels as numbers.
      checkpoints: One folder for each model, in Hugging Face's format.
      audited: Name -> file of texts to be audited: candidates, calibration, known_members, or a set's name.
      parts: Rows of model, part, copies, num_texts, loss: mean loss in nats per token after training.
      summary: The contents of `lab.json`.
    """

    folder: pathlib.Path
    recipe: Recipe
    truth: tuple[Row, ...]
    checkpoints: tuple[pathlib.Path, ...]
    audited: Mapping[str, pathlib.Path]
    parts: tuple[Row, ...]
    summary: Mapping[str, Any]


def run_recipe(
    recipe: Recipe | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    progress: bool = False,
    on_step: Callable[[int, int, Any], None] | None = None,
) -> LabRun:
    """Plant texts, train the models, and write down everything.

    The folder holds `recipe.toml` (byte for byte as given), `recipe.full.toml` (every key), `truth.csv`, the texts to
    be audited (`candidates.jsonl`, `calibration.jsonl`, `known_members.jsonl`, `canaries/SET.jsonl`), for each model
    `checkpoint/` and `training.json` (within `model-1/`, `model-2/`, ... if the design has several), and, last,
    `lab.json` (recipe, seeds, hashes, versions, losses of the parts). Interrupted, the same call continues where it
    stopped; on one machine and one set of versions it leaves the same bytes as an uninterrupted one. Called again when
    finished, it returns the run.

    Args:
      recipe: A recipe, or the path of its TOML file.
      out: The run's folder.
      progress: Whether to show a progress bar on standard error, if that is a terminal.
      on_step: Called after each step as `on_step(model, step, params)`, models counted from 1.

    Raises:
      InputError: A mistake in the recipe (`load_recipe`), a model beyond this machine's memory, unusable texts, or an
        `out` that holds another run.

    Cost: that of training (`tdd.lab.train.train`), and one pass over the parts for their losses.
    """
    recipe = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    folder = pathlib.Path(out).expanduser()
    check_out(folder)
    if recipe.model.checkpoint is None:
        _check_fits_memory(recipe.model.num_parameters(recipe.tokenizer.vocab_size))
    plan = make_plan(recipe)
    _write_recipe(folder, recipe)  # after the plan: a recipe that makes none leaves the folder free for a better one
    files = {_TRUTH: csv_bytes(plan.truth)} | {name: jsonl_bytes(rows) for name, rows in plan.audited.items()}
    for name, content in files.items():
        _write_or_compare(folder / name, content)
    if not (folder / _SUMMARY).exists():
        models = []
        for model in range(1, len(plan.training) + 1):
            _train_model(recipe, plan, model, folder, progress=progress, on_step=on_step)
            models.append(_describe_model(recipe, plan, model, folder))
        write_atomically(folder / _SUMMARY, to_json(_summary(recipe, plan, files, models)).encode())
    return load_lab_run(folder)


def load_lab_run(folder: str | os.PathLike[str]) -> LabRun:
    """Read a finished run of `run_recipe` from its folder.

    Raises:
      InputError: The folder holds no finished run, or a damaged one.
    """
    place = pathlib.Path(folder).expanduser()
    if not (place / _SUMMARY).is_file():
        raise InputError(
            f"{str(folder)!r} holds no finished laboratory run (no lab.json); `tdd lab train RECIPE.toml --out DIR` "
            "makes one, or finishes it"
        )
    with reading(place, "a whole laboratory run; remove the folder and run the recipe again"):
        summary = parse_json(read_regular(place / _SUMMARY).decode())
        with open(place / _TRUTH, newline="", encoding="utf-8") as file:
            truth = tuple({key: _typed(key, value) for key, value in row.items()} for row in csv.DictReader(file))
        return LabRun(
            folder=place,
            recipe=parse_recipe(summary["recipe"], file=str(place / _SUMMARY), must_exist=False),
            truth=truth,
            checkpoints=tuple(place / model["checkpoint"] for model in summary["models"]),
            audited={pathlib.PurePath(name).stem: place / name for name in summary["audited"]},
            parts=tuple(part for model in summary["models"] for part in model["parts"]),
            summary=summary,
        )


def _train_model(
    recipe: Recipe,
    plan: Plan,
    model: int,
    folder: pathlib.Path,
    *,
    progress: bool,
    on_step: Callable[[int, int, Any], None] | None,
) -> None:
    """Train a model of the run, unless it is trained already; an interrupted training continues."""
    from tdd.lab.train import train

    place = folder / _model_folder(plan, model)
    if (place / RECORD_FILE).exists():
        return
    lm, params, tokenizer = _start(recipe, plan, model)
    train(
        lm,
        params,
        tokenizer,
        plan.training[model - 1],
        config=recipe.training.config(recipe.seed_of(f"model-{model}/training")),
        lora=recipe.training.lora,
        out=place,
        eval_texts=plan.held_out if recipe.training.evaluate and plan.held_out else None,
        save_dtype=recipe.training.save_dtype,
        on_step=None if on_step is None else functools.partial(on_step, model),
        progress=progress,
    )


def _describe_model(recipe: Recipe, plan: Plan, model: int, folder: pathlib.Path) -> Row:
    """A trained model: its files, its history, and the loss of its checkpoint on each part."""
    from tdd.lab.train import evaluation_loss
    from tdd.models.checkpoint import load

    name = _model_folder(plan, model)
    record = json.loads(read_regular(folder / name / RECORD_FILE))
    lm, params, tokenizer = load(folder / name / CHECKPOINT_FOLDER)
    parts = [
        {
            "model": model,
            "part": part.name,
            "copies": part.copies,
            "num_texts": len(part.texts),
            "loss": evaluation_loss(lm, params, tokenizer, part.texts, config=recipe.training),
        }
        for part in plan.parts[model - 1]
    ]
    weights = sorted((folder / name / CHECKPOINT_FOLDER).glob("*.safetensors"))
    return {
        "checkpoint": (name / CHECKPOINT_FOLDER).as_posix(),
        "sha256": {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in weights},
        "seeds": {part: recipe.seed_of(f"model-{model}/{part}") for part in ("params", "training")},
        "num_documents": len(plan.training[model - 1]),
        "steps": record["steps"],
        "history": record["history"],
        "parts": parts,
    }


def _model_folder(plan: Plan, model: int) -> pathlib.PurePath:
    """Location of a model's files within the run's folder: the folder itself, or `model-1`, `model-2`, ..."""
    return pathlib.PurePath("." if len(plan.training) == 1 else f"model-{model}")


def _start(recipe: Recipe, plan: Plan, model: int) -> tuple[LanguageModel, Any, Any]:
    """(lm, params, tokenizer) before training: the checkpoint's, or random ones of the model's own seed."""

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
    params = init_params(spec, key_of_seed(recipe.seed_of(f"model-{model}/params")))
    return language_model(spec), params, _tokenizer(plan.tokenizer_texts, recipe.tokenizer.vocab_size)


@functools.lru_cache(maxsize=1)
def _tokenizer(texts: tuple[str, ...], vocab_size: int) -> Any:
    from tdd.lab.tokens import train_tokenizer

    return train_tokenizer(texts, vocab_size=vocab_size)


def _write_recipe(folder: pathlib.Path, recipe: Recipe) -> None:
    """Write the recipe, or check that the one in the folder says the same."""
    place, full = folder / _RECIPE, recipe_toml(recipe).encode()
    if (folder / _FULL).exists():
        same = read_regular(folder / _FULL) == full
    else:
        same = not place.exists() or read_regular(place) == (recipe.source or full)
    if not same:
        raise InputError(
            f"out={str(folder)!r} holds the run of another recipe (its recipe.toml differs); choose another folder or "
            "delete it"
        )
    if (folder / _FULL).exists():
        return
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_atomically(place, recipe.source or full)
    write_atomically(folder / _FULL, full)


def _write_or_compare(path: pathlib.Path, content: bytes) -> None:
    """Write a file, or check that the one that exists is the same."""
    if not path.exists():
        with disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    elif read_regular(path) != content:
        raise InputError(
            f"{str(path)!r} differs from what this recipe makes now: a file that the recipe names, or a version, has "
            "changed since; choose another folder or delete this one"
        )


def _summary(recipe: Recipe, plan: Plan, files: Mapping[str, bytes], models: list[Row]) -> dict[str, Any]:
    """`lab.json`, without times: the same run leaves the same bytes."""
    return {
        "schema": 1,
        "kind": "lab",
        "seed": recipe.seed,
        "design": recipe.plant.design,
        "recipe": recipe_dict(recipe),
        "versions": versions(),
        "texts": dict(plan.hashes),
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        "audited": list(plan.audited),
        "models": models,
    }


def _typed(column: str, value: str) -> Any:
    """Counts and labels as numbers; identifiers and names remain strings."""
    return int(value) if column in _COUNTS or column.startswith("model-") else value


def _check_fits_memory(num_parameters: int) -> None:
    """A model with random weights fits into this machine's memory, in float32 and with nothing beside it."""
    needed, memory = 4 * num_parameters, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise InputError(
            f"[model] has {num_parameters:,} parameters, {needed / 1e9:,.0f} GB in float32, and this machine has "
            f"{memory / 1e9:,.0f} GB of memory; choose a smaller width, layers, max_length or vocab_size"
        )
