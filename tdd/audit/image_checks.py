"""What images look like without a model: numbers for the blind baseline, marks of files, a hash for near copies.

The hash is that of pHash (Zauner 2010, "Implementation and benchmarking of perceptual image hash functions", section
3.2.1): of the grey image, 32 x 32, the 8 x 8 lowest frequencies of the discrete cosine transform, one bit each, 1 where
the coefficient is above their median. Compression, scale and brightness move few of the 64 bits; two different pictures
differ in 32 on average.
"""

from __future__ import annotations

import collections
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.audit.blind_baseline import View
from tdd.audit.image_files import FORMATS, ImageFiles
from tdd.audit.preparation import Marks, copied
from tdd.runs.display import progress_bar
from tdd.texts.near import Pairs, best_of_each

NEAR = 1 - 10 / 64
"""Smallest fraction of equal bits of near copies: at most 10 of 64 differ. Of 40 drawn images, recompressed at quality
40, scaled to 90 x 70 or darkened by a fifth, every copy was as near; no two of the 40 differed in fewer than 18."""

_BLOCK, _MAX_PAIRS = 2_000_000, 5_000_000
_OVERVIEW, _CROP, _BINS = 128, 256, 8
_FLAT = 2.0
_VALUES = 50
_SCALE = 0.25


class Look(NamedTuple):
    """An image without a model."""

    features: np.ndarray  # [F] float32, as `look` lists them
    bits: int | None  # the perceptual hash; None where the grey levels hardly vary, so that noise decides every bit
    file: Mapping[str, str]  # properties of the file, in words


def look(image: Any, num_bytes: int) -> Look:
    """Features and hash of a PIL image whose file has `num_bytes`.

    Features: logarithms of width, height, their ratio and its absolute value, and of bytes a pixel; the format, one of
    `FORMATS`; of red, green and blue, mean, deviation and a histogram of 8 bins, in an overview of at most 128 pixels
    a side; and in the central 256 x 256 pixels, as they are in the file, the mean and the deviation of log(1 + length)
    of the grey levels' gradient, a histogram of it of 8 bins, and one of its direction, weighted by length.
    """
    width, height = image.size
    ratio = np.log(width / height)
    file = _of_file(image)
    size = [np.log(width), np.log(height), ratio, abs(ratio), np.log(num_bytes / (width * height))]
    format = [float(image.format == name) for name in FORMATS]
    colours = image.convert("RGB")
    left, top = max(0, (width - _CROP) // 2), max(0, (height - _CROP) // 2)
    crop = np.asarray(colours.crop((left, top, min(width, left + _CROP), min(height, top + _CROP))), np.float64)
    numbers = [*size, *format, *_of_edges(crop.mean(-1))]
    bits = _hash(colours.convert("L"))
    colours.thumbnail((_OVERVIEW, _OVERVIEW), 4)  # the mean of the pixels that each new one covers
    overview = np.asarray(colours, np.float64).reshape(-1, 3)
    numbers += [*overview.mean(0), *overview.std(0)]
    for channel in overview.T:
        numbers += [*np.histogram(channel, _BINS, (0, 256))[0] / len(overview)]
    return Look(np.array(numbers, np.float32), bits, file)


def _of_file(image: Any) -> dict[str, str]:
    """What the program that wrote the file decided, beside its pixels."""
    width, height = image.size
    tables = getattr(image, "quantization", None)
    digest = "none" if not tables else hashlib.sha256(repr(sorted(tables.items())).encode()).hexdigest()[:8]
    return {
        "format": str(image.format),
        "mode": image.mode,
        "width": str(width),
        "height": str(height),
        "shape": "square" if width == height else "wide" if width > height else "tall",
        "sides that are multiples of 8": str(sum(side % 8 == 0 for side in image.size)),
        "JPEG quantisation tables": digest,
        "JPEG sampling": str(image.info.get("progression", 0)) + str(getattr(image, "layer", "")),
        "orientation by EXIF": str(image.getexif().get(0x0112, "none")),
        "metadata": ", ".join(sorted({"exif", "icc_profile", "dpi", "xmp", "comment"} & {*image.info})) or "none",
        "frames": "several" if getattr(image, "n_frames", 1) > 1 else "one",
    }


def image_marks(seen: Mapping[str, Look], hashes: Sequence[str]) -> Marks:
    """Marks of the files of images: each property with each value that at least two images have, the 50 commonest."""
    files = [seen[sha256].file for sha256 in hashes]
    marks: list[tuple[str, str]] = []
    for name in files[0] if files else ():
        counts = collections.Counter(file[name] for file in files)
        marks += [(name, value) for value, count in counts.most_common(_VALUES) if count > 1]
    has = np.array([[file[name] == value for file in files] for name, value in marks], bool).reshape(-1, len(files))

    def excerpt(mark: int, item: int) -> str:
        return files[item][marks[mark][0]] if mark < len(marks) else hashes[item][:8]

    return Marks(
        (*(f"have the {name} {value}" for name, value in marks), "are copies of another item"),
        np.concatenate([has, copied(hashes)[None]]),
        (*(name for name, _ in marks), "copies"),
        excerpt,
    )


def _of_edges(grey: np.ndarray) -> list[float]:
    """Statistics of the gradient of grey levels [H, W]: 2 + 2 * 8 numbers, 0 where there is none."""
    if min(grey.shape) < 2:
        return [0.0] * (2 + 2 * _BINS)
    down, right = np.diff(grey, axis=0)[:, :-1], np.diff(grey, axis=1)[:-1]
    length = np.hypot(down, right)
    logs = np.log1p(length)
    lengths = np.histogram(logs, _BINS, (0, np.log1p(361)))[0] / logs.size
    directions = np.histogram(np.arctan2(down, right) % np.pi, _BINS, (0, np.pi), weights=length)[0]
    return [logs.mean(), logs.std(), *lengths, *directions / max(1e-9, directions.sum())]


def _hash(grey: Any) -> int | None:
    from scipy.fft import dctn

    small = np.asarray(grey.resize((32, 32), 4), np.float64)
    if small.std() < _FLAT:
        return None
    lowest = np.asarray(dctn(small, norm="ortho"))[:8, :8]
    return int.from_bytes(np.packbits(lowest > np.median(lowest)).tobytes(), "big")


def looks(files: ImageFiles, *, progress: bool) -> dict[str, Look]:
    """SHA-256 -> look, of every image; one is in memory at a time.

    Raises:
      InputError: an image that cannot be read.
    """
    found: dict[str, Look] = {}
    with progress_bar("reading", len(files.files), enabled=progress, unit="images") as advance:
        for sha256 in files.files:
            with files.open(sha256) as image:
                found[sha256] = look(image, files.num_bytes(sha256))
            advance(1)
    return found


def view(seen: Mapping[str, Look]) -> View:
    """What the blind baseline sees of images."""
    return View(functools.partial(similarities, seen), "images", "colours, edges, size, format and bytes a pixel")


def similarities(seen: Mapping[str, Look], hashes: Sequence[str]) -> np.ndarray:
    """Inner products of the features, each standardised over these images and scaled alike: [N, N] float32."""
    features = np.stack([seen[sha256].features for sha256 in hashes]).astype(np.float64)
    centred = features - features.mean(axis=0)
    spread = features.std(axis=0)
    kept = spread > 1e-6 * (1 + np.abs(features).max(axis=0))
    scaled = (_SCALE * centred[:, kept] / spread[kept]).astype(np.float32)
    return scaled @ scaled.T


def near_images(seen: Mapping[str, Look], left: Sequence[str], right: Sequence[str], near: float) -> tuple[Pairs, bool]:
    """Pairs of different images whose hashes share a fraction `near` of the 64 bits or more, as `near_pairs`.

    Images without a hash are in no pair.

    Cost: every pair is compared; memory for two million of them, and for what is found.
    """
    rows, bits = [], []
    for hashes in (left, right):
        known = [seen[sha256].bits for sha256 in hashes]
        rows.append(np.array([row for row, one in enumerate(known) if one is not None], np.int64))
        bits.append(np.array([one for one in known if one is not None], np.uint64))
    blocks: list[Pairs] = []
    num_found, step = 0, max(1, _BLOCK // max(1, bits[1].size))
    for start in range(0, bits[0].size, step):
        similarity = 1 - np.bitwise_count(bits[0][start : start + step, None] ^ bits[1]) / 64
        first, second = np.nonzero(similarity >= near)
        blocks.append((rows[0][start + first], rows[1][second], similarity[first, second]))
        num_found += first.size
        if num_found > _MAX_PAIRS:
            return best_of_each(blocks, left, right), False
    return best_of_each(blocks, left, right), True
