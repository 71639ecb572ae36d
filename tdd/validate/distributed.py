"""Checks of processes that `jax.distributed` connects: their numbers, their address, and that all do the same."""

from __future__ import annotations

from typing import Any

from tdd.validate.errors import InputError

__all__ = [
    "check_not_in_step",
    "out_of_memory_in_step",
]


def check_not_in_step(shard: Any, *, spans: bool) -> None:
    """A shard computes alone."""
    if shard is not None and spans:
        raise InputError(
            f"shard={shard} and shard_params over several processes exclude each other: processes that hold one model "
            "between them compute every batch together; leave shard out, or give each process a model of its own"
        )


def out_of_memory_in_step(rows: int, length: int) -> InputError:
    """Processes that compute in step cannot each go on with smaller batches."""
    return InputError(
        f"out of memory in a batch of {rows} rows of {length} tokens; give all processes a smaller token_budget"
    )
