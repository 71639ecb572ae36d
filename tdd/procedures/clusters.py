"""Items that come in clusters (passages of one book) or in groups (sources, languages)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import clusters as kernel
from tdd.kernels import conformal, evalues, stepup
from tdd.procedures.calls import level_operand, order_preserving, tracing
from tdd.procedures.ptdi import ptdi
from tdd.procedures.testing import checked_scores
from tdd.records import Guarantee, Selection, pytree
from tdd.validate import arrays, shift
from tdd.validate.errors import InputError

__all__ = [
    "GUARANTEES",
    "GUARANTEE_ROWS",
    "UNITS",
    "ClusterSelection",
    "cluster_ptdi",
    "hierarchical_p_values",
    "mondrian_p_values",
]

UNITS = ("cluster", "item", "drawn")
_PROPORTIONS = ("none", "storey", "subtraction")

_CLUSTERS = (
    "the calibration clusters are non-members of the training data as a whole",
    "given the other test clusters, calibration clusters and those that are non-members as a whole are exchangeable, "
    "their sizes included; nothing is assumed of items within a cluster",
    "the score, alpha and every other option were chosen before any result was seen",
)
_BOUNDS = {"none": "alpha * m0/m", "storey": "alpha", "subtraction": "alpha * (1 + 1/m) * (1 + 1/n)"}
_SOURCES = {
    "none": "Marandon et al. (2024)",
    "storey": "Bates et al. (2023), theorem 3; Marandon et al. (2024)",
    "subtraction": "PTDI eq. 8-12",
}

GUARANTEES: dict[str, Guarantee] = {
    **{
        f"cluster/{name}": Guarantee(
            f"FDR over clusters <= {bound}, m and n counting clusters",
            _CLUSTERS,
            "finite-sample",
            f"{_SOURCES[name]}, on one score a cluster",
        )
        for name, bound in _BOUNDS.items()
    },
    "item": Guarantee(
        "expected share of items of non-member clusters among the selected items <= alpha * M0/M, M0 of M clusters",
        (
            *_CLUSTERS[:1],
            "given the other test clusters, a test cluster that is a non-member as a whole and the calibration "
            "clusters are exchangeable, their sizes included; nothing is assumed of items within a cluster",
            _CLUSTERS[2],
        ),
        "finite-sample",
        "tdd.kernels.evalues.unit_e_values; Bashari et al. (2023); Wang & Ramdas (2022)",
        "one",
    ),
    "item/uninformative": Guarantee(
        "FDR over items <= alpha * m0/m",
        (
            "each non-member candidate is distributed as an item drawn at random from a further cluster that is "
            "exchangeable with the calibration clusters, their sizes included",
            "how many candidates there are, and in which clusters, does not depend on the scores: the sizes of "
            "clusters are uninformative",
            "the score, alpha and every other option were chosen before any result was seen",
        ),
        "finite-sample",
        "Lee, Barber & Willett (2023), theorem 1; Benjamini & Yekutieli (2001), theorem 1.3",
    ),
    **{
        f"drawn/{name}": Guarantee(
            f"FDR over the drawn items <= {bound}, m and n counting clusters",
            (
                "one item of each cluster is drawn at random",
                "the drawn calibration items and the drawn items that are non-members are exchangeable, as they are "
                "where whole clusters are members or non-members and the latter are exchangeable with the calibration "
                "clusters",
                "the score, alpha and every other option were chosen before any result was seen",
            ),
            "finite-sample",
            f"{_SOURCES[name]}; Dunn, Wasserman & Ramdas (2023), section 3",
        )
        for name, bound in _BOUNDS.items()
    },
    "mondrian": Guarantee(
        "P(p <= t | group) <= t for every t",
        ("within each group, calibration scores and null test scores are exchangeable",),
        "finite-sample",
        "Vovk, Lindsay, Nouretdinov & Gammerman (2003)",
    ),
    "hierarchical": Guarantee(
        "P(p <= t) <= t for every t",
        (
            "the item is drawn at random from a cluster that is exchangeable with the calibration clusters, their "
            "sizes included",
        ),
        "finite-sample",
        "Lee, Barber & Willett (2023), theorem 1",
    ),
}

GUARANTEE_ROWS: list[tuple[str, str, Guarantee]] = [
    *[
        ("tdd.cluster_ptdi", f'unit="{unit}", proportion="{name}"', GUARANTEES[f"{unit}/{name}"])
        for unit in ("cluster", "drawn")
        for name in _PROPORTIONS
    ],
    ("tdd.cluster_ptdi", 'unit="item"', GUARANTEES["item"]),
    ("tdd.cluster_ptdi", 'unit="item", sizes="uninformative"', GUARANTEES["item/uninformative"]),
    ("tdd.hierarchical_p_values", "", GUARANTEES["hierarchical"]),
    ("tdd.mondrian_p_values", "", GUARANTEES["mondrian"]),
]


@pytree("method", "null", "guarantee")
class ClusterSelection(Selection):
    """A selection among items that come in clusters.

    The fields of `Selection` are those of items: with unit="cluster" every item carries the decision, the p-value and
    the adjusted p-value of its cluster; with unit="drawn" the items that were not drawn are not tested and have NaN.
    `num_calibration` counts calibration clusters, which is what the p-values rest on; `min_selections` counts items.

    Attributes:
      cluster: [m] int32, each item's cluster, numbered in order of first appearance among the candidates.
      cluster_selected: [C] bool, whether an item of the cluster is selected; with unit="cluster" the decision itself,
        else a summary that no guarantee covers.
      num_clusters: [] int32, test clusters with a tested item.
    """

    cluster: jax.Array
    cluster_selected: jax.Array
    num_clusters: jax.Array


def cluster_ptdi(
    calibration: Any,
    scores: Any,
    calibration_clusters: Sequence[Hashable] | Any,
    clusters: Sequence[Hashable] | Any,
    *,
    alpha: Any,
    unit: Literal["cluster", "item", "drawn"] = "cluster",
    aggregate: Literal["mean", "median", "min"] = "mean",
    proportion: Literal["none", "storey", "subtraction"] = "storey",
    eta: Any = 0.05,
    sizes: Literal["informative", "uninformative"] = "informative",
    key: jax.Array | None = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> ClusterSelection:
    """Select candidates that were in the training data where items come in clusters; `tdd.ptdi` takes them one by one.

    Passages of one book are alike, so a calibration passage and a candidate are not exchangeable one by one, and PTDI
    on passages can exceed its level by far. Whole books are:
      "cluster": one score a cluster, `tdd.ptdi` on clusters; all items of a selected cluster are selected.
      "item": e-values of items, (m/M) (C + 1)/(a + n_c) up to a threshold that suits the other clusters, a and n_c the
        items of calibration and of the item's own cluster up to it; e-BH (`tdd.kernels.evalues.unit_e_values`).
        With sizes="uninformative" p_j = (1 + sum over calibration clusters of the share of items at least as
        member-like)/(C + 1), decided by Benjamini-Yekutieli.
      "drawn": one item of each cluster is drawn at random, `tdd.ptdi` on those; only they can be selected.

    Guarantee: finite-sample FDR over clusters ("cluster"), items ("item") or drawn items ("drawn"), if calibration
    clusters and test clusters without any member are exchangeable, their sizes included. For "item" a selected item
    counts as false if its cluster has no member; with sizes="uninformative" every selected non-member does, but each of
    them must be distributed as a random item of a non-member cluster and the sizes say nothing about the scores: where
    long books score lower, that rule's FDR reaches .39 at .2. "cluster" says that a cluster is not a non-member as a
    whole, not that each of its items is a member. `ClusterSelection.guarantee` says it in words.

    Args:
      calibration: [n] loss-like scores (lower = more member-like) of known non-members.
      scores: [m] loss-like scores of the candidates.
      calibration_clusters: [n] labels, anything hashable; the texts of one author, book, page, ...
      clusters: [m] labels. No label may occur on both sides.
      alpha: level in (0, 1); may be traced.
      unit: what is decided.
      aggregate: the score of a cluster, for "cluster": the mean is best where all items of a cluster are members or
        none is, the minimum where one passage gives a book away.
      proportion: as `tdd.ptdi`, over clusters or drawn items; "item" has no estimate and does not use it.
      eta: as `tdd.ptdi`.
      sizes: whether the number of items of a cluster may tell something about its scores; for "item" only.
      key: PRNG key, used by "drawn" only.
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      `ClusterSelection`. NaN scores are left out of their cluster; a cluster without a score is left out of C.

    Raises:
      InputError: as `tdd.ptdi`, missing or unhashable labels, a cluster on both sides, a missing key, unknown options.

    Cost: O((n + m) log(n + m)); compiled anew for other numbers of clusters.

    >>> found = cluster_ptdi(
    ...     [5.0, 6.0, 7.0, 9.0], [1.0, 2.0, 8.0], ["a", "a", "b", "c"], ["d", "d", "e"], alpha=0.5, proportion="none")
    >>> found.selected.tolist(), found.p_values.tolist()
    ([True, True, False], [0.25, 0.25, 0.75])

    References: PTDI, algorithm 1, on clusters; Lee, Barber & Willett (2023); Dunn, Wasserman & Ramdas (2023).
    """
    arrays.check_choice(unit, UNITS, "unit")
    arrays.check_choice(aggregate, kernel.AGGREGATES, "aggregate")
    arrays.check_choice(proportion, _PROPORTIONS, "proportion")
    arrays.check_choice(sizes, ("informative", "uninformative"), "sizes")
    calibration, scores, calibration_mask, mask = checked_scores(calibration, scores, calibration_mask, mask)
    own = shift.as_labels(calibration_clusters, calibration, "calibration_clusters")
    other = shift.as_labels(clusters, scores, "clusters")
    _check_disjoint(own, other, calibration_mask, mask)
    arrays.check_level(alpha)
    arrays.check_level(eta, "eta")
    places: tuple[dict[Hashable, int], ...] = ({}, {})
    labels = tuple(jnp.asarray(_dense(each, known)) for each, known in zip((own, other), places, strict=True))
    counts = tuple(len(known) for known in places)
    if unit == "item":
        samples, masks = order_preserving((calibration, scores), (calibration_mask, mask))
        return _items(*samples, *masks, *labels, level_operand(alpha), num_clusters=counts, sizes=sizes)
    how = {"alpha": alpha, "proportion": proportion, "eta": eta}
    if unit == "cluster":
        first, second = _aggregated((calibration, scores), (calibration_mask, mask), labels, counts, aggregate)
        found = ptdi(first.scores, second.scores, calibration_mask=first.valid, mask=second.valid, **how)
        guarantee = GUARANTEES[f"cluster/{proportion}"]
        return _of_clusters(found, scores, mask, labels[1], second.size, guarantee=guarantee)
    arrays.check_key(key, 'unit="drawn"')
    assert key is not None
    samples, masks = order_preserving((calibration, scores), (calibration_mask, mask))
    draws = [
        _drawn(sample, real, label, own_key, num_clusters=size)
        for sample, real, label, own_key, size in zip(
            samples, masks, labels, jax.random.split(key), counts, strict=True
        )
    ]
    (index, some), (own_index, own_some) = draws[1], draws[0]
    found = ptdi(samples[0][own_index], samples[1][index], calibration_mask=own_some, mask=some, **how)
    return _of_draws(found, scores, index, some, labels[1], guarantee=GUARANTEES[f"drawn/{proportion}"])


def hierarchical_p_values(
    calibration: Any,
    scores: Any,
    calibration_clusters: Sequence[Hashable] | Any,
    *,
    null: Literal["nonmember", "member"],
    calibration_mask: Any = None,
    mask: Any = None,
) -> jax.Array:
    """Conformal p-values of single items against clusters of calibration items, each cluster weighing 1.

    p_j = (1 + sum over clusters c of #{i in c: T_ci at least as extreme as T_j}/n_c) / (C + 1).

    Guarantee: P(p_j <= t) <= t for an item drawn at random from a null cluster that is exchangeable with the C
    calibration clusters, their sizes included; finite-sample.

    Args:
      calibration: [n] loss-like scores of items for which the null holds.
      scores: [m] loss-like scores; none of them from a calibration cluster.
      calibration_clusters: [n] labels, anything hashable.
      null: "nonmember" or "member".
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      [m] p-values in (0, 1], NaN where the score is NaN or masked out.

    Raises:
      InputError: bad shapes, an infinite score, no calibration items, missing labels, unknown `null`.

    >>> hierarchical_p_values([1.0, 3.0, 5.0], [2.0], ["a", "a", "b"], null="nonmember").tolist()
    [0.5]

    References: Lee, Barber & Willett (2023), theorem 1.
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    calibration, scores, calibration_mask, mask = checked_scores(calibration, scores, calibration_mask, mask)
    places: dict[Hashable, int] = {}
    labels = _dense(shift.as_labels(calibration_clusters, calibration, "calibration_clusters"), places)
    samples, masks = order_preserving((calibration, scores), (calibration_mask, mask))
    return _hierarchical(*samples, *masks, jnp.asarray(labels), num_clusters=len(places), null=null)


def mondrian_p_values(
    calibration: Any,
    scores: Any,
    calibration_groups: Sequence[Hashable] | Any,
    groups: Sequence[Hashable] | Any,
    *,
    null: Literal["nonmember", "member"],
    calibration_mask: Any = None,
    mask: Any = None,
) -> jax.Array:
    """Conformal p-values within groups: p_j = (1 + #{i in the group of j, as extreme as j})/(n_g + 1).

    For sources, languages or lengths whose scores differ: a candidate is compared with calibration items of its own
    group alone.

    Guarantee: P(p_j <= t | group) <= t under the null, if within each group calibration and null test scores are
    exchangeable; finite-sample. A candidate whose group has no calibration item has p = 1: nothing speaks against its
    null. With groups independent of one another, BH on all of them together has FDR <= alpha·m0/m.

    Args:
      calibration: [n] loss-like scores of items for which the null holds.
      scores: [m] loss-like scores to test.
      calibration_groups: [n] labels, anything hashable.
      groups: [m] labels.
      null: "nonmember" (small scores are evidence) or "member" (large scores are).
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      [m] p-values in (0, 1], NaN where the score is NaN or masked out.

    Raises:
      InputError: bad shapes, an infinite score, no calibration items, missing labels, no group in common but
        labels that differ in type alone (1 and "1").

    Cost: one sort of n + m.

    >>> mondrian_p_values([1.0, 2.0, 9.0], [1.5, 8.0], ["x", "x", "y"], ["x", "y"], null="nonmember").round(4).tolist()
    [0.666700005531311, 0.5]

    References: Vovk, Lindsay, Nouretdinov & Gammerman (2003).
    """
    arrays.check_choice(null, conformal.NULLS, "null")
    calibration, scores, calibration_mask, mask = checked_scores(calibration, scores, calibration_mask, mask)
    own = shift.as_labels(calibration_groups, calibration, "calibration_groups")
    other = shift.as_labels(groups, scores, "groups")
    _check_same_kind(own, other)
    known: dict[Hashable, int] = {}
    labels = tuple(jnp.asarray(_dense(each, known)) for each in (own, other))
    samples, masks = order_preserving((calibration, scores), (calibration_mask, mask))
    return _mondrian(*samples, *masks, *labels, null=null)


def _aggregated(samples: Any, masks: Any, labels: Any, sizes: Any, aggregate: str) -> list[Any]:
    """`ClusterScores` of both sides; NumPy scores are averaged in double precision."""

    def run() -> list[Any]:
        return [
            _cluster_scores(jnp.asarray(sample), label, mask, num_clusters=size, aggregate=aggregate)
            for sample, mask, label, size in zip(samples, masks, labels, sizes, strict=True)
        ]

    if not all(isinstance(sample, np.ndarray) for sample in samples) or tracing(*masks):
        return run()
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, run())


@functools.partial(jax.jit, static_argnames=("num_clusters", "aggregate"))
def _cluster_scores(scores, labels, mask, *, num_clusters, aggregate):
    return kernel.cluster_scores(scores, labels, num_clusters=num_clusters, aggregate=aggregate, mask=mask)


@functools.partial(jax.jit, static_argnames="num_clusters")
def _drawn(scores, mask, labels, key, *, num_clusters):
    real = mask & ~jnp.isnan(scores) if jnp.issubdtype(scores.dtype, jnp.inexact) else mask
    return kernel.draw_items(labels, num_clusters=num_clusters, key=key, mask=real)


@functools.partial(jax.jit, static_argnames=("num_clusters", "null"))
def _hierarchical(calibration, scores, calibration_mask, mask, labels, *, num_clusters, null):
    masks = {"calibration_mask": calibration_mask, "mask": mask}
    return kernel.hierarchical_p_values(calibration, scores, labels, num_clusters=num_clusters, null=null, **masks)


@functools.partial(jax.jit, static_argnames="null")
def _mondrian(calibration, scores, calibration_mask, mask, calibration_groups, groups, *, null):
    masks = {"calibration_mask": calibration_mask, "mask": mask}
    return kernel.group_p_values(calibration, scores, calibration_groups, groups, null=null, **masks).p_values


@functools.partial(jax.jit, static_argnames=("num_clusters", "sizes"))
def _items(calibration, scores, calibration_mask, mask, own, labels, alpha, *, num_clusters, sizes) -> ClusterSelection:
    masks = {"calibration_mask": calibration_mask, "mask": mask}
    p = kernel.hierarchical_p_values(calibration, scores, own, num_clusters=num_clusters[0], null="nonmember", **masks)
    step = stepup.by(p, alpha)
    name = "item/uninformative"
    if sizes == "informative":
        units = {"num_units": num_clusters, "null": "nonmember"}
        found = evalues.unit_e_values(calibration[None], scores[None], own, labels, alpha, **units, **masks)
        chosen, name = evalues.e_bh(found.e_values, alpha), "item"
        step = step._replace(
            reject=chosen.reject,
            adjusted=chosen.adjusted,
            threshold=jnp.max(jnp.where(chosen.reject, p, 0), initial=0),
            num_rejected=chosen.num_rejected,
        )
    real = calibration_mask
    if jnp.issubdtype(calibration.dtype, jnp.inexact):
        real = real & ~jnp.isnan(calibration)
    size = jax.ops.segment_sum(real.astype(jnp.int32), own, num_clusters[0])
    used = jnp.sum(size > 0, dtype=jnp.int32)
    m = scores.shape[0]
    place = jnp.arange(1, m + 1, dtype=jnp.int32)
    harmonic = jnp.sum(jnp.where(place <= step.num_tests, 1 / place, 0))
    tested = jax.ops.segment_max((~jnp.isnan(p)).astype(jnp.int32), labels, num_clusters[1]) > 0
    return ClusterSelection(
        selected=step.reject,
        p_values=p,
        adjusted=step.adjusted,
        threshold=step.threshold,
        proportion=jnp.zeros_like(step.threshold),
        num_selected=step.num_rejected,
        num_tests=step.num_tests,
        num_calibration=used,
        min_selections=stepup.min_rejections(alpha, m, scale=((step.num_tests, harmonic), (used + 1,)))
        if sizes == "uninformative"
        else stepup.min_rejections(alpha, m, scale=((jnp.sum(tested, dtype=jnp.int32),), (used + 1,))),
        method=f"cluster_ptdi/{name}",
        null="nonmember",
        guarantee=GUARANTEES[name],
        cluster=labels,
        cluster_selected=jax.ops.segment_max(step.reject.astype(jnp.int32), labels, num_clusters[1]) > 0,
        num_clusters=jnp.sum(tested, dtype=jnp.int32),
    )


@functools.partial(jax.jit, static_argnames="guarantee")
def _of_clusters(found, scores, mask, labels, size, *, guarantee) -> ClusterSelection:
    """The decision of each cluster, carried by its items."""
    scores, size = jnp.asarray(scores), size.astype(jnp.int32)
    valid = ~jnp.isnan(scores) if jnp.issubdtype(scores.dtype, jnp.inexact) else jnp.ones(scores.shape, bool)
    valid = valid if mask is None else valid & mask
    selected = valid & _taken(found.selected, labels)
    # The fewest clusters that can be selected have at least as many items as the smallest clusters together.
    smallest = jnp.cumsum(jnp.sort(jnp.where(size > 0, size, scores.shape[0] + 1)))
    fewest = jnp.minimum(found.min_selections, found.num_tests)
    least = _taken(smallest, jnp.maximum(fewest - 1, 0)[None])[0] if size.shape[0] else fewest
    return _record(
        found,
        guarantee,
        labels,
        selected=selected,
        p_values=jnp.where(valid, _taken(found.p_values, labels), jnp.nan),
        adjusted=jnp.where(valid, _taken(found.adjusted, labels), jnp.nan),
        num_selected=jnp.sum(selected, dtype=jnp.int32),
        num_tests=jnp.sum(valid, dtype=jnp.int32),
        min_selections=jnp.where(found.min_selections > found.num_tests, scores.shape[0] + 1, least).astype(jnp.int32),
        method=found.method.replace("ptdi", "cluster_ptdi/cluster"),
    )


@functools.partial(jax.jit, static_argnames="guarantee")
def _of_draws(found, scores, index, some, labels, *, guarantee) -> ClusterSelection:
    """The decision of each drawn item; nothing for the others."""
    m = scores.shape[0]
    drawn = _taken(some, labels) & (_taken(index, labels) == jnp.arange(m, dtype=jnp.int32))
    return _record(
        found,
        guarantee,
        labels,
        selected=drawn & _taken(found.selected, labels),
        p_values=jnp.where(drawn, _taken(found.p_values, labels), jnp.nan),
        adjusted=jnp.where(drawn, _taken(found.adjusted, labels), jnp.nan),
        method=found.method.replace("ptdi", "cluster_ptdi/drawn"),
    )


def _taken(values: jax.Array, places: jax.Array) -> jax.Array:
    """values[places], also where there are no values to take."""
    return values[places] if values.shape[0] else jnp.zeros(places.shape, values.dtype)


def _record(found: Selection, guarantee: Guarantee, labels: jax.Array, **changes: Any) -> ClusterSelection:
    """A `ClusterSelection` from the selection among clusters and what changes for items."""
    fields = {field.name: getattr(found, field.name) for field in dataclasses.fields(Selection)}
    return ClusterSelection(
        **{**fields, **changes, "guarantee": guarantee},
        cluster=labels,
        cluster_selected=found.selected,
        num_clusters=found.num_tests,
    )


def _dense(labels: Sequence[Hashable], known: dict[Hashable, int]) -> np.ndarray:
    """[n] int32 places of the labels in order of first appearance; `known` is extended in place."""
    return np.fromiter((known.setdefault(label, len(known)) for label in labels), np.int32, count=len(labels))


def _check_disjoint(
    calibration_labels: Sequence[Hashable],
    labels: Sequence[Hashable],
    calibration_mask: Any,
    mask: Any,
) -> None:
    """No cluster may have real items on both sides."""
    if isinstance(calibration_mask, Tracer) or isinstance(mask, Tracer):
        return
    shared = _kept(calibration_labels, calibration_mask) & _kept(labels, mask)
    if shared:
        example = next(label for label in labels if label in shared)
        raise InputError(
            f"calibration_clusters and clusters share {len(shared)} clusters, among them {example!r}; a cluster must "
            "stand on one side as a whole, else its own items calibrate it: split by cluster"
        )


def _check_same_kind(calibration_labels: Sequence[Hashable], labels: Sequence[Hashable]) -> None:
    """Labels that only look alike (1 and "1") are a mistake where no label is in common."""
    own, other = set(calibration_labels), set(labels)
    if own & other:
        return
    alike = {str(label): label for label in own}
    for label in other:
        if str(label) in alike:
            raise InputError(
                f"groups and calibration_groups have no label in common: {label!r} is not {alike[str(label)]!r}, and "
                "every p-value would be 1; give both the same type"
            )


def _kept(labels: Sequence[Hashable], mask: Any) -> set[Hashable]:
    if mask is None:
        return set(labels)
    return {label for label, real in zip(labels, np.asarray(mask), strict=True) if real}
