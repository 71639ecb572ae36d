"""An Equinox module as a `LanguageModel`. Equinox is imported on use only."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import numpy as np

from tdd.models.adapters.function import (
    Arguments,
    Output,
    as_constant,
    bound,
    check_module,
    constant_value,
    from_methods,
)
from tdd.records import LanguageModel
from tdd.validate import InputError


def from_equinox(
    module: Any,
    *,
    vocab_size: int,
    max_length: int | None = None,
    name: str | None = None,
    method: str | Callable[..., Any] = "__call__",
    batched: bool = False,
    arguments: Mapping[str, Any] | None = None,
    hidden: str | Callable[[Any, jax.Array], Any] | None = None,
    readout: Callable[[Any], Any] | None = None,
    soft_cap: float | None = None,
    output: Output = None,
) -> tuple[LanguageModel, Any]:
    """Make a model of an Equinox module `module(tokens [T]) -> [T, V]`, or of one that takes a batch.

    Arrays become the parameters, everything else is static. The module is set to inference
    (`eqx.nn.inference_mode`: no dropout); the original stays as it is. Equal static parts are the same model. Every
    floating array counts as trained; one that is not belongs behind `jax.lax.stop_gradient` in the module, as
    Equinox's own layers do. The logits at position t must describe token t + 1, given tokens 0..t:
    `check_causal` tests it.

    Args:
      module: The module.
      vocab_size, max_length, soft_cap, output: See `from_function`; `output` applies to one sequence unless
        `batched`.
      name: Shown in reports; by default the module's class.
      method: The method that returns logits.
      batched: True if it takes tokens [B, T]; otherwise it takes one sequence [T] and is mapped over the batch.
      arguments: Further keyword arguments of that method, hashable.
      hidden: a method's name, or a function of (module, tokens), for [T, D] ([B, T, D] where `batched`).
      readout: `(module) -> [V, D]`.

    Returns:
      (lm, params): params is the module with everything but its arrays left out.

    Raises:
      InputError: Not an Equinox module, an argument that cannot be hashed, or as in `from_function`.
    """
    import equinox as eqx

    check_module("module", module, "Equinox module", isinstance(module, eqx.Module))
    arrays = (jax.Array, np.ndarray, np.generic)
    params, static = eqx.partition(eqx.nn.inference_mode(module), lambda leaf: isinstance(leaf, arrays))
    leaves, structure = jax.tree.flatten(static)
    constants = tuple(as_constant("module", leaf) for leaf in leaves), as_constant("module", structure)
    lm = from_methods(
        type(module),
        functools.partial(_EquinoxCall, *constants, batched),
        method=method,
        arguments=arguments,
        hidden=hidden,
        readout=None if readout is None else _EquinoxCall(*constants, True, readout),
        vocab_size=vocab_size,
        max_length=max_length,
        name=name,
        soft_cap=soft_cap,
        output=output,
    )
    return lm, params


@dataclasses.dataclass(frozen=True)
class _EquinoxCall:
    """`(params, *inputs) -> result` of one method, or of a function of the module."""

    leaves: tuple[Hashable, ...]
    structure: Any
    batched: bool
    method: str | Callable[..., Any]
    arguments: Arguments = ()

    def __call__(self, params: Any, *inputs: jax.Array) -> Any:
        import equinox as eqx

        static = jax.tree.unflatten(constant_value(self.structure), map(constant_value, self.leaves))
        if type(params) is not type(static):
            raise InputError(
                f"params are a {type(params).__name__}, and the model is a {type(static).__name__}; pass what "
                "from_equinox returned, or a module of the same kind: a checkpoint is restored into one (with Orbax, "
                "give it the parameters as the target)"
            )
        module = eqx.combine(params, static)
        function = bound(module, self.method, self.arguments)
        return function(*inputs) if self.batched else jax.vmap(function)(*inputs)
