"""Groups of options that several commands have: texts, scoring, device, decision."""

from __future__ import annotations

import argparse
from typing import Any

from tdd.cli.common import CommandParser

__all__ = ["add_decision", "add_device", "add_devices", "add_scoring", "add_store", "add_texts", "devices", "scoring"]


def add_texts(parser: argparse.ArgumentParser) -> None:
    """Add the options for reading files of texts."""
    group = parser.add_argument_group("texts")
    group.add_argument(
        "--text-field", metavar="FIELD", help="(default: text, or the only field that is known to hold texts)"
    )
    group.add_argument("--id-field", metavar="FIELD", help='(default: "id", else row numbers)')
    group.add_argument("--input-format", metavar="NAME", help="format of the files (default: by their extension)")


def add_scoring(parser: argparse.ArgumentParser, *, by_method: bool = False) -> None:
    """Add the options for scoring texts; `by_method`: the method of an audit has its own default for long texts."""
    group = parser.add_argument_group("scoring")
    group.add_argument("--reference", metavar="MODEL", help='second model, for the score "reference"')
    group.add_argument(
        "--dtype", choices=["float32", "bfloat16", "float16"], help="dtype of the parameters (default: as stored)"
    )
    group.add_argument("--token-budget", type=int, metavar="N", help="tokens per batch")
    group.add_argument("--max-length", type=int, metavar="N", help="longest window in tokens (default: the model's)")
    group.add_argument(
        "--long-texts",
        choices=["window", "truncate", "error"],
        default=None if by_method else "window",
        help="texts longer than that: score every token once in windows, cut them, or stop (default: "
        + ("truncate for ktd, window for the others" if by_method else "window")
        + "); the score grad_norm has no windows",
    )
    add_store(group, "beside the output, and removed when it is written" if not by_method else "scoring in --out")
    add_devices(group)


def add_store(group: Any, default: str) -> None:
    """Add the option for the score store."""
    group.add_argument(
        "--store",
        metavar="DIR",
        help="score store: texts in it are not scored again, by any command; who can write it can forge scores: share "
        f"it with people whom you trust (default: {default})",
    )


def add_devices(group: Any) -> None:
    """Add the options for devices and compiled programs."""
    add_device(group)
    group.add_argument(
        "--devices", metavar="N", help='number of devices, each with its own batches, or "all" (default: 1)'
    )
    group.add_argument(
        "--shard-params",
        action="store_true",
        help="divide the parameters over the devices: for models that do not fit on one",
    )
    group.add_argument(
        "--no-compilation-cache",
        action="store_true",
        help="do not keep compiled programs for later runs (by default in TDD_CACHE_DIR or the user's cache folder)",
    )


def add_device(parser: Any) -> None:
    """Add the option for a single device."""
    parser.add_argument("--device", metavar="NAME", help="cpu, gpu, tpu, gpu:1 (default: JAX's first)")


def scoring(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `add_scoring` as keywords; turns the compilation cache on unless it was declined."""
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


_METHODS = """\
options of the methods, the default first:
  --method NAME:option=value,option=value; several numbers with colons
  ptdi         proportion=storey, subtraction, moment or none;
               eta=0.05, the region of presumed non-members;
               unit=cluster, item or drawn (with --group-field)
  best_score   rule=deterministic or randomized (by --seed; more power)
  conditional  rule=simes, monte_carlo, dkwm or asymptotic;
               delta (default: --delta)
  weighted     rule=heterogeneous, homogeneous or deterministic
  ktd          rule=multi, derandomized, closed, conformal or ktd (the
               paper's); proportion=storey or none (conformal); offset=1 or 0
  td4eval      combine=pooled_rank (exact), cauchy (the paper's, no guarantee),
               hommel, e_values, ... (tdd guarantees); rule=sum or cauchy;
               weights=0.2:0.8, one for each detector, fixed beforehand
  jmcs         rule=bh, storey or by; eta=0.5
  jecs         grid=0.1:0.3:0.5, candidate edges of the envelope
"""


def add_decision(parser: CommandParser) -> None:
    """Add the options of a decision."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog, parser.rare_epilog = _METHODS, True
    group = parser.add_argument_group("decision")
    group.add_argument(
        "--alpha", type=float, default=0.1, help="level of the false discovery rate (default: %(default)s)"
    )
    group.add_argument(
        "--method",
        default="ptdi",
        metavar="NAME",
        help="ptdi, best_score (the best of several scores), conditional (valid for this calibration sample), weighted "
        "(known density ratios), ktd (find members); td4eval, jmcs, jecs (find clean items). Options follow a colon: "
        "ptdi:proportion=none,eta=0.1 (default: %(default)s); --help-all lists them",
    )
    group.add_argument(
        "--delta",
        type=float,
        default=0.05,
        help="the simultaneous bounds hold with confidence 1 - DELTA (default: %(default)s)",
    )
    group.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    group.add_argument("--members", metavar="FILE", help="known members, for ptdi:proportion=moment")
    group.add_argument("--null", choices=["nonmember", "member"], help="check that the method tests this null")
    group.add_argument("--out", metavar="DIR", help="run folder to write; an interrupted run continues there")
    group.add_argument(
        "--fail-on-detection",
        action="store_true",
        help="exit with status 1 if something is selected (with 3 if a check failed, with or without this option)",
    )
