"""The folder of a probe: run.json, history.csv, items.csv for reports, state.npz to go on from."""

from __future__ import annotations

import datetime
import io
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tdd.probe.outcome import open_points, outcome
from tdd.probe.texts import Role
from tdd.runs.atomic import disk_errors, write_atomically
from tdd.runs.folder import fingerprint as fingerprint_of
from tdd.runs.folder import open_run_folder, to_csv, versions, write_run
from tdd.validate.errors import InputError
from tdd.validate.npz import read_npz

if TYPE_CHECKING:
    from tdd.probe.probe import Probe

__all__ = ["fingerprint", "read_state", "save"]

_SCHEMA = 1


def fingerprint(options: Mapping[str, Any], roles: Mapping[str, Role]) -> str:
    """SHA-256 of what decides a probe's numbers, apart from the model."""
    return fingerprint_of({"kind": "probe", "options": options, "texts": {k: r.sha256 for k, r in roles.items()}})


def save(probe: Probe, folder: str | os.PathLike[str]) -> None:
    """Write everything, each file whole or not at all, run.json last."""
    place = pathlib.Path(folder)
    open_run_folder(place, probe.fingerprint, f"probe {probe.name}")
    with io.BytesIO() as buffer:
        np.savez(buffer, **probe.state_dict())  # pyright: ignore[reportArgumentType]
        write_atomically(place / "state.npz", buffer.getvalue())
    tables = {}
    rows = [{"step": record.step, "look": record.look, **record.scalars("")} for record in probe.history]
    if rows:
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        tables = {"history.csv": to_csv(columns), "items.csv": to_csv(_items(probe))}
    write_run(place, _run(probe), tables)


def read_state(folder: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of `Probe.state_dict` that were saved in a folder."""
    place = pathlib.Path(folder) / "state.npz"
    if not place.is_file():
        raise _no_saved_probe(pathlib.Path(folder), "there is no state.npz in it")
    try:
        with disk_errors(place):
            return read_npz(place)
    except InputError:
        raise
    except ValueError as error:
        raise _no_saved_probe(pathlib.Path(folder), f"state.npz is damaged ({error})") from error


def _items(probe: Probe) -> dict[str, np.ndarray]:
    """One row a text: its score and p-value at the last look, and what all looks together say of it."""
    last = probe.history[-1]
    result = last.result
    _, n, c, k = probe.sizes
    unknown = np.full(n, np.nan, np.float32)
    canary_references = np.full(k, np.nan, np.float32)
    columns = {
        "score": (result.suspect_scores, result.reference_scores, result.canary_scores, canary_references),
        "p_value": (result.p_values, unknown, result.canary_p_values, canary_references),
        "e_value": (last.e_values, unknown, np.full(c + k, np.nan, np.float32)),
        "adjusted": (last.adjusted, unknown, np.full(c + k, np.nan, np.float32)),
        "selected": (last.flagged, np.zeros(n + c + k, bool)),
    }
    names = [(name, identifier) for name, role in probe.roles.items() for identifier in role.ids]
    return {
        "id": np.array([identifier for _, identifier in names]),
        "role": np.array([name for name, _ in names]),
        **{name: np.concatenate(parts) for name, parts in columns.items()},
    }


def _run(probe: Probe) -> dict[str, Any]:
    return {
        "schema": _SCHEMA,
        "kind": "probe",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "seed": probe.options["seed"],
        "name": probe.name,
        "fingerprint": probe.fingerprint,
        "options": {name: value for name, value in probe.options.items() if name != "seed"},
        "inputs": {
            name: {"source": role.source, "sha256": role.sha256, "texts": len(role), "cut": role.num_cut}
            for name, role in probe.roles.items()
        },
        "outcome": outcome(probe),
        "alarm": probe.alarm,
        "first_alarm": probe.first_alarm,
        "guarantees": probe.guarantees,
        "looks": len(probe.history),
        "warnings": [f"step {record.step}: {words}" for record in probe.history for words in record.warnings],
        "open_points": open_points(probe),
    }


def _no_saved_probe(folder: pathlib.Path, detail: str) -> InputError:
    """A folder from which nothing can be restored."""
    return InputError(f"{folder} holds no saved probe that can be read: {detail}")
