"""What the checks of an audit share: their level, a balanced sample of the items, and groups within a role."""

from __future__ import annotations

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


def subsample(role: np.ndarray, most: int, generator: np.random.Generator) -> np.ndarray:
    """Indices to keep, in order: at most `most`, the smaller role whole up to half of them."""
    members = [np.flatnonzero(role == value) for value in (0, 1)]
    limits = [max(most // 2, most - members[1 - value].size) for value in (0, 1)]
    kept = [generator.permutation(indices)[:limit] for indices, limit in zip(members, limits, strict=True)]
    return np.sort(np.concatenate(kept))


def units_of(role: np.ndarray, group: Sequence[Hashable]) -> tuple[np.ndarray, np.ndarray]:
    """Unit of every item [N] and role of every unit [U]; a unit is a group within a role, numbered as it appears."""
    index_of: dict[tuple[Hashable, int], int] = {}
    parts = zip(group, role.tolist(), strict=True)
    unit_of_item = np.array([index_of.setdefault(part, len(index_of)) for part in parts], dtype=np.int64)
    return unit_of_item, np.array([value for _, value in index_of], dtype=role.dtype)
