"""`tdd.Probe`: suspects against references at many steps of somebody else's training run."""

from __future__ import annotations

import functools
import logging
import operator
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np

from tdd.kernels.evalues import EStepUp
from tdd.kernels.set_statistics import STATISTICS, Statistic, labellings
from tdd.placement import everywhere
from tdd.probe import folder as folders
from tdd.probe.evidence import ITEMS, Evidence, ProbeState, SetEvidence
from tdd.probe.program import COMPUTED_SCORES, Program, as_language_model
from tdd.probe.record import ProbeRecord, history_of_arrays, history_to_arrays
from tdd.probe.result import ProbeResult
from tdd.probe.texts import Layout, lay_out, num_texts, read_roles
from tdd.procedures import anytime
from tdd.procedures.ptdi import GUARANTEES, PROPORTIONS, ProportionName
from tdd.records import Guarantee
from tdd.scoring.buckets import default_budget
from tdd.scoring.scores import parse_score
from tdd.validate import arrays
from tdd.validate import probe as checks
from tdd.validate.arrays import check_seed
from tdd.validate.errors import InputError
from tdd.validate.scoring import check_budget, check_max_length

__all__ = ["Probe"]

_logger = logging.getLogger("tdd")


class Probe:
    """Watch whether a training run learns texts that it should not, or learns the ones that it should.

        probe = tdd.Probe(lm, suspect=benchmark, reference=fresh, tokenizer=tokenizer, every=500, num_steps=20_000)
        for step, batch in enumerate(batches):
            params, opt_state = train_step(params, opt_state, batch)
            probe(step, params)

    Suspects are compared with references: texts of the same kind that are certainly not in the training data. All
    texts lie in the same micro-batches in an order that knows nothing of their roles.

    Guarantees, provided that non-member suspects and references are exchangeable (copies within a role are not, since
    they move together: equal texts are refused, near copies must be removed before):
      the set: P(`alarm` at any look of the whole run) <= alpha if no suspect is in the training data, in finite
        samples, up to and beyond `num_steps`.
      the items: FDR <= alpha among the suspects that are `flagged`, at whatever look one stops or reads them, in
        finite samples. What one look flags stays flagged. `result.selected` has FDR <= alpha too, but only at a look
        that was chosen before any score was seen: at the look of the alarm it has twice that and more.
      canaries: P(p <= t) <= t for each canary that was not trained on, at each look by itself.
    Both of the first two take the steps of the looks as fixed beforehand, as `every` fixes them, and a training that
    does not react to the evidence except by stopping. A look that is added or left out because of what was seen voids
    them; one that is off the schedule says so in its record and in the report.

    Args:
      lm: a `LanguageModel`, or any function `logits(params, tokens [B, T] int32) -> [B, T, V]`. What has `hidden` and
        `readout` never forms [B, T, V]; of the others one micro-batch of logits is in memory at a time.
      suspect: texts to watch: strings, `Texts`, anything that `tdd.load_texts` reads, or rows of token ids.
      reference: texts of the same kind that are not in the training data, likewise.
      tokenizer: for strings; a transformers tokenizer, or any callable `(texts, add_special_tokens=True)` that returns
        {"input_ids": [...]}.
      score: "loss", "min_k", "min_k_plus_plus", "max_renyi" or "m_entropy", with options as in `tdd.score`.
      alpha: level in (0, 1) of the alarm, and of the flagged items.
      every: steps between looks; step 0 counts.
      num_steps: steps of the whole run, which spreads the level evenly over its looks; None where it is not known:
        then early looks may use more of it.
      canaries: sequences that were planted in the training data.
      canary_reference: sequences made in the same way and not planted: as many as exposure is to resolve.
      grad_norms: whether quantiles of the suspects' gradient norms are computed: three to four times a forward pass.
      proportion: how PTDI estimates the share of members: "storey", "none" or "subtraction".
      baseline: "first": what the scores of the first look explain is taken out at later ones, which removes most of
        what texts differ in by themselves; "none".
      statistic: of the set; see `tdd.kernels.set_statistics.set_statistics`.
      num_draws: relabellings of the set's test. Memory (num_draws + 1) (m + n) bytes.
      max_length: most tokens of a text; by default the model's own limit.
      long_texts: "error", or "truncate": the first tokens of a longer text are scored.
      token_budget: tokens a micro-batch, 2,048 on CPU and 16,384 elsewhere by default.
      seed: of the relabellings and of the order of the texts.
      name: shown in reports.

    Attributes:
      history: `ProbeRecord` of each look.
      state: what evidence has been gathered, a pytree.
      num_looks: looks over which the level is spent, at the steps 0, every, 2 every, ... below num_steps; None where
        num_steps is.
      fingerprint: SHA-256 of texts and options.

    Raises:
      InputError: texts that are empty, too long, in two roles or twice in one, token ids that the model does not have,
        too few references or draws for alpha, an unknown option; at the first look, a model that returns other shapes
        or types, or nothing finite.

    Cost: an evaluation is one forward pass over all texts, compiled once for at most four shapes.

    References: conformal p-values and flagged items as `tdd.ptdi`; canaries: Carlini et al. (2019), "The secret
    sharer", section 4.
    """

    def __init__(
        self,
        lm: Any,
        suspect: Any,
        reference: Any,
        *,
        tokenizer: Any = None,
        score: str = "loss",
        alpha: float = 0.05,
        every: int = 500,
        num_steps: int | None = None,
        canaries: Any = None,
        canary_reference: Any = None,
        grad_norms: bool = False,
        proportion: ProportionName = "storey",
        baseline: Literal["first", "none"] = "first",
        statistic: Statistic = "combined",
        num_draws: int = 9_999,
        max_length: int | None = None,
        long_texts: Literal["error", "truncate"] = "error",
        token_budget: int | None = None,
        seed: int = 0,
        name: str = "probe",
    ) -> None:
        model = as_language_model(lm, max_length)
        _check_probe_score(score, parse_score(score).score.name, COMPUTED_SCORES)
        arrays.check_level(alpha)
        arrays.check_choice(proportion, tuple(kind for kind in PROPORTIONS if kind != "moment"), "proportion")
        arrays.check_choice(baseline, ("first", "none"), "baseline")
        arrays.check_choice(statistic, STATISTICS, "statistic")
        arrays.check_choice(long_texts, ("error", "truncate"), "long_texts")
        self.every, self.name, self.alpha, seed = _check_every(every), str(name), float(alpha), check_seed(seed)
        steps = _check_num_steps(num_steps)
        limit = check_max_length(max_length, model.max_length)
        budget = default_budget(jax.default_backend()) if token_budget is None else check_budget(token_budget)
        sources = (suspect, reference, canaries, canary_reference)
        self.roles = read_roles(sources, tokenizer, limit, long_texts == "truncate", model.vocab_size)
        self.sizes = m, n, _, _ = num_texts(self.roles)
        checks.check_reachable(m, n, num_draws, self.alpha, known_end=steps is not None)
        self.options = {
            "score": score,
            "alpha": self.alpha,
            "every": self.every,
            "num_steps": steps,
            "grad_norms": bool(grad_norms),
            "proportion": proportion,
            "baseline": baseline,
            "statistic": statistic,
            "num_draws": int(num_draws),
            "max_length": limit,
            "long_texts": long_texts,
            "token_budget": budget,
            "seed": seed,
        }
        self.fingerprint = folders.fingerprint(self.options, self.roles)
        rows = [row for role in self.roles.values() for row in role.tokens]
        self._layout = lay_out(rows, budget=budget, limit=limit, seed=seed)
        self._gradients = lay_out(rows[:m], budget=-(-budget // 2), limit=limit, seed=seed) if grad_norms else None
        self._program = Program(model, score, self.sizes, self.alpha, proportion, max(int(row.max()) for row in rows))
        self.num_looks = None if steps is None else (steps - 1) // self.every + 1  # of steps 0, 1, ..., steps - 1
        self._rule = SetEvidence(m, m + n, int(num_draws), self.alpha, self.num_looks, baseline == "first", statistic)
        self._labels = np.asarray(labellings(m, n, int(num_draws), seed))
        self.history: list[ProbeRecord] = []
        self.state: ProbeState = jax.device_get(self.init())

    def evaluate(self, params: Any) -> ProbeResult:
        """Scores and decisions at these parameters. Pure: works inside `jax.jit`, `jax.lax.cond` and `jax.lax.scan`.

        Inside a compiled function the texts' tokens are constants of the program, four bytes a padded token.

        Raises:
          InputError: at trace time, logits of another shape or type than [B, T, V] floating.
        """
        return _evaluate(self._program, params, self._layout, self._gradients)

    def init(self) -> ProbeState:
        """The state before the first look, for `observe`."""
        return self._rule.init()

    def observe(self, state: ProbeState, result: ProbeResult) -> tuple[ProbeState, Evidence]:
        """Take in one look, in the order of training. Pure, as `evaluate`; the relabellings are constants."""
        return _observe(self._rule, self._labels, state, result)

    def flagged(self, state: ProbeState) -> jax.Array:
        """[m] bool, the suspects that the looks so far flag: FDR <= alpha at whatever look one stops. Pure."""
        return self._rule.flagged(state).reject

    def due(self, step: Any) -> bool:
        """Whether `probe(step, params)` would look."""
        number = _check_step(step)
        return number % self.every == 0 and not (self.history and self.history[-1].step == number)

    def __call__(self, step: Any, params: Any) -> ProbeRecord | None:
        """Look, if `step` is a multiple of `every` at which there was no look yet; else return None at once.

        The compiled programs are dispatched before the numbers are waited for: `params` may be donated afterwards.
        `step` is a Python or NumPy integer; a device's integer is waited for at every step. Where the parameters lie
        over the devices of several processes, each of them calls the probe, as it calls the training step, and each
        gets the record.

        Raises:
          InputError: no step, or one before the last look; at the first look, no finite score.
        """
        if not self.due(step):
            return None
        number, start = _check_step(step), time.perf_counter()
        if self.history:
            _check_forward(number, self.history[-1].step)
        found = self.evaluate(params)
        state, gathered = self.observe(self.state, found)
        result, evidence, state = _on_host((found, gathered, state))
        items = jax.device_get(_flagged(self._rule, state))
        if not self.history:
            _check_first_look(int(result.num_not_finite), sum(self.sizes))
        alarm = self.alarm or float(evidence.anytime_p_value) <= self.alpha
        look = len(self.history) + 1
        on_schedule = not self.history or number - self.history[-1].step == self.every
        warnings = self._warnings(look, number, on_schedule, result)
        self.state = state
        record = ProbeRecord(
            step=number,
            look=look,
            result=result,
            evidence=evidence,
            alarm=alarm,
            warnings=warnings,
            seconds=time.perf_counter() - start,
            e_values=state.item_e_values,
            adjusted=items.adjusted,
            flagged=items.reject,
            on_schedule=on_schedule,
        )
        self.history.append(record)
        for words in warnings:
            _logger.warning("%s, step %d: %s", self.name, number, words)
        return record

    @property
    def alarm(self) -> bool:
        """Whether the anytime p-value has been alpha or less at a look so far."""
        return bool(self.history) and self.history[-1].alarm

    @property
    def first_alarm(self) -> int | None:
        """The step of the look at which that first happened."""
        return next((record.step for record in self.history if record.alarm), None)

    @property
    def guarantees(self) -> dict[str, Guarantee]:
        """What holds of the "set", of the flagged "items", and of those that "one look" selects by itself."""
        return {"set": anytime.GUARANTEE, "items": ITEMS, "one look": GUARANTEES[self.options["proportion"]]}

    def save(self, folder: Any) -> None:
        """Write a run folder: run.json, history.csv, items.csv, and state.npz to go on from; see `restore`.

        Raises:
          InputError: the folder holds something else, or cannot be written.
        """
        folders.save(self, folder)

    def restore(self, folder: Any) -> None:
        """Go on where the probe stood that was saved there; its looks become the history.

        Raises:
          InputError: no saved probe, a damaged one, or one of other texts or options.
        """
        self.load_state_dict(folders.read_state(folder))

    def state_dict(self) -> dict[str, np.ndarray]:
        """Fingerprint, evidence and history as plain arrays, for a checkpoint of the training run."""
        leaves = jax.device_get(jax.tree.leaves(self.state))
        found = {"fingerprint": np.frombuffer(self.fingerprint.encode(), np.uint8)}
        found |= {f"state/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        return found | {f"history/{name}": values for name, values in history_to_arrays(self.history).items()}

    def load_state_dict(self, arrays: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned, of a probe of the same texts and options.

        Raises:
          InputError: it is of another probe, or incomplete.
        """
        held = {name: np.asarray(values) for name, values in arrays.items()}
        structure = jax.tree.structure(self.state)
        names = [f"state/{i}" for i in range(structure.num_leaves)]
        _check_arrays(held, ["fingerprint", *names])
        checks.check_same_probe("the state", held["fingerprint"].tobytes().decode(), self.fingerprint)
        self.history = history_of_arrays({name.removeprefix("history/"): values for name, values in held.items()})
        state: ProbeState = jax.tree.unflatten(structure, [held[name] for name in names])
        levels = self.state.rule.levels  # in this session's precision: cast, they might round above alpha
        self.state = state._replace(rule=state.rule._replace(levels=levels))

    def _warnings(self, look: int, step: int, on_schedule: bool, result: ProbeResult) -> tuple[str, ...]:
        found = []
        if not on_schedule:
            found.append(
                f"this look is off the schedule: the look before it was at step {self.history[-1].step}, the next was "
                f"due at step {self.history[-1].step + self.every}. If looks were left out because of what was seen, "
                "no guarantee holds"
            )
        if result.num_not_finite:
            found.append(
                f"{result.num_not_finite} of {sum(self.sizes)} scores are not finite; these texts are left out of this "
                "look's comparisons"
            )
        if self.num_looks is not None and look == self.num_looks + 1:
            found.append(
                f"num_steps={self.options['num_steps']} promised {self.num_looks} looks: later ones report and stay "
                "valid, but the level is spent, so that a new leak will hardly raise an alarm"
            )
        return tuple(found)


def _on_host(tree: Any) -> Any:
    """The arrays as NumPy's, also those of which other processes hold a part."""
    whole = jax.tree.map(lambda x: x if x.is_fully_addressable or x.is_fully_replicated else everywhere(x), tree)
    return jax.device_get(whole)


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(program: Program, params: Any, layout: Layout, gradients: Layout | None) -> ProbeResult:
    return program(params, layout, gradients)


@functools.partial(jax.jit, static_argnums=0)
def _flagged(rule: SetEvidence, state: ProbeState) -> EStepUp:
    return rule.flagged(state)


@functools.partial(jax.jit, static_argnums=0)
def _observe(
    rule: SetEvidence, labels: jax.Array, state: ProbeState, result: ProbeResult
) -> tuple[ProbeState, Evidence]:
    return rule.observe(labels, state, result)


def _check_every(every: Any) -> int:
    """Steps between two looks."""
    if isinstance(every, bool) or not isinstance(every, (int, np.integer)) or every < 1:
        raise InputError(f"every={every!r} must be a whole number of steps, at least 1")
    return int(every)


def _check_num_steps(num_steps: Any) -> int | None:
    """Steps of the whole training run, or None where that is not known."""
    if num_steps is None:
        return None
    if isinstance(num_steps, bool) or not isinstance(num_steps, (int, np.integer)) or num_steps < 1:
        raise InputError(
            f"num_steps={num_steps!r} must be the number of steps of the whole training run, at least 1, or None where "
            "it is not known"
        )
    return int(num_steps)


def _check_probe_score(score: Any, name: str, computed: Sequence[str]) -> None:
    """A score that comes from the token statistics of the text alone."""
    if name not in computed:
        raise InputError(
            f"score={score!r} needs more than the model's statistics of the text's own tokens, which is all that a "
            f"probe computes; choose one of {', '.join(computed)}, or use tdd.score on a saved checkpoint"
        )


def _check_step(step: Any) -> int:
    """The number of a training step."""
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if isinstance(step, (bool, np.bool_)) or number < 0:
        raise InputError(
            f"step={step!r} must be the number of the training step: a whole number, at least 0; "
            "inside a compiled function use probe.evaluate and probe.observe"
        )
    return number


def _check_forward(step: int, last: int) -> None:
    """Training goes on; evidence cannot be taken back."""
    if step < last:
        raise InputError(
            f"step={step} comes after a look at step {last}: evidence over a run is not taken back. Where training "
            "restarts from a checkpoint, restore the probe as it was saved with that checkpoint (probe.restore, "
            "probe.load_state_dict); for another run, make a new Probe"
        )


def _check_first_look(num_not_finite: int, num_texts: int) -> None:
    """At the first look some scores are numbers."""
    if num_not_finite == num_texts:
        raise InputError(
            f"none of the {num_texts} scores at the first look is finite: the parameters hold NaN, or the logits "
            "function returns it; nothing was recorded"
        )


def _check_arrays(held: Mapping[str, Any], names: Sequence[str]) -> None:
    """What `Probe.state_dict` returns, whole."""
    missing = [name for name in names if name not in held]
    if missing:
        raise InputError(
            f"the state holds no array {missing[0]!r}: give back what Probe.state_dict returned, unchanged"
        )
