"""A flax.nnx model as a `LanguageModel`. flax.nnx is imported on use only."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval

from tdd.models.adapters.function import (
    Arguments,
    Output,
    as_constant,
    bound,
    check_module,
    constant_value,
    from_methods,
    wants_randomness,
)
from tdd.records import LanguageModel
from tdd.validate import InputError


def from_nnx(
    model: Any,
    *,
    vocab_size: int,
    max_length: int | None = None,
    name: str | None = None,
    method: str | Callable[..., Any] = "__call__",
    arguments: Mapping[str, Any] | None = None,
    hidden: str | Callable[[Any, jax.Array], Any] | None = None,
    readout: Callable[[Any], Any] | None = None,
    soft_cap: float | None = None,
    output: Output = None,
) -> tuple[LanguageModel, dict[str, Any]]:
    """Make a model of an nnx module `model(tokens [B, T]) -> [B, T, V]`.

    The graph definition is static and the state becomes the parameters. A copy is set to evaluation
    (`model.eval()`: no dropout, running averages); `model` itself stays as it is, and later training does not reach
    the copy: adapt again for new weights, which compiles nothing. The logits at position t must
    describe token t + 1, given tokens 0..t: `check_causal` tests it.

    Args:
      model: The module.
      vocab_size, max_length, soft_cap, output: See `from_function`.
      name: Shown in reports; by default the module's class.
      method: The method that returns logits, by its name, or a function of (model, tokens).
      arguments: Further keyword arguments of that method, hashable.
      hidden: a method's name, or a function of (model, tokens), for [B, T, D]; see `from_function`.
      readout: `(model) -> [V, D]`.

    Returns:
      (lm, params): params is {"params": the `nnx.Param` leaves, "state": all other arrays}, nested dicts. "state"
      (batch statistics, buffers, caches) gets no gradient; the state of random generators is left out and replaced
      by a constant: nothing may draw from it.

    Raises:
      InputError: Not an nnx module, an argument that cannot be hashed, or as in `from_function`; when
        traced, parameters with other keys or shapes, or a model that draws random numbers.
    """
    from flax import nnx

    check_module("model", model, "flax.nnx module", isinstance(model, nnx.Module))
    copy = nnx.merge(*nnx.split(model))
    copy.eval()
    graph, trained, random, rest = nnx.split(copy, nnx.Param, nnx.RngState, ...)
    layout = _Layout(
        as_constant("model", graph),
        _Structure.of(trained),
        _Structure.of(rest),
        jax.tree.structure(random),
        tuple(_random_leaf(leaf) for leaf in jax.tree.leaves(random)),
    )
    lm = from_methods(
        type(model),
        functools.partial(_NnxCall, layout),
        method=method,
        arguments=arguments,
        hidden=hidden,
        readout=None if readout is None else _NnxCall(layout, readout),
        vocab_size=vocab_size,
        max_length=max_length,
        name=name,
        soft_cap=soft_cap,
        output=output,
    )
    return lm, {"params": nnx.to_pure_dict(trained), "state": nnx.to_pure_dict(rest)}


_Path: TypeAlias = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Structure:
    """Where the arrays of a state belong: they are found by their paths, in whatever order a file gives them."""

    tree: Any
    shapes: tuple[tuple[_Path, tuple[int, ...]], ...]  # of each array, in the tree's order

    @classmethod
    def of(cls, state: Any) -> _Structure:
        """The structure of a state of nnx."""
        found = _by_path(state)
        return cls(jax.tree.structure(state), tuple((path, tuple(leaf.shape)) for path, leaf in found.items()))

    def state(self, key: str, arrays: Any) -> Any:
        """The state with these arrays."""
        found, expected = _by_path(arrays), dict(self.shapes)
        missing, other = [p for p in expected if p not in found], [p for p in found if p not in expected]
        if missing or other:
            said = f"has no {'.'.join(missing[0])}" if missing else f"has {'.'.join(other[0])}, which the model has not"
            raise InputError(f"params[{key!r}] {said}; pass what from_nnx returned, or a tree with the same keys")
        for path, shape in expected.items():
            if tuple(found[path].shape) != shape:
                raise InputError(
                    f"params[{key!r}]: {'.'.join(path)} has shape {tuple(found[path].shape)}, the model's has {shape}; "
                    "pass what from_nnx returned"
                )
        leaves = [found[path] for path in expected]
        return jax.tree.unflatten(self.tree, leaves if key == "params" else jax.lax.stop_gradient(leaves))


def _by_path(tree: Any) -> dict[_Path, Any]:
    """The arrays of a tree by their paths; a number of a list may be a word, as in a tree that was read from a file."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    found = {tuple(_word(key) for key in path if not _holds_array(key)): leaf for path, leaf in leaves}
    if len(found) < len(leaves):
        raise InputError("two arrays of a model of nnx have one path, as '1' and 1 do: give one of them another name")
    return found


def _word(key: Any) -> str:
    return str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))


def _holds_array(key: Any) -> bool:
    """Whether a variable that is a tree of its own holds its array under this name; no key of a dictionary does."""
    return isinstance(key, jax.tree_util.GetAttrKey) and key.name in ("value", "raw_value")


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Everything about a model but its arrays."""

    graph: Any
    trained: _Structure
    rest: _Structure
    random: Any
    random_leaves: tuple[tuple[tuple[int, ...], Any, Any], ...]

    def constants(self) -> list[jax.Array]:
        """What stands for the state of random generators."""
        return [_constant(*leaf) for leaf in self.random_leaves]

    def model(self, params: Any, constants: list[jax.Array] | None = None) -> Any:
        """The module with these arrays."""
        from flax import nnx

        parts = self.trained.state("params", params["params"]), self.rest.state("state", params["state"])
        constants = self.constants() if constants is None else constants
        return nnx.merge(constant_value(self.graph), *parts, jax.tree.unflatten(self.random, constants))  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class _NnxCall:
    """`(params, *inputs) -> result` of one method, or of a function of the model."""

    layout: _Layout
    method: str | Callable[..., Any]
    arguments: Arguments = ()

    def __call__(self, params: Any, *inputs: jax.Array) -> Any:
        model = self.layout.model(params)
        if self.layout.random_leaves:
            self._check_no_draws(type(model).__name__, params, inputs)
        return bound(model, self.method, self.arguments)(*inputs)

    def _check_no_draws(self, name: str, params: Any, inputs: Any) -> None:
        """No result may depend on the state of a random generator; a part that has one, but does not use it, may."""
        prune = getattr(partial_eval, "dce_jaxpr", None)
        if prune is None:  # not in this JAX
            return

        def of_random(constants: Any) -> Any:
            return bound(self.layout.model(params, constants), self.method, self.arguments)(*inputs)

        traced = jax.make_jaxpr(of_random)(self.layout.constants()).jaxpr
        _, used = prune(traced, [True] * len(traced.outvars))
        if any(used):
            raise wants_randomness(name, None)


def _random_leaf(leaf: Any) -> tuple[tuple[int, ...], Any, Any]:
    """Shape, dtype and generator (None for plain numbers) of a leaf that belongs to a random generator."""
    typed = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return tuple(leaf.shape), None if typed else leaf.dtype, jax.random.key_impl(leaf) if typed else None


def _constant(shape: tuple[int, ...], dtype: Any, generator: Any) -> jax.Array:
    if generator is None:
        return jnp.zeros(shape, dtype)
    return jnp.broadcast_to(jax.random.key(0, impl=generator), shape)
