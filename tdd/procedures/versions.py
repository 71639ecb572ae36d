"""The data owner's test: of each document one version, drawn at random, was published, and the others were kept."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax

from tdd.procedures.exchangeability import ExchangeabilityResult, exchangeability
from tdd.records import Guarantee
from tdd.validate import InputError, arrays

__all__ = ["GUARANTEES", "GUARANTEE_ROWS", "version_test"]

_TESTS = ("rank_sum", "exact", "combined", "t")
_SIZE = "P(p <= alpha) <= alpha if the model was trained without the published versions, or on all versions alike"
_DRAWN = (
    "which version of each document was published was drawn uniformly at random from all of its versions, for every "
    "document independently; a human original beside its paraphrases was not drawn",
    "versions, score and test were fixed before any score was seen",
)

_INFINITE = "{count} of {size} scores are infinite; use NaN for a score that is missing: its document is left out"

GUARANTEES: dict[str, Guarantee] = {
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

GUARANTEE_ROWS = [("tdd.version_test", f'test="{name}"', guarantee) for name, guarantee in GUARANTEES.items()]


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
    arrays.check_choice(test, _TESTS, "test")
    published = arrays.as_vector(published, "published")
    private = arrays.as_matrix(private, "private", "[documents, versions]")
    if not private.size or len(private) != len(published):
        raise InputError(
            f"published must be [documents] and private [documents, versions], got {published.shape} and "
            f"{private.shape}; give every document the same number of private versions"
        )
    for name, values in (("published", published), ("private", private)):
        arrays.check_finite(values, name, _INFINITE)
    found = exchangeability(-published, -private, test=test, key=key, mask=mask)
    return dataclasses.replace(found, method=f"version_test/{test}", guarantee=GUARANTEES[test])
