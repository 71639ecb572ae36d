"""The rule of waiting and taking over, with a clock and signs of life of its own."""

import pathlib
import types

import pytest

from tdd.processes import Processes, Watch, waiting
from tdd.processes.meeting import SILENCE


class Clock:
    def __init__(self):
        self.now, self.slept = 100.0, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    return clock


def meeting(index, count, silent):
    """Signs of life: process -> seconds of silence, changed by the tests."""
    return types.SimpleNamespace(
        processes=Processes(index, count),
        shared=pathlib.Path("folder"),
        silent=lambda one: silent[one],
        alive=lambda: [one for one in range(count) if one == index or silent[one] < SILENCE],
        seen=lambda one: True,
        check=lambda: None,
        there=lambda one: silent[one] != float("inf"),
    )


def test_own_pieces_at_once(clock):
    watch = Watch(meeting(0, 2, {1: 0.0}))
    assert watch.wait([0, 1, 2, 3]) == [0, 2]  # as where a stored piece was found to be damaged
    assert clock.slept == []


def test_who_is_alive_and_makes_progress_is_waited_for(clock, caplog):
    watch = Watch(meeting(0, 2, {1: 0.0}))
    for left in range(20, 0, -1):
        clock.now += SILENCE / 2
        assert watch.wait([2 * i + 1 for i in range(left)]) == []
    assert caplog.messages == []


def test_pauses_grow_to_a_second(clock):
    watch = Watch(meeting(0, 2, {1: 0.0}))
    for _ in range(30):
        assert watch.wait([1]) == []
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[0] < 0.05
    assert clock.slept[-1] == 1.0
    assert watch.wait([1, 3]) == []
    assert clock.slept[-1] < 0.05, "progress: look again soon"


def test_silence_is_answered_by_all_that_are_alive_each_a_part(clock):
    missing = [2, 6, 10, 14, 18]
    taken = []
    for index in (0, 1, 3):
        silent = {0: 0.0, 1: 0.0, 2: SILENCE + 1, 3: 0.0}
        taken += Watch(meeting(index, 4, silent)).wait(missing)
    assert sorted(taken) == missing
    assert clock.slept == []


def test_a_few_at_a_time_and_from_the_end(clock):
    watch = Watch(meeting(0, 2, {1: float("inf")}))
    missing = [*range(1, 101, 2)]
    assert watch.wait(missing) == missing[::-1][:8]


def test_if_who_should_take_a_piece_does_not_another_one_does(clock):
    silent = {0: 0.0, 2: SILENCE}
    watch = Watch(meeting(1, 3, silent))
    assert watch.wait([2]) == []  # process 0's part
    clock.now += 2 * SILENCE
    assert watch.wait([2]) == []
    clock.now += 2 * SILENCE
    assert watch.wait([2]) == [2]


def test_alive_but_stuck(clock, caplog):
    watch = Watch(meeting(0, 2, {1: 0.0}))
    start = clock.now
    while not (taken := watch.wait([1, 3])):
        clock.now += 20
        assert clock.now - start < 2 * waiting.STUCK
    assert taken == [3, 1]
    assert clock.now - start >= waiting.STUCK
    assert "process 0: waiting for 2 batches of process 1, which is alive and finished its last" in caplog.text
    assert "process 1 is alive, but has finished nothing for" in caplog.messages[-1]


def test_said_once(clock, caplog):
    silent = {1: 0.0}
    watch = Watch(meeting(0, 2, silent), "blocks")
    watch.wait([1, 3, 5])
    silent[1] = SILENCE + 5
    for left in ([1, 3, 5], [1, 3], [1]):
        assert watch.wait(left) == left[::-1]
    (message,) = caplog.messages
    assert "process 1 has given no sign of life for 65 s; its 3 missing blocks are taken over" in message
