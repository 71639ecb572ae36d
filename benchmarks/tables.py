"""The README's tables, generated from results/*.json.

python benchmarks/tables.py           # print
python benchmarks/tables.py --write   # put them into README.md, between its two markers
"""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import Any

RESULTS = pathlib.Path(__file__).parent / "results"
README = pathlib.Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def section() -> str:
    """Everything between the markers."""
    parts = [_scoring(), _parity(), _wikimia(), _booktection()]
    return "\n\n".join(["## Measured", *parts])


def updated(readme: str) -> str:
    """The README with its measured section replaced."""
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{section()}\n{END}{rest.split(END)[1]}"


def _load(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _with_error(value: float, error: float) -> str:
    return f"{value:.3f} ± {error:.3f}"


def _parity() -> str:
    rows = [[row["configuration"], f"{row['max_abs_difference']:.1e}"] for row in _load("parity")["rows"]]
    text = (
        "**Parity.** Largest difference of logits from torch's class in float32, from saved files with every parameter "
        "perturbed (`benchmarks/parity.py`)."
    )
    return f"{text}\n\n{_table(['configuration', 'max abs. difference'], rows)}"


def _wikimia() -> str:
    result = _load("wikimia_audit")
    rows = [
        [*name.split("/"), _with_error(cell["fdp"], cell["fdp_se"]), _with_error(cell["power"], cell["power_se"])]
        for name, cell in result["summary"].items()
    ]
    parts, shifted = result["parts"], result["calibrated_on_label_0"]
    cells = shifted["results"]
    worst = max(cells, key=lambda name: cells[name]["fdp"])
    text = (
        f"**Audit with known truth.** A model of {result['model']['parameters'] / 1e6:.1f} M parameters fine-tuned on "
        f"a random half of WikiMIA's label-1 texts; {parts['calibration']} held-out texts of the same label calibrate, "
        f"{parts['members']} members and {parts['nonmembers']} held-out texts are the candidates; "
        f"{len(result['seeds'])} seeds at α = {result['alpha']} (`benchmarks/wikimia_audit.py`)."
    )
    warning = (
        f"The same audit calibrated on label-0 texts, as is often done: the blind baseline separates calibration from "
        f"candidates at AUC {shifted['blind_baseline']['auc']:.3f} without any model and warns; the false discovery "
        f"proportion of {worst} rises to {cells[worst]['fdp']:.2f}."
    )
    header = ["score", "proportion", "FDP ± s.e.", "power ± s.e."]
    return f"{text}\n\n{_table(header, rows)}\n\n{warning}"


def _booktection() -> str:
    result = _load("booktection_study")
    wanted = {(row["score"], row["method"], row["alpha"]): row for row in result["rows"]}
    rows = []
    for name in dict.fromkeys(row["score"] for row in result["rows"]):
        row = [name]
        for alpha in (0.1, 0.2):
            for method in ("none", "subtraction", "storey"):
                cell = wanted[name, method, alpha]
                row.append(f"{cell['fdr']:.3f} / {cell['power']:.3f}")
        rows.append(row)
    header = ["score", *(f"{name}, α = {alpha}" for alpha in (0.1, 0.2) for name in ("vanilla", "scaled", "Storey"))]
    error = max(row["fdr_se"] for row in result["rows"] if row["alpha"] <= 0.2)
    text = (
        f"**Score tables.** FDR / power over {result['repetitions']:,} random half splits of BookTection's "
        f"{result['items']:,} passages ({result['members']:,} labelled as members), all repetitions of a score in one "
        f"compiled call of {min(result['seconds'].values()):.0f} to {max(result['seconds'].values()):.0f} s for 18 "
        f"procedures each; standard errors of the FDR at most {error:.4f} (`benchmarks/booktection_study.py`). "
        "Passages of one book are split apart here, which makes them exchangeable by construction; an audit of new "
        "books has no such luck."
    )
    return f"{text}\n\n{_table(header, rows)}"


def _scoring() -> str:
    result = _load("scoring")
    machine, rows = result["machine"], []
    for run in result["runs"]:
        ratios = [torch / ours for ours, torch in zip(run["seconds"]["tdd"], run["seconds"]["torch"], strict=True)]
        rows.append(
            [
                f"{run['run']} ({run['texts']} texts, {run['tokens']:,} tokens)",
                f"{run['tdd texts/s']:.1f}",
                f"{run['torch texts/s']:.2f}",
                " to ".join(dict.fromkeys(f"{ratio:.1f}×" for ratio in (min(ratios), max(ratios)))),
                f"{run['share of matmul']:.2f}",
                f"{run['compiles']} / {run['buckets']}",
                f"{run['largest error']:.0e}",
            ]
        )
    memory = result["memory"]
    header = [
        "texts", "tdd texts/s", "torch texts/s", "ratio, over the rounds", "share of matmul", "compiles / buckets",
        "largest difference",
    ]  # fmt: skip
    load = max(run["load average"] for run in result["runs"])
    text = (
        f"**Scoring.** All eight scores ({result['model']}, float32, {machine['cores']} cores of "
        f"{machine['processor']}) against the usual torch loop (one text at a time, full log-softmax, the same forward "
        "passes), interleaved in one run after both agreed (`benchmarks/scoring.py`). Share: of the machine's own "
        f"float32 matrix-product rate. Load average {load:.1f}; only ratios within a "
        "round mean something. Resident memory grew by "
        f"{memory['resident MiB after 50 texts']:.0f} MiB over 50 texts and by "
        f"{memory['resident MiB after 200 texts']:.0f} MiB over 200."
    )
    return f"{text}\n\n{_table(header, rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="update README.md")
    if parser.parse_args().write:
        README.write_text(updated(README.read_text("utf-8")), "utf-8")
    else:
        print(section())


if __name__ == "__main__":
    main()
