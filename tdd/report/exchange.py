"""The terminal report of a test of canonical order: p-values, what they cost, what spoils them or is left open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tdd.exchange.summary import NOT_RANDOM, format_p_value, is_known
from tdd.report.terminal import plain_text

__all__ = ["pairs", "points", "print_log_probs", "print_report", "render"]

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
      run: Content of run.json.
      shards: Columns of shards.csv, to print the table of shards.
      console: Where to print; standard output by default.
    """
    (console or Console()).print(render(run, shards))


def print_log_probs(result: Mapping[str, Any], source: str, *, console: Console) -> None:
    """Print the test of log-probabilities that exist already.

    Args:
      result: What `tdd.exchange.precomputed.order_of_log_probs` returns.
      source: File that they were read from.
      console: Where to print.
    """
    table = Table(title=f"Test of canonical order: {source}", title_justify="left")
    p_value, level = f"p-value ({result['test']})", f"at {result['alpha']:g}"
    for name in ("data set", "shards", "shuffles", p_value, "adjusted", level):
        table.add_column(name, justify="left" if name == "data set" else "right")
    for entry in result["data"]:
        verdict = "nothing found" if is_known(entry["p_value"]) else "no p-value"
        table.add_row(
            plain_text(entry["name"]),
            f"{entry['num_shards']:,}",
            f"{entry['num_shuffles']:,}",
            format_p_value(entry["p_value"]),
            format_p_value(entry["adjusted"]),
            "depends on the order" if entry["rejected"] else verdict,
        )
    guarantee = result["guarantee"]
    console.print(table)
    console.print(f"{guarantee['controls']}, {guarantee['kind']} ({guarantee['source']})", markup=False)
    console.print(points("Assumptions of the guarantee", guarantee["assumes"], "·"))
    unseen = ["The texts: whether their published order looks random.", "Whether the number of shuffles was fixed."]
    console.print(points("Not looked at", unseen, "·"))


def render(run: Mapping[str, Any], shards: Mapping[str, np.ndarray] | None = None) -> RenderableType:
    """The report as a rich renderable."""
    data, alpha = run["data"], run["selection"]["alpha"]
    parts: list[RenderableType] = [
        plain_text(f"Test of canonical order: {run['model']['name']}", "bold underline"),
        Padding(plain_text(run["outcome"], "bold"), (1, 0)),
    ]
    if len(data) == 1:
        parts += [_facts(data[0], run), *_test_table(data[0], alpha), *_look_table(data[0])]
    else:
        parts += [_overview(data, alpha), _settings(run)]
    if shards is not None:
        parts += [_shard_table(shards, entry["name"]) for entry in data]
    assumed = dict.fromkeys(point for entry in data for point in entry["guarantee"]["assumes"])
    parts.append(points("Assumptions of the guarantee", [*assumed], "·"))
    warnings = [*run["warnings"], *(text for entry in data for text in entry["warnings"])]
    if warnings:
        parts.append(points("Warnings", warnings, "!", "yellow"))
    parts.append(points("What this run does not establish", run["open_points"], "·"))
    return Group(*parts)


def _facts(entry: Mapping[str, Any], run: Mapping[str, Any]) -> Table:
    """Everything about a single data set."""
    alpha, guarantee = run["selection"]["alpha"], entry["guarantee"]
    low, high = entry["examples_a_shard"]
    rows = [
        ("null hypothesis", "the model does not depend on the order in which the examples were published"),
        ("p-value", format_p_value(entry["p_value"], entry["log_p_value"]) + _tiny(entry)),
        ("level", f"{alpha:g}: " + ("rejected" if entry["rejected"] else "not rejected")),
        ("test", _rule(run["options"])),
        ("guarantee", f"{guarantee['controls']}, {guarantee['kind']} ({guarantee['source']})"),
        ("data set", f"{entry['num_examples']:,} examples, {entry['num_tokens']:,} tokens"),
        ("shards", f"{entry['num_shards']} of {low if low == high else f'{low} to {high}'} examples" + _masked(entry)),
        ("shuffles a shard", _shuffles(entry)),
        ("model calls", _calls(entry)),
    ]
    if entry["max_windows"] > 1:
        rows.append(
            ("context", f"shards are longer than the model's context: up to {entry['max_windows']} windows each")
        )
    rows.append(("order without the model", _structure(entry)))
    rows.append(("duplicates", _copies(entry["duplicates"])))
    if entry["control"] is not None:
        rows.append(("negative control", f"{run['control']['name']}: p = {_control(entry)}"))
    rows += [(name, value) for name, value in _setting_rows(run) if name not in ("test", "shards")]
    rows.append(("time", f"{run['seconds']:,.1f} s"))
    rows.append(("input", f"{entry['source']} (sha256 {entry['sha256'][:12]})"))
    return pairs("What was tested", rows)


def _settings(run: Mapping[str, Any]) -> RenderableType:
    rows, used = _setting_rows(run), {_shuffles(entry) for entry in run["data"]}
    if len(used) == 1:
        rows.insert(2, ("shuffles a shard", used.pop()))
    calls = sum(entry["calls"]["sequences"] for entry in run["data"])
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


def _tiny(entry: Mapping[str, Any]) -> str:
    log = entry["log_p_value"]
    return f" (log10 p = {log / math.log(10):.1f})" if is_known(log) and math.log(1e-300) < log < math.log(1e-3) else ""


def _masked(entry: Mapping[str, Any]) -> str:
    masked = entry.get("num_masked", 0)
    return f", {masked} of them left out (NaN)" if masked else ""


def _shuffles(entry: Mapping[str, Any]) -> str:
    if not entry["sequential"]:
        return str(entry["shuffles_used"])
    return f"{entry['shuffles_used']} of at most {entry['num_shuffles']}; {_STOPPED[entry['sequential']['stopped']]}"


def _calls(entry: Mapping[str, Any]) -> str:
    """The cost, beside that of all orders without shared computations."""
    calls, whole = entry["calls"], entry["num_shards"] * (entry["num_shuffles"] + 1)
    words = f"{calls['sequences']:,} sequences"
    if calls["sequences"] < whole:
        words += f" of {whole:,}"
        if whole > 1.1 * calls["sequences"]:
            words += f" ({whole / max(1, calls['sequences']):.1f} times fewer)"
    words += f", {calls['tokens']:,} tokens"
    if calls["tokens"] < calls["tokens_asked"]:
        words += f" of {calls['tokens_asked']:,} (the rest is shared)"
    return words


def _structure(entry: Mapping[str, Any]) -> str:
    structure = entry["structure"]
    if not structure["tests"]:
        return "nothing to compare"
    listed = ", ".join(f"{test['name']} {format_p_value(test['p_value'])}" for test in structure["tests"])
    verdict = "not random" if structure["p_value"] <= NOT_RANDOM else "no structure seen"
    return f"{verdict} (p = {format_p_value(structure['p_value'])}; one by one: {listed})"


def _copies(copies: Mapping[str, Any]) -> str:
    if copies["share"] == 0:
        return "none"
    repeated = copies["num_examples"] - copies["num_distinct"]
    return (
        f"{repeated} exact repetitions, {copies['num_within_shards']} of them within a shard; "
        f"{copies['num_near']} examples with a near duplicate"
    )


def _overview(data: Sequence[Mapping[str, Any]], alpha: float) -> RenderableType:
    """Many data sets, one a row, the smallest p-value first."""
    table = Table(title=f"Data sets (Benjamini and Hochberg at {alpha:g})", title_justify="left")
    table.add_column("data set", overflow="fold")
    control = any(entry["control"] is not None for entry in data)
    apart = len({(entry["shuffles_used"], entry["num_shuffles"]) for entry in data}) > 1  # else among the settings
    names = ["examples", *(["shuffles", "calls"] if apart else []), "p-value", "adjusted"]
    for column in (*names, *(["control"] if control else []), "order", "rejected"):
        table.add_column(column, justify="right", overflow="fold")
    for entry in sorted(data, key=lambda entry: entry["log_p_value"] if is_known(entry["log_p_value"]) else math.inf):
        order = entry["structure"]["p_value"]
        table.add_row(
            plain_text(entry["name"]),
            f"{entry['num_examples']:,}",
            *([str(entry["shuffles_used"]), f"{entry['calls']['sequences']:,}"] if apart else []),
            format_p_value(entry["p_value"], entry["log_p_value"]),
            format_p_value(entry["adjusted"]),
            *([_control(entry)] if control else []),
            Text(format_p_value(order), style="yellow" if order <= NOT_RANDOM else ""),
            Text("yes", style="bold") if entry["rejected"] else "",
        )
    return _noted(table, "order: p-value of the check for visible structure of the published order, without the model.")


def _test_table(entry: Mapping[str, Any], alpha: float) -> list[RenderableType]:
    """Every test of one data set; none of a sequential run."""
    if not entry["tests"]:
        return []
    table = Table(title="The tests side by side", title_justify="left")
    for column in ("test", "p-value", "smallest possible"):
        table.add_column(column, justify="left" if column == "test" else "right")
    for name, test in entry["tests"].items():
        floor = test["log_smallest_p"]
        least = "0" if not is_known(floor) or floor == -math.inf else format_p_value(math.exp(floor), floor)
        cells = (name, format_p_value(test["p_value"], test["log_p_value"]), least)
        table.add_row(*cells, style="bold" if name == entry["test"] else "")
    chosen = f"{entry['test']} was chosen beforehand and decides"
    return [_noted(table, f"{chosen}; to take the smallest of these would void the level {alpha:g}.")]


def _look_table(entry: Mapping[str, Any]) -> list[RenderableType]:
    """The path of a sequential run; nothing of another."""
    if not entry["sequential"]:
        return []
    table = Table(title="Look by look", title_justify="left")
    looks = entry["sequential"]["looks"]
    e_values = any(is_known(look["log_e_value"]) for look in looks)
    for column in ("shuffles", "model calls", "p-value", *(["log10 e-value"] if e_values else [])):
        table.add_column(column, justify="right")
    for look in looks:
        cells = [f"{look['shuffles']}", f"{look['calls']:,}", format_p_value(look["p_value"])]
        table.add_row(*cells, *([f"{look['log_e_value'] / math.log(10):.2f}"] if e_values else []))
    return [Padding(table, (1, 0, 0, 0))]


def _shard_table(shards: Mapping[str, np.ndarray], name: str) -> RenderableType:
    """The contribution of each shard of one data set."""
    table = Table(title=plain_text(f"Shards of {name}", "italic"), title_justify="left")
    for column in ("shard", "examples", "tokens", "canonical", "shuffles", "gain", "in sd", "beats"):
        table.add_column(column, justify="right")
    for i in np.flatnonzero(shards["data"] == name):
        first, count = int(shards["first_example"][i]), int(shards["num_examples"][i])
        spread, difference = float(shards["sd_shuffled"][i]), float(shards["statistic"][i])
        rank = int(shards["rank"][i])
        table.add_row(
            str(int(shards["shard"][i]) + 1),
            f"{first + 1}-{first + count}",
            f"{int(shards['num_tokens'][i]):,}",
            f"{shards['canonical'][i]:.2f}",
            f"{shards['mean_shuffled'][i]:.2f}",
            f"{difference:+.3f}",
            f"{difference / spread:+.2f}" if spread > 0 else "-",
            "left out" if rank < 0 else f"{rank}/{int(shards['num_shuffles'][i])}",
        )
    return _noted(
        table,
        "Log-probabilities in nats: of the canonical order, the mean of the shuffles, what it gains over them, also "
        "in their standard deviations; how many of them it beats.",
    )


def _control(entry: Mapping[str, Any]) -> str:
    """The p-value of the negative control."""
    control = entry["control"]
    return "-" if control is None else format_p_value(control["p_value"], control["log_p_value"])


def pairs(title: str, rows: Sequence[tuple[str, str]]) -> Table:
    """Names and what they stand for."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, plain_text(value))
    return table


def points(title: str, sentences: Sequence[str], mark: str, style: str = "") -> RenderableType:
    """Sentences below a title."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 1))
    table.add_column(no_wrap=True, style=style)
    table.add_column(overflow="fold", style=style)
    for point in sentences:
        table.add_row(mark, plain_text(point))
    return Padding(table, (1, 0, 0, 0))


def _noted(table: Table, note: str) -> RenderableType:
    return Padding(Group(table, Text(note, style="italic")), (1, 0, 0, 0))
