"""A probe of a training run: what holds at a look that the evidence chose."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp

from tdd.probe.evidence import ProbeResult, ProbeState, SetEvidence
from tdd.procedures.ptdi import ptdi
from tdd.study.claims import Claim, Setting

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


def _of_items(key: jax.Array, rule: str, m: int, n: int, alpha: float, looks: int) -> jax.Array:
    """Whether a suspect is named at the look of the first alarm, or else at the last, though nothing leaked."""
    data, own = jax.random.split(key)
    probe, labels = _rule(m, n, alpha, looks), _labels(own, m, n)
    noise = jax.random.normal(data, (looks + 1, m + n))
    scores = (noise[0] + noise[1:]) / 2**0.5  # looks at the same items depend on each other

    def look(state: ProbeState, now: jax.Array) -> tuple[ProbeState, tuple[jax.Array, jax.Array]]:
        state, evidence = probe.observe(labels, state, _result(now, m))
        named = (
            probe.flagged(state).reject
            if rule == "flagged"
            else ptdi(now[m:], now[:m], alpha=alpha, proportion="none").selected
        )
        return state, (evidence.anytime_p_value <= alpha, named.any())

    _, (alarm, named) = jax.lax.scan(look, probe.init(), scores)
    stop = jnp.where(alarm.any() & (rule != "last"), jnp.argmax(alarm), looks - 1)
    return named[stop].astype(jnp.float32)


def _of_alarm(key: jax.Array, rule: bool, every: int, m: int, n: int, alpha: float, looks: int) -> jax.Array:
    """Whether there is an alarm though nothing leaked, looks being `every` steps apart, or sooner if they react."""
    data, own = jax.random.split(key)
    probe, labels = _rule(m, n, alpha, looks), _labels(own, m, n)

    def step(carry: tuple, inputs: tuple) -> tuple[tuple, jax.Array]:
        state, scores, due = carry
        number, noise = inputs
        scores = 0.8 * scores + (1 - 0.8**2) ** 0.5 * noise
        seen, evidence = probe.observe(labels, state, _result(scores, m))
        looks_now = (number >= due) & (state.look < looks)
        near = rule & (evidence.p_value <= 2 * alpha)  # a near miss: look again at once
        state = jax.tree.map(partial(jnp.where, looks_now), seen, state)
        due = jnp.where(looks_now, jnp.where(near, number + 1, number + every), due)
        return (state, scores, due), looks_now & (evidence.anytime_p_value <= alpha)

    noise = jax.random.normal(data, (every * looks + 1, m + n))
    start = (probe.init(), noise[0], jnp.int32(0))
    _, alarms = jax.lax.scan(step, start, (jnp.arange(every * looks), noise[1:]))
    return alarms.any().astype(jnp.float32)


_of_20 = partial(_of_items, m=20, n=99, alpha=0.2, looks=10)
_SUSPECTS = "20 suspects, none leaked, 99 references, 10 looks, read at the {}, alpha = .2"
_ALARM, _LAST = (Setting(_SUSPECTS.format(look), "FDR", 0.2, _of_20, batch=200) for look in ("alarm", "last"))
_DRIFT = Setting(
    "8 suspects, none leaked, 8 references, scores that drift, 8 looks, alpha = .2",
    "size",
    0.2,
    partial(_of_alarm, every=4, m=8, n=8, alpha=0.2, looks=8),
    batch=200,
)

CLAIMS: tuple[Claim, ...] = (
    _ALARM.claim("probe/one-look-at-the-alarm", "tdd.ptdi at the look of the alarm", False, "alarm"),
    _ALARM.claim("probe/flagged-at-the-alarm", "tdd.Probe, flagged suspects", True, "flagged"),
    _LAST.claim("probe/one-look-fixed", "tdd.ptdi at a look fixed beforehand", True, "last"),
    _DRIFT.claim("probe/looks-that-react", "tdd.Probe, a look again at once after a near miss", False, True),
    _DRIFT.claim("probe/looks-on-schedule", "tdd.Probe, looks as `every` fixes them", True, False),
)
