"""Speed in words and tables: what is said of scoring beside its peers, the worst factor beside the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.audit_tables import Results, table

__all__ = ["extremes", "scoring", "speed"]

_MODELS = {
    "smollm2": "SmolLM2-135M, English documentation",
    "gpt2": "GPT-2-small's shape, random weights, random words",
}
_SCORES = {"loss": "loss", "two": "loss, min_k_plus_plus", "six": "six"}


def scoring(result: Results) -> str:
    """`python -m benchmarks throughput scoring --only score-`: a table for each model."""
    parts = [
        f"**Scoring (`{result['command']}`).** `tdd.score` on {_machine(result)}, load average "
        f"{result['machine']['load_average']:.1f}, jax {result['machine']['versions']['jax']}, torch "
        f"{result['machine']['versions']['torch']}, transformers {result['machine']['versions']['transformers']}, all "
        "with their default settings; torch with transformers' default attention (SDPA). Tokenizing is included. "
        "Torch's batches hold texts of neighbouring lengths, and form logits at real tokens only. Six: loss, zlib, "
        "min_k, min_k_plus_plus, m_entropy, max_renyi. "
        f"Medians over {result['rounds']} interleaved rounds; times below 1 say that "
        "the peer is faster. Share: of the flop/s of the library's own products of 1,024 tokens with the model's "
        "weights, measured in the same rounds. Compile: first call minus a warm one. Memory: rise of the resident "
        "memory in the first call. Difference: the largest from torch's scores in float64, relative."
    ]
    for row in result["scoring"]:
        if "details" in row:
            parts += _of_model(row)
    return "\n\n".join(parts)


def extremes(
    details: Mapping[str, Any], dtype: str, scores: str = "two"
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The fastest and the slowest form of the peers that computes these scores with weights of this type."""
    rows = [row for row in details["rows"] if (row["dtype"], row["scores"]) == (dtype, scores) and row["way"] != "tdd"]
    rows.sort(key=lambda row: row["time / tdd"])
    return rows[0], rows[-1]


def _with_peers(details: Mapping[str, Any]) -> list[str]:
    """Types of weights with which a peer was measured."""
    return list(dict.fromkeys(row["dtype"] for row in details["rows"] if row["way"] != "tdd"))


def speed(bench: Results, results: Sequence[Results], device: Results) -> str:
    """The paragraph of the first page: every factor with its processor and its peer."""
    splits = next(row for row in bench["studies"] if row["case"] == "ptdi-resample-775")
    known = [row for row in bench["kernels"] if "failed" not in row]
    ratio, peer, worst = min(
        ((peer["ratio"], name, row) for row in known for name, peer in row["peers"].items()), key=lambda found: found[0]
    )
    details = [next(row["details"] for row in one["scoring"] if row["case"] == "score-smollm2") for one in results]
    return (
        f"On {_machine(bench)}, PTDI on random splits of a pool of 775 texts makes {splits['per_s'] / 1e6:.1f} million "
        f"splits a second, {splits['ratios']['peer']:.0f} times as many as a loop over SciPy; the worst factor of a "
        f"kernel there is {ratio:.2f} times the speed of {peer} (`{worst['case']}`, {_size(worst)} items). `tdd.score` "
        f"(loss and Min-K%++ of {details[0]['texts']} texts under SmolLM2-135M) beside transformers with torch "
        f"{results[0]['machine']['versions']['torch']}: {'; '.join(map(_factors, results, details))}. "
        f"{_on_accelerator(device)}"
    )


def _factors(result: Results, details: Mapping[str, Any]) -> str:
    """Speed as a multiple of the fastest and of the slowest form of the peer on one machine, by type."""
    said = []
    for dtype in _with_peers(details):
        best, slowest = extremes(details, dtype)
        said.append(
            f"in {dtype} {best['time / tdd']:.2f} times as fast as its fastest form ({best['way']}) and "
            f"{slowest['time / tdd']:.2f} times as fast as its slowest ({slowest['way']})"
        )
    return f"on {_machine(result)} {', '.join(said)}"


def _on_accelerator(device: Results) -> str:
    """Splits a second, and the best and the worst factor beside torch's fastest ways."""
    rows = {row["program"]: row for row in device["rows"]}
    timed = [
        (way["peer / ours"], program, name)
        for program, row in rows.items()
        for name, way in (row.get("peer") or {}).items()
        if "seconds" in way
    ]
    fastest = [min(found for found in timed if found[1] == program) for program in dict.fromkeys(x[1] for x in timed)]
    best, worst = (f"{ratio:.2f} times ({program}; {name})" for ratio, program, name in (max(fastest), min(fastest)))
    return (
        f"On one {device['device']} PTDI makes {rows['resample 775']['rate'] / 1e6:.0f} million such splits a second, "
        f"and of {len(fastest)} programs beside the fastest form of torch the best runs {best} as fast, the worst "
        f"{worst}."
    )


def _size(row: Mapping[str, Any]) -> str:
    return f"{row['items']:,}" if row["batch"] is None else f"{row['batch']:,} × {row['items']:,}"


def _machine(result: Results) -> str:
    on = result["machine"]
    sets = f" ({', '.join(on['instruction_sets'])})" if on.get("instruction_sets") else ""
    return f"{on['cores']} cores of {on['processor']}{sets}"


def _of_model(row: Mapping[str, Any]) -> list[str]:
    details = row["details"]
    rates = ", ".join(f"{name.replace(',', ' in')} {rate:,.0f}" for name, rate in details["product GFLOP/s"].items())
    padding = ", ".join(f"{name.replace(',', ' in')} {share:.2f}" for name, share in details["padding share"].items())
    bounds = ", ".join(f"{name} {bound:.0e}" for name, bound in details["bounds"].items())
    skipped = "".join(f" {name}: {why}." for name, why in row["skipped"].items())
    cells = [
        [
            one["dtype"],
            one["way"],
            _SCORES[one["scores"]],
            f"{one['texts/s']:.2f}",
            "" if one["way"] == "tdd" else f"{one['time / tdd']:.2f}×",
            f"{one['share of products']:.2f}",
            f"{one['compile_s']:.1f} s" if one["way"].startswith(("tdd", "torch.compile")) else "",
            "" if one["peak_bytes"] is None else f"{one['peak_bytes'] / 2**20:,.0f} MiB",
            f"{one['largest error']:.0e}",
        ]
        for one in details["rows"]
    ]
    header = ["weights", "way", "scores", "texts/s", "time / tdd's", "share", "compile", "memory", "difference"]
    said = []
    for dtype in _with_peers(details):
        for few in ("two", "six"):
            best, worst = extremes(details, dtype, few)
            said.append(
                f"{dtype}, {_SCORES[few]}: {best['time / tdd']:.2f}× the fastest form ({best['way']}), "
                f"{worst['time / tdd']:.2f}× the slowest ({worst['way']})"
            )
    return [
        f"*{_MODELS[details['run']]}*: {details['texts']} texts of WikiMIA's lengths, {details['tokens']:,} tokens. "
        f"Products, GFLOP/s: {rates}. Padding share: {padding}. Differences were allowed up to: {bounds} (the second "
        f"from the roundings of every layer, of 2^-8 each).{skipped}",
        table(header, cells),
        f"Speed of `tdd` as a multiple of torch's. {'. '.join(said)}.",
    ]
