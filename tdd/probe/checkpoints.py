"""Saved checkpoints of one training run, looked at in the order of training."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import Any, Unpack

from tdd.probe.inputs import FurtherOptions
from tdd.probe.probe import Probe
from tdd.runs.display import progress_bar
from tdd.scoring.how import Run, as_run, split_options
from tdd.scoring.models import find_model, provenance_of
from tdd.validate import InputError
from tdd.validate.settings import on_own_devices

_UNUSED = ("devices", "shard_params", "store", "job", "on_batch")
"""Fields of `Run`: one device looks at one checkpoint after the other, and the run folder is what continues."""


class CheckpointOptions(FurtherOptions, total=False):
    """The further options of `over_checkpoints`; see `Probe`."""

    score: str
    alpha: float
    seed: int


@on_own_devices()
def over_checkpoints(
    models: Sequence[Any],
    suspect: Any,
    reference: Any,
    *,
    out: str | os.PathLike[str] | None = None,
    name: str = "checkpoints",
    run: Run | None = None,
    **options: Unpack[CheckpointOptions],
) -> Probe:
    """Evidence over training: do the suspects become more member-like than the references over the checkpoints?

        probe = tdd.probe.over_checkpoints(
            [f"EleutherAI/pythia-70m@step{step}" for step in (0, 1000, 2000, 4000)], benchmark, fresh, out="runs/pythia"
        )

    Every checkpoint is one look of a `Probe`, whose step is its place in the list, from 0; all share the level. The
    first checkpoint gives the base that later ones are compared with, so take one from before the texts in question
    could have been seen. Models are loaded one at a time.

    Guarantees, provided that non-member suspects and references are exchangeable and the list of checkpoints was fixed
    before any score was seen: P(`alarm` at any checkpoint) <= alpha if no suspect is in the training data; FDR <= alpha
    among the suspects that are `flagged`, at whatever checkpoint one stops or reads them. Both in finite samples; see
    `Probe` and `tdd.trajectory_test`.

    Args:
      models: checkpoints of one training run in its order: folders, hub ids ("owner/name@step1000"), or triples
        (lm, params, tokenizer). All have one architecture; the tokenizer is that of the first.
      suspect: texts whose membership is in question, as for `Probe`.
      reference: texts of the same kind that are not in the training data, likewise.
      out: run folder, written after each look; the same call after an interruption continues there.
      name: shown in reports.
      run: how to run; see `tdd.Run`. One device looks: devices, shard_params, store, job and on_batch are refused.
      **options: options of `Probe` (score, alpha, canaries, canary_reference, proportion, baseline, statistic,
        num_draws, grad_norms, seed), and fields of `tdd.Run` in the place of those of `run`: device, dtype, max_length,
        token_budget, progress, and long_texts, "error" by default, or "truncate".

    Returns:
      The `Probe` with a look for each checkpoint; `checkpoints` names them with revision and SHA-256.

    Raises:
      InputError: fewer than two checkpoints, two equal ones, another architecture, a folder of another run, and what
        `Probe` refuses.

    Cost: one forward pass over all texts a checkpoint, compiled once, and reading each checkpoint twice: to identify it
    before any is looked at, and to load it.
    """
    known = _identified(models)
    if clash := [option for option in ("every", "num_steps", "tokenizer") if option in options]:
        raise InputError(
            f"{clash[0]} is not an option here: every checkpoint is a look, and the first has the tokenizer"
        )
    fields, others = split_options(options)
    how = as_run(run, fields)
    how.check_unused(_UNUSED, "a run over checkpoints")
    where = how.find_devices()
    layout: dict[str, Any] = {"max_length": how.max_length, "token_budget": how.token_budget}
    if how.long_texts is not None:
        layout["long_texts"] = how.long_texts
    probe = spec = None
    with progress_bar("checkpoints", len(known), enabled=how.progress, unit="checkpoints") as advance:
        for step, model in enumerate(models):
            if probe is not None and step < len(probe.history):
                continue
            loaded = find_model("models", model, None, None, how.dtype, where)
            if probe is None:
                spec = loaded.lm.spec
                probe = Probe(
                    loaded.lm, suspect, reference, tokenizer=loaded.tokenizer, every=1, num_steps=len(known), name=name,
                    **layout, **others,
                )  # fmt: skip
                probe.identify(known)
                if out is not None and (pathlib.Path(out) / "state.npz").exists():
                    probe.restore(out)
                    advance(len(probe.history))
                    if probe.history:
                        continue
            elif loaded.lm.spec != spec:
                raise InputError(
                    f"checkpoint {step} ({known[step]['name']}) has another architecture than checkpoint 0 "
                    f"({known[0]['name']}); give checkpoints of one training run"
                )
            probe(step, loaded.params)
            if out is not None:
                probe.save(out)
            advance(1)
    assert probe is not None
    return probe


def _identified(models: Any) -> list[dict[str, Any]]:
    """Name, revision and hash of each checkpoint: two at least, no two alike."""
    if isinstance(models, (str, os.PathLike)) or not isinstance(models, Sequence) or len(models) < 2:
        raise InputError(
            f"models={models!r} must be a list of at least two checkpoints in the order of training; one alone is for "
            "tdd.run_audit"
        )
    known = [provenance_of(model) for model in models]
    places: dict[str, int] = {}
    for place, one in enumerate(known):
        earlier = places.setdefault(one["sha256"], place)
        if earlier != place:
            raise InputError(
                f"checkpoints {earlier} ({known[earlier]['name']}) and {place} ({one['name']}) are the same to the "
                "bit; keep one of them"
            )
    return known
