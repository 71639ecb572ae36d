"""The decision rules that a power plan knows, as methods of a study."""

from __future__ import annotations

import dataclasses
from typing import Any

from tdd.procedures import ktd, ptdi, td4eval
from tdd.procedures.grammar import as_procedure
from tdd.procedures.procedure import Procedure
from tdd.procedures.values import PTDI
from tdd.records import Null
from tdd.study.methods import StudyMethod, method
from tdd.validate import power as checks
from tdd.validate.errors import InputError
from tdd.validate.power import check_name

__all__ = ["METHODS", "Rule", "as_rule"]

METHODS = ("ptdi", "bh", "td4eval", "ktd")
_PROPORTIONS = tuple(name for name in ptdi.PROPORTIONS if name != "moment")
_KTD_RULES = tuple(name for name in ktd.RULES if name != "conformal")


@dataclasses.dataclass(frozen=True)
class Rule:
    """A decision rule.

    Attributes:
      label: what it is called in the answer.
      select: the method of a study.
      null: which items calibrate, and are not to be selected.
      kind: what an item has: "one" score, "several", or one with those of its "knockoffs".
      procedure: that decides, or that has the fewest selections of the rule.
      proportion: of `tdd.ptdi`, where the fixed-pool engine decides alike; "" elsewhere.
    """

    label: str
    select: StudyMethod
    null: Null
    kind: str
    procedure: Procedure
    proportion: str = ""

    @property
    def targets(self) -> str:
        """What is to be selected, in words."""
        return "members" if self.null == "nonmember" else "clean items"

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:
        """The smallest number of selections that the sizes allow; m + 1 where nothing can be selected."""
        return self.procedure.min_selections(n, m, num_targets, alpha, num_knockoffs)


def as_rule(given: Any, *, null: str | None, **options: str | None) -> Rule:
    """The rule of a procedure, or of a name out of `METHODS` with its options.

    Args:
      given: a name, a procedure as text, or a `Procedure` that needs nothing beyond calibration items and knockoffs.
      null: which items calibrate; bh takes both ("nonmember"), for the others it may be stated and must be theirs.
      **options: proportion of ptdi ("storey"), combine of td4eval ("pooled_rank"), rule of ktd ("multi").

    Raises:
      InputError: an unknown name, an option of another method, the other null, a procedure that needs more.
    """
    if isinstance(given, str) and ":" not in given:
        checks.check_name("method", given, METHODS)
        for option, owner in (("proportion", "ptdi"), ("combine", "td4eval"), ("rule", "ktd")):
            _check_option(option, options.get(option), owner, given)
        choices = {"proportion": _PROPORTIONS, "combine": td4eval.COMBINATIONS, "rule": _KTD_RULES}
        for option, value in options.items():
            if value is not None:
                checks.check_name(option, value, choices[option])
        if given == "bh":
            _check_null(given, null, None)
            if null == "member":
                return Rule("bh", method("bh"), "member", "one", PTDI("none"))
            return Rule("bh", method("bh"), "nonmember", "one", PTDI("none"), "none")
    procedure = as_procedure(given, **options)
    _check_null(procedure.name, null, procedure.null)
    if more := [name for name in procedure.needs if name not in ("calibration", "knockoffs")]:
        raise InputError(f"method {procedure.label!r} needs {', '.join(more)}, which a power plan does not draw")
    if procedure.columns == "models":
        raise InputError(f"method {procedure.label!r} needs several models, which a power plan does not draw")
    kind = "several" if procedure.columns == "detectors" else "knockoffs" if "knockoffs" in procedure.needs else "one"
    ours = procedure.proportion if type(procedure) is PTDI and procedure.eta == PTDI.eta else ""
    chosen = method(procedure)
    return Rule(chosen.name, chosen, procedure.null, kind, procedure, ours)


def _check_option(argument: str, value: Any, owner: str, method: str) -> None:
    """An option of one method is given with that method only."""
    if value is not None and owner != method:
        raise InputError(f'{argument} is an option of method "{owner}", not of "{method}"; leave it out, got {value!r}')


def _check_null(method: str, null: Any, own: str | None) -> None:
    """The null that a method tests."""
    if null is None:
        return
    check_name("null", null, ("nonmember", "member"))
    if own is not None and null != own:
        raise InputError(f'{method} tests the null "{own}", got null={null!r}; leave it out, or take method "bh"')
