"""What the adapters share: models in evaluation mode, and logits out of what a model returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax

from tdd.validate import adapters as checks

__all__ = ["EVALUATION", "Arguments", "Output", "arguments_of", "evaluation_arguments", "frozen_state", "pick"]

Output = int | str | Callable[[Any], Any] | None
"""Where the logits are in a model's result."""

Arguments = tuple[tuple[str, Hashable], ...]
"""Keyword arguments as a hashable value."""

EVALUATION: Mapping[str, bool] = {
    "deterministic": True,
    "inference": True,
    "is_training": False,
    "train": False,
    "training": False,
}
"""How libraries call the switch between training and evaluation, and its setting for evaluation."""


def arguments_of(given: Mapping[str, Any] | None) -> Arguments:
    """Keyword arguments that a user gave, checked to be hashable."""
    pairs = tuple(sorted((given or {}).items()))
    for name, value in pairs:
        checks.check_hashable(f"arguments[{name!r}]", value)
    return pairs


def evaluation_arguments(function: Callable[..., Any], given: Arguments, *, only_known: bool = False) -> Arguments:
    """`given`, and the switches to evaluation that `function` has among its parameters.

    With `only_known`, what `function` has no parameter for is left out: arguments are given for the logits, and
    `hidden` gets those that it shares.
    """
    names = list(inspect.signature(function).parameters)
    switches = {name: value for name, value in EVALUATION.items() if name in names}
    chosen = {name: value for name, value in given if name in names or not only_known}
    return tuple(sorted({**switches, **chosen}.items()))


def frozen_state(tree: Any) -> Any:
    """Leaves that take part but are not trained: their gradient is 0."""
    return jax.tree.map(jax.lax.stop_gradient, tree)


def pick(name: str, output: Output, result: Any) -> Any:
    """The logits in what a model returned."""
    if callable(output):
        return output(result)
    if output is not None:
        try:
            return result[output] if isinstance(output, int) or isinstance(result, Mapping) else getattr(result, output)
        except (LookupError, AttributeError, TypeError) as error:
            raise checks.no_output(name, output, result) from error
    if isinstance(result, Mapping) and "logits" in result:
        return result["logits"]
    found = getattr(result, "logits", result)
    checks.check_is_array(name, found)
    return found
