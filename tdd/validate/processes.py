"""Checks of processes: their numbers, their folder, and that all of them do the same."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tdd.validate.errors import InputError

__all__ = [
    "check_first",
    "check_number",
    "check_processes",
    "check_shared_folder",
    "initialized_twice",
    "inputs_differ",
    "no_coordinator",
    "not_initialized",
    "not_shared",
    "other_inputs",
    "out_of_memory_in_step",
    "port_taken",
    "twice_there",
]


def check_number(name: str, value: Any, variable: str) -> int | None:
    """A whole number as given, else from the environment."""
    source, found = (name, value) if value is not None else (f"the variable {variable}", os.environ.get(variable))
    if found is None or found == "":
        return None
    try:
        if isinstance(found, (bool, float)):
            raise ValueError
        return int(found)
    except (TypeError, ValueError):
        raise InputError(f"{source} is {found!r}; it must be a whole number") from None


def check_processes(coordinator: str | None, count: int | None, index: int | None, *, connect: bool) -> None:
    """Numbers that belong together, and an address with a port."""
    if (count is None) != (index is None):
        lacking, there = ("process_id", "num_processes") if index is None else ("num_processes", "process_id")
        raise InputError(f"{there} is given and {lacking} is not; give both, or neither and let JAX detect them")
    if count is not None and count < 1:
        raise InputError(f"num_processes={count} must be at least 1")
    if count is not None and index is not None and not 0 <= index < count:
        raise InputError(f"process_id={index} must be at least 0 and less than num_processes={count}")
    if not connect and count is None:
        raise InputError("num_processes and process_id are needed where the processes are not connected")
    if coordinator is not None:
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise InputError(f"coordinator={coordinator!r} must be HOST:PORT, as in node01:12345")
        if count is None and connect:
            raise InputError(f"coordinator={coordinator!r} needs num_processes and process_id beside it")
    elif connect and count is not None:
        raise InputError(
            "num_processes and process_id are given without a coordinator to connect to; give its HOST:PORT, or do "
            "without a connection"
        )


def check_first(given: Any) -> None:
    """Processes are told who they are once."""
    if given is not None:
        raise initialized_twice()


def initialized_twice() -> InputError:
    """A second call."""
    return InputError("this process is one of several already; call initialize once, and not beside jax.distributed's")


def not_initialized(error: BaseException, coordinator: str | None = None) -> InputError:
    """What JAX says, and what helps."""
    if "before any JAX" in str(error):
        return InputError("JAX has computed something already; initialize the processes before anything else")
    if "RPC server" in str(error) and coordinator is not None:
        return port_taken(coordinator)
    return InputError(
        f"jax.distributed cannot start: {str(error).rstrip('.')}. Outside SLURM, Open MPI, Kubernetes (with "
        "jax[k8s]) and Cloud TPU, give coordinator, num_processes and process_id"
    )


def port_taken(coordinator: str) -> InputError:
    """Another program listens there."""
    return InputError(
        f"process 0 cannot listen at coordinator={coordinator}: another program has port "
        f"{coordinator.rpartition(':')[2]}, an earlier run for instance; end that, or give all processes another port"
    )


def no_coordinator(coordinator: str, seconds: float, error: BaseException) -> InputError:
    """Process 0 did not come."""
    return InputError(
        f"nobody listens at coordinator={coordinator} after {seconds:.0f} s ({error}); process 0 must run on that "
        "host, which the others must reach by that name and port"
    )


def check_shared_folder(folder: Any, count: int, name: str) -> pathlib.Path:
    """Several processes need a folder."""
    if folder is None:
        raise InputError(
            f"{count} processes share this run out and need {name}, a folder that all of them can read and write: "
            "finished work passes from one to another through it. Where each is to work alone, call "
            "tdd.processes.initialize(num_processes=1, process_id=0, connect=False) first"
        )
    return pathlib.Path(folder).expanduser()


def not_shared(folder: Any, absent: Sequence[int], seconds: float) -> InputError:
    """Processes that should be in the folder and are not."""
    return InputError(
        f"{_named(absent)} did not appear in {folder} within {seconds:.0f} s; it must be one folder that all hosts "
        "share (as on NFS or Lustre), given to all processes alike; or look whether they failed"
    )


def twice_there(index: int, count: int, owner: str, folder: Any) -> InputError:
    """A number that is taken."""
    return InputError(
        f"process {index} of {count} runs already in {folder} ({owner}); give each process its own process_id, and "
        "another job on the same store an output or a job= of its own"
    )


def out_of_memory_in_step(rows: int, length: int) -> InputError:
    """Processes that compute in step cannot each go on with smaller batches."""
    return InputError(
        f"out of memory in a batch of {rows} rows of {length} tokens; give all processes a smaller token_budget"
    )


def inputs_differ(index: int, differing: Mapping[int, Sequence[str]]) -> InputError:
    """Processes that compute in step, and were not given the same."""
    listing = "; ".join(f"process {one}: {', '.join(names)}" for one, names in differing.items())
    return InputError(
        f"process {index}: other processes were not given the same inputs as process 0: {listing}. All processes of a "
        "run take the same command and the same files, and share their output folder"
    )


def other_inputs(index: int, other: int, owner: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> InputError:
    """A process that was given something else than another one, with what differs."""
    names = [name for name in {**theirs, **mine} if mine.get(name) != theirs.get(name)]
    listing = "; ".join(f"{name}: {_short(mine.get(name))} here, {_short(theirs.get(name))} there" for name in names)
    return InputError(
        f"process {index} was given other inputs than process {other} ({owner}): {listing}. All processes of a run "
        "take the same command and the same files; start process "
        f"{index} again with those of process {other}, which goes on"
    )


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _named(processes: Sequence[int]) -> str:
    return f"process{'' if len(processes) == 1 else 'es'} {', '.join(map(str, processes))}"
