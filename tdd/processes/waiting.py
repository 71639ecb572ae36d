"""Waiting for what others compute, and taking over what does not come."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from tdd.processes import meeting as presence
from tdd.processes.meeting import Meeting

__all__ = ["Watch"]

STUCK = 900.0
"""Seconds without a finished piece after which a process that gives signs of life counts as stuck."""

_TAKEN = 8
"""Most pieces that are taken over at a time: their owner may be started again meanwhile."""

_logger = logging.getLogger("tdd")


class Watch:
    """Looks after the pieces of a run that others compute. It never waits for ever: what a process does not deliver
    that has ended, gives no sign of life, or finishes nothing for very long is taken over by those that are alive.

    Args:
      meeting: of the processes.
      what: what a piece is called in messages.
    """

    def __init__(self, meeting: Meeting, what: str = "batches") -> None:
        self.meeting, self.what = meeting, what
        self._progress: dict[int, tuple[int, float]] = {}
        self._told: dict[int, float] = {}
        self._taken: dict[int, float] = {}
        self._pause = 0.02

    def wait(self, missing: Sequence[int]) -> list[int]:
        """Wait a moment for others.

        Args:
          missing: the pieces that nobody has finished, after a look at the store.

        Returns:
          Pieces that this process computes now, none in most cases. Look at the store again afterwards.
        """
        processes, now = self.meeting.processes, time.monotonic()
        owed: dict[int, list[int]] = {}
        for number in missing:
            owed.setdefault(processes.owner(number), []).append(number)
        taken = owed.pop(processes.index, [])[:_TAKEN]
        for owner, numbers in owed.items():
            count, since = self._progress.get(owner, (-1, now))
            if count != len(numbers):
                self._progress[owner] = (len(numbers), since := now)
                self._pause = 0.02
            silent = self.meeting.silent(owner)
            if silent >= presence.SILENCE or now - since >= STUCK:
                self._tell(owner, len(numbers), silent, now - since)
                alive = self.meeting.alive()
                place = alive.index(processes.index)
                last = numbers[::-1]  # from the end: where the owner comes back, it begins at the other one
                late = now - since >= 3 * presence.SILENCE  # who should have taken them has not
                taken += (last if late else last[place :: len(alive)])[:_TAKEN]
            elif now - max(since, self._told.get(owner, since)) > presence.SILENCE:
                self._told[owner] = now
                self.meeting.check()
                _logger.warning(
                    "process %d: waiting for %d %s of process %d, which is alive and finished its last %.0f s ago",
                    processes.index, len(numbers), self.what, owner, now - since,
                )  # fmt: skip
        if not taken:
            time.sleep(self._pause)
            self._pause = min(1.0, 1.5 * self._pause)
        return taken

    def _tell(self, owner: int, count: int, silent: float, since: float) -> None:
        now = time.monotonic()
        if owner in self._taken and now - self._taken[owner] < 10 * presence.SILENCE:
            return
        self._taken[owner] = now
        if not self.meeting.seen(owner):
            why = f"was not seen in {self.meeting.shared} so far: not started, or the folder is not shared"
        elif not self.meeting.there(owner):
            why = "has ended"
        elif silent >= presence.SILENCE:
            why = f"has given no sign of life for {silent:.0f} s"
        else:
            why = f"is alive, but has finished nothing for {since:.0f} s"
        _logger.warning(
            "process %d: process %d %s; its %d missing %s are taken over (it may be started again at any time)",
            self.meeting.processes.index, owner, why, count, self.what,
        )  # fmt: skip
