"""`tdd.run_exchange`: a model and data sets → was the order of each in its training data?"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import pathlib
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any, Unpack, overload

import jax

from tdd.exchange import summary
from tdd.exchange.data import ExchangeOptions, Options, Shards, load_sets
from tdd.exchange.passes import SequentialTest, SetPass, as_double, rows_of, run_sets
from tdd.exchange.result import Exchange, select, shard_table, tests_of
from tdd.exchange.structure import duplicates, order_structure, sortedness
from tdd.kernels.sequential import default_looks
from tdd.models.source import at_revision
from tdd.procedures.exchangeability import GUARANTEES, TESTS
from tdd.procedures.sequential import GUARANTEES as SEQUENTIAL_GUARANTEES
from tdd.runs.display import progress_bar
from tdd.runs.folder import fingerprint, log_findings, open_run_folder, plain, run_head, versions
from tdd.runs.portable import command_of, without_folders
from tdd.runs.shards import Shard, ShardLog, as_shard
from tdd.scoring.devices import Devices, check_alike, check_not_in_step
from tdd.scoring.how import as_run, split_options
from tdd.scoring.inputs import Model
from tdd.scoring.models import find_model, provenance_of
from tdd.scoring.store import ScoreStore
from tdd.validate import InputError, arrays
from tdd.validate.settings import on_own_devices

_CONTROL_SHUFFLES = 20
"""Shuffles under the control model, however early the run stops: few cannot show that an order is not random."""


@overload
def run_exchange(
    model: Any,
    data: Any,
    *,
    num_shards: int = ...,
    num_shuffles: int = ...,
    test: str = ...,
    alpha: float = ...,
    stop: str = ...,
    target_p: float | None = ...,
    control: Any = ...,
    seed: int = ...,
    out: str | os.PathLike[str] | None = ...,
    shard: None = None,
    **options: Unpack[ExchangeOptions],
) -> Exchange: ...
@overload
def run_exchange(
    model: Any,
    data: Any,
    *,
    num_shards: int = ...,
    num_shuffles: int = ...,
    test: str = ...,
    alpha: float = ...,
    stop: str = ...,
    target_p: float | None = ...,
    control: Any = ...,
    seed: int = ...,
    out: str | os.PathLike[str] | None = ...,
    shard: tuple[int, int] | str,
    **options: Unpack[ExchangeOptions],
) -> None: ...
@on_own_devices()
def run_exchange(
    model: Any,
    data: Any,
    *,
    num_shards: int = 50,
    num_shuffles: int = 50,
    test: str = "combined",
    alpha: float = 0.05,
    stop: str = "none",
    target_p: float | None = None,
    control: Any = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    shard: tuple[int, int] | str | None = None,
    **options: Unpack[ExchangeOptions],
) -> Exchange | None:
    """Test whether a model prefers the published order of data sets to random orders of the same examples.

    Each data set is cut into contiguous shards. A shard is scored in its canonical order and in uniform shuffles, its
    examples joined by a separator, and the log-probabilities go into `tdd.exchangeability`, or for a sequential run
    into `tdd.exchangeability_sequence` (the sharded exchangeability test, algorithm 1). Several data sets are decided
    on by Benjamini and Hochberg's procedure.

    Guarantee: for each data set P(p <= t) <= t for every t, if its published order is random (its examples are
    exchangeable) and the model does not depend on that order; finite-sample, but for test="t". The selection among
    several data sets has FDR <= alpha if their p-values are independent or positively dependent.

    Args:
      model: A checkpoint folder or hub id (also "owner/name@revision"); or a `LanguageModel` with `params` and
        `tokenizer`; or the triple that `tdd.load` returns.
      data: One data set or several in their published order; see `tdd.exchange.data.load_sets`.
      num_shards: R, contiguous shards a data set, of two examples at least.
      num_shuffles: K, shuffles a shard; the most in a sequential run.
      test: "combined", "rank_sum", "exact", "t" or "permutation", see `tdd.exchangeability`; the one that decides. The
        others are reported beside it.
      alpha: Level.
      stop: "none"; or a sequential rule, "e_process", "spending" or "besag_clifford", under which a run stops as soon
        as it is clear; the p-value stays valid.
      target_p: P-value at which a sequential run stops for evidence; by default alpha divided by the number of data
        sets.
      control: A second model, known not to have seen the data sets, in any form that `model` takes but a bare
        LanguageModel. A small p-value under it says that the published order is not random. It gets as many
        shuffles as the model got, and 20 at least: if a sequential rule decided on their number, its p-value is
        approximate.
      seed: Random seed of shuffles, random relabellings and checks.
      out: Folder for run.json, shards.csv and log_probs.npz; an interrupted run continues there and ends with the same
        numbers to the bit.
      shard: (i, n) or "i/n", from 0: compute the part i of n of the log-probabilities alone, into `out` (or `store`),
        decide nothing, and return None; see `tdd.score`. The same call without a shard decides. For stop="none": a
        sequential rule needs all log-probabilities so far before it knows whether to go on.
      **options: How rows become texts (`template`, `text_field`, `format`, `separator`, `suffix`, `allow_sorted`), how
        texts are laid into the context (`bos`, `stride`), the model's `revision`, `params` and `tokenizer`, see
        `tdd.exchange.data.Options`; and how to run: `run`, or fields of `tdd.Run` in the place of those of `run`.

    Returns:
      `Exchange`; None with a shard.

    Raises:
      InputError: anything about model, data or options that cannot be used: too few examples, empty or equal ones, a
        sorted order, a context shorter than the examples, an `out` that holds another run.
      TypeError: an unknown option.

    Cost: r (k + 1) forward passes a data set, each over the tokens of a shard; less if orders share tokens or a
    sequential rule stops.
    """
    start = time.perf_counter()
    arrays.check_seed(seed)
    fields, others = split_options(options)
    how = as_run(others.pop("run", None), fields)
    given = Options(
        num_shards=num_shards, num_shuffles=num_shuffles, test=test, alpha=alpha, stop=stop, target_p=target_p, how=how,
        **others,
    )  # fmt: skip
    model = at_revision(model, given.revision)
    devices = how.find_devices()
    recorded = given.record(devices)
    folder = None if out is None else pathlib.Path(out)
    place = folder / "scoring" if how.store is None and folder is not None else how.store
    part = as_shard(shard, place, "out")
    _check_shard(part, devices, stop)

    sets = _read(data, given, seed)
    inputs = {"data": [one.data.sha256 for one in sets], "seed": seed, **versions()}
    if devices.spans:
        check_alike({**inputs, "num_shards": given.num_shards})
    models = {"model": find_model("model", model, given.params, given.tokenizer, how.dtype, devices)}
    if control is not None:
        models["control"] = find_model("control", control, None, None, how.dtype, devices)
        _check_control(models["control"], sets, given)
    described = {"model": _described(models["model"], model), "control": None}
    if control is not None:
        described["control"] = _described(models["control"], control)
    if folder is not None:
        named = {"fields": [one.data.fields for one in sets]} if any(one.data.fields for one in sets) else {}
        identity = named | {"models": [*described.values()], "data": inputs["data"], "seed": seed, "options": recorded}
        what = f"test of the order of {', '.join(one.data.name for one in sets)}"
        open_run_folder(folder, fingerprint(identity), what)

    target = alpha / len(sets) if target_p is None else target_p
    keys = [jax.random.fold_in(arrays.key_of_seed(seed), number) for number in range(len(sets))]  # of the relabellings
    looks = default_looks(given.num_shuffles)
    sequences = [None if stop == "none" else SequentialTest(stop, looks, target, test, key) for key in keys]
    hashes = {name: one["sha256"] for name, one in described.items() if one is not None}
    facts = {**recorded, **hashes, **inputs}
    if devices.spans:
        check_alike(facts)
    log = None if place is None else ShardLog(place, facts, how.job or ("exchange" if folder is None else folder.name))
    passes, controls = _score(models, devices, sets, given, sequences, place, log, part)
    if part is not None:
        return None

    findings = [
        _finding(one, of_control, test, seed, key) for one, of_control, key in zip(passes, controls, keys, strict=True)
    ]
    run = _record(findings, described, recorded, given, seed, time.perf_counter() - start)
    log_probs = {one.shards.data.name: (one.log_probs[:, 0], one.log_probs[:, 1:]) for one in passes}
    exchange = Exchange(without_folders(plain(run), own=log_probs), shard_table(passes), log_probs)
    if folder is not None and devices.leads:
        exchange.save(folder)
    return exchange


def _read(data: Any, given: Options, seed: int) -> list[Shards]:
    """The data sets, cut into shards."""
    loaded = load_sets(data, template=given.template, text_field=given.text_field, format=given.format)
    sets = [Shards.cut(one, num_shards=given.num_shards, suffix=given.suffix, seed=seed) for one in loaded]
    for one in loaded:
        key = None if given.allow_sorted else sortedness(one.examples)
        if key is not None:
            raise InputError(
                f"data set {one.name!r} is sorted ({key}): its order is not random, and a model that never saw it may "
                "prefer sorted texts, so the test would prove nothing. Test a data set that was published in random "
                "order; or set allow_sorted=True (--allow-sorted) together with a negative control and read the result "
                "with that caveat"
            )
    return sets


def _check_control(control: Model, sets: Sequence[Shards], given: Options) -> None:
    """Refuse what the control cannot take before the model is run."""
    try:
        rows_of(control, sets, given)
    except InputError as error:
        raise InputError(f"control: {error}") from error


def _check_shard(shard: Shard | None, devices: Devices, stop: str) -> None:
    """Shards compute alone, and a number of shuffles that is known beforehand."""
    check_not_in_step(shard, spans=devices.spans)
    if shard is not None and stop != "none":
        raise InputError(
            f'shard={shard} and stop="{stop}" exclude each other: a sequential rule needs all log-probabilities so far '
            'to know whether to go on, and a shard has its own; use stop="none" and no target_p, or leave shard out'
        )


def _described(model: Model, source: Any) -> dict[str, Any]:
    named = isinstance(source, (str, os.PathLike))
    return provenance_of(source if named else (model.lm, model.params, model.tokenizer))


def _score(
    models: Mapping[str, Model],
    devices: Devices,
    sets: Sequence[Shards],
    given: Options,
    sequences: Sequence[SequentialTest | None],
    place: str | os.PathLike[str] | None,
    log: ShardLog | None,
    shard: Shard | None,
) -> tuple[list[SetPass], Sequence[SetPass | None]]:
    """The log-probabilities of all orders under the model and under the control, through the store at `place`."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.default_device(devices.home))
        store = None if place is None else stack.enter_context(ScoreStore(place))
        if log is not None and shard is not None:
            log.begin(shard)
        elif log is not None:
            log.warn()

        def run(name: str, title: str, most: Sequence[int], rules: Sequence[SequentialTest | None]) -> list[SetPass]:
            total = sum(len(one) * (k + 1) for one, k in zip(sets, most, strict=True))
            with progress_bar(
                title, total, enabled=given.how.progress and devices.leads, unit="model calls"
            ) as advance:
                return run_sets(
                    models[name], devices, sets, most, given, sequences=rules, store=store, shard=shard, advance=advance
                )

        passes = run("model", "testing orders", [given.num_shuffles] * len(sets), sequences)
        controls: Sequence[SetPass | None] = [None] * len(sets)
        if "control" in models:
            fewest = min(given.num_shuffles, _CONTROL_SHUFFLES)
            used = [max(one.log_probs.shape[1] - 1, fewest) for one in passes]
            controls = run("control", "control model", used, [None] * len(sets))
    if log is not None and shard is not None:
        log.finish(shard)
    elif log is not None:
        log.forget()
    return passes, controls


def _finding(one: SetPass, control: SetPass | None, test: str, seed: int, key: jax.Array) -> dict[str, Any]:
    """Everything about one data set but whether it is selected, in plain values."""
    shards, data = one.shards, one.shards.data
    canonical, shuffled = one.log_probs[:, 0], one.log_probs[:, 1:]
    tests, results = tests_of(canonical, shuffled, TESTS if one.sequence is None else (test,), key)
    deciding = results.get(test)  # None if no shard could be compared
    sizes = [shards.size(shard) for shard in range(len(shards))]
    name, guarantee = test, GUARANTEES[test]
    p, log_p = (tests[test][field] for field in ("p_value", "log_p_value"))
    if one.sequence is not None:
        tests, name, guarantee = {}, one.sequence.rule, SEQUENTIAL_GUARANTEES[one.sequence.rule]
        last = one.sequence.result  # the tests for a fixed number are not valid if chance decided when to stop
        if last is not None:
            p, log_p, guarantee = last.p_value[-1], last.log_p_value[-1], last.guarantee
    structure = order_structure(data.examples, shards.permuted, seed=seed, fields=data.fields)
    return {
        "name": data.name,
        "source": data.source,
        "sha256": data.sha256,
        "num_examples": len(data),
        "num_shards": len(shards),
        "num_masked": len(shards) if deciding is None else int(deciding.num_masked),
        "examples_a_shard": [min(sizes), max(sizes)],
        "permuted_a_shard": [shards.num_free(len(shards) - 1), shards.num_free(0)],
        "num_tokens": int(one.rows.num_tokens.sum()),
        "max_windows": one.max_windows,
        "num_long_examples": one.rows.num_long,
        "num_shuffles": one.num_shuffles,
        "shuffles_used": shuffled.shape[1],
        "test": name,
        "p_value": as_double(p),
        "log_p_value": as_double(log_p),
        "guarantee": dataclasses.asdict(guarantee),
        "tests": tests,
        "skewness": math.nan if deciding is None else float(deciding.skewness),
        "skewed": deciding is not None and bool(deciding.skewed),
        "sequential": None
        if one.sequence is None
        else {"rule": one.sequence.rule, "looks": one.sequence.history, "stopped": one.sequence.stopped},
        "calls": {**dataclasses.asdict(one.calls), "shared": one.calls.asked - one.calls.sequences},
        "control": None if control is None else _control(control, test, key),
        "structure": {**plain(structure), "sorted": sortedness(data.examples)},
        "duplicates": plain(duplicates(data.examples, shards.bounds)),
    }


def _control(control: SetPass, test: str, key: Any) -> dict[str, Any]:
    tests, _ = tests_of(control.log_probs[:, 0], control.log_probs[:, 1:], TESTS, key)
    return {"test": test, **{name: tests[test][name] for name in ("p_value", "log_p_value")}, "tests": tests}


def _select(findings: Sequence[dict[str, Any]], alpha: float) -> dict[str, Any]:
    """Decide on the data sets. Those whose order is in doubt do not take part: their small p-values would raise the
    level for the others."""
    doubtful = [summary.in_doubt(one) for one in findings]
    return {"procedure": "bh", "alpha": alpha, "num_rejected": select(findings, alpha, excluded=doubtful)}


def _record(
    findings: list[dict[str, Any]],
    described: Mapping[str, Any],
    recorded: Mapping[str, Any],
    given: Options,
    seed: int,
    seconds: float,
) -> dict[str, Any]:
    """Content of run.json, after the decision on all data sets; logs the warnings."""
    run: dict[str, Any] = {
        **run_head("exchange", seed, command=given.command and command_of(shlex.split(given.command))),
        **described,
        "options": recorded,
        "data": findings,
        "selection": _select(findings, given.alpha),
        "seconds": round(seconds, 3),
    }
    for one in findings:
        one["warnings"] = summary.data_warnings(one, run)
    run |= {"warnings": summary.run_warnings(run), "open_points": summary.open_points(run)}
    run["outcome"] = summary.outcome(run)
    log_findings([*run["warnings"], *(text for one in findings for text in one["warnings"])])
    return run
