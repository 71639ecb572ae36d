"""The report of a test of canonical order: p-values, their cost, what spoils them and what is left open."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.exchange.summary import NOT_RANDOM, in_doubt
from tdd.report.sections import (
    Column,
    Facts,
    Figure,
    Help,
    Points,
    Report,
    Row,
    Table,
    capital,
    caveats,
    drawn,
    in_words,
    to_repeat,
)
from tdd.runs.display import format_p_value, is_known, level_in_words

_BOS = {"auto": "as the tokenizer has it", "always": "always", "never": "never"}
_STOPPED = {
    "evidence": "stopped when the evidence sufficed",
    "futility": "stopped when shuffles of the whole data set had beaten the published order too often",
    "complete": "went to the end",
}
_TERMS = Help(
    "Terms",
    (
        ("published order", "the order of the examples in the file, which is taken as the one in which they were "
         "published; also called canonical"),
        ("shard, shuffle", "examples that follow each other in that order; the same examples in a random order, with "
         "which the published order is compared"),
        ("p-value", "the probability of a result at least as extreme if the null hypothesis holds, which the test "
         "takes as true until the log-probabilities speak against it; not the probability that it holds"),
        ("level", "the error rate that was accepted beforehand"),
        ("exchangeable", "any order would have been equally likely, as after shuffling"),
    ),
    folded=True,
)  # fmt: skip


_OF_SEVERAL = (
        ("adjusted p-value", "the smallest level at which Benjamini and Hochberg's procedure, which decides on several "
         "data sets at once, would list the data set, had it been fixed beforehand; the level is the largest fraction "
         "of the list that may be wrong on average"),
)  # fmt: skip
_JOINT = ("the p-values of the data sets are independent or positively dependent",)
_TESTS = {
    "combined": "the smaller p-value of rank_sum and exact, doubled",
    "rank_sum": "how many of its shuffles each shard beats, summed",
    "exact": "the log-probability, summed over the shards",
    "t": "the mean gain of the shards, if they are many",
    "permutation": "the whole data set and its shuffles",
}


def exchange_report(
    run: Mapping[str, Any], shards: Mapping[str, np.ndarray] | None = None, *, shard_table: bool = False
) -> Report:
    """The report of a run from run.json and, for its picture and the table of shards, from shards.csv."""
    data, alpha = run["data"], run["selection"]["alpha"]
    warnings = [*run["warnings"], *(text for entry in data for text in entry["warnings"])]
    assumptions = [point for entry in data for point in entry["guarantee"]["assumes"]]
    assumptions += _JOINT if len(data) > 1 else ()
    stands = not all(in_doubt(entry) or not is_known(entry["p_value"]) for entry in data)
    sections = caveats(assumptions, run["open_points"], capital(warnings), _how_to_read(run, stands))
    if len(data) == 1:
        sections.append(_facts(data[0], run))
        sections += [*_test_table(data[0], alpha), *_look_table(data[0])] if stands else []
    else:
        sections += [_overview(data, alpha), _settings(run)]
    if shards is not None:
        several = (
            "The p-value of each data set, and Benjamini and Hochberg's line: the smallest p-values are rejected, down "
            "to the last one that is not beyond it."
        )
        shown = several if len(data) > 1 else "How the published order compares with its shuffles, shard by shard."
        sections += [Figure("The evidence", shown, drawn("exchange_plots", "draw", run, shards))] if stands else []
        sections += [_shard_table(shards, entry["name"]) for entry in data] if shard_table else []
    sections.append(dataclasses.replace(_TERMS, rows=(*_TERMS.rows, *(_OF_SEVERAL if len(data) > 1 else ()))))
    return Report(f"Test of published order: {run['model']['name']}", run["outcome"], tuple(sections), stands)


def _how_to_read(run: Mapping[str, Any], stands: bool) -> list[str]:
    """A few lines, by what the run says."""
    control = "the control, a second model that was given as one that cannot have seen the data,"
    controlled = f", or where {control} depends on it too" if run["control"] else ""
    compared = [
        f"{'The' if len(run['data']) == 1 else 'Each'} data set was cut into shards of successive examples. How likely "
        "the model finds each shard in its published order was compared with how likely it finds the same examples in "
        "random orders.",
        "If the published order is random, a model that was not trained on it has no reason to prefer it.",
        "A verdict is withheld where the published order shows structure without the model: neighbours that are alike, "
        f"or trends of length, alphabet, numbers or fields{controlled}. At most {level_in_words(NOT_RANDOM)} of random "
        "orders show so much structure.",
    ]
    if stands:
        return ["The text below the title is the verdict. It holds only if the assumptions below hold.", *compared]
    return [
        "No verdict is given, for the reason that the warnings name.",
        *compared,
        "This says nothing about whether the model was trained on the data.",
        "The assumptions below are those that a verdict would need.",
    ]


def log_probs_report(result: Mapping[str, Any], source: str) -> Report:
    """The report of what `tdd.exchange.result.order_of_log_probs` returns of a file."""
    level = level_in_words(result["alpha"])
    names = ("shards", "shuffles", f"p-value ({result['test']})", "adjusted", f"at level {level}")
    rows = []
    for entry in result["data"]:
        verdict = "no evidence" if is_known(entry["p_value"]) else "no p-value"
        sizes = (f"{entry['num_shards']:,}", f"{entry['num_shuffles']:,}")
        p_values = (format_p_value(entry["p_value"]), format_p_value(entry["adjusted"], level=result["alpha"]))
        rows.append(Row((entry["name"], *sizes, *p_values, "evidence" if entry["rejected"] else verdict)))
    guarantee, rejected = result["guarantee"], sum(entry["rejected"] for entry in result["data"])
    tested = sum(is_known(entry["p_value"]) for entry in result["data"])
    of = f"{tested} data set{'' if tested == 1 else 's'}"
    some = f"{rejected} of {of} depend"
    among = some if tested > 1 else "the data set depend" if len(rows) == 1 else "the only one with a p-value depend"
    bounded = (
        "the expected fraction of data sets without such a dependence among them"
        if len(rows) > 1
        else "the probability of such a result, of log-probabilities that do not depend on it,"
    )
    without = len(rows) - tested
    withheld = f" No verdict is given on {without} of {len(rows)} data sets, which have no p-value." if without else ""
    verdict = (
        "No verdict: no data set has a p-value."
        if not tested
        else f"Evidence at level {level} that the log-probabilities of {among} on the published "
        f"order. If the assumptions hold, {bounded} is at most {level}.{withheld}"
        if rejected
        else f"No dependence on the published order was found in {of} at level {level}. That does not show absence "
        f"from the training data.{withheld}"
    )
    sections = (
        Table("Data sets", (Column("data set"), *(Column(name, number=True) for name in names)), tuple(rows)),
        Facts("Guarantee", (("holds", in_words(guarantee)),)),
        Points("Assumptions of the guarantee", capital([*guarantee["assumes"], *(_JOINT if len(rows) > 1 else ())])),
        Points(
            "Not examined",
            ("Whether the published order of the texts looks random.", "Whether the number of shuffles was fixed."),
        ),
    )
    return Report(f"Test of published order: {source}", verdict, sections)


def _facts(entry: Mapping[str, Any], run: Mapping[str, Any]) -> Facts:
    """Everything about a single data set."""
    guarantee, doubt = entry["guarantee"], "none: a check speaks against the assumptions" if in_doubt(entry) else ""
    low, high = entry["examples_a_shard"]
    rows = [
        ("null hypothesis", "the model does not depend on the order in which the examples were published"),
        (
            "p-value",
            format_p_value(entry["p_value"], entry["log_p_value"], run["selection"]["alpha"])
            + (" (not valid: a check failed)" if doubt else ""),
        ),
        ("decision", doubt or _decision(entry, run["selection"]["alpha"])),
        ("test", _rule(run["options"])),
        ("guarantee", doubt or in_words(guarantee)),
        ("data set", f"{entry['num_examples']:,} examples, {entry['num_tokens']:,} tokens"),
        ("shards", f"{entry['num_shards']} of {low if low == high else f'{low} to {high}'} examples" + _masked(entry)),
        ("shuffles of each shard", _shuffles(entry)),
        ("model calls", _calls(entry)),
    ]
    if entry["max_windows"] > 1:
        rows.append(
            ("context", f"shards are longer than the model's context: up to {entry['max_windows']} windows each")
        )
    rows.append(("check without the model", _structure(entry)))
    rows.append(("duplicates", _copies(entry["duplicates"])))
    if entry["control"] is not None:
        rows.append(("control", f"{run['control']['name']}: p = {_control(entry)}"))
    rows += [(name, value) for name, value in _setting_rows(run) if name not in ("test", "shards")]
    rows.insert(-1, ("time", f"{run['seconds']:,.1f} s"))
    rows.insert(-1, ("input", f"{entry['source']} (contents {entry['sha256'][:12]})"))
    return Facts("What was tested", tuple(rows))


def _decision(entry: Mapping[str, Any], alpha: float) -> str:
    if not is_known(entry["p_value"]):
        return "none: no p-value"
    return f"the null hypothesis is {'' if entry['rejected'] else 'not '}rejected at level {level_in_words(alpha)}"


def _settings(run: Mapping[str, Any]) -> Facts:
    rows, used = _setting_rows(run), {_shuffles(entry) for entry in run["data"]}
    if len(used) == 1:
        rows.insert(2, ("shuffles of each shard", used.pop()))
    calls = sum(entry["calls"]["sequences"] for entry in run["data"])
    rows[-1:-1] = [("model calls", f"{calls:,} sequences"), ("time", f"{run['seconds']:,.1f} s")]
    return Facts("Settings", tuple(rows))


def _setting_rows(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    options, model = run["options"], run["model"]
    rows = [("test", _rule(options)), ("shards", str(options["num_shards"]))]
    rows.append(("between examples", repr(options["separator"])))
    if options.get("template"):
        rows.append(("template", repr(options["template"])))
    if options.get("suffix", 1) != 1:
        rows.append(("permuted", f"the last {options['suffix']:.0%} of each shard"))
    rows.append(("beginning of sequence", _BOS.get(options["bos"], str(options["bos"]))))
    rows.append(("model", f"{model['name']} (contents {model['sha256'][:12]})"))
    if run["control"] is not None:
        rows.append(("control model", f"{run['control']['name']} (contents {run['control']['sha256'][:12]})"))
    return [*rows, ("to repeat it", to_repeat(run, "tdd.run_exchange"))]


def _rule(options: Mapping[str, Any]) -> str:
    if options.get("stop", "none") == "none":
        return options["test"]
    target = f", until p <= {options['target_p']:g}" if options.get("target_p") else ""
    base = f" of {options['test']}" if options["stop"] == "spending" else ""
    return f"{options['stop']}{base}, a sequential test{target}"


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
    seen, compared = ("not random", "at most") if structure["p_value"] <= NOT_RANDOM else ("no structure seen", "above")
    shown = format_p_value(structure["p_value"], level=NOT_RANDOM)
    p = f"p = {shown}, {compared} the level of {level_in_words(NOT_RANDOM)}"
    return f"{seen} ({p}; one by one: {listed})"


def _copies(copies: Mapping[str, Any]) -> str:
    if copies["share"] == 0:
        return "none"
    repeated = copies["num_examples"] - copies["num_distinct"]
    return (
        f"{repeated} exact repetitions, {copies['num_within_shards']} of them within a shard; "
        f"{copies['num_near']} examples with a near duplicate"
    )


def _overview(data: Sequence[Mapping[str, Any]], alpha: float) -> Table:
    """Many data sets, one a row, the smallest p-value first."""
    control = any(entry["control"] is not None for entry in data)
    apart = len({(entry["shuffles_used"], entry["num_shuffles"]) for entry in data}) > 1  # else among the settings
    names = ["examples", *(["shuffles", "calls"] if apart else []), "p-value", "adjusted"]
    names += [*(["control"] if control else []), "order check"]
    rows = []
    for entry in sorted(data, key=lambda entry: entry["log_p_value"] if is_known(entry["log_p_value"]) else math.inf):
        order = entry["structure"]["p_value"]
        cells = (
            entry["name"],
            f"{entry['num_examples']:,}",
            *([str(entry["shuffles_used"]), f"{entry['calls']['sequences']:,}"] if apart else []),
            format_p_value(entry["p_value"], entry["log_p_value"]),
            "-" if in_doubt(entry) else format_p_value(entry["adjusted"], level=alpha),
            *([_control(entry)] if control else []),
            format_p_value(order),
            _verdict(entry),
        )
        rows.append(Row(cells, "warning" if in_doubt(entry) else "strong" if entry["rejected"] else "plain"))
    return Table(
        f"Data sets (Benjamini and Hochberg at level {level_in_words(alpha)})",
        (Column("data set"), *(Column(name, number=True) for name in names), Column("verdict")),
        tuple(rows),
        "Order check: p-value of structure in the published order, without the model."
        + (" Control: p-value of the order under the control model." if control else ""),
    )


def _verdict(entry: Mapping[str, Any]) -> str:
    if in_doubt(entry):
        return "withheld"
    if not is_known(entry["p_value"]):
        return "no p-value"
    return "evidence" if entry["rejected"] else "no evidence"


def _test_table(entry: Mapping[str, Any], alpha: float) -> list[Table]:
    """Every test of one data set; none of a sequential run."""
    if not entry["tests"]:
        return []
    rows = []
    for name, test in entry["tests"].items():
        floor = test["log_smallest_p"]
        least = "0" if not is_known(floor) or floor == -math.inf else format_p_value(math.exp(floor), floor)
        cells = (name, _TESTS[name], format_p_value(test["p_value"], test["log_p_value"]), least)
        rows.append(Row(cells, "strong" if name == entry["test"] else "plain"))
    columns = (
        Column("test"),
        Column("compares"),
        *(Column(name, number=True) for name in ("p-value", "smallest possible")),
    )
    note = (
        f"The verdict is that of {entry['test']}, which must have been chosen beforehand: the smallest of these "
        f"p-values does not keep the level {level_in_words(alpha)}."
    )
    return [Table("The tests side by side", columns, tuple(rows), note)]


def _look_table(entry: Mapping[str, Any]) -> list[Table]:
    """The path of a sequential run; nothing of another."""
    if not entry["sequential"]:
        return []
    looks = entry["sequential"]["looks"]
    e_values = any(is_known(look["log_e_value"]) for look in looks)
    names = ("shuffles", "model calls", "p-value", *(["log10 e-value"] if e_values else []))
    rows = []
    for look in looks:
        cells = [f"{look['shuffles']}", f"{look['calls']:,}", format_p_value(look["p_value"])]
        cells += [f"{look['log_e_value'] / math.log(10):.2f}"] if e_values else []
        rows.append(Row(tuple(cells)))
    return [Table("Look by look", tuple(Column(name, number=True) for name in names), tuple(rows))]


def _shard_table(shards: Mapping[str, np.ndarray], name: str) -> Table:
    """The contribution of each shard of one data set."""
    rows = []
    for i in np.flatnonzero(shards["data"] == name):
        first, count = int(shards["first_example"][i]), int(shards["num_examples"][i])
        spread, difference = float(shards["sd_shuffled"][i]), float(shards["statistic"][i])
        rank = int(shards["rank"][i])
        cells = (
            str(int(shards["shard"][i]) + 1),
            f"{first + 1}-{first + count}",
            f"{int(shards['num_tokens'][i]):,}",
            f"{shards['canonical'][i]:.2f}",
            f"{shards['mean_shuffled'][i]:.2f}",
            f"{difference:+.3f}",
            f"{difference / spread:+.2f}" if spread > 0 else "-",
            "left out" if rank < 0 else f"{rank}/{int(shards['num_shuffles'][i])}",
        )
        rows.append(Row(cells))
    names = ("shard", "examples", "tokens", "published", "shuffles", "gain", "in sd", "beats")
    return Table(
        f"Shards of {name}",
        tuple(Column(column, number=True) for column in names),
        tuple(rows),
        "Log-probabilities in nats: of the published order, the mean of the shuffles, what it gains over them, also "
        "in their standard deviations; how many of them it beats.",
    )


def _control(entry: Mapping[str, Any]) -> str:
    """The p-value of the control."""
    control = entry["control"]
    return "-" if control is None else format_p_value(control["p_value"], control["log_p_value"])
