"""Checks of the laboratory's arguments: corpora, splits, training and its saved state."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from tdd.validate.errors import InputError

__all__ = [
    "check_adapted",
    "check_count",
    "check_fits_memory",
    "check_heads",
    "check_lab_run",
    "check_names",
    "check_not_finished",
    "check_out",
    "check_range",
    "check_same_run",
    "check_saveable",
    "check_split",
    "check_state_seal",
    "check_state_tensors",
    "check_texts",
    "check_token_ids",
    "check_token_rows",
]


def check_count(name: str, value: object, *, minimum: int) -> None:
    """`value` is a whole number of at least `minimum` that 32 bits hold."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < minimum:
        raise InputError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
    if int(value) >= 2**32:
        raise InputError(f"{name} must be a whole number below 2^32, got {value!r}")


def check_range(name: str, value: Any, low: float, high: float = math.inf) -> None:
    """`value` is a finite number of low..high."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not low <= float(value) <= high:
        bound = f"between {low:g} and {high:g}" if high < math.inf else f"of at least {low:g}"
        raise InputError(f"{name} must be a number {bound}, got {value!r}")
    if not math.isfinite(value):
        raise InputError(f"{name} must be finite, got {value!r}")


def check_names(name: str, value: object) -> tuple[str, ...]:
    """A non-empty sequence of different names."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise InputError(f"{name} must be a non-empty sequence of names, got {value!r}")
    for entry in value:
        if not isinstance(entry, str) or not entry:
            raise InputError(f"{name} must hold names, got {entry!r}")
        if value.count(entry) > 1:
            raise InputError(f"{name} holds {entry!r} twice; remove one")
    return tuple(value)


def check_adapted(leaves: Sequence[str], rank: int, found: Mapping[str, tuple[int, ...]], known: Sequence[str]) -> None:
    """Every name of LoRA's `leaves` is an operation with a matrix that the rank fits; `found` maps path to shape."""
    for name in leaves:
        if not any(path.rsplit("/", 1)[-1] == name for path in found):
            raise InputError(
                f"leaves names {name!r}, but the model has no such matrix; it has {', '.join(known) or 'none'}"
            )
    for path, shape in found.items():
        if rank > min(shape[-2:]):
            raise InputError(
                f"rank={rank} exceeds the smaller side of {path}, {shape[-2]} x {shape[-1]}; "
                f"choose at most {min(shape[-2:])}"
            )


def check_texts(name: str, texts: Sequence[Any]) -> None:
    """`texts` is a non-empty sequence of non-empty strings."""
    if isinstance(texts, (str, bytes)):
        raise InputError(f"{name} must be a sequence of texts, got a single {type(texts).__name__}")
    if len(texts) == 0:
        raise InputError(f"{name} is empty; give at least one text")
    for index, text in enumerate(texts):
        if not isinstance(text, str) or not text:
            raise InputError(f"{name}[{index}] must be a non-empty string, got {text!r}")


def check_token_rows(name: str, lengths: Sequence[int], max_length: int) -> None:
    """Every text has at least two tokens, so that there is something to predict."""
    if max_length < 2:
        raise InputError(f"max_length must be at least 2, got {max_length}")
    for index, length in enumerate(lengths):
        if length < 2:
            raise InputError(f"{name}[{index}] has {length} token(s); a text needs at least two, remove or lengthen it")


def check_token_ids(largest: int, vocab_size: int) -> None:
    """Every token id has a row in the model's embedding."""
    if largest >= vocab_size:
        raise InputError(
            f"tokenizer gives token id {largest}, but the model's vocabulary has {vocab_size} entries; "
            "use the tokenizer that the model was made for"
        )


def check_split(requested: int, available: int, parts: Mapping[str, int]) -> None:
    """The parts of a split fit into the texts that there are."""
    if requested > available:
        listed = " + ".join(f"{name}={count}" for name, count in parts.items())
        raise InputError(f"{listed} asks for {requested} texts, but texts holds {available}")


def check_saveable(spec: object, spec_type: type) -> None:
    """Only the project's own decoder can be written as a Hugging Face checkpoint."""
    if not isinstance(spec, spec_type):
        raise InputError(
            f"out needs a model whose spec is a {spec_type.__name__}, got {type(spec).__name__}; "
            "train without out and save the returned params yourself"
        )


def check_out(out: Any, is_file: bool) -> None:
    """`out` can be a folder."""
    if is_file:
        raise InputError(f"out={str(out)!r} is a file; name a folder")


def check_heads(width: int, heads: int) -> None:
    """Heads divide the width."""
    if width % heads:
        raise InputError(f"width={width} is no multiple of heads={heads}; choose heads that divide it")


def check_fits_memory(parameters: int, memory: int) -> None:
    """A model that is made from nothing fits this machine, in float32 and with nothing beside it."""
    if 4 * parameters > memory:
        raise InputError(
            f"[model] has {parameters:,} parameters, {4 * parameters / 1e9:,.0f} GB in float32, and this machine has "
            f"{memory / 1e9:,.0f} GB of memory; choose a smaller width, layers, max_length or vocab_size"
        )


def check_lab_run(out: Any, finished: bool) -> None:
    """A folder holds a finished run of a recipe."""
    if not finished:
        raise InputError(
            f"{str(out)!r} holds no finished laboratory run (no lab.json); `tdd lab train RECIPE.toml --out DIR` "
            "makes one, or finishes it"
        )


def check_not_finished(out: Any, finished: bool) -> None:
    """`out` holds no finished training run."""
    if finished:
        raise InputError(f"out={str(out)!r} holds a finished training run; load its checkpoint, or choose another out")


def check_same_run(out: Any, found: str, expected: str) -> None:
    """What lies in `out` was begun with the same model, texts and configuration."""
    if found != expected:
        raise InputError(
            f"out={str(out)!r} holds a training run of another model, other texts or another "
            "configuration; choose another folder or delete it"
        )


def check_state_seal(path: Any, seal: Any, found: str) -> None:
    """A saved training state is, to the bit, what was saved."""
    if seal != found:
        raise InputError(
            f"training state {str(path)!r} is damaged: it does not fit its SHA-256; delete the file to start anew"
        )


def check_state_tensors(path: Any, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """A saved training state has exactly the tensors that the run needs; both map names to (shape, dtype)."""
    for name in sorted(found.keys() ^ expected.keys()):
        where = "lacks" if name in expected else "has an unknown"
        raise InputError(f"training state {str(path)!r} {where} tensor {name!r}; delete the file to start anew")
    for name, wanted in expected.items():
        if found[name] != wanted:
            raise InputError(
                f"training state {str(path)!r}: tensor {name!r} is {found[name]}, expected {wanted}; "
                "delete the file to start anew"
            )
