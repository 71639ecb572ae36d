"""Which process this is, and of how many."""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import logging
import os
import socket
import threading
import time

from tdd.validate import processes as checks

__all__ = ["Processes", "current", "initialize"]

_CONNECT = 300
"""Seconds that processes wait for one another at the start."""

_QUIET = 15.0
"""Seconds between two words about it."""

_ALONE = "process %d: waiting for the other processes to connect; JAX ends this one if they have not come after %d s"

_EVERYWHERE = (
    "coordinator=%s is no address of this host: process 0 listens at port %s of all its addresses, without a password; "
    "let a firewall admit the other processes alone"
)

_logger = logging.getLogger("tdd")


@dataclasses.dataclass(frozen=True)
class Processes:
    """This process among those of a run.

    Attributes:
      index: of this process, from 0.
      count: of all processes.
      connected: whether `jax.distributed` connects them.
      job: name that tells these processes from those of other jobs that use the same store.
    """

    index: int = 0
    count: int = 1
    connected: bool = False
    job: str = ""

    @property
    def lead(self) -> bool:
        """Whether this is the process that writes results and shows progress: process 0."""
        return self.index == 0

    def owns(self, number: int) -> bool:
        """Whether this process computes the piece with that number: round robin, so that the load is even."""
        return number % self.count == self.index

    def owner(self, number: int) -> int:
        """The process that computes the piece with that number."""
        return number % self.count


_given: Processes | None = None


def current() -> Processes:
    """What `initialize` or `jax.distributed.initialize` has made of this process; else the only one of its run."""
    if _given is not None:
        return _given
    import jax

    if not jax.distributed.is_initialized():
        return Processes()
    return Processes(jax.process_index(), jax.process_count(), connected=True)


def initialize(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    connect: bool = True,
    survive: bool = True,
    job: str = "",
) -> Processes:
    """Make this process one of several. Call it before JAX computes anything.

    Args:
      coordinator: HOST:PORT at which process 0 listens for the others; else the variable JAX_COORDINATOR_ADDRESS. It
        listens at that address alone, but anybody who reaches the port can join: there is no authentication, so let a
        firewall admit the processes of the run and nobody else. Where JAX itself detects the coordinator, it listens at
        all addresses of the host.
      num_processes: how many there are; else the variable JAX_NUM_PROCESSES.
      process_id: which one this is, from 0; else the variable JAX_PROCESS_ID. What is given nowhere comes from JAX's
        own detection (SLURM, Open MPI, Kubernetes, Cloud TPU).
      connect: connect through `jax.distributed`. Without, `num_processes` and `process_id` are all there is: the
        processes meet in their shared folder alone and none depends on another, process 0 included; parameters
        cannot be shared out over hosts then.
      survive: processes live on when another one dies, and a dead one may join again; for work that needs no
        communication. Without, JAX ends all of them when one dies, instead of letting them wait for it for ever.
        Process 0 carries the connection: where it dies, JAX ends the others in either case.
      job: any name, the same in all of these processes, for several jobs that use one store at once.

    Returns:
      This process.

    Raises:
      InputError: numbers that do not fit, a coordinator that does not answer, a second call, a call after JAX has
        computed something, or nothing to detect.
    """
    global _given
    coordinator = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS") or None
    count = checks.check_number("num_processes", num_processes, "JAX_NUM_PROCESSES")
    index = checks.check_number("process_id", process_id, "JAX_PROCESS_ID")
    checks.check_processes(coordinator, count, index, connect=connect)
    checks.check_first(_given)
    if not connect:
        _given = Processes(index or 0, count or 1, job=job)
        return _given
    import jax

    if jax.distributed.is_initialized():
        raise checks.initialized_twice()
    if coordinator is not None and index:
        _wait_for(coordinator, index)
    bind = _bind_address(coordinator) if coordinator is not None and index == 0 else None
    jax.config.update("jax_enable_recoverability", survive)
    jax.config.update("jax_enable_preemption_service", False)  # it would keep a process alive that is told to end
    alone = threading.Timer(_QUIET, _logger.warning, (_ALONE, index or 0, _CONNECT))
    alone.daemon = True
    alone.start()
    try:
        jax.distributed.initialize(
            coordinator, count, index, initialization_timeout=_CONNECT, coordinator_bind_address=bind
        )
    except (ValueError, RuntimeError) as error:
        raise checks.not_initialized(error, coordinator) from error
    finally:
        alone.cancel()
    _given = Processes(jax.process_index(), jax.process_count(), connected=True, job=job)
    return _given


def _bind_address(coordinator: str) -> str:
    """Where process 0 listens: at the coordinator's address alone.

    At all addresses of this host where the coordinator's is none of them, as that of a service in front of it, or where
    its name means this host's loopback here and another address on the other hosts.
    """
    if given := os.environ.get("JAX_COORDINATOR_BIND_ADDRESS"):
        return given
    host, _, port = coordinator.rpartition(":")
    for address in _addresses(host.strip("[]")):
        if _is_own(address, int(port), coordinator):
            return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    _is_own("", int(port), coordinator)
    _logger.warning(_EVERYWHERE, coordinator, port)
    return f"[::]:{port}"


def _addresses(host: str) -> list[str]:
    """What a host's name means here, but for a loopback that its name does not say."""
    try:
        found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError:
        return []
    local = host == "localhost" or host in found
    return [address for address in found if local or not ipaddress.ip_address(address).is_loopback]


def _is_own(address: str, port: int, coordinator: str) -> bool:
    """Whether this host can listen there. Where somebody does already, JAX itself may crash."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            own.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return False
            raise checks.port_taken(coordinator) from error
    return True


def _wait_for(coordinator: str, index: int) -> None:
    """Until somebody listens at the address: JAX itself would end the process without a word about it."""
    host, _, port = coordinator.rpartition(":")
    start = told = time.monotonic()
    while True:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=5) as found:
                if found.getsockname() == found.getpeername():  # TCP: a free port of this host may reach itself
                    raise ConnectionRefusedError("the connection led back to this process")
            return
        except OSError as error:
            now = time.monotonic()
            if now - start > _CONNECT:
                raise checks.no_coordinator(coordinator, now - start, error) from error
            if now - told > _QUIET:
                told = now
                _logger.warning(
                    "process %d: nobody listens at %s yet (process 0 does, once it runs)", index, coordinator
                )
            time.sleep(0.2)
