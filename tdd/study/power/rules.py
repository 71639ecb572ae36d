"""The decision rules that a power plan knows, as methods of a study."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

from tdd.audit.resolution import resolution
from tdd.kernels import lattice
from tdd.procedures import ktd, ptdi, td4eval
from tdd.records import Null
from tdd.study.methods import StudyMethod, method
from tdd.validate import power as checks

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
      proportion: of `tdd.ptdi`, where the fixed-pool engine decides alike; "" elsewhere.
    """

    label: str
    select: StudyMethod
    null: Null
    kind: str
    proportion: str = ""

    @property
    def targets(self) -> str:
        """What is to be selected, in words."""
        return "members" if self.null == "nonmember" else "clean items"

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:
        """The smallest number of selections that the sizes allow; m + 1 where nothing can be selected."""
        if self.kind == "knockoffs":
            level = lattice.as_level(alpha)
            copies = num_knockoffs if self.label == "ktd/multi" else 1
            return min(m + 1, math.ceil(Fraction(int(level.denominator), int(level.numerator) * copies)))
        scale = Fraction(1)
        if self.proportion in ("storey", "subtraction"):
            scale = max(Fraction(m - num_targets, m), Fraction(1, m))
        return resolution(n, m, alpha, scale).min_selections


def as_rule(name: str, *, proportion: str | None, combine: str | None, rule: str | None, null: str | None) -> Rule:
    """The rule of a name with its options.

    Args:
      name: out of `METHODS`.
      proportion: of ptdi ("storey").
      combine: of td4eval ("pooled_rank").
      rule: of ktd ("multi").
      null: which items calibrate; bh takes both ("nonmember"), for the others it may be stated and must be theirs.

    Raises:
      InputError: an unknown name, an option of another method, the other null.
    """
    checks.check_name("method", name, METHODS)
    for option, value, owner in (
        ("proportion", proportion, "ptdi"),
        ("combine", combine, "td4eval"),
        ("rule", rule, "ktd"),
    ):
        checks.check_option(option, value, owner, name)
    checks.check_null(name, null, {"ptdi": "nonmember", "ktd": "nonmember", "td4eval": "member"}.get(name))
    if name == "ptdi":
        chosen = checks.check_name("proportion", proportion or "storey", _PROPORTIONS)
        return Rule(f"ptdi/{chosen}", method(f"ptdi/{chosen}"), "nonmember", "one", chosen)
    if name == "td4eval":
        chosen = checks.check_name("combine", combine or "pooled_rank", td4eval.COMBINATIONS)
        return Rule(f"td4eval/{chosen}", method(f"td4eval/{chosen}"), "member", "several")
    if name == "ktd":
        chosen = checks.check_name("rule", rule or "multi", _KTD_RULES)
        return Rule(f"ktd/{chosen}", method(f"ktd/{chosen}"), "nonmember", "knockoffs")
    if null == "member":
        return Rule("bh", method("bh"), "member", "one")
    return Rule("bh", method("bh"), "nonmember", "one", "none")
