"""A watched benchmark: has it leaked into the training data, and when?"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels.trajectories import spending
from tdd.probe.evidence import ProbeResult
from tdd.probe.probe import Probe
from tdd.probe.program import as_language_model
from tdd.probe.shards import ShardEvidence, by_shard, ordered_shards, shard_labels
from tdd.procedures.bounds import dkw_fdp_bounds, fdp_bounds
from tdd.records import Guarantee
from tdd.scoring.buckets import check_max_length
from tdd.validate import InputError, arrays
from tdd.validate.arrays import as_count
from tdd.validate.settings import in_own_settings

_MOST_DRAWN = 30_000_000
"""Items times draws of the bounds by simulation, four bytes each; above it, where a look's fraction of the level is
tiny, bounds in closed form."""

ORDER_GUARANTEES = {
    "set": Guarantee(
        "P(an alarm at any look of the run) <= alpha",
        (
            "the order in which the benchmark was published is random",
            "given everything that the training did, which of the orders of a shard is the published one is uniformly "
            "random, in every shard independently: nothing of the training depends on the published order",
            "shards, orders, looks and horizon were fixed beforehand",
            "training reacts to the evidence by stopping at most",
        ),
        "finite-sample",
        "slots over relabelled trajectories (tdd.kernels.trajectories); the relabellings: the sharded exchangeability "
        "test, section 3.2",
    ),
    "items": Guarantee("nothing: no shard is flagged", (), "none", "shards of one benchmark are no draws of one law"),
}
GUARANTEE_ROWS = [
    ("tdd.probe.contamination", "alarm, without reference", ORDER_GUARANTEES["set"]),
    (
        "tdd.probe.Leak",
        "num_false and num_leaked",
        Guarantee(
            "P(num_false too small or num_leaked too large at some look) <= alpha",
            (
                "items that are not leaked and references are exchangeable at every look",
                "the score, the steps of the looks and their number were fixed before any score was seen",
                "the training does not react to the evidence, except by stopping",
                "the probability is over the data and over the draws of the bounds, other ones at each look",
            ),
            "finite-sample",
            "tdd.fdp_bounds, each look at its share of alpha; Gazin, Blanchard & Roquain (2024)",
        ),
    ),
]


@dataclasses.dataclass(frozen=True)
class Leak:
    """Knowledge of a leak.

    `num_false` and `num_leaked` hold together, at all looks, with probability `confidence`; with `alarm` as well, all
    three hold together with probability 1 - 2 alpha.

    Attributes:
      alarm: Step of the first alarm: the leak began before it (P(an alarm without a leak) <= alpha over the whole
        run).
      began: Steps of two consecutive looks between which, as an ESTIMATE, the leak began; the first is None if that
        was before the first look. No guarantee; its error depends on how fast the items are learnt.
      step: Step of the look that the following rests on, the last one within num_steps.
      items: Identifiers of the items that are flagged by then: FDR <= alpha at whatever look one reads them.
      num_false: Upper bound on the number of `items` that are not leaked, whatever the reason for choosing this look;
        those without a finite score at it count.
      num_leaked: Lower bound on the number of leaked items.
      fraction: num_leaked as a fraction of all items.
      fraction_estimate: Estimated fraction, 1 - 2 (1 + #{p >= 1/2}) / m from the conformal p-values of that look, at
        least `fraction` (Storey's estimate at one half).
      confidence: 1 - alpha, of `num_false` and `num_leaked` together.
    """

    alarm: int
    began: tuple[int | None, int]
    step: int
    items: tuple[str, ...]
    num_false: int
    num_leaked: int
    fraction: float
    fraction_estimate: float
    confidence: float

    def __str__(self) -> str:
        start = (
            "before the first look" if self.began[0] is None else f"between steps {self.began[0]} and {self.began[1]}"
        )
        sentences = [
            f"Evidence at level {100 * (1 - self.confidence):.3g}% that the benchmark leaked into training before step "
            f"{self.alarm}; if so, it probably began {start}."
        ]
        if self.num_leaked:
            sentences.append(
                f"If the assumptions hold, at least {self.num_leaked} items ({self.fraction:.0%}) are leaked at step "
                f"{self.step} (confidence {self.confidence:.0%}, estimate {self.fraction_estimate:.0%})."
            )
        if self.items:
            sentences.append(
                f"{len(self.items)} item{'s are' if len(self.items) > 1 else ' is'} named; if the assumptions hold, at "
                f"most {self.num_false} of them wrongly (confidence {self.confidence:.0%})."
            )
        return " ".join(sentences)


def contamination(
    lm: Any,
    benchmark: Any,
    reference: Any = None,
    *,
    num_shards: int | None = None,
    num_shuffles: int | None = None,
    separator: Any = None,
    name: str = "contamination",
    **options: Any,
) -> Contamination:
    r"""Watch a held-out benchmark while a model is trained, and say with control when it has leaked into training.

        watch = tdd.probe.contamination(lm, benchmark, fresh_items, tokenizer=tokenizer, every=500, num_steps=20_000)
        for step, batch in enumerate(batches):
            params, opt_state = train_step(params, opt_state, batch)
            watch(step, params)
            if watch.alarm:
                print(watch.leak())

    With `reference`, the items are compared with items of the same kind that are certainly not in the training data.
    Without, the order of the benchmark is its own reference: contiguous shards of it in the published order are
    compared with `num_shuffles` other orders of the same items (`OrderContamination`), which finds a benchmark that
    was trained on as a file, and names no items.

    Guarantee: P(alarm at any look of the whole run) <= alpha if the benchmark is not in the training data; finite-
    sample, for the looks that `every` fixes beforehand. It assumes that benchmark and reference are a random division
    of texts of one kind, chosen and prepared alike; without a reference, that the published order is random and nothing
    else of the training depends on it.

    Args:
      lm: the model that is trained: a `LanguageModel` or a function `logits(params, tokens) -> [B, T, V]`.
      benchmark: the items: strings, `Texts`, what `tdd.load_texts` reads, or rows of token ids.
      reference: items of the same kind, likewise; None: other orders of the benchmark.
      num_shards: without a reference: contiguous parts of the benchmark; by default as many as hold up to 8 items
        and fit the context.
      num_shuffles: without a reference: other orders of each shard; a look costs 1 + num_shuffles times the
        benchmark. 9 by default.
      separator: without a reference: text (or token ids) between two items, "\n\n" by default.
      name: shown in reports.
      options: options of `Probe`: tokenizer, score, alpha, every, num_steps, baseline, statistic, num_draws, ...

    Returns:
      A `Probe` with one more method, `leak() -> Leak | None`: when it began (an estimate), by when it is certain, how
      many items at least, and which.

    Raises:
      InputError: as `Probe`; options of the order with a reference; shards too small for so many orders.

    References: the order of a data set: the sharded exchangeability test, section 3.2.
    """
    of_order = {"num_shards": num_shards, "num_shuffles": num_shuffles, "separator": separator}
    of_order = {option: value for option, value in of_order.items() if value is not None}
    if reference is None:
        return OrderContamination(lm, benchmark, name=name, **of_order, **options)
    for option, value in of_order.items():
        raise InputError(
            f"{option}={value!r} is for a benchmark whose order is its own reference: leave it out, or leave out "
            "reference"
        )
    return Contamination(lm, benchmark, reference, name=name, **options)


class Contamination(Probe):
    """A `Probe` whose suspects are a benchmark: call `watch(step, params)` in the loop, read `watch.leak()`.

    Arguments, attributes and guarantees are those of `Probe`.
    """

    @in_own_settings()
    def leak(self) -> Leak | None:
        """The leak as known so far; None while there is no alarm.

        Guarantee: `Leak.num_false` and `Leak.num_leaked` hold at all looks together with probability 1 - alpha,
        finite-sample, provided that items that are not leaked are exchangeable with the references: the look t may
        fail with probability alpha (spent_t - spent_(t-1)), and one may read it whenever one likes.

        Cost: as `tdd.fdp_bounds` with max(999, 4/delta) draws, delta the last look's part of the level; in closed form,
        and wider, where these are too many.
        """
        if self.first_alarm is None:
            return None
        look = len(self.history) if self.num_looks is None else min(len(self.history), self.num_looks)
        record = self.history[look - 1]
        steps = [record.step for record in self.history]
        start = start_of_rise(self._rises()[: 1 + steps.index(self.first_alarm)])
        flagged = np.asarray(record.flagged)
        num_false, num_leaked = self._bounds(look, flagged)
        fraction = num_leaked / self.sizes[0]
        return Leak(
            alarm=self.first_alarm,
            began=(steps[start - 1] if start else None, steps[start]),
            step=record.step,
            items=tuple(np.asarray(self.roles["suspect"].ids)[flagged].tolist()),
            num_false=num_false,
            num_leaked=num_leaked,
            fraction=fraction,
            fraction_estimate=max(fraction, _storey_at_half(np.asarray(record.result.p_values))),
            confidence=1 - self.alpha,
        )

    def _rises(self) -> np.ndarray:
        """[L] fall of the benchmark's scores at each look, in standard deviations."""
        paths = [np.concatenate([r.result.suspect_scores, r.result.reference_scores]) for r in self.history]
        return rises(np.stack(paths), self.sizes[0])

    def _bounds(self, look: int, flagged: np.ndarray) -> tuple[int, int]:
        """Bounds at the look's fraction of the level: most flagged items that are not leaked, fewest leaked items."""
        result = self.history[look - 1].result
        suspects, references = (
            np.where(np.isfinite(scores), scores, np.nan) for scores in (result.suspect_scores, result.reference_scores)
        )
        num_references, unknown = int(np.sum(~np.isnan(references))), int(np.sum(flagged & np.isnan(suspects)))
        if np.isnan(suspects).all() or not num_references:
            return int(flagged.sum()), 0
        delta = self.alpha * float(spending(look, self.num_looks) - spending(look - 1, self.num_looks))
        num_draws = max(999, math.ceil(4 / delta))
        if num_draws * (len(suspects) + len(references)) <= _MOST_DRAWN:
            # other draws at every look: what the draws of one make more likely, those of another do not
            key = jax.random.fold_in(arrays.key_of_seed(self.options.seed), look)
            drawn = fdp_bounds(references, suspects, null="nonmember", delta=delta, num_draws=num_draws, key=key)
            return int(drawn.of(flagged).false_bound) + unknown, int(drawn.min_members)
        p_values = np.asarray(result.p_values)
        closed = dkw_fdp_bounds(p_values, num_calibration=num_references, delta=delta)
        false_bound, real = np.asarray(closed.false_bound), ~np.isnan(p_values)
        num_leaked = int(np.max((np.asarray(closed.num_selected) - false_bound)[real], initial=0))
        chosen = real & flagged
        if not chosen.any():
            return unknown, num_leaked
        cut = int(false_bound[chosen & (p_values == p_values[chosen].max())][0])
        return min(cut, int(chosen.sum())) + unknown, num_leaked


class OrderContamination(Contamination):
    """Watch whether a model comes to prefer the published order of a benchmark; made by `contamination`.

    Under the null hypothesis which of the k + 1 orders of a shard is the published one is uniformly random, in every
    shard independently, given everything that the training did: the relabellings are those.

    A look's `result` has the published shards as suspects and the shuffled ones as references. It has no p-values of
    single shards (NaN), none is flagged, and the estimated proportion is 0: they are not draws from one law.
    """

    def __init__(
        self,
        lm: Any,
        benchmark: Any,
        *,
        tokenizer: Any = None,
        num_shards: int | None = None,
        num_shuffles: int = 9,
        separator: Any = "\n\n",
        alpha: float = 0.05,
        seed: int = 0,
        **options: Any,
    ) -> None:
        arrays.check_level(alpha)
        k, max_length = as_count(num_shuffles, "num_shuffles"), options.get("max_length")
        limit = check_max_length(max_length, as_language_model(lm, max_length).max_length)
        shards = ordered_shards(
            benchmark, tokenizer, separator, num_shards=num_shards, num_shuffles=k, limit=limit, seed=seed
        )
        num_relabellings = (k + 1) ** len(shards)
        if num_relabellings * Fraction(str(float(alpha))) < 1:
            raise InputError(
                f"{len(shards)} shards in {k + 1} orders each can be relabelled in only {num_relabellings} ways, too "
                f"few for a p-value of alpha={alpha:g}; raise num_shuffles"
            )
        canonical, shuffled = [shard[0] for shard in shards], [row for shard in shards for row in shard[1:]]
        super().__init__(lm, canonical, shuffled, proportion="none", alpha=alpha, seed=seed, **options)
        self._rule = ShardEvidence(*dataclasses.astuple(self._rule), num_shards=len(shards))
        self._labels = shard_labels(len(shards), k, self.options.num_draws, self.options.seed)

    @property
    def guarantees(self) -> dict[str, Guarantee]:
        """The guarantee of the "set", over the whole run; there is none of single shards."""
        return ORDER_GUARANTEES

    @in_own_settings()
    def evaluate(self, params: Any) -> ProbeResult:
        """Scores of all orders; pure, as `Probe.evaluate`."""
        result = super().evaluate(params)
        unknown = jnp.full_like(result.p_values, jnp.nan)
        return dataclasses.replace(
            result,
            p_values=unknown,
            adjusted=unknown,
            selected=jnp.zeros_like(result.selected),
            num_flagged=jnp.zeros_like(result.num_flagged),
            proportion=jnp.zeros_like(result.proportion),
        )

    def _rises(self) -> np.ndarray:
        return shard_rises(np.stack([np.asarray(by_shard(r.result, self.sizes[0])) for r in self.history]))

    def _bounds(self, look: int, flagged: np.ndarray) -> tuple[int, int]:
        return 0, 0  # no shard is named


def _storey_at_half(p_values: np.ndarray) -> float:
    """Fraction of members by the p-values above one half, which hardly any member has; 0 where there are none."""
    real = p_values[~np.isnan(p_values)]
    return max(0.0, 1 - (1 + np.sum(real >= 0.5)) / (real.size / 2)) if real.size else 0.0


def rises(paths: np.ndarray, num_suspects: int) -> np.ndarray:
    """[L] z, the fall of the first m of N items below what their last scores predict, in standard deviations.

    Loss-like scores [L, N] of a look are regressed on those of the look before over all items; z is the mean residual
    of the suspects against its law under random labellings: large = more member-like than before, 0 where undefined.
    Before a leak the z are about uncorrelated, of mean 0 and variance 1.
    """
    z = []
    for look, scores in enumerate(paths):
        residual, real = _residual(scores, paths[look - 1] if look else None)
        count = int(real.sum())
        suspects = real[:num_suspects]
        m = int(suspects.sum())
        spread = np.var(residual[real]) if count else 0.0
        if min(m, count - m) < 1 or spread == 0:
            z.append(0.0)
            continue
        gap = np.mean(residual[real]) - np.mean(residual[:num_suspects][suspects])
        z.append(gap / np.sqrt(spread * (count - m) / (m * (count - 1))))
    return np.array(z)


def shard_rises(paths: np.ndarray) -> np.ndarray:
    """`rises` of the canonical order of r shards against k shuffles of each, from scores [L, r, k + 1].

    [L] z, the sum over shards against its law where any order may be the canonical one. 0 where undefined.
    """
    z = []
    for look, scores in enumerate(paths):
        real = np.isfinite(paths[max(0, look - 1) : look + 1]).all(axis=(0, 2))
        before = _centred(paths[look - 1][real]) if look else None
        residual, _ = _residual(_centred(scores[real]), before)
        variance = np.mean(residual**2, axis=1).sum()
        z.append(-residual[:, 0].sum() / np.sqrt(variance) if variance > 0 else 0.0)
    return np.array(z)


def start_of_rise(z: np.ndarray) -> int:
    """The number of looks before the rise that leads to the last one: the most likely change from mean 0 to a larger.

    argmax over s of max(0, z_(s+1) + ... + z_L)^2 / (L - s), for independent z of variance 1.

    >>> start_of_rise(np.array([0.3, -0.5, 0.2, 2.0, 1.5]))
    3
    """
    total = np.cumsum(z[::-1])[::-1]
    return int(np.argmax(np.maximum(total, 0) ** 2 / np.arange(len(z), 0, -1)))


def _residual(scores: np.ndarray, before: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Residuals of the regression on the scores of the look before, and a mask of the items that are finite in both."""
    real = np.isfinite(scores) if before is None else np.isfinite(scores) & np.isfinite(before)
    y = np.where(real, scores, 0).astype(np.float64)
    y = np.where(real, y - (y[real].mean() if real.any() else 0), 0)
    if before is None:
        return y, real
    x = np.where(real, before, 0).astype(np.float64)
    x = np.where(real, x - (x[real].mean() if real.any() else 0), 0)
    spread = np.sum(x * x)
    return y - (np.sum(x * y) / spread if spread > 0 else 0) * x, real


def _centred(scores: np.ndarray) -> np.ndarray:
    return scores - scores.mean(axis=1, keepdims=True, dtype=np.float64)
