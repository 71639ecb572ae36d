"""The terminal report of a test of canonical order: p-values, what they cost, what spoils them or is left open."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from tdd.exchange.words import NOT_RANDOM, is_known, p_words
from tdd.report.exchange_tables import control_words, look_table, overview, pairs, points, shard_table, test_table
from tdd.report.terminal import plain_text

__all__ = ["print_report", "render"]

_BOS = {"auto": "as the tokenizer has it", "always": "always", "never": "never"}
_STOPPED = {
    "evidence": "stopped early: the evidence sufficed",
    "futility": "stopped early: shuffles of the whole data set beat the published order too often",
    "complete": "went to the end",
}


def print_report(
    run: Mapping[str, Any], shards: Mapping[str, np.ndarray] | None = None, *, console: Console | None = None
) -> None:
    """Print the report of a run.

    Args:
      run: content of run.json.
      shards: columns of shards.csv; the table of shards is printed where it is given.
      console: where to; standard output by default.
    """
    (console or Console()).print(render(run, shards))


def render(run: Mapping[str, Any], shards: Mapping[str, np.ndarray] | None = None) -> RenderableType:
    """The report as a rich renderable."""
    data, alpha = run["data"], run["selection"]["alpha"]
    parts: list[RenderableType] = [
        plain_text(f"Test of canonical order: {run['model']['name']}", "bold underline"),
        Padding(plain_text(run["outcome"], "bold"), (1, 0)),
    ]
    if len(data) == 1:
        parts += [_facts(data[0], run), *test_table(data[0], alpha), *look_table(data[0])]
    else:
        parts += [overview(data, alpha), _settings(run)]
    if shards is not None:
        parts += [shard_table(shards, one["name"]) for one in data]
    assumed = dict.fromkeys(point for one in data for point in one["guarantee"]["assumes"])
    parts.append(points("Assumptions of the guarantee", [*assumed], "·"))
    warnings = [*run["warnings"], *(text for one in data for text in one["warnings"])]
    if warnings:
        parts.append(points("Warnings", warnings, "!", "yellow"))
    parts.append(points("What this run does not establish", run["open_points"], "·"))
    return Group(*parts)


def _facts(one: Mapping[str, Any], run: Mapping[str, Any]) -> Table:
    """Everything about a single data set."""
    alpha, guarantee = run["selection"]["alpha"], one["guarantee"]
    low, high = one["examples_a_shard"]
    rows = [
        ("null hypothesis", "the model does not depend on the order in which the examples were published"),
        ("p-value", p_words(one["p_value"], one["log_p_value"]) + _tiny(one)),
        ("level", f"{alpha:g}: " + ("rejected" if one["rejected"] else "not rejected")),
        ("test", _rule(run["options"])),
        ("guarantee", f"{guarantee['controls']}, {guarantee['kind']} ({guarantee['source']})"),
        ("data set", f"{one['num_examples']:,} examples, {one['num_tokens']:,} tokens"),
        ("shards", f"{one['num_shards']} of {low if low == high else f'{low} to {high}'} examples" + _masked(one)),
        ("shuffles a shard", _shuffles(one)),
        ("model calls", _calls(one)),
    ]
    if one["max_windows"] > 1:
        rows.append(("context", f"shards are longer than the model's context: up to {one['max_windows']} windows each"))
    rows.append(("order without the model", _structure(one)))
    rows.append(("duplicates", _copies(one["duplicates"])))
    if one["control"] is not None:
        rows.append(("negative control", f"{run['control']['name']}: p = {control_words(one)}"))
    rows += [(name, value) for name, value in _setting_rows(run) if name not in ("test", "shards")]
    rows.append(("time", f"{run['seconds']:,.1f} s"))
    rows.append(("input", f"{one['source']} (sha256 {one['sha256'][:12]})"))
    return pairs("What was tested", rows)


def _settings(run: Mapping[str, Any]) -> RenderableType:
    rows, used = _setting_rows(run), {_shuffles(one) for one in run["data"]}
    if len(used) == 1:
        rows.insert(2, ("shuffles a shard", used.pop()))
    calls = sum(one["calls"]["sequences"] for one in run["data"])
    rows += [("model calls", f"{calls:,} sequences"), ("time", f"{run['seconds']:,.1f} s")]
    return Padding(pairs("Settings", rows), (1, 0, 0, 0))


def _setting_rows(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    options, model = run["options"], run["model"]
    rows = [("test", _rule(options)), ("shards", str(options["num_shards"]))]
    rows.append(("between examples", repr(options["separator"])))
    if options.get("template"):
        rows.append(("template", repr(options["template"])))
    if options.get("suffix", 1) != 1:
        rows.append(("permuted", f"the last {options['suffix']:.0%} of each shard"))
    rows.append(("beginning of sequence", _BOS.get(options["bos"], str(options["bos"]))))
    rows.append(("model", f"{model['name']} (sha256 {model['sha256'][:12]})"))
    if run["control"] is not None:
        rows.append(("control model", f"{run['control']['name']} (sha256 {run['control']['sha256'][:12]})"))
    return rows


def _rule(options: Mapping[str, Any]) -> str:
    if options.get("stop", "none") == "none":
        return options["test"]
    target = f", until p <= {options['target_p']:g}" if options.get("target_p") else ""
    base = f" of {options['test']}" if options["stop"] == "spending" else ""
    return f"{options['stop']}{base}, a sequential test{target}"


def _tiny(one: Mapping[str, Any]) -> str:
    log = one["log_p_value"]
    return f" (log10 p = {log / math.log(10):.1f})" if is_known(log) and math.log(1e-300) < log < math.log(1e-3) else ""


def _masked(one: Mapping[str, Any]) -> str:
    masked = one.get("num_masked", 0)
    return f", {masked} of them left out (NaN)" if masked else ""


def _shuffles(one: Mapping[str, Any]) -> str:
    if not one["sequential"]:
        return str(one["shuffles_used"])
    return f"{one['shuffles_used']} of at most {one['num_shuffles']}; {_STOPPED[one['sequential']['stopped']]}"


def _calls(one: Mapping[str, Any]) -> str:
    """What was computed, beside what all orders without sharing would have taken."""
    calls, whole = one["calls"], one["num_shards"] * (one["num_shuffles"] + 1)
    words = f"{calls['sequences']:,} sequences"
    if calls["sequences"] < whole:
        words += f" of {whole:,}"
        if whole > 1.1 * calls["sequences"]:
            words += f" ({whole / max(1, calls['sequences']):.1f} times fewer)"
    words += f", {calls['tokens']:,} tokens"
    if calls["tokens"] < calls["tokens_asked"]:
        words += f" of {calls['tokens_asked']:,} (the rest is shared)"
    return words


def _structure(one: Mapping[str, Any]) -> str:
    structure = one["structure"]
    if not structure["tests"]:
        return "nothing to compare"
    listed = ", ".join(f"{test['name']} {p_words(test['p_value'])}" for test in structure["tests"])
    verdict = "not random" if structure["p_value"] <= NOT_RANDOM else "no structure seen"
    return f"{verdict} (p = {p_words(structure['p_value'])}; one by one: {listed})"


def _copies(copies: Mapping[str, Any]) -> str:
    if copies["share"] == 0:
        return "none"
    repeated = copies["num_examples"] - copies["num_distinct"]
    return (
        f"{repeated} exact repetitions, {copies['num_within_shards']} of them within a shard; "
        f"{copies['num_near']} examples with a near duplicate"
    )
