"""Processes that share out pieces of work through a folder: real ones, some of which die."""

import json
import os
import threading
import time

import pytest
from process_launcher import free_port, until

from tdd.atomic import write_atomically
from tdd.processes import Meeting, Processes
from tdd.processes import meeting as meeting_module
from tdd.validate.errors import InputError

# Pieces of work as files in a folder, as the stores keep them: what is done, who did it.
WORKER = """
import pathlib, sys, time
from tdd.processes import Meeting, Watch, initialize, meeting
meeting.BEAT, meeting.SILENCE = 0.1, 1.2
folder, connect, address, count, index, fact, pause = sys.argv[1:]
folder = pathlib.Path(folder)
me = initialize(address if connect == "1" else None, int(count), int(index), connect=connect == "1")
done = folder / "done"
done.mkdir(exist_ok=True)
def work(number):
    time.sleep(float(pause))
    with open(done / f"{number}.by{me.index}", "w") as file:
        file.write(str(number ** 2))
def missing():
    there = {int(path.stem) for path in done.iterdir()}
    return [number for number in range(12) if number not in there]
from tdd.validate.errors import InputError
try:
    with Meeting(folder, "squares") as meeting:
        meeting.agree({"fact": fact, "same": 1})
        for number in missing():
            if me.owns(number):
                work(number)
        watch = Watch(meeting, "squares")
        while left := missing():
            for number in watch.wait(left):
                work(number)
except InputError as error:
    sys.exit(f"refused: {error}")
print("finished", me.index, me.count)
"""


def run(launcher, folder, count, *, connect=False, facts="aaaaaaaa", pause=0.05, only=None):
    address = f"127.0.0.1:{free_port()}"
    return [
        launcher.python(WORKER, folder, int(connect), address, count, index, facts[index], pause)
        for index in (range(count) if only is None else only)
    ]


def computed_by(folder):
    """Piece -> processes that computed it."""
    found = {}
    for path in (folder / "done").iterdir():
        found.setdefault(int(path.stem), []).append(int(path.suffix[3:]))
    return found


@pytest.mark.parametrize("connect", [False, True])
def test_each_computes_its_own(launcher, tmp_path, connect):
    ends = launcher.all(run(launcher, tmp_path, 3, connect=connect))
    assert [(end.code, end.out.split()[:3]) for end in ends] == [(0, ["finished", str(i), "3"]) for i in range(3)]
    assert computed_by(tmp_path) == {number: [number % 3] for number in range(12)}
    assert not [*(tmp_path / "processes").glob("*.alive")], "processes that ended give no signs of life"


@pytest.mark.parametrize("connect", [False, True])
def test_survivors_take_over_and_share_what_a_dead_one_left(launcher, tmp_path, connect):
    started = run(launcher, tmp_path, 3, connect=connect, pause=0.2)
    until(lambda: [*tmp_path.glob("done/*.by1")], what="a piece of process 1")
    started[1].kill()
    ends = launcher.all([started[0], started[2]])
    assert [end.code for end in ends] == [0, 0], ends
    assert "process 1 has given no sign of life for" in ends[0].err
    assert ends[0].err.count("missing squares are taken over") == 1
    found = computed_by(tmp_path)
    assert sorted(found) == [*range(12)]
    left = [number for number in range(1, 12, 3) if found[number] != [1]]
    assert {by for number in left for by in found[number]} == {0, 2}, "both survivors take a part"
    assert sum(map(len, found.values())) <= 12 + 2


def test_without_a_connection_process_0_may_die(launcher, tmp_path):
    started = run(launcher, tmp_path, 2, pause=0.2)
    until(lambda: [*tmp_path.glob("done/*.by0")], what="a piece of process 0")
    started[0].kill()
    (end,) = launcher.all([started[1]])
    assert end.code == 0, end.err
    assert sorted(computed_by(tmp_path)) == [*range(12)]


@pytest.mark.parametrize("connect", [False, True])
def test_a_dead_process_joins_again(launcher, tmp_path, connect):
    address = f"127.0.0.1:{free_port()}"
    arguments = [tmp_path, int(connect), address, 2]
    started = [launcher.python(WORKER, *arguments, index, "a", 0.6) for index in range(2)]
    until(lambda: [*tmp_path.glob("done/*.by1")], what="a piece of process 1")
    started[1].kill()
    again = launcher.python(WORKER, *arguments, 1, "a", 0.01)
    ends = launcher.all([started[0], again])
    assert [end.code for end in ends] == [0, 0], ends
    assert computed_by(tmp_path) == {number: [number % 2] for number in range(12)}
    assert "taken over" not in ends[0].err


def test_who_comes_late_with_other_inputs_is_refused(launcher, tmp_path):
    address = f"127.0.0.1:{free_port()}"
    first = launcher.python(WORKER, tmp_path, 0, address, 2, 0, "these", 0.2)
    until(lambda: [*tmp_path.glob("done/*.by0")], what="a piece of process 0")
    late = launcher.python(WORKER, tmp_path, 0, address, 2, 1, "others", 0.2)
    refused, went_on = launcher.all([late, first])
    assert refused.code == 1
    assert "refused: process 1 was given other inputs than process 0 (process id" in refused.err
    assert "fact: others here, these there. " in refused.err  # and nothing of what is the same
    assert went_on.code == 0
    assert "process 1 has ended; its 6 missing squares are taken over" in went_on.err
    assert computed_by(tmp_path) == {number: [0] for number in range(12)}


def test_a_number_that_is_taken(launcher, tmp_path):
    first = launcher.python(WORKER, tmp_path, 0, "-", 1, 0, "a", 0.2)
    until(lambda: [*tmp_path.glob("done/*")], what="a piece")
    second = launcher.python(WORKER, tmp_path, 0, "-", 1, 0, "a", 0.2)
    (end,) = launcher.all([second])
    assert "process 0 of 1 runs already in" in end.err
    assert "give each process its own process_id" in end.err
    launcher.all([first])


def test_a_folder_that_is_not_shared(launcher, tmp_path):
    address = f"127.0.0.1:{free_port()}"
    started = [
        launcher.python(WORKER, tmp_path / str(index), 1, address, 2, index, "a", 0.01)
        for index in range(2)
        if not (tmp_path / str(index)).mkdir()
    ]
    ends = launcher.all(started)
    for index, end in enumerate(ends):
        assert end.code == 1
        assert f"refused: process {1 - index} did not appear in {tmp_path / str(index)} within 6 s" in end.err
        assert "one folder that all hosts share" in end.err


def test_what_an_earlier_run_left_is_no_obstacle(tmp_path, monkeypatch):
    monkeypatch.setattr(meeting_module, "BEAT", 0.1)
    monkeypatch.setattr(meeting_module, "_live", lambda *_: None)
    place = tmp_path / "processes" / "run"
    place.mkdir(parents=True)
    old = {"facts": {"text": "other", "num_processes": 2}, "owner": "process id 1 on nowhere", "life": "of old"}
    (place / "1.json").write_text(json.dumps(old))
    (place / "2.json").write_text("[")
    (place / "notes.json").write_text("{}")
    with Meeting(tmp_path, "run", Processes(0, 2)) as meeting:
        start = time.monotonic()
        meeting.agree({"text": "new"})
        assert time.monotonic() - start < 1
        (tmp_path / "processes" / "1.alive").write_text("of a process that was killed")
        meeting.agree({"text": "new"})


def test_inputs_of_an_earlier_run_are_not_those_of_the_one_that_lives(tmp_path, monkeypatch):
    """A job that was killed, and is started again with other options: process 1 lives, but has not said its yet."""
    monkeypatch.setattr(meeting_module, "BEAT", 0.05)
    monkeypatch.setattr(meeting_module, "_live", lambda *_: None)
    place, ended = tmp_path / "processes" / "run", threading.Event()
    place.mkdir(parents=True)

    def live(number=0):
        while not ended.wait(0.02):
            write_atomically(
                place.parent / "1.alive", f"process id 7 on pod-1 of-today {(number := number + 1)}".encode()
            )

    thread = threading.Thread(target=live)
    thread.start()
    try:
        until(lambda: (place.parent / "1.alive").exists())
        meeting = Meeting(tmp_path, "run", Processes(0, 2))
        for life in ("of-before", "of-today"):
            facts = {"text": "other", "num_processes": 2}
            (place / "1.json").write_text(json.dumps({"facts": facts, "owner": "process id 7 on pod-1", "life": life}))
            os.utime(place / "1.json", (1.0, 1.0))
            if life == "of-before":
                meeting.agree({"text": "new"})
            else:
                with pytest.raises(InputError, match="other inputs than process 1"):
                    meeting.agree({"text": "new"})
    finally:
        ended.set()
        thread.join()


def test_jobs_meet_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(meeting_module, "_live", lambda *_: None)
    places = [Meeting(tmp_path, "run", Processes(0, 2), job=job).folder for job in ("", "one", "two")]
    assert len({*places}) == 3
    assert places[0] == tmp_path / "processes"


def test_two_with_one_number_that_come_together_find_out(tmp_path, monkeypatch):
    """As where a shell has put the same number into all commands: the one with the greater sign leaves."""
    ends = []
    monkeypatch.setattr(meeting_module, "BEAT", 0.05)
    monkeypatch.setattr(meeting_module.atexit, "register", ends.append)
    meeting, own = Meeting(tmp_path, "run", Processes(0, 2)), tmp_path / "processes" / "0.alive"
    try:
        write_atomically(own, b"process id 7 on pod-1 g 3")
        time.sleep(0.2)
        assert meeting.silent(1) < 10, "the other one leaves"
        write_atomically(own, b"process id 7 on pod-1 ! 3")
        until(lambda: own.read_bytes().split()[-2] != b"!")
        with pytest.raises(InputError, match=r"process 0 of 2 runs already in .* \(process id 7 on pod-1\)"):
            meeting.silent(1)
    finally:
        ends[0]()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "processes").write_text("a file")
    with pytest.raises(InputError, match="cannot write"), Meeting(tmp_path, "run", Processes(0, 2)):
        pass
