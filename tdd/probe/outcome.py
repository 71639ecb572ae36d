"""What a probe found, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tdd.records import Guarantee

if TYPE_CHECKING:
    from tdd.probe.probe import Probe

__all__ = ["SET_GUARANTEE", "open_points", "outcome"]

SET_GUARANTEE = Guarantee(
    "P(an alarm at any look of the run) <= alpha",
    (
        "no suspect is in the training data",
        "given everything that the training did, which of the texts are suspects and which are references is a "
        "uniformly random labelling: the same kind of text, chosen and prepared in the same way",
    ),
    "finite-sample",
    "relabelling trajectories over all looks with the level spent along them, see tdd.kernels.trajectories",
)


def outcome(probe: Probe) -> str:
    """One sentence or two on the whole run so far."""
    if not probe.history:
        return "No look has been taken."
    last, m, alpha = probe.history[-1], probe.sizes[0], f"{probe.alpha:g}"
    flagged = int(last.result.num_flagged)
    items = f"At the last look, step {last.step}, {flagged} of {m} suspects are flagged (FDR <= {alpha})."
    anytime = f"anytime p-value {float(last.evidence.anytime_p_value):.3g}"
    if probe.alarm:
        return f"The suspects are in the training data: alarm at step {probe.first_alarm}, {anytime}. {items}"
    return f"No evidence that the suspects are in the training data, up to step {last.step}: {anytime}. {items}"


def open_points(probe: Probe) -> list[str]:
    """What a reader must know before relying on the outcome."""
    found, horizon = [], probe.num_looks
    m, n = probe.sizes[:2]
    if horizon is None:
        found.append("num_steps was not given: early looks may use more of the level than an even share.")
    elif len(probe.history) < horizon:
        found.append(f"{len(probe.history)} of {horizon} looks have been taken; the rest of the level is not used yet.")
    fewest = -(-m // max(1, int(probe.alpha * (n + 1) + 1e-9)))
    if fewest > 1 and probe.options["proportion"] == "none":
        found.append(f"With {n} references, a look flags either no suspect or at least {fewest}.")
    for name, role in probe.roles.items():
        if role.num_cut:
            found.append(f"{role.num_cut} of {len(role)} texts of {name} are longer than the limit and were cut.")
    return found
