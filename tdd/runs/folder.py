"""The folder that an audit leaves behind: inputs.json, run.json, items.csv, calibration.csv; and a result in memory.

`inputs.json` is written first and names what the run is of, so that an interrupted run can only be continued by the
same run; it alone holds paths of this machine. `run.json` holds everything that the report says; it appears last,
whole, and marks the run as finished.
"""

from __future__ import annotations

import contextlib
import contextvars
import csv
import dataclasses
import datetime
import functools
import hashlib
import io
import json
import logging
import math
import os
import pathlib
import platform
import secrets
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from importlib import metadata
from typing import Any

import msgspec
import numpy as np

from tdd.runs import plain_csv
from tdd.runs.atomic import atomic_path, check_name, disk_errors, read_regular, write_atomically
from tdd.runs.display import Displayed, report_module
from tdd.runs.plain_csv import coded_words
from tdd.runs.portable import command_of, typed_words
from tdd.validate import InputError
from tdd.validate.files import parse_json

SCHEMA = 2
RECORDS = {"run.json": "a run", "study.json": "a study", "power.json": "a power plan"}
"""File -> what a folder with it holds; one of them."""

_WRITTEN_TOGETHER = 2**13
_findings = logging.getLogger("tdd.findings")
_opened: contextvars.ContextVar[tuple[tuple[pathlib.Path, str], ...]] = contextvars.ContextVar("opened", default=())
"""Folders, and the identity of the run that was opened there, in this process and thread, in this order."""

_ITEM_COLUMNS = ("id", "p_value", "adjusted", "selected")
_DECISION = ("run the audit again", ("verdict", "decision", "checks", "inputs", "model"))
_OWNER = ("run the test again", ("verdict", "options", "inputs", "model", "result", "guarantee", "checks"))
_PARTS = {
    "audit": _DECISION,
    "select": _DECISION,
    "exchange": ("run the test again", ("data", "selection", "options", "control", "model")),
    "versions": _OWNER,
    "dataset": _OWNER,
    "paraphrase": ("paraphrase again into another folder", ("options", "inputs", "paraphraser", "result")),
    "probe": ("save the probe again", ("name", "options", "inputs", "alarm", "first_alarm", "guarantees", "looks")),
}
"""Kind of run -> how to get another, and the parts of its run.json beside sentences."""
NO_VERDICT = "Whether any candidate was trained on: no verdict is given."
WITHDRAWN = {"ktd/closed": "its false discovery rate can exceed the level (.17 at level .1 in a simulation)"}
"""Procedures that folders of earlier versions may hold and that have lost their guarantee -> the reason."""
_PACKAGES = ("tdd", "jax", "jaxlib", "flax", "numpy", "transformers", "tokenizers", "scikit-learn")


@dataclasses.dataclass(frozen=True, repr=False)
class Audit(Displayed):
    """A finished run.

    Attributes:
      run: what `run.json` holds: provenance, decision, checks, warnings; plain values.
      items: column name -> [m] values, one row a candidate: id, scores, p_value, adjusted, selected, label.
      calibration: column name -> [n] values, one row a calibration item: id, scores.
    """

    run: Mapping[str, Any]
    items: Mapping[str, np.ndarray]
    calibration: Mapping[str, np.ndarray]

    @property
    def selected_ids(self) -> tuple[str, ...]:
        """Identifiers of the selected candidates, in input order."""
        return tuple(str(name) for name in np.asarray(self.items["id"])[self.items["selected"]])

    @property
    def verdict_stands(self) -> bool:
        """Whether no check speaks against the assumptions; where one does, `run["verdict"]["failed"]` says why."""
        return not self.run["verdict"]["failed"]

    def save(self, folder: pathlib.Path) -> None:
        """Write calibration.csv, items.csv and run.json, then report.html."""
        write_run(folder, self.run, {"calibration.csv": to_csv(self.calibration), "items.csv": to_csv(self.items)})
        self.write_page(folder)

    def report(self) -> Any:  # noqa: D102
        return report_module("audit").audit_report(self.run, self.items, self.calibration)

    def _rows(self) -> dict[str, Any]:
        return dict(self.items)


def run_head(kind: str, seed: int, **more: Any) -> dict[str, Any]:
    """The fields that every run.json begins with; the command line that was typed, if there is one, without folders."""
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    typed = {"command": command_of(words)} if (words := typed_words()) else {}
    return {"schema": SCHEMA, "kind": kind, **typed, **more, "created": created, "versions": versions(), "seed": seed}


def log_findings(sentences: Iterable[str]) -> None:
    """Log warnings about the data; a program that prints the report turns this logger off."""
    for sentence in sentences:
        _findings.warning("%s", sentence)


def write_run(folder: pathlib.Path, run: Mapping[str, Any], tables: Mapping[str, Iterable[bytes]]) -> None:
    """Write tables, given in parts, then run.json with their SHA-256 and its own, each file whole or not at all.

    Raises:
      InputError: another run took the folder since `open_run_folder`, or it cannot be written.
    """
    _check_still_ours(folder)
    files = {}
    for name, parts in tables.items():
        digest = hashlib.sha256()
        with atomic_path(folder / name) as temporary, open(temporary, "wb") as file:
            for part in parts:
                file.write(part)
                digest.update(part)
        files[name] = digest.hexdigest()
    write_sealed(folder / "run.json", {**run, "files": files})


def write_sealed(place: pathlib.Path, record: Mapping[str, Any]) -> None:
    """Write a record with the SHA-256 of its content.

    Raises:
      InputError: the folder holds a record of another kind, or cannot be written.
    """
    for name, kind in RECORDS.items():
        if name != place.name and place.with_name(name).exists():
            raise InputError(f"{place.parent} holds {kind}; name another folder")
    write_atomically(place, to_json({**record, "sha256": fingerprint(plain(record))}).encode())


def read_sealed(place: pathlib.Path, schema: int, again: str) -> dict[str, Any]:
    """Read a record that `write_sealed` wrote; `again` says how to get another.

    Raises:
      InputError: no JSON, another schema, or content that does not fit its SHA-256.
    """
    try:
        record = parse_json(read_regular(place).decode())
    except (OSError, ValueError) as error:
        raise InputError(f"{place} cannot be read as JSON: {error}") from error
    found = record.get("schema") if isinstance(record, dict) else None
    if found != schema:
        raise InputError(f"{place} has schema {found!r}, this version reads {schema}")
    if "sha256" not in record:
        raise InputError(f"{place} has no SHA-256 of its content, so that it cannot be trusted; {again}")
    if record.pop("sha256") != fingerprint(record):
        raise InputError(f"{place} is damaged or was edited: its content does not fit its SHA-256; {again}")
    return record


def drawn_seed(folder: str | os.PathLike[str] | None) -> int:
    """A seed from the operating system; in a folder that holds a run whose seed was drawn, that one again."""
    held: Any = None
    if folder is not None:
        with contextlib.suppress(OSError, ValueError):
            held = json.loads(read_regular(pathlib.Path(folder, "inputs.json")))
    seed = held.get("drawn_seed") if isinstance(held, dict) and _is_whole(held) else None
    return seed if isinstance(seed, int) and not isinstance(seed, bool) else secrets.randbelow(2**32)


def open_run_folder(folder: pathlib.Path, identity: str, summary: str, drawn: int | None = None) -> None:
    """Create the folder, or accept one that is empty or holds the same run; `drawn` is a seed to be kept for it.

    Raises:
      InputError: it holds something else, or cannot be written.
    """
    check_name(folder)
    marker = folder / "inputs.json"
    if folder.exists() and not folder.is_dir():
        raise InputError(f"output {folder} is a file; give a folder")
    no_result = (marker, folder / "shards")
    entries = folder.iterdir() if folder.exists() else ()
    holds = [path for path in entries if not path.name.startswith(".") and path not in no_result]
    if marker.exists():
        _check_marker(marker, identity, started=bool(holds))
    elif holds:
        raise InputError(f"output folder {folder} is not empty and holds no run; give a new or an empty folder")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    kept: dict[str, Any] = {} if drawn is None else {"drawn_seed": drawn}
    if words := typed_words():
        kept["command"] = shlex.join(words)
    record = {"fingerprint": identity, "summary": summary, **kept}
    write_atomically(marker, to_json({**record, "sha256": fingerprint(record)}).encode())
    others = (pair for pair in _opened.get() if pair[0] != folder.resolve())
    _opened.set((*others, (folder.resolve(), identity)))


def read_run(folder: pathlib.Path) -> dict[str, Any]:
    """The content of a finished run's run.json.

    Raises:
      InputError: no finished run there, one of another schema, or one whose content does not fit its SHA-256.
    """
    place = folder / "run.json" if folder.is_dir() else folder
    if not place.is_file():
        begun = (folder / "inputs.json").exists()
        state = "an unfinished run; run the same command again, without --shard" if begun else "no run"
        raise InputError(f"{folder} holds {state}")
    run = read_sealed(place, SCHEMA, "make the run again")
    _check_parts(run, place)
    return run


def as_it_stands(run: dict[str, Any], place: pathlib.Path) -> dict[str, Any]:
    """The record of an audit; without a verdict where its procedure has lost its guarantee since.

    Raises:
      InputError: a decision or a verdict that is incomplete.
    """
    decision, verdict = run["decision"], run["verdict"]
    whole = isinstance(decision, dict) and isinstance(verdict, dict) and isinstance(verdict.get("failed"), list)
    if not (whole and isinstance(decision.get("method"), str) and isinstance(decision.get("guarantee"), dict)):
        raise InputError(f"{place} is damaged: its decision or its verdict is incomplete; {_DECISION[0]}")
    if (method := decision["method"]) not in WITHDRAWN:
        return run
    reason = f"the procedure {method} was withdrawn, because {WITHDRAWN[method]}"
    outcome = (
        f"No verdict: {reason}. What it selected is in items.csv; its error rate is unknown, so it is not a result."
    )
    guarantee = {**decision["guarantee"], "kind": "none", "controls": "nothing: the procedure was withdrawn"}
    verdict = {**run["verdict"], "stands": False, "failed": [reason, *run["verdict"]["failed"]]}
    told = {"outcome": outcome, "verdict": verdict, "decision": {**decision, "guarantee": guarantee}}
    # the first point tells what the level means
    return {**run, **told, "open_points": [NO_VERDICT, *run["open_points"][1:]]}


def read_table(folder: pathlib.Path, name: str, run: Mapping[str, Any] | None = None) -> tuple[list, list[list[str]]]:
    """Header and rows of a table of a finished run, checked against the SHA-256 in its run.json if that is given.

    Raises:
      InputError: no such table, one that was damaged or edited, or one of another run.
    """
    data = read_file(folder / name, run)
    try:
        header, *rows = [*csv.reader(plain_csv.lines(data.decode("utf-8")))] or [[]]
    except (ValueError, csv.Error) as error:
        raise InputError(f"{folder / name} cannot be read: {error}; make the run again") from error
    return header, rows


def read_columns(
    folder: pathlib.Path,
    name: str,
    run: Mapping[str, Any] | None,
    needed: Sequence[str],
    again: str,
    type_of: Callable[[str], Callable[[str], Any]] = lambda column: str,
) -> dict[str, list[Any]]:
    """The columns of a table of a finished run, `type_of(column)` of each cell; `again` says how to get another.

    Raises:
      InputError: as `read_table`; a missing column that is `needed`, rows of different lengths, a cell of another type.
    """
    header, rows = read_table(folder, name, run)
    _check_columns(folder / name, needed, header, rows, again)
    try:
        return {column: [*map(type_of(column), [row[i] for row in rows])] for i, column in enumerate(header)}
    except ValueError as error:
        raise InputError(f"{folder / name} is damaged: {error}; {again}") from error


def as_number(cell: str) -> float:
    """The number in a cell, NaN where it is empty."""
    return float(cell or "nan")


def check_files(folder: pathlib.Path, record: Mapping[str, Any]) -> None:
    """Check the files of a finished run against the SHA-256 in its record, also those that nobody is shown.

    Raises:
      InputError: as `read_file`.
    """
    for name in record["files"]:
        read_file(folder / name, record)


def read_file(place: pathlib.Path, run: Mapping[str, Any] | None) -> bytes:
    """The content of a file of a finished run, checked against the SHA-256 in its run.json if that is given.

    Raises:
      InputError: no such file, or one that was damaged or edited.
    """
    try:
        data = read_regular(place)
    except OSError as error:
        raise InputError(f"{place} cannot be read: {error}; make the run again") from error
    if run is not None and run["files"].get(place.name) != hashlib.sha256(data).hexdigest():
        record = "study.json" if run.get("kind") == "study" else "run.json"
        raise InputError(
            f"{place} is damaged or was edited: it does not fit the SHA-256 in {record}; make the run again"
        )
    return data


def read_items(folder: pathlib.Path, run: Mapping[str, Any] | None = None) -> dict[str, Sequence[Any]] | None:
    """The per-item table of a finished run as strings, `selected` as bool; None if it has none; see `read_table`."""
    place = folder / "items.csv"
    there = place.is_file()
    if not there and (run is None or place.name not in run["files"]):
        return None
    columns: dict[str, Sequence[Any]] = {}
    if there and place.stat().st_size >= plain_csv.LARGE:
        columns.update(plain_csv.read_plain_csv(read_file(place, run)) or {})
    if columns:
        _check_columns(place, _ITEM_COLUMNS, [*columns], (), _DECISION[0])
    else:
        columns.update(read_columns(folder, "items.csv", run, _ITEM_COLUMNS, _DECISION[0]))
    words, codes = coded_words(columns["selected"], lambda word: word == "1")
    return {**columns, "selected": np.array(words, bool)[codes].tolist()}


def fingerprint(value: Any) -> str:
    """SHA-256 of plain values, independent of the order of keys; infinities and NaN differ from one another."""
    return hashlib.sha256(
        json.dumps(plain(value, unknown=lambda number: {"float": repr(number)}), sort_keys=True).encode()
    ).hexdigest()


def to_json(value: Any) -> str:
    """Readable JSON; NaN becomes null."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that can change a number."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "unknown"
    return found


def plain(value: Any, *, unknown: Callable[[float], Any] = lambda number: None) -> Any:
    """Records, arrays and NumPy numbers as JSON's own types; NaN and infinities as `unknown` gives them.

    Functions are described by their names and code, which are the same in every process.
    """
    convert = functools.partial(plain, unknown=unknown)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: convert(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): convert(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [convert(item) for item in value]
    if isinstance(value, (set, frozenset)):  # their order differs from one process to another
        return [convert(item) for item in sorted(value, key=repr)]
    if isinstance(value, np.ndarray):
        return [convert(item) for item in value.tolist()]
    if isinstance(value, np.generic):
        return convert(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else unknown(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (Fraction, Decimal)):
        return convert(float(value))
    if not callable(value):
        return str(value)
    from tdd.runs.described import described

    return described(value)


def to_csv(columns: Mapping[str, np.ndarray], *, line_end: str = "\r\n") -> Iterator[bytes]:
    """A table in parts: floats in full precision, missing numbers empty, identifiers as they were given."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=line_end)
    writer.writerow(columns)
    arrays = [np.asarray(column) for column in columns.values()]
    num_rows = max(map(len, arrays), default=0)
    for start in range(0, max(num_rows, 1), _WRITTEN_TOGETHER):
        cells = [_cells(array[start : start + _WRITTEN_TOGETHER]) for array in arrays]
        rows = _plain_rows(cells, line_end)
        if rows is None:
            writer.writerows(zip(*cells, strict=True))
        else:
            text.write(rows)
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()


def _plain_rows(cells: Sequence[list[Any]], line_end: str) -> str | None:
    """The rows of two or more columns; None where a cell is no string, needs quotation marks or is missing."""
    num_columns, num_rows = len(cells), len(cells[0]) if cells else 0
    if num_columns < 2 or any(len(column) != num_rows for column in cells):
        return None
    pieces: list[Any] = [","] * (2 * num_columns * num_rows)
    for index, column in enumerate(cells):
        pieces[2 * index :: 2 * num_columns] = column
    pieces[2 * num_columns - 1 :: 2 * num_columns] = [line_end] * num_rows
    try:
        rows = "".join(pieces)
    except TypeError:
        return None
    expected = {",": (num_columns - 1) * num_rows, '"': 0} | {end: line_end.count(end) * num_rows for end in "\r\n"}
    return rows if all(rows.count(character) == count for character, count in expected.items()) else None


def _cells(values: np.ndarray) -> list[Any]:
    """Cells of a column for `csv.writer`."""
    if values.dtype == np.bool_:
        return np.where(values, "1", "0").tolist()
    if values.dtype == object:
        cells = values.tolist()
        if set(map(type, cells)) == {str}:
            return cells
        return ["" if x != x else int(x) if isinstance(x, (bool, np.bool_)) else x for x in cells]
    if values.dtype == np.float64:
        return _shortest(values)
    if np.issubdtype(values.dtype, np.floating):  # by their bits: 0 and -0 differ
        distinct, place = np.unique(values.view(f"u{values.itemsize}"), return_inverse=True)
        words = ["" if x != x else str(x) for x in distinct.view(values.dtype)]
        return list(map(words.__getitem__, place.tolist()))
    if np.issubdtype(values.dtype, np.integer):
        return list(map(str, values.tolist()))
    return values.tolist()


def _shortest(values: np.ndarray) -> list[str]:
    """`repr` of each float, empty where it is NaN; msgspec writes those without an exponent alike, in less time."""
    if not values.size:
        return []
    words = msgspec.json.encode(values.tolist())[1:-1].decode().split(",")
    magnitude = np.abs(values)
    for index in np.flatnonzero(~((magnitude >= 1e-4) & (magnitude < 1e16)) & (magnitude != 0)).tolist():
        value = float(values[index])
        words[index] = "" if value != value else repr(value)
    return words


def _check_marker(marker: pathlib.Path, identity: str, *, started: bool) -> None:
    """A folder with inputs.json holds the same run, or one that has computed nothing yet, which may be replaced."""
    try:
        held: Any = json.loads(read_regular(marker))
    except (OSError, ValueError) as error:
        raise InputError(f"{marker} cannot be read ({error}); give another output folder") from error
    if not isinstance(held, dict):
        raise InputError(f"{marker} does not describe a run; give another output folder")
    if started and not _is_whole(held):
        raise InputError(
            f"{marker} is damaged or was edited: its content does not fit its SHA-256; give another output folder"
        )
    if started and held.get("fingerprint") != identity:
        made = f", by the command {held['command'][:200]}" if isinstance(held.get("command"), str) else ""
        raise InputError(
            f"output folder {marker.parent} holds a run of other inputs or options "
            f"({held.get('summary', 'unknown')}{made}); give another folder, or remove this one"
        )


def _is_whole(held: Mapping[str, Any]) -> bool:
    """Whether inputs.json fits its SHA-256, where it has one."""
    return held.get("sha256") in (None, fingerprint({name: held[name] for name in held if name != "sha256"}))


def _check_still_ours(folder: pathlib.Path) -> None:
    """A folder that was opened here for a run has not been taken by another one, which began at about that time."""
    identity = dict(_opened.get()).get(folder.resolve())
    if identity is not None and (folder / "inputs.json").exists():
        _check_marker(folder / "inputs.json", identity, started=True)


def _check_parts(run: Mapping[str, Any], place: pathlib.Path) -> None:
    """Check that a report can be made of a run.json."""
    kind = run.get("kind")
    if not isinstance(kind, str) or kind not in _PARTS:
        raise InputError(f"{place} is a run of kind {kind!r}; this version reads {', '.join(_PARTS)}")
    again, parts = _PARTS[kind]
    missing = [name for name in ("outcome", *parts, "warnings", "open_points") if name not in run]
    if missing:
        raise InputError(f"{place} is damaged: it lacks {', '.join(missing)}; {again}")


def _check_columns(
    place: pathlib.Path, needed: Sequence[str], header: Sequence[str], rows: Sequence[Sequence[str]], again: str
) -> None:
    missing = [name for name in needed if name not in header]
    if missing or any(len(row) != len(header) for row in rows):
        what = f"lacks the columns {', '.join(missing)}" if missing else "has rows of different lengths"
        raise InputError(f"{place} is damaged: it {what}; {again}")
