"""Per-example gradient norms of any `LanguageModel`: by its own fast method, or one example after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tdd.kernels.platforms import full_precision
from tdd.records import GradNorms, GradSqNorms, LanguageModel
from tdd.scoring.eager import as_array, called
from tdd.scoring.scores.passes import check_reduction
from tdd.scoring.token_stats import check_token_batch, functions_of
from tdd.validate import InputError
from tdd.validate.arrays import in_whole
from tdd.validate.settings import in_own_settings

_ROWS = 128
"""Rows of logits [rows, V] at a time if the readout is known."""


@in_own_settings()
def grad_norms(
    lm: LanguageModel,
    params: Any,
    tokens: jax.Array,
    mask: jax.Array,
    *,
    reduction: str = "sum",
    microbatch: int | None = None,
) -> GradNorms:
    """Norm of the gradient of each text's loss with respect to all parameters. Pure; jit with `lm` static.

    The loss of text b is sum_t mask[b, t] (-log p(tokens[b, t] | tokens[b, :t])), t >= 1, or that divided by the
    number of scored tokens. Parameters that are shared, such as a tied head, count once, with the gradient of all their
    uses. Integer and boolean leaves of `params` have no gradient.

    Args:
      lm: The model. One with `grad_sqnorm` (every model of `tdd.load`) forms no gradient of a weight at all; any other
        is differentiated one example at a time.
      params: Its parameters.
      tokens: [B, T] int32 token ids, padded on the right with any valid id. A text with another id has NaN.
      mask: [B, T] bool, True where the token is a scored target; the first column is ignored.
      reduction: "sum" or "mean". Under "mean" a text without a scored token has NaN.
      microbatch: Texts that are differentiated side by side; fewer take less memory. None means all of them where the
        model has `grad_sqnorm`, one otherwise.

    Returns:
      `GradNorms` of [B] float32: `total`; `input_embedding` (NaN if the model does not name its embedding);
      `parts`, by layer and group of parameters, or by the names at the top of `params`.

    Raises:
      InputError: shapes that do not fit, an unknown reduction, a microbatch that is not a positive number, parameters
        without a floating-point leaf (at trace time).

    No derivatives of the norms are defined: they are computed by rules of their own.

    Cost: with `grad_sqnorm` a forward and a backward pass for activations only, and memory that no [B, T, V] and no
    gradient enters; otherwise a forward and a full backward pass an example, and memory of `microbatch` gradients.
    """
    check_token_batch(jnp.shape(tokens), jnp.shape(mask))
    check_reduction(reduction)
    size = check_microbatch(microbatch)
    return called(_grad_norms, (lm, functions_of(lm), reduction, size), params, as_array(tokens), as_array(mask))


def _grad_norms(lm: LanguageModel, _: Any, reduction: str, size: int | None, params: Any, *batch: Any) -> GradNorms:
    tokens, mask = batch
    tokens, mask = in_whole(jnp.asarray(tokens)), in_whole(jnp.asarray(mask, bool)).at[:, 0].set(False)
    if lm.grad_sqnorm is not None:
        of_batch = lm.grad_sqnorm
        squares = _in_groups(lambda t, m: of_batch(params, t, m), (tokens, mask), size)
    else:
        one = _one_example(lm, params)
        squares = lax.map(lambda pair: one(*pair), (tokens, mask), batch_size=None if size == 1 else size)
    total = sum((part.sum(range(part.ndim - 1)) for part in squares.parts.values()), jnp.float32(0))
    count = mask.sum(1) if reduction == "mean" else 1
    known = jnp.all((tokens >= 0) & (tokens < lm.vocab_size), axis=1)  # an index beyond an array has gradient 0
    norm = lambda square: jnp.where(known, jnp.sqrt(square) / count, jnp.nan)  # noqa: E731
    parts = {name: norm(part) for name, part in squares.parts.items()}
    return GradNorms(total=norm(total), input_embedding=norm(squares.input_embedding), parts=parts)


def _in_groups(
    fun: Callable[[jax.Array, jax.Array], GradSqNorms], arrays: tuple[jax.Array, jax.Array], size: int | None
) -> GradSqNorms:
    """fun(tokens, mask) on `size` rows at a time; the rows that fill the last group are not scored."""
    num_rows = arrays[0].shape[0]
    if size is None or size >= num_rows:
        return fun(*arrays)
    num_groups = -(-num_rows // size)
    padded = (jnp.pad(x, ((0, num_groups * size - num_rows), (0, 0))) for x in arrays)
    groups = lax.map(lambda pair: fun(*pair), tuple(x.reshape(num_groups, size, -1) for x in padded))
    # [groups, ..., size] -> [..., groups * size]
    joined = lambda x: jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], -1)[..., :num_rows]  # noqa: E731
    return jax.tree.map(joined, groups)


def _one_example(lm: LanguageModel, params: Any) -> Callable[[jax.Array, jax.Array], GradSqNorms]:
    """(tokens [T], mask [T]) -> squared norms [] of the gradient of that text's loss."""
    leaves, structure = jax.tree.flatten(params)
    trained = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)]
    check_gradient_loss(repr(lm.spec), len(trained))
    names = _names_at_the_top(params)
    groups = [names[i] for i in trained]

    def loss(values: list[jax.Array], tokens: jax.Array, mask: jax.Array) -> jax.Array:
        replaced = [*leaves]
        for i, value in zip(trained, values, strict=True):
            replaced[i] = value
        return _loss(lm, jax.tree.unflatten(structure, replaced), tokens, mask)

    def one(tokens: jax.Array, mask: jax.Array) -> GradSqNorms:
        gradients = jax.grad(loss)([leaves[i] for i in trained], tokens, mask)
        parts: dict[str, jax.Array] = {}
        for name, gradient in zip(groups, gradients, strict=True):
            square = jnp.square(jnp.abs(gradient).astype(jnp.float32)).sum()
            parts[name] = parts[name] + square if name in parts else square
        return GradSqNorms(parts, jnp.float32(jnp.nan))

    return one


def _names_at_the_top(params: Any) -> list[str]:
    """Of each leaf the name under which a mapping holds it, however the mapping was made known to JAX."""
    leaves, structure = jax.tree.flatten(params)
    names = ["params"] * len(leaves)
    if isinstance(params, Mapping):
        numbered: Any = jax.tree.unflatten(structure, range(len(leaves)))
        for name in numbered:
            for number in jax.tree.leaves(numbered[name]):
                names[number] = str(name)
    return names


def _loss(lm: LanguageModel, params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    """Sum of -log p over the scored targets of one text [T]."""
    targets, scored = tokens[1:], mask[1:]
    if lm.hidden is None or lm.readout is None:
        return _rows_loss(in_whole(lm.logits(params, tokens[None]))[0, :-1], targets, scored)
    hidden, readout = in_whole(lm.hidden(params, tokens[None]))[0, :-1], in_whole(lm.readout(params))

    @jax.checkpoint
    def of_rows(total: jax.Array, rows: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        states, targets, scored = rows
        states = states.astype(readout.dtype)
        precision = full_precision(states, readout)
        logits = jnp.einsum("nd,vd->nv", states, readout, precision=precision, preferred_element_type=jnp.float32)
        capped = logits if lm.soft_cap is None else lm.soft_cap * jnp.tanh(logits / lm.soft_cap)
        return total + _rows_loss(capped, targets, scored), None

    missing = -targets.shape[0] % _ROWS
    rows = (jnp.pad(x, ((0, missing),) + ((0, 0),) * (x.ndim - 1)) for x in (hidden, targets, scored))
    return lax.scan(of_rows, jnp.float32(0), tuple(x.reshape(-1, _ROWS, *x.shape[1:]) for x in rows))[0]


def _rows_loss(logits: jax.Array, targets: jax.Array, scored: jax.Array) -> jax.Array:
    log_p = jnp.take_along_axis(jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1), targets[:, None], axis=-1)
    return -jnp.where(scored, log_p[:, 0], 0.0).sum()


def check_microbatch(value: Any) -> int | None:
    """Return a number of texts, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InputError(f"microbatch={value!r} must be a whole number of texts, at least 1, or None")
    return int(value)


def check_gradient_loss(name: str, num_leaves: int) -> None:
    """Check that at least one parameter of a model has a gradient."""
    if not num_leaves:
        raise InputError(
            f"params of {name} hold no floating-point array, so there is nothing to take a gradient of; pass the "
            "model's weights as params rather than closing over them"
        )
