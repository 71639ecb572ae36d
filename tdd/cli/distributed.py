"""The connection of processes that hold one model between them: `--shard-params` over `jax.distributed`."""

from __future__ import annotations

import argparse
import errno
import os
import socket
import time
from collections.abc import Sequence

from tdd.validate import InputError

_TIMEOUT = 300
"""Seconds that processes wait for one another at the start."""


def connect_processes(arguments: argparse.Namespace, given: Sequence[str]) -> None:
    """See `tdd.cli.options.connect`; `given` are the options that were given."""
    if not arguments.shard_params:
        raise InputError(
            f"--{given[0].replace('_', '-')} connects processes that hold one model between them, with --shard-params; "
            "to give each process a part of the work, start the same command with --shard 0/N, --shard 1/N, ..."
        )
    if arguments.shard is not None:
        from tdd.scoring.devices import check_not_in_step

        check_not_in_step(arguments.shard, spans=True)
    coordinator = arguments.coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS") or None
    count = _whole_number("num_processes", arguments.num_processes, "JAX_NUM_PROCESSES")
    index = _whole_number("process_id", arguments.process_id, "JAX_PROCESS_ID")
    _check_place(coordinator, count, index)
    import jax

    if not jax.distributed.is_initialized() and coordinator is not None and index:
        _wait_for(coordinator)
    try:
        bind = _bind_address(coordinator) if coordinator is not None and index == 0 else None
        jax.config.update("jax_enable_preemption_service", False)  # it would keep a process alive that is told to end
        jax.distributed.initialize(
            coordinator, count, index, initialization_timeout=_TIMEOUT, coordinator_bind_address=bind
        )
    except (ValueError, RuntimeError) as error:
        raise _not_initialized(error, coordinator) from error


def _bind_address(coordinator: str) -> str | None:
    """The coordinator's address if process 0 can listen at it; by default JAX listens at all addresses of the host,
    without authentication. None if HOST resolves differently on other hosts, or names a service in front."""
    host, _, port = coordinator.rpartition(":")
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError:
        return None
    for family, *_, place in addresses:
        address = str(place[0])
        loopback = address == "::1" or address.startswith("127.")
        if loopback and host.strip("[]") not in ("localhost", address):
            continue  # the host's own name, as Debian has it in /etc/hosts
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(place)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:  # JAX itself may crash
                    raise _port_taken(coordinator) from error
                continue
        return f"[{address}]:{port}" if family == socket.AF_INET6 else f"{address}:{port}"
    return None


def _wait_for(coordinator: str) -> None:
    """Wait until the port is open; JAX itself would end the process without a message."""
    host, _, port = coordinator.rpartition(":")
    start = time.monotonic()
    while True:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=5) as connection:
                if (
                    connection.getsockname() == connection.getpeername()
                ):  # TCP: a free port of this host may reach itself
                    raise ConnectionRefusedError("the connection led back to this process")
            return
        except OSError as error:
            if (waited := time.monotonic() - start) > _TIMEOUT:
                raise InputError(
                    f"nobody listens at coordinator={coordinator} after {waited:.0f} s ({error}); process 0 must run "
                    "on that host, which the others must reach by that name and port"
                ) from error
            time.sleep(0.2)


def _whole_number(name: str, value: int | None, variable: str) -> int | None:
    """A whole number as given, else from the environment."""
    text = os.environ.get(variable)
    if value is not None or not text:
        return value
    try:
        return int(text)
    except ValueError:
        raise InputError(f"the variable {variable} is {text!r}; it must be a whole number, as {name}") from None


def _check_place(coordinator: str | None, count: int | None, index: int | None) -> None:
    """Both numbers or neither, in range; and HOST:PORT beside them."""
    if (count is None) != (index is None):
        lacking, there = ("process_id", "num_processes") if index is None else ("num_processes", "process_id")
        raise InputError(f"{there} is given and {lacking} is not; give both, or neither and let JAX detect them")
    if count is not None and count < 1:
        raise InputError(f"num_processes={count} must be at least 1")
    if count is not None and index is not None and not 0 <= index < count:
        raise InputError(f"process_id={index} must be at least 0 and less than num_processes={count}")
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


def _not_initialized(error: BaseException, coordinator: str | None = None) -> InputError:
    """JAX's message, with advice."""
    if "before any JAX" in str(error):
        return InputError("JAX has computed something already; call jax.distributed.initialize before anything else")
    if "only be called once" in str(error):
        return InputError("jax.distributed connects this process already; leave out --coordinator and --distributed")
    if "RPC server" in str(error) and coordinator is not None:
        return _port_taken(coordinator)
    return InputError(
        f"jax.distributed cannot start: {str(error).rstrip('.')}. Outside SLURM, Open MPI, Kubernetes (with "
        "jax[k8s]) and Cloud TPU, give coordinator, num_processes and process_id"
    )


def _port_taken(coordinator: str) -> InputError:
    """The error for a port that another program has."""
    return InputError(
        f"process 0 cannot listen at coordinator={coordinator}: another program has port "
        f"{coordinator.rpartition(':')[2]}, an earlier run for instance; end that, or give all processes another port"
    )
