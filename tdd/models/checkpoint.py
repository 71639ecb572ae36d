"""Load and save checkpoints in Hugging Face's format.

The configuration is read through `AutoConfig` and the tokenizer through `AutoTokenizer`, both without code
from the checkpoint; the weights are this project's own business. What is saved, torch's `from_pretrained`
reads back bit for bit, and so does `load`.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.models.decoder import language_model
from tdd.models.families import Family, Slot, family_of_config, family_of_spec
from tdd.models.source import resolve
from tdd.models.spec import DecoderSpec
from tdd.models.weights import StoredTensors, write_tensors
from tdd.records import LanguageModel
from tdd.validate import checkpoints as checks

__all__ = ["load", "save"]

_FLOATS = ("float32", "bfloat16", "float16")


def load(
    path: str | os.PathLike[str], *, dtype: Any = None, revision: str | None = None
) -> tuple[LanguageModel, dict[str, Any], Any]:
    """Read a checkpoint.

    Args:
      path: a folder in Hugging Face's format, or a hub id.
      dtype: "float32", "bfloat16" or "float16" (or the dtype itself) for all parameters; None keeps them
      as stored. revision: branch, tag or commit of a hub id.

    Returns:
      (lm, params, tokenizer): the model, its parameters as a nested dict of arrays on the default device, and
      transformers' tokenizer.

    Raises:
      InputError: anything about the checkpoint that would make its numbers wrong or its files unreadable.

    Cost: reads every weight once; on the host, one parameter (all its layers) at a time.
    """
    target = None if dtype is None else checks.check_dtype(dtype, _FLOATS)
    folder = resolve(path, revision=revision).folder
    checks.check_tokenizer_present(folder)
    family, spec = _read_spec(folder)
    with StoredTensors(folder) as stored:
        stored_names = _match(stored, family, spec, folder)
        params: dict[str, Any] = {}
        for slot in family.slots(spec):
            _insert(params, slot.path, _read_slot(stored, slot, stored_names, target))
    return language_model(spec), params, _read_tokenizer(folder, spec.vocab_size)


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
      InputError: the target holds files, the model is not a decoder of this package, the parameters do not
        fit it, or the tokenizer has more ids than the model's vocabulary.
    """
    target = None if dtype is None else checks.check_dtype(dtype, _FLOATS)
    place = pathlib.Path(folder).expanduser()
    checks.check_positive(max_shard_bytes=max_shard_bytes)
    checks.check_writable(place)
    spec = checks.check_instance("lm.spec", lm.spec, DecoderSpec)
    family, config = family_of_spec(spec)
    leaves = _leaves(params, family.slots(spec), spec)
    written = target or jnp.result_type(*{leaf.dtype for leaf in leaves.values()})
    config["dtype"] = written.name
    if tokenizer is not None:
        checks.check_vocabulary(tokenizer.get_vocab(), spec.vocab_size, str(place))
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        config[name] = getattr(tokenizer, name, None)

    place.parent.mkdir(parents=True, exist_ok=True)
    partial = pathlib.Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        tensors = _named_tensors(leaves, family.slots(spec), written)
        write_tensors(partial, tensors, max_shard_bytes=max_shard_bytes)
        (partial / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        if tokenizer is not None:
            tokenizer.save_pretrained(partial)
        _publish(partial, place)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _read_spec(folder: pathlib.Path) -> tuple[Family, DecoderSpec]:
    raw = checks.check_config(folder / "config.json")
    family = family_of_config(raw, str(folder / "config.json"))
    from transformers import AutoConfig

    with checks.reading(folder / "config.json", "a configuration that transformers accepts"):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    return family, family.to_spec(config.to_dict())


def _read_tokenizer(folder: pathlib.Path, vocab_size: int) -> Any:
    from transformers import AutoTokenizer

    with checks.reading(folder, "a tokenizer that transformers accepts"):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    checks.check_vocabulary(tokenizer.get_vocab(), vocab_size, str(folder))
    return tokenizer


def _match(stored: StoredTensors, family: Family, spec: DecoderSpec, folder: pathlib.Path) -> dict[str, str]:
    """Name in the family's spelling -> name in the files; all parameters, in their shapes, and no others."""
    expected = {name: slot.shape for slot in family.slots(spec) for name in slot.names}
    kept = {name for name in stored.names() if not name.endswith(family.buffers)}
    prefix = family.base_prefix
    bare = not any(name.startswith(prefix) for name in kept)
    spelled = {prefix + name if bare and prefix + name in expected else name: name for name in kept}
    copy, original = family.tied_names
    if spec.tied_head and copy in spelled and original in spelled:
        name = spelled.pop(copy)
        checks.check_tied(stored.read(name), stored.read(spelled[original]), copy, original, str(folder))
    checks.check_tensor_names(frozenset(expected), frozenset(spelled), str(folder))
    for name, shape in expected.items():
        checks.check_tensor_shape(name, stored.shape(spelled[name]), shape, str(folder))
        stored.dtype(spelled[name])
    return spelled


def _read_slot(stored: StoredTensors, slot: Slot, stored_names: dict[str, str], dtype: np.dtype | None) -> jax.Array:
    names = [stored_names[name] for name in slot.names]
    kept = jnp.result_type(*{stored.dtype(name) for name in names}) if dtype is None else dtype
    if not slot.layered:
        return jnp.asarray(stored.read(names[0]).astype(kept, copy=False))
    stacked = np.empty((len(names), *slot.shape), kept)
    for layer, name in enumerate(names):
        stacked[layer] = stored.read(name)
    return jnp.asarray(stacked)


def _insert(tree: dict[str, Any], path: tuple[str, ...], leaf: jax.Array) -> None:
    *parents, last = path
    for name in parents:
        tree = tree.setdefault(name, {})
    tree[last] = leaf


def _leaves(params: Any, slots: tuple[Slot, ...], spec: DecoderSpec) -> dict[tuple[str, ...], Any]:
    """Path -> leaf, after checking that `params` are exactly the parameters of the slots."""
    found = {
        tuple(str(entry.key) for entry in path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
    }
    expected = {slot.path: ((spec.num_layers,) if slot.layered else ()) + slot.shape for slot in slots}
    checks.check_tensor_names(frozenset(map("/".join, expected)), frozenset(map("/".join, found)), "params")
    for path, shape in expected.items():
        checks.check_tensor_shape("/".join(path), found[path].shape, shape, "params")
    return found


def _named_tensors(
    leaves: dict[tuple[str, ...], Any], slots: tuple[Slot, ...], dtype: np.dtype
) -> Iterator[tuple[str, np.ndarray]]:
    for slot in slots:
        leaf = np.asarray(leaves[slot.path]).astype(dtype, copy=False)
        yield from zip(slot.names, leaf if slot.layered else [leaf], strict=True)


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
