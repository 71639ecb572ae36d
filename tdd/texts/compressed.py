"""Compressed bytes → what they hold: gzip and Zstandard, up to a size beyond which nothing holds texts."""

from __future__ import annotations

import gzip
import importlib
import io
from typing import Any

from tdd.texts.shards import COMPRESSED
from tdd.validate import InputError

LARGEST_DECOMPRESSED = 2**30
"""Bytes to which any compressed file may decompress, whatever its own size."""
_LARGEST_RATIO = 100
"""Times its own size to which a larger one may decompress; texts are at ten, a bomb is at a thousand."""


def decompressed(source: str, data: bytes) -> bytes:
    """What the bytes of a compressed file hold.

    Raises:
      InputError: far more than texts hold; Zstandard without a module that reads it.
      EOFError, OSError, zlib.error: damaged data.
    """
    if data.startswith(COMPRESSED["gz"]):
        file: Any = gzip.GzipFile(fileobj=io.BytesIO(data))
    else:
        file = _zstandard(source, data)
    with file:
        content = file.read(_most(len(data)) + 1)
    check_decompressed(source, len(content), len(data))
    return content


def check_decompressed(source: str, content: int, size: int) -> None:
    """A compressed file of `size` bytes holds no more than texts do."""
    if content > _most(size):
        raise InputError(
            f"{source}: its {size:,} bytes decompress to more than {_most(size):,}, as no text does; if "
            "that is meant, decompress it first and give the plain file"
        )


def _most(size: int) -> int:
    """Bytes to which a compressed file of so many bytes may decompress."""
    return max(LARGEST_DECOMPRESSED, _LARGEST_RATIO * size)


def _zstandard(source: str, data: bytes) -> Any:
    """A file of what Zstandard's frames hold: by the standard library (Python 3.14), or by the package zstandard."""
    for name in ("compression.zstd", "zstandard"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if name == "compression.zstd":
            return _Checked(module.ZstdFile(io.BytesIO(data)), module.ZstdError)
        reader = module.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True)
        return _Checked(reader, module.ZstdError)
    raise InputError(
        f"{source} is compressed with Zstandard, which this Python does not read: pip install zstandard (Python 3.14 "
        "has it), or decompress it (zstd -d)"
    )


class _Checked:
    """A reader whose own errors become `OSError`."""

    def __init__(self, file: Any, error: type[Exception]) -> None:
        self._file, self._error = file, error

    def __enter__(self) -> _Checked:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """At most so many bytes."""
        try:
            return self._file.read(size)
        except self._error as error:
            raise OSError(str(error)) from error
