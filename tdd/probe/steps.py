"""Steps of training that only move forward, the first with an alarm, and saved states of another run."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = ["AlarmHistory", "as_step", "check_same", "first_alarm"]


class AlarmHistory:
    """A `history` of records, in which an alarm stays once it has been raised."""

    history: list[Any]

    @property
    def alarm(self) -> bool:
        """True once the anytime p-value has been alpha or less."""
        return bool(self.history) and self.history[-1].alarm

    @property
    def first_alarm(self) -> int | None:
        """The step at which that first happened."""
        return first_alarm(self.history)


def first_alarm(history: Sequence[Any]) -> int | None:
    """The step of the first alarm."""
    return next((record.step for record in history if record.alarm), None)


def as_step(step: Any, last: int | None = None) -> int:
    """The number of a training step, not before the last one."""
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if isinstance(step, (bool, np.bool_)) or not 0 <= number < 2**31:
        raise InputError(
            f"step={step!r} must be the number of the training step, a whole number from 0 to 2^31 - 1; inside a "
            "compiled function use evaluate and observe"
        )
    if last is not None and number < last:
        raise InputError(
            f"step={number} comes after step {last}, and evidence over a run is not taken back. If training restarts "
            "from a checkpoint, load the state that was saved with it (load_state_dict); for another run, start anew"
        )
    return number


def check_same(name: str, saved: Any, expected: Any) -> None:
    """A saved state belongs to a guard with the same arguments."""
    if saved != expected:
        raise InputError(
            f"state is of another guard: its {name} is {saved!r}, this guard's is {expected!r}; make the guard with "
            "the arguments of the run that saved the state"
        )
