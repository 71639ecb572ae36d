"""The interface of procedures for audits, studies, power plans and reports: a value that decides on `Evidence`."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from tdd.kernels.stepup_parts import StepUp
from tdd.procedures.calls import exact_fraction
from tdd.records import Evidence, Guarantee, Null, Selection
from tdd.validate import arrays

__all__ = ["Procedure", "WithOption", "check_options", "masks", "min_selections_by_rank"]


@dataclasses.dataclass(frozen=True)
class Procedure(abc.ABC):
    """A multiple testing procedure with its options.

    Subclasses are frozen dataclasses whose fields are the options; `__post_init__` raises an `InputError` for one out
    of range. With `name`, `guarantee` and `select` defined, `tdd.select`, `tdd.run_audit`, `tdd.study.run`,
    `tdd.expected_power`, the report and the table of guarantees accept it.

    Attributes:
      name: name of the procedure without options; one word.
      null: the null hypothesis of an item.
      columns: meaning of the rows of scores: "one" score, several "detectors", or one score under several "models".
      score: default score of texts in an audit.
      long_texts: default handling of texts longer than the context in an audit; see `tdd.score`.
      no_bounds: why there are no simultaneous bounds, for a procedure that does not define `bounds`.

    >>> import tdd
    >>> tdd.procedure("ptdi:proportion=none,eta=0.1")
    PTDI(proportion='none', eta=0.1, unit='cluster')
    """

    name: ClassVar[str] = ""
    null: ClassVar[Null] = "nonmember"
    columns: ClassVar[Literal["one", "detectors", "models"]] = "one"
    score: ClassVar[str] = "min_k_plus_plus"
    long_texts: ClassVar[str] = "window"
    no_bounds: ClassVar[str] = "the distribution of its statistics under the null is unknown"

    @property
    @abc.abstractmethod
    def guarantee(self) -> Guarantee:
        """The guarantee of a selection under these options."""

    @abc.abstractmethod
    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:
        """Decide. Pure; traced by `jax.jit` in studies.

        Args:
          evidence: data with all fields in `needs`; scores are [m] for columns="one", else [K, m].
          alpha: level in (0, 1); in studies an exact fraction whose digits may be traced, which every step-up procedure
            of `tdd` accepts.
          key: PRNG key for procedures that draw; always given.
        """

    @property
    def label(self) -> str:
        """The name with the option that decides most, as "ptdi/storey"."""
        return self.name

    @property
    def needs(self) -> tuple[str, ...]:
        """Required fields of `Evidence` beside the scores."""
        return ("calibration",)

    def selection(self, step: StepUp, p_values: Any, num_calibration: Any, min_selections: Any = 1) -> Selection:
        """Return the selection of a step-up or step-down procedure on p-values.

        Args:
          step: result of `tdd.bh` and its neighbours.
          p_values: [m].
          num_calibration: [] real calibration items, 0 if there are none.
          min_selections: [] the smallest number of selections that the sizes allow.
        """
        return Selection.from_step(
            step,
            p_values=p_values,
            num_calibration=jnp.asarray(num_calibration, jnp.int32),
            min_selections=jnp.asarray(min_selections, jnp.int32),
            method=self.label,
            null=self.null,
            guarantee=self.guarantee,
        )

    def record(self) -> dict[str, Any]:
        """Return the options as run.json records them."""
        return {
            field.name: list(value) if isinstance(value := getattr(self, field.name), tuple) else value
            for field in dataclasses.fields(self)
        }

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:
        """Return the smallest number of selections that the sizes allow; m + 1 if nothing can be selected.

        Args:
          n: calibration items.
          m: candidates.
          num_targets: candidates for which the null is false.
          alpha: level.
          num_knockoffs: knockoffs of an item.
        """
        return 1

    def bound(self, alpha: float, selection: Selection) -> float:
        """Return the bound of the expected proportion of errors: alpha, or slightly more."""
        return float(alpha)

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:
        """Return facts for the report beyond the decision, as (label, value)."""
        return []

    def warnings(self, evidence: Evidence, selection: Selection) -> list[str]:
        """Return warnings for the reader of this result."""
        return []

    def bounds(self, evidence: Evidence, selection: Selection, *, delta: float, key: jax.Array, num_draws: int) -> Any:
        """Return simultaneous bounds on false discoveries (`FdpBounds`, `KnockoffFdpBounds`), or why there are none.

        `delta` is the probability that some bound fails; `key` and `num_draws` are for simulated bounds.
        """
        return self.no_bounds


@dataclasses.dataclass(frozen=True)
class WithOption(Procedure):
    """A procedure whose label and guarantee follow from one option; a private class for the procedures of `tdd`."""

    _option: ClassVar[str]
    _guarantees: ClassVar[Mapping[str, Guarantee]]

    @property
    def label(self) -> str:  # noqa: D102
        return f"{self.name}/{getattr(self, self._option)}"

    @property
    def guarantee(self) -> Guarantee:  # noqa: D102
        return self._guarantees[getattr(self, self._option)]


def check_options(value: Procedure, **choices: tuple[str, ...]) -> None:
    """Check that each option is one of its choices."""
    for name, known in choices.items():
        arrays.check_choice(getattr(value, name), known, name)


def min_selections_by_rank(n: int, m: int, alpha: float, scale: Fraction = Fraction(1)) -> int:
    """Return the smallest k with scale/(n + 1) <= alpha k/m, m + 1 if there is none: no step-up rejects fewer of m."""
    return min(m + 1, max(1, math.ceil(scale * m / (exact_fraction(alpha) * (n + 1)))))


def masks(evidence: Evidence) -> dict[str, Any]:
    """The masks of the evidence as keywords."""
    return {"mask": evidence.mask, "calibration_mask": evidence.calibration_mask}
