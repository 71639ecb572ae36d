"""`tdd power`: what an audit may expect, before GPU time is spent on it."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from typing import Any

from tdd.cli.common import command, names, numbers, present, split
from tdd.cli.options import add_device
from tdd.cores import set_host_device_count
from tdd.validate import InputError

_EPILOG = """\
examples:
  tdd power scores.csv --score min_k --label-field label --n 500,2000 \\
      --m 1000 --fraction 0.01,0.05,0.2 --alpha 0.05,0.1
  tdd power scores.csv --truth truth.csv --score loss --n 500 --m 500
  tdd power labrun --score min_k_plus_plus --out plans/first
  tdd power --auc 0.8 --n 1000 --m 1000
  tdd power exchange-run --test combined,e_process
  tdd power --effect 0.5 --shards 10,50 --shuffles 10,50 --shard-tokens 600
  tdd power --effect 0.5 --documents 16,64 --versions 19 --test rank_sum
"""


def add(commands: Any) -> None:
    """Register the command."""
    power = command(
        commands,
        "power",
        _run,
        "what an audit may expect to find, before it is run",
        usual=(
            "--alpha",
            "--method",
            "--n",
            "--m",
            "--fraction",
            "--auc",
            "--score",
            "--label-field",
            "--effect",
            "--shards",
            "--shuffles",
            "--out",
        ),
    )
    power.formatter_class = argparse.RawDescriptionHelpFormatter
    power.epilog = _EPILOG
    power.add_argument(
        "source",
        nargs="?",
        help="a table of scores with known labels, a laboratory run (its texts are scored where it has no scores.csv), "
        "or a finished test of canonical order; without it give --auc or --effect",
    )
    power.add_argument("--alpha", metavar="LEVELS", action="append", help="(default: 0.1; canonical order: 0.05)")
    power.add_argument(
        "--power", type=float, metavar="P", help="wanted expected power (default: 0.5; canonical order: 0.8)"
    )
    power.add_argument("--repetitions", type=int, metavar="N", help="simulated audits per row (default: by cost)")
    power.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    power.add_argument("--no-search", action="store_true", help="leave the smallest detectable fraction or effect out")
    power.add_argument("--out", metavar="DIR", help="write power.json, power.csv, figure.png and report.html")
    power.add_argument("--no-compilation-cache", action="store_true", help="keep no compiled programs for the next run")
    _add_audit(power.add_argument_group("an audit"))
    _add_table(power.add_argument_group("scores with known labels"))
    _add_exchange(
        power.add_argument_group(
            "a test of canonical order",
            "or of `tdd versions`: documents are shards, private versions shuffles",
        )
    )


def _add_audit(group: Any) -> None:
    group.add_argument("--n", metavar="SIZES", action="append", help="calibration items, repeated or comma-separated")
    group.add_argument("--m", metavar="SIZES", action="append", help="candidates, likewise")
    group.add_argument(
        "--fraction", metavar="FRACTIONS", action="append", help="members among the candidates, as 0.05; likewise"
    )
    group.add_argument(
        "--method",
        default="ptdi",
        metavar="NAME",
        help="ptdi, td4eval, ktd and other procedures of `tdd audit`, with options as in ptdi:proportion=none,eta=0.1; "
        "bh or bh:null=member (default: %(default)s)",
    )
    group.add_argument(
        "--detection",
        type=float,
        default=0.8,
        metavar="P",
        help="wanted probability of at least one right selection (default: %(default)s)",
    )
    group.add_argument("--auc", type=float, metavar="A", help="no scores at all: normal ones of this AUC")
    group.add_argument(
        "--sd-ratio", type=float, metavar="R", help="with --auc: sd of members' scores over non-members' (default: 1)"
    )


def _add_table(group: Any) -> None:
    group.add_argument(
        "--score", action="append", metavar="FIELDS", help="score columns, or scores to compute for a laboratory run"
    )
    group.add_argument("--label-field", metavar="FIELD", help='known truth, 1 member, 0 not (default: "label")')
    group.add_argument("--truth", metavar="FILE", help="table with the labels, joined by id, if not in the table")
    group.add_argument("--knockoffs", action="append", metavar="FIELDS", help="scores of the paraphrases, for ktd")
    group.add_argument(
        "--higher-is-member", action="store_true", help="higher values are more member-like, as log-probabilities are"
    )
    group.add_argument("--id-field", metavar="FIELD", help='identifiers (default: "id", else row numbers)')
    group.add_argument("--input-format", metavar="NAME", help="format of the table, where its ending does not tell")
    group.add_argument(
        "--draw",
        choices=["auto", "without", "smoothed"],
        default="auto",
        help="draw items without replacement where they suffice, else from a smoothed pool; or always one of the two "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--model-number", type=int, metavar="N", help="which model of a laboratory run with several, counted from 1"
    )
    add_device(group)


def _add_exchange(group: Any) -> None:
    group.add_argument(
        "--effect", type=float, metavar="D", help="gain of the canonical order in standard deviations of a shuffle"
    )
    group.add_argument(
        "--shifted-fraction",
        type=float,
        default=1.0,
        metavar="S",
        help="fraction of the shards that show it (default: 1)",
    )
    group.add_argument(
        "--law", default="normal", metavar="NAME", help="normal, exponential, lognormal (default: %(default)s)"
    )
    group.add_argument("--shards", "--documents", action="append", metavar="COUNTS", help="(default: 10,20,50)")
    group.add_argument("--shuffles", "--versions", action="append", metavar="COUNTS", help="(default: 5,20,50)")
    group.add_argument(
        "--test",
        action="append",
        metavar="NAMES",
        help="combined, rank_sum, exact, t, permutation, e_process (default: combined)",
    )
    group.add_argument("--shard-tokens", type=float, metavar="N", help="tokens of a shard, for the cost")
    group.add_argument("--data", metavar="NAME", help="which data set of a finished test")


def _run(arguments: argparse.Namespace) -> None:
    set_host_device_count()
    from tdd.cli.machine import keep_compiled

    keep_compiled(not arguments.no_compilation_cache)
    if sum(source is not None for source in (arguments.source, arguments.auc, arguments.effect)) != 1:
        raise InputError(
            "give one of: a SOURCE (table of scores with labels, laboratory run, finished test of canonical order), "
            "--auc A, --effect D"
        )
    path = pathlib.Path(arguments.source) if arguments.source is not None else None
    if path is not None and not path.exists():
        raise InputError(f"there is no file or folder {path}")
    from tdd.study.power.read import is_exchange_run

    about_order = arguments.effect is not None or (path is not None and is_exchange_run(path))
    options = {
        "alpha": numbers("--alpha", arguments.alpha),
        "power": arguments.power,
        "repetitions": arguments.repetitions,
        "seed": arguments.seed,
        "search": not arguments.no_search,
        "progress": not arguments.quiet,
    }
    _show(arguments, (_plan_of_order if about_order else _plan_of_audit)(arguments, path, options), about_order)


def _given(**options: Any) -> dict[str, Any]:
    """The options that the command line gives."""
    return {name: value for name, value in options.items() if value is not None}


def _plan_of_audit(arguments: argparse.Namespace, path: Any, options: dict[str, Any]) -> Any:
    from tdd.study.power.expected import expected_power
    from tdd.study.power.scores import NormalScores

    if arguments.auc is not None:
        source: Any = NormalScores(arguments.auc, **_given(sd_ratio=arguments.sd_ratio))
    elif arguments.sd_ratio is not None:
        raise InputError("--sd-ratio is of --auc; a table has its own scores")
    else:
        source = _labelled(arguments, path)
    return expected_power(
        source,
        num_calibration=numbers("--n", arguments.n, int, "whole numbers"),
        num_tests=numbers("--m", arguments.m, int, "whole numbers"),
        member_share=numbers("--fraction", arguments.fraction),
        method=arguments.method,
        detection=arguments.detection,
        **_given(**options),
    )


def _labelled(arguments: argparse.Namespace, path: Any) -> Any:
    """Items with known labels, from a table or a laboratory run."""
    from tdd.study.power.read import read_lab_run, read_labelled

    knockoffs, higher = split(arguments.knockoffs), arguments.higher_is_member
    shared = {"truth": arguments.truth, "label_field": arguments.label_field}
    if path.is_dir():
        if knockoffs or higher:
            raise InputError("--knockoffs and --higher-is-member are of a table of scores, not of a laboratory run")
        source = read_lab_run(
            path,
            scores=names(",".join(arguments.score)) if arguments.score else ["min_k_plus_plus"],
            model=arguments.model_number,
            out=None if arguments.out is None else pathlib.Path(arguments.out),
            device=arguments.device,
            progress=not arguments.quiet,
            **shared,
        )
        return dataclasses.replace(source, draw=arguments.draw)
    if arguments.model_number is not None:
        raise InputError("--model-number is of a laboratory run with several models; a table has scores of one")
    columns = [*split(arguments.score), *knockoffs]
    if higher and not columns:
        raise InputError("--higher-is-member needs --score, the columns whose sign it turns")
    if knockoffs and arguments.method.partition(":")[0] != "ktd":
        raise InputError(f"--knockoffs are read by --method ktd, not by {arguments.method}")
    table = {"id_field": arguments.id_field, "format": arguments.input_format}
    source = read_labelled(path, scores=columns, higher_is_member=higher, **table, **shared)
    return dataclasses.replace(source, draw=arguments.draw)


def _plan_of_order(arguments: argparse.Namespace, path: Any, options: dict[str, Any]) -> Any:
    from tdd.study.power.exchange import expected_exchange_power
    from tdd.study.power.read import read_exchange_run
    from tdd.study.power.shards import ShardEffect

    tokens = _given(shard_tokens=arguments.shard_tokens)
    if path is None:
        source: Any = ShardEffect(arguments.effect, arguments.law, **tokens)
    else:
        source = dataclasses.replace(read_exchange_run(path, arguments.data), **tokens)
    options |= {
        "num_shards": numbers("--shards", arguments.shards, int, "whole numbers"),
        "num_shuffles": numbers("--shuffles", arguments.shuffles, int, "whole numbers"),
        "test": split(arguments.test) or None,
    }
    return expected_exchange_power(source, shifted_share=arguments.shifted_fraction, **_given(**options))


def _show(arguments: argparse.Namespace, plan: Any, about_order: bool) -> None:
    files, folder = [], None
    if arguments.out is not None:
        from tdd.report.plots import power as plots
        from tdd.report.plots.sheet import save

        folder = pathlib.Path(arguments.out)
        files = [*plan.save(folder), folder / "figure.png"]
        save((plots.exchange_sheet if about_order else plots.power_sheet)(plan), files[-1])
    present(arguments, plan.report(), record=plan.to_dict(), folder=folder, files=files, wide=True)
