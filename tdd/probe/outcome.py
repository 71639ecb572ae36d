"""What a probe found, in words."""

from __future__ import annotations

import bisect
import math
from typing import TYPE_CHECKING

from tdd.kernels.trajectories import spending

if TYPE_CHECKING:
    from tdd.probe.probe import Probe

__all__ = ["open_points", "outcome"]

_ALWAYS = (
    "An alarm says that the training did other things to the suspects than to the references. That they were trained "
    "on follows only where both are of one kind, chosen and prepared alike: no computation on scores can show that.",
    "Without an alarm nothing is shown: texts that were trained on once, long ago or in another form may leave no "
    "trace that so few of them can show.",
)


def outcome(probe: Probe) -> str:
    """One sentence or two on the whole run so far."""
    if not probe.history:
        return "No look has been taken."
    last, m, alpha = probe.history[-1], probe.sizes[0], f"{probe.alpha:g}"
    flagged = int(last.flagged.sum())
    planned = all(record.on_schedule for record in probe.history)
    holds = (
        "whatever look one stops at" if planned else "if the looks off the schedule did not follow from what was seen"
    )
    items = f" By step {last.step}, {flagged} of {m} suspects are flagged (FDR <= {alpha}, {holds})."
    if len(probe.history) == probe.num_looks:  # it was planned as the last before any score was seen
        items += f" That look, the last of the plan, selects {int(last.result.num_flagged)} by itself (FDR <= {alpha})."
    anytime = f"anytime p-value {float(last.evidence.anytime_p_value):.3g}"
    subject = "that the suspects are in the training data"
    if not _decides_items(probe):
        subject, items = "that the benchmark is in the training data, in its published order", ""
    if probe.alarm:
        return f"Evidence {subject}: alarm at step {probe.first_alarm}, {anytime}.{items}"
    return f"No evidence {subject}, up to step {last.step}: {anytime}.{items}"


def open_points(probe: Probe) -> list[str]:
    """What a reader must know before relying on the outcome."""
    found, horizon = [], probe.num_looks
    m, n = probe.sizes[:2]
    if horizon is None:
        found.append("num_steps was not given: early looks may use more of the level than an even share.")
    elif len(probe.history) < horizon:
        found.append(f"{len(probe.history)} of {horizon} looks have been taken; the rest of the level is not used yet.")
    first = _first_possible(probe)
    if first > 1:
        found.append(
            f"With {probe.options['num_draws']} relabellings no look before number {first} can raise an alarm."
        )
    fewest = math.ceil(m / (probe.alpha * (n + 1)) - 1e-9)  # no e-value exceeds n + 1
    if fewest > 1 and _decides_items(probe):
        found.append(f"With {n} references, either no suspect is flagged or at least {fewest} are.")
    if off := [record.step for record in probe.history if not record.on_schedule]:
        found.append(
            f"{len(off)} looks are off the schedule of {probe.every} steps, the first at step {off[0]}. The guarantees "
            "take the steps of the looks as fixed beforehand: if looks were added or left out because of what was "
            "seen, they do not hold."
        )
    for name, role in probe.roles.items():
        if role.num_cut:
            found.append(f"{role.num_cut} of {len(role)} texts of {name} are longer than the limit and were cut.")
    return [*found, *_ALWAYS]


def _decides_items(probe: Probe) -> bool:
    """Whether single suspects are decided on; not those that are orders of a benchmark."""
    return probe.guarantees["items"].kind != "none"


def _first_possible(probe: Probe) -> int:
    """The first look at which the share of the level that may be spent is worth a slot."""
    count = probe.alpha * (probe.options["num_draws"] + 1) + 1e-6
    looks = range(1, 1 + (probe.num_looks or 1_000))
    return 1 + bisect.bisect_left(looks, 1, key=lambda look: count * float(spending(look, probe.num_looks)))
