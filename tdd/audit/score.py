"""`tdd.score`: texts and a model → a table of scores.

Texts are tokenised, cut into windows, sorted by length into few batch shapes, and sent through the model once for
each distinct pass: the texts, their lowercased forms, reference models, and forward and backward for gradient norms.
Statistics come back as vectors over the scored tokens and are reduced to scores on the host in float64.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypedDict, Unpack, overload

import jax
import numpy as np

from tdd.audit.models import check_references, find_model, find_references, quantisation_beside
from tdd.models.source import at_revision
from tdd.records import Scores, Texts
from tdd.runs.display import progress_bar
from tdd.runs.folder import versions
from tdd.runs.shards import Shard, ShardLog, as_shard
from tdd.scoring.buckets import Batch, check_budget, default_budget, gradient_budget
from tdd.scoring.devices import Devices, check_alike, check_not_in_step, find_devices
from tdd.scoring.inputs import Model
from tdd.scoring.plan import Planner, ScorePlan
from tdd.scoring.run import BlockScores, Runners, ScoreRun, ahead, in_turns, joined
from tdd.scoring.scores import TEXTS_BESIDE, ScoreRequest, check_given, check_score_names, parse_score
from tdd.scoring.store import ScoreStore
from tdd.texts import load_texts
from tdd.validate import InputError

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
      on_batch: called with (batches done, batches in all) after each batch; in a shard those of the shard. Of texts
        that are not tokenised yet (more than 4 million characters are tokenised while others are computed) the
        batches are estimated.

    Returns:
      `Scores`, a column for each name as it was written; NaN where a score does not exist (a text whose lowercased
      or reference form has fewer than two tokens; counted in the log). None with a shard.

    Processes that `jax.distributed` connects each compute everything, unless each has its part by `shard`. With
    shard_params=True they divide the parameters over all their devices, compute in step, and get the same table.

    Raises:
      InputError: anything about model, texts or options that cannot be used; the message says what would work.

    Cost: one forward pass over the texts; "lowercase" adds a second, each reference model one, each prefix one behind
    it (a decoder reads the prefix itself once), "fsd" one and the fine-tuning, "grad_norm" one forward and backward
    (three to four times a forward pass). Host memory: the texts, one number per text and score, and about a kilobyte
    for each text of two blocks of 4 million characters; the next block is tokenised while the devices compute one. Of
    several references that are checkpoints one is in memory at a time, and several blocks are tokenised anew for each.
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
    check_references(reference, at_revision(model, revision))
    audited = find_model("model", at_revision(model, revision), params, tokenizer, dtype, where)
    requests, models, read, of_beside = _with_beside(requests, beside, audited, table, dtype, where)
    cut = {"max_length": max_length, "long_texts": long_texts, "beside": read}
    prepare: Any = functools.partial(ScoreRun.prepare, requests=requests, models=models, **cut)
    blocks = ahead(prepare, in_turns(table, models))
    done, log = _run_blocks(
        blocks, models, where, part, len(table), budget, {**facts, **of_beside}, store, job, progress, on_batch
    )
    if part is not None:
        return None if log is None else log.finish(part)
    if log is not None:
        log.forget()
    whole = joined(done)
    provenance = {**options, **of_beside, **_provenance(whole, models, table, where, options, stored=store is not None)}
    return _table(whole, requests, table, provenance | _parameters(requests) | quantisation_beside(model, revision))


def _run_blocks(
    blocks: Generator[ScoreRun, None, None],
    models: Mapping[str, Model],
    where: Devices,
    part: Shard | None,
    num_texts: int,
    budget: int,
    facts: dict[str, Any],
    store: str | os.PathLike[str] | None,
    job: str,
    progress: bool,
    on_batch: Callable[[int, int], None] | None,
) -> tuple[list[BlockScores], ShardLog | None]:
    """What is kept of each block once it is computed, nothing in a shard; and the notes of the shards in the store."""
    done: list[BlockScores] = []
    log = None
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(blocks))
        first = next(blocks)  # bad texts leave no store
        stack.enter_context(jax.default_device(where.home))
        open_store = None if store is None else stack.enter_context(ScoreStore(store))
        # where rows of earlier blocks are stored when a block is planned, the store tells it, else the plans before
        alone = part is None and not where.spans and not first.turn.later
        planner = Planner(models, where, budget, open_store, alone=alone)
        runners = Runners(models, where)
        advance = stack.enter_context(progress_bar("scoring", 1, enabled=progress and where.leads))
        tracker = _Progress(num_texts, advance, on_batch)
        waiting: dict[int, tuple[ScorePlan, list[tuple[int, Batch]]]] = {}  # blocks whose models have turns to come
        for block in itertools.chain([first], blocks):
            number, texts, of, later = block.turn
            if of is None:
                plan = planner.plan(block.inputs, block.distinct)
                facts |= plan.facts
                if where.spans:
                    check_alike({**facts, "batches": plan.batches_digest()})
                if store is not None and log is None:
                    log = ShardLog(store, facts, job)
                    if part is not None:
                        log.begin(part)
                if log is not None and part is None and tracker.all_stored and plan.num_stored < plan.num_rows:
                    log.warn()
                todo = plan.numbered(part)
                tracker.add(plan, todo, len(texts))
                if later:
                    waiting[number] = plan, todo
            else:
                plan, todo = waiting[number]
            for batch in block.run(plan, block.now(todo), runners):
                tracker.finish(batch)
            if part is None and of is None:
                done.append(block.scores(plan))
            elif part is None:
                done[number] = done[number]._replace(columns={**done[number].columns, **block.columns()})
    return done, log


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
            read[name] = read_prefix(one, model.tokenizer, model.lm.vocab_size)
            facts[name] = {**facts_of(one), "tokens": len(read[name])}
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


class _Progress:
    """Counts batches, and tells what there will be: later blocks of texts are taken to be like those before them."""

    def __init__(
        self, num_texts: int, advance: Callable[..., None], on_batch: Callable[[int, int], None] | None
    ) -> None:
        self._num_texts, self._advance, self._on_batch = num_texts, advance, on_batch
        self._texts = self._tokens = self._batches = self._done = self._stored = self._rows = 0

    @property
    def all_stored(self) -> bool:
        """Whether the blocks so far were stored before."""
        return self._stored == self._rows

    def add(self, plan: ScorePlan, todo: Sequence[tuple[int, Batch]], num_texts: int) -> None:
        """The plan of a block of texts, and what of it is to be done."""
        self._texts += num_texts
        self._batches += len(todo)
        self._tokens += sum(batch.num_tokens for _, batch in todo)
        self._stored, self._rows = self._stored + plan.num_stored, self._rows + plan.num_rows
        title = "scoring"
        if self._stored:
            _logger.info("%d of %d rows are in the store", self._stored, self._rows)
            title = f"scoring ({self._stored:,} of {self._rows:,} rows stored)"
        self._advance(0, total=self._in_all(self._tokens), description=title)

    def finish(self, batch: Batch) -> None:
        """A batch is done."""
        self._done += 1
        self._advance(batch.num_tokens)
        if self._on_batch is not None:
            self._on_batch(self._done, self._in_all(self._batches))

    def _in_all(self, count: int) -> int:
        return -(-count * self._num_texts // self._texts)


def _table(whole: BlockScores, requests: Sequence[ScoreRequest], texts: Texts, provenance: Mapping[str, Any]) -> Scores:
    """The finished scores; those that do not exist are counted in the log."""
    evidence, rows, tuned = whole.evidence(), whole.by_name("rows"), whole.by_name("tuned")
    values = {
        request.label: request.finish(rows[request.label], evidence._replace(tuned_rows=tuned.get(request.label)))
        for request in requests
    }
    for label, column in values.items():
        if missing := int(np.isnan(column).sum()):
            _logger.warning("score %s does not exist for %d of %d texts", label, missing, len(texts))
    return Scores(ids=texts.ids, values=values, num_tokens=whole.columns["num_tokens", ""], provenance=provenance)


def _provenance(
    whole: BlockScores,
    models: Mapping[str, Model],
    table: Texts,
    where: Devices,
    options: Mapping[str, Any],
    *,
    stored: bool,
) -> dict[str, Any]:
    """The model, texts, devices and batches that a table of scores was computed with."""
    references = [model.name for name, model in models.items() if name.startswith("reference")]
    counts = whole.counts
    provenance: dict[str, Any] = {
        "model": models["text"].name,
        "reference": references if len(references) > 1 else next(iter(references), None),
        "texts_sha256": table.sha256,
        "device": ", ".join(map(str, where.devices)),
        "num_devices": len(where),
        "shard_params": where.shard_params,
    }
    if where.spans:
        provenance["num_processes"] = jax.process_count()
    if (read_from := getattr(models["text"].tokenizer, "read_from", None)) is not None:
        provenance["tokenizer"] = read_from
    provenance |= {"prepends_bos": whole.prepends_bos, "num_windows": counts["windows"]}
    if options["long_texts"] == "truncate":
        provenance["num_truncated"] = counts["truncated"]
    padding = 1 - counts["real"] / counts["computed"] if counts["computed"] else 0.0
    provenance |= {"batch_shapes": _shapes(whole, gradient=False), "padding_share": padding}
    if stored:
        provenance["num_stored_before"] = counts["stored"]
    if ("grad_norm", "") in whole.columns:
        fast = models["text"].lm.grad_sqnorm is not None
        provenance["gradient"] = {
            "definition": "Euclidean norm of the gradient of the summed loss over all parameters, tied ones once",
            "computed_by": "norm probe, a batch at a time" if fast else "automatic differentiation, text by text",
            "token_budget": gradient_budget(options["token_budget"]),
            "batch_shapes": _shapes(whole, gradient=True),
        }
    return provenance


def _shapes(whole: BlockScores, *, gradient: bool) -> list[tuple[int, int]]:
    """The shapes of the batches, of those with gradients or of the others."""
    return sorted({(size, length) for kind, size, length in whole.shapes if (kind == "gradient") == gradient})
