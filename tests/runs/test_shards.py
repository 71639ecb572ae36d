"""A shard as it is written, and what is noted of the shards of a run."""

import pytest

from tdd.runs.shards import Shard, ShardLog, as_shard
from tdd.validate import InputError

FACTS = {"model": "a" * 64, "texts": "b", "token_budget": 256}


def test_two_ways_to_write_one():
    assert as_shard("1/4", "store") == as_shard((1, 4), "store") == Shard(1, 4)
    assert as_shard(Shard(1, 4), "store") == Shard(1, 4)
    assert as_shard(None) is None
    assert str(Shard(1, 4)) == "1/4"


def test_each_piece_has_one_owner():
    shards = [Shard(i, 3) for i in range(3)]
    counts = [sum(one.owns(number) for number in range(20)) for one in shards]
    assert sum(counts) == 20
    assert max(counts) - min(counts) == 1
    assert all(sum(one.owns(number) for one in shards) == 1 for number in range(20))


@pytest.mark.parametrize("sizes", [[512] * 7 + [64] * 40, [5], [], [1, 1000, 1], range(1, 30)])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_consecutive_pieces_of_about_the_same_size(sizes, count):
    parts = [Shard(i, count).part(sizes) for i in range(count)]
    assert [number for part in parts for number in part] == [*range(len(sizes))]
    totals = [sum(sizes[number] for number in part) for part in parts]
    assert max(totals) - min(totals) <= 2 * max(sizes, default=0)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("4/4", "shard=4/4 does not exist: the 4 shards are 0/4 to 3/4"),
        ("-1/4", "shard=-1/4 does not exist: the 4 shards are 0/4 to 3/4"),
        ("0/0", "shard=0/0 does not exist: N must be at least 1"),
        ("x", "shard='x' must be I/N, as in 0/4"),
        ("1", "shard='1' must be I/N, as in 0/4"),
        ("1/2/3", "shard='1/2/3' must be I/N"),
        (1, "shard=1 must be I/N"),
        ((0.0, 4), r"shard=\(0.0, 4\) must be I/N"),
    ],
)
def test_what_is_no_shard(value, message):
    with pytest.raises(InputError, match=message):
        as_shard(value, "store")


def test_a_shard_needs_a_folder():
    with pytest.raises(InputError, match="shard=0/4 needs out: a folder that all shards and the command that joins"):
        as_shard("0/4", None, "out")


def test_shards_of_another_run_are_refused_by_what_differs(tmp_path):
    ShardLog(tmp_path, FACTS).begin(Shard(0, 2))
    with pytest.raises(InputError) as error:
        ShardLog(tmp_path, {**FACTS, "texts": "c", "reference": "d"}).begin(Shard(1, 2))
    message = str(error.value)
    assert f"shard 1/2: {tmp_path} holds shards of another run (0-of-2): texts c here, b there; reference d here, " in (
        message
    )
    assert "token_budget" not in message
    assert f"delete {tmp_path / 'shards'} if the earlier run is over" in message
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["0-of-2.json"]


def test_jobs_in_one_folder_do_not_meet(tmp_path):
    for number, job in enumerate(["one.csv", "one-csv", "../two", ".."]):
        ShardLog(tmp_path, {"number": number}, job).begin(Shard(0, 2))
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*.json"))] == [
        "shards/%2E%2E/0-of-2.json",
        "shards/%2E%2E%2Ftwo/0-of-2.json",
        "shards/one%2Ecsv/0-of-2.json",
        "shards/one-csv/0-of-2.json",
    ]


def test_what_is_joined_leaves_no_notes(tmp_path, caplog):
    log, other = ShardLog(tmp_path, FACTS), ShardLog(tmp_path, {"texts": "c"}, "other")
    log.finish(Shard(0, 2))
    other.finish(Shard(0, 2))
    log.forget()
    log.warn()
    other.begin(Shard(1, 2))
    assert not caplog.records
    assert [path.name for path in sorted(tmp_path.rglob("*.json"))] == ["0-of-2.json", "1-of-2.json"]


def test_the_shards_that_did_not_finish_are_named(tmp_path, caplog):
    log = ShardLog(tmp_path, FACTS)
    log.warn()
    assert not caplog.records
    for index in (0, 2):
        log.begin(Shard(index, 4))
    log.finish(Shard(2, 4))
    log.warn()
    assert f"{tmp_path}: shards 0/4, 1/4, 3/4 did not finish here" in caplog.text
    caplog.clear()
    for index in (0, 1):
        log.finish(Shard(index, 4))
    log.warn()
    assert "shard 3/4 did not finish here" in caplog.text
    caplog.clear()
    log.finish(Shard(3, 4))
    log.warn()
    assert not caplog.records
    ShardLog(tmp_path, {**FACTS, "token_budget": 128}).warn()
    assert "holds shards of another run (0-of-4): token_budget 128 here, 256 there" in (caplog.text)


def test_long_values_are_shown_from_their_first_difference(tmp_path):
    scores = [f"min_k:k=0.{i}" for i in range(1, 9)]
    ShardLog(tmp_path, {"scores": [*scores, "loss"], "separator": "\n\n"}).begin(Shard(0, 2))
    with pytest.raises(InputError) as refused:
        ShardLog(tmp_path, {"scores": [*scores, "zlib"], "separator": "\n"}).begin(Shard(1, 2))
    message = str(refused.value)
    assert "zlib'] here" in message
    assert "loss'] there" in message
    assert r"separator \n here, \n\n there" in message
    assert "\n" not in message


def test_a_damaged_note_counts_as_none(tmp_path, caplog):
    log = ShardLog(tmp_path, FACTS)
    log.finish(Shard(0, 2))
    (tmp_path / "shards" / "1-of-2.json").write_text('{"facts": {}')
    log.begin(Shard(0, 2))
    log.finish(Shard(0, 2))
    log.warn()
    assert "shard 1/2 did not finish here" in caplog.text
