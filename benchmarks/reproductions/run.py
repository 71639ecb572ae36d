"""`run_reproduction(name, options)`: all that the command `python -m benchmarks reproduce` calls.

Each reproduction's figure is a module of the same name in `figures` (`ptdi-ktd` -> `ptdi_ktd`). Modules load late.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.reproductions import load
from benchmarks.reproductions.record import Options, Outcome
from tdd.lab.checks import check_out
from tdd.report.page import markdown_table
from tdd.runs.atomic import disk_errors, write_atomically
from tdd.runs.folder import plain, to_json
from tdd.validate import InputError

__all__ = ["number_or_words", "run_reproduction", "tables_as_markdown"]


def run_reproduction(name: str, options: Options) -> Outcome:
    """Run a reproduction, or continue it, and write what it gives into `options.folder`.

    Files: `run.json` (which reproduction, seed and scale the folder belongs to, written first), `cells/` (finished
    cells, from which an interrupted run goes on), `results.csv` (the long table), `tables.md`, `figure.png` (and
    others, `figure-*.png`, of some), `results.json` (rows, tables, seconds, provenance; written last). `results.csv`
    and `tables.md` are the same bytes whether or not the run was interrupted.

    Args:
      name: One of `benchmarks.reproductions.REPRODUCTIONS`.
      options: Folder (not None), seed, scale, progress.

    Raises:
      InputError: An unknown name, or a folder of another reproduction, seed or scale.
    """
    reproduction = load(name)
    if options.folder is None:
        raise InputError("folder is None; run_reproduction writes its results into a folder, name one")
    _open(options.folder, {"reproduction": name, "seed": options.seed, "scale": options.scale})
    outcome = reproduction.run(options)
    write_atomically(options.folder / "results.csv", _csv(outcome.rows))
    write_atomically(options.folder / "tables.md", tables_as_markdown(outcome.tables).encode())
    _draw(name, outcome, options.folder)
    write_atomically(options.folder / "results.json", to_json(outcome).encode())
    return outcome


def tables_as_markdown(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The tables for people, each below its title; numbers with four digits."""
    parts = []
    for title, rows in tables.items():
        header = list(rows[0]) if rows else []
        body = [[number_or_words(row[column]) for column in header] for row in rows]
        parts.append(f"{title}\n\n{markdown_table(header, body)}\n")
    return "\n".join(parts)


def _open(folder: pathlib.Path, identity: Mapping[str, Any]) -> None:
    """Make the folder this run's own, or find that it is."""
    place = folder / "run.json"
    check_out(folder)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        if any(folder.iterdir()):
            raise InputError(f"{folder} is not empty and holds no reproduction; choose another folder")
        write_atomically(place, to_json(identity).encode())
        return
    try:
        there = json.loads(place.read_text("utf-8"))
    except ValueError as error:
        raise InputError(f"{place} is damaged ({error}); choose another folder") from error
    names = [name for name, value in plain(identity).items() if not isinstance(there, dict) or there.get(name) != value]
    if names:
        values = there if isinstance(there, dict) else {}
        shown = ", ".join(f"{name} {values.get(name)!r} there, {identity[name]!r} now" for name in names)
        raise InputError(f"{folder} holds another run ({shown}); choose another folder, or delete this one")


def _draw(name: str, outcome: Outcome, folder: pathlib.Path) -> None:
    """Draw `figure.png`, or each of several figures as `<its name>.png`."""
    from tdd.report.plots import sheet

    drawn = importlib.import_module(f"benchmarks.reproductions.figures.{name.replace('-', '_')}").draw(outcome)
    for stem, each in (drawn if isinstance(drawn, Mapping) else {"figure": drawn}).items():
        sheet.save(each, folder / f"{stem}.png")


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The long table; floats in full precision, missing values empty."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({column: "" if value is None else value for column, value in plain(row).items()} for row in rows)
    return text.getvalue().encode()


def number_or_words(value: Any) -> str:
    """A cell for people: floats with four digits, missing values as a dash."""
    value = plain(value)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
