"""PTDI on the slices of a vision-language model: drawn images in tiny models of LLaVA's architecture, known truth.

The paper's figures 4 and 7, and table 3's sizes: a pool of 300 images that the model was trained on and 300 that it was
not; random halves, of which the non-members of one calibrate and the other is tested; MaxRenyi-K% of the slices. Each
seed draws its images, trains a model on them from random parameters (loss on the captions alone, as LLaVA's), and
scores the pool, and a second one of which the model has seen nothing. A folder keeps the finished seeds.

    python -m benchmarks.slices [--seeds 4] [--folder slices-of-seeds]
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from PIL import Image

import tdd
from benchmarks import harness
from benchmarks.drawn_images import VOCABULARY, Drawn, draw, png
from benchmarks.known_truth import auc, mean_and_error
from tdd.audit.images import INSTRUCTION, SLICES
from tdd.lab.step import adamw_direction, decay_mask, learning_rates
from tdd.models import decoder, vision
from tdd.models.spec import Attention, DecoderSpec, Mlp, RmsNorm, RotaryPositions
from tdd.models.vision import VisionLanguageModel, VisionLanguageSpec, VisionTower
from tdd.records import Scores

MEMBERS, NONMEMBERS, BACKGROUND = 300, 300, 1200
"""Images of the pool by label, and further ones that are trained on; the null pool has as many as the pool."""
EPOCHS, COPIES, BATCH, RATE = 14, 2, 16, 1e-3
"""An epoch shows each member `COPIES` times, other images once. Epochs and copies were chosen on the images of seed 0,
which is not reported: with fewer nothing is memorised, with more the description tells all members apart."""
SCALE = 4.0
"""Of the decoder's first matrices, whose standard deviation of 0.02 is made for models ten times as wide."""
SIZE, PATCH, TOWER_WIDTH, TOWER_LAYERS = 28, 7, 64, 2
WIDTH, LAYERS, HEADS, POSITIONS = 96, 3, 4, 64
ALPHAS, REPETITIONS, DIVISIONS = (0.05, 0.1, 0.2), 10_000, 2_000
NOTHING = 559, 28
"""Calibration items n and candidates m where nothing is to be found: alpha (n + 1) / m is whole for every level, so
that the vanilla rule reaches it."""
GAMMAS, SHARES = ("0.5", "1", "2", "inf"), ("0", "0.1", "1")
OF_PAPER = {"LLaVA-1.5": "max_renyi:gamma=0.5,k=0.1", "MiniGPT-4": "max_renyi:gamma=0.5,k=1"}
"""The scores that the paper takes for each model (figures 7 and 4)."""
METHODS, PROPORTIONS = ("none", "subtraction"), (0.1, 0.3, 0.5, 0.7, 0.9)
FORMS = {"shifted": False, "published": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("slices-of-seeds"))
    options = parser.parse_args()
    of_seeds = harness.of_seeds(range(1, 1 + options.seeds), options.folder, measure)
    harness.write("slices", {"command": f"python -m benchmarks.slices --seeds {options.seeds}", **joined(of_seeds)})


def measure(seed: int) -> dict[str, Any]:
    """Train one model; measure AUC, FDR and power of all slices, and what is selected from images it has not seen."""
    start = time.perf_counter()
    spec, tokenizer = tiny()
    drawn = draw(MEMBERS + NONMEMBERS + BACKGROUND, SIZE, 2 * seed)
    unseen = draw(MEMBERS + NONMEMBERS, SIZE, 2 * seed + 1)
    order = np.random.default_rng(seed).permutation(len(drawn.captions))
    pool, background = order[: MEMBERS + NONMEMBERS], order[MEMBERS + NONMEMBERS :]
    trained_on = np.concatenate([*[pool[:MEMBERS]] * COPIES, background])
    model, losses = trained(spec, tokenizer, drawn, trained_on, seed)
    member = np.arange(len(pool)) < MEMBERS
    tables = {form: scored(model, drawn.images[pool], published) for form, published in FORMS.items()}
    nothing = scored(model, unseen.images, False)
    return {
        "seed": seed,
        "losses": losses,
        "description_tokens": float(tables["shifted"].num_tokens.mean() - spec.tower.num_features - _behind(tokenizer)),
        "auc": [
            {"form": form, "score": name, "slice": part, "auc": auc(table[f"{name} {part}"], member)}
            for form, table in tables.items()
            for name in names()
            for part in SLICES
        ],
        "ptdi": [row for form, table in tables.items() for row in half_splits(form, table, member, seed)],
        "proportions": proportions(tables["shifted"], member, seed),
        "null": [
            row for name in OF_PAPER.values() for part in SLICES for row in null(nothing, name, part, member, seed)
        ],
        "seconds": time.perf_counter() - start,
    }


def names() -> list[str]:
    """All options of the score that are compared."""
    return [f"max_renyi:gamma={gamma},k={share}" for gamma in GAMMAS for share in SHARES]


def tiny() -> tuple[VisionLanguageSpec, Any]:
    """A tiny model of LLaVA's architecture, and a tokenizer of the words that it reads and writes."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<unk>", "</s>", "<image>", "USER:", "ASSISTANT:", *INSTRUCTION.split(), *VOCABULARY]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    head = WIDTH // HEADS
    text = DecoderSpec(
        len(words),
        WIDTH,
        LAYERS,
        RmsNorm(),
        RotaryPositions(POSITIONS, head),
        Attention(HEADS, head, (head**-0.5,) * LAYERS, qkv_bias=False, out_bias=False),
        Mlp(3 * WIDTH, "silu", gated=True, bias=False),
    )
    tower = VisionTower(SIZE, PATCH, TOWER_WIDTH, TOWER_LAYERS, TOWER_LAYERS, 4, 4 * TOWER_WIDTH)
    spec = VisionLanguageSpec(tower, text, words.index("<image>"))
    return spec, PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", eos_token="</s>")


def initial(spec: VisionLanguageSpec, key: jax.Array) -> dict[str, Any]:
    """Random parameters: matrices normal with variance 1 / inputs, class and positions with deviation 0.02."""
    tower, width = spec.tower, spec.tower.width
    keys = iter(jax.random.split(key, 10))

    def dense(inputs: int, outputs: int, *layers: int) -> dict[str, Any]:
        kernel = jax.random.normal(next(keys), (*layers, inputs, outputs)) * inputs**-0.5
        return {"kernel": kernel, "bias": jnp.zeros((*layers, outputs))}

    def norm(*layers: int) -> dict[str, Any]:
        return {"scale": jnp.ones((*layers, width)), "bias": jnp.zeros((*layers, width))}

    used, area = tower.num_used, 3 * tower.patch_size**2
    layers = {
        "attention_norm": norm(used),
        "qkv": dense(width, 3 * width, used),
        "attention_out": dense(width, width, used),
        "mlp_norm": norm(used),
        "mlp_in": dense(width, tower.mlp_width, used),
        "mlp_out": dense(tower.mlp_width, width, used),
    }
    text = decoder.init_params(spec.text, next(keys))
    patches = jax.random.normal(next(keys), (width, 3, tower.patch_size, tower.patch_size)) * area**-0.5
    return {
        "tower": {
            "class": {"row": 0.02 * jax.random.normal(next(keys), (width,))},
            "patches": {"kernel": patches},
            "positions": {"rows": 0.02 * jax.random.normal(next(keys), (tower.num_patches + 1, width))},
            "first_norm": norm(),
            "layers": layers,
        },
        "projector": {"in": dense(width, spec.text.width), "out": dense(spec.text.width, spec.text.width)},
        "text": jax.tree.map(lambda leaf, matrix: SCALE * leaf if matrix else leaf, text, decay_mask(text)),
    }


def _behind(tokenizer: Any) -> int:
    """Tokens of the instruction behind the image."""
    return len(tokenizer(f"\n{INSTRUCTION} ASSISTANT:")["input_ids"])


def trained(
    spec: VisionLanguageSpec, tokenizer: Any, drawn: Drawn, chosen: np.ndarray, seed: int
) -> tuple[VisionLanguageModel, list[float]]:
    """A model trained from random parameters on the chosen images, and the mean loss of every epoch in nats a token."""
    before, end = tokenizer("USER: ")["input_ids"], tokenizer.eos_token_id
    behind = tokenizer(f"\n{INSTRUCTION} ASSISTANT:")["input_ids"]
    prompt = vision.with_placeholders(spec, [*before, spec.image_token, *behind])
    written = [[*tokenizer(drawn.captions[i])["input_ids"], end] for i in chosen]
    length = len(prompt) + max(map(len, written))
    tokens = np.array([[*prompt, *ids, *[end] * (length - len(prompt) - len(ids))] for ids in written], np.int32)
    place = np.arange(length)
    mask = np.array([(place >= len(prompt)) & (place < len(prompt) + len(ids)) for ids in written])
    images = np.stack([vision.pixels(Image.fromarray(drawn.images[i]), spec.tower.image_size) for i in chosen])
    steps, rng = len(chosen) // BATCH, np.random.default_rng(seed)
    order = np.stack([rng.permutation(len(chosen))[: steps * BATCH].reshape(steps, BATCH) for _ in range(EPOCHS)])
    rates = learning_rates(EPOCHS * steps, peak=RATE, warmup=0.1, final=0.1).reshape(EPOCHS, steps)
    optimizer = adamw_direction(beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip_norm=1.0)
    params = initial(spec, jax.random.key(seed))
    moments, losses = optimizer.init(params), []
    data = tuple(map(jnp.asarray, (images, tokens, mask)))
    for batches, rate in zip(order, rates, strict=True):
        params, moments, loss = _epoch(spec, optimizer, params, moments, data, batches, rate)
        losses.append(float(loss))
    return VisionLanguageModel(spec, params, tokenizer), losses


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=(2, 3))
def _epoch(
    spec: VisionLanguageSpec,
    optimizer: optax.GradientTransformation,
    params: Any,
    moments: Any,
    data: tuple[jax.Array, jax.Array, jax.Array],
    batches: jax.Array,
    rates: jax.Array,
) -> tuple[Any, Any, jax.Array]:
    """One step for each row of `batches` [steps, B]; the last result is the mean loss of a caption's token."""

    def loss_of(params: Any, chosen: jax.Array) -> jax.Array:
        images, tokens, mask = (part[chosen] for part in data)
        logits = vision.logits(spec, params, tokens, vision.image_features(spec, params, images))
        losses = optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:])
        return jnp.where(mask[:, 1:], losses, 0).sum() / mask.sum()

    def step(state: tuple[Any, Any], batch: tuple[jax.Array, jax.Array]) -> tuple[tuple[Any, Any], jax.Array]:
        (params, moments), (chosen, rate) = state, batch
        loss, gradient = jax.value_and_grad(loss_of)(params, chosen)
        direction, moments = optimizer.update(gradient, moments, params)
        return (jax.tree.map(lambda p, d: p - rate * d, params, direction), moments), loss

    (params, moments), losses = lax.scan(step, (params, moments), (batches, rates))
    return params, moments, losses.mean()


def scored(model: VisionLanguageModel, images: np.ndarray, published: bool) -> Scores:
    """All scores of all slices by `tdd.score_images`."""
    rows = [{"image": png(image)} for image in images]
    return tdd.score_images(model, rows, names(), published=published, progress=False)


def half_splits(form: str, table: Scores, member: np.ndarray, seed: int) -> list[dict[str, Any]]:
    """FDR and power of PTDI over random halves of the pool, without and with the scaling."""
    rows = []
    for name in OF_PAPER.values():
        for part in SLICES:
            found = _resampled(table[f"{name} {part}"], member, METHODS, seed)
            for (i, method), (j, alpha) in ((a, b) for a in enumerate(METHODS) for b in enumerate(ALPHAS)):
                cell = {"fdr": float(found.fdr[i, j]), "power": float(found.power[i, j])}
                rows.append({"form": form, "score": name, "slice": part, "method": method, "alpha": alpha, **cell})
    return rows


def proportions(table: Scores, member: np.ndarray, seed: int) -> list[dict[str, Any]]:
    """The same for test sets of which a given proportion are members, with as many calibration items (figure 4)."""
    rows, name = [], OF_PAPER["MiniGPT-4"]
    for part in SLICES:
        for share in PROPORTIONS:
            found = _resampled(table[f"{name} {part}"], member, ("subtraction",), seed, test_members=share)
            for j, alpha in enumerate(ALPHAS):
                cell = {"fdr": float(found.fdr[0, j]), "power": float(found.power[0, j])}
                rows.append({"slice": part, "members": share, "alpha": alpha, **cell})
    return rows


def _resampled(scores: np.ndarray, member: np.ndarray, methods: Sequence[str], seed: int, **sizes: Any) -> Any:
    known = ~np.isnan(scores)  # an empty description has no score
    return tdd.study.resample(
        scores[known],
        member[known],
        alphas=ALPHAS,
        methods=methods,
        repetitions=REPETITIONS,
        key=jax.random.key(seed),
        **sizes,
    )


def null(table: Scores, name: str, part: str, label: np.ndarray, seed: int) -> list[dict[str, Any]]:
    """How often anything is selected where nothing was trained on, and the AUC of labels that mean nothing."""
    scores = table[f"{name} {part}"]
    known = ~np.isnan(scores)
    drawn = jnp.asarray(scores[known][: sum(NOTHING)])
    keys, area = jax.random.split(jax.random.key(seed), DIVISIONS), auc(scores[known], label[known])
    rates = {alpha: float(_any_selected(drawn, alpha, keys, calibration=NOTHING[0])) for alpha in ALPHAS}
    return [{"score": name, "slice": part, "alpha": alpha, "any": rate, "auc": area} for alpha, rate in rates.items()]


@functools.partial(jax.jit, static_argnames="calibration")
def _any_selected(scores: jax.Array, alpha: Any, keys: jax.Array, *, calibration: int) -> jax.Array:
    """The share of random divisions in which anything is selected: []."""

    def one(key: jax.Array) -> jax.Array:
        shuffled = jax.random.permutation(key, scores)
        found = tdd.ptdi(shuffled[:calibration], shuffled[calibration:], alpha=alpha, proportion="none")
        return found.num_selected > 0

    return lax.map(one, keys, batch_size=50).mean()


def joined(of_seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the seeds with their standard errors."""
    figures = {"auc": ("auc",), "ptdi": ("fdr", "power"), "proportions": ("fdr", "power"), "null": ("any", "auc")}
    tables: dict[str, list[dict[str, Any]]] = {}
    for table, measured in figures.items():
        tables[table] = []
        for rows in zip(*(found[table] for found in of_seeds), strict=True):
            row = {key: value for key, value in rows[0].items() if key not in measured}
            for figure in measured:
                row[figure], row[f"{figure}_se"] = mean_and_error([one[figure] for one in rows])
            tables[table].append(row)
    return {
        "version": tdd.__version__,
        "seeds": len(of_seeds),
        "members": MEMBERS,
        "nonmembers": NONMEMBERS,
        "background": BACKGROUND,
        "epochs": EPOCHS,
        "copies": COPIES,
        "repetitions": REPETITIONS,
        "divisions": DIVISIONS,
        "nothing": NOTHING,
        "loss": [float(np.mean([found["losses"][epoch] for found in of_seeds])) for epoch in (0, -1)],
        "description_tokens": float(np.mean([found["description_tokens"] for found in of_seeds])),
        "seconds": sum(found["seconds"] for found in of_seeds),
        **tables,
    }


if __name__ == "__main__":
    main()
