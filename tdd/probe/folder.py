"""The folder of a probe: run.json, history.csv, items.csv for reports, state.npz to continue from."""

from __future__ import annotations

import bisect
import dataclasses
import io
import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tdd.kernels.trajectories import Evidence, spending
from tdd.probe.evidence import ProbeRecord, ProbeResult
from tdd.probe.inputs import ProbeOptions, Role, num_texts
from tdd.runs.atomic import disk_errors, write_atomically
from tdd.runs.display import PAGE, format_p_value, level_in_words, report_module
from tdd.runs.folder import fingerprint as fingerprint_of
from tdd.runs.folder import open_run_folder, plain, run_head, to_csv, write_run
from tdd.runs.portable import without_folders
from tdd.validate import InputError
from tdd.validate.files import read_npz

if TYPE_CHECKING:
    from tdd.probe.probe import Probe

_COLUMNS = {"step": np.int64, "look": np.int64, "alarm": bool, "seconds": np.float64, "on_schedule": bool}
_PARTS = {
    "items": ("e_values", "adjusted", "flagged"),
    "evidence": Evidence._fields,
    "result": tuple(field.name for field in dataclasses.fields(ProbeResult)),  # pyright: ignore[reportArgumentType]
}

_ALWAYS = (
    "An alarm says that the training affected the suspects and the references differently. That the suspects were "
    "trained on follows only where both are of one kind, chosen and prepared alike: no computation on scores can "
    "show that.",
    "Without an alarm nothing is shown: texts that were trained on once, long ago or in another form may leave no "
    "trace that a test of so few texts can find.",
)
_OF_ORDER = (
    "An alarm says that the model prefers the published order to other orders of the same items. That it was trained "
    "on in that order follows only where the order is random: no computation on scores can show that.",
    "Without an alarm nothing is shown: items that were trained on once, long ago, in another order or in another form "
    "may leave no trace in the order.",
)


def fingerprint(options: ProbeOptions, roles: Mapping[str, Role], checkpoints: Sequence[Mapping[str, Any]]) -> str:
    """SHA-256 of what decides a probe's numbers; of the models those that are known beforehand."""
    texts = {name: role.sha256 for name, role in roles.items()}
    hashes = {"checkpoints": [one["sha256"] for one in checkpoints]} if checkpoints else {}
    return fingerprint_of({"kind": "probe", "options": options, "texts": texts, **hashes})


def save(place: pathlib.Path, probe: Probe) -> None:
    """Write everything, each file whole or not at all: run.json, then report.html, last."""
    options, roles, history, guarantees = probe.options, probe.roles, probe.history, probe.guarantees
    open_run_folder(place, probe.fingerprint, f"probe {probe.name}")
    with io.BytesIO() as buffer:
        np.savez(buffer, **probe.state_dict())  # pyright: ignore[reportArgumentType]
        write_atomically(place / "state.npz", buffer.getvalue())
    tables = {}
    if history:
        tables = {"history.csv": to_csv(_looks(history)), "items.csv": to_csv(_items(roles, history[-1]))}
    decides_items = guarantees["items"].kind != "none"
    run = {
        **run_head("probe", options.seed),
        "name": probe.name,
        "fingerprint": probe.fingerprint,
        "options": {option: value for option, value in dataclasses.asdict(options).items() if option != "seed"},
        "inputs": {
            key: {"source": role.source, "sha256": role.sha256, "texts": len(role), "cut": role.num_cut}
            for key, role in roles.items()
        },
        **({"checkpoints": [*probe.checkpoints]} if probe.checkpoints else {}),
        "outcome": _outcome(probe, decides_items),
        "alarm": probe.alarm,
        "first_alarm": probe.first_alarm,
        "guarantees": guarantees,
        "looks": len(history),
        "warnings": [f"step {record.step}: {warning}" for record in history for warning in record.warnings],
        "open_points": _open_points(probe, decides_items),
    }
    write_run(place, without_folders(plain(run)), tables)
    _, report = report_module().folder_report(place, pictures=True)
    report_module("page").write_page(report, place / PAGE)


def read_state(folder: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of `Probe.state_dict` that were saved in a folder."""
    place = pathlib.Path(folder) / "state.npz"
    problem = f"{folder} holds no saved probe that can be read"
    if not place.is_file():
        raise InputError(f"{problem}: there is no state.npz in it")
    try:
        with disk_errors(place):
            return read_npz(place)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{problem}: state.npz is damaged ({error})") from error


def history_to_arrays(history: Sequence[ProbeRecord]) -> dict[str, np.ndarray]:
    """Looks as arrays with one row a look; no Python objects in them."""
    arrays = {name: np.array([getattr(record, name) for record in history], dtype) for name, dtype in _COLUMNS.items()}
    arrays["warnings"] = np.frombuffer(json.dumps([list(record.warnings) for record in history]).encode(), np.uint8)
    if history:
        for part, names in _PARTS.items():
            rows = [getattr(record, part, record) for record in history]
            arrays |= {f"{part}/{name}": np.stack([getattr(row, name) for row in rows]) for name in names}
    return {f"history/{name}": array for name, array in arrays.items()}


def history_from_arrays(arrays: Mapping[str, np.ndarray]) -> list[ProbeRecord]:
    """Invert `history_to_arrays`; a `KeyError` names an array that is missing."""
    columns = {name: arrays[f"history/{name}"].tolist() for name in _COLUMNS}
    warnings = json.loads(arrays["history/warnings"].tobytes())
    history = []
    for i, said in enumerate(warnings):
        items, evidence, result = (
            {name: arrays[f"history/{part}/{name}"][i] for name in names} for part, names in _PARTS.items()
        )
        own = {name: values[i] for name, values in columns.items()}
        history.append(
            ProbeRecord(
                **own, **items, evidence=Evidence(**evidence), result=ProbeResult(**result), warnings=tuple(said)
            )
        )
    return history


def without_empty(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays that have elements, and in `empty`, as bytes of JSON, the type and shape of the others, if any."""
    empty = {name: [array.dtype.str, array.shape] for name, array in arrays.items() if not array.size}
    held = {name: array for name, array in arrays.items() if array.size}
    return {**held, "empty": np.frombuffer(json.dumps(empty).encode(), np.uint8)} if empty else held


def with_empty(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Invert `without_empty`."""
    arrays = dict(arrays)
    described = json.loads(arrays.pop("empty").tobytes()) if "empty" in arrays else {}
    return arrays | {name: np.empty(shape, dtype) for name, (dtype, shape) in described.items()}


def _looks(history: Sequence[ProbeRecord]) -> dict[str, np.ndarray]:
    """One row a look."""
    rows = [{"step": record.step, "look": record.look, **record.scalars("")} for record in history]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _items(roles: Mapping[str, Role], last: ProbeRecord) -> dict[str, np.ndarray]:
    """One row a text: its score and p-value at the last look, and what all looks together say of it."""
    _, n, c, k = num_texts(roles)
    result = last.result
    unknown = {count: np.full(count, np.nan, np.float32) for count in (n, k, c + k)}
    columns = {
        "score": (result.suspect_scores, result.reference_scores, result.canary_scores, unknown[k]),
        "p_value": (result.p_values, unknown[n], result.canary_p_values, unknown[k]),
        "e_value": (last.e_values, unknown[n], unknown[c + k]),
        "adjusted": (last.adjusted, unknown[n], unknown[c + k]),
        "selected": (last.flagged, np.zeros(n + c + k, bool)),
    }
    texts = [(identifier, name) for name, role in roles.items() for identifier in role.ids]
    return {
        "id": np.array([identifier for identifier, _ in texts]),
        "role": np.array([name for _, name in texts]),
        **{name: np.concatenate(parts) for name, parts in columns.items()},
    }


def _outcome(probe: Probe, decides_items: bool) -> str:
    """One or two sentences on the whole run so far; suspects that are orders of a benchmark are not decided on."""
    history = probe.history
    if not history:
        return "No look has been taken."
    last, level, place = history[-1], level_in_words(probe.alpha), "checkpoint" if probe.checkpoints else "step"
    planned = all(record.on_schedule for record in history)
    hold = "hold" if planned else "hold, and the looks off the schedule did not follow from what was seen"
    flagged, selected = int(last.flagged.sum()), int(last.result.num_flagged)
    counted = f"{flagged or 'none'} of {len(last.flagged)} suspects {'is' if flagged < 2 else 'are'} flagged"
    if len(last.flagged) == 1:
        counted = f"the only suspect is {'' if flagged else 'not '}flagged"
    items = f" By {place} {last.step}, {counted}."
    if flagged:
        items += (
            f" If the assumptions {hold}, the false discovery rate of flagged suspects is at most {level}, whatever "
            "look one stops at."
        )
    if planned and len(history) == probe.num_looks:  # the last one before any score was seen
        rate = (
            f"; if the assumptions hold, the false discovery rate of that list is at most {level}" if selected else ""
        )
        items += f" The last look of the plan selects {selected or 'none'} by itself{rate}."
    subject, without, absent = (
        "the suspects, or some of them, are in the training data",
        "without them",
        "the suspects are",
    )
    if not decides_items:
        subject, items, absent = "the benchmark is in the training data, in its published order", "", "the benchmark is"
        without = "that knows nothing of that order"
    p = f"anytime p-value {format_p_value(float(last.evidence.anytime_p_value), level=probe.alpha)}"
    if last.alarm:
        return (
            f"Evidence at level {level} that {subject}: alarm at {place} {probe.first_alarm}, {p} at {place} "
            f"{last.step}. If the assumptions {hold}, training {without} "
            f"raises an alarm at any look with a probability of at most {level}.{items}"
        )
    found = f"No alarm at level {level} up to {place} {last.step} ({p})."
    return f"{found} That does not show that {absent} absent from the training data.{items}"


def _open_points(probe: Probe, decides_items: bool) -> list[str]:
    """Caveats to know before relying on the outcome."""
    options, roles, history, horizon = probe.options, probe.roles, probe.history, probe.num_looks
    points = []
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
            f"{len(off_schedule)} look{' is' if len(off_schedule) == 1 else 's are'} off the schedule of "
            f"{options.every} steps, the first at step {off_schedule[0]}. The guarantees take the steps of the looks "
            "as fixed beforehand: if looks were added or left out because of what was seen, they do not hold."
        )
    for name, role in roles.items():
        if role.num_cut:
            points.append(f"{role.num_cut} of {len(role)} texts of {name} are longer than the limit and were cut.")
    return [*points, *(_ALWAYS if decides_items else _OF_ORDER)]


def _first_possible_alarm(options: ProbeOptions) -> int:
    """The first look at which the fraction of the level that may be spent is worth a slot."""
    slots = options.alpha * (options.num_draws + 1) + 1e-6
    looks = range(1, 1 + (options.num_looks or 1_000))
    return 1 + bisect.bisect_left(looks, 1, key=lambda look: slots * float(spending(look, options.num_looks)))
