"""Groups of options that several commands have: texts, scoring, device, decision."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_decision", "add_device", "add_devices", "add_scoring", "add_store", "add_texts", "devices", "scoring"]


def add_texts(parser: argparse.ArgumentParser) -> None:
    """How files of texts are read."""
    group = parser.add_argument_group("texts")
    group.add_argument(
        "--text-field", metavar="FIELD", help="(default: text, or the only field that is known to hold texts)"
    )
    group.add_argument("--id-field", metavar="FIELD", help='(default: "id", else row numbers)')
    group.add_argument("--format", help="format of the files, where their ending does not tell")


def add_scoring(parser: argparse.ArgumentParser, *, by_method: bool = False) -> None:
    """How a model scores texts; `by_method`: the method of an audit decides what becomes of long texts."""
    group = parser.add_argument_group("scoring")
    group.add_argument("--reference", metavar="MODEL", help='second model, for the score "reference"')
    group.add_argument(
        "--dtype", choices=["float32", "bfloat16", "float16"], help="of the parameters (default: as stored)"
    )
    group.add_argument("--token-budget", type=int, metavar="N", help="tokens a batch")
    group.add_argument("--max-length", type=int, metavar="N", help="longest window in tokens (default: the model's)")
    group.add_argument(
        "--long",
        "--long-texts",
        dest="long_texts",
        choices=["window", "truncate", "error"],
        default=None if by_method else "window",
        help="texts longer than that: score every token once in windows, cut them, or stop (default: "
        + ("truncate for ktd, window for the others" if by_method else "window")
        + "); the score grad_norm has no windows",
    )
    add_store(group, "beside the output, and removed when it is written" if not by_method else "scoring in --out")
    add_devices(group)


def add_store(group: Any, default: str) -> None:
    """Where what a model said of a text is kept."""
    group.add_argument(
        "--store",
        metavar="DIR",
        help="score store: texts in it are not scored again, by any command; who can write it can forge scores: share "
        f"it with people whom you trust (default: {default})",
    )


def add_devices(group: Any) -> None:
    """On which devices the model runs, and what is kept of its programs."""
    add_device(group)
    group.add_argument(
        "--devices", metavar="N", help='several devices, each with batches of its own: how many, or "all" (default: 1)'
    )
    group.add_argument(
        "--shard-params",
        action="store_true",
        help="each device holds a share of the parameters: for models that do not fit on one",
    )
    group.add_argument(
        "--no-compilation-cache",
        action="store_true",
        help="keep no compiled programs for the next run (kept in TDD_CACHE_DIR, else in the user's cache folder)",
    )


def add_device(parser: Any) -> None:
    """Where the model runs."""
    parser.add_argument("--device", metavar="NAME", help="cpu, gpu, tpu, gpu:1 (default: JAX's first)")


def scoring(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `add_scoring` as keywords. Turns the compilation cache on, unless the user does not want it."""
    return {
        "dtype": arguments.dtype,
        "token_budget": arguments.token_budget,
        "max_length": arguments.max_length,
        "long_texts": arguments.long_texts,
        "store": arguments.store,
        **devices(arguments),
    }


def devices(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `add_devices` as keywords; turns the compilation cache on as `scoring` does."""
    from tdd.cli.compilation_cache import keep_compiled

    keep_compiled(not arguments.no_compilation_cache)
    return {
        "device": arguments.device,
        "devices": arguments.devices,
        "shard_params": arguments.shard_params,
        "progress": not arguments.quiet,
    }


def add_decision(parser: argparse.ArgumentParser) -> None:
    """How scores become decisions."""
    group = parser.add_argument_group("decision")
    group.add_argument(
        "--alpha", type=float, default=0.1, help="level of the false discovery rate (default: %(default)s)"
    )
    group.add_argument(
        "--method",
        default="ptdi",
        metavar="NAME",
        help="ptdi, best_score (the best of several scores), conditional (valid for this calibration sample), weighted "
        "(known density ratios), ktd (find members); td4eval, jmcs, jecs (find clean items); with options as in "
        "ptdi:proportion=none,eta=0.1 (default: %(default)s)",
    )
    group.add_argument(
        "--combine",
        metavar="NAME",
        help="td4eval: pooled_rank (exact, the default), cauchy (the paper's, no guarantee), hommel, e_values, ...; "
        "see `tdd guarantees`",
    )
    group.add_argument(
        "--rule",
        metavar="NAME",
        help="ktd: multi (the default), derandomized, closed, conformal, ktd (the paper's); td4eval: sum (the "
        "default), cauchy; jmcs: bh (the default), storey, by; conditional: simes (the default), monte_carlo, dkwm, "
        "asymptotic; weighted: heterogeneous (the default), homogeneous, deterministic; best_score: deterministic (the "
        "default), randomized (by --seed: more power)",
    )
    group.add_argument("--weights", metavar="NUMBERS", help="weights of the detectors, fixed beforehand (td4eval)")
    group.add_argument("--grid", metavar="NUMBERS", help="candidate edges of the envelope (jecs)")
    group.add_argument(
        "--delta",
        type=float,
        default=0.05,
        help="the simultaneous bounds hold with confidence 1 - DELTA (default: %(default)s)",
    )
    group.add_argument("--seed", type=int, default=0, help="of everything random (default: %(default)s)")
    group.add_argument(
        "--proportion",
        metavar="NAME",
        help="how the share of members is estimated (ptdi): storey, subtraction, moment, none (default: storey)",
    )
    group.add_argument("--eta", type=float, help="region of presumed nulls (ptdi, default: 0.05; jmcs, default: 0.5)")
    group.add_argument("--members", metavar="FILE", help="known members, for --proportion moment")
    group.add_argument(
        "--null", choices=["nonmember", "member"], help="state the null; refused where the method tests another"
    )
    group.add_argument("--out", metavar="DIR", help="run folder to write; an interrupted run continues there")
    group.add_argument(
        "--fail-on-detection",
        action="store_true",
        help="exit status 1 where something is selected (3 where a check failed, with or without this)",
    )
