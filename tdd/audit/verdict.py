"""Whether the checks let a verdict stand: where one of them speaks against exchangeability, no guarantee is stated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.audit.decide import Decision

__all__ = ["LEVEL", "RULE", "failures"]

LEVEL, SHARE = 0.01, 0.01
RULE = (
    "A verdict is withheld where a test speaks against exchangeability: the blind baseline, the sizes of clusters, or, "
    "where more than 1 % of the calibration items or of the candidates are copies or parts of texts of the other role, "
    "their number against random divisions of the same texts; for knockoffs alone the symmetry test. The levels of "
    "these tests add up to 1 %: where the assumptions hold, that happens in at most 1 % of runs."
)


def failures(checks: Mapping[str, Any], decision: Decision) -> list[str]:
    """Why no verdict is given, one sentence a failed check; empty where it stands.

    Guarantee: where calibration items and candidates (for knockoffs without calibration: originals and knockoffs of
    known non-members) are exchangeable, P(a failure) <= 1 %: the tests that are asked have even shares of that level.
    """
    found = []
    calibrated = decision.num_calibration > 0
    sizes, shared = checks.get("cluster_sizes"), checks.get("sharing")
    baseline = checks.get("blind_baseline")
    level = LEVEL / max(1, sum(check is not None for check in (sizes, shared, baseline))) * (1 + 1e-9)
    if sizes is not None and sizes.p_value <= level:
        found.append(sizes.warning)
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
    if calibrated and copies is not None and parts is not None and shared is not None and shared.p_value <= level:
        for what, check in (("copies or near copies of texts", copies), ("parts of texts", parts)):
            shares = check.num_calibration / parts.total_calibration, check.num_candidates / parts.total_candidates
            if max(shares) > SHARE:
                found.append(
                    f"{check.num_calibration} of {parts.total_calibration} calibration items and "
                    f"{check.num_candidates} of {parts.total_candidates} candidates are {what} of the other role, more "
                    f"than a division at random would make (p = {shared.p_value:.3g})"
                )
    return found
