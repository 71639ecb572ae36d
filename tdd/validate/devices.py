"""Checks of devices and meshes: how many there are, and what parameters can be shared out over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.sharding import AxisType, Mesh

from tdd.validate.errors import InputError

__all__ = [
    "check_device_count",
    "check_mesh",
    "check_one_place",
    "check_shard_params",
    "check_tensor_read",
    "no_device",
]


def no_device(device: Any, existing: Sequence[str]) -> InputError:
    """A device that JAX does not see."""
    return InputError(f"device={device!r} is not available; JAX sees {', '.join(existing)}")


def check_device_count(devices: Any, existing: Sequence[Any]) -> None:
    """How many devices, as a number: at least one, and no more than there are."""
    if isinstance(devices, bool) or not isinstance(devices, (int, np.integer)):
        raise InputError(
            f"devices={devices!r} cannot be used; give a number, 'all', or a sequence of different jax.Device objects"
        )
    if not 1 <= devices <= len(existing):
        hint = ""
        if existing and existing[0].platform == "cpu":
            hint = "; XLA_FLAGS=--xla_force_host_platform_device_count=N makes the CPU appear as N devices"
        raise InputError(
            f"devices={devices} must be at least 1 and at most {len(existing)}: JAX sees "
            f"{', '.join(str(found) for found in existing)}{hint}"
        )


def check_one_place(device: Any, devices: Any) -> None:
    """One way to say where the model runs."""
    if device is not None and devices is not None and not isinstance(device, str):
        raise InputError(f"device={device} and devices={devices} were both given; give one of them")


def check_shard_params(num_devices: int) -> None:
    """Sharing parameters out needs somebody to share with."""
    if num_devices < 2:
        raise InputError(
            "shard_params=True shares the parameters out over several devices, but there is one; pass devices='all' "
            "or a number of at least 2, or leave shard_params out"
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


def check_tensor_read(found: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """What was read has the shape that was announced."""
    if found.shape != tuple(shape):
        raise InputError(
            f"a tensor that should have the shape {list(shape)} was read with {list(found.shape)}; the file changed "
            "while it was being read, or its header is wrong"
        )
    return found
