"""The devices of a model, and one program for all of them: every device has its own batch.

A device's part of the program has the shapes of a single device's program, whatever the number of devices; so the
numbers do not depend on it. The devices may be those of several processes that `jax.distributed` connects: then all of
them run the same programs with the same batches at the same time, and each gets all results.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from tdd.kernels.platforms import one_device
from tdd.placement import everywhere, partitions, put_shares, shard
from tdd.validate import InputError, is_memory_error
from tdd.validate.arrays import check_params, check_process, spans_processes

_AXIS = "data"


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a run. Hashable: a static argument of its programs."""

    devices: tuple[Any, ...]  # at least one
    shard_params: bool = False  # whether each holds a part of the parameters, rather than all of them

    def __len__(self) -> int:
        return len(self.devices)

    @property
    def platform(self) -> str:
        """ "cpu", "gpu" or "tpu"."""
        return self.devices[0].platform

    @property
    def home(self) -> Any:
        """The first device of this process."""
        return next(device for device in self.devices if device.process_index == jax.process_index())

    @property
    def spans(self) -> bool:
        """Whether some of them belong to other processes."""
        return any(device.process_index != jax.process_index() for device in self.devices)

    @property
    def leads(self) -> bool:
        """Whether this process writes the results: process 0 does, if several own these devices."""
        return not self.spans or jax.process_index() == 0

    @functools.cached_property
    def mesh(self) -> Mesh:
        """One axis over the devices."""
        return Mesh(np.array(self.devices), (_AXIS,), axis_types=(AxisType.Auto,))

    def put_params(self, params: Any) -> Any:
        """Parameters on the devices: whole on each, or sharded over them.

        Raises:
          InputError: they do not fit, none of them can be sharded, or one is no array, was deleted or is traced.
        """
        check_params(params, "tdd.token_stats")
        try:
            if self.shard_params:
                cuts = jax.tree.leaves(partitions(params, self.mesh), is_leaf=lambda x: isinstance(x, PartitionSpec))
                if not any(any(name is not None for name in cut) for cut in cuts):
                    raise InputError(
                        f"shard_params=True: no parameter has an axis that {len(self)} devices divide, so each would "
                        "hold the whole model; use a number of devices that divides the width of the model, or leave "
                        "shard_params out"
                    )
                placed = shard(params, self.mesh)
            else:
                whole = NamedSharding(self.mesh, PartitionSpec())
                own = jax.tree.map(_held_here, params)
                placed = jax.device_put(own, whole if len(self) > 1 else self.devices[0])
            return jax.block_until_ready(placed)
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            if not is_memory_error(error):
                raise
            size = sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(params))
            raise parameters_too_large(self.devices, sharded=self.shard_params, num_bytes=size) from error

    def put(self, arrays: Sequence[Any]) -> Any:
        """One array for each device; several lie side by side along a new first axis."""
        if len(self) == 1:
            return jax.device_put(arrays[0], self.devices[0])
        return put_shares(np.stack(arrays), NamedSharding(self.mesh, PartitionSpec(_AXIS)))

    def fetch(self, array: jax.Array) -> list[np.ndarray]:
        """The part of each device."""
        if len(self) == 1:
            return [np.asarray(array)]
        return list(np.asarray(everywhere(array).addressable_data(0) if self.spans else array))

    def each(self, function: Callable[..., Any], params: Any, *arrays: Any) -> Any:
        """`function(params, *arrays)` on every device, with the arrays of that device; for use under jit."""
        function = _on_these_devices(one_device()(function))
        if len(self) == 1:
            return function(params, *arrays)
        cuts: Any = PartitionSpec()
        if self.shard_params:
            cuts = partitions(params, self.mesh)
            from tdd.scoring.gathering import gathering

            function = gathering(function, cuts, len(self))

        def on_device(params: Any, *arrays: Any) -> Any:
            return jax.tree.map(lambda x: x[None], function(params, *jax.tree.map(lambda x: x[0], arrays)))

        parts = tuple(PartitionSpec(_AXIS) for _ in arrays)
        return jax.shard_map(
            on_device, mesh=self.mesh, in_specs=(cuts, *parts), out_specs=PartitionSpec(_AXIS), check_vma=False
        )(params, *arrays)


def _on_these_devices(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, refused where its results lie over a mesh with explicit axes, which the model itself names."""

    def checked(*arguments: Any) -> Any:
        found = function(*arguments)
        if any(AxisType.Explicit in jax.typeof(leaf).sharding.mesh.axis_types for leaf in jax.tree.leaves(found)):
            raise InputError(
                "the model names a mesh of its own, and scores are computed on the devices of device= or devices=; "
                "leave out_sharding out of its function, or call tdd.token_stats and tdd.grad_norms in that mesh"
            )
        return found

    return checked


def _find_device(device: Any) -> Any:
    """A `jax.Device`, "cpu", "gpu:1" and the like; None is the first device of this process."""
    if device is None:
        return jax.local_devices()[0]
    if isinstance(device, jax.Device):
        return device
    platform, _, index = str(device).partition(":")
    try:
        return dict(enumerate(jax.local_devices(backend=platform)))[int(index or 0)]
    except (RuntimeError, ValueError, KeyError) as error:
        existing = ", ".join(map(str, jax.devices()))
        raise InputError(f"device={device!r} is not available; JAX sees {existing}") from error


def find_devices(device: Any = None, devices: Any = None, *, shard_params: bool = False) -> Devices:
    """The devices that the arguments `device`, `devices` and `shard_params` of `tdd.score` mean.

    Parameters are sharded over the devices of all processes that `jax.distributed` connects, an equal number of each;
    everything else runs on those of this process.

    Raises:
      InputError: a process that was forked from one that computed; devices that do not exist, twice the same, of
        several kinds; a single device to shard parameters over.
    """
    check_process()
    if device is not None and devices is not None and (not isinstance(device, str) or ":" in device):
        raise InputError(
            f"device={str(device)!r} is one device and devices={devices!r} asks for several; leave one of them out"
        )
    over_processes = shard_params and jax.process_count() > 1
    if devices is None and not over_processes:
        chosen = (_find_device(device),)
    elif isinstance(devices, (list, tuple, np.ndarray)) and all(isinstance(x, jax.Device) for x in devices):
        chosen = tuple(devices)
        if not chosen or len(set(chosen)) < len(chosen) or len({x.platform for x in chosen}) > 1:
            listing = ", ".join(map(str, chosen)) or "nothing"
            raise InputError(f"devices must be different devices of one kind, at least one; it has {listing}")
    else:
        local = jax.local_devices(backend=_find_device(device).platform)
        existing = jax.devices(local[0].platform) if over_processes else local
        chosen = tuple(existing[: _count_of("all" if devices is None else devices, existing)])
        counts = [sum(x.process_index == process for x in chosen) for process in range(jax.process_count())]
        if over_processes and len(set(counts)) > 1:
            raise InputError(
                f"shard_params=True shares the parameters out over an equal number of devices of each process, but "
                f"{len(counts)} processes have {', '.join(map(str, counts))} of the {len(chosen)} devices; leave "
                "devices out to take all"
            )
    if all(x.process_index != jax.process_index() for x in chosen):
        raise InputError(
            f"device={str(chosen[0])!r} belongs to process {chosen[0].process_index}, and this is process "
            f"{jax.process_index()}; choose among jax.local_devices()"
        )
    if shard_params and len(chosen) < 2:
        raise InputError(
            "shard_params=True shares the parameters out over several devices, but only one is used; pass "
            "devices='all' or a number of at least 2, or leave shard_params out"
        )
    return Devices(chosen, bool(shard_params))


def _held_here(leaf: Any) -> Any:
    """What this process holds of an array that others hold too: all of it, where each has a copy.

    Raises:
      InputError: each process holds a part.
    """
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return leaf
    if spans_processes(leaf):
        raise InputError(
            "params are spread over the devices of several processes: pass shard_params=True to score them so, or "
            "call tdd.token_stats under jax.jit"
        )
    return leaf.addressable_data(0)


def parameters_too_large(devices: Sequence[Any], *, sharded: bool, num_bytes: int | None = None) -> InputError:
    """The error for parameters that do not fit into the memory of a device."""
    part, hint = ("a part", "more devices") if sharded else ("all", "shard_params=True with several devices")
    size = "" if num_bytes is None else f", {num_bytes / 2**30:.2f} GiB,"
    return InputError(
        f"the parameters{size} do not fit: each of {', '.join(map(str, devices))} must hold {part} of them; use "
        f"dtype='bfloat16' where they are stored wider, or {hint}"
    )


def _count_of(devices: Any, existing: Sequence[Any]) -> int:
    """A number of devices, at least one and no more than there are."""
    if devices == "all":
        return len(existing)
    if isinstance(devices, str) and devices.isdecimal():
        devices = int(devices)
    if isinstance(devices, bool) or not isinstance(devices, (int, np.integer)):
        raise InputError(
            f"devices={devices!r} cannot be used; give a number, 'all', or a sequence of different jax.Device objects"
        )
    if not 1 <= devices <= len(existing):
        on_cpu = existing[0].platform == "cpu"
        hint = "; JAX_NUM_CPU_DEVICES=N makes a CPU appear as N devices" if on_cpu else ""
        listing = ", ".join(map(str, existing))
        raise InputError(f"devices={devices} must be at least 1 and at most {len(existing)}; JAX sees {listing}{hint}")
    return int(devices)


def check_not_in_step(shard: Any, *, spans: bool) -> None:
    """Check that a shard is not one of several processes that compute in step."""
    if shard is not None and spans:
        raise InputError(
            f"shard={shard} and shard_params over several processes exclude each other: processes that hold one model "
            "between them compute every batch together; leave shard out, or give each process a model of its own"
        )


def check_alike(facts: Mapping[str, Any]) -> None:
    """Compare the facts of all processes, which call it together: different batches would make them wait for ever.

    Raises:
      InputError: in all of them, if one has other facts than process 0.
    """
    texts = [json.dumps([name, value], sort_keys=True, default=str) for name, value in facts.items()]
    digests = np.stack([np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8) for text in texts])
    everyone = gathered(digests)
    same = (everyone == everyone[0]).all(axis=-1)
    names = np.array([*facts])
    differing = [f"process {i}: {', '.join(names[~row])}" for i, row in enumerate(same) if not row.all()]
    if differing:
        raise InputError(
            f"process {jax.process_index()}: other processes were not given the same inputs as process 0: "
            f"{'; '.join(differing)}. All processes of a run take the same command and the same files, and share their "
            "output folder"
        )


def gathered(array: np.ndarray) -> np.ndarray:
    """[processes, ...]: the array of each process."""
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array))
