"""What the checks of an audit share: their level, a balanced sample of the items, and groups within a role."""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Sequence

import numpy as np

LEVEL = 0.01
"""P(a failed check) where the assumptions hold; the tests of one audit share it."""
OF_EACH = LEVEL / 4
"""The level of each of four tests: sharing, preparation, the blind baseline, and the sizes of clusters."""
ROLES = ("calibration items", "candidates")
"""What the findings of an audit call the items that are known and those in question."""
SLACK = 1 + 1e-9
"""A p-value of 1/400 is at most a level of 0.0025 in binary fractions too."""


def subsample(
    role: np.ndarray, most: int, generator: np.random.Generator, group: Sequence[Hashable] | None = None
) -> np.ndarray:
    """Indices to keep, in order: at most `most`, the smaller role whole up to half of them.

    With the group of every item, so many units (groups within a role) are kept, and of each at most c items, one c for
    both roles, the largest with at most `most` items. Units that are exchangeable stay so; if items were drawn one by
    one, the units of the larger role would become smaller than those of the other.
    """
    unit_of_item, unit_role = (np.arange(role.size), role) if group is None else units_of(role, group)
    members = [np.flatnonzero(unit_role == value) for value in (0, 1)]
    limits = [max(most // 2, most - members[1 - value].size) for value in (0, 1)]
    units = [generator.permutation(indices)[:limit] for indices, limit in zip(members, limits, strict=True)]
    is_kept = np.zeros(unit_role.size, bool)
    is_kept[np.concatenate(units)] = True
    kept = np.flatnonzero(is_kept[unit_of_item])
    if kept.size <= most:
        return kept
    size = np.bincount(unit_of_item[kept])
    each = bisect.bisect_right(range(1, int(size.max()) + 1), most, key=lambda each: int(np.minimum(size, each).sum()))
    kept = generator.permutation(kept)
    order = np.argsort(unit_of_item[kept], kind="stable")
    of_unit = unit_of_item[kept][order]
    place = np.arange(kept.size) - np.searchsorted(of_unit, of_unit)
    return np.sort(kept[order][place < each])


def units_of(role: np.ndarray, group: Sequence[Hashable]) -> tuple[np.ndarray, np.ndarray]:
    """Unit of every item [N] and role of every unit [U]; a unit is a group within a role, numbered as it appears."""
    index_of: dict[tuple[Hashable, int], int] = {}
    parts = zip(group, role.tolist(), strict=True)
    unit_of_item = np.array([index_of.setdefault(part, len(index_of)) for part in parts], dtype=np.int64)
    return unit_of_item, np.array([value for _, value in index_of], dtype=role.dtype)
