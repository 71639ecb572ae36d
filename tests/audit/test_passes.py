"""The order of batches: two in flight, one a device, halved where memory does not suffice. No model, no compilation."""

import logging

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdd.scoring.buckets import Batch, plan
from tdd.scoring.engine import BatchRunner

GPU = (
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
    "INTERNAL: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "INTERNAL: Failed to allocate 4294967296 bytes for new constant",
    "RESOURCE_EXHAUSTED: Failed to allocate request for 2.00GiB (2147483648B) on device ordinal 0",
)
"""What JAX's backends say."""


class Squares:
    """A 'model' that squares row numbers, with room for `room` rows a device; it fails at the start or at the fetch."""

    def __init__(self, room, at="fetch", message=GPU[0]):
        self.room, self.at, self.message = room, at, message
        self.log, self.in_flight = [], 0

    def start(self, pieces, size, length, rows, halvings):
        self.log.append((size, halvings))
        assert all(len(piece) <= size for piece in pieces)
        if size > self.room and self.at == "start":
            raise jax.errors.JaxRuntimeError(self.message)
        return size, pieces

    def fetch(self, started, rows):
        size, pieces = started
        if size > self.room:
            raise jax.errors.JaxRuntimeError(self.message)
        return [np.stack([piece, piece**2]).astype(np.float32) for piece in pieces]


def batches_of(lengths, budget):
    return list(enumerate(plan({"a": np.array(lengths)}, token_budget=budget)))


@settings(max_examples=150, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 60), min_size=1, max_size=60),
    budget=st.integers(1, 400),
    room=st.integers(1, 12),
    devices=st.sampled_from([1, 3, 8]),
    at=st.sampled_from(["start", "fetch"]),
)
def test_every_row_once_and_in_order(lengths, budget, room, devices, at):
    batches = batches_of(lengths, budget)
    program = Squares(room, at)
    found = list(BatchRunner(lambda: program, devices).run(batches, lambda kind: None))
    assert [number for number, _, _ in found] == [number for number, _ in batches]
    for _, batch, values in found:
        np.testing.assert_array_equal(values[0], batch.rows)
        np.testing.assert_array_equal(values[1], batch.rows.astype(np.float32) ** 2)


@pytest.mark.parametrize("message", GPU)
@pytest.mark.parametrize("at", ["start", "fetch"])
def test_memory_errors_are_known_by_the_words_of_every_backend(message, at, caplog):
    batches = [(i, Batch("a", np.arange(8) + 8 * i, 8, 16)) for i in range(5)]
    program = Squares(2, at, message)
    with caplog.at_level(logging.WARNING, "tdd"):
        found = list(BatchRunner(lambda: program).run(batches, lambda kind: None))
    assert len(found) == 5
    assert [record.message.split(" with ")[1].split(";")[0] for record in caplog.records] == [
        "batches of 4 rows of 16 tokens",
        "batches of 2 rows of 16 tokens",
    ]
    # once halved, always halved: nothing is tried again that has failed
    assert [size for size, _ in program.log].index(2) >= len([size for size, _ in program.log if size > 2])


def test_two_groups_are_in_flight():
    events = []

    class Watched(Squares):
        def start(self, pieces, *rest):
            events.append(("start", int(pieces[0][0])))
            return super().start(pieces, *rest)

        def fetch(self, started, rows):
            events.append(("fetch", int(started[1][0][0])))
            return super().fetch(started, rows)

    batches = [(i, Batch("a", np.array([i]), 1, 8)) for i in range(4)]
    list(BatchRunner(lambda: Watched(1)).run(batches, lambda kind: None))
    assert events == [
        ("start", 0),
        ("start", 1),
        ("fetch", 0),
        ("start", 2),
        ("fetch", 1),
        ("start", 3),
        ("fetch", 2),
        ("fetch", 3),
    ]


def test_a_group_has_one_shape_and_one_kind():
    shapes = [("a", 2, 16), ("a", 2, 16), ("a", 2, 8), ("b", 2, 8), ("b", 2, 8), ("b", 2, 8)]
    batches = [(i, Batch(kind, np.array([i]), size, length)) for i, (kind, size, length) in enumerate(shapes)]
    groups = list(BatchRunner(lambda: Squares(9), 2)._groups(batches))
    assert [[number for number, _ in group] for group in groups] == [[0, 1], [2], [3, 4], [5]]


def test_one_row_that_does_not_fit_is_the_end():
    batches = [(0, Batch("a", np.arange(4), 4, 16))]
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        list(BatchRunner(lambda: Squares(0)).run(batches, lambda kind: None))
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL: broken"):
        list(BatchRunner(lambda: Squares(0, message="INTERNAL: broken")).run(batches, lambda kind: None))
