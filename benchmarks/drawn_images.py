"""Drawn images with captions: coloured shapes, of which no two images are alike, and words that no image tells.

Two shapes of random kind, colour, size and place stand on a coloured ground under noise. A caption names them and ends
in two words that an annotator might choose, drawn at random: a model that has not seen the pair can at best know their
frequencies.
"""

from __future__ import annotations

import io
from typing import NamedTuple

import numpy as np

__all__ = ["VOCABULARY", "Drawn", "draw", "png"]

COLOURS = {
    "red": (200, 50, 50), "green": (60, 170, 70), "blue": (60, 80, 200), "yellow": (220, 200, 60),
    "purple": (140, 60, 170), "orange": (230, 140, 50), "pink": (230, 150, 180), "brown": (120, 80, 50),
}  # fmt: skip
GROUNDS = {"white": (235, 235, 235), "grey": (150, 150, 150), "black": (30, 30, 30)}
SHAPES = ("circle", "square", "triangle", "bar")
SIZES = {"small": (0.10, 0.16), "large": (0.20, 0.28)}
"""Half the width of a shape, as a fraction of the image's."""
CHOSEN = (
    "calm", "bright", "plain", "odd", "quiet", "bold", "soft", "sharp", "warm", "cold", "busy", "empty", "playful",
    "heavy", "light", "strange", "simple", "lively", "dull", "clean", "rough", "gentle", "loose", "tight",
)  # fmt: skip
NOISE = 12.0
"""Standard deviation of every channel of every pixel, of 255."""

VOCABULARY = (
    "a", "and", "on", "it", "looks", ".", *SIZES, *COLOURS, *SHAPES, *GROUNDS, *CHOSEN,
)  # fmt: skip
"""Words of captions."""


class Drawn(NamedTuple):
    """N images [N, S, S, 3] uint8 and their captions, words divided by spaces."""

    images: np.ndarray
    captions: tuple[str, ...]


def draw(count: int, size: int, seed: int) -> Drawn:
    """`count` images of `size` pixels; the first of a seed are the same for every count."""
    pairs = [_one(size, np.random.default_rng((seed, number))) for number in range(count)]
    images, captions = zip(*pairs, strict=True)
    return Drawn(np.stack(images), captions)


def png(image: np.ndarray) -> bytes:
    """The bytes of a file, without loss."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def _one(size: int, rng: np.random.Generator) -> tuple[np.ndarray, str]:
    ground = str(rng.choice([*GROUNDS]))
    pixels = np.broadcast_to(np.array(GROUNDS[ground], np.float64), (size, size, 3)).copy()
    named = []
    for left in (True, False):
        scale, colour, shape = (str(rng.choice([*words])) for words in (SIZES, COLOURS, SHAPES))
        half = rng.uniform(*SIZES[scale]) * size
        centre = rng.uniform(half, size - half), rng.uniform(0.2, 0.35) * size + (0 if left else 0.45 * size)
        pixels[_inside(shape, size, centre, half)] = COLOURS[colour] + rng.normal(0, 10, 3)
        named.append(f"a {scale} {colour} {shape}")
    noisy = np.clip(np.rint(pixels + rng.normal(0, NOISE, pixels.shape)), 0, 255).astype(np.uint8)
    first, second = rng.choice(CHOSEN, 2, replace=False)
    return noisy, f"{named[0]} and {named[1]} on {ground} . it looks {first} and {second} ."


def _inside(shape: str, size: int, centre: tuple[float, float], half: float) -> np.ndarray:
    """The pixels of a shape: [S, S] bool."""
    down, across = np.mgrid[:size, :size] + 0.5
    down, across = (down - centre[0]) / half, (across - centre[1]) / half
    if shape == "circle":
        return down**2 + across**2 <= 1
    if shape == "square":
        return np.maximum(np.abs(down), np.abs(across)) <= 0.9
    if shape == "triangle":
        return (np.abs(across) <= (1 + down) / 2) & (np.abs(down) <= 1)
    return (np.abs(down) <= 0.4) & (np.abs(across) <= 1)
