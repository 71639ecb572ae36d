"""`tdd.score_images`: images and a vision-language model -> target-free scores of each slice of what the model reads.

The model describes each image by 32 tokens at most, chosen greedily after a fixed instruction (Li et al. 2024,
"Membership inference attacks against large vision-language models", section 4). A slice's score is MaxRenyi-K% of the
distributions that predict its tokens. Every token is read once: the statistics of a description are those of the passes
that wrote it, which a whole pass over image, instruction and description would repeat.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tdd.audit.image_files import ImageFiles, image_rows
from tdd.device_kinds import DeviceKind, kind_of
from tdd.kernels.platforms import product
from tdd.models import budget, decoder, vision
from tdd.models.attention import PrefixCache
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec
from tdd.models.vision import VisionLanguageModel, VisionLanguageSpec
from tdd.records import Scores, Texts
from tdd.runs.display import progress_bar
from tdd.scoring.devices import find_devices
from tdd.scoring.score import Scoring
from tdd.scoring.scores.parts import orders_of, padded_stats
from tdd.scoring.scores.score import Score, as_scores, parse_score
from tdd.scoring.store import ScoreStore
from tdd.scoring.store.address import address, fingerprint
from tdd.scoring.token_stats import tiling, wanted_statistics
from tdd.texts import load_texts
from tdd.validate import InputError, is_memory_error
from tdd.validate.settings import on_own_devices

_logger = logging.getLogger("tdd")

INSTRUCTION = "Describe this image concisely."
SLICES = ("image", "instruction+description", "instruction", "description")

_DESCRIPTION = 32
_TARGET_FREE = ("mu", "renyi_half", "renyi_two", "renyi_inf")
_LEAST_PROBABILITY = 1e-10
_MOST = 32  # images of a batch


@on_own_devices()
def score_images(
    model: Any,
    images: Any,
    scores: Scoring = ("max_renyi:gamma=0.5,k=0.1",),
    *,
    image_field: str = "image",
    id_field: str | None = None,
    revision: str | None = None,
    dtype: str | None = None,
    published: bool = False,
    progress: bool = True,
) -> Scores:
    """Score images under a vision-language model. All scores are loss-like: LOWER = MORE member-like.

    The model reads "USER: <image>\\nDescribe this image concisely. ASSISTANT:", and describes the image greedily by
    at most 32 tokens; the end token and what follows it do not count. The four slices are the image, the instruction
    (all from the image's end to "ASSISTANT:"), the description, and the two together.

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

    Cost: for each distinct image one pass over it and the instruction, and 31 steps of one token. Memory is that of one
    batch: one image on a CPU; on an accelerator as many as fit beside the model, at most 32, and half as many after
    a memory error.
    """
    names = {name: _target_free(score, name) for name, score in as_scores(scores).items()}
    rows, files = image_rows(images, image_field)
    texts = load_texts(rows, text_field=image_field, id_field=id_field)
    if not isinstance(model, VisionLanguageModel):
        model = vision.load_vision_language(model, revision=revision, dtype=dtype)
    columns = {f"{name} {part}": (score, part) for name, score in names.items() for part in SLICES}
    table = score_image_files(model, texts, columns, files=files, published=published, progress=progress)
    provenance = {
        "images": rows.source, "image_field": image_field, "scores": [*names], "dtype": dtype, **table.provenance,
    }  # fmt: skip
    return Scores(table.ids, table.values, table.num_tokens, provenance)


def score_image_files(
    model: Any,
    texts: Texts,
    scores: Mapping[str, tuple[Score, str]],
    *,
    files: ImageFiles,
    dtype: str | None = None,
    published: bool = False,
    progress: bool = True,
    store: Any = None,
) -> Scores:
    """Score images by the SHA-256 of their files, as `tdd.score` scores texts.

    Args:
      model: As in `score_images`.
      texts: Identifiers, and in the place of texts SHA-256.
      scores: Column -> score and slice; see `of_slice`.
      files: The images.
      dtype, published, progress: As in `score_images`.
      store: Folder of a score store in which the statistics of every image are kept, or None; see `tdd.score`.

    Raises:
      InputError: As `score_images`.
    """
    requests = [*scores.values()]
    if not isinstance(model, VisionLanguageModel):
        model = vision.load_vision_language(model, dtype=dtype)
    prompt, first = _prompt(model)
    start, num_prompt = first - model.spec.tower.num_features, len(prompt)
    values, num_tokens = np.full((len(scores), len(texts)), np.nan), np.zeros(len(texts), np.int64)
    rows_of: dict[str, list[int]] = {}
    for row, sha256 in enumerate(texts.texts):
        rows_of.setdefault(sha256, []).append(row)
    with progress_bar("scoring", len(texts), enabled=progress, unit="images") as advance:
        for sha256, statistics in _statistics(model, prompt, list(rows_of), files, published, store):
            rows, stop = rows_of[sha256], statistics.shape[1] + 1
            bounds = {
                "image": (start, first),
                "instruction+description": (first, stop),
                "instruction": (first, num_prompt),
                "description": (num_prompt, stop),
            }
            values[:, rows] = [[_of_slice(request, statistics, bounds[part], published)] for request, part in requests]
            num_tokens[rows] = stop - start
            advance(len(rows))
    provenance = {"instruction": INSTRUCTION, "description_tokens": _DESCRIPTION, "published": published}
    return Scores(texts.ids, dict(zip(scores, values, strict=True)), num_tokens, provenance)


def of_slice(name: Any) -> tuple[Score, str]:
    """The score and the slice of "<score> <slice>".

    Raises:
      InputError: No such slice; as `parse_score`; a score that needs targets.
    """
    score, _, part = str(name).strip().rpartition(" ")
    if part not in SLICES or not score:
        raise InputError(
            f"score {name!r} names no slice of what the model reads; write the score and one of {', '.join(SLICES)}, "
            "as in 'max_renyi:gamma=0.5,k=0.1 image'"
        )
    return _target_free(parse_score(score), score), part


def _target_free(score: Score, label: str) -> Score:
    if orders_of(score.computed):
        raise InputError(f"the score {label!r} is of another order than images have; the orders are 0.5, 1, 2 and inf")
    if not set(score.computed) <= set(_TARGET_FREE) or score.passes():
        raise InputError(
            f"the score {label!r} needs target tokens, and an image has none; use max_renyi, with options as "
            "in 'max_renyi:gamma=1,k=0.1'"
        )
    return score


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


def _statistics(
    model: VisionLanguageModel,
    prompt: np.ndarray,
    hashes: Sequence[str],
    files: ImageFiles,
    published: bool,
    store: Any,
) -> Iterator[tuple[str, np.ndarray]]:
    """SHA-256 of each image, and the statistics `_TARGET_FREE` [4, P + description - 1]; entry t - 1 predicts token t.

    What is in the store is taken from there, and what is computed is added.
    """
    end = -1 if model.tokenizer.eos_token_id is None else model.tokenizer.eos_token_id
    keys = {sha256: bytes.fromhex(sha256[:32]) for sha256 in hashes}
    with contextlib.ExitStack() as stack:
        stored = None
        if store is not None:
            depends = {"prompt": prompt.tolist(), "end": end, "description": _DESCRIPTION, "published": published}
            depends["passes"] = 1  # code that read every token twice computed other last digits
            where = address("images", fingerprint(model.spec, model.params), find_devices(), **depends)
            stored = stack.enter_context(ScoreStore(store)).namespace(where)
        missing = []
        for sha256, key in keys.items():
            if stored is not None and stored.has(key, _TARGET_FREE):
                yield sha256, stored.read(key, _TARGET_FREE)
            else:
                missing.append(sha256)
        for sha256, description, columns in _computed(model, prompt, missing, files, published):
            length = int(np.argmax(np.append(description == end, True)))
            statistics = np.stack([columns[name][: len(prompt) + length - 1] for name in _TARGET_FREE])
            rows = [statistics] if stored is None else stored.append([keys[sha256]], [statistics], _TARGET_FREE)
            yield sha256, rows[0]


def _computed(
    model: VisionLanguageModel, prompt: np.ndarray, hashes: Sequence[str], files: ImageFiles, published: bool
) -> Iterator[tuple[str, np.ndarray, dict[str, np.ndarray]]]:
    """SHA-256 of each image, its description [32], and the statistics [P + 32 - 1] by name, batch by batch."""
    kind = kind_of(next(iter(jnp.asarray(jax.tree.leaves(model.params)[0]).devices())))
    size, first = min(_batch_size(model, len(prompt), kind), max(1, len(hashes))), 0
    while first < len(hashes):
        images, unreadable = _readable(model.spec, files, hashes[first : first + size])
        if images:
            padding = ((0, size - len(images)), (0, 0), (0, 0), (0, 0))  # one shape, one compilation
            batch = np.pad(np.stack(images), padding)
            try:
                found = _read_and_describe(model.spec, model.params, batch, jnp.asarray(prompt), published)
                descriptions, columns = jax.device_get(found)
            except Exception as error:
                if size == 1 or not is_memory_error(error):
                    raise
                size //= 2
                _logger.warning("out of memory: going on with batches of %d image%s", size, "s" * (size > 1))
                continue
            for row in range(len(images)):
                yield hashes[first + row], descriptions[row], {name: column[row] for name, column in columns.items()}
        if unreadable is not None:
            raise unreadable
        first += len(images)


def _readable(
    spec: VisionLanguageSpec, files: ImageFiles, hashes: Sequence[str]
) -> tuple[list[np.ndarray], InputError | None]:
    """The pixels of the images up to the first that cannot be read, and why it cannot; what comes before it is kept."""
    images = []
    for sha256 in hashes:
        try:
            with files.open(sha256) as image:
                images.append(vision.pixels(image, spec.tower.image_size))
        except InputError as error:
            return images, error
    return images, None


def _batch_size(model: VisionLanguageModel, num_prompt: int, kind: DeviceKind) -> int:
    """Images that fit on a device beside the model: one on a CPU, where more would gain nothing."""
    if kind.memory is None:
        return 1
    text, rows, leaves = model.spec.text, num_prompt + _DESCRIPTION, jax.tree.leaves(model.params)
    dtype = decoder.readout(text, model.params["text"]).dtype
    kept = 2 * 4 * text.num_layers * rows * text.attention.kv_heads * text.attention.head_dim
    an_image = kept + budget.temporary(text, dtype, 1, length=rows, tile=tiling(kind.platform).chunk)
    return int(np.clip((kind.memory - sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)) // an_image, 1, _MOST))


def _of_slice(request: Score, statistics: np.ndarray, bounds: tuple[int, int], published: bool) -> float:
    """A score of the tokens between the bounds; NaN where there are none."""
    columns = statistics[:, bounds[0] - 1 + published : bounds[1] - 1]
    if not columns.size:
        return np.nan
    return float(request.rows(padded_stats(_TARGET_FREE, [columns], columns.shape[1]))[0])


@functools.partial(jax.jit, static_argnums=(0, 4))
def _read_and_describe(
    spec: VisionLanguageSpec, params: Any, images: jax.Array, prompt: jax.Array, published: bool
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Greedy descriptions [B, 32], and statistics [B, P + 32 - 1] of the distribution after each token but the last.

    Statistics from a description's end token on are of no use.
    """
    text, batch = params["text"], images.shape[0]
    features = vision.image_features(spec, params, images)
    prompts = jnp.broadcast_to(prompt, (batch, *prompt.shape))
    embedded = vision.embed(spec, params, prompts, features)
    descriptions, stream = _described(spec.text, text, embedded)
    table = decoder.readout(spec.text, text)
    states = stream.astype(table.dtype)
    if published:
        return descriptions, lax.map(lambda rows: _raised(product("td,vd->tv", rows, table)), states)
    targets = jnp.concatenate([prompts, descriptions], axis=1)[:, 1:]
    rows = (states.reshape(-1, states.shape[-1]), targets.reshape(-1), jnp.ones(targets.size, bool))
    found = wanted_statistics(language_model(spec.text), text, *rows, None, _TARGET_FREE)
    return descriptions, {name: column.reshape(targets.shape) for name, column in found.items()}


def _described(spec: DecoderSpec, params: Any, embedded: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The 32 most probable tokens in turn [B, 32] behind embedded prompts [B, P, D], and the stream [B, P + 31, D]."""
    num_prompt, table = embedded.shape[1], decoder.readout(spec, params)
    stream, *cache = decoder.trunk_with_cache(spec, params, embedded)
    room = ((0, 0), (0, 0), (0, _DESCRIPTION - 1), (0, 0), (0, 0))

    def most_probable(states: jax.Array) -> jax.Array:
        return jnp.argmax(product("bd,vd->bv", states.astype(table.dtype), table), axis=1).astype(jnp.int32)

    def step(carry: tuple[jax.Array, ...], number: jax.Array) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
        words, *cache = carry

        # the cache has its layers first, so that no step turns it over
        @functools.partial(jax.vmap, in_axes=(0, 1, 1), out_axes=(0, 1, 1))
        def read(word: jax.Array, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            # the image's token may be among those generated, and is then no image
            own = decoder.embed(spec, params, word[None, None])
            past = PrefixCache(key[:, None], value[:, None], num_prompt + number)
            state, *new = decoder.trunk_with_cache(spec, params, own, past)
            return state[0, 0], new[0][:, 0], new[1][:, 0]

        states, *new = read(words, *cache)
        cache = [
            lax.dynamic_update_slice_in_dim(old, one, num_prompt + number, axis=2)
            for old, one in zip(cache, new, strict=True)
        ]
        return (most_probable(states), *cache), (words, states)

    begun = (most_probable(stream[:, -1]), *(jnp.pad(part, room) for part in cache))
    (last, *_), (words, states) = lax.scan(step, begun, jnp.arange(_DESCRIPTION - 1))
    descriptions = jnp.concatenate([words, last[None]]).T
    return descriptions, jnp.concatenate([stream, jnp.swapaxes(states, 0, 1)], axis=1)


def _raised(logits: jax.Array) -> dict[str, jax.Array]:
    """The statistics of softmax(logits) [T, V] with every probability raised to 1e-10 at least; they add up to more."""
    p = jnp.maximum(jax.nn.softmax(logits), _LEAST_PROBABILITY)
    return {
        "mu": (p * jnp.log(p)).sum(-1),
        "renyi_half": 2 * jnp.log(jnp.sqrt(p).sum(-1)),
        "renyi_two": -jnp.log(jnp.square(p).sum(-1)),
        "renyi_inf": -jnp.log(p.max(-1)),
    }
