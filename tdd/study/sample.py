"""One draw of a design: the data that a method sees, and the truth that it is judged by."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax

from tdd.records import Evidence

__all__ = ["Design", "Sample"]


_OPTIONAL = frozenset(
    ("members", "knockoffs", "calibration_knockoffs", "weights", "calibration_weights", "split", "p_values")
)


class Sample(NamedTuple):
    """One data set with its truth.

    Attributes:
      calibration: [n] or [K, n] loss-like scores of items for which the null holds.
      scores: [m] or [K, m] loss-like scores of the test items, one row a detector or model.
      target: [m] bool, True where selecting the item is right: the null is false.
      mask: [m] bool, True = real item; None if all are.
      calibration_mask: [n] bool, True = real item; None if all are.
      extra: further data for methods, by name: `knockoffs` [m, k], `calibration_knockoffs` [n, k], `members` [n1],
        `member` [K, m], `canonical` [r], `shuffled` [r, k], `p_values` [m]; `validation` [v] or [K, v] scores of items
        with known labels, and `validation_target` [v] bool, for thresholds.
    """

    calibration: jax.Array
    scores: jax.Array
    target: jax.Array
    mask: jax.Array | None = None
    calibration_mask: jax.Array | None = None
    extra: dict[str, Any] = {}  # noqa: RUF012 - never written to

    @property
    def evidence(self) -> Evidence:
        """The data without the truth, for procedures to decide on."""
        optional = {name: value for name, value in self.extra.items() if name in _OPTIONAL}
        return Evidence(self.calibration, self.scores, self.mask, self.calibration_mask, **optional)


@runtime_checkable
class Design(Protocol):
    """Anything that draws samples.

    `draw` is pure and runs under `jax.vmap` in one compiled program; shapes depend on static fields alone. A design
    that is a registered pytree may have its array fields changed without a new compilation. It may say in `null`
    which items calibrate ("nonmember", "member"): methods made for the other kind are then refused.
    """

    def draw(self, key: jax.Array) -> Sample:
        """One data set, from a PRNG key."""
        ...
