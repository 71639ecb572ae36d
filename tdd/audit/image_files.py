"""The image column of a table: every image by the SHA-256 of its file, which stands for it where texts have strings.

Tables of paths are held as paths, tables of bytes as bytes; an image is decoded when it is opened, and one at a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import math
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tdd.texts import Rows, paths_of, read_rows
from tdd.texts.rows import existing_field, shown
from tdd.validate import InputError

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # none of them starts another program, as EPS does
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")


class ImageFile(NamedTuple):
    """The file of an image, not decoded."""

    content: bytes | pathlib.Path  # its bytes, or where they are
    place: str  # its row, for messages

    def read(self) -> Any:
        """A binary file object."""
        return io.BytesIO(self.content) if isinstance(self.content, bytes) else open(self.content, "rb")


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """The images of an audit: SHA-256 of a file, in hexadecimal -> the file, or the first of several with its bytes."""

    files: Mapping[str, ImageFile]

    @contextlib.contextmanager
    def open(self, sha256: str) -> Iterator[Any]:
        """The image as a PIL image of 8 bits a channel, which is decoded when its pixels are first asked for.

        Raises:
          InputError: it cannot be read, in the block too; a file that changed since the table was read.
        """
        from PIL import Image

        file = self.files[sha256]
        try:
            with file.read() as stream:
                if isinstance(file.content, pathlib.Path):
                    if hashlib.file_digest(stream, "sha256").hexdigest() != sha256:
                        raise ValueError("it changed while it was used")
                    stream.seek(0)
                with Image.open(stream, formats=FORMATS) as image:
                    if max(image.size) ** 2 > (Image.MAX_IMAGE_PIXELS or math.inf):
                        raise ValueError(f"{image.width} x {image.height} pixels are too many to pad to a square")
                    if image.mode not in _MODES:
                        raise ValueError(f"its values are of mode {image.mode}; convert them to 8 bits a channel")
                    yield image
        except InputError:
            raise
        except (OSError, ValueError, SyntaxError, MemoryError, Image.DecompressionBombError) as error:
            raise InputError(
                f"{file.place}: the image cannot be read ({error}); read are {', '.join(FORMATS)}"
            ) from error

    def num_bytes(self, sha256: str) -> int:
        """Size of the file."""
        content = self.files[sha256].content
        return len(content) if isinstance(content, bytes) else content.stat().st_size


def image_rows(source: Any, field: str) -> tuple[Rows, ImageFiles]:
    """The rows of a table with each image replaced by the SHA-256 of its file, and these files.

    Args:
      source: A table as in `tdd.texts.load_texts`; paths are relative to the folder of the table's own file.
      field: The column with paths, or with the bytes of a file, as such or under "bytes" in a record.

    Raises:
      InputError: As `tdd.texts.read_rows`; no such column, or a cell that is no file. Images are not decoded here.

    Cost: Every file is read once, in pieces.
    """
    rows = read_rows(source)
    existing_field(rows.source, "image_field", field, rows.fields)
    folders = {one if one.is_dir() else one.parent for one in map(pathlib.Path, paths_of(source))}
    if len(folders) > 1:
        raise InputError(
            f"{rows.source}: paths of images are relative to their table's folder; give tables of one folder"
        )
    near = folders.pop() if folders else pathlib.Path()
    files: dict[str, ImageFile] = {}
    hashes: list[str] = []
    for index, value in enumerate(rows.column(field)):
        file = _file(value, near, f"{rows.source}: {rows.place(index)}")
        try:
            with file.read() as stream:
                hashes.append(hashlib.file_digest(stream, "sha256").hexdigest())
        except OSError as error:
            raise InputError(f"{file.place}: the image cannot be read ({error})") from error
        files.setdefault(hashes[-1], file)

    def column(name: str) -> Sequence[Any]:
        return hashes if name == field else rows.column(name)

    return dataclasses.replace(rows, column=column), ImageFiles(files)


def _file(value: Any, near: pathlib.Path, place: str) -> ImageFile:
    """One cell of the table."""
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, (str, bytes)) or not value:
        raise InputError(f"{place}: an image must be a path or the bytes of a file, got {type(value).__name__}")
    if isinstance(value, str) and not _is_file(near / value):
        raise InputError(
            f"{place}: there is no image file {shown(str(near / value))}; paths are relative to the table's folder, "
            "and an encoded image must be bytes"
        )
    return ImageFile(value if isinstance(value, bytes) else near / value, place)


def _is_file(path: pathlib.Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or that holds a null character
        return False
