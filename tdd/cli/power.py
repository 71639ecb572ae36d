"""`tdd power`: what an audit may expect, before GPU time is spent on it."""

from __future__ import annotations

import argparse
from typing import Any

from tdd.cli.common import command, console, names, print_json, split
from tdd.cli.options import add_device
from tdd.cores import set_host_device_count

__all__ = ["add"]

_EPILOG = """\
examples:
  tdd power scores.csv --score min_k --label-field label --n 500,2000 --m 1000 --share 0.01,0.05,0.2 --alpha 0.05,0.1
  tdd power scores.csv --truth truth.csv --score loss --n 500 --m 500
  tdd power labrun --score min_k_plus_plus --out plans/first
  tdd power --auc 0.8 --n 1000 --m 1000
  tdd power exchange-run --test combined,e_process
  tdd power --effect 0.5 --shards 10,50 --shuffles 10,50 --shard-tokens 600
"""


def add(commands: Any) -> None:
    """Register the command."""
    power = command(commands, "power", _run, "what an audit may expect to find, before it is run")
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
    power.add_argument("--repetitions", type=int, metavar="N", help="simulated audits a row (default: by cost)")
    power.add_argument("--seed", type=int, default=0, help="of everything random (default: %(default)s)")
    power.add_argument("--no-search", action="store_true", help="leave the smallest detectable share or effect out")
    power.add_argument("--out", metavar="DIR", help="write power.json, power.csv and figure.png")
    power.add_argument("--format", metavar="NAME", help="format of the table, where its ending does not tell")
    power.add_argument("--no-compilation-cache", action="store_true", help="keep no compiled programs for the next run")
    _add_audit(power.add_argument_group("an audit"))
    _add_table(power.add_argument_group("scores with known labels"))
    _add_exchange(power.add_argument_group("a test of canonical order"))


def _add_audit(group: Any) -> None:
    group.add_argument("--n", metavar="SIZES", action="append", help="calibration items, repeated or comma-separated")
    group.add_argument("--m", metavar="SIZES", action="append", help="candidates, likewise")
    group.add_argument(
        "--share", metavar="SHARES", action="append", help="members among the candidates, as 0.05; likewise"
    )
    group.add_argument("--method", default="ptdi", metavar="NAME", help="ptdi, bh, td4eval, ktd (default: %(default)s)")
    group.add_argument("--proportion", metavar="NAME", help="ptdi: storey, subtraction, none (default: storey)")
    group.add_argument("--combine", metavar="NAME", help="td4eval (default: pooled_rank)")
    group.add_argument("--rule", metavar="NAME", help="ktd: multi, derandomized, ktd (default: multi)")
    group.add_argument("--null", choices=["nonmember", "member"], help="which items calibrate, for --method bh")
    group.add_argument(
        "--detection",
        type=float,
        default=0.8,
        metavar="P",
        help="wanted probability of at least one right selection (default: %(default)s)",
    )
    group.add_argument(
        "--draw",
        choices=["auto", "without", "smoothed"],
        default="auto",
        help="out of the pool: without replacement where it suffices, else from a smoothed pool; or always one of the "
        "two (default: %(default)s)",
    )
    group.add_argument("--auc", type=float, metavar="A", help="no scores at all: normal ones of this AUC")
    group.add_argument(
        "--sd-ratio", type=float, metavar="R", help="with --auc: sd of members' scores over non-members' (default: 1)"
    )


def _add_table(group: Any) -> None:
    group.add_argument(
        "--score", action="append", metavar="COLUMNS", help="score columns, or scores to compute for a laboratory run"
    )
    group.add_argument("--label-field", metavar="COLUMN", help='known truth, 1 member, 0 not (default: "label")')
    group.add_argument("--truth", metavar="FILE", help="table with the labels, joined by id, if not in the table")
    group.add_argument("--knockoffs", action="append", metavar="COLUMNS", help="scores of the paraphrases, for ktd")
    group.add_argument(
        "--higher-is-member", action="store_true", help="higher values are more member-like, as log-probabilities are"
    )
    group.add_argument("--id-field", metavar="COLUMN", help='identifiers (default: "id", else row numbers)')
    group.add_argument(
        "--model", type=int, metavar="NUMBER", help="which model of a laboratory run with several, counted from 1"
    )
    add_device(group)


def _add_exchange(group: Any) -> None:
    group.add_argument(
        "--effect", type=float, metavar="D", help="gain of the canonical order in standard deviations of a shuffle"
    )
    group.add_argument(
        "--shifted-share", type=float, default=1.0, metavar="S", help="share of the shards that show it (default: 1)"
    )
    group.add_argument(
        "--law", default="normal", metavar="NAME", help="normal, exponential, lognormal (default: %(default)s)"
    )
    group.add_argument("--shards", action="append", metavar="COUNTS", help="(default: 10,20,50)")
    group.add_argument("--shuffles", action="append", metavar="COUNTS", help="(default: 5,20,50)")
    group.add_argument(
        "--test",
        action="append",
        metavar="NAMES",
        help="combined, rank_sum, exact, t, permutation, e_process (default: combined)",
    )
    group.add_argument("--shard-tokens", type=float, metavar="N", help="tokens of a shard, for the cost")
    group.add_argument("--data", metavar="NAME", help="which data set of a finished test")


def _run(arguments: argparse.Namespace) -> None:
    import pathlib

    from tdd.validate.errors import InputError

    set_host_device_count()
    from tdd.cli.compilation_cache import keep_compiled

    keep_compiled(not arguments.no_compilation_cache)
    sources = [arguments.source is not None, arguments.auc is not None, arguments.effect is not None]
    if sum(sources) != 1:
        raise InputError(
            "give one of: a SOURCE (table of scores with labels, laboratory run, finished test of canonical order), "
            "--auc A, --effect D"
        )
    source = None if arguments.source is None else pathlib.Path(arguments.source)
    if source is not None and not source.exists():
        raise InputError(f"there is no file or folder {source}")
    from tdd.study.power import sources as readers

    about_order = arguments.effect is not None or (source is not None and readers.is_exchange_run(source))
    plan = _of_order(arguments, source) if about_order else _of_audit(arguments, source)
    _show(arguments, plan, about_order)


def _of_audit(arguments: argparse.Namespace, source: Any) -> Any:
    from tdd.study.power.expected import expected_power
    from tdd.validate.errors import InputError

    options: dict[str, Any] = {
        "num_calibration": _numbers("--n", arguments.n, int),
        "num_tests": _numbers("--m", arguments.m, int),
        "member_share": _numbers("--share", arguments.share, float),
        "alpha": _numbers("--alpha", arguments.alpha, float) or 0.1,
        "power": 0.5 if arguments.power is None else arguments.power,
        "repetitions": arguments.repetitions,
    }
    options |= {name: getattr(arguments, name) for name in ("method", "proportion", "combine", "rule", "null")}
    options |= {"detection": arguments.detection, "draw": arguments.draw, "seed": arguments.seed}
    options |= {"search": not arguments.no_search, "progress": not arguments.quiet}
    if arguments.auc is not None:
        return expected_power(
            auc=arguments.auc, sd_ratio=1.0 if arguments.sd_ratio is None else arguments.sd_ratio, **options
        )
    if arguments.sd_ratio is not None:
        raise InputError("--sd-ratio is of --auc; a table has its own scores")
    labelled = _labelled(arguments, source)
    return expected_power(labelled.scores, labelled.is_member, source=labelled.name, **options)


def _labelled(arguments: argparse.Namespace, source: Any) -> Any:
    """Items with known labels, out of a table or a laboratory run."""
    import pathlib

    from tdd.study.power import sources
    from tdd.validate.errors import InputError

    knockoffs = split(arguments.knockoffs)
    if source.is_dir():
        if knockoffs or arguments.higher_is_member:
            raise InputError("--knockoffs and --higher-is-member are of a table of scores, not of a laboratory run")
        return sources.read_lab_run(
            source,
            scores=names(",".join(arguments.score)) if arguments.score else ["min_k_plus_plus"],
            model=arguments.model,
            truth=arguments.truth,
            label_field=arguments.label_field,
            out=None if arguments.out is None else pathlib.Path(arguments.out),
            device=arguments.device,
            progress=not arguments.quiet,
        )
    if arguments.model is not None:
        raise InputError("--model is of a laboratory run with several models; a table has scores of one")
    columns = [*split(arguments.score), *knockoffs]
    if arguments.higher_is_member and not columns:
        raise InputError("--higher-is-member needs --score, the columns whose sign it turns")
    if knockoffs and arguments.method != "ktd":
        raise InputError(f"--knockoffs are read by --method ktd, not by {arguments.method}")
    return sources.read_labelled(
        source,
        scores=columns,
        label_field=arguments.label_field,
        truth=arguments.truth,
        higher_is_member=arguments.higher_is_member,
        id_field=arguments.id_field,
        format=arguments.format,
    )


def _of_order(arguments: argparse.Namespace, source: Any) -> Any:
    from tdd.study.power.exchange import expected_exchange_power
    from tdd.study.power.sources import read_exchange_run

    options: dict[str, Any] = {
        "num_shards": _numbers("--shards", arguments.shards, int),
        "num_shuffles": _numbers("--shuffles", arguments.shuffles, int),
        "test": split(arguments.test) or "combined",
        "alpha": _numbers("--alpha", arguments.alpha, float) or 0.05,
        "power": 0.8 if arguments.power is None else arguments.power,
        "shifted_share": arguments.shifted_share,
        "seed": arguments.seed,
        "search": not arguments.no_search,
        "progress": not arguments.quiet,
    }
    options |= {} if arguments.repetitions is None else {"repetitions": arguments.repetitions}
    if source is None:
        return expected_exchange_power(
            effect=arguments.effect, law=arguments.law, shard_tokens=arguments.shard_tokens, **options
        )
    shards = read_exchange_run(source, arguments.data)
    tokens = shards.shard_tokens if arguments.shard_tokens is None else arguments.shard_tokens
    return expected_exchange_power(
        shards.canonical, shards.shuffled, source=shards.name, shard_tokens=tokens, **options
    )


def _show(arguments: argparse.Namespace, plan: Any, about_order: bool) -> None:
    import pathlib

    files: list[Any] = []
    if arguments.out is not None:
        from tdd.report.plots import power as plots
        from tdd.report.plots.sheet import save

        folder = pathlib.Path(arguments.out)
        files = plan.save(folder)
        files.append(folder / "figure.png")
        save((plots.exchange_sheet if about_order else plots.power_sheet)(plan), files[-1])
    if arguments.json:
        print_json({**plan.to_dict(), "files": [str(path) for path in files]})
        return
    from tdd.report.power import render_exchange, render_power

    screen = console(wide=True)
    screen.print((render_exchange if about_order else render_power)(plan))
    if files:
        screen.print(f"Written: {', '.join(str(path) for path in files)}", markup=False)


def _numbers(option: str, values: list[str] | None, kind: Any) -> Any:
    """Numbers out of repeated and comma-separated words; None where there are none."""
    from tdd.validate.errors import InputError

    try:
        return [kind(word) for word in split(values)] or None
    except ValueError as error:
        what = "whole numbers" if kind is int else "numbers"
        raise InputError(f"{option} must be {what}, got {', '.join(split(values))}") from error
