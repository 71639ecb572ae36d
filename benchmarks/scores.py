"""All scores in one table, and the data owner's test from 1 to 64 documents, on models whose training data is known.

Each seed draws a corpus, trains a tiny model on a random part of it (and a reference model on other documents of the
same kind), and scores members and non-members under it. Nobody has chosen anything by these labels: scores have their
default options. A folder keeps the finished seeds, so that an interrupted run goes on.

    python -m benchmarks.scores [--seeds 10] [--folder scores-of-seeds]
"""

from __future__ import annotations

import argparse
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tdd
from benchmarks import harness
from benchmarks.known_truth import auc, divide, mean_and_error
from benchmarks.paraphrases import paraphrases
from tdd.lab.corpus import generate
from tdd.lab.plant import take
from tdd.lab.recipe import TrainConfig
from tdd.lab.tokens import train_tokenizer
from tdd.lab.train import train
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import Attention, DecoderSpec, Mlp, RmsNorm, RotaryPositions
from tdd.records import LanguageModel, Texts
from tdd.scoring.scores.score import SCORES, fields_of

ALPHA = 0.1
REFERENCES = 4
"""Reference models, each trained on documents of its own: LiRA needs several."""
PARTS = {
    "member": 100, "nonmember": 200, "background": 100, "beside": 480, "corpus": 200, "prefix": 2, "member_prefix": 2,
    "population": 50, "tune_on": 50,
}  # fmt: skip
"""Documents by use. "beside" trains the reference models; member_prefix is trained on; the last five are those that
scores take beside the model, one name each."""
DOCUMENTS, PRIVATE, OWNED = 64, 19, (1, 2, 4, 8, 16, 32, 64)
VOCABULARY, LAYERS, WIDTH, HEADS, POSITIONS = 1024, 2, 64, 4, 512
CONFIG = TrainConfig(epochs=10, batch_size=16, learning_rate=4e-3, max_length=256, num_buckets=1)
TOKENIZER_SEED, CORPUS_SEED, VERSIONS_SEED = 20_241, 30_000, 40_000
DRAWS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("scores-of-seeds"))
    options = parser.parse_args()
    of_seeds = harness.of_seeds(range(options.seeds), options.folder, measure)
    harness.write("scores", {"command": f"python -m benchmarks.scores --seeds {options.seeds}", **joined(of_seeds)})


def measure(seed: int, names: Sequence[str] = tuple(SCORES), config: TrainConfig = CONFIG) -> dict[str, Any]:
    """Train the models of one seed; measure all scores and the owner's test."""
    start = time.perf_counter()
    pool = generate(sum(PARTS.values()) + DOCUMENTS, seed=CORPUS_SEED + seed)
    order = np.random.default_rng(seed).permutation(len(pool))
    bounds = np.cumsum([0, *PARTS.values()])
    parts = {name: take(pool, order[bounds[i] : bounds[i + 1]]) for i, name in enumerate(PARTS)}
    owned = take(pool, order[bounds[-1] :])
    versions = paraphrases(owned.texts, 1 + PRIVATE, seed=VERSIONS_SEED + seed)  # exchangeable: any is the drawn one
    published = [texts[0] for texts in versions]
    tokenizer = train_tokenizer(generate(2_000, seed=TOKENIZER_SEED).texts, vocab_size=VOCABULARY)
    seen = [*parts["member"].texts, *parts["background"].texts, *parts["member_prefix"].texts, *published]
    lm = tiny()
    model = trained(lm, tokenizer, seen, config, 2 * seed)
    references = [
        trained(lm, tokenizer, parts["beside"].texts[number::REFERENCES], config, 2 * seed + 1 + 1_000 * number)
        for number in range(REFERENCES)
    ]
    texts = Texts(parts["member"].ids + parts["nonmember"].ids, parts["member"].texts + parts["nonmember"].texts)
    table = tdd.score(model, texts, {name: given(name, parts, references) for name in names}, progress=False)
    member = np.arange(len(texts)) < PARTS["member"]
    rows = []
    for name in names:
        realised = divide(table[name], member, calibration=PARTS["nonmember"] // 2, alpha=ALPHA, repetitions=DRAWS)
        rows.append({"score": name, "auc": auc(table[name], member), **realised.summary()})
    return {
        "seed": seed,
        "scores": rows,
        "owner": {"trained": owners(model, versions, seed), "not trained": owners(references[0], versions, seed)},
        "seconds": time.perf_counter() - start,
    }


def given(name: str, parts: Mapping[str, Texts], references: Sequence[Any]) -> Any:
    """A score with the models and texts that it needs."""
    fields = {field: what.kind for field, what in fields_of(SCORES[name]).items() if what is not None}
    return SCORES[name](**{field: parts[field] if kind == "texts" else [*references] for field, kind in fields.items()})


def tiny() -> LanguageModel:
    """A tiny model in the layout of LLaMA."""
    head = WIDTH // HEADS
    spec = DecoderSpec(
        VOCABULARY,
        WIDTH,
        LAYERS,
        RmsNorm(),
        RotaryPositions(POSITIONS, head),
        Attention(HEADS, head, (head**-0.5,) * LAYERS, qkv_bias=False, out_bias=False),
        Mlp(3 * WIDTH, "silu", gated=True, bias=False),
    )
    return language_model(spec)


def trained(
    lm: LanguageModel, tokenizer: Any, texts: Sequence[str], config: TrainConfig, seed: int
) -> tuple[LanguageModel, Any, Any]:
    """The model, trained on the texts from random parameters: (lm, params, tokenizer)."""
    start = init_params(lm.spec, jax.random.key(seed))  # type: ignore[arg-type]
    return lm, train(lm, start, tokenizer, texts, config=config).params, tokenizer


def owners(model: Any, versions: Sequence[Sequence[str]], seed: int) -> dict[str, dict[str, float]]:
    """Rejections at level .05 of `tdd.version_test` on the loss, over random sets of so many documents."""
    flat = tuple(text for texts in versions for text in texts)
    losses = tdd.score(model, flat, "loss", progress=False)["loss"].reshape(len(versions), -1)
    rng, found = np.random.default_rng(seed), {}
    for size in OWNED:
        chosen = jnp.asarray(np.stack([rng.permutation(len(versions))[:size] for _ in range(DRAWS)]))
        p_values = _p_values(jnp.asarray(losses, jnp.float32), chosen)
        found[str(size)] = {"rejected": float((p_values <= 0.05).mean()), "median_p": float(np.median(p_values))}
    return found


@jax.jit
def _p_values(losses: jax.Array, chosen: jax.Array) -> jax.Array:
    """p-values of sets of documents, whose published version is in the first column."""
    return jax.lax.map(lambda rows: tdd.version_test(losses[rows, 0], losses[rows, 1:]).p_value, chosen)


def joined(of_seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the seeds with their standard errors."""
    rows = []
    for row in of_seeds[0]["scores"]:
        each = [next(one for one in found["scores"] if one["score"] == row["score"]) for found in of_seeds]
        figures = {}
        for name in ("auc", "fdr", "power"):
            figures[name], figures[f"{name}_se"] = mean_and_error([one[name] for one in each])
        score = SCORES[row["score"]]()
        beside = [*score.given] or [*score.passes()]
        rows.append({"score": row["score"], "beside": beside, **figures})
    owner = []
    for size in OWNED:
        row: dict[str, Any] = {"documents": size}
        for name, key in (("trained", "rejected"), ("not trained", "rejected"), ("trained", "median_p")):
            label = name if key == "rejected" else f"{name}, median p"
            row[label], row[f"{label}_se"] = mean_and_error([one["owner"][name][str(size)][key] for one in of_seeds])
        owner.append(row)
    return {
        "version": tdd.__version__,
        "seeds": len(of_seeds),
        "alpha": ALPHA,
        "members": PARTS["member"],
        "nonmembers": PARTS["nonmember"],
        "draws": DRAWS,
        "epochs": CONFIG.epochs,
        "private": PRIVATE,
        "seconds": sum(one["seconds"] for one in of_seeds),
        "rows": rows,
        "owner": owner,
    }


if __name__ == "__main__":
    main()
