"""The score store: rows come back as they were given, whoever wrote them, and plans are made once."""

import errno
import logging
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from score_stores import ABOUT, fill, key, opened, row, shards

from tdd.scoring.store import ScoreStore, namespace
from tdd.scoring.store.address import row_key
from tdd.scoring.store.shards import decode, decode_keys, encode


def test_a_namespace_keeps_what_it_was_given(tmp_path):
    with ScoreStore(tmp_path / "a" / "store") as store:
        rows = store.namespace(ABOUT)
        fill(rows, range(7))
        fill(rows, range(3, 12))
        assert not shards(tmp_path)
        assert len(rows) == 12
        np.testing.assert_array_equal(rows.read(key(4)), row(4))
    rows = opened(tmp_path / "a" / "store")
    assert len(rows) == 12
    assert rows.has(key(11))
    assert not rows.has(key(12))
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


@pytest.mark.parametrize("seed", range(6))
def test_what_came_first_counts_whoever_opens_the_store(tmp_path, seed):
    """Names of writers are random: the order in which shards are read must not be."""
    for number, fields in enumerate((("a",), ("a", "b"), ("b", "c"), ("a", "c"))):
        rows = opened(tmp_path)
        rows.append([b"x"], [np.full((len(fields), 2), number, np.float32)], fields)
        rows.flush()
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
            assert all(writers[number].has(key(i)) for i in numbers)
    for one in writers:
        one.flush()
    asked = {i for step in steps if isinstance(step, tuple) for i in step[1]}
    found = opened(folder)
    assert {i for i in range(40) if found.has(key(i))} == asked
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
    monkeypatch.setattr(namespace.time, "monotonic", lambda: now[0])
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
    monkeypatch.setattr(namespace, "_MOST_BYTES", 100)
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


def test_a_row_is_its_tokens_and_what_of_them_is_scored():
    tokens = np.arange(9, dtype=np.int32)
    assert row_key(tokens, 1) == row_key(tokens.astype(np.int64), 1)
    assert len({row_key(tokens, 1), row_key(tokens, 2), row_key(tokens[::-1], 1), row_key(tokens[:-1], 1)}) == 4
