"""Carry out a named study: its folder, its continuation after an interruption, its provenance."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any, NamedTuple

from tdd.audit.run_folder import fingerprint, open_run_folder
from tdd.processes import Meeting, current
from tdd.study.named import STUDIES
from tdd.study.named.record import NamedStudy, Options, verdict
from tdd.study.results import StudyResult
from tdd.study.store import part_of
from tdd.validate import studies as checks
from tdd.validate.errors import InputError
from tdd.validate.processes import check_shared_folder

__all__ = ["Outcome", "carry_out", "verdict_rows"]


class Outcome(NamedTuple):
    """A finished study.

    Attributes:
      result: the numbers.
      computed: now, rather than read from its folder.
    """

    result: StudyResult
    computed: bool


def carry_out(study: NamedStudy, options: Options, *, command: str) -> Outcome:
    """Run the study, or continue it in its folder, or read what a finished one left there.

    Several processes of `jax.distributed` call this with the same folder: each runs its share, all return the result,
    process 0 writes.

    Args:
      study: what to run.
      options: how; `options.folder` receives results.parquet, results.csv and study.json.
      command: the command line, for the record.

    Raises:
      InputError: options out of range, or a folder with another study; several processes without a folder, or with
        other options than process 0.
    """
    checks.check_run(options.repetitions, options.seed, options.target_se)
    folder, processes = options.folder, current()
    if processes.count > 1:
        folder = check_shared_folder(folder, processes.count, "folder= (--out)")
        with Meeting(folder, "study", processes) as meeting:
            meeting.agree(_identity(study, options))
    if folder is None:
        return Outcome(_with_provenance(study.run(options), study, options, command), True)
    before = {path: path.exists() for path in (folder, folder / "inputs.json")}
    open_run_folder(folder, fingerprint(_identity(study, options)), f"tdd study {study.name}")
    if (folder / "study.json").exists():
        return Outcome(StudyResult.load(folder), False)
    kept = folder / "unfinished"
    try:
        with part_of(folder):
            result = study.run(dataclasses.replace(options, folder=kept))
    except InputError:
        if (folder / "study.json").exists():  # process 0 has finished meanwhile and has tidied up
            return Outcome(StudyResult.load(folder), False)
        if processes.count == 1:
            _leave_as_it_was(folder, before)
        raise
    result = _with_provenance(result, study, options, command)
    if processes.lead:
        result.save(folder)
        shutil.rmtree(kept, ignore_errors=True)
    return Outcome(result, True)


def verdict_rows(study: NamedStudy, options: Options, result: StudyResult) -> list[dict[str, Any]]:
    """The rows of the result with the verdict on each error rate."""
    fields = tuple(result.cells[0])
    rows = []
    for row in result.rows():
        cell = {name: row[name] for name in fields}
        promise = study.promise(options, cell, row["method"])
        rows.append(row | {"verdict": verdict(row["fdr"], row["fdr_se"], row["alpha"], promise)})
    return rows


def _leave_as_it_was(folder: pathlib.Path, before: Mapping[pathlib.Path, bool]) -> None:
    """After options that cannot be run: they must not keep the folder from those that can. Totals stay."""
    if before[folder / "inputs.json"] or any(folder.glob("unfinished/**/cell-*.npz")):
        return
    shutil.rmtree(folder / "unfinished", ignore_errors=True)
    (folder / "inputs.json").unlink(missing_ok=True)
    if not before[folder]:
        folder.rmdir()


def _identity(study: NamedStudy, options: Options) -> Mapping[str, Any]:
    """What the numbers depend on."""
    columns = options.columns
    return {
        "study": study.name,
        "repetitions": options.repetitions,
        "alphas": options.alphas,
        "seed": options.seed,
        "target_se": options.target_se,
        "scores": None if columns is None else [columns.sha256, columns.names, columns.knockoffs.shape],
    }


def _with_provenance(result: StudyResult, study: NamedStudy, options: Options, command: str) -> StudyResult:
    columns = options.columns
    told = {
        "study": study.name,
        "regenerates": STUDIES[study.name].figure,
        "title": study.title,
        "about": study.design(options),
        "command": command,
        "table": None if columns is None else {"source": columns.source, "sha256": columns.sha256},
    }
    return dataclasses.replace(result, provenance={**told, **result.provenance})
