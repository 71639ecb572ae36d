"""How the processes of a run share out its batches: each its own, or all in step, or one process alone."""

from __future__ import annotations

import collections
import hashlib
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from tdd.audit.mesh import Devices
from tdd.audit.store.space import VALUE, Space
from tdd.audit.store.through import through
from tdd.processes import Meeting, Processes, Watch, current
from tdd.validate import processes as checks

__all__ = ["Alone", "InStep", "Sharing", "Together", "sharing"]

_Batch = TypeVar("_Batch")
_Numbered = tuple[int, _Batch]
_Compute = Callable[[Iterator[tuple[int, Any]]], Iterator[tuple[int, Any, Sequence[np.ndarray]]]]

_LOOK = 2.0
"""Seconds between two looks at what the others have finished; more where a look takes long."""

_calls: collections.Counter[str] = collections.Counter()


class Sharing(Protocol):
    """What becomes of the batches of a run. `through` is `tdd.audit.store.through.through` of all processes."""

    processes: Processes

    def given(self, facts: Mapping[str, Any]) -> None:
        """Before models are read: make sure that all processes were given the same, where that is needed so early."""
        ...

    def planned(self, facts: Mapping[str, Any]) -> None:
        """Before anything is computed: make sure that all processes have the same models and the same plan.

        Raises:
          InputError: they do not.
        """
        ...

    def through(
        self,
        space: Space | None,
        batches: Iterable[_Numbered],
        compute: _Compute,
        keys_of: Callable[[Any], Sequence[bytes]],
        fields_of: Callable[[Any], Sequence[str]] = lambda batch: VALUE,
    ) -> Iterator[tuple[Any, Sequence[np.ndarray]]]:
        """Every batch with its rows, in any order."""
        ...


class Alone:
    """One process."""

    processes = Processes()
    through = staticmethod(through)

    def given(self, facts: Mapping[str, Any]) -> None:
        """Nothing to compare."""

    def planned(self, facts: Mapping[str, Any]) -> None:
        """Nothing to compare."""


class Together:
    """Each process computes the batches that it owns and reads the others' from the store that all share.

    Nobody depends on another: what a process does not deliver, the others compute, to the same bits.

    Args:
      processes: this process and how many there are.
      folder: of the store.
      name: of the call: where the processes meet in the folder.
    """

    def __init__(self, processes: Processes, folder: pathlib.Path, name: str) -> None:
        self.processes, self._folder, self._name = processes, folder, name

    def given(self, facts: Mapping[str, Any]) -> None:
        """Later is soon enough: see `planned`."""

    def planned(self, facts: Mapping[str, Any]) -> None:
        """A process that comes with other facts than those before it is refused."""
        meeting = Meeting(self._folder, self._name, self.processes, job=self.processes.job)
        meeting.agree(facts)
        self._watch = Watch(meeting)

    def through(
        self,
        space: Space | None,
        batches: Iterable[_Numbered],
        compute: _Compute,
        keys_of: Callable[[Any], Sequence[bytes]],
        fields_of: Callable[[Any], Sequence[str]] = lambda batch: VALUE,
    ) -> Iterator[tuple[Any, Sequence[np.ndarray]]]:
        """See `Sharing`."""
        assert space is not None
        left = dict(batches)
        looked = time.monotonic()

        def take(numbers: Iterable[int]) -> Iterator[tuple[Any, Sequence[np.ndarray]]]:
            mine = [(number, left.pop(number)) for number in numbers]
            yield from through(space, mine, compute, keys_of, fields_of)

        def arrived() -> Iterator[tuple[Any, Sequence[np.ndarray]]]:
            for number, batch in [*left.items()]:
                keys, fields = keys_of(batch), fields_of(batch)
                if all(space.has(key, fields) for key in keys):
                    del left[number]
                    yield batch, [space.read(key, fields) for key in keys]

        pause = _LOOK
        for found in take([number for number in left if self.processes.owns(number)]):
            yield found
            if (start := time.monotonic()) - looked > pause:
                space.refresh()
                yield from arrived()
                looked = time.monotonic()
                pause = max(_LOOK, 20 * (looked - start))
        while left:
            space.flush()
            space.refresh()
            yield from arrived()
            if left:
                yield from take(self._watch.wait([*left]))
        space.flush()


class InStep:
    """All processes compute every batch side by side on the devices of all of them; process 0 keeps the results.

    Args:
      processes: this process and how many there are, connected through `jax.distributed`.
    """

    def __init__(self, processes: Processes) -> None:
        self.processes = processes

    def given(self, facts: Mapping[str, Any]) -> None:
        """Processes that read different models could not even tell: they would wait for one another for ever."""
        self.planned(facts)

    def planned(self, facts: Mapping[str, Any]) -> None:
        """All processes are refused where one has other facts."""
        texts = [json.dumps([name, value], sort_keys=True, default=str) for name, value in facts.items()]
        digests = np.stack([np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8) for text in texts])
        found = _gathered(digests)
        same = (found == found[0]).all(axis=-1)
        names = [*facts]
        differing = {i: [names[j] for j in np.flatnonzero(~row)] for i, row in enumerate(same) if not row.all()}
        if differing:
            raise checks.inputs_differ(self.processes.index, differing)

    def through(
        self,
        space: Space | None,
        batches: Iterable[_Numbered],
        compute: _Compute,
        keys_of: Callable[[Any], Sequence[bytes]],
        fields_of: Callable[[Any], Sequence[str]] = lambda batch: VALUE,
    ) -> Iterator[tuple[Any, Sequence[np.ndarray]]]:
        """See `Sharing`. A batch is read where every process has it, and computed by all otherwise."""
        numbered = [*batches]
        there = np.zeros(len(numbered), bool)
        if space is not None:
            space.refresh()
            there[:] = [all(space.has(key, fields_of(batch)) for key in keys_of(batch)) for _, batch in numbered]
            there &= _gathered(there).all(axis=0)
            for place in np.flatnonzero(there):
                batch = numbered[place][1]
                yield batch, [space.read(key, fields_of(batch)) for key in keys_of(batch)]
        todo = [numbered[place] for place in np.flatnonzero(~there)]
        for _, batch, rows in compute(iter(todo)):
            if space is not None and self.processes.lead:
                rows = space.append(keys_of(batch), rows, fields_of(batch))
            yield batch, rows
        if space is not None:
            space.flush()


def _gathered(array: np.ndarray) -> np.ndarray:
    """[processes, ...]: what each process gave."""
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array))


def sharing(where: Devices, folder: str | os.PathLike[str] | None, kind: str, name: str) -> Sharing:
    """How the processes of a run share it out; an only process runs it alone.

    Args:
      where: the devices of the run.
      folder: that of the store, shared by all processes.
      kind: of the call, "score" for instance; all processes make the same calls in the same order.
      name: of the argument that gives the folder, for messages.

    Raises:
      InputError: there are several processes and no folder.
    """
    processes = current()
    if processes.count == 1:
        return Alone()
    if where.spans:
        return InStep(processes)
    place = checks.check_shared_folder(folder, processes.count, name)
    key = f"{place.resolve()} {kind}"
    _calls[key] += 1
    return Together(processes, place, f"{kind}-{_calls[key]}")
