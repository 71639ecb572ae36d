"""Is a set of items scored lower than a reference set, beside what random labellings of the same items would give?

Every statistic is a sum of whole numbers over the suspects, so that it is the same to the bit in every program, on
every device and in both precisions: ties between labellings are ties everywhere.
"""

from __future__ import annotations

from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import ranks

__all__ = ["STATISTICS", "labellings", "set_statistics"]

Statistic = Literal["combined", "rank_sum", "tail"]
STATISTICS: tuple[str, ...] = get_args(Statistic)

_CELLS = 4_096  # steps of a rank, from the lowest score to the highest
_QUANTILE = (np.arange(_CELLS) + 0.5) / _CELLS
_SCALE = _CELLS / np.sqrt(12)  # standard deviation of both scores over the cells
_SCORES = {
    "rank_sum": np.floor(_CELLS * (0.5 - _QUANTILE)).astype(np.int32),
    "tail": np.rint(_SCALE * (np.log(_QUANTILE) ** 2 - 2) / np.sqrt(20)).astype(np.int32),
}
_CHUNK = 512  # items of one product: sums of so many scores stay below 2^24, where float32 is exact
_SNAP = 16  # epsilons of the magnitudes, below which a residual is rounding


def labellings(num_suspect: int, num_reference: int, num_draws: int, seed: int) -> jax.Array:
    """Row 0: the first m of N = m + n items are the suspects. Rows 1..B: m suspects at uniformly random places.

    The rows are independent, and drawn with replacement: a row may repeat another, or row 0. The same seed and sizes
    give the same rows.

    Returns: [B + 1, m + n] bool, True = suspect.
    Cost: O(B N) on the host, and as many bytes.
    """
    first = np.arange(num_suspect + num_reference) < num_suspect
    rows = np.tile(first, (num_draws + 1, 1))
    rows[1:] = np.random.Generator(np.random.Philox(seed)).permuted(rows[1:], axis=1)
    return jnp.asarray(rows)


def set_statistics(
    scores: jax.Array,
    labels: jax.Array,
    *,
    baseline: jax.Array | None = None,
    mask: jax.Array | None = None,
    statistic: Statistic = "combined",
) -> jax.Array:
    """Difference by which the suspects score lower than the reference, under every labelling of the items.

    With q_i in (0, 1) the quantile of item i's mid-rank among all items in 4,096 steps (0 the lowest score), the sum
    over the suspects of a(q_i) less its mean over all items:
      "rank_sum": a(q) proportional to 1/2 - q. For a shift of the whole set.
      "tail": a(q) proportional to (log q)^2 - 2. For a small part of the set that moved far.
      "combined": the larger of both, which have about one variance over labellings where few scores tie.
    With a baseline, ranks are those of the residuals of the least-squares line of the scores on the baseline. Items are
    ranked, masked and fitted whatever the labels: exchangeable labellings give exchangeable statistics.

    Which one: 200 suspects among 400 normal scores, level .05 (3,000 repetitions, standard errors up to .01). All
    shifted by .3 sd: "rank_sum" finds .90, "tail" .67, "combined" .88. A tenth of them by 2.5 sd: .47, .96, .93. A
    twentieth by 3 sd: .22, .76, .64.

    Args:
      scores, mask: [N] loss-like scores, and bool, True = real item; what is not finite is left out as well.
      labels: [K, N] bool, True = suspect.
      baseline: [N] scores of the same items at an earlier step; what is not finite is left out as well.
      statistic: Name of the statistic.

    Returns: [K] int32, larger = suspects score lower. All equal where the scores do not differ, or not from the line
    (up to 16 epsilons of their magnitudes).
    Raises ValueError: 2^18 items or more.
    Cost: a product of [K, N] with [N, 2], and O(N log N).
    References: Hajek, Sidak & Sen (1999), section 3.3, for linear rank statistics and their permutation moments.
    """
    if scores.shape[0] >= 2**30 // _CELLS:
        raise ValueError(f"{scores.shape[0]} items are too many for exact ranks: fewer than {2**30 // _CELLS}")
    values, real = _residuals(scores, baseline, mask)
    cell, count = _cells(values, real)
    names = ("rank_sum", "tail") if statistic == "combined" else (statistic,)
    columns = [_centred(jnp.asarray(_SCORES[name])[cell], real, count) for name in names]
    return jnp.max(_sums(labels, jnp.stack(columns, axis=1)), axis=1)


def _residuals(scores: jax.Array, baseline: jax.Array | None, mask: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """[N] what is ranked, and [N] bool which items are."""
    scores = ranks.at_least_single(scores)
    real = jnp.isfinite(scores) if mask is None else jnp.isfinite(scores) & mask
    if baseline is None:
        return scores, real
    baseline = baseline.astype(scores.dtype)
    real = real & jnp.isfinite(baseline)
    count = jnp.maximum(jnp.sum(real), 1).astype(scores.dtype)
    x, y = (jnp.where(real, value, 0) for value in (baseline, scores))
    size_x, size_y = (jnp.max(jnp.abs(value), initial=0) for value in (x, y))
    x, y = (jnp.where(real, value - jnp.sum(value) / count, 0) for value in (x, y))
    spread = jnp.sum(x * x)
    slope = jnp.where(spread > 0, jnp.sum(x * y) / jnp.where(spread > 0, spread, 1), 0)
    residual = y - slope * x
    rounding = _SNAP * jnp.finfo(scores.dtype).eps * (size_y + jnp.abs(slope) * size_x)
    residual = jnp.where(jnp.abs(residual) <= rounding, 0, residual)
    return residual, real & jnp.isfinite(residual)


def _cells(values: jax.Array, real: jax.Array) -> tuple[jax.Array, jax.Array]:
    """[N] the mid-rank of each item in steps 0.._CELLS - 1, and [] how many items are ranked."""
    count = jnp.sum(real, dtype=jnp.int32)
    ordered = jnp.sort(jnp.where(real, values, jnp.inf))
    less, upto = (jnp.searchsorted(ordered, values, side=side).astype(jnp.int32) for side in ("left", "right"))
    cell = (less + upto) * _CELLS // jnp.maximum(2 * count, 1)
    return jnp.where(real, cell, 0), count


def _centred(score: jax.Array, real: jax.Array, count: jax.Array) -> jax.Array:
    """Scores less the floor of their mean; 0 for items that are left out."""
    total = jnp.sum(jnp.where(real, score, 0), dtype=jnp.int32)
    return jnp.where(real, score - total // jnp.maximum(count, 1), 0)


def _sums(labels: jax.Array, columns: jax.Array) -> jax.Array:
    """[K, N] bool times [N, c] int32, exactly: [K, c] int32."""
    total = jnp.zeros((labels.shape[0], columns.shape[1]), jnp.int32)
    for start in range(0, columns.shape[0], _CHUNK):
        part = slice(start, start + _CHUNK)
        product = jnp.dot(
            labels[:, part].astype(jnp.float32),
            columns[part].astype(jnp.float32),
            precision=jax.lax.Precision.HIGHEST,
        )
        total = total + product.astype(jnp.int32)
    return total
