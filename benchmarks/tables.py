"""The tables of the pages, generated from the code's guarantee records and from results/*.json.

python -m benchmarks.tables           # print
python -m benchmarks.tables --write   # put them into their pages, between their markers
"""

from __future__ import annotations

import argparse
import json
import pathlib
from collections.abc import Callable

from benchmarks import audit_tables, device_tables, field, leak_tables, order_tables, score_tables, slice_tables
from benchmarks.audit_tables import Results, table
from benchmarks.throughput import report
from tdd.procedures.procedure import all_differences, all_guarantees
from tdd.report import tables
from tdd.report.page import markdown_table

RESULTS = pathlib.Path(__file__).parent / "results"
ROOT = pathlib.Path(__file__).parents[1]
PAGES = {
    "guarantees": ROOT / "tdd" / "procedures" / "README.md",
    "differences": ROOT / "tdd" / "procedures" / "README.md",
    "validity": ROOT / "tdd" / "study" / "README.md",
    "measured": ROOT / "benchmarks" / "README.md",
    "speed": ROOT / "README.md",
    "field": ROOT / "tdd" / "models" / "README.md",
}
_REPRODUCTIONS = sorted((RESULTS / "reproductions").glob("*/results.json"))


def guarantees() -> str:
    """Every guarantee record."""
    own = [row for row in all_guarantees() if row.call.startswith("tdd.")]
    rows = [(f"`{call}`", *rest) for call, *rest in tables.guarantee_rows(own)]
    return markdown_table(tables.GUARANTEE_HEADER, rows)


def differences() -> str:
    """Every place where a function departs from the paper that it implements."""
    rows = [
        (f"{it.paper}, {it.place}", it.theirs, f"`{it.call}`: {it.ours}", it.why)
        for it in sorted(all_differences(), key=lambda it: it.paper)
    ]
    return markdown_table(("paper", "there", "here", "why"), rows)


def validity() -> str:
    """What is valid and what is not, measured."""
    result = _load("validity")
    text = f"`{result['command']}`:"
    return f"{text}\n\n{markdown_table(tables.VALIDITY_HEADER, tables.validity_rows(result['claims']))}"


def measured() -> str:
    """Benchmarks and studies, in the order of the page; what was not measured is left out."""
    parts = [section(_load(name)) for name, section in _MEASURED.items() if (RESULTS / f"{name}.json").exists()]
    return "\n\n".join(parts)


def speed() -> str:
    """What the first page says of speed."""
    scoring = [_load(name) for name in ("scoring", "scoring_epyc", "scoring_zen4")]
    return score_tables.speed(_load("bench"), scoring, _load("device"))


SECTIONS: dict[str, Callable[[], str]] = {
    "guarantees": guarantees,
    "differences": differences,
    "validity": validity,
    "measured": measured,
    "speed": speed,
    "field": lambda: field.section(_load("field")),
}


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


def _bench(result: Results) -> str:
    """The tables of `python -m benchmarks throughput --out benchmarks/results/bench.json`."""
    parts = [f"**`{result['command']}`.** {report.note(result)}"]
    if result.get("studies"):
        parts.append(table(list(report.STUDY_HEADER), report.study_rows(result["studies"])))
    rows = [row for suite in ("kernels", "scoring") for row in result.get(suite, ())]
    if rows:
        parts.append(table(list(report.CASE_HEADER), report.case_rows(rows)))
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
    return f"{text}\n\n{table(['configuration', 'max abs. difference'], rows)}"


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
    return f"{text}\n\n{table(header, rows)}"


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
    return f"{text}\n\n{table(header, rows)}"


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
    return f"{text}\n\n{table(header, rows)}"


def _times(count: int) -> str:
    return (
        "nothing was" if not count else f"{count} program{'' if count == 1 else 's'} {'was' if count == 1 else 'were'}"
    )


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
    return f"{text}\n\n{table(header, rows)}"


_MEASURED: dict[str, Callable[[Results], str]] = {
    "bench": _bench,
    "bench_epyc": _bench,
    "bench_gpu": _bench,
    "scoring": score_tables.scoring,
    "scoring_epyc": score_tables.scoring,
    "scoring_zen4": score_tables.scoring,
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
    "preparation": audit_tables.preparation,
    "wikimia_audit": audit_tables.wikimia,
    "arxivtection_ktd": audit_tables.arxivtection,
    "paraphrased_ktd": audit_tables.paraphrased,
    "booktection_study": audit_tables.booktection,
    "booktection_estimates": audit_tables.estimates,
    "booktection_combined": audit_tables.combined,
    "jecs_synthetic": audit_tables.joint_synthetic,
    "training_sets": audit_tables.training_sets,
    "rules": audit_tables.rules,
    "exact_null": audit_tables.exact_null,
    "scores": audit_tables.scores,
    "pretrained": audit_tables.pretrained,
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
