"""Stored tensors → parameters on the devices, one tensor in host memory at a time.

A parameter is allocated where it will stay and filled there: a layered one is a stack [L, ...] into which each layer
is written in place, so that neither a host nor a device ever holds the stack twice. Over a mesh of n devices, each
device holds a share of 1/n of every parameter with an axis that n divides; the layer axis is never cut, so that a
scan over layers can gather one layer at a time. Where the mesh spans several processes, each of them runs the same
calls with the same tensors and keeps the shares of its own devices.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from tdd.validate.errors import InputError

__all__ = ["Placement", "everywhere", "partition", "partitions", "put_shares", "shard"]


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where parameters go and in which type.

    Attributes:
      mesh: a mesh of one axis (`AxisType.Auto`) over which each parameter is shared out, or None for JAX's default
        device.
      dtype: of all parameters; None keeps each as it is stored.

    Raises:
      InputError: the mesh has another number of axes, or another type of axis.
    """

    mesh: Mesh | None = None
    dtype: Any = None

    def __post_init__(self) -> None:
        if self.mesh is not None:
            _check_mesh(self.mesh)

    @property
    def spans(self) -> bool:
        """Whether the mesh has devices of other processes; parameters may come with `cut(index)` then."""
        return self.mesh is not None and any(one.process_index != jax.process_index() for one in self.mesh.devices.flat)

    def single(self, shape: tuple[int, ...], dtype: Any, read: Callable[[], Any]) -> jax.Array:
        """A parameter that is one stored tensor.

        Args:
          shape: of the tensor.
          dtype: of the parameter where `self.dtype` is None: that of the tensor as stored.
          read: the tensor; called once. On CPU it may become the parameter without a copy: it must not change.

        Returns:
          The parameter, in `self.dtype` or in `dtype`; the devices convert it.

        Raises:
          InputError: `read` returns another shape.
        """
        sharding = self._sharding(shape, layered=False)
        put = _put(_check_tensor_read(read(), shape), sharding)
        target = np.dtype(dtype if self.dtype is None else self.dtype)
        return put if put.dtype == target else jax.block_until_ready(_cast(put, target, sharding))

    def stacked(self, num_layers: int, shape: tuple[int, ...], dtype: Any, read: Callable[[int], Any]) -> jax.Array:
        """A parameter that is one stored tensor a layer.

        Args:
          num_layers: L.
          shape: of one layer's tensor.
          dtype: of the parameter where `self.dtype` is None: the common one of the tensors as stored.
          read: layer -> its tensor; called once a layer, in order, each after the one before it is in its place.

        Returns:
          The parameter [L, *shape], in `self.dtype` or in `dtype`; the devices convert it.

        Raises:
          InputError: `read` returns another shape.

        Cost: on each device, its share of the stack and of one layer; on the host, one layer, or the shares of its
        devices where the mesh spans several processes.
        """
        target = np.dtype(dtype if self.dtype is None else self.dtype)
        whole = self._sharding((num_layers, *shape), layered=True)
        stack = _zeros((num_layers, *shape), target, whole)
        for layer in range(num_layers):
            put = _put(_check_tensor_read(read(layer), shape), self._layer_sharding(whole))
            stack = jax.block_until_ready(_write(stack, put, layer, whole))
            del put
            gc.collect(0)  # JAX lets go of what it copied from when garbage is collected, and not before
        return stack

    def _sharding(self, shape: tuple[int, ...], *, layered: bool) -> NamedSharding | None:
        return None if self.mesh is None else NamedSharding(self.mesh, partition(shape, self.mesh, layered=layered))

    def _layer_sharding(self, whole: NamedSharding | None) -> NamedSharding | None:
        return None if whole is None else NamedSharding(whole.mesh, PartitionSpec(*whole.spec[1:]))


def partition(shape: tuple[int, ...], mesh: Mesh, *, layered: bool) -> PartitionSpec:
    """The cut of one parameter over a mesh of one axis: its longest axis that the devices divide, the first of equals.

    Args:
      shape: of the parameter, with its layer axis where `layered`.
      mesh: the mesh.
      layered: whether the first axis runs over layers; it is never cut.

    Returns:
      Nowhere cut (every device holds the whole) where no axis can be: short vectors, odd sizes.
    """
    (name,) = mesh.axis_names
    candidates = [axis for axis in range(int(layered), len(shape)) if shape[axis] > 0 and shape[axis] % mesh.size == 0]
    if not candidates:
        return PartitionSpec()
    chosen = max(candidates, key=lambda axis: (shape[axis], -axis))
    return PartitionSpec(*(name if axis == chosen else None for axis in range(len(shape))))


def partitions(params: Any, mesh: Mesh) -> Any:
    """`partition` of every parameter; everything under the key "layers" has a leading layer axis.

    Args:
      params: a nested dict of arrays, or of anything with a shape.
      mesh: a mesh of one axis.
    """

    def cut(path: Any, leaf: Any) -> PartitionSpec:
        layered = any(getattr(entry, "key", None) == "layers" for entry in path)
        return partition(np.shape(leaf), mesh, layered=layered)

    return jax.tree_util.tree_map_with_path(cut, params)


def shard(params: Any, mesh: Mesh) -> Any:
    """Parameters in memory, shared out over a mesh as `partitions` says; leaves that already lie so are not moved.

    Args:
      params: a nested dict of arrays.
      mesh: a mesh of one axis.
    """
    _check_mesh(mesh)
    return jax.tree.map(lambda leaf, cut: put_shares(leaf, NamedSharding(mesh, cut)), params, partitions(params, mesh))


def put_shares(array: Any, sharding: NamedSharding) -> jax.Array:
    """An array that every process has whole, or that lies over the devices already, placed as `sharding` says."""
    whole = not isinstance(array, jax.Array) or array.is_fully_addressable
    if whole and not sharding.is_fully_addressable:
        given = np.asarray(array)
        return jax.make_array_from_callback(given.shape, sharding, lambda index: given[index])
    return jax.device_put(array, sharding)


def everywhere(array: jax.Array) -> jax.Array:
    """The whole array on every device of its mesh, so that each process can read it. All must call it together."""
    assert isinstance(array.sharding, NamedSharding)
    return _cast(array, array.dtype, NamedSharding(array.sharding.mesh, PartitionSpec()))


def _put(tensor: Any, sharding: NamedSharding | None) -> jax.Array:
    """The tensor on its devices, when this returns."""
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


def _check_tensor_read(found: Any, shape: tuple[int, ...]) -> Any:
    """What was read has the shape that was announced."""
    if found.shape != tuple(shape):
        raise InputError(
            f"a tensor that should have the shape {list(shape)} was read with {list(found.shape)}; the file changed "
            "while it was being read, or its header is wrong"
        )
    return found
