"""Beam search in groups (Vijayakumar et al. 2018), with the penalties that paraphrasers are commonly run with.

Groups decode side by side. At each position a group chooses its beams after the groups before it, whose tokens at this
position cost it `diversity_penalty` each. A sequence that ends counts with its sum of penalised log-probabilities,
divided by its length. With one group and no penalties this is the beam search of transformers 5; with beams that have a
group each, it is the group beam search of transformers 4.

Symbols: B rows, G groups of k beams, V vocabulary, T longest sequence, N = B G k.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tdd.validate import InputError
from tdd.validate.files import check_positive

_NEVER = -1e9
"""Score of what must not be chosen; finite, so that the order among such entries stays defined."""


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """How to search; the defaults are those that circulate for T5 paraphrasers."""

    beams: int = 5  # G k, as many sequences are returned
    groups: int = 5  # G, a divisor of `beams`
    # subtracted from a token's log-probability for each beam of an earlier group that has chosen it at this position
    diversity_penalty: float = 3.0
    repetition_penalty: float = 10.0  # factor of the log-probability of tokens that the sequence holds already
    no_repeat_ngram: int = 2  # number of tokens in a row that a sequence may not hold twice; 0 for no limit

    def __post_init__(self) -> None:
        check_positive(beams=self.beams, groups=self.groups, repetition_penalty=self.repetition_penalty)
        if self.beams % self.groups:
            raise InputError(f"beams={self.beams} must be a multiple of groups={self.groups}")
        if self.diversity_penalty < 0 or self.no_repeat_ngram < 0:
            raise InputError(
                f"diversity_penalty={self.diversity_penalty} and no_repeat_ngram={self.no_repeat_ngram} must be at "
                "least 0"
            )


class _State(NamedTuple):
    step: jax.Array  # [] position that is written next
    written: jax.Array  # [B, G, k, T + 1] start and tokens of the running beams
    scores: jax.Array  # [B, G, k] their sums of penalised log-probabilities
    ended: jax.Array  # [B, G, k, T + 1] the best sequences that have ended
    ended_scores: jax.Array  # [B, G, k] divided by their lengths; `_NEVER` where there is none
    open: jax.Array  # [B, G] whether a running beam may still beat an ended one
    model: Any  # the model's own state, leaves [., N, ...]


def search(
    advance: Callable[[Any, jax.Array, jax.Array], tuple[jax.Array, Any]],
    model: Any,
    how: BeamSearch,
    *,
    rows: int,
    longest: int,
    start: int,
    end: int,
    padding: int,
) -> jax.Array:
    """The best sequences of each row, best first: [B, G k, longest] ids without the start, `padding` after `end`.

    Args:
      advance: (state of the model, last tokens [N], position) -> (logits [N, V] of the next tokens, new state).
      model: State of the model at the start, a tree with leaves [., N, ...].
      rows: B.
      longest: T, most tokens of a sequence.
      start, end, padding: Ids of the tokens that begin and end a sequence, and that follow the end.
    """
    groups, beams = how.groups, how.beams // how.groups
    each = (rows, groups, beams)
    first = jnp.full((*each, longest + 1), padding, jnp.int32).at[..., 0].set(start)
    none = jnp.full(each, _NEVER)
    begun = _State(
        jnp.asarray(0), first, none.at[..., 0].set(0.0), first, none, jnp.ones(each[:2], bool), model
    )  # one beam a group runs at first: the others are equal to it

    def advanced(state: _State) -> _State:
        last = lax.dynamic_index_in_dim(state.written, state.step, 3, keepdims=False)
        logits, moved = advance(state.model, last.reshape(-1), state.step)
        log_probs = jax.nn.log_softmax(logits).reshape(*each, -1)
        used = jnp.zeros((rows, log_probs.shape[-1]))
        chosen = []
        for group in range(groups):
            of_group = _Group(*(part[:, group] for part in state[1:6]))
            allowed = penalised(log_probs[:, group], of_group.written, state.step, used, how)
            found, parents = _chosen(of_group, allowed, state.step, end=end, last=state.step + 1 == longest)
            chosen.append((found, parents))
            tokens = lax.dynamic_index_in_dim(found.written, state.step + 1, 2, keepdims=False)
            used = used.at[jnp.arange(rows)[:, None], tokens].add(of_group.open[:, None])
        parents = jnp.stack([one for _, one in chosen], 1)
        source = parents + beams * jnp.arange(groups)[:, None] + how.beams * jnp.arange(rows)[:, None, None]
        moved = jax.tree.map(lambda leaf: leaf[:, source.reshape(-1)], moved)
        joined = jax.tree.map(lambda *parts: jnp.stack(parts, 1), *(found for found, _ in chosen))
        return _State(state.step + 1, **joined._asdict(), model=moved)

    final = lax.while_loop(lambda state: (state.step < longest) & state.open.any(), advanced, begun)
    order = lax.top_k(final.ended_scores.reshape(rows, -1), how.beams)[1]
    return jnp.take_along_axis(final.ended.reshape(rows, how.beams, -1), order[..., None], 1)[..., 1:]


class _Group(NamedTuple):
    """`_State` of one group."""

    written: jax.Array
    scores: jax.Array
    ended: jax.Array
    ended_scores: jax.Array
    open: jax.Array


def _chosen(group: _Group, log_probs: jax.Array, step: jax.Array, *, end: int, last: jax.Array) -> tuple[_Group, Any]:
    """The group after one token more, and which beam each running one goes on from, [B, k]; log_probs [B, k, V]."""
    rows, beams, vocabulary = log_probs.shape
    summed = (log_probs + group.scores[..., None]).reshape(rows, -1)
    best, place = lax.top_k(summed, 2 * beams)  # k of them do not end
    parents, tokens = place // vocabulary, place % vocabulary
    written = jnp.take_along_axis(group.written, parents[..., None], 1).at[:, :, step + 1].set(tokens)
    scores, going_on = lax.top_k(best + jnp.where(tokens == end, _NEVER, 0.0), beams)
    ends = ((tokens == end) | last) & (jnp.arange(2 * beams) < beams) & group.open[:, None]
    merged = jnp.concatenate([group.ended_scores, jnp.where(ends, best / (step + 1), _NEVER)], 1)
    ended_scores, kept = lax.top_k(merged, beams)
    ended = jnp.take_along_axis(jnp.concatenate([group.ended, written], 1), kept[..., None], 1)
    worst = ended_scores.min(1)
    still = group.open & ((worst <= _NEVER) | (scores[:, 0] / (step + 1) > worst))
    running = jnp.take_along_axis(written, going_on[..., None], 1)
    return _Group(running, scores, ended, ended_scores, still), jnp.take_along_axis(parents, going_on, 1)


def penalised(log_probs: jax.Array, written: jax.Array, step: Any, used: jax.Array, how: BeamSearch) -> jax.Array:
    """Log-probabilities [B, k, V] after the penalties, in the order diversity, repetition, n-grams.

    Args:
      log_probs: [B, k, V].
      written: [B, k, M] sequences with their start; position `step` is the last that is written.
      step: That position.
      used: [B, V] how many beams of earlier groups have chosen each token at the next position.
    """
    rows, beams, vocabulary = log_probs.shape
    scores = log_probs - how.diversity_penalty * used[:, None]
    each = (jnp.arange(rows)[:, None, None], jnp.arange(beams)[:, None])
    nothing = jnp.zeros((rows, beams, vocabulary), bool)
    held = nothing.at[(*each, written)].max(jnp.arange(written.shape[-1]) <= step)
    factor = jnp.where(scores < 0, how.repetition_penalty, 1 / how.repetition_penalty)
    scores = jnp.where(held, scores * factor, scores)
    size = how.no_repeat_ngram
    if not size or size > written.shape[-1]:
        return scores
    begins = jnp.arange(written.shape[-1] - size + 1)
    repeats = begins + size - 1 <= step
    for offset in range(size - 1):
        newest = lax.dynamic_index_in_dim(written, jnp.maximum(step - size + 2 + offset, 0), 2)
        repeats &= written[..., begins + offset] == newest
    banned = nothing.at[(*each, written[..., begins + size - 1])].max(repeats)
    return jnp.where(banned, -jnp.inf, scores)
