"""PTDI on items that come in clusters, such as the passages of one book."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tdd.kernels import clusters as kernel
from tdd.kernels import evalues, stepup
from tdd.procedures.calls import (
    CHOSEN_BEFOREHAND,
    checked_scores,
    in_numpy,
    known,
    level_operand,
    operand,
    order_preserving,
    tracing,
)
from tdd.procedures.p_values import as_labels, label_indices
from tdd.procedures.ptdi import FURTHER, ptdi
from tdd.records import CLUSTER_UNITS, ClusterSelection, Guarantee, Selection
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

_NONMEMBERS = "the calibration clusters are non-members of the training data as a whole"
_ITEMS_FREE = "are exchangeable, their sizes included; nothing is assumed about items within a cluster"
_SOURCES = {
    "none": ("alpha * m0/m", "Marandon et al. (2024)"),
    "storey": ("alpha", "Bates et al. (2023), theorem 3; Marandon et al. (2024)"),
    "subtraction": ("alpha * (1 + 1/m) * (1 + 1/n)", "PTDI eq. 8-12"),
}

GUARANTEES: dict[str, Guarantee] = {
    **{
        f"cluster/{name}": Guarantee.finite_sample(
            f"FDR over clusters <= {bound}, m and n counting clusters",
            (
                _NONMEMBERS,
                "given the other test clusters, calibration clusters and test clusters that are non-members as a whole "
                + _ITEMS_FREE,
                CHOSEN_BEFOREHAND,
                *FURTHER[name],
            ),
            f"{source}, on one score a cluster",
        )
        for name, (bound, source) in _SOURCES.items()
    },
    "item": Guarantee.finite_sample(
        "expected fraction of selected items that are in non-member clusters <= alpha * M0/M, M0 of M clusters",
        (
            _NONMEMBERS,
            "given the other test clusters, a test cluster that is a non-member as a whole and the calibration "
            f"clusters {_ITEMS_FREE}",
            CHOSEN_BEFOREHAND,
        ),
        "tdd.kernels.evalues.unit_e_values; Bashari et al. (2023); Wang & Ramdas (2022)",
        "one",
    ),
    "item/uninformative": Guarantee.finite_sample(
        "FDR over items <= alpha * m0/m",
        (
            "each non-member candidate is distributed as an item drawn at random from a further cluster that is "
            "exchangeable with the calibration clusters, their sizes included",
            "how many candidates there are, and in which clusters, does not depend on the scores: the sizes of "
            "clusters are uninformative",
            CHOSEN_BEFOREHAND,
        ),
        "Lee, Barber & Willett (2023), theorem 1; Benjamini & Yekutieli (2001), theorem 1.3",
    ),
    **{
        f"drawn/{name}": Guarantee.finite_sample(
            f"FDR over the drawn items <= {bound}, m and n counting clusters",
            (
                "one item of each cluster is drawn at random",
                "the drawn calibration items and the drawn non-member items are exchangeable, as they are if each "
                "cluster is a member or a non-member as a whole and the latter are exchangeable with the calibration "
                "clusters",
                CHOSEN_BEFOREHAND,
                *FURTHER[name],
            ),
            f"{source}; Dunn, Wasserman & Ramdas (2023), section 3",
        )
        for name, (bound, source) in _SOURCES.items()
    },
}

GUARANTEE_ROWS: list[tuple[str, str, Guarantee]] = [
    *(
        ("tdd.cluster_ptdi", f'unit="{unit}", proportion="{name}"', GUARANTEES[f"{unit}/{name}"])
        for unit in ("cluster", "drawn")
        for name in _SOURCES
    ),
    ("tdd.cluster_ptdi", 'unit="item"', GUARANTEES["item"]),
    ("tdd.cluster_ptdi", 'unit="item", sizes="uninformative"', GUARANTEES["item/uninformative"]),
]


_OF_UNIT = {"aggregate": ("cluster", kernel.AGGREGATES), "sizes": ("item", ("informative", "uninformative"))}
"""Options of one unit alone: the unit, and their choices, the default first."""


class UnitOptions(TypedDict, total=False):
    """The options of `cluster_ptdi` that belong to one unit."""

    aggregate: Literal["mean", "median", "min"]
    sizes: Literal["informative", "uninformative"]


@in_own_settings()
def cluster_ptdi(
    calibration: Any,
    scores: Any,
    calibration_clusters: Sequence[Hashable] | Any,
    clusters: Sequence[Hashable] | Any,
    *,
    alpha: Any,
    unit: Literal["cluster", "item", "drawn"] = "cluster",
    proportion: Literal["none", "storey", "subtraction"] = "storey",
    eta: Any = 0.05,
    key: jax.Array | None = None,
    calibration_mask: Any = None,
    mask: Any = None,
    **options: Unpack[UnitOptions],
) -> ClusterSelection:
    """Select candidates that were in the training data from items that come in clusters.

    Passages of one book are alike, so that a calibration passage and a candidate are not exchangeable one by one, and
    the FDR of `tdd.ptdi` on passages can be far above its level. Whole books can be exchangeable:
      "cluster": one score a cluster, `tdd.ptdi` on clusters; all items of a selected cluster are selected.
      "item": e-values of items, (m/M) (C + 1)/(a + n_c) up to a threshold chosen by the other clusters, where a and n_c
        count the items of calibration and of the item's own cluster up to it; e-BH
        (`tdd.kernels.evalues.unit_e_values`). With sizes="uninformative" p_j = (1 + sum over calibration clusters of
        the fraction of items at least as member-like)/(C + 1) (Lee, Barber & Willett 2023), decided by
        Benjamini-Yekutieli.
      "drawn": one item of each cluster is drawn at random, `tdd.ptdi` on those; only they can be selected (Dunn,
        Wasserman & Ramdas 2023).

    Guarantee: finite-sample FDR over clusters ("cluster"), items ("item") or drawn items ("drawn"), if calibration
    clusters and test clusters without any member are exchangeable, their sizes included. For "item" a selected item is
    false if its cluster has no member. With sizes="uninformative" every selected non-member is false, but each must be
    distributed as a random item of a non-member cluster, and sizes must be unrelated to scores: where long books score
    lower, that rule's FDR reaches .39 at .2. "cluster" states that a cluster is not a non-member as a whole, not that
    each of its items is a member.

    Args:
      calibration: [n] loss-like scores (lower = more member-like) of known non-members.
      scores: [m] loss-like scores of the candidates.
      calibration_clusters: [n] labels of author, book, page, ...; anything hashable.
      clusters: [m] labels. No label may occur on both sides.
      alpha: level in (0, 1); may be traced.
      unit: unit of decision.
      proportion: as in `tdd.ptdi`, over clusters or drawn items; not used by "item".
      eta: as in `tdd.ptdi`.
      key: PRNG key, for "drawn" only.
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.
      **options: of one unit alone:

        - aggregate: score of a cluster, for "cluster": "mean" (the default) is best if all items of a cluster are
          members or none is, "min" if one passage reveals a book; "median".
        - sizes: for "item", whether the sizes of clusters may be related to the scores: "informative" (the default) or
          "uninformative".

    Returns:
      `ClusterSelection`. NaN scores are left out of their cluster; a cluster without a score is left out of C. Cost:
      O((n + m) log(n + m)); compiled anew for other numbers of clusters.

    Raises:
      InputError: as `tdd.ptdi`, missing or unhashable labels, a cluster on both sides, a missing key, unknown options,
        an option of another unit.

    >>> selection = cluster_ptdi(
    ...     [5.0, 6.0, 7.0, 9.0], [1.0, 2.0, 8.0], ["a", "a", "b", "c"], ["d", "d", "e"], alpha=0.5, proportion="none")
    >>> selection.selected.tolist(), selection.p_values.tolist()
    ([True, True, False], [0.25, 0.25, 0.75])
    """
    arrays.check_choice(unit, CLUSTER_UNITS, "unit")
    arrays.check_choice(proportion, tuple(_SOURCES), "proportion")
    chosen = _of_unit(unit, options)
    calibration, scores, calibration_mask, mask = checked_scores(calibration, scores, calibration_mask, mask)
    sides = (
        as_labels(calibration_clusters, calibration, "calibration_clusters"),
        as_labels(clusters, scores, "clusters"),
    )
    _check_disjoint(*sides, calibration_mask, mask)
    arrays.check_level(alpha)
    arrays.check_level(eta, "eta")
    places: tuple[dict[Hashable, int], ...] = ({}, {})
    labels = tuple(operand(label_indices(side, place)) for side, place in zip(sides, places, strict=True))
    counts = tuple(map(len, places))
    scaled: dict[str, Any] = {"alpha": alpha, "proportion": proportion, "eta": eta}
    if unit == "cluster":
        first, second = _aggregated(
            (calibration, scores), (calibration_mask, mask), labels, counts, chosen["aggregate"]
        )
        selection = ptdi(first.scores, second.scores, calibration_mask=first.valid, mask=second.valid, **scaled)
        guarantee = GUARANTEES[f"cluster/{proportion}"]
        return _of_clusters(selection, scores, mask, labels[1], second.size, guarantee=guarantee)
    samples, masks = order_preserving((calibration, scores), (calibration_mask, mask))
    if unit == "item":
        return _items(*samples, *masks, *labels, level_operand(alpha), num_clusters=counts, sizes=chosen["sizes"])
    arrays.check_key(key, 'unit="drawn"')
    assert key is not None
    (own_index, own_some), (index, some) = (
        _drawn(sample, real, label, draw_key, num_clusters=size)
        for sample, real, label, draw_key, size in zip(
            samples, masks, labels, jax.random.split(key), counts, strict=True
        )
    )
    drawn = (jnp.asarray(sample)[places] for sample, places in zip(samples, (own_index, index), strict=True))
    selection = ptdi(*drawn, calibration_mask=own_some, mask=some, **scaled)
    return _of_draws(selection, scores, index, some, labels[1], guarantee=GUARANTEES[f"drawn/{proportion}"])


def _of_unit(unit: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of units by name, with defaults."""
    for name, value in options.items():
        if name not in _OF_UNIT:
            raise InputError(f"there is no option {name!r}; those of a unit are {', '.join(_OF_UNIT)}")
        owner, choices = _OF_UNIT[name]
        arrays.check_choice(value, choices, name)
        if unit != owner:
            raise InputError(f"{name}={value!r} belongs to unit={owner!r}, not to unit={unit!r}; leave it out")
    return {name: choices[0] for name, (_, choices) in _OF_UNIT.items()} | {**options}


def _aggregated(samples: Any, masks: Any, labels: Any, sizes: Any, aggregate: str) -> list[Any]:
    """Return the `ClusterScores` of both sides; NumPy scores are averaged in double precision."""

    def run(dtype: Any = None) -> list[Any]:
        return [
            _cluster_scores(operand(sample, dtype), label, mask=mask, num_clusters=size, aggregate=aggregate)
            for sample, mask, label, size in zip(samples, masks, labels, sizes, strict=True)
        ]

    samples = in_numpy(samples, *masks)
    if not all(isinstance(sample, np.ndarray) for sample in samples) or tracing(*masks):
        return run()
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, run(np.float64))


_cluster_scores = jax.jit(kernel.cluster_scores, static_argnames=("num_clusters", "aggregate"))


@functools.partial(jax.jit, static_argnames="num_clusters")
def _drawn(scores, mask, labels, key, *, num_clusters):
    return kernel.draw_items(labels, num_clusters=num_clusters, key=key, mask=known(scores, mask))


@functools.partial(jax.jit, static_argnames=("num_clusters", "sizes"))
def _items(
    calibration, scores, calibration_mask, mask, calibration_labels, labels, alpha, *, num_clusters, sizes
) -> ClusterSelection:
    masks = {"calibration_mask": calibration_mask, "mask": mask}
    p = kernel.hierarchical_p_values(
        calibration, scores, calibration_labels, num_clusters=num_clusters[0], null="nonmember", **masks
    )
    real = known(calibration, calibration_mask)
    size = jax.ops.segment_sum(real.astype(jnp.int32), calibration_labels, num_clusters[0])
    used = jnp.sum(size > 0, dtype=jnp.int32)
    tested = jax.ops.segment_max((~jnp.isnan(p)).astype(jnp.int32), labels, num_clusters[1]) > 0
    num_tested = jnp.sum(tested, dtype=jnp.int32)
    m = scores.shape[0]
    step = stepup.by(p, alpha)
    if sizes == "informative":
        units = {"num_units": num_clusters, "null": "nonmember"}
        e_values = evalues.unit_e_values(
            calibration[None], scores[None], calibration_labels, labels, alpha, **units, **masks
        ).e_values
        e_step = evalues.e_bh(e_values, alpha)
        step = step._replace(
            reject=e_step.reject,
            adjusted=e_step.adjusted,
            threshold=jnp.max(jnp.where(e_step.reject, p, 0), initial=0),
            num_rejected=e_step.num_rejected,
        )
        name, scale = "item", ((num_tested,), (used + 1,))
    else:
        place = jnp.arange(1, m + 1, dtype=jnp.int32)
        harmonic = jnp.sum(jnp.where(place <= step.num_tests, 1 / place, 0))
        name, scale = "item/uninformative", ((step.num_tests, harmonic), (used + 1,))
    return ClusterSelection.from_step(
        step,
        p_values=p,
        proportion=jnp.zeros_like(step.threshold),
        num_calibration=used,
        min_selections=stepup.min_rejections(alpha, m, scale=scale),
        method=f"cluster_ptdi/{name}",
        null="nonmember",
        guarantee=GUARANTEES[name],
        unit="item",
        cluster=labels,
        cluster_selected=jax.ops.segment_max(step.reject.astype(jnp.int32), labels, num_clusters[1]) > 0,
        num_clusters=num_tested,
    )


@functools.partial(jax.jit, static_argnames="guarantee")
def _of_clusters(selection, scores, mask, labels, size, *, guarantee) -> ClusterSelection:
    """Give every item the decision of its cluster."""
    size, valid = size.astype(jnp.int32), known(scores, mask)
    selected = valid & _taken(selection.selected, labels)
    # The fewest clusters that can be selected have at least as many items as the smallest clusters together.
    smallest = jnp.cumsum(jnp.sort(jnp.where(size > 0, size, scores.shape[0] + 1)))
    min_clusters = jnp.minimum(selection.min_selections, selection.num_tests)
    min_items = _taken(smallest, jnp.maximum(min_clusters - 1, 0)[None])[0] if size.shape[0] else min_clusters
    impossible = selection.min_selections > selection.num_tests
    return _for_items(
        selection,
        "cluster",
        guarantee,
        labels,
        selected=selected,
        p_values=jnp.where(valid, _taken(selection.p_values, labels), jnp.nan),
        adjusted=jnp.where(valid, _taken(selection.adjusted, labels), jnp.nan),
        num_selected=jnp.sum(selected, dtype=jnp.int32),
        num_tests=jnp.sum(valid, dtype=jnp.int32),
        min_selections=jnp.where(impossible, scores.shape[0] + 1, min_items).astype(jnp.int32),
    )


@functools.partial(jax.jit, static_argnames="guarantee")
def _of_draws(selection, scores, index, some, labels, *, guarantee) -> ClusterSelection:
    """Give every drawn item its decision and the others none."""
    m = scores.shape[0]
    drawn = _taken(some, labels) & (_taken(index, labels) == jnp.arange(m, dtype=jnp.int32))
    return _for_items(
        selection,
        "drawn",
        guarantee,
        labels,
        selected=drawn & _taken(selection.selected, labels),
        p_values=jnp.where(drawn, _taken(selection.p_values, labels), jnp.nan),
        adjusted=jnp.where(drawn, _taken(selection.adjusted, labels), jnp.nan),
    )


def _taken(values: jax.Array, places: jax.Array) -> jax.Array:
    """Return values[places], zeros if there are no values."""
    return values[places] if values.shape[0] else jnp.zeros(places.shape, values.dtype)


def _for_items(selection: Selection, unit: str, guarantee: Guarantee, labels: jax.Array, **changes: Any) -> Any:
    """Turn the selection among clusters into one among items."""
    changes |= {"cluster": labels, "cluster_selected": selection.selected, "num_clusters": selection.num_tests}
    changes["unit"] = unit
    method = selection.method.replace("ptdi", f"cluster_ptdi/{unit}")
    return ClusterSelection(**{**vars(selection), **changes, "guarantee": guarantee, "method": method})


def _check_disjoint(calibration_labels: Sequence[Hashable], labels: Sequence[Hashable], *masks: Any) -> None:
    """Refuse a cluster with real items on both sides."""
    if any(isinstance(mask, Tracer) for mask in masks):
        return
    first, second = (
        set(side if mask is None else itertools.compress(side, np.asarray(mask)))
        for side, mask in zip((calibration_labels, labels), masks, strict=True)
    )
    if shared := first & second:
        example = next(label for label in labels if label in shared)
        raise InputError(
            f"calibration_clusters and clusters share {len(shared)} clusters, among them {example!r}; a cluster must "
            "stand on one side as a whole, else its own items calibrate it: split by cluster"
        )
