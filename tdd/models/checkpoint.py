"""Load and save checkpoints in Hugging Face's format.

The configuration is read through `AutoConfig` and the tokenizer through `AutoTokenizer`, both without code
from the checkpoint; the weights are this project's own business. What is saved, torch's `from_pretrained`
reads back bit for bit, and so does `load`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import Mesh
from jax.tree_util import tree_flatten_with_path

from tdd.models.configuration import (
    check_layer_counts,
    check_tokenizer_present,
    check_vocabulary,
    log_tokens_without_row,
    quantisation_of,
    read_spec,
    read_tokenizer,
)
from tdd.models.families import family_of_spec
from tdd.models.families.family import Family
from tdd.models.families.tensors import STACKS, Slot, slots
from tdd.models.language_model import language_model
from tdd.models.source import resolve
from tdd.models.spec import DecoderSpec
from tdd.models.weights import (
    READ_AS,
    StoredTensors,
    check_finite_tensors,
    check_tensors,
    has_adapter,
    has_infinite,
    write_tensors,
)
from tdd.placement import Placement
from tdd.records import LanguageModel
from tdd.runs.atomic import sync
from tdd.validate import InputError
from tdd.validate.files import check_positive
from tdd.validate.settings import on_own_devices

_logger = logging.getLogger("tdd")

_FLOATS = ("float32", "bfloat16", "float16")
_UNSAID = (
    "has quantised weights, and none that its config.json describes: copy what quantize_config.json (GPTQ) or "
    "quant_config.json (AWQ) says there as quantization_config, with quant_method"
)


@on_own_devices()
def load(
    path: str | os.PathLike[str], *, dtype: Any = None, revision: str | None = None, mesh: Mesh | None = None
) -> tuple[LanguageModel, dict[str, Any], Any]:
    """Read a checkpoint.

    Args:
      path: A folder in Hugging Face's format, or a hub id. Quantised weights are dequantised (`tdd.models.quantised`),
        and a LoRA adapter of peft beside the weights is merged into them (`tdd.models.lora`). Or a GGUF file
        (`tdd.models.gguf`), or a folder with one and no other weights; its quantised tensors become float32.
      dtype: "float32", "bfloat16" or "float16" (or the dtype itself) for all parameters; None keeps them
        as stored, in the widest type of those in which one parameter is stored, or as float32 where any is quantised.
      revision: Branch, tag or commit of a hub id.
      mesh: A mesh of one axis (`AxisType.Auto`) over which every parameter is sharded, so that a model larger
        than the memory of one device loads; None places all on the default device. It may span the processes that
        `jax.distributed` connects: each then reads little more of the files than its devices hold.

    Returns:
      (lm, params, tokenizer): the model, its parameters as a nested dict of arrays, and transformers' tokenizer.

    Raises:
      InputError: Anything about the checkpoint that would make its numbers wrong or its files unreadable.

    Cost: Reads every weight once. Host memory holds one stored tensor at a time, and one layer of the parameter that
    it is a part of.
    """
    target = as_dtype(dtype)
    placement = Placement(mesh, target)
    place = resolve(path, revision=revision).path
    with _opened(place) as (stored, family, spec, tokenizer):
        where = str(place)
        if target is None and not place.is_file() and quantisation_of(place) is not None:
            placement = Placement(mesh, np.dtype(np.float32))
        log_tokens_without_row(tokenizer.get_vocab(), spec.vocab_size, where)
        matched = _match(stored, family, spec, where)
        params = read_slots(stored, slots(spec, family.names), matched, placement, where)
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
      folder: Target; it must not exist, or be empty.
      lm: A model made by this package (`load`, or `language_model` of a spec).
      params: Its parameters.
      tokenizer: A transformers tokenizer to write beside the weights; without one, `load` refuses the folder.
      dtype: "float32", "bfloat16" or "float16" for the written weights; None keeps each as it is.
      max_shard_bytes: Weights beyond this size are split into several files with an index.

    Raises:
      InputError: The target holds files, the model is not a decoder of this package, the parameters do not fit
        it, they hold NaN or infinity in the type to be written, or the tokenizer has more ids than the model's
        vocabulary.
    """
    target = as_dtype(dtype)
    place = pathlib.Path(folder).expanduser()
    check_positive(max_shard_bytes=max_shard_bytes)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError(f"{place} already holds files; save into a new folder, or remove it first")
    spec = lm.spec
    if not isinstance(spec, DecoderSpec):
        raise InputError(f"lm.spec must be a DecoderSpec, got {type(spec).__name__}")
    family, config = family_of_spec(spec)
    parameters = slots(spec, family.names)
    leaves = _leaves(params, parameters)
    written = target or jnp.result_type(*{leaf.dtype for leaf in leaves.values()})
    config["dtype"] = written.name
    if tokenizer is not None:
        check_vocabulary(tokenizer.get_vocab(), spec.vocab_size, str(place))
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        config[name] = getattr(tokenizer, name, None)

    place.parent.mkdir(parents=True, exist_ok=True)
    partial = pathlib.Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        infinite: list[str] = []
        tensors = _named_tensors(leaves, parameters, written, infinite)
        total = write_tensors(partial, tensors, max_shard_bytes=max_shard_bytes)
        check_finite_tensors(infinite, total, f"to be stored as {written.name}", "params")
        (partial / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        if tokenizer is not None:
            tokenizer.save_pretrained(partial)
        _publish(partial, place)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def read_slots(
    stored: StoredTensors,
    parameters: tuple[Slot, ...],
    name_in_file: Mapping[str, str],
    placement: Placement,
    where: str,
) -> dict[str, Any]:
    """Parameters as a nested dict of arrays; `name_in_file` maps the slots' names of tensors to those in the files.

    Raises:
      InputError: NaN or infinity in the type in which the parameters are wanted.
    """
    types = {name: READ_AS[stored.dtype(in_file)] for name, in_file in name_in_file.items()}
    infinite: list[str] = []

    def read(name: str, index: tuple[slice, ...] | None = None) -> np.ndarray:
        tensor = stored.read(name_in_file[name]) if index is None else stored.cut(name_in_file[name], index)
        if tensor.dtype == np.float64:
            tensor = _narrowed(tensor)
        if has_infinite(tensor, placement.dtype or types[name]):
            infinite.append(name)
        return tensor

    params: dict[str, Any] = {}
    for slot in parameters:
        dtype = jnp.result_type(*{types[name] for name, _ in slot.stored()})
        read_layer = functools.partial(slot.sliced if placement.spans else slot.read, dtype=dtype, read=read)
        if slot.layers:
            leaf = placement.stacked(len(slot.layers), slot.shape, dtype, read_layer)
        else:
            leaf = placement.single(slot.shape, dtype, functools.partial(read_layer, 0))
        *parents, last = slot.path
        functools.reduce(lambda tree, name: tree.setdefault(name, {}), parents, params)[last] = leaf
    stored_as = ", ".join(sorted({kind.name for kind in types.values()}))
    check_finite_tensors(
        [*dict.fromkeys(infinite)], len(name_in_file), f"read as {placement.dtype or stored_as}", where
    )
    return params


def _narrowed(tensor: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # numbers too large for the type are reported as infinite
        return tensor.astype(np.float32)


def check_files(place: pathlib.Path) -> None:
    """Check that a folder or GGUF file has the tensors of its architecture, by names, shapes and types alone.

    Raises:
      InputError: As `load`, but for the values of the weights.
    """
    with _opened(place) as (stored, family, spec, _):
        _match(stored, family, spec, str(place))


@contextlib.contextmanager
def _opened(place: pathlib.Path) -> Iterator[tuple[StoredTensors, Family, DecoderSpec, Any]]:
    """The tensors, the family with its names of them, the spec and the tokenizer of a folder or of a GGUF file."""
    if place.is_file():
        from tdd.models.gguf import GgufFile

        file = GgufFile(place)
        with file.tensors() as stored:
            yield (stored, *file.spec(), file.tokenizer())
        return
    if has_adapter(place):
        from tdd.models.lora import check_whole

        check_whole(place)
    check_tokenizer_present(place)
    with StoredTensors(place) as stored:
        check_layer_counts(place / "config.json", len(stored.names()))
        if (quantisation := quantisation_of(place)) is not None:
            from tdd.models.quantised import Dequantised

            stored = Dequantised(stored, quantisation, str(place))
        if has_adapter(place):
            from tdd.models.lora import adapted

            stored = adapted(place, stored)
        family, spec = read_spec(place)
        yield stored, _as_stored(family, stored.names()), spec, read_tokenizer(place)


def _as_stored(family: Family, names: frozenset[str]) -> Family:
    """The family with the names of these files: its own, or those where the experts of a layer are one tensor."""
    if family.names.experts_inputs_first or not any(name.endswith(STACKS["experts_out"]) for name in names):
        return family
    return dataclasses.replace(family, names=dataclasses.replace(family.names, **STACKS))


def _match(stored: StoredTensors, family: Family, spec: DecoderSpec, where: str) -> dict[str, str]:
    """Find every tensor of an architecture in the files: name in the family's spelling -> name in the files.

    Files of a bare model omit a prefix, some use other names, some hold buffers that are not parameters, and some
    files of tied models hold the embedding twice, the second time as the head, or as the head alone.
    """
    expected = {name: shape for slot in slots(spec, family.names) for name, shape in slot.stored()}
    buffers = {name.format(layer=layer) for name in family.buffers for layer in range(spec.num_layers)}
    own = family.own_names(stored.names())
    name_in_file = _in_family_spelling(frozenset(own), family, expected.keys() | buffers)
    name_in_file = {name: own[in_file] for name, in_file in name_in_file.items() if name not in buffers}
    _log_left_out(where, len(stored.names()) - len(own))
    copy, original = f"{family.names.head}.weight", f"{family.names.base}{family.names.tokens}.weight"
    copy_in_file = name_in_file.pop(copy, None) if spec.tied_head else None
    if copy_in_file is not None and original not in name_in_file:  # the one that safetensors' save_model keeps
        name_in_file[original], copy_in_file = copy_in_file, None
    idle = [name for name in name_in_file.keys() - expected.keys() if stored.is_idle(name_in_file[name])]
    name_in_file = {name: in_file for name, in_file in name_in_file.items() if name not in idle}
    if not stored.parts() and any(name.endswith(".qweight") for name in name_in_file):
        raise InputError(f"{where} {_UNSAID}")
    check_tensors(
        expected,
        {name: stored.shape(in_file) for name, in_file in name_in_file.items()},
        where,
        advice="its weights and its configuration do not belong together",
        dtypes={name: stored.dtype(in_file) for name, in_file in name_in_file.items()},
        parts=stored.parts(),
    )
    if copy_in_file is not None and not stored.equal(copy_in_file, name_in_file[original]):
        raise InputError(
            f"{where} ties the readout to the embedding (tie_word_embeddings), but {copy} differs from {original}; set "
            f"tie_word_embeddings to false, or remove {copy}"
        )
    return name_in_file


def _log_left_out(where: str, count: int) -> None:
    if count:
        _logger.warning("%s: only the text decoder is read; %d tensors that no text meets are left out", where, count)


def _in_family_spelling(names: frozenset[str], family: Family, known: set[str]) -> dict[str, str]:
    prefix = family.bare_prefix or family.names.base
    bare = not any(name.startswith(prefix) for name in names)
    name_in_file: dict[str, str] = {}
    for name in sorted(names):
        spelled = prefix + name if bare and prefix + name in known else family.aliases.get(name, name)
        # if a file has both spellings, the second stays as it is and is reported as too many
        name_in_file[name if spelled in names and spelled != name else spelled] = name
    return name_in_file


def _leaves(params: Any, parameters: tuple[Slot, ...]) -> dict[tuple[str, ...], Any]:
    """Path -> leaf, after checking that `params` are exactly the parameters of the slots."""
    leaves = {tuple(str(entry.key) for entry in path): leaf for path, leaf in tree_flatten_with_path(params)[0]}
    check_tensors(
        {"/".join(slot.path): slot.whole_shape for slot in parameters},
        {"/".join(path): leaf.shape for path, leaf in leaves.items()},
        "params",
        advice="give the parameters that belong to lm",
    )
    return leaves


def _named_tensors(
    leaves: dict[tuple[str, ...], Any],
    parameters: tuple[Slot, ...],
    dtype: np.dtype,
    infinite: list[str],
) -> Iterator[tuple[str, np.ndarray]]:
    """Stored tensors by name, those with NaN or infinity noted; one layer of a parameter is on the host at a time."""
    for slot in parameters:
        leaf = leaves[slot.path]
        for layer in range(len(slot.layers) or 1):
            parameter = np.asarray(leaf[layer] if slot.layers else leaf)
            with np.errstate(over="ignore"):  # numbers too large for the type are noted instead
                parameter = parameter.astype(dtype, copy=False)
            for name, tensor in slot.write(layer, parameter):
                if has_infinite(tensor, dtype):
                    infinite.append(name)
                yield name, tensor


def _publish(partial: pathlib.Path, place: pathlib.Path) -> None:
    """Flush every file to the disk, then rename the folder to its final name."""
    for path in (*partial.rglob("*"), partial):
        sync(path)
    partial.chmod(0o755)
    partial.rename(place)


def as_dtype(dtype: Any) -> np.dtype | None:
    """The parameters' dtype by its name; None stays None."""
    if dtype is None:
        return None
    try:
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype) if isinstance(dtype, str) else dtype)
    except TypeError:
        kind = None
    if kind is None or kind.name not in _FLOATS:
        raise InputError(f"dtype={dtype!r} is not supported; supported: {', '.join(_FLOATS)}, or None")
    return kind
