"""A probe of a training run: what may be said at a look that the evidence chose."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from tdd.probe.evidence import ProbeState, SetEvidence
from tdd.probe.result import ProbeResult
from tdd.procedures.ptdi import ptdi
from tdd.study.claims.claim import Claim

__all__ = ["CLAIMS"]

_DRAWS = 39


def _rule(m: int, n: int, alpha: float, looks: int) -> SetEvidence:
    return SetEvidence(m, m + n, _DRAWS, alpha, looks, False, "combined")


def _labels(key: jax.Array, m: int, n: int) -> jax.Array:
    """[B + 1, m + n] bool: the true labelling and random ones, which are a part of the law."""
    first = jnp.arange(m + n) < m
    drawn = jax.vmap(lambda one: jax.random.permutation(one, first))(jax.random.split(key, _DRAWS))
    return jnp.concatenate([first[None], drawn])


def _result(scores: jax.Array, m: int) -> ProbeResult:
    """A look at scores [m + n]."""
    fields = {field.name: jnp.zeros(0) for field in dataclasses.fields(ProbeResult)}  # pyright: ignore[reportArgumentType]
    return ProbeResult(**{**fields, "suspect_scores": scores[:m], "reference_scores": scores[m:]})


def _of_items(key: jax.Array, which: str, m: int, n: int, alpha: float, looks: int) -> jax.Array:
    """Nothing leaked: whether a suspect is named at the look of the first alarm, the last where there is none."""
    data, own = jax.random.split(key)
    rule, labels = _rule(m, n, alpha, looks), _labels(own, m, n)
    noise = jax.random.normal(data, (looks + 1, m + n))
    scores = (noise[0] + noise[1:]) / 2**0.5  # looks at the same items depend on each other

    def look(state: ProbeState, now: jax.Array) -> tuple[ProbeState, tuple[jax.Array, jax.Array]]:
        state, evidence = rule.observe(labels, state, _result(now, m))
        named = (
            rule.flagged(state).reject
            if which == "flagged"
            else ptdi(now[m:], now[:m], alpha=alpha, proportion="none").selected
        )
        return state, (evidence.anytime_p_value <= alpha, named.any())

    _, (alarm, named) = jax.lax.scan(look, rule.init(), scores)
    stop = jnp.where(alarm.any() & (which != "last"), jnp.argmax(alarm), looks - 1)
    return named[stop].astype(jnp.float32)


def _of_alarm(key: jax.Array, reacts: bool, every: int, m: int, n: int, alpha: float, looks: int) -> jax.Array:
    """Nothing leaked: whether there is an alarm within so many looks, `every` steps or sooner where they react."""
    data, own = jax.random.split(key)
    rule, labels = _rule(m, n, alpha, looks), _labels(own, m, n)

    def step(carry: tuple, inputs: tuple) -> tuple[tuple, jax.Array]:
        state, scores, due = carry
        number, noise = inputs
        scores = 0.8 * scores + (1 - 0.8**2) ** 0.5 * noise
        seen, evidence = rule.observe(labels, state, _result(scores, m))
        looks_now = (number >= due) & (state.look < looks)
        near = reacts & (evidence.p_value <= 2 * alpha)  # a near miss: look again at once
        state = jax.tree.map(partial(jnp.where, looks_now), seen, state)
        due = jnp.where(looks_now, jnp.where(near, number + 1, number + every), due)
        return (state, scores, due), looks_now & (evidence.anytime_p_value <= alpha)

    noise = jax.random.normal(data, (every * looks + 1, m + n))
    start = (rule.init(), noise[0], jnp.int32(0))
    _, alarms = jax.lax.scan(step, start, (jnp.arange(every * looks), noise[1:]))
    return alarms.any().astype(jnp.float32)


def _claim(name: str, procedure: str, setting: str, error: str, level: float, holds: bool, one: Callable) -> Claim:
    return Claim(f"probe/{name}", procedure, setting, error, level, holds, one, batch=200)  # pyright: ignore[reportArgumentType]


_STOPPED = "20 suspects, none leaked, 99 references, 10 looks, read at the alarm, alpha = .2"
_FIXED = "20 suspects, none leaked, 99 references, 10 looks, read at the last, alpha = .2"
_STEPS = "8 suspects, none leaked, 8 references, scores that drift, 8 looks, alpha = .2"
_sizes = {"m": 20, "n": 99, "alpha": 0.2, "looks": 10}
_few = {"every": 4, "m": 8, "n": 8, "alpha": 0.2, "looks": 8}

CLAIMS: tuple[Claim, ...] = (
    _claim("one-look-at-the-alarm", "tdd.ptdi at the look of the alarm", _STOPPED, "FDR", 0.2, False,
           partial(_of_items, which="alarm", **_sizes)),
    _claim("flagged-at-the-alarm", "tdd.Probe, flagged suspects", _STOPPED, "FDR", 0.2, True,
           partial(_of_items, which="flagged", **_sizes)),
    _claim("one-look-fixed", "tdd.ptdi at a look fixed beforehand", _FIXED, "FDR", 0.2, True,
           partial(_of_items, which="last", **_sizes)),
    _claim("looks-that-react", "tdd.Probe, a look again at once after a near miss", _STEPS, "size", 0.2, False,
           partial(_of_alarm, reacts=True, **_few)),
    _claim("looks-on-schedule", "tdd.Probe, looks as `every` fixes them", _STEPS, "size", 0.2, True,
           partial(_of_alarm, reacts=False, **_few)),
)  # fmt: skip
