"""`tdd.score`: texts and a model → a table of scores.

Texts are tokenised, cut into windows, sorted by length into few batch shapes, and sent through the model once for
each distinct pass: the texts, their lowercased forms, the reference model, and forth and back for gradient norms.
Statistics come back as vectors over the scored tokens and are reduced to scores on the host in float64.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, overload

import jax
import numpy as np

from tdd.audit.find_model import find_model
from tdd.records import Scores, Texts
from tdd.runs.folder import versions
from tdd.runs.progress import progress_bar
from tdd.runs.shards import ShardLog, as_shard
from tdd.scoring.buckets import default_budget, gradient_budget
from tdd.scoring.devices import check_not_in_step, find_devices
from tdd.scoring.lockstep import check_alike
from tdd.scoring.plan import ScorePlan, plan_scores
from tdd.scoring.run import ScoreRun
from tdd.scoring.scores import parse_score
from tdd.scoring.store.store import ScoreStore
from tdd.texts import load_texts
from tdd.validate import scoring as checks
from tdd.validate.errors import InputError

__all__ = ["score"]

_logger = logging.getLogger("tdd")


@overload
def score(
    model: Any,
    texts: Any,
    scores: str | Sequence[str] = ...,
    *,
    reference: Any = ...,
    params: Any = ...,
    tokenizer: Any = ...,
    dtype: Any = ...,
    token_budget: int | None = ...,
    max_length: int | None = ...,
    long_texts: str = ...,
    progress: bool = ...,
    store: str | os.PathLike[str] | None = ...,
    device: Any = ...,
    devices: Any = ...,
    shard_params: bool = ...,
    shard: None = None,
    job: str = ...,
    on_batch: Callable[[int, int], None] | None = ...,
) -> Scores: ...
@overload
def score(
    model: Any,
    texts: Any,
    scores: str | Sequence[str] = ...,
    *,
    reference: Any = ...,
    params: Any = ...,
    tokenizer: Any = ...,
    dtype: Any = ...,
    token_budget: int | None = ...,
    max_length: int | None = ...,
    long_texts: str = ...,
    progress: bool = ...,
    store: str | os.PathLike[str] | None = ...,
    device: Any = ...,
    devices: Any = ...,
    shard_params: bool = ...,
    shard: tuple[int, int] | str,
    job: str = ...,
    on_batch: Callable[[int, int], None] | None = ...,
) -> None: ...
def score(
    model: Any,
    texts: Any,
    scores: str | Sequence[str] = ("loss", "min_k_plus_plus"),
    *,
    reference: Any = None,
    params: Any = None,
    tokenizer: Any = None,
    dtype: Any = None,
    token_budget: int | None = None,
    max_length: int | None = None,
    long_texts: str = "window",
    progress: bool = True,
    store: str | os.PathLike[str] | None = None,
    device: Any = None,
    devices: Any = None,
    shard_params: bool = False,
    shard: tuple[int, int] | str | None = None,
    job: str = "",
    on_batch: Callable[[int, int], None] | None = None,
) -> Scores | None:
    """Score texts under a language model. All scores are loss-like: LOWER = MORE member-like.

    Args:
      model: a checkpoint folder or hub id; or a `LanguageModel` with `params` and `tokenizer`; or the triple
        (lm, params, tokenizer) that `tdd.load` returns.
      texts: a path, a sequence of strings, a column or table, or `Texts`; see `tdd.texts.load_texts`.
      scores: names, with options after a colon: "loss", "min_k:k=0.1", "max_renyi:gamma=inf,k=0".
        `tdd.scoring.scores.SCORES` lists them.
      reference: second model for the score "reference", in any form that `model` takes except a bare LanguageModel.
      params: parameters, where `model` is a LanguageModel.
      tokenizer: tokenizer, where `model` is a LanguageModel.
      dtype: of the parameters ("float32", "bfloat16"); None keeps them as stored.
      token_budget: tokens a batch and device, 2,048 on CPU and 16,384 elsewhere by default; half of it for gradient
        norms. Halved, and the run goes on, where memory does not suffice.
      max_length: longest window in tokens; by default the model's own limit.
      long_texts: "window": every token scored exactly once, in windows whose last is extended to the left;
        "truncate": tokens beyond the limit are dropped, and the text with them; "error": no text may be longer. The
        score "grad_norm" has no windows, because norms of gradients do not add up: there, "window" means "error".
      progress: show a bar where standard error is a terminal.
      store: folder in which the statistics of every row of tokens are kept, `tdd.scoring.store.store.ScoreStore`. The
        same call after an interruption continues there and ends with the same numbers to the bit; another call, of
        other texts or scores, takes from there what has been computed with the same model and versions. A number
        that another call computed, in a batch of another shape, may differ in its last bits: by at most 1e-5
        relative. Several processes may use one store at once. Who can write the folder must be trusted: its hashes
        tell damage, not forged scores.
      device: "cpu", "gpu", "tpu", with an index as in "gpu:1", or a `jax.Device`; by default JAX's first.
      devices: several devices, each with its own batches: "all" of this process, how many, or a sequence of
        `jax.Device`. The numbers do not depend on it: each device does what a single one would do.
      shard_params: each device holds a share of every parameter that the devices divide, instead of all of them, and
        gathers them when it needs them, those of stacked layers one layer at a time: for models that do not fit on
        one device. A checkpoint is loaded straight into the shares.
      shard: (i, n) or "i/n", from 0: compute the part i of n of the batches alone, into `store`, and return None. Any
        number of shards may run at once, on all hosts that share the folder. The same call without a shard then takes
        everything from the store and computes what is missing; its table is that of a single call to the last bit.
      job: any name, the same in all shards and the call that joins them, where several runs with shards use one store.
      on_batch: called with (batches done, batches in all) after each batch; in a shard those of the shard.

    Returns:
      `Scores`, a column for each name as it was written. NaN where a score does not exist (a text whose lowercased
      or reference form has fewer than two tokens; counted in the log). None with a shard.

    Processes that `jax.distributed` connects compute everything each by itself, unless each is given its part with
    shard=(jax.process_index(), jax.process_count()). With shard_params=True they share out the parameters over the
    devices of all of them, compute in step, and all get the same table.

    Raises:
      InputError: anything about model, texts or options that cannot be used; the message says what would work.

    Cost: one forward pass over the texts; "lowercase" adds a second, "reference" one of the reference model,
    "grad_norm" one forth and back (three to four times a forward pass). Host memory: the texts, their tokens and one
    number a text and score.
    """
    requests = [parse_score(name) for name in checks.check_score_names(scores)]
    passes = {name for request in requests for name in request.score.passes}
    checks.check_reference(passes, reference)
    _check_long_texts(long_texts)
    where = find_devices(device, devices, shard_params=shard_params)
    budget = default_budget(where.platform) if token_budget is None else token_budget
    checks.check_budget(budget)
    table = load_texts(texts)
    own = as_shard(shard, store)
    check_not_in_step(own, spans=where.spans)
    options = {
        "scores": [request.label for request in requests],
        "dtype": None if dtype is None else str(dtype),
        "token_budget": int(budget),
        "max_length": max_length,
        "long_texts": long_texts,
    }
    facts = {**options, "texts": table.sha256, **versions()}
    if where.spans:
        names = {"model": str(model), "reference": str(reference)} if _named(model, reference) else {}
        check_alike({**facts, **names})
    models = {"text": find_model("model", model, params, tokenizer, dtype, where)}
    if reference is not None:
        models["reference"] = find_model("reference", reference, None, None, dtype, where)
    run = ScoreRun.prepare(requests, table, models, max_length=max_length, long_texts=long_texts)
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.default_device(where.home))
        kept = None if store is None else stack.enter_context(ScoreStore(store))
        plan = plan_scores(run.inputs, run.distinct, models, where, budget, kept)
        facts |= plan.facts
        if where.spans:
            check_alike({**facts, "batches": plan.batches_digest()})
        log = None if store is None else ShardLog(store, facts, job)
        if log is not None and own is not None:
            log.begin(own)
        there, rows = plan.num_stored, plan.num_rows
        if log is not None and own is None and there < rows:
            log.warn()
        todo = plan.numbered(own)
        if there:
            _logger.info("%d of %d rows are in the store", there, rows)
        title = f"scoring ({there:,} of {rows:,} rows stored)" if there else "scoring"
        num_tokens = sum(batch.size * batch.length for _, batch in todo)
        advance = stack.enter_context(progress_bar(title, num_tokens, enabled=progress and where.leads))
        for done, batch in enumerate(run.run(plan, todo, where), start=1):
            advance(batch.size * batch.length)
            if on_batch is not None:
                on_batch(done, len(todo))
    if log is not None and own is None:
        log.forget()
    elif log is not None and own is not None:
        log.finish(own)
    if own is not None:
        return None

    evidence, found = run.evidence(), run.tokens_of("text")
    values = {request.label: request.score.finish(found.values[request.label], evidence) for request in requests}
    for label, column in values.items():
        if missing := int(np.isnan(column).sum()):
            _logger.warning("score %s does not exist for %d of %d texts", label, missing, len(table))
    return Scores(
        ids=table.ids,
        values=values,
        num_tokens=found.num_tokens,
        provenance={
            **options,
            "model": models["text"].name,
            "reference": models["reference"].name if reference is not None else None,
            "texts_sha256": table.sha256,
            "device": ", ".join(map(str, where.devices)),
            "num_devices": len(where),
            "shard_params": where.shard_params,
            **({"num_processes": jax.process_count()} if where.spans else {}),
            "prepends_bos": run.inputs["text"].encoded.prepends_bos,
            "num_windows": len(run.inputs["text"].rows.windows),
            **({"num_truncated": _num_truncated(run, table)} if long_texts == "truncate" else {}),
            "batch_shapes": sorted({(batch.size, batch.length) for batch in plan.batches if batch.kind != "gradient"}),
            "padding_share": _padding(run, plan),
            **({"num_stored_before": sum(len(one.rows) for one in plan.stored)} if store is not None else {}),
            **(_gradient_provenance(run, plan, budget) if "gradient" in run.inputs else {}),
        },
    )


def _named(*models: Any) -> bool:
    """Whether models are given by their names."""
    return all(model is None or isinstance(model, (str, os.PathLike)) for model in models)


def _num_truncated(run: ScoreRun, table: Texts) -> int:
    """Texts of which the end was cut off."""
    kept = run.inputs["text"].encoded.kept
    return sum(len(left) < len(text) for left, text in zip(kept, table.texts, strict=True))


def _padding(run: ScoreRun, plan: ScorePlan) -> float:
    """Share of the tokens of all batches that are padding."""
    lengths = {name: given.rows.lengths for name, given in run.inputs.items()}
    real = sum(int(lengths[batch.kind][batch.rows].sum()) for batch in plan.batches)
    computed = sum(batch.size * batch.length for batch in plan.batches)
    return 1 - real / computed if computed else 0.0


def _gradient_provenance(run: ScoreRun, plan: ScorePlan, budget: int) -> dict[str, Any]:
    """What the column grad_norm is, and how it was computed."""
    fast = run.models["text"].lm.grad_sqnorm is not None
    return {
        "gradient": {
            "definition": "Euclidean norm of the gradient of the summed loss over all parameters, tied ones once",
            "computed_by": "norm probe, a batch at a time" if fast else "automatic differentiation, text by text",
            "token_budget": gradient_budget(budget),
            "batch_shapes": sorted({(batch.size, batch.length) for batch in plan.batches if batch.kind == "gradient"}),
        }
    }


_LONG_TEXTS = ("window", "truncate", "error")


def _check_long_texts(value: Any) -> str:
    """A policy for texts longer than the model's context."""
    if value not in _LONG_TEXTS:
        raise InputError(
            f"long_texts={value!r} is unknown; use 'window' (score every token once), 'truncate' or 'error'"
        )
    return value
