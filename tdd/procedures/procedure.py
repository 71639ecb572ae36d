"""Procedures as values that decide on `Evidence`: their interface, procedures by name, the table of all guarantees.

A user writes one as "ptdi" or "ptdi:proportion=none,eta=0.1"; `tdd guarantees` prints the table.
"""

from __future__ import annotations

import abc
import dataclasses
import importlib
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from tdd.kernels.stepup_parts import StepUp
from tdd.procedures.calls import exact_fraction, operand
from tdd.records import Difference, Evidence, Guarantee, Null, Selection
from tdd.validate import InputError, arrays
from tdd.validate.options import KnownFields, kind_of, parse_option, split_options

_MOST = 2**31
"""Calibration items beyond which nobody looks for a number that suffices."""


@dataclasses.dataclass(frozen=True)
class Procedure(KnownFields, abc.ABC):
    """A multiple testing procedure with its options.

    Subclasses are frozen dataclasses whose fields are the options; `__post_init__` raises an `InputError` for one out
    of range. With `name`, `guarantee` and `select` defined, `tdd.select`, `tdd.run_audit`, `tdd.study.run`,
    `tdd.study.expected_power`, the report and the table of guarantees accept it.

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

    @property
    def randomised(self) -> bool:
        """Whether the guarantee is an average over the draw of the key: a key must then not serve every audit."""
        return False

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
            num_calibration=jax.device_put(operand(num_calibration, jnp.int32)),
            min_selections=jax.device_put(operand(min_selections, jnp.int32)),
            method=self.label,
            null=self.null,
            guarantee=self.guarantee,
        )

    def record(self) -> dict[str, Any]:
        """Return the options as run.json records them; what is no plain value by its name and a hash of its code."""
        return {field.name: _recorded(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def identity(self) -> dict[str, Any]:
        """Return what tells the procedure from others in the fingerprint of a run: name, options, a user's code."""
        own = type(self).__module__.startswith("tdd.")
        return {"method": self.name, **self.record(), **({} if own else {"code": _recorded(type(self))})}

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:
        """Return a number below which no selection can lie; m + 1 if nothing can be selected.

        Args:
          n: calibration items.
          m: candidates.
          num_targets: candidates for which the null is false.
          alpha: level.
          num_knockoffs: knockoffs of an item.
        """
        return 1

    def smallest_p_value(self, n: int) -> float | None:
        """Return the smallest p-value that a candidate can have by n calibration items; None where it is unknown."""
        return None

    def least_calibration(self, k: int, m: int, alpha: float, null_proportion: float = 1) -> int | None:
        """Return a number of calibration items below which no k of m candidates can be selected; None if unknown.

        Counted are the items as they are given, those included that a procedure learns from. `null_proportion` is the
        estimate by which p-values are multiplied. It is taken as fixed, though other calibration items change it.
        """
        num_targets = max(0, m - math.ceil(null_proportion * m))

        def suffices(n: int) -> bool:
            return self.min_selections(n, m, num_targets, alpha) <= k

        few, enough = 0, 1
        while not suffices(enough) and enough < _MOST:
            few, enough = enough, 2 * enough
        if suffices(0) or not suffices(enough):  # nothing is known, or no number suffices
            return None
        while enough - few > 1:
            middle = (few + enough) // 2
            few, enough = (few, middle) if suffices(middle) else (middle, enough)
        return enough

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


def _recorded(value: Any) -> Any:
    """A plain value as it is, a tuple as a list, anything else by its name and code."""
    if isinstance(value, tuple):
        return [_recorded(one) for one in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    from tdd.runs.described import described

    return described(value)


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


def least_calibration_by_rank(
    k: int, m: int, alpha: float, null_proportion: float, scale: Fraction = Fraction(1)
) -> int:
    """Return the smallest n with null_proportion scale/(n + 1) <= alpha k/m, the proportion as it is written."""
    scale *= Fraction(repr(float(null_proportion)))
    return max(0, math.ceil(scale * m / (exact_fraction(alpha) * k)) - 1)


def masks(evidence: Evidence) -> dict[str, Any]:
    """The masks of the evidence as keywords."""
    return {"mask": evidence.mask, "calibration_mask": evidence.calibration_mask}


_OWN = {
    "ptdi": "values",
    "best_score": "several_scores",
    "combined_score": "several_scores",
    "conditional": "conditional",
    "weighted": "weighted",
    "ktd": "ktd",
    "td4eval": "td4eval",
    "jmcs": "jecs",
    "jecs": "jecs",
}
"""Name of a procedure of `tdd` -> the module here that holds it, which is loaded where it is used."""


def known_procedures() -> dict[str, type[Procedure]]:
    """Name -> class, of every procedure that has been defined: those of `tdd`, then the user's.

    Raises:
      InputError: a user's procedure has the name of one of `tdd`.
    """
    return {name: _own(name) for name in _OWN} | _of_users()


def _own(name: str) -> type[Procedure]:
    """The procedure of `tdd` with this name."""
    module = importlib.import_module(f"tdd.procedures.{_OWN[name]}")
    return next(one for one in _below(Procedure) if vars(one).get("name") == name and one.__module__ == module.__name__)


def _of_users() -> dict[str, type[Procedure]]:
    """Name -> class, of procedures that are not of `tdd`."""
    found = {}
    for one in _below(Procedure):
        name = vars(one).get("name")
        if name is None or one.__abstractmethods__ or one.__module__.startswith("tdd.procedures."):
            continue
        if name in _OWN:
            raise InputError(f"{one.__module__}.{one.__qualname__} has the name of tdd's own {name!r}; change it")
        found[name] = one
    return found


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
    name, written = split_options(str(given))
    of_users = _of_users()
    if name not in {*_OWN, *of_users}:
        raise InputError(f"method {name!r} is not known; choose one of {', '.join([*_OWN, *of_users])}")
    cls = of_users.get(name) or _own(name)
    own = [field.name for field in dataclasses.fields(cls)]
    for option, value in options.items():
        if option not in own:
            owners = " and ".join(map(repr, _owners(option)))
            raise InputError(
                f"{option}={value!r} belongs to method {owners}, and {name!r} does not use it; leave it out"
            )
    for option, value in [("", "")] if written is None else written:
        if option in {"", *options}:
            raise InputError(f"method {given!r} is not NAME:option=value,option=value with each option once")
        if option not in own:
            owners = [other for other in _owners(option) if other != name]
            belongs = f" ({option} belongs to {' and '.join(owners)})" if owners else ""
            raise InputError(f"method {name!r} has no option {option!r}; it has {', '.join(own) or 'none'}{belongs}")
        options[option] = parse_option(option, value, kind_of(cls, option))
    return cls(**options)


def check_no_options(procedure: Procedure, keywords: Mapping[str, Any]) -> None:
    """Refuse keywords of a call that are options of tdd's procedures.

    Raises:
      InputError: one of them is; the message says how to write it.
    """
    for keyword, value in keywords.items():
        owners = [name for name in _owners(keyword) if name in _OWN]
        if not owners:
            continue
        owner = procedure.name if procedure.name in owners else owners[0]
        text = ":".join(map(str, value)) if isinstance(value, (tuple, list)) else value
        as_text = "" if callable(value) else f"method='{owner}:{keyword}={text}' or "
        raise InputError(
            f"{keyword} is an option of the procedure: {as_text}tdd.{_own(owner).__name__}({keyword}={value!r})"
        )


def _owners(option: str) -> list[str]:
    """Names of the procedures that have an option."""
    return [
        name for name, cls in known_procedures().items() if option in {field.name for field in dataclasses.fields(cls)}
    ]


def _below(cls: type[Procedure]) -> Iterator[type[Procedure]]:
    for one in cls.__subclasses__():
        yield one
        yield from _below(one)


_MODULES = (
    "procedures.p_values",
    "procedures.conditional",
    "procedures.testing",
    "procedures.ptdi",
    "procedures.ktd",
    "procedures.knockoff_symmetry",
    "procedures.td4eval",
    "procedures.combining",
    "procedures.jecs",
    "procedures.exchangeability",
    "procedures.sequential",
    "procedures.owner",
    "procedures.anytime",
    "procedures.evalues",
    "procedures.several_scores",
    "procedures.weighted",
    "procedures.clusters",
    "procedures.bounds",
    "procedures.knockoff_bounds",
    "procedures.online",
    "procedures.martingale",
    "exchange.structure",
    "probe.evidence",
    "probe.benchmark",
    "probe.order",
    "audit.blind_baseline",
    "audit.flagged",
    "audit.overlap",
    "audit.preparation",
    "audit.owner_versions",
    "audit.owner_dataset",
    "study.baselines",
)
"""The modules with a `GUARANTEE_ROWS`, in the order of the table."""


class Row(NamedTuple):
    """One procedure under one option."""

    call: str  # public function, as "tdd.ptdi"
    option: str  # the decisive option, as 'proportion="storey"', or ""
    guarantee: Guarantee  # the record in its results


def all_differences() -> tuple[Difference, ...]:
    """Return the `DIFFERENCES` of all modules from the papers that they implement."""
    modules = [importlib.import_module(f"tdd.{name}") for name in _MODULES]
    return tuple(difference for module in modules for difference in getattr(module, "DIFFERENCES", ()))


def all_guarantees() -> tuple[Row, ...]:
    """Return the `GUARANTEE_ROWS` of all modules, then procedures that a user has defined, with default options."""
    modules = [importlib.import_module(f"tdd.{name}") for name in _MODULES]
    defined = [cls for cls in known_procedures().values() if not cls.__module__.startswith("tdd.")]
    return (
        *(Row(*row) for module in modules for row in module.GUARANTEE_ROWS),
        *(Row(f"{cls.__module__}.{cls.__qualname__}", "", cls().guarantee) for cls in defined),
    )
