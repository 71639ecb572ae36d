"""Carrying out a recipe: from one TOML file to checkpoints, the texts to be audited, and the ground truth."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from tdd.lab.recipe import Recipe
from tdd.lab.recipe_file import load_recipe, parse_recipe, recipe_dict, recipe_toml
from tdd.lab.recipe_models import describe, train_model
from tdd.lab.recipe_plan import Plan, make_plan
from tdd.lab.truth import Row, csv_bytes
from tdd.runs.atomic import disk_errors, write_atomically
from tdd.runs.folder import to_json, versions
from tdd.validate.checkpoints import reading
from tdd.validate.errors import InputError
from tdd.validate.json_text import parse_json
from tdd.validate.lab import check_out

__all__ = ["LabRun", "load_lab_run", "run_recipe"]

_RECIPE, _FULL, _TRUTH, _SUMMARY = "recipe.toml", "recipe.full.toml", "truth.csv", "lab.json"
_COUNTS = ("label", "copies", "num_examples")


@dataclasses.dataclass(frozen=True)
class LabRun:
    """A finished run.

    Attributes:
      folder: where it lies.
      recipe: what was carried out.
      truth: rows of the ground truth, `truth.csv`; counts and labels as numbers.
      checkpoints: one folder a model, in Hugging Face's format.
      audited: name -> file of texts to be audited: candidates, calibration, known_members, or a set's name.
      parts: rows of model, part, copies, num_texts, loss: mean loss in nats a token after training.
      summary: all of `lab.json`.
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
    """Plant, train and write everything down.

    The folder holds `recipe.toml` (byte for byte as given), `recipe.full.toml` (every key), `truth.csv`, the texts to
    be audited (`candidates.jsonl`, `calibration.jsonl`, `known_members.jsonl`, `canaries/SET.jsonl`), for each model
    `checkpoint/` and `training.json` (within `model-1/`, `model-2/`, ... where the design has several), and, last,
    `lab.json` (recipe, seeds, hashes, versions, losses of the parts). Interrupted, the same call goes on where it
    stopped; on one machine and one set of versions it leaves the same bytes as an uninterrupted one. Called again when
    finished, it returns the run.

    Args:
      recipe: a recipe, or the path of its TOML file.
      out: the run's folder.
      progress: whether to show a progress bar on standard error.
      on_step: called after each step as `on_step(model, step, params)`, models counted from 1.

    Raises:
      InputError: a mistake in the recipe (`load_recipe`), a model beyond this machine's memory, unusable texts, or an
        `out` that holds another run.

    Cost: that of training (`tdd.lab.train.train`), and one pass over the parts for their losses.
    """
    recipe = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    folder = pathlib.Path(out).expanduser()
    check_out(folder, folder.exists() and not folder.is_dir())
    if recipe.model.checkpoint is None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        _check_fits_memory(recipe.model.parameters(recipe.tokenizer.vocab_size), memory)
    plan = make_plan(recipe)
    _keep_recipe(folder, recipe)  # after the plan: a recipe that makes none leaves the folder free for a better one
    files = _files(plan)
    for name, content in files.items():
        _keep(folder / name, content)
    if not (folder / _SUMMARY).exists():
        models = []
        for model in range(1, len(plan.training) + 1):
            train_model(recipe, plan, model, folder, progress=progress, on_step=on_step)
            models.append(describe(recipe, plan, model, folder))
        write_atomically(folder / _SUMMARY, to_json(_summary(recipe, plan, files, models)).encode())
    return load_lab_run(folder)


def load_lab_run(folder: str | os.PathLike[str]) -> LabRun:
    """A finished run of `run_recipe`, read from its folder.

    Raises:
      InputError: the folder holds no finished run, or a damaged one.
    """
    place = pathlib.Path(folder).expanduser()
    _check_lab_run(folder, (place / _SUMMARY).is_file())
    with reading(place, "a whole laboratory run; remove the folder and run the recipe again"):
        return _load(place)


def _load(place: pathlib.Path) -> LabRun:
    summary = parse_json((place / _SUMMARY).read_text("utf-8"))
    with open(place / _TRUTH, newline="", encoding="utf-8") as file:
        rows = tuple({key: _typed(key, value) for key, value in row.items()} for row in csv.DictReader(file))
    return LabRun(
        folder=place,
        recipe=parse_recipe(summary["recipe"], file=str(place / _SUMMARY), must_exist=False),
        truth=rows,
        checkpoints=tuple(place / model["checkpoint"] for model in summary["models"]),
        audited={pathlib.PurePath(name).stem: place / name for name in summary["audited"]},
        parts=tuple(part for model in summary["models"] for part in model["parts"]),
        summary=summary,
    )


def _keep_recipe(folder: pathlib.Path, recipe: Recipe) -> None:
    """Write the recipe; or see that the one in the folder says the same."""
    place, full = folder / _RECIPE, recipe_toml(recipe).encode()
    if (folder / _FULL).exists():
        _check_same_recipe(folder, (folder / _FULL).read_bytes() == full)
        return
    _check_same_recipe(folder, not place.exists() or place.read_bytes() == (recipe.source or full))
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_atomically(place, recipe.source or full)
    write_atomically(folder / _FULL, full)


def _files(plan: Plan) -> dict[str, bytes]:
    """What is written before training, by its path within the folder."""
    made = {_TRUTH: csv_bytes(plan.truth)}
    for name, rows in plan.audited.items():
        made[name] = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    return made


def _keep(path: pathlib.Path, content: bytes) -> None:
    """Write a file, or see that what is there is the same."""
    if path.exists():
        _check_same_file(path, path.read_bytes() == content)
        return
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)


def _summary(recipe: Recipe, plan: Plan, files: Mapping[str, bytes], models: list[Row]) -> dict[str, Any]:
    """`lab.json`. No times: the same run leaves the same bytes."""
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
    """Counts and labels as numbers; identifiers and names stay texts."""
    return int(value) if column in _COUNTS or column.startswith("model-") else value


def _check_fits_memory(parameters: int, memory: int) -> None:
    """A model that is made from nothing fits this machine, in float32 and with nothing beside it."""
    if 4 * parameters > memory:
        raise InputError(
            f"[model] has {parameters:,} parameters, {4 * parameters / 1e9:,.0f} GB in float32, and this machine has "
            f"{memory / 1e9:,.0f} GB of memory; choose a smaller width, layers, max_length or vocab_size"
        )


def _check_lab_run(out: Any, finished: bool) -> None:
    """A folder holds a finished run of a recipe."""
    if not finished:
        raise InputError(
            f"{str(out)!r} holds no finished laboratory run (no lab.json); `tdd lab train RECIPE.toml --out DIR` "
            "makes one, or finishes it"
        )


def _check_same_recipe(out: Any, same: bool) -> None:
    """What lies in `out` was begun with this recipe."""
    if not same:
        raise InputError(
            f"out={str(out)!r} holds the run of another recipe (its recipe.toml differs); choose another folder or "
            "delete it"
        )


def _check_same_file(path: Any, same: bool) -> None:
    """A file that an earlier call wrote is what this call would write."""
    if not same:
        raise InputError(
            f"{str(path)!r} differs from what this recipe makes now: a file that the recipe names, or a version, has "
            "changed since; choose another folder or delete this one"
        )
