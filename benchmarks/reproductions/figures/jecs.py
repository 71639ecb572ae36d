"""Contamination rate and power of joint selections on fine-tuned models."""

from __future__ import annotations

from benchmarks.reproductions.figures.offset_bars import error_and_power
from benchmarks.reproductions.jecs import METHODS, MIXES, SCORES
from benchmarks.reproductions.record import Outcome
from tdd.report.plots import sheet

__all__ = ["draw"]

_MIXES = {"blocks": "the paper's blocks", "even": "half contaminated"}


def draw(outcome: Outcome) -> sheet.Sheet:
    """A row of panels for each mix of candidates and score; on the left the contamination rate, on the right power."""
    panels = {
        f"{_MIXES[mix]}, {score}": [row for row in outcome.rows if row["mix"] == mix and row["score"] == score]
        for mix in MIXES
        for score in SCORES
    }
    return error_and_power(
        outcome, _caption(outcome), panels, list(METHODS), lambda row: row["rule"], error="gcr", bottom=-0.012
    )


def _caption(outcome: Outcome) -> str:
    sizes = outcome.provenance["settings"]
    return (
        f"{sizes['replicates']} replicates of {sizes['models']} fine-tuned models and {sizes['documents']} documents: "
        f"{sizes['calibration']:.0%} calibrate and are in all training data; of {sizes['remainder']:.0%} each model "
        f"was trained on a random {sizes['trained']:.0%}. {sizes['repetitions']} random subsets of 80% a replicate; "
        f"standard errors over replicates. Seed {outcome.provenance['seed']}. For independent models JECS keeps the "
        "level in the limit of many items, JMCS in finite samples; models fine-tuned from one base are not quite "
        "independent. Unions and intersections of selections keep no level."
    )
