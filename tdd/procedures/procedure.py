"""What a procedure is to audits, studies, power plans and reports: a frozen value that decides on `Evidence`."""

from __future__ import annotations

import abc
import dataclasses
import typing
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from tdd.kernels.stepup_parts import StepUp
from tdd.records import Evidence, Guarantee, Null, Selection
from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = ["Procedure", "as_procedure", "known_procedures", "procedure"]


@dataclasses.dataclass(frozen=True)
class Procedure(abc.ABC):
    """A multiple testing procedure with its options.

    Subclasses are frozen dataclasses whose fields are the options, checked in `__post_init__`. `name`, `guarantee` and
    `select` suffice; then `tdd.select`, `tdd.run_audit`, `tdd.study.run`, `tdd.expected_power`, the report and the
    table of guarantees take it.

    Attributes:
      name: of the procedure, without options; one word.
      null: the null hypothesis of an item.
      columns: how many rows of scores decide, "one" or "several" (detectors or models).
      score: the score of texts that decides in an audit where none is named.
      long_texts: what an audit does with texts longer than the context where nothing is said; see `tdd.score`.

    >>> procedure("ptdi:proportion=none,eta=0.1")
    PTDI(proportion='none', eta=0.1, unit='cluster')
    """

    name: ClassVar[str] = ""
    null: ClassVar[Null] = "nonmember"
    columns: ClassVar[Literal["one", "several"]] = "one"
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
          evidence: what `needs` names is there; scores are [m] for columns="one" and [K, m] otherwise.
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


def known_procedures() -> dict[str, type[Procedure]]:
    """Name -> class, of every procedure that has been defined: those of `tdd`, then the user's."""
    import tdd.procedures.values  # noqa: F401 - they are defined there

    return {one.name: one for one in _below(Procedure) if one.name and not one.__abstractmethods__}


def procedure(text: str) -> Procedure:
    """A procedure as a user writes it: "ptdi", "ptdi:proportion=none,eta=0.1", "td4eval:weights=0.2:0.8".

    Args:
      text: the name, then options as in the class; numbers of a tuple are separated by colons.

    Raises:
      InputError: unknown name or option, or a value that the procedure refuses.

    >>> procedure("td4eval:combine=pooled_rank,weights=0.25:0.75").weights
    (0.25, 0.75)
    """
    return as_procedure(text)


def as_procedure(given: Any, **options: Any) -> Procedure:
    """A value as it is, or a procedure by its name, with options that were given apart from it (None: not given).

    Raises:
      InputError: as `procedure`; options beside a value, or of another procedure.
    """
    options = {name: value for name, value in options.items() if value is not None}
    if isinstance(given, Procedure):
        for name, value in options.items():
            raise InputError(
                f"{name}={value!r} beside method={given!r}: give it as an option of {type(given).__name__}, or leave "
                "it out"
            )
        return given
    known = known_procedures()
    name, colon, text = str(given).partition(":")
    if name not in known:
        raise InputError(f"method {name!r} is not known; choose one of {', '.join(known)}")
    cls = known[name]
    own = [field.name for field in dataclasses.fields(cls)]
    for option, value in options.items():
        if option not in own:
            owners = [repr(one) for one in known if option in {field.name for field in dataclasses.fields(known[one])}]
            raise InputError(
                f"{option}={value!r} belongs to method {' and '.join(owners)}, and {name!r} does not use it; leave it "
                "out"
            )
    kinds = typing.get_type_hints(cls)
    for part in text.split(",") if colon else ():
        option, equals, value = (one.strip() for one in part.partition("="))
        if not (option and equals and value) or option in options:
            raise InputError(f"method {given!r} is not NAME:option=value,option=value with each option once")
        if option not in own:
            raise InputError(f"method {name!r} has no option {option!r}; it has {', '.join(own) or 'none'}")
        options[option] = _parsed(option, value, kinds[option])
    return cls(**options)


def _parsed(name: str, text: str, kind: Any) -> Any:
    """A value of an option, by the type that the class declares."""
    try:
        if kind is float:
            return float(text)
        if kind is int:
            return int(text)
        if typing.get_origin(kind) is tuple:
            return tuple(float(part) for part in text.split(":"))
    except ValueError:
        raise InputError(f"{name}={text} is no number") from None
    return text


def _below(cls: type[Procedure]) -> Iterator[type[Procedure]]:
    for one in cls.__subclasses__():
        yield one
        yield from _below(one)


def check_options(value: Procedure, **choices: tuple[str, ...]) -> None:
    """Each option is one of its choices.

    Raises:
      InputError: it is not.
    """
    for name, known in choices.items():
        arrays.check_choice(getattr(value, name), known, name)
