"""The tables of a test of canonical order: data sets, tests, looks, shards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tdd.exchange.words import NOT_RANDOM, is_known, p_words
from tdd.report.terminal import plain_text

__all__ = ["control_words", "look_table", "overview", "pairs", "points", "shard_table", "test_table"]


def overview(data: Sequence[Mapping[str, Any]], alpha: float) -> RenderableType:
    """Many data sets, one a row, the smallest p-value first."""
    table = Table(title=f"Data sets (Benjamini and Hochberg at {alpha:g})", title_justify="left")
    table.add_column("data set", overflow="fold")
    control = any(one["control"] is not None for one in data)
    apart = len({(one["shuffles_used"], one["num_shuffles"]) for one in data}) > 1  # else among the settings
    names = ["examples", *(["shuffles", "calls"] if apart else []), "p-value", "adjusted"]
    for column in (*names, *(["control"] if control else []), "order", "rejected"):
        table.add_column(column, justify="right", overflow="fold")
    for one in sorted(data, key=lambda one: one["log_p_value"] if is_known(one["log_p_value"]) else math.inf):
        order = one["structure"]["p_value"]
        table.add_row(
            plain_text(one["name"]),
            f"{one['num_examples']:,}",
            *([str(one["shuffles_used"]), f"{one['calls']['sequences']:,}"] if apart else []),
            p_words(one["p_value"], one["log_p_value"]),
            p_words(one["adjusted"]),
            *([control_words(one)] if control else []),
            Text(p_words(order), style="yellow" if order <= NOT_RANDOM else ""),
            Text("yes", style="bold") if one["rejected"] else "",
        )
    return _noted(table, "order: p-value of the check for visible structure of the published order, without the model.")


def test_table(one: Mapping[str, Any], alpha: float) -> list[RenderableType]:
    """Every test of one data set; none of a sequential run."""
    if not one["tests"]:
        return []
    table = Table(title="The tests side by side", title_justify="left")
    for column in ("test", "p-value", "smallest possible"):
        table.add_column(column, justify="left" if column == "test" else "right")
    for name, found in one["tests"].items():
        floor = found["log_smallest_p"]
        least = "0" if not is_known(floor) or floor == -math.inf else p_words(math.exp(floor), floor)
        cells = (name, p_words(found["p_value"], found["log_p_value"]), least)
        table.add_row(*cells, style="bold" if name == one["test"] else "")
    chosen = f"{one['test']} was chosen beforehand and decides"
    return [_noted(table, f"{chosen}; to take the smallest of these would void the level {alpha:g}.")]


def look_table(one: Mapping[str, Any]) -> list[RenderableType]:
    """The path of a sequential run; nothing of another."""
    if not one["sequential"]:
        return []
    table = Table(title="Look by look", title_justify="left")
    looks = one["sequential"]["looks"]
    e_values = any(is_known(look["log_e_value"]) for look in looks)
    for column in ("shuffles", "model calls", "p-value", *(["log10 e-value"] if e_values else [])):
        table.add_column(column, justify="right")
    for look in looks:
        cells = [f"{look['shuffles']}", f"{look['calls']:,}", p_words(look["p_value"])]
        table.add_row(*cells, *([f"{look['log_e_value'] / math.log(10):.2f}"] if e_values else []))
    return [Padding(table, (1, 0, 0, 0))]


def shard_table(shards: Mapping[str, np.ndarray], name: str) -> RenderableType:
    """What each shard of one data set contributes."""
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


def control_words(one: Mapping[str, Any]) -> str:
    """The p-value of the negative control."""
    control = one["control"]
    return "-" if control is None else p_words(control["p_value"], control["log_p_value"])


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
