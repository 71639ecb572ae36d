"""Whether the checks let a verdict stand: where one of them speaks against exchangeability, no guarantee is stated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.audit.decide import Decision

__all__ = ["LEVEL", "RULE", "failures"]

LEVEL, SHARE = 0.01, 0.01
RULE = (
    "A verdict is withheld where the blind baseline, or for knockoffs the symmetry test, has p <= 0.01 (0.005 for "
    "clusters, as the test of their sizes has), or where more than 1 % of the calibration items or of the candidates "
    "are copies or parts of texts of the other role. Where the assumptions hold, the random check fails in at most 1 % "
    "of runs. Texts that are shared are counted, not tested: quotations and templates count too."
)


def failures(checks: Mapping[str, Any], decision: Decision) -> list[str]:
    """Why no verdict is given, one sentence a failed check; empty where it stands.

    Guarantee: where calibration items and candidates (for knockoffs without calibration: originals and knockoffs of
    known non-members) are exchangeable, P(a random check fails) <= 1 %: one is asked at level 1 %, or for clusters two
    at half of it. Shared texts are counted, not tested: a quotation that both roles have counts too.
    """
    found = []
    calibrated = decision.num_calibration > 0
    sizes = checks.get("cluster_sizes")
    level = LEVEL if sizes is None else LEVEL / 2
    if sizes is not None and sizes.p_value <= level:
        found.append(sizes.warning)
    baseline = checks.get("blind_baseline")
    if calibrated and baseline is not None and baseline.warning and baseline.p_value <= level:
        found.append(
            f"calibration items and candidates differ without looking at the model (AUC {baseline.auc:.3f}, "
            f"p = {baseline.p_value:.3g}), so they are not exchangeable"
        )
    symmetry = checks.get("symmetry")
    if not calibrated and symmetry is not None and symmetry.p_value <= LEVEL:
        found.append(
            f"the model tells known non-members from their knockoffs (p = {symmetry.p_value:.3g}), so these are not "
            "exchangeable"
        )
    copies, parts = checks.get("duplicates"), checks.get("overlap")
    if calibrated and copies is not None and parts is not None:
        for what, check in (("copies or near copies of texts", copies), ("parts of texts", parts)):
            shares = check.num_calibration / parts.total_calibration, check.num_candidates / parts.total_candidates
            if max(shares) > SHARE:
                found.append(
                    f"{check.num_calibration} of {parts.total_calibration} calibration items and "
                    f"{check.num_candidates} of {parts.total_candidates} candidates are {what} of the other role"
                )
    return found
