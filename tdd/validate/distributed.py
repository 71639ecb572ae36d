"""Checks of processes that `jax.distributed` connects: their numbers, their address, and that all do the same."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tdd.validate.errors import InputError

__all__ = [
    "check_address",
    "check_not_in_step",
    "check_number",
    "check_numbers",
    "inputs_differ",
    "no_coordinator",
    "not_initialized",
    "out_of_memory_in_step",
    "port_taken",
]


def check_number(name: str, value: int | None, variable: str) -> int | None:
    """A whole number as given, else from the environment."""
    found = os.environ.get(variable)
    if value is not None or not found:
        return value
    try:
        return int(found)
    except ValueError:
        raise InputError(f"the variable {variable} is {found!r}; it must be a whole number, as {name}") from None


def check_numbers(count: int | None, index: int | None) -> None:
    """Both or neither, and in range."""
    if (count is None) != (index is None):
        lacking, there = ("process_id", "num_processes") if index is None else ("num_processes", "process_id")
        raise InputError(f"{there} is given and {lacking} is not; give both, or neither and let JAX detect them")
    if count is not None and count < 1:
        raise InputError(f"num_processes={count} must be at least 1")
    if count is not None and index is not None and not 0 <= index < count:
        raise InputError(f"process_id={index} must be at least 0 and less than num_processes={count}")


def check_address(coordinator: str | None, count: int | None) -> None:
    """HOST:PORT, beside the numbers."""
    if coordinator is None:
        if count is not None:
            raise InputError(
                "num_processes and process_id are given without coordinator, the HOST:PORT of process 0; to give each "
                "process a part of the work without a connection, use shard=I/N"
            )
        return
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise InputError(f"coordinator={coordinator!r} must be HOST:PORT, as in node01:12345")
    if count is None:
        raise InputError(f"coordinator={coordinator!r} needs num_processes and process_id beside it")


def check_not_in_step(shard: Any, *, spans: bool) -> None:
    """A shard computes alone."""
    if shard is not None and spans:
        raise InputError(
            f"shard={shard} and shard_params over several processes exclude each other: processes that hold one model "
            "between them compute every batch together; leave shard out, or give each process a model of its own"
        )


def not_initialized(error: BaseException, coordinator: str | None = None) -> InputError:
    """What JAX says, and what helps."""
    if "before any JAX" in str(error):
        return InputError("JAX has computed something already; call jax.distributed.initialize before anything else")
    if "only be called once" in str(error):
        return InputError("jax.distributed connects this process already; leave out --coordinator and --distributed")
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
