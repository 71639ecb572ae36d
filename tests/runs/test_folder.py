"""Tables of a run: written in parts, read by Arrow where they are large."""

import concurrent.futures
import csv
import io
import json
import math
import os
import pathlib
import shutil
import threading

import numpy as np
import pytest
from child_process import run_python
from rich.console import Console

from tdd.audit.select import select
from tdd.report import folder_report
from tdd.report.audit import audit_report
from tdd.report.sections import to_terminal
from tdd.runs import folder as run_folder
from tdd.runs import plain_csv
from tdd.runs.atomic import check_output_file, read_regular, write_atomically
from tdd.runs.folder import (
    drawn_seed,
    fingerprint,
    open_run_folder,
    read_items,
    read_run,
    read_table,
    to_csv,
    write_run,
    write_sealed,
)
from tdd.scoring.store import ScoreStore
from tdd.validate import InputError

COLUMNS = {
    "id": np.array(["a", 'say "b"', "c,d", "e\nf", "é"], dtype=object),
    "loss": np.array([0.1, float("nan"), -0.0, 1e-7, 12345678901234567890.0]),
    "p_value": np.array([1 / 3, 1e-5, np.nan, 1.0, 2e7], np.float32),
    "selected": np.array([True, False, True, False, False]),
    "label": np.array([1, 0, -1, 1, 0]),
}


def cell_by_cell(columns):
    """The table as csv writes it, one value after the other."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        cells = [
            int(value) if isinstance(value, np.bool_) else "" if isinstance(value, np.floating) and np.isnan(value)
            else repr(float(value)) if isinstance(value, np.float64) else str(value)
            for value in row
        ]  # fmt: skip
        writer.writerow(cells)
    return text.getvalue().encode()


@pytest.mark.parametrize("together", [1, 2, 5, 100])
def test_a_table_in_parts_is_the_table(monkeypatch, together):
    monkeypatch.setattr(run_folder, "_WRITTEN_TOGETHER", together)
    for rows in (0, 4, 5):
        columns = {name: values[:rows] for name, values in COLUMNS.items()}
        parts = [*to_csv(columns)]
        assert b"".join(parts) == cell_by_cell(columns)
        assert len(parts) == max(1, math.ceil(rows / together))
    with pytest.raises(ValueError, match="shorter"):
        [*to_csv({**COLUMNS, "label": COLUMNS["label"][:-1]})]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    place = tmp_path_factory.mktemp("select") / "run"
    rng = np.random.default_rng(0)
    loss = np.concatenate([rng.normal(size=60), rng.normal(-3, 1, 40), [np.nan]])
    roles = ["calibration"] * 60 + ["candidate"] * 41
    ids = [f"item, {i}" for i in range(101)]
    select({"id": ids, "role": roles, "loss": loss}, alpha=0.2, out=place)
    return place


@pytest.fixture
def folder(finished, tmp_path):
    return pathlib.Path(shutil.copytree(finished, tmp_path / "run"))


def printed(run, items):
    text = io.StringIO()
    Console(file=text, width=120, highlight=False).print(to_terminal(audit_report(run, items)))
    return text.getvalue()


def test_items_are_read_alike_at_any_size(folder, monkeypatch):
    run = read_run(folder)
    small = read_items(folder, run)
    monkeypatch.setattr(plain_csv, "LARGE", 0)
    monkeypatch.setattr(run_folder, "read_table", None)  # not asked
    large = read_items(folder, run)
    assert {name: [*values] for name, values in large.items()} == small
    assert sum(large["selected"]) == run["decision"]["num_selected"] > 10
    assert printed(run, large) == printed(run, small)


@pytest.mark.slow("long")
def test_the_most_extreme_items_are_listed_in_order(folder):
    run = read_run(folder)
    items = read_items(folder, run)
    shown = [line.split("│")[1].strip() for line in printed(run, items).splitlines() if line.startswith("│ item, ")]
    chosen = [i for i, selected in enumerate(items["selected"]) if selected]
    order = sorted(chosen, key=lambda i: [float(items[name][i]) for name in ("adjusted", "p_value", "loss")])
    assert shown == [items["id"][i] for i in order[:10]]


@pytest.mark.parametrize("large", [0, 2**20])
def test_an_edited_table_is_refused_at_any_size(folder, monkeypatch, large):
    monkeypatch.setattr(plain_csv, "LARGE", large)
    place = folder / "items.csv"
    place.write_bytes(place.read_bytes().replace(b",1\r\n", b",0\r\n", 1))
    with pytest.raises(InputError, match="damaged or was edited"):
        read_items(folder, read_run(folder))
    place.write_bytes(b"id,p_value,selected\r\n" + b"a,0.5,1\r\n" * 9)
    with pytest.raises(InputError, match="lacks the columns adjusted"):
        read_items(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"decision": None}, {"decision": []}, {"method": ["ktd/closed"]}, {"method": None}, {"guarantee": "FDR"},
        {"verdict": None}, {"verdict": {"stands": True}}, {"verdict": {"stands": True, "failed": None}},
    ],
    ids=str,
)  # fmt: skip
def test_a_decision_that_is_incomplete_is_damaged(folder, change):
    run = read_run(folder)
    if not {"decision", "verdict"} & change.keys():
        change = {"decision": {**run["decision"], "method": "ktd/closed", **change}}
    write_sealed(folder / "run.json", {**run, **change})
    with pytest.raises(InputError, match="is damaged: its decision or its verdict is incomplete; run the audit again"):
        folder_report(folder)


_CHILD = """
import json, pathlib, sys
import pyarrow.compute, pyarrow.csv  # for the small table too, which needs neither
import tdd.cli
from tdd.audit import assemble
from tdd.audit.decide import SimultaneousBounds
assemble.simultaneous_bounds = lambda panels, choices, decision: SimultaneousBounds(
    False, "not measured", choices.delta
)
assert tdd.cli.main(sys.argv[1:]) == 0
status = pathlib.Path("/proc/self/status").read_text()
print(json.dumps(int(status.split("VmHWM:")[1].split()[0]) // 1024))
"""


@pytest.mark.slow("processes")
def test_memory_of_a_large_table(tmp_path):
    """Peak MB of 3 * 10^5 rows above that of 2,000 rows, Arrow being imported in both.

    Arithmetic, of a row: id 64 + 8 bytes, role, score, label 8 each, its text in Arrow 50, what JAX ranks and sorts 80:
    230 bytes or 70 MB in all. A list of strings a row, as csv reads it, is 300 bytes more. Of a row of items.csv, which
    half of the rows have: its text twice, 160 bytes, and what is listed of it; 40 MB in all.
    """
    peak = {}
    for rows in (2_000, 300_000):
        rng = np.random.default_rng(0)
        role = np.where(rng.random(rows) < 0.5, "calibration", "candidate")
        loss = rng.normal(size=rows) - 3 * (rng.random(rows) < 0.2) * (role == "candidate")
        table = tmp_path / f"{rows}.csv"
        table.write_text("id,role,loss\n" + "".join(f"item-{i},{role[i]},{loss[i]}\n" for i in range(rows)))
        out = tmp_path / str(rows)
        peak[rows] = [run_python(_CHILD, "select", table, "--out", out), run_python(_CHILD, "report", out)]
        assert json.loads((out / "run.json").read_text())["decision"]["num_selected"] > 10
    assert peak[300_000][0] - peak[2_000][0] < 120
    assert peak[300_000][1] - peak[2_000][1] < 80


def test_cells_of_mixed_columns():
    mixed = np.array([True, math.nan, "word", 3, False, 0.25], dtype=object)
    assert b"".join(to_csv({"mixed": mixed})) == b'mixed\r\n1\r\n""\r\nword\r\n3\r\n0\r\n0.25\r\n'


def test_every_float_is_written_as_python_writes_it():
    """Half of the floats have random bits; the others are of the size of scores, where the words come from msgspec."""
    bits = np.random.default_rng(0).integers(0, 2**64, 200_000, dtype=np.uint64)
    exponents = np.random.default_rng(1).integers(1_000, 1_080, 100_000).astype(np.uint64) << np.uint64(52)
    bits[::2] = (bits[::2] & np.uint64(0x800F_FFFF_FFFF_FFFF)) | exponents
    ends = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-4, 9.999e-5, 1e16, 9999999999999998.0, 5e-324, 1.0, 1e15]
    values = np.concatenate([bits.view(np.float64), ends])
    assert run_folder._cells(values) == ["" if value != value else repr(value) for value in values.tolist()]


def test_fingerprints_tell_all_values_apart():
    values = [None, math.nan, math.inf, -math.inf, 0.0, "inf", math.isqrt, len, lambda: 1, lambda: 2, {"a", "b", "c"}]
    found = [fingerprint({"option": value}) for value in values]
    assert len({*found}) == len(values)
    orders = [["a", "b", "c"], ["c", "a", "b"]]
    assert {fingerprint({"option": dict.fromkeys(order).keys() | set()}) for order in orders} == {found[-1]}


def test_a_record_with_missing_numbers_is_read_as_it_was_written(tmp_path):
    run_folder.write_sealed(tmp_path / "study.json", {"schema": 1, "numbers": [1.0, math.nan, math.inf]})
    assert run_folder.read_sealed(tmp_path / "study.json", 1, "again")["numbers"] == [1.0, None, None]


def test_a_name_with_nul_is_refused_in_one_line(tmp_path):
    table = {"role": ["calibration"] * 9 + ["candidate"], "loss": [*range(10)]}
    odd = f"{tmp_path}/a\0b"
    with pytest.raises(InputError, match=r"a\\x00b' holds a NUL character"):
        select(table, alpha=0.2, out=odd)
    with pytest.raises(InputError, match="holds a NUL character"):
        check_output_file(pathlib.Path(f"{odd}.csv"), (".csv",))
    with pytest.raises(InputError, match="holds a NUL character"):
        write_atomically(odd, b"")
    with pytest.raises(InputError, match="holds a NUL character"):
        ScoreStore(odd)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", ["inputs.json", "run.json", "items.csv"])
@pytest.mark.parametrize("target", ["pipe", "/dev/zero"])
def test_what_has_no_end_is_no_file_of_a_run(tmp_path, target, name):
    """Reading it would wait for ever, or fill the memory; a link to a file is read."""
    if target == "pipe":
        os.mkfifo(tmp_path / target)
    place = tmp_path / "run" / name
    place.parent.mkdir()
    place.symlink_to(tmp_path / target)
    with pytest.raises(OSError, match="no regular file"):
        read_regular(place)
    if name == "inputs.json":
        assert 0 <= drawn_seed(place.parent) < 2**32
    with pytest.raises(InputError, match=r"no regular file|not empty"):
        read_table(place.parent, name) if name == "items.csv" else open_run_folder(place.parent, "a", "b")
    (tmp_path / "file").write_bytes(b"{}")
    place.unlink()
    place.symlink_to(tmp_path / "file")
    assert read_regular(place) == b"{}"


def test_of_two_runs_that_take_a_folder_at_once_one_is_refused(tmp_path):
    """Neither has computed anything when both begin; the later one has the folder."""
    place = tmp_path / "run"
    open_run_folder(place, "one", "the first")
    write_atomically(place / "inputs.json", b'{"fingerprint": "other", "summary": "the second"}')  # by another process
    with pytest.raises(InputError, match=r"holds a run of other inputs or options \(the second\); give another folder"):
        write_run(place, {"kind": "audit"}, {"items.csv": [b"id\n"]})
    assert [path.name for path in place.iterdir()] == ["inputs.json"]
    open_run_folder(place, "other", "the second")
    write_run(place, {"kind": "audit"}, {"items.csv": [b"id\n"]})
    assert (place / "run.json").is_file()


def test_of_two_threads_that_take_a_folder_at_once_one_is_refused(tmp_path):
    """The run that inputs.json names is the one that is there."""
    place, both = tmp_path / "run", threading.Barrier(2)

    def work(identity):
        open_run_folder(place, identity, f"run {identity}")
        both.wait()
        try:
            write_run(place, {"kind": "audit", "of": identity}, {"items.csv": [identity.encode()]})
        except InputError as error:
            return str(error)
        return identity

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = [*pool.map(work, ("one", "two"))]
    held = json.loads((place / "inputs.json").read_text())["fingerprint"]
    (line,) = (one for one in found if one != held)
    assert held in found
    assert f"holds a run of other inputs or options (run {held}); give another folder" in line
    assert (place / "items.csv").read_text() == json.loads((place / "run.json").read_text())["of"] == held


def refusal(place):
    """The line that refuses to continue a run, or nothing."""
    try:
        open_run_folder(place, "one", "a run", drawn_seed(place))
    except InputError as error:
        return str(error)
    return ""


def test_every_bit_of_inputs_json_counts(tmp_path):
    """A run is continued under the seed that was drawn for it, or one line names the file."""
    marker = tmp_path / "inputs.json"
    open_run_folder(tmp_path, "one", "a run", 123456)
    (tmp_path / "scoring").mkdir()
    data = marker.read_bytes()
    for place in np.random.default_rng(0).integers(0, 8 * len(data), 300):
        broken = bytearray(data)
        broken[place // 8] ^= 1 << (place % 8)
        marker.write_bytes(broken)
        line = refusal(tmp_path)
        assert "\n" not in line
        assert str(marker) in line if line else json.loads(marker.read_bytes())["drawn_seed"] == 123456
    marker.write_bytes(data)
    assert drawn_seed(tmp_path) == 123456
    old = {name: value for name, value in json.loads(data).items() if name != "sha256"}  # of a run that is older
    marker.write_text(json.dumps(old))
    assert not refusal(tmp_path)
    assert marker.read_bytes() == data


@pytest.mark.parametrize("name", ["items.csv", "calibration.csv"])
def test_a_table_that_is_gone_is_named(tmp_path, name):
    select({"role": ["calibration"] * 30 + ["candidate"] * 9, "loss": [*range(39)]}, alpha=0.2, out=tmp_path)
    folder_report(tmp_path, pictures=True)
    (tmp_path / name).unlink()
    for pictures in (True, False):
        with pytest.raises(InputError, match=rf"{name} cannot be read: .*No such file"):
            folder_report(tmp_path, pictures=pictures)


@pytest.mark.parametrize("kind", ["select", "exchange", "versions", "dataset", "paraphrase", "probe"])
def test_a_table_of_any_run_is_checked_whatever_is_shown(tmp_path, kind):
    """Of an edited table no record is printed, though nothing of it is shown."""
    parts = {name: {} for name in run_folder._PARTS[kind][1]}
    run = {"schema": run_folder.SCHEMA, "kind": kind, "outcome": "", "warnings": [], "open_points": [], **parts}
    write_run(tmp_path, run, {"unseen.csv": [b"id\r\na\r\n"]})
    (tmp_path / "unseen.csv").write_text("id\r\nb\r\n")
    with pytest.raises(InputError, match=r"unseen.csv is damaged or was edited"):
        folder_report(tmp_path)
