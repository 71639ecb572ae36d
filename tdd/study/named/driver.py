"""Run a named study: its folder, its continuation after an interruption, its provenance."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any, NamedTuple

from tdd.runs.folder import fingerprint, open_run_folder
from tdd.study import checks
from tdd.study.named import STUDIES
from tdd.study.named.record import NamedStudy, StudyOptions, verdict
from tdd.study.results import StudyResult
from tdd.study.store import as_study_shard
from tdd.validate.errors import InputError

__all__ = ["FinishedStudy", "run_named_study", "run_shard", "verdict_rows"]

_RESULT, _UNFINISHED = "study.json", "unfinished"


class FinishedStudy(NamedTuple):
    """A finished study; `computed` is False if its result was read from its folder."""

    result: StudyResult
    computed: bool


def run_named_study(study: NamedStudy, options: StudyOptions, *, command: str) -> FinishedStudy:
    """Run a study, continue it in its folder and join the totals of shards there, or read a finished one.

    Args:
      study: study to run.
      options: its options; `options.folder` receives results.parquet, results.csv and study.json, and `options.shard`
        is not read.
      command: the command line, for the record.

    Raises:
      InputError: options out of range, or a folder with another study.
    """
    checks.check_run(options.repetitions, options.seed, options.target_se)
    options = dataclasses.replace(options, shard=None)
    folder = options.folder
    if folder is None:
        return FinishedStudy(_with_provenance(study.run(options), study, options, command), True)
    before = {path: path.exists() for path in (folder, folder / "inputs.json")}
    open_run_folder(folder, fingerprint(_identity(study, options)), f"tdd study {study.name}")
    if (folder / _RESULT).exists():
        return FinishedStudy(StudyResult.load(folder), False)
    try:
        result = study.run(dataclasses.replace(options, folder=folder / _UNFINISHED))
    except InputError:
        _leave_as_it_was(folder, before)
        raise
    result = _with_provenance(result, study, options, command)
    result.save(folder)
    shutil.rmtree(folder / _UNFINISHED, ignore_errors=True)
    return FinishedStudy(result, True)


def run_shard(study: NamedStudy, options: StudyOptions) -> None:
    """Run the part `options.shard` of each cell, and leave its totals in `options.folder` for `run_named_study`.

    Nothing is run if the study is finished there.

    Raises:
      InputError: as `run_named_study`; no folder; a shard that does not exist; `target_se`.
    """
    checks.check_run(options.repetitions, options.seed, options.target_se)
    as_study_shard(options.shard, options.folder, options.target_se)
    folder = options.folder
    assert folder is not None
    unfinished = folder / _UNFINISHED
    open_run_folder(folder, fingerprint(_identity(study, options)), f"tdd study {study.name}")
    try:
        if not (folder / _RESULT).exists():
            unfinished.mkdir(exist_ok=True)  # from now on the folder belongs to this study
            study.run(dataclasses.replace(options, folder=unfinished))
    except InputError:
        if not (folder / _RESULT).exists():  # else `run_named_study` has finished meanwhile, and has removed the totals
            with contextlib.suppress(OSError):
                unfinished.rmdir()  # if no shard has begun, other options may take the folder
            raise
    if (folder / _RESULT).exists():
        shutil.rmtree(unfinished, ignore_errors=True)


def verdict_rows(study: NamedStudy, options: StudyOptions, result: StudyResult) -> list[dict[str, Any]]:
    """The rows of the result with the verdict on each error rate."""
    fields = tuple(result.cells[0])
    rows = []
    for row in result.rows():
        cell = {name: row[name] for name in fields}
        bound = study.bound(options, cell, row["method"])
        rows.append(row | {"verdict": verdict(row["fdr"], row["fdr_se"], row["alpha"], bound)})
    return rows


def _leave_as_it_was(folder: pathlib.Path, before: Mapping[pathlib.Path, bool]) -> None:
    """Undo options that cannot be run: they must not keep the folder from those that can. Totals stay."""
    if before[folder / "inputs.json"] or any(folder.glob(f"{_UNFINISHED}/**/cell-*.npz")):
        return
    shutil.rmtree(folder / _UNFINISHED, ignore_errors=True)
    (folder / "inputs.json").unlink(missing_ok=True)
    if not before[folder]:
        folder.rmdir()


def _identity(study: NamedStudy, options: StudyOptions) -> Mapping[str, Any]:
    """Values on which the numbers depend."""
    columns = options.columns
    return {
        "study": study.name,
        "repetitions": options.repetitions,
        "alphas": options.alphas,
        "seed": options.seed,
        "target_se": options.target_se,
        "scores": None if columns is None else [columns.sha256, columns.names, columns.knockoffs.shape],
    }


def _with_provenance(result: StudyResult, study: NamedStudy, options: StudyOptions, command: str) -> StudyResult:
    columns = options.columns
    record = {
        "study": study.name,
        "regenerates": STUDIES[study.name].figure,
        "title": study.title,
        "about": study.describe(options),
        "command": command,
        "table": None if columns is None else {"source": columns.source, "sha256": columns.sha256},
    }
    verdicts = [row["verdict"] for row in verdict_rows(study, options, result)]
    return dataclasses.replace(result, provenance={**record, **result.provenance, "verdicts": verdicts})
