"""Contamination rate and power of joint selections on fine-tuned models."""

from __future__ import annotations

from benchmarks.reproductions.figures.offset_bars import dodged, handles, levels_at
from benchmarks.reproductions.jecs import METHODS, MIXES, SCORES
from benchmarks.reproductions.record import Outcome, Row
from tdd.report.plots import sheet

__all__ = ["draw"]

_MIXES = {"blocks": "the paper's blocks", "even": "half contaminated"}


def draw(outcome: Outcome) -> sheet.Sheet:
    """A row a mix of candidates and score; on the left the contamination rate, on the right the power."""
    panels = [(mix, score) for mix in MIXES for score in SCORES]
    alphas = sorted({row["alpha"] for row in outcome.rows})
    with sheet.style():
        drawn = sheet.sheet(
            outcome.title,
            _caption(outcome),
            rows=len(panels),
            columns=2,
            legend={**handles(list(METHODS)), "level": sheet.level_line()},
            height=1.35,
            foot=0.3,
            share_y=False,
        )
        for (mix, score), (left, right) in zip(panels, drawn.panels, strict=True):
            mine = [row for row in outcome.rows if row["mix"] == mix and row["score"] == score]
            for axes, column in ((left, "gcr"), (right, "power")):
                dodged(axes, [f"α = {alpha:g}" for alpha in alphas], _series(mine, alphas, column))
                axes.set_title(f"{_MIXES[mix]}, {score}", loc="left", color=sheet.INK)
            levels_at(left, alphas)
            left.set_ylim(bottom=-0.012)
            right.set_ylim(-0.03, 1.03)
            left.set_ylabel("GCR, ± 2 s.e.")
            right.set_ylabel("power")
    return drawn


def _series(rows: list[Row], alphas: list[float], column: str) -> dict[str, list[list[float]]]:
    return {
        rule: [[row[column] for row in rows if row["rule"] == rule and row["alpha"] == alpha] for alpha in alphas]
        for rule in METHODS
    }


def _caption(outcome: Outcome) -> str:
    sizes = outcome.provenance["settings"]
    return (
        f"{sizes['replicates']} replicates of {sizes['models']} fine-tuned models and {sizes['documents']} documents: "
        f"{sizes['calibration']:.0%} calibrate and are in all training data; of {sizes['remainder']:.0%} each model "
        f"was trained on a random {sizes['trained']:.0%}. {sizes['repetitions']} random subsets of 80 % a replicate; "
        f"standard errors over replicates. Seed {outcome.provenance['seed']}. For independent models JECS keeps the "
        "level in the limit of many items, JMCS in finite samples; models fine-tuned from one base are not quite "
        "independent. Unions and intersections of selections keep no level."
    )
