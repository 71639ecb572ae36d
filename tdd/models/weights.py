"""Tensors on disk: safetensors files, one or sharded, read and written one parameter at a time.

The format is Hugging Face's: `model.safetensors`, or `model.safetensors.index.json` whose "weight_map"
says which file holds which tensor. Nothing here unpickles.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import ml_dtypes
import numpy as np

from tdd.validate.errors import InputError
from tdd.validate.json_text import parse_json
from tdd.validate.weights import check_opened, check_stored_once, check_weights_present

__all__ = ["DTYPES", "INDEX", "SINGLE", "StoredTensors", "weight_files", "write_tensors"]

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

DTYPES = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16)}
"""Types that are read, by their names in the files."""

_COMPARED_BYTES = 1 << 24


def weight_files(folder: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """The safetensors files of a checkpoint folder; a single file goes before an index.

    Raises:
      InputError: none there, `.bin` files only, an index that cannot be read, or a shard that is missing.
    """
    check_weights_present(folder, SINGLE, INDEX)
    if (folder / SINGLE).is_file():
        return (folder / SINGLE,)
    names = sorted(set(_check_index(folder / INDEX).values()))
    return tuple(folder / name for name in names)


class StoredTensors:
    """Named tensors of a checkpoint folder, opened lazily. A context manager.

    Names, shapes and dtypes come from the headers; data is read only by `read`, tensor by tensor.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._stack = ExitStack()
        self._file_of: dict[str, Any] = {}
        try:
            for path in weight_files(folder):
                opened = self._stack.enter_context(check_opened(path))
                check_stored_once(self._file_of.keys(), opened.keys(), path)
                self._file_of.update(dict.fromkeys(opened.keys(), opened))
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> StoredTensors:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def names(self) -> frozenset[str]:
        """Names of all tensors in the files."""
        return frozenset(self._file_of)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor, without reading it."""
        return tuple(self._file_of[name].get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        """Dtype of one tensor, by its name in the files, without reading it."""
        return self._file_of[name].get_slice(name).get_dtype()

    def read(self, name: str) -> np.ndarray:
        """One tensor."""
        return self._file_of[name].get_tensor(name)

    def cut(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        """A slice of one tensor; no more than that is read."""
        return self._file_of[name].get_slice(name)[index]

    def equal(self, name: str, other: str) -> bool:
        """Whether two tensors are equal bit for bit, NaN aside; a block of rows of each is in memory at a time."""
        shape = self.shape(name)
        if shape != self.shape(other) or self.dtype(name) != self.dtype(other):
            return False
        slices = [self._file_of[tensor].get_slice(tensor) for tensor in (name, other)]
        rows = max(1, _COMPARED_BYTES // (4 * max(1, int(np.prod(shape[1:])))))
        return all(
            np.array_equal(*(tensor[start : min(start + rows, shape[0])] for tensor in slices))
            for start in range(0, shape[0], rows)
        )


def write_tensors(folder: pathlib.Path, tensors: Iterable[tuple[str, np.ndarray]], *, max_shard_bytes: int) -> int:
    """Write named tensors as one file, or as shards with an index where they exceed `max_shard_bytes`.

    At most one shard is in host memory at a time. A tensor larger than `max_shard_bytes` gets a shard of
    its own. Returns how many tensors were written.
    """
    from safetensors.numpy import save_file

    written: list[dict[str, int]] = []
    for number, shard in enumerate(_shards(tensors, max_shard_bytes)):
        # "format": "pt" tells torch's loader which convention the file follows; it refuses files without it.
        save_file(dict(shard), folder / f"shard-{number}", metadata={"format": "pt"})
        written.append({name: tensor.nbytes for name, tensor in shard.items()})
    if len(written) == 1:
        (folder / "shard-0").rename(folder / SINGLE)
        return len(written[0])
    weight_map: dict[str, str] = {}
    for number, sizes in enumerate(written):
        file_name = f"model-{number + 1:05d}-of-{len(written):05d}.safetensors"
        (folder / f"shard-{number}").rename(folder / file_name)
        weight_map.update(dict.fromkeys(sizes, file_name))
    index = {
        "metadata": {"total_size": sum(sum(sizes.values()) for sizes in written)},
        "weight_map": dict(sorted(weight_map.items())),
    }
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return len(weight_map)


def _shards(tensors: Iterable[tuple[str, np.ndarray]], max_shard_bytes: int) -> Iterator[Mapping[str, np.ndarray]]:
    shard: dict[str, np.ndarray] = {}
    size = 0
    for name, tensor in tensors:
        if shard and size + tensor.nbytes > max_shard_bytes:
            yield shard
            shard, size = {}, 0
        shard[name] = np.ascontiguousarray(tensor)
        size += tensor.nbytes
    yield shard


def _check_index(path: pathlib.Path) -> dict[str, str]:
    """The weight map of a sharded checkpoint; every file that it names is there."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON: {error}") from error
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(f"{path} has no weight_map from tensor names to files")
    for name in sorted(set(map(str, weight_map.values()))):
        if pathlib.PurePath(name).name != name or not name.endswith(".safetensors"):
            raise InputError(f"{path} names {name!r}, which is not a safetensors file of the same folder")
        if not (path.parent / name).is_file():
            raise InputError(f"{path} names the shard {name!r}, which is missing from the folder")
    return weight_map
