"""Are the knockoffs of known non-members treated like the originals? The assumption of every knockoff rule."""

from __future__ import annotations

import dataclasses

import numpy as np

from tdd.audit.evidence import Evidence
from tdd.methods.ktd import knockoff_symmetry

__all__ = ["Symmetry", "symmetry"]

_LEVEL = 0.01


@dataclasses.dataclass(frozen=True)
class Symmetry:
    """The symmetry test on known non-members.

    Attributes:
      p_value: of the null that original and knockoff scores of a non-member are exchangeable.
      num_items: known non-members with their knockoffs.
      method: name of the test.
      warning: empty where nothing was found; that it is empty proves nothing for the candidates.
    """

    p_value: float
    num_items: int
    method: str
    warning: str


def symmetry(evidence: Evidence, rule: str) -> dict[str, Symmetry]:
    """{"symmetry": finding} where known non-members have knockoffs, else {}.

    What is tested is what the rule assumes: "ktd" that the averaged statistic is symmetric, the others that the copies
    of a text are exchangeable.
    """
    known = ~np.isnan(evidence.calibration[0])
    if not evidence.calibration_knockoffs.size or not known.any():
        return {}
    known &= ~np.isnan(evidence.calibration_knockoffs).any(axis=1)
    if not known.any():
        return {}
    result = knockoff_symmetry(
        evidence.calibration[0], evidence.calibration_knockoffs, rule="ktd" if rule == "ktd" else "multi"
    )
    p_value = float(result.p_value)
    warning = ""
    if p_value <= _LEVEL:
        found = (
            "the averaged statistic of known non-members is not symmetric"
            if rule == "ktd"
            else "the scores of known non-members and of their knockoffs differ"
        )
        warning = f"{found} (symmetry test, p = {p_value:.3g})"
        if rule != "conformal":
            warning += f': rule="{rule}" is not valid here; rule="conformal" needs no symmetry'
    return {"symmetry": Symmetry(p_value, int(known.sum()), result.method, warning)}
