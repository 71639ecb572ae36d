"""Token statistics of a `LanguageModel`: the kernel's chunks around a model's trunk and readout."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tdd.kernels import token_stats as kernel
from tdd.kernels.platforms import fused_on
from tdd.records import LanguageModel, TokenStats
from tdd.scoring.eager import as_array, called
from tdd.scoring.scores.parts import orders_of
from tdd.validate import InputError
from tdd.validate.arrays import in_whole
from tdd.validate.settings import in_own_settings


class Tiling(NamedTuple):
    """Tile sizes of the head: `chunk` rows a tile, `block` columns a step of the sums (None: whole rows)."""

    chunk: int
    block: int | None


def tiling(platform: str) -> Tiling:
    """The sizes that suit a platform ("cpu", "gpu", "tpu")."""
    return Tiling(256, 1024) if platform == "cpu" else Tiling(1024, None)


@in_own_settings()
def token_stats(
    lm: LanguageModel,
    params: Any,
    tokens: jax.Array,
    mask: jax.Array,
    *,
    tile: Tiling | None = None,
    orders: Mapping[str, float] | None = None,
) -> TokenStats:
    """Statistics of the model's next-token distribution at every scored target. Pure; jit with `lm` static.

    Args:
      lm: The model.
      params: Its parameters.
      tokens: [B, T] int32 token ids, padded on the right with any valid id.
      mask: [B, T] bool, True where the token is a scored target; the first column is ignored. Where a target is no id
        of the model, what depends on it is NaN.
      tile: Sizes of the head's tiles; by default those that suit the platform that the program is compiled for.
      orders: Name in `TokenStats.renyi` -> order of a Renyi entropy beside those that are always there; each costs one
        more pass of the readout.

    Returns:
      `TokenStats` of [B, T]; entries outside `mask` are 0.

    Raises:
      InputError: shapes that do not fit (at trace time).

    Cost: one forward pass of the trunk over B T tokens, and the readout, on CPU for scored targets only. Never holds
    [B, T, V], unless the model has no `hidden` and `readout` and itself returns it. Derivatives: forward mode alone
    (`jax.jvp`); gradients of a loss come from `lm.logits`, their norms from `tdd.grad_norms`.
    """
    check_token_batch(jnp.shape(tokens), jnp.shape(mask))
    names = tuple((orders or {}).items())
    return called(_token_stats, (lm, functions_of(lm), tile, names), params, as_array(tokens), as_array(mask))


def _token_stats(
    lm: LanguageModel, _: Any, tile: Tiling | None, names: tuple[tuple[str, float], ...], params: Any, *batch: Any
) -> TokenStats:
    tokens, mask = batch
    tokens, orders = jnp.asarray(tokens), dict(names)
    mask = in_whole(jnp.asarray(mask, bool)).at[:, 0].set(False)
    known = in_whole(tokens).astype(jnp.int32)
    beyond = jnp.where(known < 0, lm.vocab_size, known)  # an index from the end would be another id
    # the hidden state at t describes the target at t + 1: targets and mask move left, results move back right
    targets, scored = (jnp.roll(x, -1, axis=1).reshape(-1) for x in (beyond, mask))
    flat = model_statistics(lm, params, tokens, targets, scored, tile, orders)
    back = {name: jnp.roll(field.reshape(mask.shape), 1, axis=1) for name, field in flat.items()}
    renyi = {name: back.pop(name) for name in orders}
    return TokenStats(**back, mask=mask, tokens=jnp.where(mask, in_whole(tokens), 0), renyi=renyi)


def functions_of(lm: LanguageModel) -> tuple[Any, ...]:
    """What a model computes with, hashable: models of one spec are equal, whatever their functions."""
    return tuple(
        (function.func, function.args, *function.keywords.items())
        if isinstance(function, functools.partial)
        else function
        for function in (lm.logits, lm.hidden, lm.readout, lm.grad_sqnorm)
    )


def model_statistics(
    lm: LanguageModel,
    params: Any,
    tokens: jax.Array,
    targets: jax.Array,
    scored: jax.Array,
    tile: Tiling | None,
    orders: Mapping[str, float],
) -> dict[str, jax.Array]:
    """All statistics [B T] of targets [B T] where `scored` holds, and the Renyi entropies of `orders`, by name.

    Position t of a row describes the token after it.
    """
    if lm.hidden is None or lm.readout is None:
        logits = in_whole(lm.logits(params, tokens))
        given = (tile, logits.reshape(-1, logits.shape[-1]), targets, scored)
        found = _tiled(kernel.token_stats_from_logits, *given)._asdict()
        heads = {name: functools.partial(kernel.token_renyi_from_logits, order=order) for name, order in orders.items()}
        return found | {name: _tiled(head, *given) for name, head in heads.items()}
    hidden = in_whole(lm.hidden(params, tokens))
    rows = (lm, params, hidden.reshape(-1, hidden.shape[-1]), targets, scored, tile)
    return head_statistics(*rows)._asdict() | _head_renyi(orders, *rows)


def trunk_rows(lm: LanguageModel, params: Any, tokens: jax.Array, rows: jax.Array) -> jax.Array:
    """Hidden states at flat positions `rows` [N] of tokens [B, T]: [N, D]."""
    assert lm.hidden is not None
    hidden = lm.hidden(params, tokens)
    return jnp.take(hidden.reshape(-1, hidden.shape[-1]), rows, axis=0, mode="clip")


def head_statistics(
    lm: LanguageModel, params: Any, hidden: jax.Array, targets: jax.Array, scored: jax.Array, tile: Tiling | None
) -> kernel.TokenStatistics:
    """All statistics of hidden states [N, D], for targets [N] if `scored` holds."""
    return _head(kernel.token_stats, lm, params, hidden, targets, scored, tile)


def head_log_prob(
    lm: LanguageModel, params: Any, hidden: jax.Array, targets: jax.Array, scored: jax.Array, tile: Tiling | None
) -> jax.Array:
    """Their log-probabilities alone: [N]."""
    return _head(kernel.token_log_prob, lm, params, hidden, targets, scored, tile)


def wanted_statistics(
    lm: LanguageModel,
    params: Any,
    hidden: jax.Array,
    targets: jax.Array,
    scored: jax.Array,
    tile: Tiling | None,
    wanted: tuple[str, ...],
) -> dict[str, jax.Array]:
    """Those of `wanted`, by name: on one accelerator in one kernel, if it takes the model and gives all of them."""

    def in_tiles(hidden: jax.Array, targets: jax.Array, scored: jax.Array) -> dict[str, jax.Array]:
        given, orders = (lm, params, hidden, targets, scored, tile), orders_of(wanted)
        found = _head_renyi(orders, *given)
        named = [name for name in wanted if name not in orders]
        if named == ["log_prob"]:
            return found | {"log_prob": head_log_prob(*given)}
        every = head_statistics(*given)._asdict() if named else {}  # the compiler leaves out what is not returned
        return found | {name: every[name] for name in named}

    forms = _fused(lm, params, wanted)
    rows = (hidden, targets, scored)
    return lax.platform_dependent(*rows, **forms, default=in_tiles) if forms else in_tiles(*rows)


def _head_renyi(orders: Mapping[str, float], *given: Any) -> dict[str, jax.Array]:
    """Renyi entropies of hidden states, by name; `given` is as for `head_statistics`."""
    return {name: _head(kernel.token_renyi, *given, order=order) for name, order in orders.items()}


def _head(
    of: Callable[..., Any],
    lm: LanguageModel,
    params: Any,
    hidden: jax.Array,
    targets: jax.Array,
    scored: jax.Array,
    tile: Tiling | None,
    **options: Any,
) -> Any:
    """What a kernel makes of hidden states [N, D] and the readout."""
    assert lm.readout is not None
    head = functools.partial(of, soft_cap=lm.soft_cap, **options)
    return _tiled(head, tile, hidden, in_whole(lm.readout(params)), targets, scored)


def _fused(lm: LanguageModel, params: Any, wanted: tuple[str, ...]) -> dict[str, Callable[..., dict[str, jax.Array]]]:
    """A form of one kernel by JAX's name of its platform, for platforms that have one."""
    platforms = [platform for platform in ("gpu", "tpu") if fused_on(platform)]
    if not platforms:
        return {}
    from tdd.kernels import token_stats_fused as fused

    assert lm.readout is not None
    readout = lm.readout(params)
    vocab_size, width = readout.shape
    given = set(wanted) <= set(fused.FUSED)
    taken = [p for p in platforms if given and fused.takes(p, vocab_size, width, readout.dtype)]

    def form(platform: str) -> Callable[..., dict[str, jax.Array]]:
        head = functools.partial(fused.fused_token_stats, platform=platform, soft_cap=lm.soft_cap, wanted=wanted)
        return lambda hidden, *rows: head(hidden, readout, *rows)

    return {{"gpu": "cuda", "tpu": "tpu"}[platform]: form(platform) for platform in taken}


def _tiled(head: Callable[..., Any], tile: Tiling | None, *arrays: jax.Array) -> Any:
    """head(*arrays) in tiles; None takes those of the platform that the program is compiled for."""
    if tile is not None:
        return head(*arrays, **tile._asdict())
    on_cpu, elsewhere = (functools.partial(head, **tiling(platform)._asdict()) for platform in ("cpu", "gpu"))
    return lax.platform_dependent(*arrays, cpu=on_cpu, default=elsewhere)


def check_token_batch(tokens_shape: tuple[int, ...], mask_shape: tuple[int, ...]) -> None:
    """Check that tokens and mask are [B, T]."""
    if len(tokens_shape) != 2 or tokens_shape != mask_shape:
        raise InputError(f"tokens and mask must both be [B, T]; their shapes are {tokens_shape} and {mask_shape}")
    if tokens_shape[1] == 0:
        raise InputError(f"tokens has shape {tokens_shape}: T must be at least 1")
