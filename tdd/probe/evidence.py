"""Evidence over many looks that the suspects, as a set and one by one, are in the training data.

The set. Null hypothesis: given everything the training did, which of the m + n items are suspects and which are
references is a uniformly random labelling. The scores of all items at all looks are compared with those under random
relabellings that are drawn once, so looking often costs no error (`tdd.kernels.set_statistics`,
`tdd.kernels.trajectories`).

The items. E_j(t) = sum over the looks s <= t of w_s e_js, e_js the conformal e-value of suspect j at look s. The
weights w_s >= 0 are the fractions of the level that the looks spend; a planned last look has a quarter of the others'
besides, since with few references it alone may show anything. FDR <= alpha for e-BH on E(tau) at any look tau, however
chosen: E_j never falls, so E_j(tau) <= E_j(end), and e-BH has FDR <= (alpha/m) E sum_j E_j(tau) over the
suspects j for which the null holds; at each look their e-values sum to at most m in expectation, and the w_s sum to at
most 1. What a look flags is flagged by every later one.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import operator
import threading
from collections.abc import Callable
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tdd.kernels import evalues, trajectories
from tdd.kernels.set_statistics import Statistic, set_statistics
from tdd.kernels.trajectories import Evidence
from tdd.procedures import anytime
from tdd.records import Guarantee, pytree
from tdd.validate import InputError

ITEMS = Guarantee(
    "FDR <= alpha among the flagged suspects, at whatever look one stops",
    (
        "at every look, given the scores of the other suspects, references and suspects that were not trained on are "
        "exchangeable: items of the same kind, prepared and scored in the same way",
        "the score, the steps of the looks and their number were fixed before any score was seen",
        "the training does not react to the evidence, except by stopping",
    ),
    "finite-sample",
    "e-BH on conformal e-values that add up over the looks (tdd.probe.evidence); Wang & Ramdas (2022); Bashari et al. "
    "(2023)",
)

CANARIES = Guarantee(
    "P(p <= t) <= t for every t and each canary that was not trained on, at a look fixed beforehand",
    (
        "canaries and their references were made in the same way, and which of them were planted was drawn at random",
        "the score and every other option were chosen before any result was seen",
    ),
    "finite-sample",
    "rank among exchangeable scores; Carlini et al. (2019), section 4, for the exposure",
)
GUARANTEE_ROWS = [
    ("tdd.Probe", "alarm", anytime.GUARANTEE),
    ("tdd.Probe", "flagged suspects", ITEMS),
    ("tdd.Probe", "canary p-values", CANARIES),
    ("tdd.probe.contamination", "alarm, reference=...", anytime.GUARANTEE),
    ("tdd.probe.over_checkpoints", "alarm", anytime.GUARANTEE),
    ("tdd.probe.over_checkpoints", "flagged suspects", ITEMS),
]


_Options = ParamSpec("_Options")
_Guard = TypeVar("_Guard", bound="OneAtATime")
_Result = TypeVar("_Result")

_NO_SCORE = float(np.finfo(np.float32).max)
"""In a baseline: there is no score yet. A number, for programs under `jax_debug_nans` that return the state."""


class ProbeState(NamedTuple):
    """State that a probe carries from look to look; a pytree of fixed shape.

    Attributes:
      rule: state of the sequential rule.
      baseline: [m + n] float32, the first finite score of each item; the largest float32 where there is none yet.
      look: [] int32, number of looks so far.
      item_e_values: [m] e-values of the suspects, over all looks so far; they never fall.
    """

    rule: Any
    baseline: jax.Array
    look: jax.Array
    item_e_values: jax.Array


@dataclasses.dataclass(frozen=True)
class SetEvidence:
    """The rule that turns looks into evidence."""

    num_suspects: int
    num_items: int
    num_draws: int
    alpha: float
    horizon: int | None  # number of looks over which the level is spent
    from_first: bool  # whether later looks test what the scores of the first look do not explain
    statistic: Statistic

    def init(self) -> ProbeState:
        """The state before the first look."""
        rule = trajectories.start(self.num_draws, alpha=self.alpha)
        unknown = jnp.full(self.num_items, _NO_SCORE, jnp.float32)
        return ProbeState(rule, unknown, jnp.int32(0), jnp.zeros(self.num_suspects, rule.spent.dtype))

    def observe(self, labels: jax.Array, state: ProbeState, result: ProbeResult) -> tuple[ProbeState, Evidence]:
        """Take in one look.

        Items without a finite score, now or so far, are left out under every labelling alike. Looks beyond the horizon
        spend no more of the level: what was found stays valid, and hardly anything is added.
        """
        scores = jnp.concatenate([result.suspect_scores, result.reference_scores])
        statistics = functools.partial(set_statistics, scores, labels, statistic=self.statistic)
        scored = state.baseline < _NO_SCORE  # earlier versions saved NaN where there is none
        if self.from_first:
            baseline = jnp.where(scored, state.baseline, jnp.nan)
            labelled = lax.cond(state.look == 0, statistics, lambda: statistics(baseline=baseline))
        else:
            labelled = statistics()
        look = state.look + 1
        rule, evidence = trajectories.advance(state.rule, labelled, trajectories.spending(look, self.horizon))
        known = scored | ~jnp.isfinite(scores)
        weight = self._total_weight(look, rule.spent) - self._total_weight(state.look, state.rule.spent)
        items = state.item_e_values + weight * self.item_e_values(result)
        return ProbeState(rule, jnp.where(known, state.baseline, scores), look, items), evidence

    def _total_weight(self, look: jax.Array, spent: jax.Array) -> jax.Array:
        """[] sum of the weights w_s of the looks up to this one."""
        return spent if self.horizon is None else jnp.where(look >= self.horizon, 1, 0.75 * spent)

    def item_e_values(self, result: ProbeResult) -> jax.Array:
        """[m] conformal e-values of the suspects at one look; 0 without a finite score.

        Their threshold is where BH cuts at a fifth of alpha, so that evidence in a fifth of the looks can suffice.
        """
        reference, suspect = result.reference_scores, result.suspect_scores
        masks = {"calibration_mask": jnp.isfinite(reference), "mask": jnp.isfinite(suspect)}
        e_values = evalues.conformal_e_values(reference, suspect, self.alpha / 5, null="nonmember", **masks)
        return jnp.where(masks["calibration_mask"].any() & ~jnp.isnan(e_values), e_values, 0)

    def flagged(self, state: ProbeState) -> evalues.EStepUp:
        """e-BH over the suspects at alpha: [m] decisions that hold at whatever look one stops."""
        return evalues.e_bh(state.item_e_values, self.alpha)


GRAD_NORM_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Levels of the reported quantiles of the suspects' gradient norms."""


@pytree()
class ProbeResult:
    """Scores and decisions at one set of parameters. m suspects, n references, c canaries, k canary references.

    Scores are loss-like: LOWER = MORE member-like. A score that is not finite is left out of every comparison.

    Attributes:
      suspect_scores: [m] float32.
      reference_scores: [n] float32.
      p_values: [m] conformal p-values of "this suspect is a non-member", (1 + #{references <= it}) / (n + 1); NaN where
        the score is not finite.
      adjusted: [m] adjusted p-values of PTDI; `selected == (adjusted <= alpha)`. NaN likewise.
      selected: [m] bool, suspects that this one evaluation selects as members: FDR <= alpha if it was chosen before
        any score was seen, not if it was chosen for its alarm; see `ProbeRecord.flagged`.
      num_flagged: [] int32, number of selected suspects.
      proportion: [] estimated fraction of members among the suspects; 0 under proportion="none", and negative where
        the suspects look even less like members than the references.
      canary_scores: [c] float32; [0] without canaries, as the next three.
      canary_rank: [c] int32, 1 + the number of canary references that score as low or lower; k + 1 where the canary's
        own score is not finite.
      canary_exposure: [c] log2(k + 1) - log2(rank), in bits (Carlini et al. 2019, "The secret sharer", definition 3,
        over the canary and its references).
      canary_p_values: [c] rank / (k + 1).
      grad_norm_quantiles: [5] minimum, quartiles and maximum of the norms of the gradients of the suspects' summed
        losses; [0] without `grad_norms`.
      num_not_finite: [] int32, scores of any role that are not finite.
    """

    suspect_scores: jax.Array
    reference_scores: jax.Array
    p_values: jax.Array
    adjusted: jax.Array
    selected: jax.Array
    num_flagged: jax.Array
    proportion: jax.Array
    canary_scores: jax.Array
    canary_rank: jax.Array
    canary_exposure: jax.Array
    canary_p_values: jax.Array
    grad_norm_quantiles: jax.Array
    num_not_finite: jax.Array


@dataclasses.dataclass(frozen=True)
class ProbeRecord:
    """One look; `evidence` is that the suspects as a set are in the training data."""

    step: int  # of the training
    look: int  # from 1
    result: ProbeResult  # NumPy arrays
    evidence: Evidence  # p_value of this look alone, anytime_p_value and log_e_value of all looks so far; NumPy scalars
    alarm: bool  # whether the anytime p-value has been alpha or less, now or before
    warnings: tuple[str, ...]  # sentences about this look
    seconds: float  # from the call to the result on the host; the first look compiles
    e_values: np.ndarray  # [m] e-values of the suspects, over all looks so far
    adjusted: np.ndarray  # [m] the smallest level at which each suspect is flagged
    flagged: np.ndarray  # [m] bool, suspects that the looks so far flag: FDR <= alpha at whatever look one stops
    on_schedule: bool = True  # whether the look came `every` steps after the one before

    def scalars(self, prefix: str = "tdd/") -> dict[str, float]:
        """The look as numbers for a metric writer, by name.

        p_value, anytime_p_value, log_e_value, alarm (0 or 1), num_flagged (by all looks so far), num_selected (by this
        look alone), proportion, mean_suspect and mean_reference (of the finite scores), num_not_finite, seconds; with
        canaries canary_exposure_max and canary_exposure_median (bits) and canary_p_value_min; with gradient norms
        grad_norm_q0 to grad_norm_q100.
        """
        result = self.result
        numbers = {
            "p_value": self.evidence.p_value,
            "anytime_p_value": self.evidence.anytime_p_value,
            "log_e_value": self.evidence.log_e_value,
            "alarm": self.alarm,
            "num_flagged": np.sum(self.flagged),
            "num_selected": result.num_flagged,
            "proportion": result.proportion,
            "mean_suspect": _finite_mean(result.suspect_scores),
            "mean_reference": _finite_mean(result.reference_scores),
            "num_not_finite": result.num_not_finite,
            "seconds": self.seconds,
        }
        if len(result.canary_rank):
            numbers["canary_exposure_max"] = np.max(result.canary_exposure)
            numbers["canary_exposure_median"] = np.median(result.canary_exposure)
            numbers["canary_p_value_min"] = np.min(result.canary_p_values)
        if len(result.grad_norm_quantiles):
            for level, norm in zip(GRAD_NORM_QUANTILES, result.grad_norm_quantiles, strict=True):
                numbers[f"grad_norm_q{round(100 * level)}"] = norm
        return {prefix + name: float(number) for name, number in numbers.items()}


class OneAtATime:
    """What several threads may call: its methods `one_at_a_time` wait for one another.

    The lock is left out of pickles and copies, which have one of their own.
    """

    _lock: threading.RLock  # pyright: ignore[reportInvalidTypeForm]

    def __new__(cls, *_: Any, **__: Any) -> Self:  # noqa: D102
        made = super().__new__(cls)
        made._lock = threading.RLock()
        return made

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            held = {name: value for name, value in vars(self).items() if name != "_lock"}
            return {
                name: copy.copy(value) if isinstance(value, (list, dict)) else value for name, value in held.items()
            }


def one_at_a_time(
    method: Callable[Concatenate[_Guard, _Options], _Result],
) -> Callable[Concatenate[_Guard, _Options], _Result]:
    """The method, which waits while another thread is in a method of the same object."""

    @functools.wraps(method)
    def locked(self: _Guard, *args: _Options.args, **kwargs: _Options.kwargs) -> _Result:
        with self._lock:
            return method(self, *args, **kwargs)

    return locked


class AlarmHistory(OneAtATime):
    """A `history` of records, in which an alarm stays once it has been raised."""

    history: list[Any]

    @property
    def alarm(self) -> bool:
        """True once the anytime p-value has been alpha or less."""
        return bool(self.history) and self.history[-1].alarm

    @property
    def first_alarm(self) -> int | None:
        """The step at which that first happened."""
        return next((record.step for record in self.history if record.alarm), None)


def as_step(step: Any, last: int | None = None) -> int:
    """The number of a training step, not before the last one."""
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if isinstance(step, (bool, np.bool_)) or not 0 <= number < 2**31:
        raise InputError(
            f"step={step!r} must be the number of the training step, a whole number from 0 to 2^31 - 1; inside a "
            "compiled function use evaluate and observe"
        )
    if last is not None and number < last:
        raise InputError(
            f"step={number} comes after step {last}, and evidence over a run is not taken back. If training restarts "
            "from a checkpoint, load the state that was saved with it (load_state_dict); for another run, start anew"
        )
    return number


def check_same(name: str, saved: Any, expected: Any) -> None:
    """A saved state belongs to a guard with the same arguments."""
    if saved != expected:
        raise InputError(
            f"state is of another guard: its {name} is {saved!r}, this guard's is {expected!r}; make the guard with "
            "the arguments of the run that saved the state"
        )


def as_bytes(text: str) -> np.ndarray:
    """A text as an array [n] uint8, which every format of checkpoints takes."""
    return np.frombuffer(text.encode(), np.uint8)


def as_text(saved: Any) -> str:
    """Invert `as_bytes`; a text, as earlier versions saved it, stays as it is."""
    return saved if isinstance(saved, str) else np.asarray(saved, np.uint8).tobytes().decode()


def _finite_mean(scores: Any) -> float:
    finite = scores[np.isfinite(scores)]
    return float(finite.mean(dtype=np.float64)) if finite.size else float("nan")
