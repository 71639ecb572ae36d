"""Checks of stored tensors and of parameters: their files, names, shapes and numbers."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tdd.validate.errors import InputError

__all__ = [
    "check_finite_tensors",
    "check_opened",
    "check_stored_once",
    "check_tensors",
    "check_weights_present",
]

_SHOWN = 5


def check_weights_present(folder: pathlib.Path, single: str, index: str) -> None:
    """There are safetensors files."""
    if (folder / single).is_file() or (folder / index).is_file():
        return
    pickled = sorted(path.name for path in folder.glob("*.bin")) + sorted(p.name for p in folder.glob("*.pt*"))
    if pickled:
        raise InputError(
            f"{folder} has weights only as {_listed(pickled)}, which can run code when read; convert them "
            "once with torch: AutoModelForCausalLM.from_pretrained(folder).save_pretrained(new_folder)"
        )
    raise InputError(f"no weights in {folder}: need {single}, or {index} with its shards")


def check_opened(path: pathlib.Path) -> Any:
    """The file, opened as safetensors."""
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, "numpy")
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"{path} is truncated or not a safetensors file ({path.stat().st_size} bytes; {error}); "
            "download or save it again"
        ) from error


def check_stored_once(known: Collection[str], new: Collection[str], path: pathlib.Path) -> None:
    """No tensor of one shard is in another one too: which of the two counts cannot be told."""
    twice = sorted(set(known) & set(new))
    if twice:
        raise InputError(f"{path} holds {_listed(twice)}, as another shard does; keep each tensor in one file")


def check_tensors(
    expected: Mapping[str, Sequence[int]],
    found: Mapping[str, Sequence[int]],
    where: str,
    *,
    advice: str,
    dtypes: Mapping[str, str] | None = None,
    supported: Sequence[str] = (),
) -> None:
    """Exactly the expected tensors are there, in their shapes and in a type that is read; all faults in one error.

    Args:
      expected: name -> shape.
      found: name -> shape.
      where: what holds them.
      advice: what a fault means, or how to mend it.
      dtypes: name -> type as stored, where types are to be checked.
      supported: the types that are read.
    """
    missing, extra = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    shared = sorted(expected.keys() & found.keys())
    reshaped = [
        f"{name} {list(found[name])} instead of {list(expected[name])}"
        for name in shared
        if tuple(found[name]) != tuple(expected[name])
    ]
    retyped = [f"{name} ({dtypes[name]})" for name in shared if dtypes and dtypes[name] not in supported]
    faults = []
    if missing:
        faults.append(f"lacks {len(missing)} of {len(expected)} tensors: {_listed(missing)}")
    if extra:
        faults.append(f"has {len(extra)} tensors that the architecture has not: {_listed(extra)}")
    if reshaped:
        faults.append(f"has {len(reshaped)} tensors of another shape: {_listed(reshaped)}")
    if retyped:
        faults.append(f"has {len(retyped)} tensors not stored as {', '.join(supported)}: {_listed(retyped)}")
    if faults:
        raise InputError(f"{where} {'; '.join(faults)}; {advice}")


def check_finite_tensors(names: Sequence[str], total: int, form: str, where: str) -> None:
    """No tensor was found to hold NaN or infinity in the form in which it is wanted."""
    if names:
        raise InputError(
            f"{where} has NaN or infinite numbers in {len(names)} of {total} tensors: {_listed(sorted(names))} "
            f"({form}); the file is damaged, the training went wrong, or a wider dtype is needed"
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(str, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
