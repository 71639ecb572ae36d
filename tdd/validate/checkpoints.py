"""Checks of checkpoint folders, architectures and token arrays."""

from __future__ import annotations

import contextlib
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from tdd.validate.errors import InputError
from tdd.validate.json_text import parse_json

__all__ = [
    "check_attention",
    "check_callable",
    "check_choice",
    "check_config",
    "check_config_keys",
    "check_divides",
    "check_dtype",
    "check_even",
    "check_instance",
    "check_logits_shape",
    "check_mapped",
    "check_model_type",
    "check_positive",
    "check_regular",
    "check_source",
    "check_spec",
    "check_tokenizer_present",
    "check_tokens",
    "check_vocabulary",
    "check_writable",
    "hub_failure",
    "panics",
    "reading",
]

_T = TypeVar("_T")
_SHOWN = 5


# Plain values.


def check_positive(**values: float) -> None:
    """Every named number is above zero, and finite."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise InputError(f"{name} must be a positive number, got {value!r}")


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """`value` is one of `choices`."""
    if value not in choices:
        raise InputError(f"{name}={value!r} is not supported; supported: {', '.join(map(str, choices))}")


def check_mapped(name: str, value: Any, choices: Mapping[str, Any]) -> None:
    """`value` is a key of `choices`."""
    check_choice(name, value, tuple(choices))


def check_instance(name: str, value: Any, kind: type[_T]) -> _T:
    """`value` is of the given type."""
    if not isinstance(value, kind):
        raise InputError(f"{name} must be a {kind.__name__}, got {type(value).__name__}")
    return value


def check_callable(name: str, value: Any) -> None:
    """`value` can be called and hashed."""
    if not callable(value):
        raise InputError(f"{name} must be a function, got {value!r}")
    try:
        hash(value)
    except TypeError as error:
        raise InputError(f"{name} must be hashable, {type(value).__name__} is not; pass a function") from error


def check_dtype(dtype: Any, choices: Sequence[str]) -> np.dtype:
    """`dtype` names one of the parameter dtypes."""
    try:
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype) if isinstance(dtype, str) else dtype)
    except TypeError:
        kind = None
    if kind is None or kind.name not in choices:
        raise InputError(f"dtype={dtype!r} is not supported; supported: {', '.join(choices)}, or None")
    return kind


# Architectures and what is fed to them.


def check_spec(
    *,
    num_layers: int,
    scales: Sequence[float],
    windows: Sequence[int | None],
    head_dim: int,
    rotated: int,
    soft_cap: float | None,
) -> None:
    """One attention scale and one window a layer; no more rotated coordinates than a head has."""
    for name, found in (("scales", scales), ("windows", windows)):
        if len(found) != num_layers:
            raise InputError(f"{name} must hold one number a layer ({num_layers}), got {len(found)}")
    if rotated > head_dim:
        raise InputError(f"dim={rotated} coordinates cannot turn in a head of width {head_dim}; use at most that")
    if soft_cap is not None:
        check_positive(soft_cap=soft_cap)


def check_attention(num_heads: int, num_kv_heads: int, windows: Sequence[int | None], soft_cap: float | None) -> None:
    """Heads in equal groups, windows of at least one position."""
    check_divides(num_kv_heads=num_kv_heads, num_heads=num_heads)
    for window in windows:
        if window is not None:
            check_positive(window=window)
    if soft_cap is not None:
        check_positive(soft_cap=soft_cap)


def check_even(**values: int) -> None:
    """Every named number is even."""
    for name, value in values.items():
        if value % 2:
            raise InputError(f"{name} must be even, got {value!r}")


def check_divides(**sizes: int) -> None:
    """The first named size divides the second."""
    (part_name, part), (whole_name, whole) = sizes.items()
    check_positive(**sizes)
    if whole % part:
        raise InputError(f"{whole_name}={whole} must be a multiple of {part_name}={part}")


def check_tokens(shape: Sequence[int], dtype: Any, max_length: int | None) -> None:
    """Token ids are integers [B, T] with T within the model's positions."""
    if len(shape) != 2 or not np.issubdtype(dtype, np.integer) or shape[1] == 0:
        raise InputError(f"tokens must be an integer array [B, T], T >= 1; got {dtype} {tuple(shape)}")
    if max_length is not None and shape[1] > max_length:
        raise InputError(
            f"tokens have length {shape[1]}, but the model accepts at most {max_length}; "
            "truncate the texts or score them in windows"
        )


def check_one_row(shape: Sequence[int]) -> None:
    """A prefix is one row of token ids, [1, P]."""
    if shape[0] != 1:
        raise InputError(
            f"tokens of a prefix must be one row [1, P], got {tuple(shape)}; rows that differ share nothing"
        )


def check_num_real(num_real: Any, length: int) -> None:
    """How many tokens of a padded prefix are real."""
    if np.shape(num_real) != () or not np.issubdtype(np.asarray(num_real).dtype, np.integer):
        raise InputError(f"num_real must be one integer, got {num_real!r}")
    if not 1 <= int(num_real) <= length:
        raise InputError(f"num_real must be in 1..{length}, the tokens given, got {int(num_real)}")


def check_after_prefix(num_before: int, length: int, max_length: int) -> None:
    """Prefix and tokens together fit the model's positions."""
    if num_before + length > max_length:
        raise InputError(
            f"a prefix of {num_before} tokens and {length} tokens after it make {num_before + length}, but the model "
            f"accepts at most {max_length}; share a shorter prefix or score in windows"
        )


def check_logits_shape(name: str, shape: Sequence[int], expected: Sequence[int]) -> None:
    """An adapted function returned [B, T, V]."""
    if tuple(shape) != tuple(expected):
        raise InputError(f"the logits of {name!r} have shape {tuple(shape)}, expected [B, T, V] = {tuple(expected)}")


# Where a checkpoint lies.


def check_source(text: str, folder: pathlib.Path, *, is_hub_id: bool, revision: str | None) -> bool:
    """Whether `text` names an existing folder (True) or can only be a hub id (False)."""
    if not text:
        raise InputError("the model's name is empty; give a folder, or a hub id such as 'gpt2' or 'owner/name'")
    if folder.is_dir():
        if revision is not None:
            raise InputError(f"revision={revision!r} is for hub ids, but {text!r} is a folder; leave it out")
        return True
    if folder.exists():
        raise InputError(f"{text!r} is a file; give the folder that holds config.json and the weights")
    if not is_hub_id:
        raise InputError(f"no model folder at {text!r}, and it is not a hub id such as 'gpt2' or 'owner/name'")
    return False


def check_regular(folder: pathlib.Path, names: Sequence[str]) -> None:
    """The files of a checkpoint are files: one would wait for ever for the writer of a pipe."""
    for name in names:
        if not (folder / name).is_file():
            raise InputError(f"{folder / name} is no file (a folder, a pipe or a link to nothing); download it again")


def hub_failure(repository: str, revision: str | None, offline: bool, error: Exception) -> InputError:
    """The message for a repository that could not be had."""
    wanted = repository if revision is None else f"{repository} at revision {revision!r}"
    if offline:
        return InputError(
            f"{wanted} is neither a folder here nor in the Hugging Face cache, and HF_HUB_OFFLINE is set; "
            "download it once without that setting, or give a folder"
        )
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return InputError(f"{wanted} is not a folder here and the Hugging Face hub did not deliver it: {reason}")


@contextlib.contextmanager
def reading(path: pathlib.Path, wanted: str) -> Iterator[None]:
    """Turn whatever a foreign reader raises into an InputError that names the file."""
    try:
        with panics(f"{path} does not hold {wanted}"):
            yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path} does not hold {wanted}: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def panics(message: str) -> Iterator[None]:
    """Turn a panic of a library in Rust, which is no `Exception`, into an InputError."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise InputError(f"{message}: {error}; mend or replace tokenizer.json") from error


# config.json and the tokenizer.


def check_config(path: pathlib.Path) -> dict[str, Any]:
    """The contents of config.json."""
    if not path.is_file():
        raise InputError(f"no config.json in {path.parent}; a model folder needs config.json, weights, tokenizer")
    return _json_object(path)


def check_model_type(model_type: Any, supported: Sequence[str], where: str) -> None:
    """The architecture is one that is implemented."""
    if model_type not in supported:
        named = "no model_type" if model_type is None else f"model_type {model_type!r}, which is not supported"
        raise InputError(f"{where} has {named}; supported architectures: {', '.join(supported)}")


def check_config_keys(
    config: Mapping[str, Any], *, known: frozenset[str], required: Mapping[str, tuple[Any, ...]], where: str
) -> None:
    """Every key is known, and those that must have one value have it."""
    for key, allowed in required.items():
        if key in config and config[key] not in allowed:
            raise InputError(
                f"{where} has {key}={config[key]!r}, which changes the computation and is not supported; "
                f"supported: {' or '.join(map(repr, allowed))}"
            )
    unknown = sorted(config.keys() - known - required.keys())
    if unknown:
        raise InputError(
            f"{where} has unknown keys {_listed(unknown)}: whether they change the computation cannot "
            "be told; remove them if they do not"
        )


def check_tokenizer_present(folder: pathlib.Path) -> None:
    """Some tokenizer is there."""
    sets = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"))
    if not any(all((folder / name).is_file() for name in names) for names in sets):
        raise InputError(
            f"no tokenizer in {folder}: need tokenizer.json, tokenizer.model, or vocab.json with merges.txt; "
            "save the tokenizer that the model was trained with into the folder"
        )


def check_vocabulary(vocabulary: Mapping[str, int], vocab_size: int, where: str) -> None:
    """Every id of the tokenizer has a row in the model."""
    if not vocabulary:
        raise InputError(f"the tokenizer of {where} has an empty vocabulary")
    token_of = {number: token for token, number in vocabulary.items()}
    for token, number in vocabulary.items():
        if token_of[number] != token:
            raise InputError(
                f"the tokenizer of {where} has id {number} twice, for {token!r} and {token_of[number]!r}: which of the "
                "two a row of the model stands for cannot be told; save the tokenizer of the model again"
            )
    token, largest = max(vocabulary.items(), key=lambda entry: entry[1])
    if largest >= vocab_size:
        raise InputError(
            f"the tokenizer of {where} has id {largest} (token {token!r}), but the model's vocabulary has "
            f"{vocab_size} rows: tokenizer and model do not belong together"
        )


# The target of a save.


def check_writable(folder: pathlib.Path) -> None:
    """The target of a save does not exist, or is an empty folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} already holds files; save into a new folder, or remove it first")


def _json_object(path: pathlib.Path) -> dict[str, Any]:
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a JSON object, got {type(content).__name__}")
    return content


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(str, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
