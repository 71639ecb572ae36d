"""`tdd.run_exchange`: a model and data sets → was the order of each in its training data?"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import logging
import math
import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any, overload

import jax
import numpy as np

from tdd.audit.models import find_model, provenance_of
from tdd.exchange import words
from tdd.exchange.cautions import in_doubt
from tdd.exchange.data import load_sets
from tdd.exchange.orders import Shards
from tdd.exchange.passes import Layout, SetPass, rows_of, run_sets
from tdd.exchange.result import Exchange, shard_table, tests_of
from tdd.exchange.sequence import Sequence as Sequential
from tdd.exchange.sequence import as_double
from tdd.exchange.structure import duplicates, order_structure, sortedness
from tdd.procedures.exchangeability import GUARANTEES, TESTS
from tdd.procedures.sequential import GUARANTEES as SEQUENTIAL_GUARANTEES
from tdd.procedures.testing import bh
from tdd.runs.folder import fingerprint, open_run_folder, plain, versions
from tdd.runs.progress import progress_bar
from tdd.runs.shards import ShardLog, as_shard
from tdd.scoring.buckets import default_budget
from tdd.scoring.devices import find_devices
from tdd.scoring.in_step import check_alike, in_step
from tdd.scoring.inputs import Model
from tdd.scoring.store.store import ScoreStore
from tdd.scoring.store.through import through
from tdd.validate import arrays
from tdd.validate import exchange as checks
from tdd.validate.distributed import check_not_in_step
from tdd.validate.errors import InputError
from tdd.validate.scoring import check_budget

__all__ = ["run_exchange"]

SCHEMA = 1
_CONTROL_SHUFFLES = 20
"""Shuffles under the control model, however early the run stops: few cannot show that an order is not random."""

_findings = logging.getLogger("tdd.findings")


@overload
def run_exchange(
    model: Any,
    data: Any,
    *,
    num_shards: int = ...,
    num_shuffles: int = ...,
    test: str = ...,
    alpha: float = ...,
    separator: str = ...,
    template: str | None = ...,
    text_field: str | None = ...,
    format: str | None = ...,
    bos: str = ...,
    max_length: int | None = ...,
    stride: int | None = ...,
    suffix: float = ...,
    stop: str = ...,
    target_p: float | None = ...,
    control: Any = ...,
    allow_sorted: bool = ...,
    seed: int = ...,
    out: str | os.PathLike[str] | None = ...,
    store: str | os.PathLike[str] | None = ...,
    params: Any = ...,
    tokenizer: Any = ...,
    dtype: Any = ...,
    token_budget: int | None = ...,
    device: Any = ...,
    devices: Any = ...,
    shard_params: bool = ...,
    shard: None = None,
    progress: bool = ...,
    command: str | None = ...,
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
    separator: str = ...,
    template: str | None = ...,
    text_field: str | None = ...,
    format: str | None = ...,
    bos: str = ...,
    max_length: int | None = ...,
    stride: int | None = ...,
    suffix: float = ...,
    stop: str = ...,
    target_p: float | None = ...,
    control: Any = ...,
    allow_sorted: bool = ...,
    seed: int = ...,
    out: str | os.PathLike[str] | None = ...,
    store: str | os.PathLike[str] | None = ...,
    params: Any = ...,
    tokenizer: Any = ...,
    dtype: Any = ...,
    token_budget: int | None = ...,
    device: Any = ...,
    devices: Any = ...,
    shard_params: bool = ...,
    shard: tuple[int, int] | str,
    progress: bool = ...,
    command: str | None = ...,
) -> None: ...
def run_exchange(
    model: Any,
    data: Any,
    *,
    num_shards: int = 50,
    num_shuffles: int = 50,
    test: str = "combined",
    alpha: float = 0.05,
    separator: str = "\n\n",
    template: str | None = None,
    text_field: str | None = None,
    format: str | None = None,
    bos: str = "auto",
    max_length: int | None = None,
    stride: int | None = None,
    suffix: float = 1.0,
    stop: str = "none",
    target_p: float | None = None,
    control: Any = None,
    allow_sorted: bool = False,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | None = None,
    params: Any = None,
    tokenizer: Any = None,
    dtype: Any = None,
    token_budget: int | None = None,
    device: Any = None,
    devices: Any = None,
    shard_params: bool = False,
    shard: tuple[int, int] | str | None = None,
    progress: bool = True,
    command: str | None = None,
) -> Exchange | None:
    """Test whether a model prefers the published order of data sets to random orders of the same examples.

    Each data set is cut into contiguous shards. A shard is scored in its canonical order and in uniform shuffles, its
    examples joined by `separator`, and the log-probabilities go into `tdd.exchangeability`, or for a sequential run
    into `tdd.exchangeability_sequence`. Several data sets are decided on by Benjamini and Hochberg's procedure.

    Guarantee: for each data set P(p <= t) <= t for every t, if its published order is random (its examples are
    exchangeable) and the model does not depend on that order; finite-sample, but for test="t". The selection among
    several data sets has FDR <= alpha if their p-values are independent or positively dependent.

    Args:
      model: a checkpoint folder or hub id; or a `LanguageModel` with `params` and `tokenizer`; or the triple that
        `tdd.load` returns.
      data: one data set or several in their published order; see `tdd.exchange.data.load_sets`.
      num_shards: r, contiguous shards a data set, of two examples at least.
      num_shuffles: k, shuffles a shard; in a sequential run the most.
      test: "combined", "rank_sum", "exact", "t" or "permutation", see `tdd.exchangeability`; the one that decides. The
        others are reported beside it.
      alpha: level.
      separator: what stands between two examples; take what the training data is likely to have had. A special
        token that is written in it is tokenised as text, with a warning.
      template: how a row becomes an example: "Q: {question} A: {answer}", or "json" for the row as a line of JSON.
      text_field: field with the text, where there is no template.
      format: of the files, where their ending does not tell.
      bos: when a window begins with the token for the beginning of a sequence: "auto" as the tokenizer does it,
        "always", "never".
      max_length: longest window in tokens; by default the model's own limit.
      stride: tokens that each further window of a shard longer than the context adds. By default all but one, so that
        each token is computed once; less gives each token more context and costs more.
      suffix: share of each shard, at its end, that is permuted. What stands before is the same in all orders and is
        computed once; permuting less costs power. The orders remain a group, so the tests remain valid.
      stop: "none"; or a sequential rule, "e_process", "spending" or "besag_clifford", under which a run stops as soon
        as it is clear; the p-value stays valid.
      target_p: p-value at which a sequential run stops for evidence; alpha divided by the number of data sets unless
        given.
      control: a second model, known not to have seen the data sets, in any form that `model` takes but a bare
        LanguageModel. A small p-value under it says that the published order is not random. It gets as many
        shuffles as the model got, and 20 at least: where a sequential rule decided on their number, its p-value is
        approximate.
      allow_sorted: test data sets whose order is sorted, which by itself voids the guarantee.
      seed: of shuffles, of random relabellings and of the checks.
      out: folder for run.json, shards.csv and log_probs.npz; an interrupted run continues there and ends with the same
        numbers to the bit.
      store: folder of the score store, as in `tdd.score`; the folder `scoring` in `out` unless given. A run with the
        same orders takes from there what another has computed, and only if it computed the very same batches: the
        bits of a run do not depend on what is stored.
      params: parameters, where `model` is a LanguageModel.
      tokenizer: tokenizer, where `model` is a LanguageModel.
      dtype: of the parameters; None keeps them as stored.
      token_budget: tokens a batch and device; 2,048 on CPU and 16,384 elsewhere by default.
      device: as in `tdd.score`.
      devices: as in `tdd.score`.
      shard_params: as in `tdd.score`.
      shard: (i, n) or "i/n", from 0: compute the part i of n of the log-probabilities alone, into `out` (or `store`),
        decide nothing, and return None; see `tdd.score`. The same call without a shard decides. For stop="none": a
        sequential rule needs all log-probabilities so far before it knows whether to go on.
      progress: show a bar where standard error is a terminal.
      command: the command line to be written into run.json.

    Returns:
      `Exchange`; None with a shard.

    Raises:
      InputError: anything about model, data or options that cannot be used: too few examples, empty or equal ones, a
        sorted order, a context shorter than the examples, an `out` that holds another run.

    Cost: r (k + 1) forward passes a data set, each over the tokens of a shard; less where orders share tokens or a
    sequential rule stops.

    References: the sharded exchangeability test, algorithm 1.
    """
    start = time.perf_counter()
    arrays.check_seed(seed)
    num_shards = checks.check_count("num_shards", num_shards)
    num_shuffles = checks.check_count("num_shuffles", num_shuffles)
    arrays.check_choice(test, TESTS, "test")
    arrays.check_level(alpha)
    _check_stop(stop)
    checks.check_target(target_p, stop)
    layout_options: dict[str, Any] = {
        "separator": _check_separator(separator),
        "bos": _check_bos(bos),
        "max_length": max_length,
        "stride": stride,
    }
    suffix = _check_suffix(suffix)
    where = find_devices(device, devices, shard_params=shard_params)
    budget = default_budget(where.platform) if token_budget is None else check_budget(token_budget)
    place = pathlib.Path(out) / "scoring" if store is None and out is not None else store
    own = as_shard(shard, place, "out")
    check_not_in_step(own, spans=where.spans)
    _check_fixed_for_shard(stop, own)
    layout = Layout(**layout_options, budget=budget)

    loaded = load_sets(data, template=template, text_field=text_field, format=format)
    sets = [Shards.cut(one, num_shards=num_shards, suffix=suffix, seed=seed) for one in loaded]
    for one in loaded:
        _check_no_sorted_order(one.name, sortedness(one.examples), allow_sorted)
    inputs = {"data": [one.sha256 for one in loaded], "seed": seed, **versions()}
    if where.spans:
        check_alike({**inputs, "num_shards": num_shards})
    main = find_model("model", model, params, tokenizer, dtype, where)
    other = None if control is None else find_model("control", control, None, None, dtype, where)
    if other is not None:
        _check_control(other, sets, layout)
    options = {
        **layout_options,
        "num_shards": num_shards,
        "num_shuffles": num_shuffles,
        "test": test,
        "alpha": alpha,
        "template": template,
        "suffix": suffix,
        "stop": stop,
        "target_p": target_p,
        "token_budget": budget,
        "dtype": None if dtype is None else str(dtype),
        "platform": where.platform,
        "device_kind": where.devices[0].device_kind,
    }
    described = [None if one is None else _described(one, given) for one, given in ((main, model), (other, control))]
    identity = fingerprint(
        {"models": described, "data": [one.sha256 for one in loaded], "seed": seed, "options": options}
    )
    folder = None if out is None else pathlib.Path(out)
    if folder is not None:
        open_run_folder(folder, identity, f"test of the order of {', '.join(one.name for one in loaded)}")

    looked = [] if own is not None else [_looked_at(*pair, seed) for pair in zip(loaded, sets, strict=True)]
    target = alpha / len(sets) if target_p is None else target_p
    sequences = [_sequence(stop, num_shuffles, target, test, seed, number) for number in range(len(sets))]
    most = [num_shuffles] * len(sets)
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.default_device(where.home))
        kept = None if place is None else stack.enter_context(ScoreStore(place))
        models = {name: one["sha256"] for name, one in zip(("model", "control"), described, strict=True) if one}
        facts = {**options, **models, **inputs}
        if where.spans:
            check_alike(facts)
        log = None if place is None else ShardLog(place, facts, "exchange" if folder is None else folder.name)
        if log is not None and own is not None:
            log.begin(own)
        elif log is not None:
            log.warn()
        how: dict[str, Any] = {"store": kept, "shard": own, "read_or_compute": in_step if where.spans else through}
        progress = progress and where.leads
        calls = sum(len(one) for one in sets) * (num_shuffles + 1)
        advance = stack.enter_context(progress_bar("testing orders", calls, enabled=progress, unit="model calls"))
        passes = run_sets(main, where, sets, most, layout, sequences=sequences, advance=advance, **how)
        controls = None
        if other is not None:
            used = [max(one.log_probs.shape[1] - 1, min(num_shuffles, _CONTROL_SHUFFLES)) for one in passes]
            total = sum(len(one) * (k + 1) for one, k in zip(sets, used, strict=True))
            also = stack.enter_context(progress_bar("control model", total, enabled=progress, unit="model calls"))
            none = [None] * len(sets)
            controls = run_sets(other, where, sets, used, layout, sequences=none, advance=also, **how)
    if log is not None and own is None:
        log.forget()
    elif log is not None and own is not None:
        log.finish(own)
    if own is not None:
        return None
    findings = [
        _finding(one, None if controls is None else controls[i], test, num_shuffles, looked[i], seed, i)
        for i, one in enumerate(passes)
    ]
    run: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "exchange",
        "command": command,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "seed": seed,
        "model": described[0],
        "control": described[1],
        "options": options,
        "data": findings,
        "selection": _select(findings, alpha),
        "seconds": round(time.perf_counter() - start, 3),
    }
    for one in findings:
        one["warnings"] = words.data_warnings(one, run)
    run |= {"warnings": words.run_warnings(run), "open_points": words.open_points(run)}
    run["outcome"] = words.outcome(run)
    for warning in [*run["warnings"], *(text for one in findings for text in one["warnings"])]:
        _findings.warning("%s", warning)
    log_probs = {one.shards.data.name: (one.log_probs[:, 0], one.log_probs[:, 1:]) for one in passes}
    exchange = Exchange(plain(run), shard_table(passes), log_probs)
    if folder is not None and where.leads:
        exchange.save(folder)
    return exchange


def _check_control(control: Model, sets: Sequence[Shards], layout: Layout) -> None:
    """What the control cannot take is said before the model is run."""
    try:
        rows_of(control, sets, layout)
    except InputError as error:
        raise InputError(f"control: {error}") from error


def _described(model: Model, given: Any) -> dict[str, Any]:
    if isinstance(given, (str, os.PathLike)):
        return provenance_of(given)
    return provenance_of((model.lm, model.params, model.tokenizer))


def _looked_at(data: Any, shards: Shards, seed: int) -> dict[str, Any]:
    """What the order shows without a model."""
    structure = order_structure(data.examples, shards.permuted, seed=seed, fields=data.fields)
    return {
        "structure": {**plain(structure), "sorted": sortedness(data.examples)},
        "duplicates": plain(duplicates(data.examples, shards.bounds)),
    }


def _sequence(stop: str, horizon: int, target: float, test: str, seed: int, number: int) -> Sequential | None:
    if stop == "none":
        return None
    from tdd.kernels.sequential import default_looks

    return Sequential(stop, default_looks(horizon), target, test, _key(seed, number))


def _key(seed: int, number: int) -> jax.Array:
    """Of the random relabellings of one data set."""
    return jax.random.fold_in(jax.random.key(seed), number)


def _finding(
    one: SetPass, control: SetPass | None, test: str, num_shuffles: int, looked: dict[str, Any], seed: int, number: int
) -> dict[str, Any]:
    """Everything about one data set but whether it is selected, in plain values."""
    shards, key = one.shards, _key(seed, number)
    canonical, shuffled = one.log_probs[:, 0], one.log_probs[:, 1:]
    tests, results = tests_of(canonical, shuffled, TESTS if one.sequence is None else (test,), key)
    deciding = results.get(test)  # None where no shard could be compared
    sizes = [shards.size(shard) for shard in range(len(shards))]
    name, guarantee = test, GUARANTEES[test]
    p, log_p = (tests[test][field] for field in ("p_value", "log_p_value"))
    if one.sequence is not None:
        tests, name, guarantee = {}, one.sequence.rule, SEQUENTIAL_GUARANTEES[one.sequence.rule]
        last = one.sequence.result  # the tests for a fixed number are not valid where chance decided when to stop
        if last is not None:
            p, log_p, guarantee = last.p_value[-1], last.log_p_value[-1], last.guarantee
    return {
        "name": shards.data.name,
        "source": shards.data.source,
        "sha256": shards.data.sha256,
        "num_examples": len(shards.data),
        "num_shards": len(shards),
        "num_masked": len(shards) if deciding is None else int(deciding.num_masked),
        "examples_a_shard": [min(sizes), max(sizes)],
        "permuted_a_shard": [shards.num_free(len(shards) - 1), shards.num_free(0)],
        "num_tokens": int(one.rows.num_tokens.sum()),
        "max_windows": one.max_windows,
        "num_long_examples": one.rows.num_long,
        "num_shuffles": num_shuffles,
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
        **looked,
    }


def _control(control: SetPass, test: str, key: Any) -> dict[str, Any]:
    tests, _ = tests_of(control.log_probs[:, 0], control.log_probs[:, 1:], TESTS, key)
    return {"test": test, **{name: tests[test][name] for name in ("p_value", "log_p_value")}, "tests": tests}


def _select(findings: Sequence[dict[str, Any]], alpha: float) -> dict[str, Any]:
    """Benjamini and Hochberg's procedure over the data sets; writes each one's adjusted p-value and decision.

    Data sets whose order is in doubt do not take part: their small p-values would raise the level for the others.
    """
    p_values = np.array([one["p_value"] for one in findings], float)
    known = ~np.isnan(p_values) & ~np.array([in_doubt(one) for one in findings], bool)
    adjusted, reject = np.full(len(findings), math.nan), np.zeros(len(findings), bool)
    if known.any():
        decided = bh(p_values[known], alpha)
        adjusted[known], reject[known] = np.asarray(decided.adjusted), np.asarray(decided.reject)
    for one, value, chosen in zip(findings, adjusted, reject, strict=True):
        one["adjusted"], one["rejected"] = float(value), bool(chosen)
    return {"procedure": "bh", "alpha": alpha, "num_rejected": int(reject.sum())}


_STOPS = ("none", "e_process", "spending", "besag_clifford")


def _check_separator(separator: Any) -> str:
    """What stands between two examples."""
    if not isinstance(separator, str):
        raise InputError(f"separator must be a string, got {separator!r}")
    return separator


def _check_no_sorted_order(name: str, how: str | None, allowed: bool) -> None:
    """The published order must not be a sorted one, unless the caller insists."""
    if how is not None and not allowed:
        raise InputError(
            f"data set {name!r} is sorted ({how}): its order is no random one, and a model that never saw it may "
            "prefer sorted texts, so the test would prove nothing. Test a data set that was published in random order; "
            "or set allow_sorted=True (--allow-sorted) together with a negative control and read the result with that "
            "caveat"
        )


def _check_bos(value: Any) -> str:
    """When a window begins with the token for the beginning of a sequence."""
    if value not in ("auto", "always", "never"):
        raise InputError(f'bos must be "auto", "always" or "never", got {value!r}')
    return value


def _check_stop(value: Any) -> str:
    """The rule of a sequential run."""
    if value not in _STOPS:
        raise InputError(f"stop must be one of {', '.join(_STOPS)}, got {value!r}")
    return value


def _check_fixed_for_shard(stop: str, shard: Any) -> None:
    """Shards compute a number of shuffles that is known beforehand."""
    if shard is not None and stop != "none":
        raise InputError(
            f'shard={shard} and stop="{stop}" exclude each other: a sequential rule needs all log-probabilities so far '
            'to know whether to go on, and a shard has its own; use stop="none" and no target_p, or leave shard out'
        )


def _check_suffix(value: Any) -> float:
    """A share of each shard, above 0."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not 0 < value <= 1:
        raise InputError(f"suffix={value!r} must be a share of each shard's examples, above 0 and at most 1")
    return float(value)
