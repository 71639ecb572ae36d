"""The tables of `benchmarks/slices.py`."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from tdd.report.page import markdown_table

__all__ = ["slices"]

_UNTRAINED = ("image", "instruction")
_SHOWN = 0.1  # the level of the table by proportions


def slices(result: dict[str, Any]) -> str:
    """PTDI on the slices of small vision-language models, and where nothing is to be found."""
    beside = [row["auc"] for row in result["auc"] if row["slice"] in _UNTRAINED]
    loss = " to ".join(f"{value:.2f}" for value in result["loss"])
    text = (
        f"**Slices of a vision-language model** (PTDI, figures 4 and 7, whose models and images are not here). Tiny "
        f"models of LLaVA's architecture, trained from random parameters for {result['epochs']} epochs on "
        f"{result['members']} drawn images, each {result['copies']} times an epoch, and {result['background']:,} "
        f"others (loss of the captions {loss} nats a token); {result['nonmembers']} images of the same kind were not "
        f"trained on. MaxRényi-K% by `tdd.score_images`; mean ± s.e. over {result['seeds']} seeds "
        f"(`{result['command']}`). Epochs and copies were chosen on another seed, so that the description tells some "
        "members: the figures say how slices compare and whether the level holds, not what a large model gives away. "
        f"The loss leaves out the tokens of {' and '.join(_UNTRAINED)}: their AUC is {min(beside):.3f} to "
        f"{max(beside):.3f}. "
        "AUC, each token with the distribution that predicts it / as in the published code:"
    )
    return "\n\n".join((text, _auc(result), *_half_splits(result), *_proportions(result), _null(result)))


def _parts(rows: list[dict[str, Any]], key: str = "slice") -> list[str]:
    return list(dict.fromkeys(row[key] for row in rows))


def _pair(row: dict[str, Any]) -> str:
    return f"{row['fdr']:.3f} / {row['power']:.3f}"


def _largest_error(rows: list[dict[str, Any]], *figures: str) -> str:
    return ", ".join(f"{max(row[f'{figure}_se'] or 0 for row in rows):.3f}" for figure in figures)


def _auc(result: dict[str, Any]) -> str:
    cells = {(row["score"], row["slice"], row["form"]): row for row in result["auc"]}
    parts = _parts(result["auc"])

    def cell(score: str, part: str) -> str:
        row, other = (cells[score, part, form] for form in ("shifted", "published"))
        return f"{row['auc']:.3f} ± {row['auc_se'] or 0:.3f} / {other['auc']:.3f}"

    rows = [[f"`{score}`", *(cell(score, part) for part in parts)] for score in _parts(result["auc"], "score")]
    return markdown_table(["score", *parts], rows)


def _half_splits(result: dict[str, Any]) -> tuple[str, str]:
    found = [row for row in result["ptdi"] if row["form"] == "shifted"]
    cells = {(row["score"], row["slice"], row["method"], row["alpha"]): row for row in found}
    levels = sorted({row["alpha"] for row in found})
    rows = [
        [f"`{score}`", part]
        + [_pair(cells[score, part, method, alpha]) for alpha in levels for method in ("none", "subtraction")]
        for score in _parts(found, "score")
        for part in _parts(found)
    ]
    text = (
        f"FDR / power over {result['repetitions']:,} random halves of each pool, whose non-members in one half "
        "calibrate; the first score is the paper's for LLaVA-1.5, the second that for MiniGPT-4. Largest standard "
        f"errors over the seeds: {_largest_error(found, 'fdr', 'power')}."
    )
    header = ["score", "slice", *(f"{way}, α = {alpha:g}" for alpha in levels for way in ("vanilla", "scaled"))]
    return text, markdown_table(header, rows)


def _proportions(result: dict[str, Any]) -> tuple[str, str]:
    found = [row for row in result["proportions"] if row["alpha"] == _SHOWN]
    cells = {(row["slice"], row["members"]): row for row in found}
    shares = sorted({row["members"] for row in found})
    rows = [[part, *(_pair(cells[part, share]) for share in shares)] for part in _parts(found)]
    text = (
        f"The same for the second score at α = {_SHOWN:g}, scaled, where a proportion π of the test set are members "
        f"and as many items calibrate as are tested. Largest standard errors: "
        f"{_largest_error(found, 'fdr', 'power')}."
    )
    return text, markdown_table(["slice", *(f"π = {share:g}" for share in shares)], rows)


def _null(result: dict[str, Any]) -> str:
    rows, (calibration, candidates) = result["null"], result["nothing"]
    levels = sorted({row["alpha"] for row in rows})
    of_level = {alpha: [row["any"] for row in rows if row["alpha"] == alpha] for alpha in levels}
    rates = "; ".join(
        f"{alpha:g}: {fmean(found):.3f} ({min(found):.3f} to {max(found):.3f})" for alpha, found in of_level.items()
    )
    low, high = (pick(row["auc"] for row in rows) for pick in (min, max))
    return (
        f"Nothing to find: from a pool that the same models have not seen, vanilla PTDI selects anything in so many of "
        f"{result['divisions']:,} random divisions of {calibration} calibration items and {candidates} candidates, by "
        f"level the mean over {len(rows) // len(levels)} scores and slices and their range: {rates}; largest standard "
        f"error {_largest_error(rows, 'any')}. It is lowest where images tie: with K = 10 one entropy of the image "
        "counts, at least that of the distribution before it, which all images share, and a seed in which many have "
        "that one selects nothing. The AUC of labels that mean nothing is "
        f"{low:.3f} to {high:.3f} (standard errors at most {_largest_error(rows, 'auc')})."
    )
