"""False discoveries and power of PTDI and KTD, by what is audited and by which score."""

from __future__ import annotations

from benchmarks.reproductions.figures.offset_bars import dodged, handles, levels_at
from benchmarks.reproductions.ptdi_ktd import DESIGNS, METHODS, SCORES
from benchmarks.reproductions.record import Outcome, Row
from tdd.report.plots import sheet

__all__ = ["draw"]

_DESIGNS = {"original": "text = the original", "drawn": "text = a version at random"}


def draw(outcome: Outcome) -> sheet.Sheet:
    """A row a design and score; on the left the share of false discoveries, on the right the power."""
    k = outcome.provenance["settings"]["knockoffs"]
    names = [_label(rule, k) for rule in METHODS]
    names.insert(2, _label("KTD (the paper)", 1))
    panels = [(design, score) for design in DESIGNS for score in SCORES]
    alphas = sorted({row["alpha"] for row in outcome.rows})
    with sheet.style():
        drawn = sheet.sheet(
            outcome.title,
            _caption(outcome),
            rows=len(panels),
            columns=2,
            legend={**handles(names), "level": sheet.level_line()},
            height=1.35,
            foot=0.3,
            share_y=False,
        )
        for (design, score), (left, right) in zip(panels, drawn.panels, strict=True):
            mine = [row for row in outcome.rows if row["design"] == design and row["score"] == score]
            for axes, column in ((left, "fdp"), (right, "power")):
                dodged(axes, [f"α = {alpha:g}" for alpha in alphas], _series(mine, alphas, names, column))
                axes.set_title(f"{_DESIGNS[design]}, {score}", loc="left", color=sheet.INK)
            levels_at(left, alphas)
            left.set_ylim(bottom=-0.008)
            right.set_ylim(-0.03, 1.03)
            left.set_ylabel("FDP, ± 2 s.e.")
            right.set_ylabel("power")
    return drawn


def _series(rows: list[Row], alphas: list[float], names: list[str], column: str) -> dict[str, list[list[float]]]:
    return {
        name: [
            [row[column] for row in rows if row["alpha"] == alpha and _label(row["rule"], row["knockoffs"]) == name]
            for alpha in alphas
        ]
        for name in names
    }


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
