"""TD4Eval's application: a benchmark that one of several models was trained on, and rankings before and after cleaning.

Models of different training lengths answer a multiple-choice benchmark (`benchmark_items`). One of the weaker ones is
trained further on a share of the items with their right answers. 30% of the items are the validation set, whose
contaminated items calibrate; on the others, TD4Eval selects clean items. So does each of its six detectors, by BH on
its p-values and by the threshold of the highest accuracy on the validation set (appendix 11.3). The models are then
ranked on all test items, on the selected ones, and on those that are truly clean; Spearman's correlation (SRCC)
compares with the last, as in the paper's table 2 and, by the share of contamination, its tables 8 to 11.

The models on the selected items are the same as on the truly clean ones, the contaminated one included. Selection is
not neutral: the clean items it keeps are those that the contaminated model finds improbable, so its rank may come out
below the true one where power is low.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.reproductions.benchmark_items import Benchmark, benchmark
from benchmarks.reproductions.models import Base, answer_log_probs, fine_tune, score_table, trained_stages
from benchmarks.reproductions.record import Reproduction, Row, Run
from benchmarks.reproductions.summary import mean_and_error, spearman
from tdd.procedures.p_values import conformal_p_values
from tdd.procedures.td4eval import td4eval
from tdd.procedures.testing import bh
from tdd.study.baselines import threshold

__all__ = ["DETECTORS", "REPRODUCTION", "RULES", "Sizes"]

ALPHA = 0.15
DETECTORS = ("loss", "lowercase", "zlib", "grad_norm", "min_k", "min_k_plus_plus")
"""The six of the paper's table 2: PPL, Lowercase, Zlib, Grad, Min-K% and Min-K%++."""
SHARES = (0.05, 0.1, 0.25, 0.5)
METRICS = ("accuracy", "log-likelihood")
_VALIDATION = 0.3

_ITEMS, _CHOICE, _SPLIT = 800_000, 810_000, 820_000

RULES: dict[str, dict[str, Any] | None] = {
    "nothing removed": None,
    **{f"{name}, threshold": None for name in DETECTORS},
    **{f"{name} alone": None for name in DETECTORS},
    "TD4Eval, Cauchy (the paper)": {"combine": "cauchy"},
    "TD4Eval, pooled ranks, sum": {"combine": "pooled_rank", "rule": "sum"},
    "TD4Eval, pooled ranks, Cauchy": {"combine": "pooled_rank", "rule": "cauchy"},
}
"""Name in the tables -> options of `tdd.td4eval`; a detector alone is BH on its conformal p-values, and a threshold is
that of `tdd.study.baselines.threshold`, which guarantees nothing."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of the experiment.

    Attributes:
      items: Items of the benchmark.
      documents: Training documents of the models.
      stages: Epochs of training between one model and the next.
      contaminated: Index of the model that is trained on items, counted from the weakest.
      width: Width of the models.
      sets: Random sets of items for each fraction of contamination.
      epochs, learning_rate: Options of the training on items.
      splits: Random divisions into validation and test set.
      max_length: Tokens of an item.
    """

    items: int = 800
    documents: int = 500
    stages: tuple[int, ...] = (1, 1, 1, 1, 2, 2, 2, 2)
    contaminated: int = 1
    width: int = 64
    sets: int = 3
    epochs: int = 12
    learning_rate: float = 6e-3
    splits: int = 200
    max_length: int = 64

    @classmethod
    def at(cls, scale: float) -> Sizes:
        """Items, documents, width and sets grow with the scale; a very small one has three models."""
        small = scale < 0.1
        return cls(
            items=max(80, round(800 * scale)),
            documents=max(48, round(500 * scale)),
            stages=(1, 1, 1) if small else cls.stages,
            width=16 if small else max(32, round(64 * scale**0.5 / 32) * 32),
            sets=max(1, round(3 * scale**0.5)),
            epochs=2 if small else 12,
            splits=20 if small else 200,
        )


def _measure(run: Run, sizes: Sizes) -> tuple[list[Row], dict[str, Any], dict[str, Any]]:
    """Train, contaminate, clean, rank; see the module."""
    items = benchmark(sizes.items, seed=_ITEMS + run.options.seed, swaps=3)
    models = functools.cache(
        lambda: trained_stages(
            run.options.folder,
            documents=sizes.documents,
            stages=sizes.stages,
            width=sizes.width,
            seed=run.options.seed,
            progress=run.options.progress,
        )
    )
    clean = run.cell("models", lambda: [_answered(model, items, sizes) for model in models()])
    rows: list[Row] = []
    for share in SHARES:
        for index in range(sizes.sets):
            compute = functools.partial(_contaminated, share, index, run.options.seed, sizes, items, models, clean)
            cleaned = run.cell(f"contaminated-{share:g}-{index}", compute)
            rows += [{"share": share, "set": index, **row} for row in cleaned]
    accuracy = [float(np.mean(model["right"])) for model in clean]
    return rows, {"The models before contamination": _skills(accuracy, sizes), **_tables(rows)}, {}


def _answered(model: Base, items: Benchmark, sizes: Sizes) -> dict[str, list[float]]:
    """For each item, whether the model ranks the right answer first, and the log-probability of that answer."""
    log_probs = answer_log_probs(model, items.prompts, items.options, max_length=sizes.max_length)
    of_right = log_probs[np.arange(len(items)), items.right]
    return {"right": (log_probs.argmax(axis=1) == items.right).astype(int).tolist(), "log_prob": of_right.tolist()}


def _contaminated(
    share: float,
    index: int,
    seed: int,
    sizes: Sizes,
    items: Benchmark,
    models: Callable[[], Sequence[Base]],
    clean: Sequence[dict[str, list[float]]],
) -> list[Row]:
    """One contaminated model: what each rule selects and how the models rank there."""
    rng = np.random.default_rng([_CHOICE + seed, round(share * 1000), index])
    member = np.isin(np.arange(len(items)), rng.permutation(len(items))[: round(share * len(items))])
    texts = items.texts()
    model = fine_tune(
        models()[sizes.contaminated],
        [text for text, planted in zip(texts, member, strict=True) if planted],
        epochs=sizes.epochs,
        learning_rate=sizes.learning_rate,
        seed=seed * 1_000 + index,
        max_length=sizes.max_length,
    )
    answered = [*clean]
    answered[sizes.contaminated] = _answered(model, items, sizes)
    table = score_table(model, texts, DETECTORS, max_length=sizes.max_length)
    scores = np.stack([table[name] for name in DETECTORS])
    values = {
        "accuracy": np.array([each["right"] for each in answered], float),
        "log-likelihood": np.array([each["log_prob"] for each in answered], float),
    }
    splits = _splits(member, sizes.splits, np.random.default_rng([_SPLIT + seed, round(share * 1000), index]))
    return _cleaned(scores, member, values, splits, sizes.contaminated)


class Splits(NamedTuple):
    """Random divisions of the items, padded to sizes that do not depend on the share of contamination.

    Attributes:
      calibration: [splits, n] items, contaminated ones of the validation set.
      real: [n] bool, False where `calibration` is padding.
      tested: [splits, m] items of the test set.
      mask: [m] bool, False where `tested` is padding.
      clean: [splits, c] items, clean ones of the validation set, which only thresholds need.
      clean_real: [c] bool, False where `clean` is padding.
    """

    calibration: np.ndarray
    real: np.ndarray
    tested: np.ndarray
    mask: np.ndarray
    clean: np.ndarray
    clean_real: np.ndarray


def _splits(member: np.ndarray, count: int, rng: np.random.Generator) -> Splits:
    """30% of the contaminated items and 30% of the clean ones validate."""
    planted, others = np.flatnonzero(member), np.flatnonzero(~member)
    n, aside = max(1, round(_VALIDATION * len(planted))), round(_VALIDATION * len(others))
    first = np.stack([rng.permutation(planted) for _ in range(count)])
    second = np.stack([rng.permutation(others) for _ in range(count)])
    tested = np.concatenate([first[:, n:], second[:, aside:]], axis=1)
    total = len(member)
    validated = round(_VALIDATION * total)
    most = (round(_VALIDATION * max(SHARES) * total) + 1, total - validated + 2, validated + 1)
    parts = (first[:, :n], tested, second[:, :aside])
    padded = [np.pad(part, ((0, 0), (0, max(0, size - part.shape[1])))) for part, size in zip(parts, most, strict=True)]
    real = [np.arange(table.shape[1]) < part.shape[1] for table, part in zip(padded, parts, strict=True)]
    return Splits(padded[0], real[0], padded[1], real[1], padded[2], real[2])


def _cleaned(
    scores: np.ndarray,
    member: np.ndarray,
    values: dict[str, np.ndarray],
    splits: Splits,
    contaminated: int,
) -> list[Row]:
    """Means over splits, a row for each rule and metric."""
    tested = splits.tested
    truth = ~member[tested] & splits.mask
    rows: list[Row] = []
    for name, how in RULES.items():
        selected = _selected(name, how, scores, splits)
        false, num_selected = (selected & ~truth).sum(axis=1), selected.sum(axis=1)
        for metric, value in values.items():
            here, true = (_means(value, tested, chosen) for chosen in (selected, truth))
            rank, true_rank = (_rank(means, contaminated) for means in (here, true))
            known = num_selected > 0
            agreement = spearman(here, true)[known]
            agreement = agreement[~np.isnan(agreement)]  # no ranking where all models are equal
            rows.append(
                {
                    "rule": name,
                    "metric": metric,
                    "fdp": float(np.mean(false / np.maximum(1, num_selected))),
                    "power": float(np.mean((selected & truth).sum(axis=1) / truth.sum(axis=1))),
                    "kept": float(num_selected.mean()),
                    "srcc": float(agreement.mean()) if agreement.size else None,
                    "rank": float(rank[known].mean()) if known.any() else None,
                    "true_rank": float(true_rank[known].mean()) if known.any() else None,
                    "value": float(here[known, contaminated].mean()) if known.any() else None,
                    "true_value": float(true[:, contaminated].mean()),
                    "empty": float(1 - known.mean()),
                }
            )
    return rows


def _selected(name: str, how: dict[str, Any] | None, scores: np.ndarray, splits: Splits) -> np.ndarray:
    """[splits, m] bool."""
    if name == "nothing removed":
        return np.broadcast_to(splits.mask, splits.tested.shape)
    if how is not None:
        return np.asarray(_combined(scores, *splits[:4], how=tuple(how.items())))
    by_threshold = name.endswith(", threshold")
    detector = scores[DETECTORS.index(name.removesuffix(" alone").removesuffix(", threshold"))]
    return np.asarray((_by_threshold if by_threshold else _alone)(detector, *splits))


@functools.partial(jax.jit, static_argnames="how")
def _combined(
    scores: Any, calibration: Any, real: Any, tested: Any, mask: Any, *, how: tuple[tuple[str, Any], ...]
) -> Any:
    def one(calibration: jax.Array, tested: jax.Array) -> jax.Array:
        masks = {"calibration_mask": real, "mask": mask}
        return td4eval(scores[:, calibration], scores[:, tested], alpha=ALPHA, **masks, **dict(how)).selected

    return jax.vmap(one)(calibration, tested)


@jax.jit
def _alone(scores: Any, calibration: Any, real: Any, tested: Any, mask: Any, *_: Any) -> jax.Array:
    def one(calibration: jax.Array, tested: jax.Array) -> jax.Array:
        p = conformal_p_values(scores[calibration], scores[tested], null="member", calibration_mask=real, mask=mask)
        return bh(p, ALPHA, mask=mask).reject

    return jax.vmap(one)(calibration, tested)


@jax.jit
def _by_threshold(
    scores: Any, calibration: Any, real: Any, tested: Any, mask: Any, clean: Any, clean_real: Any
) -> jax.Array:
    is_target = jnp.arange(len(real) + len(clean_real)) >= len(real)
    masks = {"validation_mask": jnp.concatenate([real, clean_real]), "mask": mask}

    def one(calibration: jax.Array, tested: jax.Array, clean: jax.Array) -> jax.Array:
        validation = scores[jnp.concatenate([calibration, clean])]
        return threshold(validation, is_target, scores[tested], null="member", rule="accuracy", **masks).selected

    return jax.vmap(one)(calibration, tested, clean)


def _means(value: np.ndarray, tested: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Mean over the chosen items of each split, [splits, models], of values [models, items]."""
    return np.einsum("ksm,sm->sk", value[:, tested], chosen) / np.maximum(1, chosen.sum(axis=1))[:, None]


def _rank(means: np.ndarray, model: int) -> np.ndarray:
    """Rank of a model, 1 the best, ties the mean: [splits]."""
    of_model = means[:, [model]]
    return 1 + (means > of_model).sum(axis=1) + ((means == of_model).sum(axis=1) - 1) / 2


def _skills(accuracy: Sequence[float], sizes: Sizes) -> tuple[Row, ...]:
    epochs = np.cumsum(sizes.stages)
    return tuple(
        {
            "model": i + 1,
            "epochs": int(epochs[i]),
            "accuracy": value,
            "trained on items later": i == sizes.contaminated,
        }
        for i, value in enumerate(accuracy)
    )


def _tables(rows: Sequence[Row]) -> dict[str, tuple[Row, ...]]:
    """A table a share of contamination; standard errors over the random sets of items."""
    tables = {}
    for share in SHARES:
        lines = []
        for rule in RULES:
            mine = [row for row in rows if row["share"] == share and row["rule"] == rule]
            by = {metric: [row for row in mine if row["metric"] == metric] for metric in METRICS}
            line: Row = {"rule": rule}
            for column, heading in (("fdp", "clean-FDR"), ("power", "power")):
                line[heading] = mean_and_error([row[column] for row in by["accuracy"]])
            for metric in METRICS:
                known = [row for row in by[metric] if row["srcc"] is not None]
                line[f"SRCC, {metric}"] = mean_and_error([row["srcc"] for row in known]) if known else None
                line[f"rank (true), {metric}"] = (
                    f"{np.mean([row['rank'] for row in known]):.2f} ({np.mean([r['true_rank'] for r in known]):.2f})"
                    if known
                    else None
                )
            line["nothing kept"] = float(np.mean([row["empty"] for row in mine]))
            lines.append(line)
        tables[f"{share:.0%} of the items in one model's training data (level {ALPHA:g})"] = tuple(lines)
    return tables


REPRODUCTION = Reproduction(
    "td4eval", "A contaminated benchmark, cleaned: rankings of models before and after", Sizes.at, _measure
)
