"""`tdd study`: the named Monte Carlo studies, and the measurement of claims."""

from __future__ import annotations

import argparse
import pathlib
import shlex
from typing import Any

from tdd.cli import guarantees
from tdd.cli.common import command, numbers, present, split
from tdd.cli.options import add_ray, add_shard, check_ray, ray_options, say_done
from tdd.cores import set_host_device_count
from tdd.study.named import STUDIES
from tdd.validate import InputError


def add(commands: Any) -> None:
    """Register the command with a command for each study."""
    study = command(commands, "study", _study_list, "Monte Carlo studies of error rates and power; alone: list them")
    studies = study.add_subparsers(metavar="STUDY", title="studies")
    for name, title in STUDIES.items():
        _add_study(command(studies, name, _study_named, f"{title.shows} ({title.figure})"), name)
    guarantees.add_validity(studies)


def _add_study(parser: argparse.ArgumentParser, name: str) -> None:
    parser.set_defaults(study=name)
    parser.add_argument("--repetitions", type=int, metavar="N", help="number for each cell (default: the study's own)")
    parser.add_argument(
        "--alpha", action="append", metavar="LEVELS", help="levels, repeated or comma-separated (default: the study's)"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    parser.add_argument(
        "--target-se", type=float, metavar="SE", help="stop a cell early once its standard errors are no larger"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="write results.parquet, results.csv, study.json, figures and report.html; an interrupted study continues "
        "there; shards leave their totals there",
    )
    parser.add_argument(
        "--figure-format", choices=["png", "svg"], default="png", help="format of figures (default: %(default)s)"
    )
    parser.add_argument("--devices", type=int, metavar="N", help="number of devices to run on (default: all)")
    add_shard(parser)
    add_ray(parser)
    group = parser.add_argument_group("a given score table, in place of synthetic data")
    group.add_argument("--table", metavar="FILE", help="table: .csv, .tsv, .parquet, .jsonl")
    group.add_argument(
        "--score", action="append", metavar="FIELDS", help="its score columns, repeated or comma-separated"
    )
    group.add_argument(
        "--label-field",
        action="append",
        metavar="FIELDS",
        help="known truth, 1 member, 0 not; for the jecs studies a column for each score column",
    )
    group.add_argument(
        "--knockoffs", action="append", metavar="FIELDS", help="scores of paraphrases (ktd) or of shuffles (exchange)"
    )
    group.add_argument(
        "--higher-is-member", action="store_true", help="higher values are more member-like, as log-probabilities are"
    )
    group.add_argument("--id-field", metavar="FIELD", help='identifiers (default: "id", else row numbers)')
    group.add_argument("--input-format", metavar="NAME", help="format of the table, if its ending does not tell")


def _study_list(arguments: argparse.Namespace) -> None:
    from tdd.report.study import list_report

    rows = [(name, title.shows, title.figure) for name, title in STUDIES.items()]
    rows.append(("validity", "what is valid and what is not, claim by claim", "the guarantees of all five papers"))
    record = [{"study": name, "shows": shows, "regenerates": figure} for name, shows, figure in rows]
    present(arguments, list_report(rows), record=record, wide=True)


def _study_named(arguments: argparse.Namespace) -> None:
    by_ray = check_ray(arguments)
    if arguments.devices is not None and arguments.devices < 1:
        raise InputError(f"--devices must be at least 1, got {arguments.devices}")
    set_host_device_count(arguments.devices)

    from tdd.cli.machine import keep_compiled
    from tdd.study import named
    from tdd.study.named.driver import run_named_study, run_shard

    keep_compiled()
    study = named.load(arguments.study)
    options = _options(arguments, study)
    if arguments.shard is not None:
        run_shard(study, options)
        say_done(arguments, options.folder)
        return
    command = shlex.join(["tdd", *arguments.typed])
    if by_ray:
        from tdd import on_ray

        outcome = on_ray.named_study(arguments.study, options, command=command, **ray_options(arguments))
    else:
        outcome = run_named_study(study, options, command=command)
    files = _write_figures(study, options, outcome.result, arguments.figure_format)
    from tdd.report.study import study_record, study_report

    record, report = study_record(outcome.result), study_report(outcome.result)
    present(arguments, report, record=record, folder=options.folder, files=files, wide=True)
    if not (outcome.computed or arguments.json or arguments.quiet):
        print("Read from an earlier run in this folder.")


def _options(arguments: argparse.Namespace, study: Any) -> Any:
    from tdd.study.named.record import StudyOptions, read_columns

    columns = None
    if arguments.table is not None:
        columns = read_columns(
            arguments.table,
            study.needs,
            scores=split(arguments.score),
            knockoffs=split(arguments.knockoffs),
            labels=split(arguments.label_field),
            higher_is_member=arguments.higher_is_member,
            id_field=arguments.id_field,
            format=arguments.input_format,
        )
    elif arguments.score or arguments.knockoffs or arguments.label_field or arguments.higher_is_member:
        raise InputError("--score, --knockoffs, --label-field and --higher-is-member are of a table: give --table FILE")
    return StudyOptions(
        repetitions=study.repetitions if arguments.repetitions is None else arguments.repetitions,
        alphas=tuple(numbers("--alpha", arguments.alpha, what="numbers between 0 and 1") or study.alphas),
        seed=arguments.seed,
        columns=columns,
        target_se=arguments.target_se,
        folder=None if arguments.out is None else pathlib.Path(arguments.out),
        shard=arguments.shard,
        devices=arguments.devices,
        progress=not arguments.quiet,
    )


def _write_figures(study: Any, options: Any, result: Any, format: str) -> list[Any]:
    """Draw into the folder of the study; every file there."""
    if options.folder is None:
        return []
    from tdd.report.plots import studies
    from tdd.report.plots.sheet import save

    files = [options.folder / name for name in ("results.parquet", "results.csv", "study.json")]
    drawn = studies.draw(result, study.figure, title=study.title, caption=study.describe(options))
    files.append(save(drawn, options.folder / f"figure.{format}"))
    if study.example is not None:
        example = study.example(options)
        files.append(save(studies.draw_example(example), options.folder / f"{example.kind}.{format}"))
    return files
