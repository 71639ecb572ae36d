"""The tables of the power grid for people."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.reproductions.record import Row

__all__ = ["items_table", "sets_table"]


def items_table(rows: Sequence[Row]) -> tuple[Row, ...]:
    """A row a model and number of epochs, a column a number of copies: power, and FDP beside it."""
    return tuple(
        {
            **_named(mine),
            **{
                heading: words
                for row in mine
                if row["question"] == "items"
                for heading, words in (
                    (f"power, {_copies(row['copies'])}", f"{row['power']:.3f} ± {row['power_se']:.3f}"),
                    (f"FDP, {_copies(row['copies'])}", f"{row['fdp']:.3f} ± {row['fdp_se']:.3f}"),
                )
            },
        }
        for mine in _by_model(rows)
    )


def sets_table(rows: Sequence[Row]) -> tuple[Row, ...]:
    """A row a model and number of epochs, a column a number of copies: median p-value, and how many are at most .05."""
    table = []
    for mine in _by_model(rows):
        line = _named(mine)
        for count in sorted({row["copies"] for row in mine if row["question"] == "data set"}):
            found = [row["p_value"] for row in mine if row["question"] == "data set" and row["copies"] == count]
            seen = sum(p <= 0.05 for p in found)
            line[f"p, {_copies(count)}"] = f"{np.median(found):.2g} ({seen} of {len(found)})"
        table.append(line)
    return tuple(table)


def _by_model(rows: Sequence[Row]) -> list[list[Row]]:
    keys = dict.fromkeys((row["width"], row["epochs"]) for row in rows)
    return [[row for row in rows if (row["width"], row["epochs"]) == key] for key in keys]


def _named(mine: Sequence[Row]) -> Row:
    first = mine[0]
    return {
        "width": first["width"],
        "parameters": first["parameters"],
        "epochs": first["epochs"],
        "training loss": round(first["training_loss"], 3),
    }


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count} copies"
