"""The data owner's tests, beside what was kept back: other versions of the documents, or other texts of one kind.

Version test: of each document one version, drawn at random, was published, and the others were kept. Dataset inference:
is a whole set of texts more member-like than texts of the same owner that were kept?
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import discriminant, permutation, ranks, set_statistics, student
from tdd.procedures.calls import key_of, ordered_panels, tracing
from tdd.procedures.exchangeability import ExchangeabilityResult, exchangeability
from tdd.records import Guarantee, TestResult, pytree
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

_SIZE = "P(p <= alpha) <= alpha if the model was trained without the published versions, or on all versions alike"
_DRAWN = (
    "which version of each document was published was drawn uniformly at random from all of its versions, for every "
    "document independently; a human original beside its paraphrases was not drawn",
    "versions, score and test were fixed before any score was seen",
)

_INFINITE = "{count} of {size} scores are infinite; use NaN for a score that is missing: its document is left out"

VERSION_GUARANTEES: dict[str, Guarantee] = {
    "rank_sum": Guarantee.finite_sample(_SIZE, _DRAWN, "Lehmann & Romano (2005), theorem 15.2.2, in each document"),
    "exact": Guarantee.finite_sample(_SIZE, _DRAWN, "Lehmann & Romano (2005), theorems 15.2.1 and 15.2.2"),
    "combined": Guarantee.finite_sample(_SIZE, _DRAWN, "Bonferroni over rank_sum and exact"),
    "t": Guarantee(
        "P(p <= alpha) <= alpha in the limit of many documents",
        (*_DRAWN, "differences between private and published scores are independent and identically distributed"),
        "asymptotic",
        "STAMP: Rastogi et al. (2025), the paired t-test",
    ),
}


@in_own_settings()
def version_test(
    published: Any,
    private: Any,
    *,
    test: Literal["rank_sum", "exact", "combined", "t"] = "rank_sum",
    key: jax.Array | None = None,
    mask: Any = None,
) -> ExchangeabilityResult:
    """Test whether a model was trained on the published versions of documents whose other versions were kept back.

    An owner writes k + 1 versions of each of n documents (rephrasings, or copies with watermarks), publishes one that
    is drawn at random and keeps the others. To a model that has not seen the published ones they are versions as any.

    Guarantee: P(p <= alpha) <= alpha if which version of each document was published was drawn uniformly at random and
    the model was trained without the published versions; finite-sample, but for test="t". If the human originals were
    published and paraphrases kept, nothing was drawn, and a small p-value shows no training.

    Args:
      published: [n] scores of the published versions, LOWER = more member-like, as `tdd.score` gives them. Versions
        differ in length: take a score a token, such as "loss".
      private: [n, k] scores of the private versions, k >= 1.
      test: "rank_sum": how many private versions each published one undercuts, summed, against its exact law; smallest
        possible p-value (k + 1)^-n. "exact": the sum of published scores against sums with random other versions in
        their place. "combined": the better of the two, at twice its p-value. "t": the paired t-test of the paper,
        asymptotic. Ties count against the published version.
      key: PRNG key for "exact" and "combined".
      mask: [n] bool, True = real document. A document with a NaN is left out and counted as masked.

    Returns:
      `ExchangeabilityResult`, documents in place of shards and private versions in place of shuffles: `shard_ranks`
      holds how many private versions each published one undercuts. Cost and types as `tdd.exchangeability`.

    Raises:
      InputError: wrong shapes, infinite values, no document or private version, an unknown test, a missing key.

    >>> result = version_test([2.0, 1.5, 3.1], [[2.4, 2.2], [1.9, 1.7], [3.0, 3.3]])
    >>> result.shard_ranks.tolist(), round(27 * float(result.p_value), 4)
    ([2, 2, 1], 4.0)

    References: Rastogi et al. (2025), STAMP, whose test is "t".
    """
    arrays.check_choice(test, tuple(VERSION_GUARANTEES), "test")
    published = arrays.as_vector(published, "published")
    private = arrays.as_matrix(private, "private", "[documents, versions]")
    if not private.size or len(private) != len(published):
        raise InputError(
            f"published must be [documents] and private [documents, versions], got {published.shape} and "
            f"{private.shape}; give every document the same number of private versions"
        )
    for name, values in (("published", published), ("private", private)):
        arrays.check_finite(values, name, _INFINITE)
    found = exchangeability(*arrays.negated_together(published, private), test=test, key=key, mask=mask)
    return dataclasses.replace(found, method=f"version_test/{test}", guarantee=VERSION_GUARANTEES[test])


FEWEST = 4
"""Items of a set: two in each half."""
NUM_DRAWS = 9_999
"""Random labellings of a split, if nothing else is said."""

_ASSUMED = (
    "if the model was trained on neither set, the scores of suspect and held-out items are exchangeable: items of one "
    "kind, divided one by one at random or by nothing that the scores see, and prepared and scored in the same way; "
    "passages of one document, or copies, are not exchangeable one by one: take one of each document, or the mean of "
    "each",
    "the scores, the test and the number of splits were fixed before any score was seen",
)
DATASET_GUARANTEES: dict[str, Guarantee] = {
    "permutation": Guarantee.finite_sample(
        "P(p <= alpha) <= alpha if the model was trained on neither set",
        _ASSUMED,
        "Phipson & Smyth (2010) in each split; Rueger (1978) over splits",
    ),
    "t": Guarantee(
        "P(p <= alpha) <= alpha in the limit of many items",
        (*_ASSUMED, "suspect and held-out items are independent draws, and there are many of them"),
        "asymptotic",
        "Maini et al. (2024), section 5, without the removal of outliers; Rueger (1978) over splits",
    ),
}
GUARANTEE_ROWS = [
    *(("tdd.version_test", f'test="{name}"', guarantee) for name, guarantee in VERSION_GUARANTEES.items()),
    *(("tdd.dataset_inference", f'test="{name}"', guarantee) for name, guarantee in DATASET_GUARANTEES.items()),
]


@pytree("method", "guarantee")
class DatasetInferenceResult(TestResult):
    """The test of a suspect set against a held-out set.

    Attributes:
      statistic: [] mean over splits of the AUC of suspect against held-out items that were not fitted.
      split_p_values: [S] p-value of each split.
      weights: [K] mean coefficient of each score, their absolute values summing to 1 in every split; positive where
        low scores speak for a suspect. A score that is no evidence by itself may get a negative one.
      auc_alone: [K] AUC of each score by itself: above 1/2 where suspects have the lower scores.
      toward_members: [] bool: whether the mean of `auc_alone`, weighted by |weights|, is above 1/2. If not, suspects
        look less like members than held-out items: training on them is not what makes the sets differ.
      num_suspect: [] int32, suspect items without NaN.
      num_heldout: [] int32, held-out items without NaN.
    """

    split_p_values: jax.Array
    weights: jax.Array
    auc_alone: jax.Array
    toward_members: jax.Array
    num_suspect: jax.Array
    num_heldout: jax.Array


@in_own_settings()
def dataset_inference(
    suspect: Any,
    heldout: Any,
    *,
    key: jax.Array,
    test: Literal["permutation", "t"] = "permutation",
    num_splits: int = 10,
    num_draws: int = NUM_DRAWS,
    suspect_mask: Any = None,
    heldout_mask: Any = None,
) -> DatasetInferenceResult:
    """Test whether suspect items are told from held-out items of the same owner by K scores of one model.

    In each of S random splits both sets are halved. From the halves A a linear score g is learned, suspect against
    held-out (`tdd.kernels.discriminant`); on the halves B it is tested whether suspects have larger values of g. The S
    p-values are merged into p_(ceil(S/2))·S/ceil(S/2), about twice their median.

    Guarantee: P(p <= alpha) <= alpha if the model was trained on neither set and the K-vectors of scores of both are
    exchangeable item by item (so one passage a document, or the mean over each document, and no copies), by `test`:
      "permutation": the rank sum of g in B against rank sums of random labellings of B; finite-sample. Given A and the
        values of B without their labels, g is fixed, for it sees no label of B, and all labellings of B are equally
        likely. The merged p-value is valid however the splits depend on one another. Smallest possible value:
        `log_smallest_p`. The default.
      "t": Welch's one-sided t-test of g in B; asymptotic. The test of Maini et al. (2024).
    The paper's removal of the largest and smallest 2.5% of each set is left out: the t-test then takes the spread of
    what remains for the spread of the mean, and rejects too often. p-values of splits share their items: Fisher's
    combination, or the smallest, is not valid either. `tdd study validity` measures both.

    Sets that differ without any model (in date, source, length) are told apart in the same way. Run
    `tdd.audit.blind_baseline.blind_baseline` on the texts, and do not take a small p-value for training where it warns.

    Args:
      suspect: [K, n] scores of the items that may have been trained on, LOWER = more member-like.
      heldout: [K, m] scores of items of the same kind that cannot have been.
      key: PRNG key of splits and labellings, which depend on it and on a hash of the scores.
      test: which test on the halves B.
      num_splits: S.
      num_draws: random labellings of each split, for "permutation".
      suspect_mask: [n] bool, True = real item; an item with a NaN in any row is left out besides.
      heldout_mask: [m] bool.

    Returns:
      `DatasetInferenceResult`. Cost: O(S·num_draws·(n + m)).

    Raises:
      InputError: wrong shapes, infinite scores, fewer than four real items in a set, unknown `test`, an invalid key.

    >>> heldout = [[2.0, 3, 4, 5, 6, 7, 8, 9]]
    >>> result = dataset_inference([[0.0, 0.5, 1, 1.5, -1, -2, 0.7, 0.2]], heldout, key=jax.random.key(0), test="t")
    >>> float(result.statistic), bool(result.p_value < 0.05)
    (1.0, True)

    References: Maini, Jia, Papernot & Dziedzic (2024), "LLM Dataset Inference: Did you train on my dataset?".
    """
    arrays.check_choice(test, tuple(DATASET_GUARANTEES), "test")
    arrays.check_key(key, "the splits")
    num_splits, num_draws = arrays.as_count(num_splits, "num_splits"), arrays.as_count(num_draws, "num_draws")
    suspect = arrays.as_matrix(suspect, "suspect", "[scores, items]")
    heldout = arrays.as_matrix(heldout, "heldout", "[scores, items]")
    if len(suspect) != len(heldout) or not len(suspect):
        raise InputError(
            f"suspect has {len(suspect)} scores and heldout has {len(heldout)}; both need the same scores in the same "
            "order, one a row, and at least one"
        )
    for name, panel in (("suspect", suspect), ("heldout", heldout)):
        arrays.check_finite(panel, name)
    suspect_mask = arrays.as_mask(suspect_mask, suspect[0], "suspect_mask")
    heldout_mask = arrays.as_mask(heldout_mask, heldout[0], "heldout_mask")
    key = key_of(key, (suspect, suspect_mask), (heldout, heldout_mask))
    heldout, suspect, heldout_mask, suspect_mask = ordered_panels(heldout, suspect, heldout_mask, suspect_mask)
    if not tracing(suspect_mask, heldout_mask):
        for name, real in (("suspect", suspect_mask), ("heldout", heldout_mask)):
            if (count := int(np.asarray(real).sum())) < FEWEST:
                raise InputError(f"{name} needs at least {FEWEST} items with all scores, two in each half; got {count}")
    return _dataset_inference(heldout, suspect, heldout_mask, suspect_mask, key, test, num_splits, num_draws)


def log_smallest_p(num_suspect: int, num_heldout: int, *, num_splits: int, num_draws: int = NUM_DRAWS) -> float:
    """Log of the smallest p-value of "permutation": S/ceil(S/2) times that of one split.

    One split has about 1/(num_draws + 1), and in the mean no less than one over the number of labellings of its half.
    """
    n, m = num_suspect - num_suspect // 2, num_heldout - num_heldout // 2
    labellings = math.lgamma(n + m + 1) - math.lgamma(n + 1) - math.lgamma(m + 1)
    one = max(-math.log(num_draws + 1), -labellings)
    return min(0.0, one + math.log(num_splits / ((num_splits + 1) // 2)))


@functools.partial(jax.jit, static_argnames=("test", "num_splits", "num_draws"))
def _dataset_inference(heldout, suspect, heldout_mask, suspect_mask, key, test, num_splits, num_draws):
    pooled, real = jnp.concatenate([heldout, suspect], axis=1), jnp.concatenate([heldout_mask, suspect_mask])
    is_suspect = jnp.arange(pooled.shape[1]) >= heldout.shape[1]

    def one(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        dividing, drawing = jax.random.split(key)
        drawn = jax.random.uniform(dividing, real.shape)
        fitted = _half(drawn, real & is_suspect) | _half(drawn, real & ~is_suspect)
        options = {"test": test, "num_draws": num_draws, "key": drawing}
        return split_p_value(pooled, is_suspect, fitted, real & ~fitted, **options)

    log_p, auc, weights = jax.lax.map(one, jax.random.split(key, num_splits))
    weights = jnp.mean(weights, axis=0)
    alone = jax.vmap(lambda row: _auc(row, real & is_suspect, real & ~is_suspect))(arrays.negated(pooled))
    middle = (num_splits + 1) // 2
    merged = jnp.minimum(jnp.sort(log_p)[middle - 1] + math.log(num_splits / middle), 0)
    return DatasetInferenceResult(
        p_value=jnp.exp(merged),
        log_p_value=merged,
        statistic=jnp.mean(auc),
        split_p_values=jnp.exp(log_p),
        weights=weights,
        auc_alone=alone,
        toward_members=jnp.sum(jnp.abs(weights) * (alone - 0.5)) > 0,
        num_suspect=jnp.sum(suspect_mask, dtype=jnp.int32),
        num_heldout=jnp.sum(heldout_mask, dtype=jnp.int32),
        method=f"dataset_inference/{test}",
        guarantee=DATASET_GUARANTEES[test],
    )


def split_p_value(
    scores: jax.Array,
    is_suspect: jax.Array,
    fitted: jax.Array,
    tested: jax.Array,
    *,
    test: str,
    num_draws: int,
    key: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Log p-value, AUC and weights [K] of one split: g is learned from the items `fitted` and tested on `tested`.

    The p-value is valid if no item is both; `scores` [K, N], masks [N].
    """
    label = jnp.where(fitted, is_suspect, -1)
    found = discriminant.discriminant(scores, label, null="nonmember", sparse=False, mask=fitted | tested)
    g, b = found
    suspect, heldout = tested & is_suspect, tested & ~is_suspect
    auc = _auc(g, suspect, heldout)
    weights = b / jnp.sum(jnp.abs(b))
    if test == "t":
        return _welch(g, suspect, heldout), auc, weights
    drawn = jax.random.uniform(key, (num_draws, len(g)))
    order = jnp.argsort(jnp.where(tested, drawn, 2), axis=1)
    chosen = (jnp.arange(len(g)) < jnp.sum(suspect)).astype(bool)
    draws = jax.vmap(lambda row: jnp.zeros_like(chosen).at[row].set(chosen))(order)
    labels = jnp.concatenate([suspect[None], draws])
    sums = set_statistics.set_statistics(-g, labels, mask=tested, statistic="rank_sum")
    reached = jnp.sum(sums[1:] >= sums[0], dtype=jnp.int32)
    return permutation.counted(reached, jnp.int32(num_draws)).log_p_value, auc, weights


def _auc(values: jax.Array, suspect: jax.Array, heldout: jax.Array) -> jax.Array:
    """Fraction of pairs in which the suspect has the larger value; half of the ties count."""
    place = ranks.counts(values, values, calibration_mask=heldout)
    m, n = (jnp.maximum(jnp.sum(part), 1) for part in (heldout, suspect))
    return jnp.sum(jnp.where(suspect, place.less + place.equal / 2, 0)) / (m * n)


def _half(drawn: jax.Array, part: jax.Array) -> jax.Array:
    """[N] bool: the half, rounded down, of the items of a part whose drawn numbers are smallest."""
    order = jnp.argsort(jnp.where(part, drawn, 2))
    chosen = jnp.arange(len(drawn)) < jnp.sum(part) // 2
    return jnp.zeros_like(part).at[order].set(chosen)


def _welch(values: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
    """Log p-value of Welch's test that the mean of the first group is larger; 0 where no value differs."""
    moments = []
    for group in (first, second):
        size = jnp.sum(group).astype(values.dtype)
        mean = jnp.sum(jnp.where(group, values, 0)) / size
        variance = jnp.sum(jnp.where(group, (values - mean) ** 2, 0)) / (size - 1)
        moments.append((mean, variance / size, size))
    (mean, error, size), (other, other_error, other_size) = moments
    total = error + other_error
    spread = jnp.where(total > 0, total, 1)
    freedom = spread**2 / (error**2 / (size - 1) + other_error**2 / (other_size - 1))
    log_p = student.log_sf((mean - other) / jnp.sqrt(spread), jnp.where(total > 0, freedom, 1))
    return jnp.where(total > 0, log_p, 0)
