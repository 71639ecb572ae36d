"""A contaminated benchmark before and after cleaning: rankings, the contaminated model's rank, error and power."""

from __future__ import annotations

from benchmarks.reproductions.figures.offset_bars import dodged, handles, levels_at
from benchmarks.reproductions.record import Outcome, Row
from benchmarks.reproductions.td4eval import ALPHA, SHARES
from tdd.report.plots import sheet

__all__ = ["draw"]

_SHOWN = (
    "nothing removed",
    "loss, threshold",
    "min_k_plus_plus, threshold",
    "min_k_plus_plus alone",
    "TD4Eval, Cauchy (the paper)",
    "TD4Eval, pooled ranks, sum",
    "TD4Eval, pooled ranks, Cauchy",
)
_TRUTH = "truly clean items"


def draw(outcome: Outcome) -> sheet.Sheet:
    """Four panels over the share of contaminated items."""
    with sheet.style():
        drawn = sheet.sheet(
            outcome.title,
            _caption(outcome),
            rows=2,
            columns=2,
            legend={**handles((*_SHOWN, _TRUTH)), "level": sheet.level_line()},
            height=2.0,
            foot=0.5,
            share_x=False,
            share_y=False,
        )
        (srcc, rank), (error, power) = drawn.panels
        places = [f"{share:.0%}" for share in SHARES]
        rows = [row for row in outcome.rows if row["metric"] == "accuracy"]
        shown = {name: [_values(rows, name, share, "srcc") for share in SHARES] for name in _SHOWN}
        dodged(srcc, places, shown)
        srcc.set_title("SRCC with the ranking on truly clean items", loc="left", color=sheet.INK)
        srcc.set_ylabel("SRCC, ± 2 s.e.")
        ranks = {name: [_values(rows, name, share, "rank") for share in SHARES] for name in _SHOWN}
        ranks[_TRUTH] = [_values(rows, _SHOWN[0], share, "true_rank") for share in SHARES]
        dodged(rank, places, ranks)
        rank.invert_yaxis()
        rank.set_title("rank of the contaminated model, 1 = the best", loc="left", color=sheet.INK)
        rank.set_ylabel("rank, ± 2 s.e.")
        for axes, column, words in ((error, "fdp", "clean-FDR"), (power, "power", "power")):
            dodged(axes, places, {name: [_values(rows, name, share, column) for share in SHARES] for name in _SHOWN})
            axes.set_ylim(-0.03, None if column == "fdp" else 1.04)
            axes.set_ylabel(f"{words}, ± 2 s.e.")
            axes.set_xlabel("items in one model's training data")
        error.set_title("contaminated items among the selected", loc="left", color=sheet.INK)
        power.set_title("clean items that are selected", loc="left", color=sheet.INK)
        levels_at(error, [ALPHA] * len(SHARES))
    return drawn


def _values(rows: list[Row], rule: str, share: float, column: str) -> list[float]:
    """Of each random set of items; a set in which the rule never kept anything has no ranking."""
    values = (row[column] for row in rows if row["rule"] == rule and row["share"] == share)
    return [value for value in values if value is not None]


def _caption(outcome: Outcome) -> str:
    sizes = outcome.provenance["settings"]
    return (
        f"{len(sizes['stages'])} models ranked by accuracy on {sizes['items']} four-way items; model "
        f"{sizes['contaminated'] + 1}, counted from the least trained, was trained on a share of the items, "
        f"{sizes['sets']} random sets a share. 30% of the items validate, and their contaminated ones calibrate; "
        f"{sizes['splits']} random divisions. Rankings are those of divisions in which a rule keeps anything. At 5 and "
        f"10% the level is not at stake: fewer items are contaminated. Standard errors over sets. "
        f"Seed {outcome.provenance['seed']}."
    )
