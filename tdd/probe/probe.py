"""`tdd.Probe`: suspects against references at many steps of somebody else's training run."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import jax
import numpy as np

from tdd.device_kinds import default_platform
from tdd.kernels.set_statistics import labellings
from tdd.placement import everywhere
from tdd.probe import folder as folders
from tdd.probe.evidence import (
    ITEMS,
    AlarmHistory,
    Evidence,
    ProbeRecord,
    ProbeResult,
    ProbeState,
    SetEvidence,
    as_bytes,
    as_step,
    as_text,
    one_at_a_time,
)
from tdd.probe.inputs import ROLES, FurtherOptions, ProbeOptions, check_reachable, lay_out, num_texts, read_roles
from tdd.probe.program import Program, as_language_model
from tdd.procedures import anytime
from tdd.procedures.ptdi import GUARANTEES
from tdd.records import Guarantee
from tdd.scoring.buckets import check_max_length
from tdd.scoring.how import Run, RunOptions, as_run, split_options
from tdd.validate import InputError
from tdd.validate.arrays import check_params
from tdd.validate.settings import in_own_settings

_logger = logging.getLogger("tdd")

_UNUSED = ("device", "devices", "shard_params", "dtype", "store", "job", "on_batch")
"""Fields of `Run`: the parameters of a look lie where the training has them, in its own types."""


class Probe(AlarmHistory):
    """Watch whether a training run learns texts that it should not, or learns the ones that it should.

        probe = tdd.Probe(lm, suspect=benchmark, reference=fresh, tokenizer=tokenizer, every=500, num_steps=20_000)
        for step, batch in enumerate(batches):
            params, opt_state = train_step(params, opt_state, batch)
            probe(step, params)

    Suspects are compared with references: texts of the same kind that are certainly not in the training data. All
    texts lie in the same micro-batches in an order that is independent of their roles.

    Guarantees, provided that non-member suspects and references are exchangeable (copies within a role are not, since
    they move together: equal texts are refused, near copies must be removed before):
      the set: P(`alarm` at any look of the whole run) <= alpha if no suspect is in the training data, in finite
        samples, up to and beyond `num_steps`.
      the items: FDR <= alpha among the suspects that are `flagged`, at whatever look one stops or reads them, in
        finite samples. Suspects once flagged stay flagged. `result.selected` has FDR <= alpha too, but only at a look
        that was chosen before any score was seen: at the look of the alarm it has twice that and more.
      canaries: P(p <= t) <= t for each canary that was not trained on, at each look by itself.
    Both of the first two take the steps of the looks as fixed beforehand, as `every` fixes them, and a training that
    does not react to the evidence except by stopping. A look that is added or left out because of what was seen voids
    them; one that is off the schedule says so in its record and in the report.

    Args:
      lm: a `LanguageModel`, or any function `logits(params, tokens [B, T] int32) -> [B, T, V]`. A model with `hidden`
        and `readout` never forms [B, T, V]; of the others one micro-batch of logits is in memory at a time.
      suspect: texts to watch: strings, `Texts`, anything that `tdd.load_texts` reads, or rows of token ids.
      reference: texts of the same kind that are not in the training data, likewise.
      tokenizer: for strings; a transformers tokenizer, or any callable `(texts, add_special_tokens=True)` that returns
        {"input_ids": [...]}.
      score: "loss", "min_k", "min_k_plus_plus", "max_renyi" or "m_entropy", with options as in `tdd.score`.
      alpha: level in (0, 1) of the alarm, and of the flagged items.
      every: steps between looks; step 0 counts.
      num_steps: steps of the whole run, which spreads the level evenly over its looks; None if unknown: then early
        looks may use more of it.
      seed: random seed of the relabellings and of the order of the texts.
      name: shown in reports.
      run: how to run, `tdd.Run`; of its fields a probe has those below.
      **options: what else is watched, how it is tested, and fields of `tdd.Run` in the place of those of `run`:

        - canaries: sequences that were planted in the training data; canary_reference: sequences made in the same way
          and not planted, whose number limits the exposure.
        - grad_norms: whether quantiles of the suspects' gradient norms are computed: three to four times a forward
          pass.
        - proportion: PTDI's estimator of the fraction of members: "storey" (the default), "none" or "subtraction".
        - baseline: "first" (the default): later looks test what the scores of the first look do not explain, which
          removes most of the differences between texts; "none".
        - statistic: of the set; see `tdd.kernels.set_statistics.set_statistics`.
        - num_draws: relabellings of the set's test (9,999). Memory (num_draws + 1) (m + n) bytes.
        - max_length: most tokens of a text; by default the model's own limit.
        - long_texts: "error" (the default), or "truncate": the first tokens of a longer text are scored.
        - token_budget: tokens a micro-batch, 2,048 on CPU and 16,384 elsewhere by default.

    Attributes:
      history: `ProbeRecord` of each look.
      state: evidence gathered so far, a pytree.
      num_looks: looks over which the level is spent, at the steps 0, every, 2 every, ... below num_steps; None where
        num_steps is.
      fingerprint: SHA-256 of texts and options, and of the checkpoints where `identify` named them.
      checkpoints: what `identify` named, else empty.

    Raises:
      InputError: texts that are empty, too long, in two roles or twice in one, token ids that the model does not have,
        too few references or draws for alpha, an unknown option; at the first look, a model that returns other shapes
        or types, or nothing finite.

    Cost: an evaluation is one forward pass over all texts, compiled once for at most four shapes.

    References: conformal p-values and flagged items as `tdd.ptdi`; canaries: Carlini et al. (2019), "The secret
    sharer", section 4.
    """

    @in_own_settings()
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
        seed: int = 0,
        name: str = "probe",
        run: Run | None = None,
        **options: Unpack[FurtherOptions],
    ) -> None:
        how, further = _split(run, options)
        model = as_language_model(lm, how.max_length)
        extra = {role: further.pop(role, None) for role in ROLES[2:]}
        chosen = ProbeOptions(
            score=score, alpha=alpha, every=every, num_steps=num_steps, seed=seed,
            max_length=check_max_length(how.max_length, model.max_length), long_texts=how.long_texts or "error",
            token_budget=how.budget(default_platform()), **further,
        )  # fmt: skip
        sources = {"suspect": suspect, "reference": reference, **extra}
        limit, truncate = chosen.max_length, chosen.long_texts == "truncate"
        self.roles = read_roles(sources, tokenizer, limit=limit, truncate=truncate, vocab_size=model.vocab_size)
        self.sizes = m, n, _, _ = num_texts(self.roles)
        self.name, self.options = str(name), chosen
        self.alpha, self.every, self.num_looks = chosen.alpha, chosen.every, chosen.num_looks
        check_reachable(m, n, chosen.num_draws, self.alpha, num_looks=self.num_looks)
        # not the default of this machine: a state goes on where another machine takes other micro-batches
        self._identified = dataclasses.replace(chosen, token_budget=how.budget("cpu"))
        self.identify(())
        rows = [row for role in self.roles.values() for row in role.tokens]
        largest = max(int(row.max()) for row in rows)
        layout = {"limit": limit, "seed": chosen.seed}
        self._layout = lay_out(rows, budget=chosen.token_budget, **layout)
        half = -(-chosen.token_budget // 2)
        self._gradients = lay_out(rows[:m], budget=half, **layout) if chosen.grad_norms else None
        self._program = Program(model, chosen.score, self.sizes, self.alpha, chosen.proportion, largest)
        self._rule = SetEvidence(
            m, m + n, chosen.num_draws, self.alpha, self.num_looks, chosen.baseline == "first", chosen.statistic
        )
        self._labels = np.asarray(labellings(m, n, chosen.num_draws, chosen.seed))
        self.history: list[ProbeRecord] = []
        self.state: ProbeState = jax.device_get(self.init())

    def identify(self, checkpoints: Sequence[Mapping[str, Any]]) -> None:
        """Name the checkpoints of the looks beforehand, with "name", "revision" and "sha256": they identify the run."""
        self.checkpoints = tuple(checkpoints)
        self.fingerprint = folders.fingerprint(self._identified, self.roles, self.checkpoints)

    @in_own_settings()
    def evaluate(self, params: Any) -> ProbeResult:
        """Scores and decisions at these parameters. Pure: works inside `jax.jit`, `jax.lax.cond` and `jax.lax.scan`.

        Inside a compiled function the texts' tokens are constants of the program, four bytes a padded token.

        Raises:
          InputError: at trace time, logits of another shape or type than [B, T, V] floating.
        """
        return _evaluate(self._program, params, self._layout, self._gradients)

    @in_own_settings()
    def init(self) -> ProbeState:
        """The state before the first look, for `observe`."""
        return self._rule.init()

    @in_own_settings()
    def observe(self, state: ProbeState, result: ProbeResult) -> tuple[ProbeState, Evidence]:
        """Take in one look, in the order of training. Pure, as `evaluate`; the relabellings are constants."""
        return _observe(self._rule, self._labels, state, result)

    @in_own_settings()
    def flagged(self, state: ProbeState) -> jax.Array:
        """[m] bool, the suspects that the looks so far flag: FDR <= alpha at whatever look one stops. Pure."""
        return self._rule.flagged(state).reject

    def due(self, step: Any) -> bool:
        """True if `probe(step, params)` would look."""
        number = as_step(step)
        return number % self.every == 0 and not (self.history and self.history[-1].step == number)

    def __call__(self, step: Any, params: Any) -> ProbeRecord | None:
        """Look, if `step` is a multiple of `every` at which there was no look yet; else return None at once.

        The compiled programs are dispatched before the numbers are waited for: `params` may be donated afterwards.
        `step` is a Python or NumPy integer; a device's integer is waited for at every step. Where the parameters lie
        over the devices of several processes, each of them calls the probe, as it calls the training step, and each
        gets the record.

        Raises:
          InputError: a step that is not a number, or one before the last look; at the first look, no finite score.
        """
        return self._look(as_step(step), params) if self.due(step) else None

    @in_own_settings()
    @one_at_a_time
    def _look(self, step: int, params: Any) -> ProbeRecord | None:
        start = time.perf_counter()
        number = as_step(step, self.history[-1].step if self.history else None)
        if not self.due(number):  # another thread has looked meanwhile
            return None
        check_params(params, "probe.evaluate and probe.observe")
        result = self.evaluate(params)
        state, evidence = self.observe(self.state, result)
        result, evidence, state = _on_host((result, evidence, state))
        items = jax.device_get(_flagged(self._rule, state))
        if not self.history and result.num_not_finite == sum(self.sizes):
            raise InputError(
                f"none of the {sum(self.sizes)} scores at the first look is finite: the parameters hold NaN, or the "
                "logits function returns it; nothing was recorded"
            )
        on_schedule = not self.history or number - self.history[-1].step == self.every
        record = ProbeRecord(
            step=number,
            look=len(self.history) + 1,
            result=result,
            evidence=evidence,
            alarm=self.alarm or float(evidence.anytime_p_value) <= self.alpha,
            warnings=self._warnings(on_schedule, int(result.num_not_finite)),
            seconds=time.perf_counter() - start,
            e_values=state.item_e_values,
            adjusted=items.adjusted,
            flagged=items.reject,
            on_schedule=on_schedule,
        )
        self.state = state
        self.history.append(record)
        for warning in record.warnings:
            _logger.warning("%s, step %d: %s", self.name, number, warning)
        return record

    @property
    def guarantees(self) -> dict[str, Guarantee]:
        """Guarantees of the "set", of the flagged "items", and of those that "one look" selects by itself."""
        return {"set": anytime.GUARANTEE, "items": ITEMS, "one look": GUARANTEES[self.options.proportion]}

    @one_at_a_time
    def save(self, folder: Any) -> None:
        """Write a run folder: run.json, history.csv, items.csv, report.html, and state.npz to continue from.

        See `restore`. Cost: the figures of the report are drawn at every call.

        Raises:
          InputError: the folder holds something else, or cannot be written.
        """
        folders.save(pathlib.Path(folder), self)

    def restore(self, folder: Any) -> None:
        """Continue where the probe stood that was saved there; its looks become the history.

        Raises:
          InputError: no saved probe, a damaged one, or one of other texts or options.
        """
        self.load_state_dict(folders.read_state(folder))

    @one_at_a_time
    def state_dict(self) -> dict[str, np.ndarray]:
        """Fingerprint, evidence and history as plain arrays, none of them empty, for a checkpoint of the training run.

        Orbax refuses arrays of size zero: those of a probe without looks or canaries are described in `empty` instead.
        """
        leaves = jax.device_get(jax.tree.leaves(self.state))
        arrays = {"fingerprint": as_bytes(self.fingerprint)}
        arrays |= {f"state/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        return folders.without_empty(arrays | folders.history_to_arrays(self.history))

    @one_at_a_time
    def load_state_dict(self, arrays: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned, of a probe of the same texts and options.

        Raises:
          InputError: it is of another probe, or incomplete.
        """
        saved, structure = {name: np.asarray(array) for name, array in arrays.items()}, jax.tree.structure(self.state)
        try:
            saved = folders.with_empty(saved)
            fingerprint = as_text(saved["fingerprint"])
            if fingerprint != self.fingerprint:
                raise InputError(
                    f"the state is of another probe: its texts or options differ (fingerprint {fingerprint[:12]}, this "
                    f"probe has {self.fingerprint[:12]}); choose another folder, or build the probe with the same "
                    "texts and options"
                )
            leaves = [saved[f"state/{i}"] for i in range(structure.num_leaves)]
            history = folders.history_from_arrays(saved)
        except KeyError as error:
            raise InputError(
                f"the state holds no array {error.args[0]!r}: give back what Probe.state_dict returned, unchanged"
            ) from error
        state: ProbeState = jax.tree.unflatten(structure, leaves)
        levels = self.state.rule.levels  # in this session's precision: cast, they might round above alpha
        self.state, self.history = state._replace(rule=state.rule._replace(levels=levels)), history

    def _warnings(self, on_schedule: bool, num_not_finite: int) -> tuple[str, ...]:
        """Sentences about a look, before it becomes part of the history."""
        warnings = []
        if not on_schedule:
            last = self.history[-1].step
            warnings.append(
                f"this look is off the schedule: the look before it was at step {last}, the next was due at step "
                f"{last + self.every}. If looks were left out because of what was seen, no guarantee holds"
            )
        if num_not_finite:
            warnings.append(
                f"{num_not_finite} of {sum(self.sizes)} scores are not finite; these texts are left out of this look's "
                "comparisons"
            )
        if len(self.history) == self.num_looks:
            warnings.append(
                f"num_steps={self.options.num_steps} promised {self.num_looks} looks: later ones report and stay "
                "valid, but the level is spent, so that a new leak will hardly raise an alarm"
            )
        return tuple(warnings)


def _split(run: Run | None, options: Mapping[str, Any]) -> tuple[Run, dict[str, Any]]:
    """How to run, and the further options of a probe.

    Raises:
      InputError: an option that there is not; a field of `Run` that a probe has no use for.
    """
    fields, further = split_options(options)
    known = [name for name in FurtherOptions.__annotations__ if name not in RunOptions.__annotations__]
    if unknown := [name for name in further if name not in known]:
        raise InputError(f"there is no option {unknown[0]!r} of a probe; there are {', '.join(known)}, and tdd.Run's")
    how = as_run(run, fields)
    how.check_unused(_UNUSED, "a probe, which looks at the parameters where they lie")
    return how, further


def _on_host(tree: Any) -> Any:
    """The arrays as NumPy's, also those of which other processes hold a part."""

    def whole(x: Any) -> Any:
        if not isinstance(x, jax.Array) or x.is_fully_addressable or x.is_fully_replicated:  # not under `disable_jit`
            return x
        return everywhere(x)

    return jax.device_get(jax.tree.map(whole, tree))


_evaluate = jax.jit(Program.__call__, static_argnums=0)
_flagged = jax.jit(SetEvidence.flagged, static_argnums=0)
_observe = jax.jit(lambda rule, *look: rule.observe(*look), static_argnums=0)  # that of the rule's own class
