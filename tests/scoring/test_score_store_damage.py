"""The score store: what was finished is there, whole and right, after any damage and any kill."""

import logging
import os
import shutil

import numpy as np
import pytest
from failing_disk import FailingDisk, Killed
from score_stores import ABOUT, fill, key, opened, row, shards

from tdd.scoring.store import ScoreStore, namespace
from tdd.scoring.store import shards as module
from tdd.validate import InputError

DAMAGE = {
    "flip": lambda data: data[: len(data) // 3] + bytes([data[len(data) // 3] ^ 1]) + data[len(data) // 3 + 1 :],
    "flip the end": lambda data: data[:-9] + bytes([data[-9] ^ 4]) + data[-8:],
    "cut": lambda data: data[:-5],
    "append": lambda data: data + b"\0",
    "empty": lambda data: b"",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_shard_is_reported_set_aside_and_filled_again(tmp_path, damage, caplog):
    rows = opened(tmp_path)
    for start in (0, 10, 20):
        fill(rows, range(start, start + 10))
        rows.flush()
    path = shards(tmp_path)[1]
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with caplog.at_level(logging.WARNING, "tdd"):
        rows = opened(tmp_path)
    assert path.name in caplog.text
    assert [i for i in range(30) if not rows.has(key(i))] == [*range(10, 20)]
    assert not path.exists()
    assert path.with_name(path.name + ".damaged").exists()
    fill(rows, range(30))
    rows.flush()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "tdd"):
        rows = opened(tmp_path)
    assert not caplog.text  # said once
    for i in range(30):
        np.testing.assert_array_equal(rows.read(key(i)), row(i))


def test_a_deleted_shard_is_scored_again_and_files_of_other_names_are_left_alone(tmp_path, caplog):
    rows = opened(tmp_path)
    for start in (0, 10):
        fill(rows, range(start, start + 10))
        rows.flush()
    first, second = shards(tmp_path)
    first.unlink()
    other = second.with_name("mine.parquet")
    other.write_bytes(b"not a shard")
    with caplog.at_level(logging.WARNING, "tdd"):
        rows = opened(tmp_path)
    assert [i for i in range(20) if rows.has(key(i))] == [*range(10, 20)]
    assert other.read_bytes() == b"not a shard"
    assert not caplog.text
    fill(rows, range(20))
    rows.flush()
    assert len(opened(tmp_path)) == 20


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
        assert module._checked(path) is None
    path.write_bytes(data)
    assert module._checked(path) == data


def test_a_shard_of_another_model_is_not_taken_in(tmp_path, caplog):
    """As where somebody copies the shards of one store into another."""
    for number in (1, 2):
        with ScoreStore(tmp_path) as store:
            fill(store.namespace({"model": number}), range(4 * number))
    one, two = sorted(shards(tmp_path), key=lambda path: path.stat().st_size)
    shutil.copy(two, one.parent)
    with caplog.at_level(logging.WARNING, "tdd"):
        assert len(ScoreStore(tmp_path).namespace({"model": 1})) == 4
    assert f"{one.parent / two.name} is damaged, or of another namespace; it is set aside" in caplog.text


def test_damage_during_a_run_is_never_read(tmp_path):
    rows = opened(tmp_path)
    fill(rows, range(6))
    rows.flush()
    (path,) = shards(tmp_path)
    path.write_bytes(DAMAGE["flip"](path.read_bytes()))
    with pytest.raises(InputError, match=rf"{path.name} was damaged .* run the same command again"):
        rows.read(key(3))
    assert len(opened(tmp_path)) == 0


def work(folder):
    """A life of a store; yields the rows that are promised from then on."""
    with ScoreStore(folder) as store:
        rows = store.namespace(ABOUT)
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
    there = [i for i in range(20) if found.has(key(i))]
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
@pytest.mark.slow("long")
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
    assert at > (12 if damaged else 35)


def test_without_fsync_the_power_takes_what_was_finished(tmp_path, monkeypatch):
    """The twin that must fail: shards that are only renamed."""

    def careless(path, content):
        path.with_name("part").write_bytes(content)
        os.replace(path.with_name("part"), path)

    monkeypatch.setattr(namespace, "write_durably", careless)
    lost = []
    for at in range(1, 45):
        _, promised, there, _ = crash(tmp_path / "store", at, "after", True)
        lost.append(there[:promised] != [*range(promised)])
    assert any(lost)
