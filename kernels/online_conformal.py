"""Online conformal p-values: the rank of every score among those before it.

    p_t = (#{s < t: T_s more extreme than T_t} + U_t (1 + #{s < t: T_s = T_t})) / t

are independent and uniform if T_1, T_2, ... are exchangeable. With a window of w scores, p_t is the rank among the w
that are held. A score that arrives joins them and one of the w + 1, each with the same chance, leaves. Which of them
is the last arrival then tells nothing about those that stay, so p_t stays independent of all that follows; the last w
scores in a row, or a uniform sample of all so far, would not do.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp

from tdd.kernels.conformal import check_null

__all__ = ["State", "advance", "draw", "key_after", "p_values", "start"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """The scores that the next one is compared with."""

    scores: jax.Array  # [w]; the first `num_held` are real
    num_held: jax.Array  # [] int32
    null: Literal["nonmember", "member"] = dataclasses.field(metadata={"static": True})


def start(window: int, *, null: Literal["nonmember", "member"], dtype: Any = None) -> State:
    """No score yet; `dtype` is JAX's default float by default.

    `window` is w, the largest number of held scores, static: up to w + 1 scores the p-values are those of the whole
    past. `null` is "nonmember" (small scores are extreme) or "member" (large ones are).

    Raises ValueError: unknown `null`, `window` below 1.
    """
    check_null(null)
    if window < 1:
        raise ValueError(f"window must be at least 1, got {window!r}")
    return State(jnp.zeros(window, dtype or jnp.result_type(float)), jnp.int32(0), null)


def key_after(key: jax.Array, value: Any, mask: Any = True) -> jax.Array:
    """The key with one more value of the stream folded in; NaN and `mask` False leave it as it is.

    With the keys of this chain the draw of a step depends on what has arrived, and one constant key does not give every
    stream the same numbers U_t. The same values give the same chain, in any precision that holds them.
    """
    value = jnp.asarray(value, jnp.float32)
    word = jax.lax.bitcast_convert_type(jnp.where(value == 0, 0, value), jnp.uint32)  # one word for both zeros
    after = jax.random.fold_in(key, word)
    return jax.tree.map(lambda new, old: jnp.where(mask & (value == value), new, old), after, jax.random.clone(key))


def draw(key: jax.Array, window: int) -> tuple[jax.Array, jax.Array]:
    """Randomness of one step: U in (0, 1], and the place in 0..w of the score that leaves (w: the new one)."""
    tie, place = jax.random.split(jax.random.clone(key))  # `key_after` continues the chain from the same key
    return 1 - jax.random.uniform(tie, (), jnp.result_type(float)), jax.random.randint(place, (), 0, window + 1)


def advance(
    state: State, score: Any, uniform: jax.Array, leaves: jax.Array, mask: Any = True
) -> tuple[State, jax.Array]:
    """The p-value of the next score, which then joins those that are held: the new state, and p [] in (0, 1].

    `uniform` and `leaves` are those of `draw`; the place counts once w scores are held. A NaN score, or one with `mask`
    False, takes no place and has p NaN. Cost: O(w).
    """
    held, window = state.scores, state.scores.shape[0]
    score = jnp.asarray(score, held.dtype)
    real = mask & (score == score)
    known = jnp.arange(window, dtype=jnp.int32) < state.num_held
    beyond = held < score if state.null == "nonmember" else held > score
    strict, equal = (jnp.sum(known & which, dtype=jnp.int32) for which in (beyond, held == score))
    p = (strict + uniform * (1 + equal)) / (state.num_held + 1).astype(uniform.dtype)
    place = jnp.where(state.num_held < window, state.num_held, leaves)
    joined = jnp.where((jnp.arange(window, dtype=jnp.int32) == place) & real, score, held)
    after = dataclasses.replace(
        state, scores=joined, num_held=jnp.minimum(state.num_held + real.astype(jnp.int32), window)
    )
    return after, jnp.where(real, jnp.minimum(p, 1), jnp.nan)


def p_values(
    scores: jax.Array,
    *,
    null: Literal["nonmember", "member"],
    key: jax.Array | None = None,
    uniforms: jax.Array | None = None,
    window: int | None = None,
    mask: jax.Array | None = None,
    evidence: jax.Array | None = None,
) -> jax.Array:
    """p-values of a whole stream: a scan over `advance` with `draw` of the keys of `key_after`.

    **Guarantee**: independent and uniform for exchangeable scores, ties or not; finite-sample.

    Args:
      scores, mask: [T] in order of arrival, NaN masked out; bool, True = real.
      null: "nonmember" or "member".
      key: PRNG key; what stands at t depends on it and on the first t scores (and evidence) alone.
      uniforms: [T] in (0, 1], U_t in place of those of the key.
      window: w, static; None for the whole past. The memory is O(w).
      evidence: [T] what `key_after` folds in; the scores by default. For scores that stand for others by their order.

    Returns: [T] in (0, 1]; NaN for masked scores.
    Raises ValueError: unknown `null`, `window` below 1, no `key` where one is needed.
    Cost: O(T w), O(T^2) for the whole past.
    References: Vovk, Gammerman & Shafer (2005), theorem 8.1, for the whole past.
    """
    length = scores.shape[0]
    size = max(length, 1) if window is None else window
    if key is None and (uniforms is None or length > size + 1):
        raise ValueError("key is needed: it breaks ties and picks the score that leaves a full window")
    real = jnp.ones(length, bool) if mask is None else mask
    state = start(size, null=null, dtype=scores.dtype)

    def step(carry: Any, item: Any) -> tuple[Any, jax.Array]:
        (state, key), (score, value, keep, given) = carry, item
        if key is None:
            uniform, leaves = given, jnp.int32(size)
        else:
            key = key_after(key, value, keep)
            uniform, leaves = draw(key, size)
        state, p = advance(state, score, uniform if given is None else given, leaves, keep)
        return (state, key), p

    seen = scores if evidence is None else evidence
    return jax.lax.scan(step, (state, key), (scores, seen, real, uniforms))[1]
