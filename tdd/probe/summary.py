"""The summary of a probe: its outcome in words, and the caveats to know before relying on it."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence

from tdd.kernels.trajectories import spending
from tdd.probe.options import ProbeOptions
from tdd.probe.result import ProbeRecord
from tdd.probe.steps import first_alarm
from tdd.probe.texts import Role

__all__ = ["open_points", "outcome"]

_ALWAYS = (
    "An alarm says that the training did other things to the suspects than to the references. That they were trained "
    "on follows only where both are of one kind, chosen and prepared alike: no computation on scores can show that.",
    "Without an alarm nothing is shown: texts that were trained on once, long ago or in another form may leave no "
    "trace that so few of them can show.",
)


def outcome(options: ProbeOptions, history: Sequence[ProbeRecord], *, decides_items: bool) -> str:
    """One or two sentences on the whole run so far; suspects that are orders of a benchmark are not decided on."""
    if not history:
        return "No look has been taken."
    last, alpha = history[-1], f"{options.alpha:g}"
    planned = all(record.on_schedule for record in history)
    condition = (
        "whatever look one stops at" if planned else "if the looks off the schedule did not follow from what was seen"
    )
    items = (
        f" By step {last.step}, {int(last.flagged.sum())} of {len(last.flagged)} suspects are flagged (FDR <= {alpha}, "
        f"{condition})."
    )
    if planned and len(history) == options.num_looks:  # the last one before any score was seen
        items += f" That look, the last of the plan, selects {int(last.result.num_flagged)} by itself (FDR <= {alpha})."
    subject = "that the suspects are in the training data"
    if not decides_items:
        subject, items = "that the benchmark is in the training data, in its published order", ""
    anytime = f"anytime p-value {float(last.evidence.anytime_p_value):.3g}"
    if last.alarm:
        return f"Evidence {subject}: alarm at step {first_alarm(history)}, {anytime}.{items}"
    return f"No evidence {subject}, up to step {last.step}: {anytime}.{items}"


def open_points(
    options: ProbeOptions, roles: Mapping[str, Role], history: Sequence[ProbeRecord], *, decides_items: bool
) -> list[str]:
    """Caveats to know before relying on the outcome."""
    points, horizon = [], options.num_looks
    if horizon is None:
        points.append("num_steps was not given: early looks may use more of the level than an even share.")
    elif len(history) < horizon:
        points.append(f"{len(history)} of {horizon} looks have been taken; the rest of the level is not used yet.")
    first = _first_possible_alarm(options)
    if first > 1:
        points.append(f"With {options.num_draws} relabellings no look before number {first} can raise an alarm.")
    num_references = len(roles["reference"])
    fewest = math.ceil(len(roles["suspect"]) / (options.alpha * (num_references + 1)) - 1e-9)  # no e-value is larger
    if fewest > 1 and decides_items:
        points.append(f"With {num_references} references, either no suspect is flagged or at least {fewest} are.")
    if off_schedule := [record.step for record in history if not record.on_schedule]:
        points.append(
            f"{len(off_schedule)} looks are off the schedule of {options.every} steps, the first at step "
            f"{off_schedule[0]}. The guarantees take the steps of the looks as fixed beforehand: if looks were added "
            "or left out because of what was seen, they do not hold."
        )
    for name, role in roles.items():
        if role.num_cut:
            points.append(f"{role.num_cut} of {len(role)} texts of {name} are longer than the limit and were cut.")
    return [*points, *_ALWAYS]


def _first_possible_alarm(options: ProbeOptions) -> int:
    """The first look at which the fraction of the level that may be spent is worth a slot."""
    slots = options.alpha * (options.num_draws + 1) + 1e-6
    looks = range(1, 1 + (options.num_looks or 1_000))
    return 1 + bisect.bisect_left(looks, 1, key=lambda look: slots * float(spending(look, options.num_looks)))
