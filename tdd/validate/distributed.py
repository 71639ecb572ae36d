"""Checks of processes that `jax.distributed` connects."""

from __future__ import annotations

from typing import Any

from tdd.validate.errors import InputError

__all__ = ["check_not_in_step"]


def check_not_in_step(shard: Any, *, spans: bool) -> None:
    """A shard computes alone."""
    if shard is not None and spans:
        raise InputError(
            f"shard={shard} and shard_params over several processes exclude each other: processes that hold one model "
            "between them compute every batch together; leave shard out, or give each process a model of its own"
        )
