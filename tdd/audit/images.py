"""`tdd.score_images`: images and a vision-language model -> target-free scores of each slice of what the model reads.

The model describes each image by 32 tokens at most, chosen greedily after a fixed instruction, and then reads image,
instruction and description in one pass (Li et al. 2024, "Membership inference attacks against large vision-language
models", section 4). A slice's score is MaxRenyi-K% of the distributions that predict its tokens.
"""

from __future__ import annotations

import functools
import io
import math
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tdd.models import decoder, vision
from tdd.models.attention import PrefixCache
from tdd.models.language_model import hidden_after, language_model
from tdd.models.vision import VisionLanguageModel, VisionLanguageSpec
from tdd.records import Scores
from tdd.runs.display import progress_bar
from tdd.scoring.scores import ScoreRequest, check_score_names, padded_stats, parse_score
from tdd.scoring.token_stats import head_statistics
from tdd.texts import read_rows
from tdd.texts.rows import existing_field, identifier_column, shown
from tdd.validate import InputError

__all__ = ["INSTRUCTION", "SLICES", "score_images"]

INSTRUCTION = "Describe this image concisely."
SLICES = ("image", "instruction+description", "instruction", "description")

_DESCRIPTION = 32
_TARGET_FREE = ("mu", "renyi_half", "renyi_two", "renyi_inf")
_LEAST_PROBABILITY = 1e-10
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # none of them starts another program, as EPS does


def score_images(
    model: Any,
    images: Any,
    scores: str | Sequence[str] = ("max_renyi:gamma=0.5,k=0.1",),
    *,
    image_field: str = "image",
    id_field: str | None = None,
    revision: str | None = None,
    dtype: str | None = None,
    published: bool = False,
    progress: bool = True,
) -> Scores:
    """Score images under a vision-language model. All scores are loss-like: LOWER = MORE member-like.

    The model reads "USER: <image>\\nDescribe this image concisely. ASSISTANT:", describes the image greedily by at most
    32 tokens (the end token and what follows it do not count), and reads all of it once more. The four slices are the
    image, the instruction (all from the image's end to "ASSISTANT:"), the description, and the two together.

    Args:
      model: A checkpoint folder or hub id of LLaVA-1.5, or what `tdd.models.vision.load_vision_language` returned.
      images: A table as in `tdd.texts.load_texts`; the column `image_field` holds paths (relative to the table's own
        folder) or the bytes of a file, as such or under "bytes" in a record.
      scores: Names of scores that need no targets: "max_renyi" with its options. "max_renyi:gamma=1,k=1" is the mean
        entropy.
      image_field, id_field: Columns of the images and of the identifiers ("id" where there is one, else 1, 2, ...).
      revision, dtype: As in `tdd.score`.
      published: False: a slice's n tokens count with the n distributions that predict them. True: as the published
        code, whose rows are not shifted: the distribution that predicts a slice's first token is left out, so n - 1
        remain, and every probability is raised to 1e-10 at least. For gamma=0.5 and 32,000 tokens that alone can add
        half a nat where the model is sure.
      progress: Show a progress bar if standard error is a terminal.

    Returns:
      `Scores` with a column "<score> <slice>" for each of both; NaN for an empty description. `num_tokens` counts the
      tokens of all slices.

    Raises:
      InputError: anything about model, table, images or scores that cannot be used.

    Cost: for each image two passes over it and the instruction, 32 over the description, and one image in memory.
    """
    requests = [_target_free(parse_score(name)) for name in check_score_names(scores)]
    rows = read_rows(images)
    existing_field(rows.source, "image_field", image_field, rows.fields)
    if id_field is not None or "id" in rows.fields:
        name = existing_field(rows.source, "id_field", id_field or "id", rows.fields)
        ids = identifier_column(rows.source, rows.column(name), rows.place)
    else:
        ids = tuple(str(number) for number in range(1, rows.num_rows + 1))
    near = pathlib.Path(images).parent if isinstance(images, (str, os.PathLike)) else pathlib.Path()
    column = rows.column(image_field)
    if not isinstance(model, VisionLanguageModel):
        model = vision.load_vision_language(model, revision=revision, dtype=dtype)
    prompt, first = _prompt(model)
    end = -1 if model.tokenizer.eos_token_id is None else model.tokenizer.eos_token_id
    names = [f"{request.label} {part}" for request in requests for part in SLICES]
    values, num_tokens = np.full((len(names), len(ids)), np.nan), np.zeros(len(ids), np.int64)
    with progress_bar("scoring", len(ids), enabled=progress) as advance:
        for row, value in enumerate(column):
            prepared = _read(value, near, rows.place(row), model.spec.tower.image_size)
            found = _read_and_describe(model.spec, model.params, prepared[None], jnp.asarray(prompt), published)
            description, statistics = jax.device_get(found)
            length = int(np.argmax(np.append(description == end, True)))
            values[:, row] = [*_of_slices(model.spec, requests, statistics, first, len(prompt), length, published)]
            num_tokens[row] = model.spec.tower.num_features + len(prompt) - first + length
            advance(1)
    provenance = {
        "images": rows.source, "image_field": image_field, "instruction": INSTRUCTION, "description_tokens":
        _DESCRIPTION, "published": published, "scores": [request.label for request in requests], "dtype": dtype,
    }  # fmt: skip
    return Scores(ids, dict(zip(names, values, strict=True)), num_tokens, provenance)


def _target_free(request: ScoreRequest) -> ScoreRequest:
    if not set(request.score.statistics) <= set(_TARGET_FREE) or request.score.passes:
        raise InputError(
            f"the score {request.label!r} needs target tokens, and an image has none; use max_renyi, with options as "
            "in 'max_renyi:gamma=1,k=0.1'"
        )
    return request


def _prompt(model: VisionLanguageModel) -> tuple[np.ndarray, int]:
    """Token ids of image and instruction, and the place of the first after the image."""
    before = list(model.tokenizer("USER: ")["input_ids"])
    after = model.tokenizer(f"\n{INSTRUCTION} ASSISTANT:", add_special_tokens=False)["input_ids"]
    tokens = vision.with_placeholders(model.spec, [*before, model.spec.image_token, *after])
    needed, limit = len(tokens) + _DESCRIPTION, model.spec.text.max_length
    if not before or not after or needed > limit:
        raise InputError(
            f"image, instruction and description take {needed} tokens, {len(before)} of them before the image and "
            f"{len(after)} behind it; the model reads at most {limit}, and both must be there"
        )
    return tokens, len(tokens) - len(after)


def _is_file(path: pathlib.Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or that holds a null character
        return False


def _read(value: Any, near: pathlib.Path, place: str, size: int) -> np.ndarray:
    """One cell of the table as the tower takes it."""
    from PIL import Image

    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if not isinstance(value, (str, bytes)) or not value:
        raise InputError(f"{place}: an image must be a path or the bytes of a file, got {type(value).__name__}")
    source = io.BytesIO(value) if isinstance(value, bytes) else near / value
    if isinstance(source, pathlib.Path) and not _is_file(source):
        raise InputError(
            f"{place}: there is no image file {shown(str(source))}; paths are relative to the table's folder, and an "
            "encoded image must be bytes"
        )
    try:
        with Image.open(source, formats=_FORMATS) as image:
            if max(image.size) ** 2 > (Image.MAX_IMAGE_PIXELS or math.inf):
                raise ValueError(f"{image.width} x {image.height} pixels are too many to pad to a square")
            if image.mode not in _MODES:
                raise ValueError(f"its values are of mode {image.mode}; convert them to 8 bits a channel")
            return vision.pixels(image, size)
    except (OSError, ValueError, SyntaxError, MemoryError, Image.DecompressionBombError) as error:
        raise InputError(f"{place}: the image cannot be read ({error}); read are {', '.join(_FORMATS)}") from error


@functools.partial(jax.jit, static_argnums=(0, 4))
def _read_and_describe(
    spec: VisionLanguageSpec, params: Any, image: jax.Array, prompt: jax.Array, published: bool
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The greedy description [32], and the statistics [P + 32 - 1] of the distribution after each token but the last.

    Statistics from the description's end token on are of no use.
    """
    lm, text, num_prompt = language_model(spec.text), params["text"], prompt.shape[0]
    features = vision.image_features(spec, params, image)
    embedded = vision.embed(spec, params, prompt[None], features)
    keys, values = decoder.keys_and_values(spec.text, text, embedded[:, :-1])
    cache = PrefixCache(keys, values, None)
    table = decoder.readout(spec.text, text)

    def step(number: jax.Array, tokens: jax.Array) -> jax.Array:
        state = hidden_after(spec.text, text, cache, tokens[None, :-1])[0, number]
        scores = jnp.einsum("d,vd->v", state, table, preferred_element_type=jnp.float32)
        return tokens.at[number + 1].set(jnp.argmax(scores).astype(tokens.dtype))

    begun = jnp.zeros(_DESCRIPTION + 1, prompt.dtype).at[0].set(prompt[-1])
    description = lax.fori_loop(0, _DESCRIPTION, step, begun)[1:]
    # the image's token may be among those generated, and is then no image
    written = decoder.embed(spec.text, text, description[None])
    stream = decoder.trunk(spec.text, text, jnp.concatenate([embedded, written], axis=1))
    states = stream.astype(table.dtype)[0, :-1]
    if published:
        return description, _raised(jnp.einsum("td,vd->tv", states, table, preferred_element_type=jnp.float32))
    targets = jnp.concatenate([prompt, description])[1:]
    found = head_statistics(lm, text, states, targets, jnp.ones(num_prompt + _DESCRIPTION - 1, bool), None)
    return description, {name: getattr(found, name) for name in _TARGET_FREE}


def _raised(logits: jax.Array) -> dict[str, jax.Array]:
    """The statistics of softmax(logits) [T, V] with every probability raised to 1e-10 at least; they add up to more."""
    p = jnp.maximum(jax.nn.softmax(logits), _LEAST_PROBABILITY)
    return {
        "mu": (p * jnp.log(p)).sum(-1),
        "renyi_half": 2 * jnp.log(jnp.sqrt(p).sum(-1)),
        "renyi_two": -jnp.log(jnp.square(p).sum(-1)),
        "renyi_inf": -jnp.log(p.max(-1)),
    }


def _of_slices(
    spec: VisionLanguageSpec,
    requests: Sequence[ScoreRequest],
    statistics: dict[str, np.ndarray],
    first: int,
    num_prompt: int,
    length: int,
    published: bool,
) -> Iterator[float]:
    """Every score of every slice; the statistics' entry t - 1 is of the distribution that predicts token t."""
    bounds = {
        "image": (first - spec.tower.num_features, first),
        "instruction+description": (first, num_prompt + length),
        "instruction": (first, num_prompt),
        "description": (num_prompt, num_prompt + length),
    }
    for request in requests:
        for part in SLICES:
            start, stop = bounds[part]
            rows = slice(start - 1 + published, stop - 1)
            if rows.start >= rows.stop:
                yield np.nan
                continue
            columns = np.stack([statistics[name][rows] for name in _TARGET_FREE])
            yield float(request.rows(padded_stats(_TARGET_FREE, [columns], columns.shape[1]))[0])
