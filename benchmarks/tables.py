"""The tables of the pages, generated from the code's guarantee records and from results/*.json.

python -m benchmarks.tables           # print
python -m benchmarks.tables --write   # put them into their pages, between their markers
"""

from __future__ import annotations

import argparse
import json
import pathlib
from collections.abc import Callable
from statistics import fmean
from typing import Any

from benchmarks import device_tables, leak_tables, order_tables, slice_tables
from benchmarks.throughput import report
from tdd.procedures.procedure import all_guarantees
from tdd.report import tables
from tdd.report.page import markdown_table

RESULTS = pathlib.Path(__file__).parent / "results"
ROOT = pathlib.Path(__file__).parents[1]
PAGES = {
    "guarantees": ROOT / "tdd" / "procedures" / "README.md",
    "validity": ROOT / "tdd" / "study" / "README.md",
    "measured": ROOT / "benchmarks" / "README.md",
}
_REPRODUCTIONS = sorted((RESULTS / "reproductions").glob("*/results.json"))
Results = dict[str, Any]


def guarantees() -> str:
    """Every guarantee record."""
    own = [row for row in all_guarantees() if row.call.startswith("tdd.")]
    rows = [(f"`{call}`", *rest) for call, *rest in tables.guarantee_rows(own)]
    return markdown_table(tables.GUARANTEE_HEADER, rows)


def validity() -> str:
    """What is valid and what is not, measured."""
    result = _load("validity")
    text = f"`{result['command']}`:"
    return f"{text}\n\n{markdown_table(tables.VALIDITY_HEADER, tables.validity_rows(result['claims']))}"


def measured() -> str:
    """Benchmarks and studies, in the order of the page; what was not measured is left out."""
    parts = [section(_load(name)) for name, section in _MEASURED.items() if (RESULTS / f"{name}.json").exists()]
    return "\n\n".join(parts)


SECTIONS: dict[str, Callable[[], str]] = {"guarantees": guarantees, "validity": validity, "measured": measured}


def updated(page: str) -> str:
    """A page with its generated sections replaced."""
    for name, section in SECTIONS.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        if begin in page:
            before, rest = page.split(begin)
            page = f"{before}{begin}\n{section()}\n{end}{rest.split(end)[1]}"
    return page


def _load(name: str) -> Results:
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _with_error(value: float, error: float) -> str:
    return f"{value:.3f} ± {error:.3f}"


def _bench(result: Results) -> str:
    """The tables of `python -m benchmarks throughput --out benchmarks/results/bench.json`."""
    parts = [f"**`{result['command']}`.** {report.note(result)}"]
    if result.get("studies"):
        parts.append(_table(list(report.STUDY_HEADER), report.study_rows(result["studies"])))
    rows = [row for suite in ("kernels", "scoring") for row in result.get(suite, ())]
    if rows:
        parts.append(_table(list(report.CASE_HEADER), report.case_rows(rows)))
        parts.append(
            "Compile, first and steady: one compiled call. Memory: outputs and temporaries of the program, and by how "
            "much the resident memory rose in the first call. Bandwidth: bytes of the inputs and outputs a second, as "
            "a share of what a plain copy of a large array moves (what stays in cache can exceed 1). Every case gave "
            "the decisions of its peers before it was timed; times as fast: medians over interleaved rounds."
        )
    return "\n\n".join(parts)


def _parity(result: Results) -> str:
    rows = [[row["configuration"], f"{row['max_abs_difference']:.1e}"] for row in result["rows"]]
    text = (
        "**Parity.** Largest difference of logits from torch's class in float32, from saved files with every parameter "
        "perturbed (`benchmarks/parity.py`)."
    )
    return f"{text}\n\n{_table(['configuration', 'max abs. difference'], rows)}"


def _families(result: Results) -> str:
    """Throughput of every family."""
    machine = result["machine"]
    shapes = ("8x256", "24x85", "2x1024")
    rows = [
        [
            f"{row['family']} (V = {row['vocabulary']:,})",
            f"{row['tdd texts/s']:.1f}",
            f"{row['torch texts/s']:.2f}",
            f"{row['ratio']:.1f}×",
            *(f"{row[f'share of matmul, {shape}']:.2f}" for shape in shapes),
            f"{row['temporaries MiB, 8x256']:,.0f} / {row['[B,T,V] MiB, 8x256']:,.0f}",
            f"{row['largest error']:.0e}",
        ]
        for row in result["rows"]
    ]
    header = [
        "family", "tdd texts/s", "torch texts/s", "ratio", *(f"share, {shape}" for shape in shapes),
        "temporaries / [B, T, V], MiB", "largest difference",
    ]  # fmt: skip
    text = (
        f"**Families.** Six scores of {result['rows'][0]['texts']} texts of WikiMIA's lengths (12 layers of width 768, "
        f"random weights, float32, {machine['cores']} cores of {machine['processor']}) against the usual torch loop, "
        f"interleaved in {result['rounds']} rounds after both agreed; and the share of the machine's own float32 "
        "matrix-product rate that one batch of about 2,048 tokens reaches with every statistic, beside the memory of "
        "its program (`benchmarks/families.py`)."
    )
    return f"{text}\n\n{_table(header, rows)}"


def _gradients(result: Results) -> str:
    """Gradient norms beside their peers."""
    machine = result["machine"]
    rows = []
    for row in result["rows"]:
        if row.get("absent"):
            continue
        peak = "" if row["temporary MiB"] is None else f"{row['temporary MiB']:,.0f}"
        times = "" if row["memory / tdd"] is None else f"{row['memory / tdd']:.1f}×"
        rows.append(
            [
                row["run"], row["way"], f"{row['texts/s']:.2f}", f"{row['time / tdd']:.2f}×", peak, times,
                f"{row['difference']:.0e}" if row["difference"] else "",
            ]
        )  # fmt: skip
    text = (
        "**Gradient norms.** Norm of the gradient of every text's loss with respect to all parameters; GPT-2-small's "
        f"size, random weights, float32, {machine['cores']} cores of {machine['processor']}, interleaved in "
        f"{result['rounds']} rounds after all agreed to {result['tolerance']:.0e}. `gpt2` has a tied head, `gpt_neox` "
        "a head of its own, which Opacus and jax_privacy need; `64 texts` are of WikiMIA's 64-word length, through "
        "`tdd.score`, beside one backward pass a text in torch. Memory: temporaries of the compiled program "
        "(`benchmarks/gradients.py`)."
    )
    header = ["run", "way", "texts/s", "time / tdd's", "temporaries, MiB", "memory / tdd's", "largest difference"]
    return f"{text}\n\n{_table(header, rows)}"


def _probe(result: Results) -> str:
    """What a probe costs."""
    counted, machine = result["counted"], result["machine"]
    shares = [name for name in result["rows"][0] if name.startswith("share")]
    rows = [
        [row["probe"], f"{row['look, in steps']:.2f}", *(f"{100 * row[name]:.2f}%" for name in shares)]
        for row in result["rows"]
    ]
    text = (
        f"**A probe in a training loop.** The demonstration's loop ({result['batch']} texts a step) on "
        f"{machine['cores']} cores of {machine['processor']}, interleaved in {result['rounds']} rounds "
        f"(`{result['command']}`). A look in training steps of the same round, by how many suspects and references are "
        "watched, and its share of the training time at each cadence. With the last probe and a look every "
        f"{result['segment']} steps the loop took {result['with / without']:.3f} times as long as without. Its "
        f"evaluation takes {result['evaluate / score']:.2f} times as long as `tdd.score` of the same texts, a call at "
        f"a step that is not looked at {100 * result['not due, share of a step']:.4f}% of a step. Over "
        f"{counted['steps']:,} steps with {counted['looks']} looks after the first {_times(counted['compilations'])} "
        f"compiled. Temporaries of the program: {result['temporaries'] / 2**20:.1f} MiB, beside "
        f"{result['parameters'] / 2**20:.1f} MiB of parameters, which are not copied."
    )
    header = ["watched", "a look, in steps", *(name.removeprefix("share, ") + " steps" for name in shares)]
    return f"{text}\n\n{_table(header, rows)}"


def _times(count: int) -> str:
    return (
        "nothing was" if not count else f"{count} program{'' if count == 1 else 's'} {'was' if count == 1 else 'were'}"
    )


def _wikimia(result: Results) -> str:
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


def _arxivtection(result: Results) -> str:
    """KTD end to end."""
    cells = {tuple(row[k] for k in ("design", "knockoffs", "rule", "score", "alpha")): row for row in result["summary"]}
    scores, alphas = (list(dict.fromkeys(key[i] for key in cells)) for i in (3, 4))
    rows = []
    for design, k, rule in dict.fromkeys(key[:3] for key in cells):
        if (k, rule) == (1, "multi"):  # with one knockoff it is "ktd"
            continue
        of_rule = [cells[design, k, rule, score, alpha] for score in scores for alpha in alphas]
        promised = [cells[design, k, rule, scores[0], alpha]["promised"] for alpha in alphas]
        bound = "nothing" if promised[0] is None else ", ".join(f"{value:g}" for value in promised)
        shown = [f"{_with_error(cell['fdp'], cell['fdp_se'] or 0)} / {cell['power']:.2f}" for cell in of_rule]
        rows.append([design, str(k), "ktd = multi" if (k, rule) == (1, "ktd") else rule, bound, *shown])
    leaning = [
        f"{cells[design, max(key[1] for key in cells), 'multi', score, alphas[0]]['leaning_of_nonmembers']:.1f} "
        f"({score}, {design})"
        for design in dict.fromkeys(key[0] for key in cells)
        for score in scores
    ]
    data, first = result["data"], result["models"][0]["audit"]
    text = (
        f"**KTD end to end.** `tdd {result['command']}` on arXivTection: {data['passages']:,} passages of "
        f"{data['papers_of_the_pool']} papers with three paraphrases each, a random half of them planted in a small "
        f"fine-tuned model; {result['repetitions']} models a design, and of each {result['divisions']} random "
        "divisions of the non-members into calibration items and candidates; half of the candidates are members. FDP ± "
        "s.e. over the models / power (`benchmarks/arxivtection_ktd.py`). In the design `verbatim` the text is the "
        "passage, in `drawn` one of its four versions at random, which makes the versions of a non-member "
        f"exchangeable. The first audit of the command line selected {first['num_selected']} of {first['num_tests']} "
        f"candidates at level {first['alpha']:g}: FDP {first['truth']['fdp']:.3f}, power "
        f"{first['truth']['power']:.3f}."
    )
    why = (
        "Of the non-members, so many times as many as by chance score lower than all three paraphrases: "
        f"{', '.join(leaning)}. A model fine-tuned on verbatim passages can prefer verbatim passages, seen or not. "
        "Rules that take the paraphrases for exchangeable then select them; ranking among known non-members does not."
    )
    header = ["design", "k", "rule", f"promised at {', '.join(f'{alpha:g}' for alpha in alphas)}"]
    header += [f"{score}, α = {alpha:g}" for score in scores for alpha in alphas]
    return f"{text}\n\n{_table(header, rows)}\n\n{why}"


def _paraphrased(result: Results) -> str:
    """KTD with a T5 that was trained for it."""
    cells = {tuple(row[key] for key in ("decoding", "model", "rule", "k", "alpha")): row for row in result["rows"]}
    alphas = sorted({key[4] for key in cells if key[4] is not None})
    decodings = [one["decoding"] for one in result["written"]]

    def shown(decoding: str, rule: str, k: int, alpha: float | None) -> str:
        row, null = cells[decoding, "trained", rule, k, alpha], cells.get((decoding, "null", rule, k, alpha))
        behind = f" / {row['power']:.2f}" + (f" / {null['fdp']:.2f}" if null else "")
        return _with_error(row["fdp"], row["fdp_se"] or 0) + behind

    rows = []
    for decoding, rule, k in dict.fromkeys((key[0], key[2], key[3]) for key in cells):
        levels = [None] if (decoding, "trained", rule, k, None) in cells else alphas
        if k == 0 and decoding != decodings[0]:  # thresholds on a text's own score know no paraphrases
            continue
        values = [shown(decoding, rule, k, alpha) for alpha in levels]
        rows.append([decoding if k else "none", str(k or ""), rule, *(values * (len(alphas) // len(values)))])
    written = [
        [
            one["decoding"],
            *(f"{one[name]:.1%}" for name in ("copies", "cut", "empty")),
            ", ".join(f"{ratio:.2f}" for ratio in one["length_ratio"]),
            *(_refuted(result, one["decoding"], model) for model in ("trained", "null")),
            f"{cells[one['decoding'], 'null', 'ktd', 3, alphas[0]]['leaning']:.2f}",
        ]
        for one in result["written"]
    ]
    sizes, writer = result["sizes"], result["paraphraser"]
    text = (
        f"**KTD with a T5 of its own.** A T5 of {writer['parameters']:,} parameters learns in {sizes['steps']:,} "
        f"steps ({writer['seconds']:.0f} s) from {writer['pairs']:,} pairs of short generated texts and rule-made "
        f"paraphrases (loss {writer['losses'][0]:.2f} at first, {writer['held_out_loss']:.2f} on pairs held out). It "
        f"writes three versions of {sizes['members']} members and {sizes['nonmembers']} non-members, and "
        f"`tdd.run_audit` compares them by `grad_norm` (`{result['command']}`). FDP ± s.e. over {result['seeds']} "
        "seeds / power / FDR at the null, under a model that was trained on none of the candidates; of each model "
        f"{sizes['divisions']} random divisions. Thresholds are chosen on {sizes['labelled']} labelled texts so that "
        "the FDP among these is at most α (KTD, section 5.2); half of these are members, fewer of the candidates. "
        "`W > 0` knows no level."
    )
    header = ["paraphrases", "k", "rule", *(f"α = {alpha:g}" for alpha in alphas)]
    about = ["paraphrases", "copies", "cut", "empty", "length of the text (5%, 50%, 95%)"]
    about += ["symmetry refuted, trained", "symmetry refuted, null", "non-members with W > 0, null (1 = half)"]
    examples = "; ".join(f"{one['decoding']}, “{one['example'][1]}”" for one in result["written"])
    end = (
        "`conformal` is promised at most α whatever the paraphrases are; `ktd` and `multi` only where a non-member and "
        "its paraphrases are exchangeable, and where the symmetry test refutes that the audit withholds its verdict. "
        f"A text, “{result['written'][0]['example'][0]}”, and a paraphrase by each decoding: {examples}."
    )
    return f"{text}\n\n{_table(header, rows)}\n\n{_table(about, written)}\n\n{end}"


def _refuted(result: Results, decoding: str, model: str) -> str:
    """In how many audits the symmetry test withheld the verdict, and the largest of its p-values."""
    audit = next(one for one in result["audits"] if (one["decoding"], one["model"]) == (decoding, model))
    return f"{audit['withheld']} of {audit['audits']} (p ≤ {max(audit['symmetry_p']):.1g})"


def _booktection(result: Results) -> str:
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


def _estimates(result: Results) -> str:
    cells = {(row["estimate"], row["score"], row["fraction"]): row for row in result["rows"]}
    estimates, scores, fractions = (list(dict.fromkeys(places)) for places in zip(*cells, strict=True))
    rows = [
        [score, estimate]
        + [
            f"{cells[estimate, score, share]['bias']:+.3f} / {cells[estimate, score, share]['mse']:.3f}"
            for share in fractions
        ]
        for score in scores
        for estimate in estimates
    ]
    worst = {name: max(row["fdr"] for row in result["rows"] if row["estimate"] == name) for name in estimates}
    power = {name: fmean(row["power"] for row in result["rows"] if row["estimate"] == name) for name in estimates}
    error = max(row["bias_se"] for row in result["rows"])
    text = (
        f"**Estimates of the fraction π of members** (PTDI, table 4, whose models' scores are not public). Bias / mean "
        f"squared error over {result['repetitions']:,} random draws of {result['calibration']} calibration items and "
        f"{result['candidates']} candidates from BookTection, a fraction π of them members; standard errors of the "
        f"bias at most {error:.3f} (`benchmarks/booktection_study.py --estimates`). A negative bias is conservative. "
        f"The moment estimate is told {result['calibration']} further members. FDR at level "
        f"{result['alpha']:g}, the largest of the {len(result['rows']) // len(estimates)} settings, and mean power: "
        + "; ".join(f"{name} {worst[name]:.3f} and {power[name]:.3f}" for name in estimates)
        + "."
    )
    return f"{text}\n\n{_table(['score', 'estimate', *(f'π = {share:g}' for share in fractions)], rows)}"


def _combined(result: Results) -> str:
    wanted: dict[tuple[str, str], dict[float, dict[str, Any]]] = {}
    for row in result["rows"]:
        wanted.setdefault((row["setting"], row["method"]), {})[row["alpha"]] = row
    levels = sorted({row["alpha"] for row in result["rows"]})
    rows = [
        [*name, *(f"{cells[alpha]['fdr']:.3f} / {cells[alpha]['power']:.3f}" for alpha in levels)]
        for name, cells in wanted.items()
    ]
    error = max(row["fdr_se"] for row in result["rows"])
    text = (
        f"**Clean passages from several detectors, or for several models.** FDR (GCR for two models) / power over "
        f"{result['repetitions']:,} random half splits of BookTection, calibrated on its members; standard errors of "
        f"the FDR at most {error:.4f} (`benchmarks/booktection_combined.py`). `bh_average`, `bh_max` and the "
        "thresholds are rules of the paper without a guarantee: a threshold has no level and selects the same at each."
    )
    return f"{text}\n\n{_table(['scores', 'procedure', *(f'α = {alpha}' for alpha in levels)], rows)}"


def _joint_synthetic(result: Results) -> str:
    rows = [
        [f"{setting['signal']:g}", row["procedure"], f"{row['alpha']:g}"]
        + [_with_error(row[name], row[f"{name}_se"]) for name in ("gcr", "power")]
        for setting in result["settings"]
        for row in setting["rows"]
    ]
    one = result["settings"][0]
    text = (
        f"**JMCS, JECS and the invalid compositions.** {one['models']} models, labels {one['labels']}, "
        f"{one['calibration']} calibration items and {one['candidates']:,} candidates, scores N(μ, 1) against N(0, 1); "
        f"{one['repetitions']:,} repetitions (`{result['command']}`)."
    )
    return f"{text}\n\n{_table(['μ', 'procedure', 'α', 'GCR ± s.e.', 'power ± s.e.'], rows)}"


def _rules(result: Results) -> str:
    rows = [
        [row["setting"], row["method"], *(_with_error(row[name], row[f"{name}_se"]) for name in ("fdr", "power"))]
        for row in result["rows"]
    ]
    text = (
        f"**Rules by e-values beside others.** 200 calibration items, 100 candidates of which 30 are to be found, "
        f"level {result['alpha']:g}; {result['repetitions']:,} repetitions (`{result['command']}`)."
    )
    return f"{text}\n\n{_table(['setting', 'rule', 'FDR ± s.e.', 'power ± s.e.'], rows)}"


def _scores(result: Results) -> str:
    """All scores under models of known training data, and the owner's test."""

    def cell(row: dict[str, Any], name: str) -> str:
        error = row[f"{name}_se"]
        return f"{row[name]:.3f}" if error is None else _with_error(row[name], error)

    rows = [
        [row["score"], ", ".join(row["beside"]), *(cell(row, name) for name in ("auc", "power", "fdr"))]
        for row in sorted(result["rows"], key=lambda row: (len(row["beside"]) > 0, -row["auc"]))
    ]
    owner = [
        [str(row["documents"]), cell(row, "trained"), cell(row, "not trained"), f"{row['trained, median p']:.2g}"]
        for row in result["owner"]
    ]
    blind = [row["score"] for row in result["rows"] if row["auc"] - 2 * (row["auc_se"] or 0) <= 0.5]
    silent = f" Without any signal here: {', '.join(blind)}." if blind else ""
    seeds = f"{result['seeds']} seeds" if result["seeds"] > 1 else "one seed"
    text = (
        f"**All scores.** Tiny models, each trained from scratch for {result['epochs']} epochs on {result['members']} "
        f"generated documents among others; {result['nonmembers']} documents were not trained on, half of which, drawn "
        f"anew {result['draws']} times, calibrate. PTDI at α = {result['alpha']:g}; scores with their default options; "
        f"mean ± s.e. over {seeds} (`{result['command']}`). The models are too small, and trained too often on each "
        f"text, to rank scores for large ones.{silent} LiRA's default, one variance for all texts, orders texts as "
        "`reference` does."
    )
    owners = (
        f"**The owner's test.** `tdd.version_test` (rank sum) on the loss under the same models: of each document one "
        f"of {result['private'] + 1} paraphrases, drawn beforehand, was trained on. Rejections at level .05 over "
        f"{result['draws']} random sets of so many documents, and under a model that saw none of them."
    )
    header = ["score", "needs beside the model", "AUC", f"power at FDR {result['alpha']:g}", "FDR"]
    of_owner = ["documents", "rejected, trained", "rejected, not trained", "median p, trained"]
    return f"{text}\n\n{_table(header, rows)}\n\n{owners}\n\n{_table(of_owner, owner)}"


def _exact_null(result: Results) -> str:
    levels = sorted({row["alpha"] for row in result["rows"]})
    cells = {(row["method"], row["alpha"]): row for row in result["rows"]}
    rows = [
        [name, *(_with_error(cells[name, alpha]["rate"], cells[name, alpha]["se"]) for alpha in levels)]
        for name in dict.fromkeys(row["method"] for row in result["rows"])
    ]
    distinct = result["distinct"].values()
    text = (
        f"**An exact null on real scores.** Losses of {result['rows_in_pool']:,} held-out rows under {len(distinct)} "
        f"Pythia sizes, half precision, {min(distinct):,} to {max(distinct):,} distinct values; "
        f"{result['calibration']:,} random rows calibrate and {result['tests']:,} others are "
        f"tested. Nothing is to be found: the share of "
        f"{result['repetitions']:,} repetitions in which anything is selected (`benchmarks/exact_null.py`)."
    )
    return f"{text}\n\n{_table(['procedure', *(f'α = {alpha}' for alpha in levels)], rows)}"


def _procedures(result: Results) -> str:
    cells = {(row["procedure"], row["size"]): row for row in result["rows"]}
    sizes = sorted({row["size"] for row in result["rows"]})
    rows = []
    for name in dict.fromkeys(row["procedure"] for row in result["rows"]):
        row = [name]
        for size in sizes if not name.startswith("exchangeability") else sizes[:1]:  # it has shards, not items
            cell = cells.get((name, size))
            row += ["", ""] if cell is None else [f"{1e3 * cell['steady_s']:.3g} ms", f"{cell['many_s']:.3g} s"]
        rows.append(row + [""] * (1 + 2 * len(sizes) - len(row)))
    machine = result["machine"]
    header = ["procedure"]
    for size in sizes:
        calls = max(row["calls"] for row in result["rows"] if row["size"] == size)
        header += [f"one call, n = m = {size:,}", f"{calls:,} calls, n = m = {size:,}"]
    text = (
        f"**Procedures.** One compiled call, and many batched into one program, each drawing its own data "
        f"({result['detectors']} detectors or models, {result['knockoffs']} knockoffs; exchangeability: 50 shards of "
        f"{result['shuffles']} shuffles), on {machine['cores']} cores of {machine['processor']}, load average "
        f"{machine['load_average']:.1f} (`benchmarks/procedures.py`)."
    )
    return f"{text}\n\n{_table(header, rows)}"


def _scoring(result: Results) -> str:
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


_MEASURED: dict[str, Callable[[Results], str]] = {
    "bench": _bench,
    "bench_gpu": _bench,
    "scoring": _scoring,
    "procedures": _procedures,
    "parity": _parity,
    "families": _families,
    "gradients": _gradients,
    "probe": _probe,
    "exchange_tests": order_tables.tests,
    "exchange": order_tables.speed,
    **{f"reproductions/{place.parent.name}/results": order_tables.reproduction for place in _REPRODUCTIONS},
    "leak": leak_tables.leak,
    "score_leak": leak_tables.score_leak,
    "wikimia_audit": _wikimia,
    "arxivtection_ktd": _arxivtection,
    "paraphrased_ktd": _paraphrased,
    "booktection_study": _booktection,
    "booktection_estimates": _estimates,
    "booktection_combined": _combined,
    "jecs_synthetic": _joint_synthetic,
    "rules": _rules,
    "exact_null": _exact_null,
    "scores": _scores,
    "slices": slice_tables.slices,
    "device": device_tables.measured,
    "aot": device_tables.aot,
    "precision": device_tables.precision,
}
"""Name of a result -> its part of the page."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="update the pages")
    if parser.parse_args().write:
        for page in PAGES.values():
            page.write_text(updated(page.read_text("utf-8")), "utf-8")
    else:
        for section in SECTIONS.values():
            print(section(), end="\n\n")


if __name__ == "__main__":
    main()
