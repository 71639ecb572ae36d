"""A function of whole parameters, computed from the shards that the devices hold: gathered late and layer by layer.

The function is traced with the whole shapes. A scan over a stack that is cut along another axis than the layers' runs
over the shards, and its body gathers the slice of one layer at a time; every other operation gathers what it reads. So
any model works, those of other libraries included; a model that scans over its layers never holds more than one of them
whole; and so do its derivatives, whose scans run over the same stacks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core
from jax import lax
from jax.extend.core import Jaxpr, Literal
from jax.sharding import PartitionSpec

_INLINED = frozenset({"jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint", "remat"})
"""Primitives that only group operations; those that read a shard are run operation by operation."""


@dataclasses.dataclass(eq=False)
class _Shard:
    """This device's part `value` of an array that is cut along `axis` over the devices of `mesh_axis`."""

    value: jax.Array
    axis: int
    mesh_axis: str

    def whole(self) -> jax.Array:
        """The array, put together from all devices."""
        return lax.all_gather(self.value, self.mesh_axis, axis=self.axis, tiled=True)


def gathering(function: Callable[..., Any], cuts: Any, num_devices: int) -> Callable[..., Any]:
    """The same function of this device's shards, for use inside `jax.shard_map` over one axis.

    Args:
      function: `(params, *arguments) -> tree of arrays`, traceable by JAX.
      cuts: `PartitionSpec` of every parameter: at most one axis is cut.
      num_devices: Number of devices.

    Returns:
      `(shards, *arguments) -> tree of arrays`. The collectives inside need every device to call it together.

    Cost: Each parameter crosses the network once per read; memory for the parameters of one layer at a time, and for
    each parameter outside of the layers while it is used.
    """

    def of_shards(shards: Any, *arguments: Any) -> Any:
        leaves, tree = jax.tree.flatten(shards)
        specs = tree.flatten_up_to(cuts)
        whole = [_whole_shape(leaf, spec, num_devices) for leaf, spec in zip(leaves, specs, strict=True)]
        traced, shape = jax.make_jaxpr(function, return_shape=True)(tree.unflatten(whole), *arguments)
        given = [_shard(leaf, spec) for leaf, spec in zip(leaves, specs, strict=True)]
        out = _run(traced.jaxpr, traced.consts, [*given, *jax.tree.leaves(arguments)])
        return jax.tree.structure(shape).unflatten(map(_value, out))

    return of_shards


def _cut(spec: PartitionSpec) -> tuple[int, str] | None:
    return next(((axis, name) for axis, name in enumerate(spec) if name is not None), None)  # type: ignore[misc]


def _whole_shape(leaf: jax.Array, spec: PartitionSpec, num_devices: int) -> jax.ShapeDtypeStruct:
    cut = _cut(spec)
    sizes = [size * num_devices if cut and axis == cut[0] else size for axis, size in enumerate(leaf.shape)]
    return jax.ShapeDtypeStruct(tuple(sizes), leaf.dtype)


def _shard(leaf: jax.Array, spec: PartitionSpec) -> _Shard | jax.Array:
    cut = _cut(spec)
    return leaf if cut is None else _Shard(leaf, *cut)


def _value(given: Any) -> Any:
    return given.whole() if isinstance(given, _Shard) else given


def _run(jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Outputs of a traced function with shards among its inputs."""
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for equation in jaxpr.eqns:
        values = [read(atom) for atom in equation.invars]
        known.update(zip(equation.outvars, _step(jaxpr, equation, values), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _step(around: Any, equation: Any, values: list[Any]) -> Sequence[Any]:
    primitive, params = equation.primitive, equation.params
    if any(isinstance(value, _Shard) for value in values):
        if primitive.name == "scan":
            return _scan(equation, values)
        if primitive.name in _INLINED:
            return _run(*_opened(params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"]), values)
        if primitive.name == "convert_element_type":
            (shard,) = values
            return [_Shard(lax.convert_element_type(shard.value, params["new_dtype"]), shard.axis, shard.mesh_axis)]
    pairs = zip(equation.invars, values, strict=True)
    alone = {atom: _value(value) for atom, value in pairs if not isinstance(atom, Literal)}
    one = Jaxpr((), [*alone], equation.outvars, [equation], equation.effects, debug_info=around.debug_info)
    return jax.core.eval_jaxpr(one, (), *alone.values())


def _scan(equation: Any, values: list[Any]) -> Sequence[Any]:
    """A scan; stacks that are not cut between layers go in as shards."""
    params = equation.params
    body, consts_of_body = _opened(params["jaxpr"])
    # what is scanned, in and out, has one axis more outside than in the body: the rest are constants and carries
    num_outside = _same_rank(equation.invars, body.invars)
    num_carry = _same_rank(equation.outvars, body.outvars)
    outside = [_value(value) for value in values[:num_outside]]
    consts, start = outside[: num_outside - num_carry], outside[num_outside - num_carry :]
    stacks = [_value(x) if isinstance(x, _Shard) and x.axis == 0 else x for x in values[num_outside:]]

    def step(carry: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        layer = [
            _Shard(part, stack.axis - 1, stack.mesh_axis) if isinstance(stack, _Shard) else part
            for part, stack in zip(slices, stacks, strict=True)
        ]
        out = [*map(_value, _run(body, consts_of_body, [*consts, *carry, *layer]))]
        return out[:num_carry], out[num_carry:]

    parts = [stack.value if isinstance(stack, _Shard) else stack for stack in stacks]
    carry, collected = lax.scan(
        step, start, parts, length=params["length"], reverse=params["reverse"], unroll=params["unroll"]
    )
    return [*carry, *collected]


def _opened(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """A traced function and its constants, whether they come in one object or in two."""
    return getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ())


def _same_rank(outside: Sequence[Any], inside: Sequence[Any]) -> int:
    return sum(a.aval.ndim == b.aval.ndim for a, b in zip(outside, inside, strict=True))
