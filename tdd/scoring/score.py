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
from typing import Any, TypeAlias, Unpack, overload

import jax
import numpy as np

from tdd.models.source import at_revision
from tdd.records import Scores, Texts
from tdd.runs.display import progress_bar
from tdd.runs.folder import versions
from tdd.runs.shards import Shard, ShardLog, as_shard
from tdd.scoring.buckets import Batch, gradient_budget
from tdd.scoring.devices import Devices, check_alike, check_not_in_step
from tdd.scoring.how import Run, RunOptions, as_run
from tdd.scoring.inputs import OWN, Model, is_gradient
from tdd.scoring.models import check_references, find_model
from tdd.scoring.plan import Planner, ScorePlan
from tdd.scoring.run import BlockScores, Runners, ScoreRun, ahead, in_turns, joined
from tdd.scoring.scores.score import Score, as_models, as_scores, check_complete, given_by_name, loaded
from tdd.scoring.store import ScoreStore
from tdd.scoring.tasks import Tasks, check_scorable, names_of_references, tasks_of
from tdd.texts import load_texts
from tdd.validate.settings import on_own_devices

Scoring: TypeAlias = str | Score | Sequence[str | Score] | Mapping[str, str | Score]
"""One score or several, by name or as values."""

_logger = logging.getLogger("tdd")


@overload
def score(
    model: Any,
    texts: Any,
    scores: Scoring = ...,
    *,
    revision: str | None = ...,
    params: Any = ...,
    tokenizer: Any = ...,
    shard: None = None,
    run: Run | None = ...,
    **options: Unpack[RunOptions],
) -> Scores: ...
@overload
def score(
    model: Any,
    texts: Any,
    scores: Scoring = ...,
    *,
    revision: str | None = ...,
    params: Any = ...,
    tokenizer: Any = ...,
    shard: tuple[int, int] | str,
    run: Run | None = ...,
    **options: Unpack[RunOptions],
) -> None: ...
@on_own_devices()
def score(
    model: Any,
    texts: Any,
    scores: Scoring = ("loss", "min_k_plus_plus"),
    *,
    revision: str | None = None,
    params: Any = None,
    tokenizer: Any = None,
    shard: tuple[int, int] | str | None = None,
    run: Run | None = None,
    **options: Unpack[RunOptions],
) -> Scores | None:
    """Score texts under a language model. All scores are loss-like: LOWER = MORE member-like.

    Args:
      model: a checkpoint folder, a GGUF file or a hub id, "owner/name" or "owner/name@revision"; or a `LanguageModel`
        with `params` and `tokenizer`; or the triple (lm, params, tokenizer) that `tdd.load` returns.
      texts: a path, a sequence of strings, a column or table, or `Texts`; see `tdd.texts.load_texts`.
      scores: one or several: by name, with options after a colon, "max_renyi:gamma=inf,k=0", or as values,
        `tdd.scores.MaxRenyi(gamma="inf", k=0)`; a mapping gives each column its name. What a score needs beside model
        and texts are its fields: `tdd.scores.ReCall(prefix=unseen)` or "recall:prefix=unseen.jsonl",
        `tdd.scores.Lira(references=[a, b])` or "lira:references=A,references=B". No scored text may be among the texts
        that a score was given.
      revision: branch, tag or commit of the model, where that is a hub id.
      params, tokenizer: the parameters and the tokenizer, where `model` is a LanguageModel.
      shard: (i, n) or "i/n", from 0: compute only part i of n of the batches, into `store`, and return None. Shards may
        run at once, on all hosts that share the folder. The same call without a shard then takes everything from the
        store and computes what is missing; its table is that of a single call to the last bit.
      run: how to run; see `tdd.Run`.
      **options: fields of `tdd.Run`, in the place of those of `run`: device, devices, dtype, store, long_texts, ...

    Returns:
      `Scores`, a column for each score as it was written, without what it was given; NaN where a score does not exist
      (a text whose lowercased or reference form has fewer than two tokens; counted in the log). None with a shard.

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
    how = as_run(run, options)
    given = as_scores(scores)
    check_complete(given.values())
    where = how.find_devices()
    budget, long_texts = how.budget(where.platform), how.long_texts or "window"
    table = load_texts(texts)
    part = as_shard(shard, how.store)
    check_not_in_step(part, spans=where.spans)
    layout = {
        "scores": [*given], "dtype": None if how.dtype is None else str(how.dtype),
        "token_budget": budget, "max_length": how.max_length, "long_texts": long_texts,
    }  # fmt: skip
    facts = {**layout, "texts": table.sha256, **versions()}
    others = [as_models(models) for models in given_by_name(given.values(), "model").values()]
    _check_alike_inputs(facts, model, revision, [one for models in others for one in models], where)
    for models in others:
        check_references(models, at_revision(model, revision))
    audited = find_model("model", at_revision(model, revision), params, tokenizer, how.dtype, where)
    given = loaded(given)
    check_scorable(given, table)
    tasks = tasks_of(given, audited, how.dtype, where)
    prepare: Any = functools.partial(ScoreRun.prepare, tasks=tasks, max_length=how.max_length, long_texts=long_texts)
    blocks = ahead(prepare, in_turns(table, tasks.models))
    done, log = _run_blocks(blocks, tasks.models, where, part, len(table), budget, {**facts, **tasks.facts}, how)
    if part is not None:
        return None if log is None else log.finish(part)
    if log is not None:
        log.forget()
    whole = joined(done)
    provenance = {
        **layout,
        **tasks.facts,
        **_provenance(whole, tasks, table, where, layout, stored=how.store is not None),
    }
    return _table(whole, tasks, table, provenance | _parameters(given))


def _run_blocks(
    blocks: Generator[ScoreRun, None, None],
    models: Mapping[str, Model],
    where: Devices,
    part: Shard | None,
    num_texts: int,
    budget: int,
    facts: dict[str, Any],
    how: Run,
) -> tuple[list[BlockScores], ShardLog | None]:
    """What is kept of each block once it is computed, nothing in a shard; and the notes of the shards in the store."""
    store = how.store
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
        advance = stack.enter_context(progress_bar("scoring", 1, enabled=how.progress and where.leads))
        tracker = _Progress(num_texts, advance, how.on_batch)
        waiting: dict[int, tuple[ScorePlan, list[tuple[int, Batch]]]] = {}  # blocks whose models have turns to come
        for block in itertools.chain([first], blocks):
            number, texts, of, later = block.turn
            if of is None:
                plan = planner.plan(block.inputs, block.distinct, len(texts) / num_texts)
                facts |= plan.facts
                if where.spans:
                    check_alike({**facts, "batches": plan.batches_digest()})
                if store is not None and log is None:
                    log = ShardLog(store, facts, how.job)
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


def _check_alike_inputs(
    facts: Mapping[str, Any], model: Any, revision: str | None, references: Sequence[Any], where: Devices
) -> None:
    """Compare what the processes that compute in step were given: models too where all of them have names."""
    if not where.spans:
        return
    named = all(isinstance(one, (str, os.PathLike)) for one in (model, *references))
    names = {"model": f"{model}@{revision}", "reference": [*map(str, references)]} if named else {}
    check_alike({**facts, **names})


def _parameters(scores: Mapping[str, Score]) -> dict[str, Any]:
    """The options of the scores, defaults included, which must be fixed before results are seen."""
    known = {label: {name: str(value) for name, value in score.parameters.items()} for label, score in scores.items()}
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


def _table(whole: BlockScores, tasks: Tasks, texts: Texts, provenance: Mapping[str, Any]) -> Scores:
    """The finished scores; those that do not exist are counted in the log."""
    values = {label: whole.values(label, tasks) for label in tasks.scores}
    unlimited = provenance["max_length"] is None and tasks.models[OWN].lm.max_length is None
    hint = "; if the model accepts no longer texts, say how many tokens it does: max_length" if unlimited else ""
    for label, column in values.items():
        if missing := int(np.isnan(column).sum()):
            _logger.warning("score %s does not exist for %d of %d texts%s", label, missing, len(texts), hint)
    return Scores(ids=texts.ids, values=values, num_tokens=whole.columns["num_tokens", ""], provenance=provenance)


def _provenance(
    whole: BlockScores,
    tasks: Tasks,
    table: Texts,
    where: Devices,
    options: Mapping[str, Any],
    *,
    stored: bool,
) -> dict[str, Any]:
    """The model, texts, devices and batches that a table of scores was computed with."""
    models, references = tasks.models, names_of_references(tasks.models)
    counts = whole.counts
    provenance: dict[str, Any] = {
        "model": models[OWN].name,
        "reference": references if len(references) > 1 else next(iter(references), None),
        "texts_sha256": table.sha256,
        "device": ", ".join(map(str, where.devices)),
        "num_devices": len(where),
        "shard_params": where.shard_params,
    }
    if where.spans:
        provenance["num_processes"] = jax.process_count()
    if (read_from := getattr(models[OWN].tokenizer, "read_from", None)) is not None:
        provenance["tokenizer"] = read_from
    provenance |= models[OWN].stored
    provenance |= {"prepends_bos": whole.prepends_bos, "num_windows": counts["windows"]}
    if options["long_texts"] == "truncate":
        provenance["num_truncated"] = counts["truncated"]
    padding = 1 - counts["real"] / counts["computed"] if counts["computed"] else 0.0
    provenance |= {"batch_shapes": _shapes(whole, gradient=False), "padding_share": padding}
    if stored:
        provenance["num_stored_before"] = counts["stored"]
    if not tasks.windowed:
        fast = models[OWN].lm.grad_sqnorm is not None
        provenance["gradient"] = {
            "definition": "Euclidean norm of the gradient of the summed loss over all parameters, tied ones once",
            "computed_by": "norm probe, a batch at a time" if fast else "automatic differentiation, text by text",
            "token_budget": gradient_budget(options["token_budget"]),
            "batch_shapes": _shapes(whole, gradient=True),
        }
    return provenance


def _shapes(whole: BlockScores, *, gradient: bool) -> list[tuple[int, int]]:
    """The shapes of the batches, of those with gradients or of the others."""
    return sorted({(size, length) for kind, size, length, _ in whole.shapes if is_gradient(kind) == gradient})
