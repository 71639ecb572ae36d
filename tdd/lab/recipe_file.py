"""Recipes as TOML files: read with every mistake named, written in full."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import tomllib
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from tdd.lab.config import TrainConfig
from tdd.lab.designs import DESIGNS, CanariesDesign, Design, FileSet
from tdd.lab.lora import Lora
from tdd.lab.recipe import Corpus, Model, Recipe, Tokenizer, Training
from tdd.runs.atomic import disk_errors
from tdd.validate import recipes as checks
from tdd.validate.errors import InputError

__all__ = ["load_recipe", "parse_recipe", "recipe_dict", "recipe_toml"]

_T = TypeVar("_T")

_SECTIONS = ("corpus", "tokenizer", "model", "plant", "training")


def load_recipe(path: str | os.PathLike[str]) -> Recipe:
    """Read a recipe.

    Args:
      path: a TOML file with `seed` and the sections corpus, tokenizer, model, plant and training; plant alone is
        needed. `tdd lab example DESIGN` prints one with every key.

    Raises:
      InputError: no such file, no TOML, an unknown or missing key, a value of another type or outside its range, a
        file that does not exist; the message names the file, the key's path, the value, and the nearest known key.
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
    """A recipe of nested dicts, as `tomllib` reads them.

    Args:
      given: section -> key -> value.
      file: how errors call it.
      folder: paths in the recipe are relative to it.
      source: the bytes that it was read from, if any.
      must_exist: whether the files that it names must be there.

    Raises:
      InputError: as `load_recipe`.
    """
    checks.check_known_keys(file, "", given, ("seed", *_SECTIONS))
    sections = {name: _check_section(file, name, given.get(name, {})) for name in _SECTIONS}
    checks.check_present(file, "", given, ("plant",))
    checks.check_one_of_two(file, "corpus", sections["corpus"], "file", ("generator",))
    checks.check_one_of_two(file, "model", sections["model"], "checkpoint", ("width", "layers", "heads", "max_length"))
    if "checkpoint" in sections["model"] and sections["tokenizer"]:
        raise InputError(f"{file}: model.checkpoint brings its tokenizer; remove the section [tokenizer]")
    parts: dict[str, Any] = {
        "seed": _check_typed(file, "seed", given.get("seed", 0), int),
        "corpus": _record(file, "corpus", sections["corpus"], Corpus),
        "tokenizer": _record(file, "tokenizer", sections["tokenizer"], Tokenizer),
        "model": _record(file, "model", sections["model"], Model),
        "plant": _design(file, sections["plant"]),
        "training": _training(file, sections["training"]),
    }
    recipe = checks.named(file, "", lambda: Recipe(**parts, folder=folder, source=source))
    for path, value in _places(recipe) if must_exist else ():
        _check_existing(file, path, recipe.place(value), value)
    return recipe


def recipe_dict(recipe: Recipe) -> dict[str, Any]:
    """A recipe as nested dicts with every key that it has, defaults included; `parse_recipe` reads them back."""
    model = dataclasses.asdict(recipe.model)
    made = {
        "seed": recipe.seed,
        "corpus": dataclasses.asdict(recipe.corpus),
        "tokenizer": dataclasses.asdict(recipe.tokenizer),
        "model": model,
        "plant": {"design": recipe.plant.design, **dataclasses.asdict(recipe.plant)},
        "training": {
            **{name: value for name, value in dataclasses.asdict(recipe.training.config).items() if name != "seed"},
            "evaluate": recipe.training.evaluate,
            "save_dtype": recipe.training.save_dtype,
            "lora": None if recipe.training.lora is None else dataclasses.asdict(recipe.training.lora),
        },
    }
    if recipe.model.checkpoint is not None:
        made["model"] = {"checkpoint": recipe.model.checkpoint}
        del made["tokenizer"]
    if recipe.corpus.file is not None:
        del made["corpus"]["generator"]
    return _without_none(made)


def recipe_toml(recipe: Recipe) -> str:
    """A recipe as TOML with every key, defaults included; `load_recipe` of it gives an equal recipe."""
    return "\n".join(_lines(recipe_dict(recipe), ())).lstrip("\n") + "\n"


def _record(file: str, where: str, given: Mapping[str, Any], kind: type[_T], *, skip: tuple[str, ...] = ()) -> _T:
    """A section as the dataclass that declares its keys, types and defaults."""
    hints = typing.get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if field.name not in skip]  # pyright: ignore[reportArgumentType]
    checks.check_known_keys(file, where, given, [field.name for field in fields])
    required = [
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    checks.check_present(file, where, given, required)
    values = {name: _check_typed(file, f"{where}.{name}", value, hints[name]) for name, value in given.items()}
    return checks.named(file, where, lambda: kind(**values))


def _design(file: str, given: Mapping[str, Any]) -> Design:
    """[plant]: which keys it has depends on its design; sets from files are sections of their own."""
    kind = DESIGNS[checks.check_key(file, "plant", given, "design", tuple(DESIGNS))]
    rest = {name: value for name, value in given.items() if name != "design"}
    if "sets" in rest and kind.design == "canaries":
        tables = _check_section(file, "plant.sets", rest["sets"])
        rest["sets"] = {
            name: _record(file, f"plant.sets.{name}", _check_section(file, f"plant.sets.{name}", table), FileSet)
            for name, table in tables.items()
        }
    return _record(file, "plant", rest, kind)


def _training(file: str, given: Mapping[str, Any]) -> Training:
    """[training] and [training.lora]."""
    own = ("evaluate", "save_dtype", "lora")
    config = [field.name for field in dataclasses.fields(TrainConfig) if field.name != "seed"]
    checks.check_known_keys(file, "training", given, [*config, *own])
    lora = None
    if "lora" in given:
        lora = _record(file, "training.lora", _check_section(file, "training.lora", given["lora"]), Lora)
    settings = {name: value for name, value in given.items() if name in config}
    made = _record(
        file, "training", {name: given[name] for name in own[:2] if name in given}, Training, skip=("config", "lora")
    )
    return dataclasses.replace(made, config=_record(file, "training", settings, TrainConfig, skip=("seed",)), lora=lora)


def _places(recipe: Recipe) -> list[tuple[str, str]]:
    """Every path that a recipe names, by its key."""
    found = [("corpus.file", recipe.corpus.file), ("model.checkpoint", recipe.model.checkpoint)]
    if isinstance(recipe.plant, CanariesDesign):
        found += [(f"plant.sets.{name}.file", each.file) for name, each in recipe.plant.sets.items()]
    return [(path, value) for path, value in found if value is not None]


def _without_none(value: Any) -> Any:
    """Nested dicts without the keys that are None, which TOML cannot say, and without empty sections."""
    if not isinstance(value, dict):
        return list(value) if isinstance(value, tuple) else value
    made = {key: _without_none(entry) for key, entry in value.items()}
    return {key: entry for key, entry in made.items() if entry is not None and entry != {}}


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """A table as lines of TOML: its own keys first, then its sections."""
    lines = [f"{_key(name)} = {_value(value)}" for name, value in table.items() if not isinstance(value, dict)]
    if path and lines:
        lines = ["", f"[{'.'.join(map(_key, path))}]", *lines]
    for name, value in table.items():
        if isinstance(value, dict):
            lines += _lines(value, (*path, name))
    return lines


def _key(name: str) -> str:
    plain = name and all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in name)
    return name if plain else _value(name)


def _value(value: Any) -> str:
    """A value of TOML; strings as in JSON, whose escapes are TOML's too."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_value(entry) for entry in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text in quotes",
    bool: "true or false",
}


def _check_section(file: str, name: str, value: object) -> Mapping[str, Any]:
    """A section is a table."""
    if not isinstance(value, Mapping):
        raise InputError(f"{file}: {name} = {value!r} must be a section; write [{name}] and its keys below it")
    return value


def _check_typed(file: str, path: str, value: Any, hint: Any) -> Any:
    """`value` as the type that a field declares; lists become tuples, whole numbers serve as numbers."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        if _fits(value, option):
            return tuple(value) if isinstance(value, list) else float(value) if option is float else value
    wanted = " or ".join(_words(option) for option in options if option is not types.NoneType)
    raise InputError(f"{file}: {path} must be {wanted}, got {value!r}")


def _check_existing(file: str, path: str, place: pathlib.Path, value: str) -> None:
    """A file or folder that a recipe names is there."""
    if not place.exists():
        raise InputError(
            f"{file}: {path} = {value!r}: there is no {str(place)!r}; paths are relative to the recipe's folder"
        )


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value of TOML has a declared type; true and false are no numbers."""
    if typing.get_origin(kind) is tuple:
        element = typing.get_args(kind)[0]
        return isinstance(value, (list, tuple)) and all(_fits(entry, element) for entry in value)
    if typing.get_origin(kind) is not None:  # a mapping
        return isinstance(value, Mapping)
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _words(kind: Any) -> str:
    if typing.get_origin(kind) is tuple:
        return f"a list, each entry {_WORDS[typing.get_args(kind)[0]]}"
    return _WORDS.get(kind, "a section")
