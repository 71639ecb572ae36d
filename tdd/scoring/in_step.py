"""Processes that compute every batch side by side, because no host can hold all parameters of the model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from tdd.scoring.store.space import VALUE, Space
from tdd.validate.errors import InputError

__all__ = ["ReadOrCompute", "check_alike", "in_step"]


class ReadOrCompute(Protocol):
    """What `tdd.scoring.store.through.through` does, in one process, and `in_step` in several."""

    def __call__(
        self,
        space: Space | None,
        batches: Iterable[tuple[int, Any]],
        compute: Callable[[Iterator[tuple[int, Any]]], Iterator[tuple[int, Any, Sequence[np.ndarray]]]],
        keys_of: Callable[[Any], Sequence[bytes]],
        fields_of: Callable[[Any], Sequence[str]] = ...,
    ) -> Iterator[tuple[Any, Sequence[np.ndarray]]]:
        """Every batch with its rows, in any order."""
        ...


def check_alike(facts: Mapping[str, Any]) -> None:
    """Compare the facts of all processes. All call it together, before anything that takes all of them: processes with
    different models or batches would wait for one another for ever.

    Raises:
      InputError: in all of them, where one has other facts than process 0.
    """
    texts = [json.dumps([name, value], sort_keys=True, default=str) for name, value in facts.items()]
    digests = np.stack([np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8) for text in texts])
    found = _gathered(digests)
    same = (found == found[0]).all(axis=-1)
    names = [*facts]
    differing = {i: [names[j] for j in np.flatnonzero(~row)] for i, row in enumerate(same) if not row.all()}
    if differing:
        raise _inputs_differ(jax.process_index(), differing)


def in_step(
    space: Space | None,
    batches: Iterable[tuple[int, Any]],
    compute: Callable[[Iterator[tuple[int, Any]]], Iterator[tuple[int, Any, Sequence[np.ndarray]]]],
    keys_of: Callable[[Any], Sequence[bytes]],
    fields_of: Callable[[Any], Sequence[str]] = lambda batch: VALUE,
) -> Iterator[tuple[Any, Sequence[np.ndarray]]]:
    """As `tdd.scoring.store.through.through`; a batch is read where all processes have it, else computed by all.

    Process 0 keeps the results.
    """
    numbered = [*batches]
    there = np.zeros(len(numbered), bool)
    if space is not None:
        space.refresh()
        there[:] = [all(space.has(key, fields_of(batch)) for key in keys_of(batch)) for _, batch in numbered]
        there &= _gathered(there).all(axis=0)
        for place in np.flatnonzero(there):
            batch = numbered[place][1]
            yield batch, [space.read(key, fields_of(batch)) for key in keys_of(batch)]
    missing = [numbered[place] for place in np.flatnonzero(~there)]
    for _, batch, rows in compute(iter(missing)):
        if space is not None and jax.process_index() == 0:
            rows = space.append(keys_of(batch), rows, fields_of(batch))
        yield batch, rows
    if space is not None:
        space.flush()


def _gathered(array: np.ndarray) -> np.ndarray:
    """[processes, ...]: what each process gave."""
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array))


def _inputs_differ(index: int, differing: Mapping[int, Sequence[str]]) -> InputError:
    """Processes that compute in step, and were not given the same."""
    listing = "; ".join(f"process {one}: {', '.join(names)}" for one, names in differing.items())
    return InputError(
        f"process {index}: other processes were not given the same inputs as process 0: {listing}. All processes of a "
        "run take the same command and the same files, and share their output folder"
    )
