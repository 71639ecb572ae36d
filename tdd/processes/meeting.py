"""The folder where the processes of a run meet: who is there, who is alive, and whether all do the same."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import pathlib
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from tdd.atomic import disk_errors, write_atomically
from tdd.processes.identity import Processes, current
from tdd.validate import processes as checks

__all__ = ["BEAT", "SILENCE", "Meeting"]

BEAT = 2.0
"""Seconds between two signs of life."""

SILENCE = 60.0
"""Seconds without a sign of life after which a process counts as gone: network file systems may keep what they read
of others' files for so long."""

_LIFE = secrets.token_hex(8)
"""Tells this process from an earlier one with the same number, id and host, as restarted containers have."""


class Meeting:
    """Where the processes of one call meet, `<folder>/processes[/<digest of job>]/<name>`.

    A process that comes gives signs of life until it ends. Where `jax.distributed` connects the processes, all of
    them run: one that comes waits until each has been seen in the folder, which tells that they share it.

    Args:
      folder: shared by all processes. Who can write it must be trusted: a forged sign of life ends a process.
      name: of the call: the same in all processes, another for each call in the same folder.
      processes: this process and how many there are.
      job: tells processes that meet here from those of other jobs in the same folder at the same time.

    Raises:
      InputError: the folder cannot be written, is not shared, or another process has the same number.
    """

    def __init__(
        self, folder: str | os.PathLike[str], name: str, processes: Processes | None = None, *, job: str = ""
    ) -> None:
        self.processes = current() if processes is None else processes
        self.shared = pathlib.Path(folder).expanduser()
        self.folder = self.shared / "processes" / (hashlib.sha256(job.encode()).hexdigest()[:12] if job else "")
        self.place = self.folder / name
        self.start = time.monotonic()
        self._heard: dict[int, tuple[str, float]] = {}
        self._facts: dict[str, Any] = {}
        self._came = (0, 0)  # before everybody, as long as there is nothing to agree on
        with disk_errors(self.place):
            self.place.mkdir(parents=True, exist_ok=True)
        _live(self.folder, self.processes, self.shared)
        if self.processes.connected:
            self._see_everybody()
        self.start = time.monotonic()

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def others(self) -> list[int]:
        """All processes but this one."""
        return [one for one in range(self.processes.count) if one != self.processes.index]

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Make sure that all processes do the same: that the facts are those of each process that came before.

        Waits for nobody. A process that finds other facts is the one that is refused, if who wrote them is alive; what
        an earlier run left behind does not count.

        Args:
          facts: name -> plain value: fingerprints of inputs, options, versions.

        Raises:
          InputError: names the other process and each fact that differs.
        """
        self._facts = json.loads(json.dumps({**facts, "num_processes": self.processes.count}, sort_keys=True))
        place = self.place / f"{self.processes.index}.json"
        write_atomically(place, json.dumps({"facts": self._facts, "owner": _owner(), "life": _LIFE}).encode())
        self._came = place.stat().st_mtime_ns, self.processes.index
        self.check()

    def check(self) -> None:
        """Look again whether a process that came earlier has other facts: one that was too busy for signs of life may
        have been taken for one that had ended.

        Raises:
          InputError: as `agree`.
        """
        for path in sorted(self.place.glob("*.json")):
            if not path.stem.isdecimal() or (other := int(path.stem)) == self.processes.index:
                continue
            try:
                found, came = json.loads(path.read_text("utf-8")), (path.stat().st_mtime_ns, other)
                facts, owner, life = found["facts"], found["owner"], found["life"]
            except (OSError, ValueError, KeyError, TypeError):  # removed meanwhile, or damaged
                continue
            if facts != self._facts and came < self._came and _moves(self.folder, other, 10, life):
                raise checks.other_inputs(self.processes.index, other, owner, self._facts, facts)

    def silent(self, process: int) -> float:
        """Seconds since this process saw the last sign of life of another one; infinite where that one has ended.

        Raises:
          InputError: another process has the number of this one, which two that start together find out late.
        """
        if (twin := _twins.get(self.folder.resolve())) is not None:
            raise checks.twice_there(self.processes.index, self.processes.count, _named(twin), self.shared)
        now, beat = time.monotonic(), _beat(self.folder, process)
        if beat is None and process in self._heard:
            return float("inf")
        last, when = self._heard.get(process, ("", self.start))
        if beat is not None and beat != last:
            self._heard[process] = (beat, now)
            return 0.0
        return now - when

    def alive(self) -> list[int]:
        """The processes that give signs of life, this one included."""
        return sorted([self.processes.index, *(one for one in self.others if self.silent(one) < SILENCE)])

    def seen(self, process: int) -> bool:
        """Whether a process was in the folder at any time."""
        return (self.folder / f"{process}.seen").exists()

    def there(self, process: int) -> bool:
        """Whether a process has not ended in an orderly way."""
        return _beat(self.folder, process) is not None

    def _see_everybody(self) -> None:
        while absent := [one for one in self.others if not self.seen(one)]:
            waited = time.monotonic() - self.start
            if waited > 5 * SILENCE and absent == self.others:
                raise checks.not_shared(self.shared, absent, waited)
            if waited > 5 * SILENCE:
                return  # somebody died on the way here: see `Watch`
            time.sleep(0.1)


_lives: dict[pathlib.Path, Processes] = {}

_twins: dict[pathlib.Path, str] = {}
"""Signs of life of others with the number of this process, of which this one is to end."""


def _live(folder: pathlib.Path, processes: Processes, shared: pathlib.Path) -> None:
    """Give signs of life in a folder from now on until the process ends; once a folder."""
    folder = folder.resolve()
    if folder in _lives:
        return
    if _moves(folder, processes.index, 4):
        owner = (folder / f"{processes.index}.seen").read_text("utf-8")
        raise checks.twice_there(processes.index, processes.count, owner, shared)
    write_atomically(folder / f"{processes.index}.seen", _owner().encode())
    _lives[folder] = processes
    ended = threading.Event()
    own = folder / f"{processes.index}.alive"

    def sign(number: int) -> None:
        with contextlib.suppress(Exception):  # a full disk is the run's business
            write_atomically(own, f"{_owner()} {_LIFE} {number}".encode())

    def beat() -> None:
        number = 1
        while not ended.wait(BEAT):
            if (found := _beat(folder, processes.index)) is not None and _life(found) < _LIFE:
                _twins[folder] = found
            sign(number)
            number += 1

    def end() -> None:
        ended.set()
        thread.join()
        if processes.connected:
            _disconnect(folder, processes)
        with contextlib.suppress(OSError):
            own.unlink(missing_ok=True)

    sign(0)
    thread = threading.Thread(target=beat, name="signs of life", daemon=True)
    thread.start()
    atexit.register(end)


def _disconnect(folder: pathlib.Path, processes: Processes) -> None:
    """Process 0 carries the connection, without which JAX ends the others: it leaves last. Where processes do not
    survive one another, JAX itself makes them leave together."""
    import jax

    if not getattr(jax.config, "jax_enable_recoverability", False):
        return
    if not processes.lead:
        with contextlib.suppress(Exception):
            jax.distributed.shutdown()
        return
    limit = time.monotonic() + SILENCE
    beats = {one: (_beat(folder, one), time.monotonic()) for one in range(1, processes.count)}
    while beats and time.monotonic() < limit:
        time.sleep(0.1)
        now = time.monotonic()
        for one, (last, when) in [*beats.items()]:
            found = _beat(folder, one)
            if found is None or (found == last and now - when > 5 * BEAT):
                del beats[one]
            elif found != last:
                beats[one] = (found, now)


def _beat(folder: pathlib.Path, process: int) -> str | None:
    """The last sign of life of a process, or None. Read anew: file systems may keep times and sizes of files."""
    try:
        return (folder / f"{process}.alive").read_text("utf-8")
    except OSError:
        return None


def _moves(folder: pathlib.Path, process: int, beats: int, life: str | None = None) -> bool:
    """Whether a process, that of the life where one is given, gives signs of life; takes the time of so many where
    there is an old one."""
    first, limit = _beat(folder, process), time.monotonic() + beats * BEAT
    if first is None or _ended_here(first) or life not in (None, _life(first)):
        return False
    while time.monotonic() < limit:
        time.sleep(BEAT / 10)
        if (found := _beat(folder, process)) != first:
            return found is not None and life in (None, _life(found))
    return False


def _life(beat: str) -> str:
    """Of which life a sign is; empty in what is none."""
    return (["", "", *beat.split()])[-2]


def _named(beat: str) -> str:
    """Who gave a sign of life, for messages."""
    return beat.rsplit(maxsplit=2)[0]


def _ended_here(beat: str) -> bool:
    """Whether a sign of life is of a process of this machine that runs no more."""
    words = beat.split()
    if words[-3:-2] != [socket.gethostname()] or not words[2].isdecimal():
        return False
    try:
        os.kill(int(words[2]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _owner() -> str:
    return f"process id {os.getpid()} on {socket.gethostname()}"
