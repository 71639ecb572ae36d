"""Load and save checkpoints in Hugging Face's format.

The configuration is read through `AutoConfig` and the tokenizer through `AutoTokenizer`, both without code
from the checkpoint; the weights are this project's own business. What is saved, torch's `from_pretrained`
reads back bit for bit, and so does `load`.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import Mesh
from jax.tree_util import tree_flatten_with_path

from tdd.models.configuration import read_spec, read_tokenizer
from tdd.models.families import family_of_spec
from tdd.models.families.record import Family, Slot
from tdd.models.families.tensors import slots
from tdd.models.language_model import language_model
from tdd.models.matching import match
from tdd.models.source import resolve
from tdd.models.spec import DecoderSpec
from tdd.models.weights import DTYPES, StoredTensors, write_tensors
from tdd.placement import Placement
from tdd.records import LanguageModel
from tdd.validate import checkpoints as checks
from tdd.validate.errors import InputError
from tdd.validate.weights import check_finite_tensors, check_tensors

__all__ = ["load", "save"]

_FLOATS = ("float32", "bfloat16", "float16")


def load(
    path: str | os.PathLike[str], *, dtype: Any = None, revision: str | None = None, mesh: Mesh | None = None
) -> tuple[LanguageModel, dict[str, Any], Any]:
    """Read a checkpoint.

    Args:
      path: a folder in Hugging Face's format, or a hub id.
      dtype: "float32", "bfloat16" or "float16" (or the dtype itself) for all parameters; None keeps them
        as stored, in the wider type where one parameter is stored in several.
      revision: branch, tag or commit of a hub id.
      mesh: a mesh of one axis (`AxisType.Auto`) over which every parameter is shared out, so that a model larger
        than one device's memory loads; None places all on the default device. It may span the processes that
        `jax.distributed` connects: each then reads little more of the files than its devices hold.

    Returns:
      (lm, params, tokenizer): the model, its parameters as a nested dict of arrays, and transformers' tokenizer.

    Raises:
      InputError: anything about the checkpoint that would make its numbers wrong or its files unreadable.

    Cost: reads every weight once; on the host, one stored tensor at a time, and one layer of the parameter that
    it is a part of.
    """
    target = None if dtype is None else _check_dtype(dtype, _FLOATS)
    placement = Placement(mesh, target)
    folder = resolve(path, revision=revision).folder
    _check_tokenizer_present(folder)
    with StoredTensors(folder) as stored:
        config = folder / "config.json"
        _check_layer_counts(checks.check_config(config), len(stored.names()), str(config))
        family, spec = read_spec(folder)
        tokenizer = read_tokenizer(folder, spec.vocab_size)
        params = _read_params(stored, family, spec, placement, str(folder))
    return language_model(spec), params, tokenizer


def save(
    folder: str | os.PathLike[str],
    lm: LanguageModel,
    params: Any,
    tokenizer: Any = None,
    *,
    dtype: Any = None,
    max_shard_bytes: int = 5 * 10**9,
) -> None:
    """Write a checkpoint that `load` and torch's `from_pretrained` read back.

    Everything is written into a hidden folder beside the target and renamed at the end: the target is
    complete or absent.

    Args:
      folder: where to write; it must not exist, or be empty.
      lm: a model made by this package (`load`, or `language_model` of a spec).
      params: its parameters.
      tokenizer: a transformers tokenizer to write beside the weights; without one, `load` refuses the folder.
      dtype: "float32", "bfloat16" or "float16" for the written weights; None keeps each as it is.
      max_shard_bytes: weights beyond this size are split into several files with an index.

    Raises:
      InputError: the target holds files, the model is not a decoder of this package, the parameters do not fit
        it, they hold NaN or infinity in the type to be written, or the tokenizer has more ids than the model's
        vocabulary.
    """
    target = None if dtype is None else _check_dtype(dtype, _FLOATS)
    place = pathlib.Path(folder).expanduser()
    checks.check_positive(max_shard_bytes=max_shard_bytes)
    _check_writable(place)
    spec = _check_instance("lm.spec", lm.spec, DecoderSpec)
    family, config = family_of_spec(spec)
    parameters = slots(spec, family.names)
    leaves = _leaves(params, parameters, spec)
    written = target or jnp.result_type(*{leaf.dtype for leaf in leaves.values()})
    config["dtype"] = written.name
    if tokenizer is not None:
        checks.check_vocabulary(tokenizer.get_vocab(), spec.vocab_size, str(place))
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        config[name] = getattr(tokenizer, name, None)

    place.parent.mkdir(parents=True, exist_ok=True)
    partial = pathlib.Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        infinite: list[str] = []
        tensors = _named_tensors(leaves, parameters, spec.num_layers, written, infinite)
        total = write_tensors(partial, tensors, max_shard_bytes=max_shard_bytes)
        check_finite_tensors(infinite, total, f"to be stored as {written.name}", "params")
        (partial / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        if tokenizer is not None:
            tokenizer.save_pretrained(partial)
        _publish(partial, place)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _read_params(
    stored: StoredTensors, family: Family, spec: DecoderSpec, placement: Placement, where: str
) -> dict[str, Any]:
    parameters = slots(spec, family.names)
    held = match(stored, family, spec, parameters, where)
    types = {name: DTYPES[stored.dtype(in_file)] for name, in_file in held.items()}
    infinite: list[str] = []

    def read(name: str, index: tuple[slice, ...] | None = None) -> np.ndarray:
        tensor = stored.read(held[name]) if index is None else stored.cut(held[name], index)
        if _has_infinite(tensor, placement.dtype or types[name]):
            infinite.append(name)
        return tensor

    params: dict[str, Any] = {}
    for slot in parameters:
        kept = jnp.result_type(*{types[name] for name, _ in slot.stored(spec.num_layers)})
        read_layer = functools.partial(slot.sliced if placement.spans else slot.read, dtype=kept, read=read)
        if slot.layered:
            leaf = placement.stacked(spec.num_layers, slot.shape, kept, read_layer)
        else:
            leaf = placement.single(slot.shape, kept, functools.partial(read_layer, 0))
        _insert(params, slot.path, leaf)
    stored_as = ", ".join(sorted({kind.name for kind in types.values()}))
    check_finite_tensors([*dict.fromkeys(infinite)], len(held), f"read as {placement.dtype or stored_as}", where)
    return params


def _insert(tree: dict[str, Any], path: tuple[str, ...], leaf: jax.Array) -> None:
    *parents, last = path
    for name in parents:
        tree = tree.setdefault(name, {})
    tree[last] = leaf


def _leaves(params: Any, parameters: tuple[Slot, ...], spec: DecoderSpec) -> dict[tuple[str, ...], Any]:
    """Path -> leaf, after checking that `params` are exactly the parameters of the slots."""
    found = {tuple(str(entry.key) for entry in path): leaf for path, leaf in tree_flatten_with_path(params)[0]}
    expected = {slot.path: ((spec.num_layers,) if slot.layered else ()) + slot.shape for slot in parameters}
    check_tensors(
        {"/".join(path): shape for path, shape in expected.items()},
        {"/".join(path): leaf.shape for path, leaf in found.items()},
        "params",
        advice="give the parameters that belong to lm",
    )
    return found


def _named_tensors(
    leaves: dict[tuple[str, ...], Any],
    parameters: tuple[Slot, ...],
    num_layers: int,
    dtype: np.dtype,
    infinite: list[str],
) -> Iterator[tuple[str, np.ndarray]]:
    """Stored tensors by name, those with NaN or infinity noted; one layer of a parameter is on the host at a time."""
    for slot in parameters:
        leaf = leaves[slot.path]
        for layer in range(num_layers if slot.layered else 1):
            parameter = np.asarray(leaf[layer] if slot.layered else leaf)
            with np.errstate(over="ignore"):  # numbers too large for the type are noted instead
                parameter = parameter.astype(dtype, copy=False)
            for name, tensor in slot.write(layer, parameter):
                if _has_infinite(tensor, dtype):
                    infinite.append(name)
                yield name, tensor


def _publish(partial: pathlib.Path, place: pathlib.Path) -> None:
    """Flush every file to the disk, then rename the folder to its final name."""
    for path in (*partial.rglob("*"), partial):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    partial.chmod(0o755)
    partial.rename(place)


_T = TypeVar("_T")


def _check_instance(name: str, value: Any, kind: type[_T]) -> _T:
    """`value` is of the given type."""
    if not isinstance(value, kind):
        raise InputError(f"{name} must be a {kind.__name__}, got {type(value).__name__}")
    return value


def _check_dtype(dtype: Any, choices: Sequence[str]) -> np.dtype:
    """`dtype` names one of the parameter dtypes."""
    try:
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype) if isinstance(dtype, str) else dtype)
    except TypeError:
        kind = None
    if kind is None or kind.name not in choices:
        raise InputError(f"dtype={dtype!r} is not supported; supported: {', '.join(choices)}, or None")
    return kind


def _check_tokenizer_present(folder: pathlib.Path) -> None:
    """Some tokenizer is there."""
    sets = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"))
    if not any(all((folder / name).is_file() for name in names) for names in sets):
        raise InputError(
            f"no tokenizer in {folder}: need tokenizer.json, tokenizer.model, or vocab.json with merges.txt; "
            "save the tokenizer that the model was trained with into the folder"
        )


def _check_writable(folder: pathlib.Path) -> None:
    """The target of a save does not exist, or is an empty folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} already holds files; save into a new folder, or remove it first")


_LAYER_COUNTS = ("n_layer", "num_layers", "num_hidden_layers", "attention_types")


def _check_layer_counts(config: Mapping[str, Any], num_tensors: int, where: str) -> None:
    """No more layers than there are tensors, before a list as long as the layers is made."""
    for key in _LAYER_COUNTS:
        for number in _numbers(config.get(key)):
            if number > num_tensors:
                raise InputError(
                    f"{where} has {key}={config[key]!r}, but the files beside it hold {num_tensors} tensors, fewer "
                    "than layers: they do not belong together"
                )


def _numbers(value: Any) -> Iterator[int | float]:
    """The numbers in nested lists."""
    if isinstance(value, list):
        for entry in value:
            yield from _numbers(entry)
    elif isinstance(value, (int, float)):
        yield value


_BLOCK = 1 << 20

_INFINITE = {"float32": (np.uint32, 0x7FFFFFFF, 0x7F800000), "float16": (np.uint16, 0x7FFF, 0x7C00)}
_INFINITE["bfloat16"] = (np.uint16, 0x7FFF, 0x7F80)


def _has_infinite(tensor: np.ndarray, dtype: np.dtype) -> bool:
    """Whether a float32, bfloat16 or float16 tensor holds NaN or infinity once it is of type `dtype`.

    Looks at the bits, a block at a time: no copy of the tensor is made.
    """
    unsigned, magnitude, limit = _INFINITE[dtype.name]
    flat = tensor.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        with np.errstate(over="ignore", invalid="ignore"):
            block = flat[start : start + _BLOCK].astype(dtype, copy=False)
        if ((block.view(unsigned) & magnitude) >= limit).any():
            return True
    return False
