"""TD4Eval's study of many items: what becomes of the weights (lemma 2) and of the power (theorem 2)."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tdd.procedures.td4eval import td4eval
from tdd.records import Null, pytree
from tdd.study.designs import CorrelatedDetectors, Sample
from tdd.study.methods import StudyMethod, method
from tdd.study.named import td4eval as studies
from tdd.study.named.detectors import bound
from tdd.study.named.driver import GridRun
from tdd.study.named.record import Figure, NamedStudy, Needs, StudyOptions
from tdd.study.results import StudyResult
from tdd.study.runner import simulate
from tdd.validate import InputError

SIZES, MOST = (50, 100, 200, 400, 800, 1_600), 1_600
LAWS = ("shifted", "bounded")
LARGEST = (0.02, 0.04, 0.06, 0.07, 0.08)  # bounds on the p-values of clean items, one a detector
CAUCHY = "td4eval/cauchy"


@pytree()
class MoreItems:
    """The first `size` of `MOST` calibration items and of as many candidates, half of them clean, by the law.

    Scores of members are normal with correlation 0.3. A clean item's are higher by the signals of the other studies
    ("shifted"; one detector has no signal), or such that its p-value against the law of members is uniform on an
    interval from 0 ("bounded") that ends below .081, where BH at level .15 stops once it rejects all clean items, as
    theorem 2 assumes.
    """

    null: ClassVar[Null] = "member"

    law: Any = 0  # index into `LAWS`
    size: Any = MOST  # n, calibration items and candidates

    def draw(self, key: jax.Array) -> Sample:
        """One data set, with masks."""
        sizes: dict[str, Any] = {"num_calibration": MOST, "num_tests": MOST, "num_detectors": len(LARGEST)}
        sample = CorrelatedDetectors(**sizes, signal=0.0, correlation=studies.CORRELATION, labels="random").draw(key)
        z, real = sample.scores, jnp.arange(MOST) < self.size
        bounded = -jax.scipy.special.ndtri(jax.scipy.special.ndtr(-z) * jnp.array(LARGEST)[:, None])
        clean = jnp.where(self.law == 0, z + jnp.array(studies.SIGNALS)[:, None], bounded)
        scores = jnp.where(sample.target, clean, z)
        return sample._replace(scores=scores, mask=real, calibration_mask=real)


def _growing(options: StudyOptions) -> MoreItems:
    if options.columns is not None:
        raise InputError("td4eval-weights has no use for a table: it draws ever more items; leave table out")
    return MoreItems()


def _for_weights(options: StudyOptions) -> dict[str, StudyMethod]:
    names = (f"BH, detector {k + 1}" for k in range(len(LARGEST)))
    return {name: method("bh", detector=k) for k, name in enumerate(names)} | {CAUCHY: method(CAUCHY)}


def _with_weights(result: StudyResult, options: StudyOptions) -> StudyResult:
    """Mean and spread of each detector's weight, and the power that theorem 2 promises from the smallest n on."""
    if options.shard is not None:
        return result  # the measures belong to the whole result
    laws, sizes = (jnp.array([cell[name] for cell in result.cells]) for name in ("law", "size"))

    def one(key: jax.Array) -> list[jax.Array]:
        """[cell, detector] weights of separate draws, by level."""

        def weights(law: jax.Array, size: jax.Array) -> list[jax.Array]:
            sample = MoreItems(law, size).draw(key)
            masks = {"mask": sample.mask, "calibration_mask": sample.calibration_mask}
            rule: dict[str, Any] = {"combine": "cauchy", **masks}
            return [td4eval(sample.calibration, sample.scores, alpha=a, **rule).weights for a in options.alphas]

        return jax.lax.map(lambda cell: weights(*cell), (laws, sizes))

    draws = simulate(one, seed=options.seed, repetitions=int(np.max(result.repetitions)), batch=32)
    drawn = np.stack(draws, axis=-1)  # [repetition, cell, detector, alpha]
    count = np.sqrt(max(1, len(drawn) - 1))
    spread = np.std(drawn, axis=0)
    fourth = np.mean((drawn - drawn.mean(axis=0)) ** 4, axis=0)
    error = np.sqrt(np.maximum(fourth - spread**4, 0)) / (2 * np.maximum(spread, 1e-12) * count)
    measures = {
        "weight": np.mean(drawn, axis=0),
        "weight_se": spread / count,
        "spread": spread,
        "spread_se": error,
    }
    together = np.full((len(result.cells), 1, len(options.alphas)), np.nan)  # the combination has no weight
    measures = {name: np.concatenate([array, together], axis=1) for name, array in measures.items()}
    rate = np.sqrt(np.log(sizes) / sizes)[:, None]
    first = np.array([[*map(int, laws)].index(law) for law in map(int, laws)])  # the smallest n of the same law
    promised = 1 - (1 - result.power[first, -1]) / rate[first] * rate
    least = np.full(result.power.shape, np.nan)
    least[:, -1] = promised
    measures |= {"power_bound": least, "power_bound_se": np.where(np.isnan(least), np.nan, 0.0)}
    cells = tuple(cell | {"law": LAWS[cell["law"]]} for cell in result.cells)
    return dataclasses.replace(result, cells=cells, measures=measures)


STUDIES = (
    NamedStudy(
        name="td4eval-weights",
        title="TD4Eval: weights of the detectors and power, by the number n of items",
        describe=lambda options: (
            "As many calibration items as candidates, n, half of them clean; five detectors with correlation "
            f"{studies.CORRELATION:g}. Shifted: clean items {', '.join(f'{s:g}' for s in studies.SIGNALS)} sd higher. "
            f"Bounded: their p-values are below {', '.join(f'{c:g}' for c in LARGEST)}, as theorem 2 assumes. Its "
            "bound is 1 - C sqrt(log n / n) with the C of the smallest n. Spread: standard deviation of a weight"
        ),
        run=GridRun(_growing, _for_weights, {"law": range(len(LAWS)), "size": SIZES}, finish=_with_weights),
        figure=Figure(
            "parameter",
            panels="law",
            x="size",
            x_label="items n",
            fields=("weight", "spread", "power"),
            measures=("weight", "spread", "power_bound"),
            labels=studies.LABELS | {"size": "n", "power_bound": "1 - C √(log n / n)"},
        ),
        bound=bound,
        repetitions=300,
        alphas=(0.15,),
        needs=Needs(scores="several", labels="none"),
    ),
)
