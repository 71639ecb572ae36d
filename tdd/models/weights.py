"""Tensors on disk: safetensors files, one or sharded, read and written one parameter at a time.

The format is Hugging Face's: `model.safetensors`, or `model.safetensors.index.json` whose "weight_map"
says which file holds which tensor. Nothing here unpickles.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tdd.validate import InputError, some
from tdd.validate.files import check_fetched, parse_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

ADAPTER_CONFIG, ADAPTER = "adapter_config.json", "adapter_model.safetensors"
"""The files of an adapter beside the weights that it adapts; see `tdd.models.lora`."""

DTYPES = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16)}
"""Types that parameters keep, by their names in the files."""

READ_AS = {**DTYPES, "F64": np.dtype(np.float32)}
"""Types that are read, and what they become."""

_EIGHT_BITS = {
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
}
"""Types of quantised weights that the safetensors package does not give as arrays of NumPy."""

_QUANTISED = ("quantize_config.json", "quant_config.json")
"""Where older versions of GPTQ's and AWQ's programs say how weights are quantised."""

_COMPARED_BYTES = 1 << 24
_CHECKED_NUMBERS = 1 << 20

# unsigned type of the same width, mask of the magnitude, smallest magnitude that is not finite
_BITS = {
    "float32": (np.uint32, 0x7FFFFFFF, 0x7F800000),
    "float16": (np.uint16, 0x7FFF, 0x7C00),
    "bfloat16": (np.uint16, 0x7FFF, 0x7F80),
}


def weight_files(folder: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """The safetensors files of a checkpoint folder; a single file goes before an index.

    Raises:
      InputError: No weights, `.bin` files only, an index that cannot be read, or a missing shard.
    """
    if (folder / SINGLE).is_file():
        return (folder / SINGLE,)
    if (folder / INDEX).is_file():
        return tuple(folder / name for name in sorted(set(_read_index(folder / INDEX).values())))
    pickled = sorted(path.name for path in folder.glob("*.bin")) + sorted(p.name for p in folder.glob("*.pt*"))
    if pickled:
        raise InputError(
            f"{folder} has weights only as {some(pickled)}, which can run code when read; convert them "
            "once with torch: AutoModelForCausalLM.from_pretrained(folder).save_pretrained(new_folder)"
        )
    advice = ""
    if others := sorted({path.name for path in folder.glob("*.safetensors")} - {ADAPTER}):
        advice = (
            f"; it holds {some(others)}: rename a single file to {SINGLE}, or copy the index of several beside them"
        )
        if method := next((name for name in _QUANTISED if (folder / name).is_file()), None):
            advice += f", and copy what {method} says into config.json as quantization_config, with quant_method"
    raise InputError(f"no weights in {folder}: need {SINGLE}, or {INDEX} with its shards{advice}")


def read_json(path: pathlib.Path) -> Any:
    """The contents of a JSON file."""
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON: {error}") from error


def open_safetensors(path: pathlib.Path) -> Any:
    """The file, opened as safetensors; a context manager."""
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, "numpy")
    except (SafetensorError, OSError) as error:
        check_fetched(path)
        raise InputError(
            f"{path} is truncated or not a safetensors file ({path.stat().st_size} bytes; {error}); "
            "download or save it again"
        ) from error


def has_adapter(folder: pathlib.Path) -> bool:
    """Whether a file of an adapter lies in a checkpoint folder."""
    return any((folder / name).is_file() for name in (ADAPTER_CONFIG, ADAPTER))


class Part(NamedTuple):
    """What a tensor must be that is a part of a weight, such as its scales."""

    shape: tuple[int, ...]
    types: tuple[str, ...]  # by their names in the files
    found: tuple[int, ...] | None  # its shape in the files; None where it is missing
    dtype: str = ""  # its type in the files


class StoredTensors:
    """Named tensors of a checkpoint folder, opened lazily. A context manager.

    Names, shapes and dtypes come from the headers; data is read only by `read`, tensor by tensor.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._stack = ExitStack()
        self._file_of: dict[str, Any] = {}
        self._path_of: dict[str, pathlib.Path] = {}
        self._start_of: dict[pathlib.Path, Mapping[str, tuple[int, int]]] = {}  # of files with tensors of eight bits
        try:
            for path in weight_files(folder):
                opened = self._stack.enter_context(open_safetensors(path))
                if twice := sorted(self._file_of.keys() & opened.keys()):  # which of the two counts cannot be told
                    raise InputError(f"{path} holds {some(twice)}, as another shard does; keep each tensor in one file")
                self._file_of.update(dict.fromkeys(opened.keys(), opened))
                self._path_of.update(dict.fromkeys(opened.keys(), path))
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

    def parts(self) -> dict[str, Part]:
        """The tensors that are parts of a weight, by their names in the files; they are not among `names`."""
        return {}

    def is_idle(self, name: str) -> bool:
        """Whether a tensor adds nothing to a quantised weight beside it: a bias of zeros, which some writers add."""
        return False

    def read(self, name: str) -> np.ndarray:
        """One tensor."""
        if (kind := _EIGHT_BITS.get(self.dtype(name))) is not None:
            return self._bytes(name).view(kind).reshape(self.shape(name))
        return self._file_of[name].get_tensor(name)

    def _bytes(self, name: str) -> np.ndarray:
        """The bytes of one tensor, where the header, which the safetensors package has checked, says that they lie."""
        path = self._path_of[name]
        if path not in self._start_of:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            self._start_of[path] = {
                tensor: (8 + length + start, stop - start)
                for tensor, (start, stop) in ((tensor, entry["data_offsets"]) for tensor, entry in header.items())
            }
        start, count = self._start_of[path][name]
        return np.fromfile(path, np.uint8, count, offset=start)

    def cut(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        """A slice of one tensor; no more than that is read."""
        return self._file_of[name].get_slice(name)[index]

    def equal(self, name: str, other: str) -> bool:
        """True if two tensors are equal bit for bit, NaN aside; reads a block of rows of each at a time."""
        shape = self.shape(name)
        if shape != self.shape(other) or self.dtype(name) != self.dtype(other):
            return False
        slices = [self._file_of[tensor].get_slice(tensor) for tensor in (name, other)]
        rows = max(1, _COMPARED_BYTES // (4 * max(1, int(np.prod(shape[1:])))))
        return all(
            np.array_equal(*(tensor[start : min(start + rows, shape[0])] for tensor in slices))
            for start in range(0, shape[0], rows)
        )


class View(StoredTensors):
    """Stored tensors in another form, which a subclass defines; as they are, unless it does."""

    def __init__(self, stored: StoredTensors) -> None:
        self._stored = stored
        self._stack = ExitStack()  # whoever opened the files closes them

    def names(self) -> frozenset[str]:
        """Names of all tensors."""
        return self._stored.names()

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return self._stored.shape(name)

    def dtype(self, name: str) -> str:
        """Dtype of one tensor, as `StoredTensors.dtype`."""
        return self._stored.dtype(name)

    def parts(self) -> dict[str, Part]:
        """As `StoredTensors.parts`."""
        return self._stored.parts()

    def is_idle(self, name: str) -> bool:
        """As `StoredTensors.is_idle`."""
        return self._stored.is_idle(name)

    def read(self, name: str) -> np.ndarray:
        """One tensor."""
        return self._stored.read(name)

    def cut(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        """A slice of one tensor."""
        return self._stored.cut(name, index)

    def equal(self, name: str, other: str) -> bool:
        """True if two tensors are equal, as `StoredTensors.equal`."""
        return self._stored.equal(name, other)


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


def _read_index(path: pathlib.Path) -> dict[str, str]:
    """The weight map of a sharded checkpoint; every file that it names is there."""
    content = read_json(path)
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(f"{path} has no weight_map from tensor names to files")
    for name in sorted(set(map(str, weight_map.values()))):
        if pathlib.PurePath(name).name != name or not name.endswith(".safetensors"):
            raise InputError(f"{path} names {name!r}, which is not a safetensors file of the same folder")
        if not (path.parent / name).is_file():
            raise InputError(f"{path} names the shard {name!r}, which is missing from the folder")
    return weight_map


def has_infinite(tensor: np.ndarray, dtype: np.dtype) -> bool:
    """True if a float32, bfloat16 or float16 tensor, converted to `dtype`, holds NaN or infinity.

    Looks at the bits, a block at a time: no copy of the tensor is made.
    """
    unsigned, magnitude, limit = _BITS[dtype.name]
    flat = tensor.ravel(order="K")
    for start in range(0, flat.size, _CHECKED_NUMBERS):
        with np.errstate(over="ignore", invalid="ignore"):
            block = flat[start : start + _CHECKED_NUMBERS].astype(dtype, copy=False)
        if ((block.view(unsigned) & magnitude) >= limit).any():
            return True
    return False


def check_tensors(
    expected: Mapping[str, Sequence[int]],
    found: Mapping[str, Sequence[int]],
    where: str,
    *,
    advice: str,
    dtypes: Mapping[str, str] | None = None,
    parts: Mapping[str, Part] | None = None,
) -> None:
    """Exactly the expected tensors are there, in their shapes and in a type that is read; all faults in one error.

    `expected` and `found` map names to shapes, `dtypes` to types as stored, if these are to be checked. The message
    says `where` the tensors are, and ends with `advice`. `parts` are further tensors, those that weights consist of.
    """
    parts = dict(sorted(parts.items())) if parts else {}
    without = [name for name, part in parts.items() if part.found is None]
    missing, extra = sorted([*expected.keys() - found.keys(), *without]), sorted(found.keys() - expected.keys())
    shared = sorted(expected.keys() & found.keys())
    reshaped = [
        f"{name} {list(found[name])} instead of {list(expected[name])}"
        for name in shared
        if tuple(found[name]) != tuple(expected[name])
    ]
    reshaped += [
        f"{name} {list(part.found)} instead of {list(part.shape)}"
        for name, part in parts.items()
        if part.found is not None and tuple(part.found) != tuple(part.shape)
    ]
    retyped = [f"{name} ({dtypes[name]})" for name in shared if dtypes and dtypes[name] not in READ_AS]
    unlike = [
        f"{name} ({part.dtype} instead of {' or '.join(part.types)})"
        for name, part in parts.items()
        if part.found is not None and part.dtype not in part.types
    ]
    faults = []
    if missing:
        faults.append(f"lacks {len(missing)} of {len({*expected, *parts})} tensors: {some(missing)}")
    if extra:
        faults.append(f"has {len(extra)} tensors that the architecture has not: {some(extra)}")
    if reshaped:
        faults.append(f"has {len(reshaped)} tensors of another shape: {some(reshaped)}")
    if retyped:
        faults.append(f"has {len(retyped)} tensors not stored as {', '.join(READ_AS)}: {some(retyped)}")
    if unlike:
        faults.append(f"has {len(unlike)} tensors of another type: {some(unlike)}")
    if faults:
        if retyped and len(faults) == 1:
            advice = "store them in one of these types"
        raise InputError(f"{where} {'; '.join(faults)}; {advice}")


def check_finite_tensors(infinite: Sequence[str], total: int, form: str, where: str) -> None:
    """No tensor was found to hold NaN or infinity in the form in which it is wanted."""
    if infinite:
        raise InputError(
            f"{where} has NaN or infinite numbers in {len(infinite)} of {total} tensors: {some(sorted(infinite))} "
            f"({form}); the file is damaged, the training went wrong, or a wider dtype is needed"
        )
