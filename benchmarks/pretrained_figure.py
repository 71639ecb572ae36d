"""The figure of `python -m benchmarks pretrained`: what is found by number of copies, and realised error rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from tdd.report.plots import sheet

__all__ = ["draw"]

_SHOWN = ("loss", "zlib", "min_k", "min_k_plus_plus", "max_renyi")


def draw(result: dict[str, Any]) -> sheet.Sheet:
    """AUC by copies, a panel for each way of training; power of PTDI by copies and its realised FDR; p-values of the
    test of order; and contaminated texts among those that are found clean for all models, with power."""
    looks = {name: sheet.stroke(i) for i, name in enumerate(_SHOWN)}
    trained = result["models"][1:]
    middle = _levels(result)[1]
    caption = (
        f"{result['members']} members of each model and {result['texts'] - result['members']} non-members; "
        f"{result['divisions']:,} random divisions of the non-members. Members that are selected: those of the model "
        f"trained by {trained[1]['model']}. False items among the selected: under the untouched model (hollow), where "
        f"every selection is false, and after training ({', '.join(one['model'] for one in trained)}); mean ± 2 s.e. "
        f"over the divisions; the lines are levels. Test of canonical order: sets of {result['examples']} examples, "
        f"{result['examples'] // result['together']} shards, {result['shuffles']} shuffles of each. Below: texts that "
        f"none of the {len(trained)} models was trained on are searched for, by the loss; not all rules have a "
        f"guarantee. Seed {result['seed']}."
    )
    with sheet.style():
        drawn = sheet.sheet(
            f"Truth planted in {result['model']['name']}",
            caption,
            rows=4,
            columns=2,
            height=1.9,
            legend={**{name: sheet.line(look) for name, look in looks.items()}, "level": sheet.level_line()},
            share_x=False,
            share_y=False,
        )
        (first, second), (third, power), (error, order), (contaminated, found) = drawn.panels
        for axes, model in zip((first, second, third), trained, strict=True):
            lines = {name: row["by_copies"] for name, row in _rows(model).items()}
            _by_copies(axes, lines, looks, f"trained: {model['model']}", "AUC against non-members")
            axes.axhline(0.5, color=sheet.INK, linewidth=0.7)
            axes.set_ylim(0.3, 1.02)
        lines = {name: row["levels"][1]["power_by_copies"] for name, row in _rows(trained[1]).items()}
        _by_copies(power, lines, looks, "members that are selected", f"power at α = {middle:g}")
        _errors(error, result, looks)
        for number, model in enumerate(result["models"]):
            values = {row["copies"]: row["p"] for row in model["order"]}
            order.plot([*values], [*values.values()], **_line(sheet.stroke(number)), label=model["model"])
        order.set_yscale("log")
        order.yaxis.set_major_formatter("{x:g}")
        order.legend(frameon=False)
        order.set_title("test of canonical order", loc="left", color=sheet.INK)
        order.set_ylabel("p-value")
        order.set_xlabel("copies")
        _joint(contaminated, result, "fdr", "contaminated among the clean", "GCR")
        _joint(found, result, "power", "clean texts that are found", "power")
        contaminated.set_ylim(0, 1.55 * contaminated.get_ylim()[1])  # room for the names
        contaminated.legend(frameon=False, ncols=2, loc="upper left")
    return drawn


def _by_copies(axes: Any, lines: dict[str, dict[str, float]], looks: dict[str, Any], title: str, label: str) -> None:
    """A line a score over numbers of copies."""
    for name, values in lines.items():
        axes.plot([*values], [*values.values()], **_line(looks[name]))
    axes.set_title(title, loc="left", color=sheet.INK)
    axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel(label)
    axes.set_xlabel("copies")


def _errors(axes: Any, result: dict[str, Any], looks: dict[str, Any]) -> None:
    """FDR of PTDI at each level, a point a model and score."""
    alphas = _levels(result)
    for number, model in enumerate(result["models"]):
        for series, (name, row) in enumerate(_rows(model).items()):
            aside = (number - 1.5) * 0.24 + (series - 2) * 0.042
            axes.errorbar(
                np.arange(len(alphas)) + aside, [level["fdr"] for level in row["levels"]],
                [2 * level["fdr_se"] for level in row["levels"]], color=looks[name].colour, linestyle="",
                marker=looks[name].marker, markersize=3.0, markerfacecolor=None if number else "white",
            )  # fmt: skip
    _draw_levels(axes, alphas)
    _by_level(axes, alphas, "false items among the selected", "FDR, ± 2 s.e.")


def _joint(axes: Any, result: dict[str, Any], figure: str, title: str, label: str) -> None:
    """A figure of every joint rule at each level."""
    alphas = _levels(result)
    for series, row in enumerate(result["joint"]):
        values = [level[figure] for level in row["levels"]]
        axes.plot(np.arange(len(alphas)), values, **_line(sheet.stroke(series)), label=row["rule"])
    if figure == "fdr":
        _draw_levels(axes, alphas)
    _by_level(axes, alphas, title, label)


def _by_level(axes: Any, alphas: list[float], title: str, label: str) -> None:
    axes.set_title(title, loc="left", color=sheet.INK)
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.set_xticks(np.arange(len(alphas)), [f"α = {alpha:g}" for alpha in alphas])


def _draw_levels(axes: Any, alphas: list[float]) -> None:
    for place, alpha in enumerate(alphas):
        axes.plot([place - 0.45, place + 0.45], [alpha, alpha], **sheet.LEVEL)


def _levels(result: dict[str, Any]) -> list[float]:
    return [level["alpha"] for level in result["joint"][0]["levels"]]


def _rows(model: dict[str, Any]) -> dict[str, Any]:
    """The rows of the scores that are shown."""
    return {name: row for name in _SHOWN for row in model["rows"] if row["score"] == name}


def _line(look: sheet.Stroke) -> dict[str, Any]:
    return {"color": look.colour, "marker": look.marker, "linestyle": look.dashes}
