"""`tdd.score`: texts and a model → a table of scores.

Texts are tokenised, cut into windows, sorted by length into few batch shapes, and sent through the model once for
each distinct pass: the texts, their lowercased forms, reference models, and forward and backward for gradient norms.
Statistics come back as vectors over the scored tokens and are reduced to scores on the host in float64.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack, overload

import jax
import numpy as np

from tdd.audit.models import find_model, find_references
from tdd.models.source import at_revision
from tdd.records import Scores, Texts
from tdd.runs.display import progress_bar
from tdd.runs.folder import versions
from tdd.runs.shards import Shard, ShardLog, as_shard
from tdd.scoring.buckets import check_budget, default_budget, gradient_budget
from tdd.scoring.devices import Devices, check_alike, check_not_in_step, find_devices
from tdd.scoring.inputs import Model
from tdd.scoring.plan import ScorePlan, plan_scores
from tdd.scoring.run import ScoreRun
from tdd.scoring.scores import TEXTS_BESIDE, ScoreRequest, check_given, check_score_names, parse_score
from tdd.scoring.store import ScoreStore
from tdd.texts import load_texts
from tdd.validate import InputError

__all__ = ["ScoreOptions", "score"]

_logger = logging.getLogger("tdd")


class ScoreOptions(TypedDict, total=False):
    """The options of `tdd.score` that say under what and how texts are scored."""

    revision: Any
    reference: Any
    corpus: Any
    prefix: Any
    member_prefix: Any
    population: Any
    tune_on: Any
    params: Any
    tokenizer: Any
    dtype: Any
    token_budget: int | None
    max_length: int | None
    long_texts: str
    progress: bool
    store: str | os.PathLike[str] | None
    device: Any
    devices: Any
    shard_params: bool
    job: str
    on_batch: Callable[[int, int], None] | None


@overload
def score(
    model: Any, texts: Any, scores: str | Sequence[str] = ..., *, shard: None = None, **options: Unpack[ScoreOptions]
) -> Scores: ...
@overload
def score(
    model: Any,
    texts: Any,
    scores: str | Sequence[str] = ...,
    *,
    shard: tuple[int, int] | str,
    **options: Unpack[ScoreOptions],
) -> None: ...
def score(
    model: Any,
    texts: Any,
    scores: str | Sequence[str] = ("loss", "min_k_plus_plus"),
    *,
    revision: str | None = None,
    reference: Any = None,
    corpus: Any = None,
    prefix: Any = None,
    member_prefix: Any = None,
    population: Any = None,
    tune_on: Any = None,
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
      model: a checkpoint folder or hub id, "owner/name" or "owner/name@revision"; or a `LanguageModel` with `params`
        and `tokenizer`; or the triple (lm, params, tokenizer) that `tdd.load` returns.
      texts: a path, a sequence of strings, a column or table, or `Texts`; see `tdd.texts.load_texts`.
      scores: names in `tdd.scoring.scores.SCORES`, with options after a colon: "max_renyi:gamma=inf,k=0".
      revision: branch, tag or commit of the model, where that is a hub id.
      reference: further model for the scores "reference", "lira" and "rmia", in any form that `model` takes except a
        bare LanguageModel, or a list of several. They must not have been trained on the texts.
      corpus: texts that stand for training data at large, for the score "dc_pdd", as `texts`.
        `tdd.scoring.corpus.read_corpus` counts their tokens once for several calls.
      prefix: texts that the model has not seen, as `texts`, for the scores "recall" and "con_recall": joined without a
        separator, they go before every text, and the longest window is shorter by their tokens.
      member_prefix: texts that the model was trained on, likewise, for the score "con_recall".
      population: texts that no model was trained on, as `texts`, for the score "rmia".
      tune_on: texts that the model has not seen, as `texts`, for the score "fsd": a copy of it is fine-tuned on them.
        No scored text may be in one of these five.
      params, tokenizer: the parameters and the tokenizer, where `model` is a LanguageModel.
      dtype: dtype of the parameters ("float32", "bfloat16"); None keeps them as stored.
      token_budget: tokens per batch and device, 2,048 on CPU and 16,384 elsewhere by default; half of it for gradient
        norms. Halved during the run if the memory is exceeded.
      max_length: longest window in tokens; by default the model's own limit.
      long_texts: "window": every token scored exactly once, in windows whose last is extended to the left;
        "truncate": tokens beyond the limit are dropped, and the text with them; "error": no text may be longer.
        For the score "grad_norm", "window" means "error".
      progress: show a progress bar if standard error is a terminal.
      store: folder in which the statistics of every row of tokens are kept, `tdd.scoring.store.ScoreStore`. The
        same call after an interruption continues there and ends with the same numbers to the bit; another call takes
        from there what has been computed with the same model and versions, up to 1e-5 relative where the batch had
        another shape. Several processes may use one store at once. Who can write the folder must be trusted: its
        hashes tell damage, not forged scores.
      device: "cpu", "gpu", "tpu", with an index as in "gpu:1", or a `jax.Device`; by default JAX's first.
      devices: several devices, each with its own batches: "all" of this process, how many, or a sequence of
        `jax.Device`. The numbers do not depend on it: each device does what a single one would do.
      shard_params: divide the parameters over the devices, which gather them layer by layer when they need them: for
        models that do not fit on one device. A checkpoint is loaded straight into the shards.
      shard: (i, n) or "i/n", from 0: compute only part i of n of the batches, into `store`, and return None. Shards may
        run at once, on all hosts that share the folder. The same call without a shard then takes everything from the
        store and computes what is missing; its table is that of a single call to the last bit.
      job: any name, the same in all shards and the call that joins them, if several runs with shards use one store.
      on_batch: called with (batches done, batches in all) after each batch; in a shard those of the shard.

    Returns:
      `Scores`, a column for each name as it was written; NaN where a score does not exist (a text whose lowercased
      or reference form has fewer than two tokens; counted in the log). None with a shard.

    Processes that `jax.distributed` connects each compute everything, unless each has its part by `shard`. With
    shard_params=True they divide the parameters over all their devices, compute in step, and get the same table.

    Raises:
      InputError: anything about model, texts or options that cannot be used; the message says what would work.

    Cost: one forward pass over the texts; "lowercase" adds a second, each reference model one, each prefix one behind
    it (a decoder reads the prefix itself once), "fsd" one and the fine-tuning, "grad_norm" one forward and backward
    (three to four times a forward pass). Host memory: the texts, their tokens and one number per text and score.
    """
    beside = {
        "reference": reference, "corpus": corpus, "prefix": prefix, "population": population, "tune_on": tune_on,
        "member_prefix": member_prefix,
    }  # fmt: skip
    requests = _requests(scores, beside, long_texts)
    where = find_devices(device, devices, shard_params=shard_params)
    budget = default_budget(where.platform) if token_budget is None else check_budget(token_budget)
    table = load_texts(texts)
    part = as_shard(shard, store)
    check_not_in_step(part, spans=where.spans)
    options = {
        "scores": [request.label for request in requests], "dtype": None if dtype is None else str(dtype),
        "token_budget": budget, "max_length": max_length, "long_texts": long_texts,
    }  # fmt: skip
    facts = {**options, "texts": table.sha256, **versions()}
    _check_alike_inputs(facts, f"{model}@{revision}", [model, reference], where)
    audited = find_model("model", at_revision(model, revision), params, tokenizer, dtype, where)
    requests, models, read, of_beside = _with_beside(requests, beside, audited, table, dtype, where)
    run = ScoreRun.prepare(requests, table, models, max_length=max_length, long_texts=long_texts, beside=read)
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.default_device(where.home))
        open_store = None if store is None else stack.enter_context(ScoreStore(store))
        plan = plan_scores(run.inputs, run.distinct, models, where, budget, open_store)
        facts |= {**of_beside, **plan.facts}
        if where.spans:
            check_alike({**facts, "batches": plan.batches_digest()})
        log = None if store is None else ShardLog(store, facts, job)
        if log is not None and (part is not None or plan.num_stored < plan.num_rows):
            log.warn() if part is None else log.begin(part)
        _compute(run, plan, part, where, progress, on_batch)
    if part is not None:
        return None if log is None else log.finish(part)
    if log is not None:
        log.forget()
    provenance = {**options, **of_beside, **_provenance(run, plan, table, where, options, stored=store is not None)}
    return _table(run, requests, table, provenance | _parameters(requests))


def _requests(scores: Any, beside: Mapping[str, Any], long_texts: str) -> list[ScoreRequest]:
    """The scores, whose names, what they need beside model and texts, and treatment of long texts have been checked."""
    requests = [parse_score(name) for name in check_score_names(scores)]
    check_given(requests, beside)
    if long_texts not in ("window", "truncate", "error"):
        raise InputError(
            f"long_texts={long_texts!r} is unknown; use 'window' (score every token once), 'truncate' or 'error'"
        )
    return requests


def _check_alike_inputs(facts: Mapping[str, Any], model: str, given: Sequence[Any], where: Devices) -> None:
    """Compare what the processes that compute in step were given: models too where all of them have names."""
    if not where.spans:
        return
    flat = [one for part in given for one in (part if isinstance(part, list) else [part])]
    named = all(one is None or isinstance(one, (str, os.PathLike)) for one in flat)
    check_alike({**facts, **({"model": model, "reference": str(given[1])} if named else {})})


def _with_beside(
    requests: list[ScoreRequest], beside: Mapping[str, Any], model: Model, texts: Texts, dtype: Any, where: Devices
) -> tuple[list[ScoreRequest], dict[str, Model], dict[str, Any], dict[str, Any]]:
    """The scores with the frequencies of the corpus, all models, the other texts beside, and what identifies these.

    None of the texts may be among them.
    """
    given = {name: beside[name] for name in TEXTS_BESIDE if beside[name] is not None}
    models = {"text": model}
    if not given:
        return requests, models | find_references(beside["reference"], dtype, where), {}, {}
    from tdd.scoring.corpus import Corpus, check_apart, facts_of, read_corpus, read_prefix

    loaded: dict[str, Any] = {name: one if isinstance(one, Corpus) else load_texts(one) for name, one in given.items()}
    check_apart({name: one.texts if isinstance(one, Corpus) else one for name, one in loaded.items()}, texts)
    read: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    for name, one in loaded.items():
        if name == "corpus":
            counted = read_corpus(one, model.tokenizer, model.lm.vocab_size)
            requests, facts[name] = (
                [request.with_corpus(counted.log_frequency) for request in requests],
                counted.facts(),
            )
        elif name.endswith("prefix"):
            prefix = read_prefix(one, model.tokenizer, model.lm.vocab_size)
            read[name], facts[name] = prefix.tokens, prefix.facts()
        elif name == "tune_on":
            models["tuned"], record = _tuned(model, one, requests, where)
            facts[name] = {**facts_of(one), **record}
        else:
            read[name], facts[name] = one, facts_of(one)
    return requests, models | find_references(beside["reference"], dtype, where), read, facts


def _tuned(
    model: Model, texts: Texts, requests: Sequence[ScoreRequest], where: Devices
) -> tuple[Model, dict[str, Any]]:
    """The model after fine-tuning, and how it was made."""
    from tdd.lab.train import tune
    from tdd.scoring.scores.fsd import tuning_of

    options = tuning_of(requests)
    if where.shard_params:
        raise InputError("tune_on with shard_params=True: a model that is fine-tuned must fit on one device")
    with jax.default_device(where.home):
        params, record = tune(model.lm, model.parameters(), model.tokenizer, texts.texts, **options)
    return Model(model.lm, params, model.tokenizer, f"{model.name}, fine-tuned"), record


def _parameters(requests: Sequence[ScoreRequest]) -> dict[str, Any]:
    """The options of the scores, defaults included, which must be fixed before results are seen."""
    known = {
        request.label: {name: str(value) for name, value in request.parameters.items() if name != "log_frequency"}
        for request in requests
    }
    return {"parameters": {label: options for label, options in known.items() if options}}


def _compute(
    run: ScoreRun,
    plan: ScorePlan,
    part: Shard | None,
    where: Devices,
    progress: bool,
    on_batch: Callable[[int, int], None] | None,
) -> None:
    """Compute all batches that are not in the store, or those of a shard."""
    num_stored, num_rows = plan.num_stored, plan.num_rows
    todo = plan.numbered(part)
    title = "scoring"
    if num_stored:
        _logger.info("%d of %d rows are in the store", num_stored, num_rows)
        title = f"scoring ({num_stored:,} of {num_rows:,} rows stored)"
    num_tokens = sum(batch.num_tokens for _, batch in todo)
    with progress_bar(title, num_tokens, enabled=progress and where.leads) as advance:
        for done, batch in enumerate(run.run(plan, todo, where), start=1):
            advance(batch.num_tokens)
            if on_batch is not None:
                on_batch(done, len(todo))


def _table(run: ScoreRun, requests: Sequence[ScoreRequest], texts: Texts, provenance: Mapping[str, Any]) -> Scores:
    """The finished scores; those that do not exist are counted in the log."""
    evidence, of_texts = run.evidence(), run.tokens_of("text")
    tuned = run.tokens_of("tuned").values if "tuned" in run.results else {}
    values = {
        label: request.finish(rows, evidence._replace(tuned_rows=tuned.get(label)))
        for request, (label, rows) in zip(requests, of_texts.values.items(), strict=True)
    }
    for label, column in values.items():
        if missing := int(np.isnan(column).sum()):
            _logger.warning("score %s does not exist for %d of %d texts", label, missing, len(texts))
    return Scores(ids=texts.ids, values=values, num_tokens=of_texts.num_tokens, provenance=provenance)


def _provenance(
    run: ScoreRun, plan: ScorePlan, table: Texts, where: Devices, options: Mapping[str, Any], *, stored: bool
) -> dict[str, Any]:
    """The model, texts, devices and batches that a table of scores was computed with."""
    text = run.inputs["text"]
    references = [model.name for name, model in run.models.items() if name.startswith("reference")]
    provenance: dict[str, Any] = {
        "model": run.models["text"].name,
        "reference": references if len(references) > 1 else next(iter(references), None),
        "texts_sha256": table.sha256,
        "device": ", ".join(map(str, where.devices)),
        "num_devices": len(where),
        "shard_params": where.shard_params,
    }
    if where.spans:
        provenance["num_processes"] = jax.process_count()
    provenance |= {"prepends_bos": text.encoded.prepends_bos, "num_windows": len(text.rows.windows)}
    if options["long_texts"] == "truncate":
        pairs = zip(text.encoded.kept, table.texts, strict=True)
        provenance["num_truncated"] = sum(len(kept) < len(whole) for kept, whole in pairs)
    provenance |= {"batch_shapes": _shapes(plan, gradient=False), "padding_share": _padding(run, plan)}
    if stored:
        provenance["num_stored_before"] = sum(len(batch.rows) for batch in plan.stored)
    if "gradient" in run.inputs:
        fast = run.models["text"].lm.grad_sqnorm is not None
        provenance["gradient"] = {
            "definition": "Euclidean norm of the gradient of the summed loss over all parameters, tied ones once",
            "computed_by": "norm probe, a batch at a time" if fast else "automatic differentiation, text by text",
            "token_budget": gradient_budget(options["token_budget"]),
            "batch_shapes": _shapes(plan, gradient=True),
        }
    return provenance


def _shapes(plan: ScorePlan, *, gradient: bool) -> list[tuple[int, int]]:
    """The shapes of the batches, of those with gradients or of the others."""
    return sorted({(batch.size, batch.length) for batch in plan.batches if (batch.kind == "gradient") == gradient})


def _padding(run: ScoreRun, plan: ScorePlan) -> float:
    """Fraction of the tokens of all batches that are padding."""
    lengths = {name: given.rows.lengths for name, given in run.inputs.items()}
    real = sum(int(lengths[batch.kind][batch.rows].sum()) for batch in plan.batches)
    computed = sum(batch.num_tokens for batch in plan.batches)
    return 1 - real / computed if computed else 0.0
