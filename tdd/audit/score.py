"""`tdd.score`: texts and a model → a table of scores.

Texts are tokenised, cut into windows, sorted by length into few batch shapes, and sent through the model once for
each distinct pass: the texts, their lowercased forms, the reference model. Statistics come back as vectors over the
scored tokens and are reduced to scores on the host in float64.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

import tdd
from tdd.audit.passes import BatchRunner
from tdd.audit.progress import progress_bar
from tdd.audit.row_results import RowResults
from tdd.audit.score_inputs import Model, PassInput, encode_pass, find_device, find_model
from tdd.audit.score_store import ScoreStore, fingerprint, run_key
from tdd.records import Scores, Texts
from tdd.scoring.buckets import Batch, plan
from tdd.scoring.scores import Evidence, parse_score
from tdd.scoring.token_stats import tiling
from tdd.texts import load_texts
from tdd.validate import scoring as checks

__all__ = ["score"]

_logger = logging.getLogger("tdd")

_BUDGET = {"cpu": 2048}
_BUDGET_ELSEWHERE = 16_384


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
    resume_dir: str | os.PathLike[str] | None = None,
    device: Any = None,
    on_batch: Callable[[int, int], None] | None = None,
) -> Scores:
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
      token_budget: tokens a batch, 2,048 on CPU and 16,384 elsewhere by default; halved where memory does not suffice.
      max_length: longest window in tokens; by default the model's own limit.
      long_texts: "window": every token scored exactly once, in windows whose last is extended to the left; or
        "truncate": tokens beyond the limit are dropped, and the text with them.
      progress: show a bar where standard error is a terminal.
      resume_dir: folder for completed batches: the same call after an interruption continues there and ends with
        the same numbers to the bit.
      device: "cpu", "gpu", "tpu", with an index as in "gpu:1", or a `jax.Device`; by default JAX's first.
      on_batch: called with (batches done, batches in all) after each batch.

    Returns:
      `Scores`, a column for each name as it was written. NaN where a score does not exist (a text whose lowercased
      or reference form has fewer than two tokens; counted in the log).

    Raises:
      InputError: anything about model, texts or options that cannot be used; the message says what would work.

    Cost: one forward pass over the texts; "lowercase" adds a second, "reference" one of the reference model. Host
    memory: the texts, their tokens and one number a text and score.
    """
    requests = [parse_score(name) for name in checks.check_score_names(scores)]
    passes = ["text", *dict.fromkeys(name for request in requests for name in request.score.passes)]
    checks.check_reference(passes, reference)
    checks.check_long_texts(long_texts)
    place = find_device(device)
    budget = _BUDGET.get(place.platform, _BUDGET_ELSEWHERE) if token_budget is None else token_budget
    checks.check_budget(budget)
    table = load_texts(texts)
    models = {"text": find_model("model", model, params, tokenizer, dtype)}
    if reference is not None:
        models["reference"] = find_model("reference", reference, None, None, dtype)
    statistics = tuple(dict.fromkeys(field for request in requests for field in request.score.statistics))
    inputs = {
        name: encode_pass(
            name,
            table,
            models["reference" if name == "reference" else "text"],
            statistics if name == "text" else ("log_prob",),
            max_length=max_length,
            truncate=long_texts == "truncate",
        )
        for name in passes
    }
    batches = _plan(inputs, budget)
    options = {
        "scores": [request.label for request in requests],
        "dtype": None if dtype is None else str(dtype),
        "token_budget": int(budget),
        "max_length": max_length,
        "long_texts": long_texts,
    }
    results = {
        name: RowResults(inputs[name].rows, requests if name == "text" else [parse_score("loss")]) for name in passes
    }
    total = sum(batch.size * batch.length for batch in batches)
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.default_device(place))
        store = None
        if resume_dir is not None:
            key = _key(table, inputs, models, {**options, "platform": place.platform})
            store = stack.enter_context(ScoreStore(resume_dir, key))
        advance = stack.enter_context(progress_bar("scoring", total, enabled=progress))
        for done, (batch, values) in enumerate(_run(batches, inputs, models, place, store), start=1):
            results[batch.kind].add(batch.rows, values)
            advance(batch.size * batch.length)
            if on_batch is not None:
                on_batch(done, len(batches))

    evidence = _evidence(passes, inputs, results)
    values = {
        request.label: request.score.finish(results["text"].values[request.label], evidence) for request in requests
    }
    for label, column in values.items():
        if missing := int(np.isnan(column).sum()):
            _logger.warning("score %s does not exist for %d of %d texts", label, missing, len(table))
    return Scores(
        ids=table.ids,
        values=values,
        num_tokens=results["text"].num_tokens,
        provenance={
            **options,
            "model": models["text"].name,
            "reference": models["reference"].name if reference is not None else None,
            "texts_sha256": table.sha256,
            "device": str(place),
            "prepends_bos": inputs["text"].encoded.prepends_bos,
            "num_windows": len(inputs["text"].rows.windows),
            "batch_shapes": sorted({(batch.size, batch.length) for batch in batches}),
            "padding_share": 1 - sum(int(inputs[name].rows.lengths.sum()) for name in passes) / max(1, total),
        },
    )


def _plan(inputs: Mapping[str, PassInput], budget: int) -> list[Batch]:
    """Batches of all passes; those whose models accept the same length share their shapes, and so programs."""
    batches: list[Batch] = []
    for limit in dict.fromkeys(given.limit for given in inputs.values()):
        lengths = {name: given.rows.lengths for name, given in inputs.items() if given.limit == limit}
        batches += plan(lengths, token_budget=budget, limit=limit)
    order = list(inputs)
    return sorted(batches, key=lambda batch: order.index(batch.kind))


def _run(
    batches: Sequence[Batch],
    inputs: Mapping[str, PassInput],
    models: Mapping[str, Model],
    place: Any,
    store: ScoreStore | None,
) -> Iterator[tuple[Batch, np.ndarray]]:
    """Every batch with its results, in order: from the store, or computed and stored."""
    capacity = max((batch.size * batch.length for batch in batches), default=1)
    numbered = list(enumerate(batches))
    for name, model in models.items():
        mine = [entry for entry in numbered if (entry[1].kind == "reference") == (name == "reference")]
        todo = [entry for entry in mine if store is None or entry[0] not in store]
        params = jax.device_put(model.params, place) if todo else None
        runner = BatchRunner(model.lm, params, capacity, tiling(place.platform))
        computed = runner.run(todo, lambda kind: inputs[kind].rows)
        for number, batch in mine:
            if store is not None and number in store:
                yield batch, store.read(number)
                continue
            _, _, values = next(computed)
            if store is not None:
                store.append(number, values)
            yield batch, values


def _evidence(passes: Sequence[str], inputs: Mapping[str, PassInput], results: Mapping[str, RowResults]) -> Evidence:
    """What the scores need beside the statistics of the texts."""
    text = inputs["text"].encoded
    compressed = np.array([len(zlib.compress(kept.encode())) for kept in text.kept], np.float64)
    evidence = Evidence(compressed_bytes=compressed)
    if "lowercase" in passes:
        evidence = evidence._replace(lowercase_loss=results["lowercase"].values["loss"])
    if "reference" in passes:
        other = inputs["reference"].encoded
        evidence = evidence._replace(reference_loss=results["reference"].values["loss"])
        same = all(np.array_equal(a, b) for a, b in zip(text.tokens, other.tokens, strict=True))
        if not same:
            evidence = evidence._replace(
                tokens_per_byte=results["text"].num_tokens / text.scored_bytes,
                reference_tokens_per_byte=results["reference"].num_tokens / other.scored_bytes,
            )
    return evidence


def _key(table: Texts, inputs: Mapping[str, PassInput], models: Mapping[str, Model], options: Mapping[str, Any]) -> str:
    tokens = {name: [zlib.crc32(ids.tobytes()) for ids in given.encoded.tokens] for name, given in inputs.items()}
    prints = {name: fingerprint(model.lm.spec, model.params) for name, model in models.items()}
    return run_key(
        texts=table.sha256,
        tokens=tokens,
        models=prints,
        options=options,
        tdd=tdd.__version__,
        jax=jax.__version__,
    )
