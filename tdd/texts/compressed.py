"""Compressed bytes → what they hold: gzip and Zstandard, up to a size beyond which nothing holds texts."""

from __future__ import annotations

import gzip
import io

from tdd.texts.shards import COMPRESSED
from tdd.validate import InputError

LARGEST_DECOMPRESSED = 2**30
"""Bytes to which any compressed file may decompress, whatever its own size."""
_LARGEST_RATIO = 100
"""Times its own size to which a larger one may decompress; texts are at ten, a bomb is at a thousand."""
_PIECE = 2**24
"""Bytes that Zstandard's frames are read at a time."""


def decompressed(source: str, data: bytes, stated: int | None = None) -> bytes:
    """What the bytes of a compressed file hold; a byte more than the `stated` number of them is enough.

    Raises:
      InputError: far more than texts hold.
      EOFError, OSError, zlib.error: damaged data.
    """
    most = (_most(len(data)) if stated is None else stated) + 1
    if data.startswith(COMPRESSED["gz"]):
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            content = file.read(most)
    else:
        content = _zstandard(data, most)
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


def _zstandard(data: bytes, most: int) -> bytes:
    """At most so many bytes of what the frames of Zstandard hold."""
    import pyarrow

    pieces, size = [], 0
    with pyarrow.CompressedInputStream(pyarrow.BufferReader(data), "zstd") as stream:
        while size < most and (piece := stream.read(min(_PIECE, most - size))):
            pieces.append(piece)
            size += len(piece)
    return b"".join(pieces)
