"""Stored tensors → parameters on the devices, one tensor in host memory at a time.

A parameter is allocated on its devices and filled there: a layered one is a stack [L, ...] into which each layer is
written in place, so that neither a host nor a device ever holds the stack twice. Over a mesh of n devices, each device
holds 1/n of every parameter with an axis that n divides. The layer axis is never cut, so that a scan over layers can
gather one layer at a time. If the mesh spans several processes, each of them runs the same calls with the same tensors
and keeps the shards of its own devices.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from tdd.validate import InputError
from tdd.validate.arrays import check_process

_STACK = re.compile(r"layers(_from_\d+)?")
"""Names of stacks over layers."""

_ALIGNMENT = 64
"""Bytes, of arrays that JAX's CPU client takes as they are."""


@dataclasses.dataclass(frozen=True)
class Placement:
    """Devices and type of the parameters.

    Raises:
      InputError: The mesh has another number of axes, or another type of axis; a process that was forked from one that
        computed.
    """

    # a mesh of one axis (`AxisType.Auto`) over which each parameter is sharded, or None for JAX's default device
    mesh: Mesh | None = None
    dtype: Any = None  # type of all parameters; None keeps each as it is stored

    def __post_init__(self) -> None:
        check_process()
        if self.mesh is not None:
            _check_mesh(self.mesh)

    @property
    def spans(self) -> bool:
        """True if the mesh has devices of other processes; tensors may then come with `cut(index)`."""
        index = jax.process_index()
        return self.mesh is not None and any(device.process_index != index for device in self.mesh.devices.flat)

    def single(self, shape: tuple[int, ...], dtype: Any, read: Callable[[], Any]) -> jax.Array:
        """A parameter that is one stored tensor, in `self.dtype` or as stored, in `dtype`; the devices convert it.

        `read` is called once. On CPU the tensor may become the parameter without a copy: it must not change.

        Raises:
          InputError: `read` returns another shape.
        """
        sharding, tensor = self._sharding(shape, layered=False), read()
        target = np.dtype(dtype if self.dtype is None else self.dtype)
        if self._on_host:
            tensor = _converted(tensor, target)
        put = _put(tensor, shape, sharding)
        return put if put.dtype == target else jax.block_until_ready(_cast(put, target, sharding))

    def stacked(self, num_layers: int, shape: tuple[int, ...], dtype: Any, read: Callable[[int], Any]) -> jax.Array:
        """A parameter [L, *shape] that is a stack of one stored tensor per layer; its type is as of `single`.

        `read` gives the tensor of a layer; it is called in order, each time after the one before is in its place.

        Raises:
          InputError: `read` returns another shape.

        Cost: Each device holds its shard of the stack and of one layer; the host holds one layer, or the shards of its
        devices if the mesh spans several processes.
        """
        target = np.dtype(dtype if self.dtype is None else self.dtype)
        if self._on_host:
            return _stacked_on_host(num_layers, shape, target, read)
        sharding = self._sharding((num_layers, *shape), layered=True)
        of_layer = None if sharding is None else NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[1:]))
        stack = _zeros((num_layers, *shape), target, sharding)
        for layer in range(num_layers):
            put = _put(read(layer), shape, of_layer)
            stack = jax.block_until_ready(_write(stack, put, layer, sharding))
            del put
            gc.collect(0)  # JAX releases the source of a copy only when garbage is collected
        return stack

    @property
    def _on_host(self) -> bool:
        """Whether the device computes in the memory of the host, where nothing need be compiled to fill a parameter."""
        return self.mesh is None and jax.default_backend() == "cpu"

    def _sharding(self, shape: tuple[int, ...], *, layered: bool) -> NamedSharding | None:
        return None if self.mesh is None else NamedSharding(self.mesh, partition(shape, self.mesh, layered=layered))


def partition(shape: tuple[int, ...], mesh: Mesh, *, layered: bool) -> PartitionSpec:
    """The partition of one parameter over a mesh of one axis: along its longest axis that the devices divide.

    Args:
      shape: Shape of the parameter, with its layer axis if `layered`.
      mesh: The mesh.
      layered: True if the first axis runs over layers; it is never cut.

    Returns:
      An empty partition (every device holds the whole) if no axis can be cut: short vectors, odd sizes.
    """
    (name,) = mesh.axis_names
    candidates = [axis for axis in range(int(layered), len(shape)) if shape[axis] > 0 and shape[axis] % mesh.size == 0]
    if not candidates:
        return PartitionSpec()
    chosen = max(candidates, key=lambda axis: (shape[axis], -axis))
    return PartitionSpec(*(name if axis == chosen else None for axis in range(len(shape))))


def partitions(params: Any, mesh: Mesh) -> Any:
    """`partition` of every parameter; everything under "layers" or "layers_from_n" has a leading layer axis.

    Args:
      params: A nested dict of arrays, or of anything with a shape.
      mesh: A mesh of one axis.
    """

    def cut(path: Any, leaf: Any) -> PartitionSpec:
        layered = any(_STACK.fullmatch(str(getattr(entry, "key", ""))) for entry in path)
        return partition(np.shape(leaf), mesh, layered=layered)

    return jax.tree_util.tree_map_with_path(cut, params)


def shard(params: Any, mesh: Mesh) -> Any:
    """Shard parameters in memory over a mesh as `partitions` says; leaves that are already in place are not moved.

    Args:
      params: A nested dict of arrays.
      mesh: A mesh of one axis.
    """
    _check_mesh(mesh)
    return jax.tree.map(lambda leaf, cut: put_shares(leaf, NamedSharding(mesh, cut)), params, partitions(params, mesh))


def put_shares(array: Any, sharding: NamedSharding) -> jax.Array:
    """Place an array that every process has whole, or that lies on the devices already, as `sharding` says."""
    whole = not isinstance(array, jax.Array) or array.is_fully_addressable
    if whole and not sharding.is_fully_addressable:
        host = np.asarray(array)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
    return jax.device_put(array, sharding)


def everywhere(array: jax.Array) -> jax.Array:
    """The whole array on every device of its mesh, so that each process can read it. All must call it together."""
    assert isinstance(array.sharding, NamedSharding)
    return _cast(array, array.dtype, NamedSharding(array.sharding.mesh, PartitionSpec()))


def _stacked_on_host(num_layers: int, shape: tuple[int, ...], dtype: np.dtype, read: Callable[[int], Any]) -> jax.Array:
    """`Placement.stacked` in the memory of the host."""
    size = num_layers * math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT  # what is aligned becomes the parameter without a copy
    stack = memory[first : first + size].view(dtype).reshape(num_layers, *shape)
    for layer in range(num_layers):
        tensor = read(layer)
        _check_shape(tensor, shape)
        stack[layer] = _converted(tensor, dtype)
        del tensor  # before the next is read
    return jax.device_put(stack)


def _converted(tensor: Any, dtype: np.dtype) -> np.ndarray:
    """The tensor in another type, whose numbers may be too small for it; the caller looks for infinite ones."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return np.asarray(tensor).astype(dtype, copy=False)


def _check_shape(tensor: Any, shape: tuple[int, ...]) -> None:
    if tensor.shape != tuple(shape):
        raise InputError(
            f"a tensor that should have the shape {list(shape)} was read with {list(tensor.shape)}; the file changed "
            "while it was being read, or its header is wrong"
        )


def _put(tensor: Any, shape: tuple[int, ...], sharding: NamedSharding | None) -> jax.Array:
    """The tensor on its devices, complete when this returns."""
    _check_shape(tensor, shape)
    if sharding is not None and hasattr(tensor, "cut"):  # only slices of it are ever read
        return jax.block_until_ready(
            jax.make_array_from_callback(tensor.shape, sharding, lambda i: tensor.cut(i or ()))
        )
    return jax.block_until_ready(jax.device_put(tensor) if sharding is None else put_shares(tensor, sharding))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _zeros(shape: tuple[int, ...], dtype: np.dtype, sharding: NamedSharding | None) -> jax.Array:
    return _constrained(jnp.zeros(shape, dtype), sharding)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _cast(tensor: jax.Array, dtype: np.dtype, sharding: NamedSharding | None) -> jax.Array:
    return _constrained(tensor.astype(dtype), sharding)


@functools.partial(jax.jit, static_argnums=3, donate_argnums=0)
def _write(stack: jax.Array, tensor: jax.Array, layer: jax.Array, sharding: NamedSharding | None) -> jax.Array:
    written = jax.lax.dynamic_update_index_in_dim(stack, tensor.astype(stack.dtype), layer, 0)
    return _constrained(written, sharding)


def _constrained(value: jax.Array, sharding: NamedSharding | None) -> jax.Array:
    return value if sharding is None else jax.lax.with_sharding_constraint(value, sharding)


def _check_mesh(mesh: Any) -> Mesh:
    """A mesh of one automatically partitioned axis."""
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
