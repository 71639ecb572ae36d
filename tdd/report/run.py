"""The report of a run folder, whatever kind of run it holds."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from tdd.report.sections import Report
from tdd.runs.folder import read_items, read_table

__all__ = ["PAGE", "folder_report"]

PAGE = "report.html"


def folder_report(
    folder: pathlib.Path, run: Mapping[str, Any], *, shard_table: bool = False, pictures: bool = False
) -> Report:
    """The report of a finished run.

    Args:
      folder: Run folder.
      run: Content of its run.json.
      shard_table: Whether to list the shards of a test of canonical order.
      pictures: Whether the report will show pictures, which need further tables.

    Raises:
      InputError: A table of the run is missing, damaged, or of another run.
    """
    if run["kind"] == "exchange":
        from tdd.exchange.result import read_shards
        from tdd.report.exchange import exchange_report

        shards = read_shards(folder, run) if shard_table or pictures else None
        return exchange_report(run, shards, shard_table=shard_table)
    if run["kind"] == "probe":
        from tdd.report.probe import probe_report, read_history, read_probe_items

        return probe_report(run, read_history(folder, run), read_probe_items(folder, run))
    from tdd.report.audit import audit_report

    calibration = None
    if pictures and (folder / "calibration.csv").is_file():
        header, rows = read_table(folder, "calibration.csv", run)
        calibration = dict(zip(header, zip(*rows, strict=True), strict=True)) if rows else None
    return audit_report(run, read_items(folder, run), calibration)
