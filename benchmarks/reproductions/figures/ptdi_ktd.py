"""False discoveries and power of PTDI and KTD, by audited text and score."""

from __future__ import annotations

from benchmarks.reproductions.figures.offset_bars import error_and_power
from benchmarks.reproductions.ptdi_ktd import DESIGNS, METHODS, SCORES
from benchmarks.reproductions.record import Outcome
from tdd.report.plots import sheet

__all__ = ["draw"]

_DESIGNS = {"original": "text = the original", "drawn": "text = a version at random"}


def draw(outcome: Outcome) -> sheet.Sheet:
    """A row of panels for each design and score; on the left the false discovery proportion, on the right power."""
    k = outcome.provenance["settings"]["knockoffs"]
    names = [_label(rule, k) for rule in METHODS]
    names.insert(2, _label("KTD (the paper)", 1))
    panels = {
        f"{_DESIGNS[design]}, {score}": [
            row for row in outcome.rows if (row["design"], row["score"]) == (design, score)
        ]
        for design in DESIGNS
        for score in SCORES
    }

    def name_of(row: dict) -> str:
        return _label(row["rule"], row["knockoffs"])

    return error_and_power(outcome, _caption(outcome), panels, names, name_of, error="fdp", bottom=-0.008)


def _label(rule: str, knockoffs: int) -> str:
    return f"{rule}, k = {knockoffs}" if rule == "KTD (the paper)" else rule


def _caption(outcome: Outcome) -> str:
    sizes = outcome.provenance["settings"]
    return (
        f"{sizes['models']} fine-tuned models a design: {sizes['members']} members, {sizes['nonmembers']} non-members, "
        f"of which half calibrate; {sizes['knockoffs']} paraphrases of each text; {sizes['repetitions']} random "
        f"divisions a model; standard errors over models. Seed {outcome.provenance['seed']}. Where the text is the "
        "original, the rules that compare a text with its paraphrases (KTD) have no guarantee; where it is drawn, only "
        "KTD (the paper) with several paraphrases has none."
    )
