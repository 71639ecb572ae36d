"""Options of the commands that several processes can share out."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tdd.processes import Processes

__all__ = ["add_processes", "join", "leads"]


def add_processes(parser: Any) -> None:
    """How a process learns that it is one of several."""
    group = parser.add_argument_group(
        "several processes",
        "the same command in each; they share finished work through the output folder, and who can write that folder "
        "must be trusted",
    )
    group.add_argument(
        "--distributed",
        action="store_true",
        help="connect through jax.distributed, with everything from the environment: SLURM, Open MPI, Kubernetes, or "
        "JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID",
    )
    group.add_argument(
        "--coordinator",
        metavar="HOST:PORT",
        help="connect through jax.distributed; process 0 listens here, and anybody who reaches the port can join: it "
        "has no authentication, so a firewall must admit the processes of the run alone",
    )
    group.add_argument(
        "--num-processes",
        type=int,
        metavar="N",
        help="how many there are; without --coordinator they share nothing but the folder",
    )
    group.add_argument("--process-id", type=int, metavar="I", help="which one this is, from 0")


def join(arguments: argparse.Namespace) -> Processes:
    """Make this process one of several where the options of `add_processes` say so. Call it before JAX is used."""
    import os

    from tdd.processes import Processes, current, initialize

    connect = arguments.distributed or arguments.coordinator is not None
    if not connect and arguments.num_processes is None and arguments.process_id is None:
        import sys

        return current() if "jax" in sys.modules else Processes()
    return initialize(
        arguments.coordinator,
        arguments.num_processes,
        arguments.process_id,
        connect=connect,
        survive=not getattr(arguments, "shard_params", False),
        job=os.path.abspath(arguments.out) if arguments.out else "",
    )


def leads(arguments: argparse.Namespace, processes: Processes) -> bool:
    """Whether this process writes and prints results; the others say that they are done."""
    if processes.lead:
        return True
    arguments.follows = True
    if not arguments.quiet:
        import sys

        print(
            f"tdd {arguments.command}: process {processes.index} of {processes.count} is done; process 0 writes the "
            "results",
            file=sys.stderr,
        )
    return False
