"""What a procedure is to audits, studies, power plans and reports: a frozen value that decides on `Evidence`."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from tdd.kernels.stepup_parts import StepUp
from tdd.records import Evidence, Guarantee, Null, Selection
from tdd.validate import arrays

__all__ = ["Procedure", "check_options"]


@dataclasses.dataclass(frozen=True)
class Procedure(abc.ABC):
    """A multiple testing procedure with its options.

    Subclasses are frozen dataclasses whose fields are the options, checked in `__post_init__`. `name`, `guarantee` and
    `select` suffice; then `tdd.select`, `tdd.run_audit`, `tdd.study.run`, `tdd.expected_power`, the report and the
    table of guarantees take it.

    Attributes:
      name: of the procedure, without options; one word.
      null: the null hypothesis of an item.
      columns: what the rows of scores are that decide: "one" score, several "detectors", or one score under several
        "models".
      score: the score of texts that decides in an audit where none is named.
      long_texts: what an audit does with texts longer than the context where nothing is said; see `tdd.score`.

    >>> import tdd
    >>> tdd.procedure("ptdi:proportion=none,eta=0.1")
    PTDI(proportion='none', eta=0.1, unit='cluster')
    """

    name: ClassVar[str] = ""
    null: ClassVar[Null] = "nonmember"
    columns: ClassVar[Literal["one", "detectors", "models"]] = "one"
    score: ClassVar[str] = "min_k_plus_plus"
    long_texts: ClassVar[str] = "window"

    @property
    @abc.abstractmethod
    def guarantee(self) -> Guarantee:
        """What holds of a selection under these options."""

    @abc.abstractmethod
    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:
        """Decide. Pure; traced by `jax.jit` in studies.

        Args:
          evidence: what `needs` names is there; scores are [m] for columns="one", else [K, m].
          alpha: level in (0, 1); in studies an exact fraction whose digits may be traced, which every step-up of `tdd`
            takes.
          key: PRNG key; always given, for procedures that draw.
        """

    @property
    def label(self) -> str:
        """The name with the option that decides most, as "ptdi/storey"."""
        return self.name

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields of `Evidence` beside the scores without which it cannot decide."""
        return ("calibration",)

    def selection(self, step: StepUp, p_values: Any, num_calibration: Any, min_selections: Any = 1) -> Selection:
        """The result of a step-up (or step-down) procedure on p-values.

        Args:
          step: what `tdd.bh` and its like return.
          p_values: [m].
          num_calibration: [] calibration items that count, 0 where there are none.
          min_selections: [] the smallest number of selections that the sizes allow.
        """
        return Selection(
            selected=step.reject,
            p_values=p_values,
            adjusted=step.adjusted,
            threshold=step.threshold,
            proportion=jnp.zeros(()),
            num_selected=step.num_rejected,
            num_tests=step.num_tests,
            num_calibration=jnp.asarray(num_calibration, jnp.int32),
            min_selections=jnp.asarray(min_selections, jnp.int32),
            method=self.label,
            null=self.null,
            guarantee=self.guarantee,
        )

    def record(self) -> dict[str, Any]:
        """The options as they go into run.json."""
        return {
            field.name: list(value) if isinstance(value := getattr(self, field.name), tuple) else value
            for field in dataclasses.fields(self)
        }

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:
        """The smallest number of selections that the sizes allow; m + 1 where nothing can be selected.

        Args:
          n: calibration items.
          m: candidates.
          num_targets: candidates for which the null is false.
          alpha: level.
          num_knockoffs: of an item.
        """
        return 1

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:
        """What a report says of the result beyond the decision, as (what, value)."""
        return []

    def warnings(self, evidence: Evidence, selection: Selection) -> list[str]:
        """What the reader must know about this result."""
        return []

    def bounds(self, evidence: Evidence, selection: Selection, *, delta: float, key: jax.Array, num_draws: int) -> Any:
        """Simultaneous bounds of the false discoveries (`FdpBounds`, `KnockoffFdpBounds`), or why there are none.

        Args:
          evidence: as in `select`.
          selection: its result.
          delta: the bounds hold with probability at least 1 - delta.
          key: PRNG key.
          num_draws: draws for bounds that are simulated.
        """
        return "the law of its statistics under the null is not known"


def check_options(value: Procedure, **choices: tuple[str, ...]) -> None:
    """Each option is one of its choices.

    Raises:
      InputError: it is not.
    """
    for name, known in choices.items():
        arrays.check_choice(getattr(value, name), known, name)
