"""Run records as reports; the report of a folder, whatever kind of run it holds."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from tdd.report.sections import Report
from tdd.runs.folder import RECORDS, as_it_stands, check_files, read_items, read_run, read_table
from tdd.validate import InputError


def folder_report(
    folder: pathlib.Path, *, shard_table: bool = False, pictures: bool = False
) -> tuple[Mapping[str, Any], Report]:
    """The record and the report of a finished run of any kind.

    The shards of a test of canonical order are listed with `shard_table`; `pictures` need further tables of a run.

    Raises:
      InputError: No finished run there, or a table of it is missing, damaged, or of another run.
    """
    folder = folder.parent if folder.name in RECORDS else folder
    files = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    held = [kind for name, kind in RECORDS.items() if name in files]
    if len(held) > 1:
        raise InputError(f"{folder} holds {' and '.join(held)}; move one of them to another folder")
    if "study.json" in files:
        from tdd.report.study import study_record
        from tdd.study.results import StudyResult

        result = StudyResult.load(folder)
        return study_record(result), result.report()
    if "power.json" in files:
        from tdd.study.power import load_plan

        plan = load_plan(folder)
        return plan.to_dict(), plan.report()
    run = read_run(folder)
    check_files(folder, run)
    if run["kind"] in ("audit", "select"):
        run = as_it_stands(run, folder / "run.json")
    return run, _run_report(folder, run, shard_table, pictures)


def _run_report(folder: pathlib.Path, run: Mapping[str, Any], shard_table: bool, pictures: bool) -> Report:
    if run["kind"] == "exchange":
        from tdd.exchange.result import read_shards
        from tdd.report.exchange import exchange_report

        shards = read_shards(folder, run) if shard_table or pictures else None
        return exchange_report(run, shards, shard_table=shard_table)
    if run["kind"] == "probe":
        from tdd.report.probe import probe_report, read_history, read_probe_items

        return probe_report(run, read_history(folder, run), read_probe_items(folder, run))
    if run["kind"] in ("versions", "dataset"):
        from tdd.report.owner import owner_report, read_rows

        return owner_report(run, read_rows(folder, run))
    if run["kind"] == "paraphrase":
        from tdd.report.paraphrase import paraphrase_report
        from tdd.report.paraphrase import read_rows as read_paraphrases

        return paraphrase_report(run, read_paraphrases(folder, run), folder)
    from tdd.report.audit import audit_report

    calibration = None
    if pictures and "calibration.csv" in run["files"]:
        header, rows = read_table(folder, "calibration.csv", run)
        calibration = dict(zip(header, zip(*rows, strict=True), strict=True)) if rows else None
    return audit_report(run, read_items(folder, run), calibration)
