"""Per-example gradient norms of any loss, and an optax transformation that records their quantiles.

The gradient of a mean says nothing about the gradients of its examples: norms must be taken where the examples are
still apart. Outside the training step, `example_grad_norms` differentiates a loss one microbatch after the other.
Inside, `gradient_norm` is a `metrics_fn` of `optax.microbatching.micro_grad`, and the norms come out of the step that
is computed anyway:

    gradients_of = optax.microbatching.micro_grad(loss, microbatch_size=4, metrics_fn=gradient_norm)

    def step(params, opt_state, tokens):
        gradients, out = gradients_of(params, tokens)
        updates, opt_state = tx.update(gradients, opt_state, params, grad_norms=out.metrics)
        return optax.apply_updates(params, updates), opt_state

with `tx = optax.chain(record_grad_norms(), optax.adamw(1e-3))`; the optimizer's state then holds the quantiles:
`optax.tree.get(opt_state, "grad_norm_quantiles")`. (The gradients are sums over the examples; a rate or `optax.scale`
divides them.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from tdd.probe.evidence import GRAD_NORM_QUANTILES
from tdd.scoring.eager import called
from tdd.scoring.gradients import check_gradient_loss, check_microbatch
from tdd.validate import InputError
from tdd.validate.settings import in_own_settings


class GradNormState(NamedTuple):
    """State of `record_grad_norms`: quantiles [len(levels)] float32 of the last step, -1 before the first."""

    grad_norm_quantiles: jax.Array


@in_own_settings()
def example_grad_norms(
    loss: Callable[..., Any], params: Any, *examples: Any, microbatch: int = 1, keep_batch_dim: bool = False
) -> jax.Array:
    """|| grad_params loss(params, example_b) ||_2 for every example b, with the memory of `microbatch` gradients. Pure.

    Accepts the losses of `optax.microbatching.micro_grad`, in the same two forms. The last microbatch may be
    incomplete, and no sum of gradients is kept. For a `LanguageModel` `tdd.grad_norms` forms no gradient.

    Outside `jit` it is compiled at every call, as `loss` may read what has changed since; with a loss that `jax.jit`
    has wrapped it is compiled once for each shape and type.

    Args:
      loss: (params, *example) -> [] real. One that returns more is wrapped: `lambda *given: loss(*given)[0]`.
      params: any tree with a floating-point leaf; integer and boolean leaves have no gradient.
      *examples: trees of arrays whose leading axis B counts the examples.
      microbatch: examples that are differentiated side by side (static). Examples b, b + G, b + 2 G, ... of G
        microbatches go together, so that a batch that is sharded over devices stays so.
      keep_batch_dim: whether `loss` takes a batch, and is called with batches of one: leaves [1, ...] (static). It is
        True by default in `micro_grad`.

    Returns:
      [B] float32.

    Raises:
      InputError: a loss that is not one real number, examples of different numbers, a microbatch that is not a
        positive number, params without a floating-point leaf (at trace time).

    Cost: a forward and a backward pass an example; temporaries of `microbatch` gradients and activations.

    >>> example_grad_norms(lambda w, x: (w * x).sum(), jnp.zeros(2), jnp.array([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [5.0, 1.0]
    """
    count = _check_examples([jnp.shape(leaf) for leaf in jax.tree.leaves(examples)])
    size = min(check_microbatch(microbatch) or 1, max(count, 1))
    return called(_example_norms, (loss, count, size, bool(keep_batch_dim)), params, examples)


def _example_norms(
    loss: Callable[..., Any], count: int, size: int, keep_batch_dim: bool, params: Any, examples: tuple[Any, ...]
) -> jax.Array:
    leaves, structure = jax.tree.flatten(params)
    trained = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)]
    check_gradient_loss("the loss", len(trained))

    def value(moved: list[jax.Array], example: tuple[Any, ...]) -> jax.Array:
        values = [*leaves]
        for i, leaf in zip(trained, moved, strict=True):
            values[i] = leaf
        arguments = jax.tree.map(lambda x: x[None], example) if keep_batch_dim else example
        out = loss(jax.tree.unflatten(structure, values), *arguments)
        _check_example_loss(out)
        return out

    def norm(example: tuple[Any, ...]) -> jax.Array:
        return gradient_norm(jax.grad(value)([leaves[i] for i in trained], example))

    groups = -(-count // size)
    # [B, ...] -> [groups, size, ...], column by column: the axis that a data-parallel sharding divides is the second
    batched = jax.tree.map(lambda x: _divided(jnp.asarray(x), groups, size), examples)
    norms = lax.map(
        jax.vmap(norm) if size > 1 else lambda single: norm(jax.tree.map(lambda x: x[0], single))[None], batched
    )
    return norms.swapaxes(0, 1).reshape(-1)[:count]


@in_own_settings()
def gradient_norm(gradient: Any) -> jax.Array:
    """Euclidean norm of a tree of arrays, accumulated in float32: [] float32.

    A `metrics_fn` of `optax.microbatching.micro_grad`, which then returns the norm of every example in `.metrics`.

    Args:
      gradient: a tree of real or complex arrays; leaves without a gradient (float0) are left out.
    """
    leaves = [leaf for leaf in jax.tree.leaves(gradient) if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)]
    return jnp.sqrt(sum((jnp.square(jnp.abs(leaf).astype(jnp.float32)).sum() for leaf in leaves), jnp.float32(0)))


@in_own_settings()
def quantiles(norms: jax.Array, levels: tuple[float, ...] = GRAD_NORM_QUANTILES) -> jax.Array:
    """Quantiles of the finite norms: [len(levels)] float32, NaN if none is finite.

    Args:
      norms: [B], for example of `example_grad_norms`.
      levels: in [0, 1] (static); by default minimum, quartiles and maximum.
    """
    levels = _check_quantile_levels(levels)
    norms = jnp.asarray(norms, jnp.float32)
    if not norms.size:
        return jnp.full(len(levels), jnp.nan, jnp.float32)
    return jnp.nanquantile(jnp.where(jnp.isfinite(norms), norms, jnp.nan), jnp.array(levels, jnp.float32))


def record_grad_norms(levels: tuple[float, ...] = GRAD_NORM_QUANTILES) -> optax.GradientTransformationExtraArgs:
    """An optax transformation that changes no update and records quantiles of the examples' gradient norms.

    `update` takes the norms as the keyword `grad_norms` [B], which `optax.chain` passes on; the top of this module says
    where they come from. A step without them leaves the quantiles as they were.

    Args:
      levels: which quantiles, in [0, 1].

    Returns:
      A transformation with state `GradNormState`; `optax.tree.get(opt_state, "grad_norm_quantiles")` finds it.

    Raises:
      InputError: levels outside [0, 1]; norms that are not one number an example (at trace time).
    """
    levels = _check_quantile_levels(levels)

    @in_own_settings()
    def init(params: Any) -> GradNormState:
        del params
        return GradNormState(jnp.full(len(levels), -1, jnp.float32))  # a number, also under jax_debug_nans

    def update(
        updates: Any, state: Any, params: Any = None, *, grad_norms: jax.Array | None = None, **extra: Any
    ) -> tuple[Any, GradNormState]:
        del params, extra
        if grad_norms is None:
            return updates, state
        if jnp.ndim(grad_norms) != 1:
            shape = [*jnp.shape(grad_norms)]
            raise InputError(f"grad_norms must be [B], one norm an example, got shape {shape}")
        return updates, GradNormState(quantiles(grad_norms, levels))

    return optax.GradientTransformationExtraArgs(init, update)


def _divided(x: jax.Array, groups: int, size: int) -> jax.Array:
    """[B, ...] as [groups, size, ...]; the first examples fill up the last places."""
    filled = jnp.concatenate([x, x[: groups * size - x.shape[0]]]) if groups * size > x.shape[0] else x
    return filled.reshape(size, groups, *x.shape[1:]).swapaxes(0, 1)


def _check_examples(shapes: Sequence[tuple[int, ...]]) -> int:
    """The number of examples along the first axis of all arrays."""
    counts = {shape[0] if shape else None for shape in shapes}
    if len(counts) != 1 or None in counts:
        listed = ", ".join(str(list(shape)) for shape in shapes) or "none"
        raise InputError(f"examples must be arrays of one number of examples along the first axis, got shapes {listed}")
    return int(shapes[0][0])


def _check_example_loss(value: Any) -> None:
    """One real number an example."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape != () or dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        what = type(value).__name__ if shape is None else f"shape {list(shape)} and dtype {dtype}"
        raise InputError(
            f"loss must return one real number an example, got {what}; sum or average over its tokens, and return the "
            "number alone where there is auxiliary output. A loss of a whole batch is called with keep_batch_dim=True"
        )


def _check_quantile_levels(levels: Any) -> tuple[float, ...]:
    """One or more fractions in [0, 1]."""
    values = tuple(levels) if isinstance(levels, (tuple, list)) else (levels,)
    if not values or not all(isinstance(value, (int, float)) and 0 <= value <= 1 for value in values):
        raise InputError(f"levels={levels!r} must be numbers between 0 and 1, for example (0.25, 0.5, 0.75)")
    return tuple(float(value) for value in values)
