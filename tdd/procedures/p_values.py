"""Conformal p-values: plain, against clusters, within groups.

Under a transformation of JAX values are not checked.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax.core import Tracer

from tdd.kernels import clusters as cluster_kernels
from tdd.kernels import conformal
from tdd.procedures.calls import at_common_size, key_of, operand, ordered_scores, to_common_size
from tdd.records import Guarantee, Null
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

_EXCHANGEABLE = (
    "the null holds for every calibration item",
    "calibration scores and the scores of null test items are exchangeable",
)
_VOVK = "Vovk, Gammerman & Shafer (2005)"

CONFORMAL: dict[str, Guarantee] = {
    "conservative": Guarantee.finite_sample(
        "P(p <= t) <= t for every t", _EXCHANGEABLE, f"{_VOVK}; Bates et al. (2023), eq. 2"
    ),
    "randomized": Guarantee.finite_sample("P(p <= t) = t for every t", _EXCHANGEABLE, f"{_VOVK}, smoothed"),
    "shared": Guarantee.finite_sample(
        "P(p <= k/(n+1)) = k/(n+1) for every k",
        _EXCHANGEABLE,
        f"{_VOVK}, on one random order of calibration and test items that refines the scores",
    ),
}

HIERARCHICAL = Guarantee.finite_sample(
    "P(p <= t) <= t for every t",
    (
        "the item is drawn at random from a cluster that is exchangeable with the calibration clusters, their sizes "
        "included",
    ),
    "Lee, Barber & Willett (2023), theorem 1",
)
MONDRIAN = Guarantee.finite_sample(
    "P(p <= t | group) <= t for every t",
    ("within each group, calibration scores and null test scores are exchangeable",),
    "Vovk, Lindsay, Nouretdinov & Gammerman (2003)",
)

GUARANTEE_ROWS: list[tuple[str, str, Guarantee]] = [
    *(("tdd.conformal_p_values", f'tie_break="{name}"', guarantee) for name, guarantee in CONFORMAL.items()),
    ("tdd.hierarchical_p_values", "", HIERARCHICAL),
    ("tdd.mondrian_p_values", "", MONDRIAN),
]


@in_own_settings()
def conformal_p_values(
    calibration: Any,
    scores: Any,
    *,
    null: Null,
    tie_break: Literal["conservative", "randomized", "shared"] = "conservative",
    key: jax.Array | None = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> jax.Array:
    """Conformal p-values p_j = (1 + #{i: T_i at least as member-like as T_j}) / (n + 1), or the reverse.

    Guarantee: P(p_j <= t) <= t for every t under the null, if calibration scores and null test scores are exchangeable;
    finite-sample. With "randomized" and "shared" P(p_j <= t) = t on the whole resolution of the p-value.

    Args:
      calibration: [n] loss-like scores (lower = more member-like) of items for which the null holds.
      scores: [m] loss-like scores to test.
      null: "nonmember": calibrated on known non-members, small scores are evidence of membership. "member": calibrated
        on known members, large scores are evidence that an item is clean.
      tie_break: "conservative" counts ties against the item; "randomized" smooths each p-value by its own uniform;
        "shared" breaks all ties by one random order of calibration and test items together.
      key: PRNG key for "randomized" and "shared".
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      [m] p-values in (0, 1], NaN if the score is NaN or masked out.

    Raises:
      InputError: wrong shapes, an infinite score, no calibration items, unknown options, a missing or invalid key.

    >>> conformal_p_values([1.0, 2.0, 3.0], [0.5, 2.0, 9.0], null="nonmember").tolist()
    [0.25, 0.75, 1.0]

    Cost: O((n + m) log n). References: Vovk, Gammerman & Shafer (2005); PTDI, eq. 7; TD4Eval, eq. 5 (inequality
    corrected, + 1 added).
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    arrays.check_choice(tie_break, tuple(CONFORMAL), "tie_break")
    samples, masks = ordered_scores(calibration, scores, calibration_mask, mask)
    if tie_break == "conservative":
        key = None  # draws nothing
    else:
        arrays.check_key(key, f'tie_break="{tie_break}"')
        key = key_of(key, (calibration, calibration_mask), (scores, mask))
    if key is not None:  # what is drawn depends on the sizes
        return _conformal(*samples, masks, key, null=null, tie_break=tie_break)
    (calibration, scores), (real, mask) = samples, (masks["calibration_mask"], masks["mask"])
    calibration, real = to_common_size(calibration, real, scores, mask, coarse=True)

    def run(scores: Any, mask: Any) -> jax.Array:
        masks = {"calibration_mask": real, "mask": mask}
        return _conformal(calibration, scores, masks, None, null=null, tie_break=tie_break)

    return at_common_size(run, scores, mask, calibration, real)


@functools.partial(jax.jit, static_argnames=("null", "tie_break"))
def _conformal(calibration, scores, masks, key, *, null, tie_break):
    if tie_break == "randomized":
        return conformal.randomized_p_values(calibration, scores, null=null, key=key, **masks)
    ranked = conformal.rank(calibration, scores, null=null, tie_break=tie_break, key=key, **masks)
    return conformal.p_values(ranked)


@in_own_settings()
def hierarchical_p_values(
    calibration: Any,
    scores: Any,
    calibration_clusters: Sequence[Hashable] | Any,
    *,
    null: Null,
    calibration_mask: Any = None,
    mask: Any = None,
) -> jax.Array:
    """Conformal p-values of single items against clusters of calibration items, each cluster with weight 1.

    p_j = (1 + sum over clusters c of #{i in c: T_ci at least as extreme as T_j}/n_c) / (C + 1).

    Guarantee: P(p_j <= t) <= t for an item drawn at random from a null cluster that is exchangeable with the C
    calibration clusters, their sizes included; finite-sample (Lee, Barber & Willett 2023, theorem 1).

    Args:
      calibration: [n] loss-like scores of items for which the null holds.
      scores: [m] loss-like scores of items from other clusters.
      calibration_clusters: [n] labels, anything hashable.
      null: "nonmember" (small scores are evidence) or "member" (large scores are).
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      [m] p-values in (0, 1], NaN if the score is NaN or masked out.

    Raises:
      InputError: wrong shapes, an infinite score, no calibration items, missing labels, unknown `null`.

    >>> hierarchical_p_values([1.0, 3.0, 5.0], [2.0], ["a", "a", "b"], null="nonmember").tolist()
    [0.5]
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    samples, masks = ordered_scores(calibration, scores, calibration_mask, mask)
    known: dict[Hashable, int] = {}
    clusters = label_indices(as_labels(calibration_clusters, samples[0], "calibration_clusters"), known)
    return _hierarchical(*samples, operand(clusters), num_clusters=len(known), null=null, **masks)


_hierarchical = jax.jit(cluster_kernels.hierarchical_p_values, static_argnames=("num_clusters", "null"))


@in_own_settings()
def mondrian_p_values(
    calibration: Any,
    scores: Any,
    calibration_groups: Sequence[Hashable] | Any,
    groups: Sequence[Hashable] | Any,
    *,
    null: Null,
    calibration_mask: Any = None,
    mask: Any = None,
) -> jax.Array:
    """Conformal p-values within groups: p_j = (1 + #{i in the group of j, as extreme as j})/(n_g + 1).

    For sources, languages or lengths whose scores differ.

    Guarantee: P(p_j <= t | group) <= t under the null, if calibration and null test scores are exchangeable within each
    group; finite-sample (Vovk, Lindsay, Nouretdinov & Gammerman 2003). A candidate whose group has no calibration item
    has p = 1. If groups are independent of one another, BH on all of them together has FDR <= alpha·m0/m.

    Args:
      calibration: [n] loss-like scores of items for which the null holds.
      scores: [m] loss-like scores to test.
      calibration_groups: [n] labels, anything hashable.
      groups: [m] labels.
      null: "nonmember" (small scores are evidence) or "member" (large scores are).
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      [m] p-values in (0, 1], NaN if the score is NaN or masked out.

    Raises:
      InputError: wrong shapes, an infinite score, no calibration items, missing labels, no common group but labels that
        differ in type only (1 and "1").

    >>> mondrian_p_values([1.0, 2.0, 9.0], [1.5, 8.0], ["x", "x", "y"], ["x", "y"], null="nonmember").round(4).tolist()
    [0.666700005531311, 0.5]
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    samples, masks = ordered_scores(calibration, scores, calibration_mask, mask)
    sides = as_labels(calibration_groups, samples[0], "calibration_groups"), as_labels(groups, samples[1], "groups")
    _check_same_kind(*sides)
    known: dict[Hashable, int] = {}
    indices = [operand(label_indices(labels, known)) for labels in sides]
    return _mondrian(*samples, *indices, null=null, **masks).p_values


_mondrian = jax.jit(cluster_kernels.group_p_values, static_argnames="null")


def as_labels(labels: Any, values: Any, name: str) -> list[Hashable]:
    """Check one label an item: known before tracing, hashable, none missing."""
    if isinstance(labels, Tracer):
        raise InputError(f"{name} must be known before tracing: pass it as a constant, not as an argument of jax.jit")
    if isinstance(labels, (str, bytes)):
        raise InputError(f"{name} must be a sequence of labels, one an item; got the single text {labels!r}")
    try:
        known: list[Any] = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    except TypeError as error:
        raise InputError(f"{name} must be a sequence of labels, one an item: {error}") from error
    if not isinstance(known, list):
        raise InputError(f"{name} must be a sequence of labels, one an item; got {labels!r}")
    if len(known) != np.shape(values)[0]:
        raise InputError(
            f"{name} has shape {(len(known),)}, but there are {np.shape(values)[0]} scores: one entry a score is needed"
        )
    for i, label in enumerate(known):
        try:
            hash(label)
        except TypeError as error:
            raise InputError(
                f"{name}[{i}] is {label!r}, which cannot be a label: labels must be hashable and one an item"
            ) from error
        if label is None or type(label).__name__ in ("NAType", "NaTType") or label != label:
            raise InputError(f"{name}[{i}] is missing ({label!r}); give an item without a cluster a label of its own")
    return known


def label_indices(labels: Sequence[Hashable], known: dict[Hashable, int]) -> np.ndarray:
    """Number labels in order of first appearance, [n] int32; `known` is extended in place."""
    return np.fromiter((known.setdefault(label, len(known)) for label in labels), np.int32, count=len(labels))


def _check_same_kind(calibration_labels: Sequence[Hashable], labels: Sequence[Hashable]) -> None:
    """Refuse labels that differ in type only (1 and "1") if no label is common."""
    known, tested = set(calibration_labels), set(labels)
    if known & tested:
        return
    alike = {str(label): label for label in known}
    for label in tested:
        if str(label) in alike:
            raise InputError(
                f"groups and calibration_groups have no label in common: {label!r} is not {alike[str(label)]!r}, and "
                "every p-value would be 1; give both the same type"
            )
