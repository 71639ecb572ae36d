"""Recipes as TOML files: read with every mistake named, written in full."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import tomli_w

from tdd.lab.lora import Lora
from tdd.lab.recipe import DESIGNS, CanariesDesign, Corpus, FileSet, Model, Recipe, Tokenizer, Training
from tdd.runs.atomic import disk_errors
from tdd.validate import InputError
from tdd.validate.options import suggestion

_T = TypeVar("_T")
_SECTIONS = ("corpus", "tokenizer", "model", "plant", "training")
_ERROR = re.compile(r"(?P<reason>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<key>.*)`")


def load_recipe(path: str | os.PathLike[str]) -> Recipe:
    """Read a recipe.

    Args:
      path: TOML file with `seed` and the sections corpus, tokenizer, model, plant and training; only plant is
        required. `tdd lab example DESIGN` prints one with every key.

    Raises:
      InputError: No such file, invalid TOML, an unknown or missing key, a value of another type or outside its range,
        a file that does not exist; the message names the file, the key's path, the value, and the nearest known key.
    """
    place = pathlib.Path(path).expanduser()
    if not place.is_file():
        raise InputError(f"there is no recipe {str(path)!r}; `tdd lab example canaries > recipe.toml` writes one")
    with disk_errors(place):
        source = place.read_bytes()
    try:
        given = tomllib.loads(source.decode())
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"{path} is not valid TOML: {reason}") from error
    return parse_recipe(given, file=str(path), folder=place.parent, source=source)


def parse_recipe(
    given: Mapping[str, Any],
    *,
    file: str = "recipe",
    folder: pathlib.Path = pathlib.Path(),
    source: bytes = b"",
    must_exist: bool = True,
) -> Recipe:
    """Make a recipe from nested dicts, as `tomllib` reads them.

    Args:
      given: Section -> key -> value.
      file: Name of the recipe in error messages.
      folder: Paths in the recipe are relative to it.
      source: The bytes that it was read from, if any.
      must_exist: Whether the files that it names must exist.

    Raises:
      InputError: As in `load_recipe`.
    """
    _check_keys(file, "", given, ("seed", *_SECTIONS))
    tables = {name: _check_section(file, name, given.get(name, {})) for name in _SECTIONS}
    _check_exclusive(file, "corpus", tables["corpus"], "file", ("generator",))
    _check_exclusive(file, "corpus", tables["corpus"], "template", ("text_field",))
    _check_exclusive(file, "model", tables["model"], "checkpoint", ("width", "layers", "heads", "max_length"))
    if "checkpoint" in tables["model"] and tables["tokenizer"]:
        raise InputError(f"{file}: model.checkpoint brings its tokenizer; remove the section [tokenizer]")
    if "plant" not in given:
        raise InputError(f"{file}: plant is missing; it has no default")
    if "lora" in tables["training"]:
        _record(file, "training.lora", tables["training"]["lora"], Lora)  # whose unknown keys msgspec ignores
    sections = {
        "corpus": _record(file, "corpus", tables["corpus"], Corpus),
        "tokenizer": _record(file, "tokenizer", tables["tokenizer"], Tokenizer),
        "model": _record(file, "model", tables["model"], Model),
        "plant": _design(file, tables["plant"]),
        "training": _record(file, "training", tables["training"], Training),
    }
    try:
        recipe = Recipe(seed=given.get("seed", 0), **sections, folder=folder, source=source)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    if must_exist:
        _check_files(file, recipe)
    return recipe


def recipe_dict(recipe: Recipe) -> dict[str, Any]:
    """A recipe as nested dicts with every key, defaults included; `parse_recipe` reads them back."""
    sections = {name: dataclasses.asdict(getattr(recipe, name)) for name in _SECTIONS}
    sections["plant"] = {"design": recipe.plant.design, **sections["plant"]}
    del sections["training"]["seed"]
    if recipe.model.checkpoint is not None:
        sections["model"] = {"checkpoint": recipe.model.checkpoint}
        del sections["tokenizer"]
    if recipe.corpus.file is not None:
        del sections["corpus"]["generator"]
    for given in (sections["corpus"], *sections["plant"].get("sets", {}).values()):
        if given["template"] is not None:
            del given["text_field"]
    return _without_none({"seed": recipe.seed, **sections})


def recipe_toml(recipe: Recipe) -> str:
    """A recipe as TOML with every key, defaults included; `load_recipe` of it gives an equal recipe."""
    return tomli_w.dumps(recipe_dict(recipe))


def _design(file: str, table: Mapping[str, Any]) -> Any:
    """[plant]: its keys depend on its design; sets from files are sections of their own."""
    if "design" not in table:
        raise InputError(f"{file}: plant.design is missing; it has no default")
    name = table["design"]
    if not isinstance(name, str) or name not in DESIGNS:
        near = suggestion(str(name), DESIGNS)
        raise InputError(f"{file}: plant.design = {name!r} is unknown; {near}choose one of {', '.join(DESIGNS)}")
    kind = DESIGNS[name]
    if kind is CanariesDesign:
        for set_name, given in _check_section(file, "plant.sets", table.get("sets", {})).items():
            _record(file, f"plant.sets.{set_name}", given, FileSet)  # whose errors name the set
            _check_exclusive(file, f"plant.sets.{set_name}", given, "template", ("text_field",))
    return _record(file, "plant", {key: value for key, value in table.items() if key != "design"}, kind)


def _record(file: str, section: str, table: Any, kind: type[_T]) -> _T:
    """Convert a section to the dataclass that declares its keys, types and defaults."""
    known = [field.name for field in dataclasses.fields(kind) if field.init]  # pyright: ignore[reportArgumentType]
    _check_keys(file, section, _check_section(file, section, table), known)
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{file}: {_explained(section, table, error)}") from error


def _explained(section: str, table: Any, error: msgspec.ValidationError) -> str:
    """An error of msgspec, which says "REASON - at `$.key[0]`", with the key's path and value."""
    if isinstance(error.__cause__, InputError):
        return f"[{section}] {error.__cause__}"
    reason, path = _ERROR.fullmatch(str(error)).groups()  # pyright: ignore[reportOptionalMemberAccess]
    missing = _MISSING.fullmatch(reason)
    if missing:
        return f"{section}.{missing['key']} is missing; it has no default"
    value = table
    for step in re.findall(r"\w+", path):
        value = value[int(step) if isinstance(value, list) else step]
    return f"{section}.{path} = {value!r} has another type: {reason.lower()}"


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dicts without the keys that are None, which TOML cannot express, and without empty sections."""
    kept = {key: _without_none(value) if isinstance(value, dict) else value for key, value in table.items()}
    return {key: value for key, value in kept.items() if value is not None and value != {}}


def _check_section(file: str, section: str, value: object) -> Mapping[str, Any]:
    """A section is a table."""
    if not isinstance(value, Mapping):
        raise InputError(f"{file}: {section} = {value!r} must be a section; write [{section}] and its keys below it")
    return value


def _check_keys(file: str, section: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    """No key is unknown; the nearest known one is suggested."""
    for key, value in table.items():
        if key not in known:
            path = f"{section}.{key}" if section else key
            near = suggestion(key, known)
            raise InputError(f"{file}: {path} = {value!r} is unknown; {near}known: {', '.join(known)}")


def _check_exclusive(file: str, section: str, table: Mapping[str, Any], key: str, others: Sequence[str]) -> None:
    """`key` excludes `others`."""
    for other in others:
        if key in table and other in table:
            raise InputError(f"{file}: {section}.{key} and {section}.{other} exclude each other; remove one")


def _check_files(file: str, recipe: Recipe) -> None:
    """The files and folders that a recipe names exist."""
    paths = {"corpus.file": recipe.corpus.file, "model.checkpoint": recipe.model.checkpoint}
    if isinstance(recipe.plant, CanariesDesign):
        paths |= {f"plant.sets.{name}.file": given.file for name, given in recipe.plant.sets.items()}
    for key, path in paths.items():
        if path is not None and not recipe.place(path).exists():
            raise InputError(
                f"{file}: {key} = {path!r}: there is no {str(recipe.place(path))!r}; paths are relative to the "
                "recipe's folder"
            )
