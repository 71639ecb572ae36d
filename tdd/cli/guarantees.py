"""`tdd guarantees` and `tdd study validity`: the claims, and their measurements."""

from __future__ import annotations

import argparse
from typing import Any

from tdd.cli.common import command, present, split
from tdd.cli.options import add_shard, say_done
from tdd.validate import InputError


def add(commands: Any) -> None:
    """Register `tdd guarantees`."""
    guarantees = command(commands, "guarantees", _guarantees, "what each procedure controls, under which assumptions")
    guarantees.add_argument("name", nargs="?", default="", help="only procedures with this in their name, as ptdi")
    guarantees.add_argument("--markdown", action="store_true", help="print the table in Markdown")


def add_validity(studies: Any) -> None:
    """Register `tdd study validity`."""
    validity = command(studies, "validity", _study_validity, "measure what is valid and what is not")
    validity.add_argument(
        "--repetitions", type=int, default=100_000, metavar="N", help="number for each claim (default: %(default)s)"
    )
    validity.add_argument("--only", action="append", metavar="NAMES", help="claims whose names begin with these")
    validity.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    validity.add_argument(
        "--out",
        metavar="FILE",
        help="write the measurements as JSON; shards leave theirs in a folder beside it",
    )
    add_shard(validity)


def _guarantees(arguments: argparse.Namespace) -> None:
    from tdd.procedures.procedure import all_guarantees
    from tdd.report import tables

    rows = [row for row in all_guarantees() if arguments.name in row.call]
    if not rows:
        known = sorted({row.call.removeprefix("tdd.") for row in all_guarantees()})
        raise InputError(f"no procedure has {arguments.name!r} in its name; known: {', '.join(known)}")
    report = tables.guarantee_report(rows)
    if arguments.markdown and not arguments.json:
        from tdd.report.page import to_markdown

        print(to_markdown(report), end="")
    else:
        record = [{"call": row.call, "option": row.option, "guarantee": row.guarantee} for row in rows]
        present(arguments, report, record=record, wide=True)


def _study_validity(arguments: argparse.Namespace) -> None:
    import pathlib
    import shutil

    from tdd.report import tables
    from tdd.runs.atomic import check_output_file
    from tdd.runs.display import progress_bar
    from tdd.runs.folder import to_json, versions
    from tdd.runs.shards import as_shard
    from tdd.study.claims import all_claims, choose, measure

    out = None if arguments.out is None else pathlib.Path(arguments.out)
    if out is not None:
        check_output_file(out, (".json",))
    claims = choose(all_claims(), split(arguments.only))
    shared = None if out is None else out.with_suffix(".rows")
    shard = as_shard(arguments.shard, shared, "--out")
    total = sum(shard is None or shard.owns(number) for number in range(len(claims)))
    with progress_bar("claims", total, enabled=not arguments.quiet, unit="claims") as advance:
        measured = measure(
            claims,
            repetitions=arguments.repetitions,
            seed=arguments.seed,
            folder=shared,
            shard=shard,
            on_done=lambda row: advance(1),
        )
    if shard is not None:
        say_done(arguments, shared)
        return
    rows = [row._asdict() for row in measured]
    result = {
        "command": f"tdd study validity --repetitions {arguments.repetitions} --seed {arguments.seed}",
        "versions": versions(),
        "repetitions": arguments.repetitions,
        "seed": arguments.seed,
        "claims": rows,
    }
    if out is not None:
        from tdd.runs.atomic import write_atomically

        write_atomically(out, to_json(result).encode())
        shutil.rmtree(out.with_suffix(".rows"), ignore_errors=True)
    present(arguments, tables.validity_report(rows), record=result, wide=True)
