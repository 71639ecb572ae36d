"""The folder of the score store: what was finished is there, whole and right, after any kill, damage or company."""

import errno
import json
import logging
import os
import pathlib
import shutil
import zlib

import numpy as np
import pytest
from failing_disk import FailingDisk, Killed
from hypothesis import given, settings
from hypothesis import strategies as st

import tdd
from tdd.audit.store import files, finished, space
from tdd.audit.store.shards import decode, decode_keys, encode
from tdd.audit.store.store import ScoreStore
from tdd.validate import InputError

ABOUT = {"model": "a", "kind": "test"}


def row(number, fields=1):
    """The row of a key: any number of columns, none too; NaN and infinity among them."""
    rng = np.random.default_rng(number)
    values = rng.normal(size=(fields, number % 5)).astype(np.float32)
    values[rng.random(values.shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
    return values


def key(number):
    return number.to_bytes(16, "big")


def fill(rows, numbers, fields=space.VALUE):
    return rows.append([key(i) for i in numbers], [row(i, len(fields)) for i in numbers], fields)


def opened(folder, about=ABOUT):
    return ScoreStore(folder).space(about)


def shards(folder):
    return sorted(folder.rglob("*.parquet"))


def test_a_space_keeps_what_it_was_given(tmp_path):
    with ScoreStore(tmp_path / "a" / "store") as store:
        rows = store.space(ABOUT)
        fill(rows, range(7))
        fill(rows, range(3, 12))
        assert not shards(tmp_path)
        assert len(rows) == 12
        np.testing.assert_array_equal(rows.read(key(4)), row(4))
    rows = opened(tmp_path / "a" / "store")
    assert len(rows) == 12
    assert key(11) in rows
    assert key(12) not in rows
    for i in range(12):
        np.testing.assert_array_equal(rows.read(key(i)), row(i))
    with pytest.raises(KeyError):
        rows.read(key(12))
    assert len(opened(tmp_path / "a" / "store", ABOUT | {"model": "b"})) == 0


def test_fields_come_together_from_several_shards_and_the_first_stays(tmp_path):
    rows = opened(tmp_path)
    first, second = np.full((2, 3), 1, np.float32), np.full((2, 3), 2, np.float32)
    rows.append([b"x"], [first], ("a", "b"))
    assert not rows.has(b"x", ("b", "c"))
    (kept,) = rows.append([b"x"], [second], ("b", "c"))
    np.testing.assert_array_equal(kept, [[1] * 3, [2] * 3])
    for found in (rows, (rows.flush(), opened(tmp_path))[1]):
        np.testing.assert_array_equal(found.read(b"x", ("c", "a", "b")), [[2] * 3, [1] * 3, [1] * 3])


@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_what_came_first_counts_whoever_opens_the_store(tmp_path, seed, lines):
    """Names of writers are random: the order in which shards are read must not be."""
    for number, fields in enumerate((("a",), ("a", "b"), ("b", "c"), ("a", "c"))):
        rows = opened(tmp_path)
        rows.append([b"x"], [np.full((len(fields), 2), number, np.float32)], fields)
        rows.flush()
        if not lines and number % 2 == 0:
            (tmp_path / rows.folder.name / "manifest" / f"{rows._writer}.jsonl").unlink()  # killed before the line
    for found in (rows, opened(tmp_path)):
        assert found.read(b"x", ("a", "b", "c"))[:, 0].tolist() == [0, 1, 2]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 1), st.lists(st.integers(0, 30), min_size=1, max_size=8, unique=True)),
            st.sampled_from(["flush", "reopen", "refresh"]),
        ),
        max_size=20,
    )
)
def test_two_writers_and_any_order_of_calls(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("store")
    writers = [opened(folder), opened(folder)]
    for step in steps:
        if step == "reopen":
            writers[0].flush()
            writers[0] = opened(folder)
        elif step == "flush":
            writers[1].flush()
        elif step == "refresh":
            before = len(writers[0])
            assert before <= len(writers[0]) + writers[0].refresh()
        else:
            number, numbers = step
            fill(writers[number], numbers)
            assert all(key(i) in writers[number] for i in numbers)
    for one in writers:
        one.flush()
    asked = {i for step in steps if isinstance(step, tuple) for i in step[1]}
    found = opened(folder)
    assert {i for i in range(40) if key(i) in found} == asked
    for i in asked:
        np.testing.assert_array_equal(found.read(key(i)), row(i))


def test_what_other_writers_finish_is_taken_in(tmp_path):
    one, two = opened(tmp_path), opened(tmp_path)
    fill(one, range(5))
    assert two.refresh() == 0
    one.flush()
    assert two.refresh() == 5
    assert two.refresh() == 0
    fill(two, range(3, 8))
    two.flush()
    assert one.refresh() == 3
    for i in range(8):
        np.testing.assert_array_equal(one.read(key(i)), two.read(key(i)))


def test_a_shard_is_made_of_what_took_two_seconds_or_is_large(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(space.time, "monotonic", lambda: now[0])
    rows = opened(tmp_path)
    for second in range(5):
        now[0] = float(second)
        fill(rows, [second])
    assert len(shards(tmp_path)) == 1  # after 2 s; then 3 and 4 wait
    now[0] = 1000.0
    fill(rows, [8])
    now[0] = 1008.0
    fill(rows, [9])
    assert len(shards(tmp_path)) == 2
    monkeypatch.setattr(space, "_MOST_BYTES", 100)
    rows.append([key(20), key(21)], [np.zeros((1, 30), np.float32)] * 2)
    assert len(shards(tmp_path)) == 3
    assert decode_keys(shards(tmp_path)[2].read_bytes())[0][-2:] == [key(20), key(21)]  # a batch is never cut


def test_shards_are_plain_parquet(tmp_path):
    import pyarrow.parquet as pq

    rows = opened(tmp_path)
    fill(rows, range(4), ("log_prob", "mu"))
    rows.flush()
    (path,) = shards(tmp_path)
    table = pq.read_table(path)
    assert table.column_names == ["key", "log_prob", "mu"]
    assert table["key"].to_pylist() == [key(i) for i in range(4)]
    np.testing.assert_array_equal(table["mu"].to_pylist()[3], row(3, 2)[1])
    data = encode([b"k"], [row(3)], ["value"])
    assert data == encode([b"k"], [row(3)], ["value"])
    np.testing.assert_array_equal(decode(data).row(0, ["value"]), row(3))


DAMAGE = {
    "flip": lambda data: data[: len(data) // 3] + bytes([data[len(data) // 3] ^ 1]) + data[len(data) // 3 + 1 :],
    "flip the end": lambda data: data[:-9] + bytes([data[-9] ^ 4]) + data[-8:],
    "cut": lambda data: data[:-5],
    "append": lambda data: data + b"\0",
    "empty": lambda data: b"",
}


@pytest.mark.parametrize("damage", [*DAMAGE, "delete"])
def test_a_damaged_shard_is_reported_set_aside_and_filled_again(tmp_path, damage, caplog):
    rows = opened(tmp_path)
    for start in (0, 10, 20):
        fill(rows, range(start, start + 10))
        rows.flush()
    path = shards(tmp_path)[1]
    if damage == "delete":
        path.unlink()
    else:
        path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with caplog.at_level(logging.WARNING, "tdd"):
        rows = opened(tmp_path)
    assert path.name in caplog.text
    assert [i for i in range(30) if key(i) not in rows] == [*range(10, 20)]
    assert not path.exists()
    assert path.with_name(path.name + ".damaged").exists() == (damage != "delete")
    fill(rows, range(30))
    rows.flush()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "tdd"):
        rows = opened(tmp_path)
    assert not caplog.text  # said once
    for i in range(30):
        np.testing.assert_array_equal(rows.read(key(i)), row(i))


def test_every_single_bit_counts(tmp_path):
    """No flip of a bit anywhere in a shard is ever read."""
    rows = opened(tmp_path)
    fill(rows, range(6))
    rows.flush()
    (path,) = shards(tmp_path)
    data = path.read_bytes()
    for place in np.random.default_rng(0).integers(0, 8 * len(data), 200):
        broken = bytearray(data)
        broken[place // 8] ^= 1 << (place % 8)
        path.write_bytes(broken)
        assert finished._checked(path) is None
    path.write_bytes(data)
    assert finished._checked(path) == data


def test_a_shard_of_another_model_is_not_taken_in(tmp_path, caplog):
    """As where somebody copies the shards of one store into another."""
    for number in (1, 2):
        with ScoreStore(tmp_path) as store:
            fill(store.space({"model": number}), range(4 * number))
    one, two = sorted(shards(tmp_path), key=lambda path: path.stat().st_size)
    shutil.copy(two, one.parent)
    with caplog.at_level(logging.WARNING, "tdd"):
        assert len(ScoreStore(tmp_path).space({"model": 1})) == 4
    assert f"{one.parent / two.name} is damaged, or of another space; it is set aside" in caplog.text


def test_damage_during_a_run_is_never_read(tmp_path):
    rows = opened(tmp_path)
    fill(rows, range(6))
    rows.flush()
    (path,) = shards(tmp_path)
    path.write_bytes(DAMAGE["flip"](path.read_bytes()))
    with pytest.raises(InputError, match=rf"{path.name} was damaged .* run the same command again"):
        rows.read(key(3))
    assert len(opened(tmp_path)) == 0


def test_a_manifest_that_a_kill_cut_off(tmp_path, caplog):
    rows = opened(tmp_path)
    fill(rows, range(4))
    rows.flush()
    (manifest,) = tmp_path.rglob("*.jsonl")
    whole = manifest.read_bytes()
    for kept in (b"", whole[:20], whole[:-1], whole[:-20] + b"1" + whole[-19:]):
        manifest.write_bytes(kept)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "tdd"):
            assert len(opened(tmp_path)) == 4  # the shard is there all the same
        assert ("a damaged line is left out" in caplog.text) == kept.endswith(b"\n")
    reader = opened(tmp_path)
    manifest.write_bytes(whole)
    assert reader.refresh() == 0


def lines(folder):
    return [json.loads(line) for path in folder.rglob("*.jsonl") for line in path.read_bytes().splitlines()]


def test_the_manifest_says_what_is_finished(tmp_path):
    rows = opened(tmp_path)
    fill(rows, range(4))
    rows.flush()
    (entry,) = lines(tmp_path)
    check = entry.pop("check")
    assert check == zlib.crc32(json.dumps(entry, sort_keys=True).encode())
    (path,) = shards(tmp_path)
    assert entry == {"shard": path.name, "bytes": path.stat().st_size, "rows": 4, "fields": ["value"]}
    content = json.loads((path.parent / "space.json").read_text())
    assert content["about"] == ABOUT
    assert content["address"].startswith(path.parent.name)


def work(folder):
    """A life of a store; yields the rows that are promised from then on."""
    with ScoreStore(folder) as store:
        rows = store.space(ABOUT)
        for start in (0, 9):
            fill(rows, range(start, start + 9))
            rows.flush()
            yield start + 9
        assert len(store.plans("r" * 64, np.ones(9, bool))) == 1
        fill(rows, range(18, 20))
    yield 20


def survives(folder):
    """What is there after a crash: (rows that are right, whether any is wrong); and the store still works."""
    found = opened(folder)
    there = [i for i in range(20) if key(i) in found]
    wrong = any(not np.array_equal(found.read(key(i)), row(i), equal_nan=True) for i in there)
    for _ in work(folder):
        pass
    again = opened(folder)
    assert all(np.array_equal(again.read(key(i)), row(i), equal_nan=True) for i in range(20))
    return there, wrong


def crash(folder, at, when, power, prepared=None):
    """Kill at one call to the disk. Returns whether that call came, and what was promised, is there and is wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    if prepared is not None:
        shutil.copytree(prepared, folder)
    promised = 0
    with pytest.MonkeyPatch.context() as patch:
        disk = FailingDisk(patch, at, when)
        try:
            for promise in work(folder):
                promised = promise
        except Killed:
            pass
    if power:
        disk.cut_power()
    return disk.dead, promised, *survives(folder)


@pytest.mark.parametrize(
    ("when", "power", "damaged"),
    [
        ("before", False, False),
        ("half", False, True),
        ("after", False, False),
        ("after", True, False),
        ("after", True, True),
    ],
)
def test_a_kill_at_any_call_to_the_disk_loses_nothing_that_was_finished(tmp_path, when, power, damaged):
    prepared = None
    if damaged:
        prepared = tmp_path / "damaged"
        for _ in work(prepared):
            pass
        shards(prepared)[0].write_bytes(b"PAR1 and no more")
        shards(prepared)[-1].unlink()
    at, killed = 0, True
    while killed:
        at += 1
        killed, promised, there, wrong = crash(tmp_path / "store", at, when, power, prepared)
        assert there[:promised] == [*range(promised)], (at, there)
        assert not wrong, at
    assert at > (15 if damaged else 35)


def test_without_fsync_the_power_takes_what_was_finished(tmp_path, monkeypatch):
    """The twin that must fail: shards that are only renamed."""

    def careless(path, content):
        path.with_name("part").write_bytes(content)
        os.replace(path.with_name("part"), path)

    monkeypatch.setattr(space, "write_durably", careless)
    lost = []
    for at in range(1, 45):
        _, promised, there, _ = crash(tmp_path / "store", at, "after", True)
        lost.append(there[:promised] != [*range(promised)])
    assert any(lost)


def test_plans_are_made_once(tmp_path):
    store, other = ScoreStore(tmp_path), ScoreStore(tmp_path)
    run = "ab" * 32
    missing = np.arange(21) % 3 == 0
    (first,) = store.plans(run, missing)
    np.testing.assert_array_equal(first, missing)
    fewer = missing & (np.arange(21) > 5)
    (same,) = other.plans(run, fewer)  # continued, or another process of the same run
    np.testing.assert_array_equal(same, missing)
    lost = fewer | (np.arange(21) == 7)
    same, more = store.plans(run, lost)
    np.testing.assert_array_equal(same, missing)
    np.testing.assert_array_equal(np.flatnonzero(more), [7])
    assert len(store.plans(run, np.zeros(21, bool))) == 2
    assert store.plans("cd" * 32, np.zeros(4, bool)) == []


def test_a_damaged_plan_is_set_aside(tmp_path, caplog):
    store, missing = ScoreStore(tmp_path), np.arange(9) % 2 == 0
    store.plans("ab" * 32, missing)
    (place,) = (tmp_path / "runs").iterdir()
    for damaged in (b"{", b"", place.read_bytes().replace(b"planned", b"punned"), b"[]", b"null"):
        place.write_bytes(damaged)
        with caplog.at_level(logging.WARNING, "tdd"):
            (found,) = store.plans("ab" * 32, missing)
        np.testing.assert_array_equal(found, missing)
        assert f"{place} is damaged" in caplog.text
        caplog.clear()


def test_a_plan_where_files_cannot_be_linked(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    (found,) = ScoreStore(tmp_path).plans("ab" * 32, np.ones(3, bool))
    assert found.all()
    assert [path.name[0] for path in (tmp_path / "runs").iterdir()] == ["a"]


def test_folders_that_are_no_store_of_this_version(tmp_path):
    header = tmp_path / "new" / "store.json"
    header.parent.mkdir()
    header.write_text(json.dumps({"format": 9, "tdd": "7.1"}))
    with pytest.raises(InputError, match=rf"format 9, written by tdd 7.1; tdd {tdd.__version__} reads format 1: use"):
        ScoreStore(header.parent)
    for text in ("", "[]", "{}", "{"):
        header.write_text(text)
        with pytest.raises(InputError, match=r"store.json is damaged .* choose another folder, or remove"):
            ScoreStore(header.parent)
    old = tmp_path / "old"
    old.mkdir()
    (old / "scores-0123456789abcdef.bin").write_bytes(b"x")
    with pytest.raises(InputError, match=r"holds scores-0123456789abcdef.bin, the score store of an older version"):
        ScoreStore(old)
    other = tmp_path / "other"
    other.mkdir()
    for name in ("b.txt", "a.txt", ".hidden"):
        (other / name).write_text("x")
    with pytest.raises(InputError, match=r"is no score store: it holds a.txt and 1 more, but no store.json"):
        ScoreStore(other)
    assert sorted(path.name for path in other.iterdir()) == [".hidden", "a.txt", "b.txt"]
    with pytest.raises(InputError, match=r"store='.*a.txt' is a file; a score store is a folder"):
        ScoreStore(other / "a.txt")
    with pytest.raises(InputError, match=r"cannot write .*; choose a folder"):
        ScoreStore(other / "a.txt" / "below")


def test_folders_that_were_moved_or_lost_their_description(tmp_path):
    rows = opened(tmp_path)
    fill(rows, range(3))
    rows.flush()
    (description,) = tmp_path.rglob("space.json")
    content = description.read_text()
    for damaged in ("", "[]", "{}"):
        description.write_text(damaged)
        assert len(opened(tmp_path)) == 3
        assert json.loads(description.read_text()) == json.loads(content)
    description.write_text(json.dumps({"address": "f" * 64}))
    with pytest.raises(InputError, match="describes other scores than its folder's name"):
        opened(tmp_path)


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_read_only_disk(tmp_path, monkeypatch, call, code):
    rows = opened(tmp_path)
    fill(rows, range(3))
    rows.flush()
    files_before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    original, count = getattr(os, call), 0

    def failing(*arguments):
        nonlocal count
        count += 1
        if call == "write":
            original(arguments[0], arguments[1][:5])
        raise OSError(code, os.strerror(code))

    fill(rows, range(3, 6))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(InputError, match="disk is full" if code == errno.ENOSPC else "Read-only file system"):
            rows.flush()
    assert count
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path: data for path, data in after.items() if path.suffix != ".parquet"} == {
        path: data for path, data in files_before.items() if path.suffix != ".parquet"
    }
    rows.flush()  # the rows are still in memory
    assert len(opened(tmp_path)) == 6


def test_a_line_that_the_system_cuts_is_taken_back(tmp_path, monkeypatch):
    place = tmp_path / "lines"
    files.append_line(place, b"first\n")
    original = os.write
    monkeypatch.setattr(os, "write", lambda file, data: original(file, data[:3]))
    with pytest.raises(InputError, match="disk is full"):
        files.append_line(place, b"second\n")
    assert place.read_bytes() == b"first\n"


def test_old_temporary_files_are_removed(tmp_path):
    rows = opened(tmp_path)
    fill(rows, range(3))
    rows.flush()
    folder = shards(tmp_path)[0].parent
    old, young = folder / ".a.part", folder / ".b.part"
    for path in (old, young):
        path.write_bytes(b"half a shard")
    os.utime(old, (0, 0))
    assert len(opened(tmp_path)) == 3
    assert not old.exists()
    assert young.exists()


def test_only_few_shards_are_held_in_memory(tmp_path):
    rows = opened(tmp_path)
    for number in range(9):
        fill(rows, [number])
        rows.flush()
    for number in [*range(9), *range(9)]:
        np.testing.assert_array_equal(rows.read(key(number)), row(number))
        assert len(rows._finished._held) <= 4
    assert sorted(range(9), key=lambda i: rows.place(key(i))) == [*range(9)]


def test_hidden_files_do_not_make_a_folder_foreign(tmp_path):
    (tmp_path / ".gitkeep").touch()
    assert len(opened(pathlib.Path(str(tmp_path)))) == 0
