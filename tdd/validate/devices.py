"""Checks of devices and meshes: how many there are, and what parameters can be shared out over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tdd.validate.errors import InputError

__all__ = [
    "parameters_too_large",
]


def parameters_too_large(devices: Sequence[Any], *, sharded: bool, num_bytes: int | None = None) -> InputError:
    """Parameters for which a device has no memory."""
    share = "a share of them" if sharded else "all of them"
    hint = "more devices" if sharded else "shard_params=True with several devices"
    size = "" if num_bytes is None else f", {num_bytes / 2**30:.2f} GiB,"
    return InputError(
        f"the parameters{size} do not fit: each of {', '.join(map(str, devices))} must hold "
        f"{share}; use dtype='bfloat16' where they are stored wider, or {hint}"
    )
