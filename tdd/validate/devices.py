"""Checks of devices and meshes: how many there are, and what parameters can be shared out over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.sharding import AxisType, Mesh

from tdd.validate.errors import InputError

__all__ = [
    "check_device_count",
    "check_device_list",
    "check_devices",
    "check_divisible",
    "check_equal_shares",
    "check_mesh",
    "check_one_place",
    "check_shard_params",
    "check_tensor_read",
    "no_device",
    "parameters_too_large",
]


def no_device(device: Any, existing: Sequence[str]) -> InputError:
    """A device that JAX does not see."""
    return InputError(f"device={device!r} is not available; JAX sees {', '.join(existing)}")


def check_devices(devices: Any) -> int | None:
    """A number of devices as it was written, None for all of them."""
    if devices == "all":
        return None
    if isinstance(devices, str) and devices.isdecimal():
        return int(devices)
    if isinstance(devices, bool) or not isinstance(devices, (int, np.integer)):
        raise InputError(
            f"devices={devices!r} cannot be used; give a number, 'all', or a sequence of different jax.Device objects"
        )
    return int(devices)


def check_device_count(count: int, existing: Sequence[Any]) -> None:
    """At least one device, and no more than there are."""
    if 1 <= count <= len(existing):
        return
    on_cpu = existing[0].platform == "cpu"
    hint = "; XLA_FLAGS=--xla_force_host_platform_device_count=N makes a CPU appear as N devices" if on_cpu else ""
    listing = ", ".join(map(str, existing))
    raise InputError(f"devices={count} must be at least 1 and at most {len(existing)}; JAX sees {listing}{hint}")


def check_device_list(devices: Sequence[Any]) -> tuple[Any, ...]:
    """Different devices of one kind."""
    found = tuple(devices)
    if not found or len(set(found)) < len(found) or len({device.platform for device in found}) > 1:
        listing = ", ".join(map(str, found)) or "nothing"
        raise InputError(f"devices must be different devices of one kind, at least one; it has {listing}")
    return found


def check_one_place(device: Any, devices: Any) -> None:
    """One way to say where the model runs: an index, or several devices."""
    if device is not None and devices is not None and (not isinstance(device, str) or ":" in device):
        raise InputError(
            f"device={str(device)!r} is one device and devices={devices!r} asks for several; leave one of them out"
        )


def check_shard_params(num_devices: int) -> None:
    """Sharing parameters out needs somebody to share with."""
    if num_devices < 2:
        raise InputError(
            "shard_params=True shares the parameters out over several devices, but only one is used; pass "
            "devices='all' or a number of at least 2, or leave shard_params out"
        )


def check_equal_shares(owners: Sequence[int], num_processes: int) -> None:
    """As many devices of each process."""
    counts = [owners.count(process) for process in range(num_processes)]
    if len(set(counts)) > 1:
        raise InputError(
            f"shard_params=True shares the parameters out over an equal number of devices of each process, but "
            f"{num_processes} processes have {', '.join(map(str, counts))} of the {len(owners)} devices; leave "
            "devices out to take all"
        )


def check_divisible(cuts: Sequence[tuple[Any, ...]], num_devices: int) -> None:
    """At least one parameter can be cut."""
    if not any(any(name is not None for name in cut) for cut in cuts):
        raise InputError(
            f"shard_params=True: no parameter has an axis that {num_devices} devices divide, so each would hold the "
            "whole model; use a number of devices that divides the width of the model, or leave shard_params out"
        )


def parameters_too_large(devices: Sequence[Any], *, sharded: bool, num_bytes: int | None = None) -> InputError:
    """Parameters for which a device has no memory."""
    share = "a share of them" if sharded else "all of them"
    hint = "more devices" if sharded else "shard_params=True with several devices"
    size = "" if num_bytes is None else f", {num_bytes / 2**30:.2f} GiB,"
    return InputError(
        f"the parameters{size} do not fit: each of {', '.join(map(str, devices))} must hold "
        f"{share}; use dtype='bfloat16' where they are stored wider, or {hint}"
    )


def check_mesh(mesh: Any) -> Mesh:
    """A mesh of one axis, over which arrays are partitioned automatically."""
    if not isinstance(mesh, Mesh):
        raise InputError(f"mesh is {type(mesh).__name__}; pass a jax.sharding.Mesh with one axis, or None")
    if len(mesh.axis_names) != 1:
        raise InputError(f"mesh has the axes {', '.join(map(repr, mesh.axis_names))}; it must have exactly one")
    if mesh.axis_types != (AxisType.Auto,):
        raise InputError(
            f"mesh has an axis of type {mesh.axis_types[0].name}; make it with jax.make_mesh(..., "
            "axis_types=(jax.sharding.AxisType.Auto,)): models that were not written for other types fail on them"
        )
    return mesh


def check_tensor_read(found: Any, shape: tuple[int, ...]) -> Any:
    """What was read has the shape that was announced."""
    if found.shape != tuple(shape):
        raise InputError(
            f"a tensor that should have the shape {list(shape)} was read with {list(found.shape)}; the file changed "
            "while it was being read, or its header is wrong"
        )
    return found
