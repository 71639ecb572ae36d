"""The command line, `tdd COMMAND`. Heavy imports happen inside the commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from tdd import __version__
from tdd.bench import command as bench
from tdd.study.named import STUDIES

__all__ = ["main"]

_EXAMPLES = """\
examples:
  tdd demo
  tdd score ./gpt2 texts.jsonl --scores loss,min_k_plus_plus --out scores.csv
  tdd audit ./gpt2 --candidates suspects.jsonl --calibration fresh.jsonl --alpha 0.1 --out runs/first
  tdd select scores.csv --role-field role --score min_k --alpha 0.1
  tdd select scores.csv --method td4eval --score loss --score min_k --alpha 0.1
  tdd select gradients.csv --method ktd --score original --knockoffs b,c,d --alpha 0.1
  tdd report runs/first
  tdd guarantees
  tdd study ptdi-alpha --repetitions 1000000 --out studies/ptdi-alpha

Scores are loss-like: LOWER = MORE member-like. To find members (ptdi), calibration items are known NOT to be in the
training data; to find clean items (td4eval, jmcs, jecs) they are known to be in it.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status (0 done, 2 bad input, 130 interrupted)."""
    parser = _parser()
    typed = sys.argv[1:] if argv is None else [*argv]
    arguments = parser.parse_args(typed)
    arguments.typed = typed
    if not hasattr(arguments, "run"):
        parser.print_help()
        return 0
    from tdd.validate.errors import InputError

    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that torch is absent is no news here
    _set_logging(arguments)
    try:
        arguments.run(arguments)
    except InputError as error:
        print(f"tdd {arguments.command}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = getattr(arguments, "out", None) or getattr(arguments, "resume_dir", None)
        hint = "; run the same command again to continue" if kept else ""
        print(f"tdd {arguments.command}: interrupted{hint}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    return 0


# --- commands ---------------------------------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> None:
    from tdd.demo.run import run_demo
    from tdd.report import terminal

    files = None
    if arguments.retrain is not None:
        from tdd.demo.data import demo_files
        from tdd.demo.retrain import retrain

        files = retrain(arguments.retrain, progress=not arguments.quiet)
        same = _same_weights(files.checkpoint, demo_files().checkpoint)
        verdict = (
            "equal the packaged ones bit for bit" if same else "differ from the packaged ones (another machine rounds)"
        )
        print(f"retrained into {arguments.retrain}: the weights {verdict}", file=sys.stderr)
    demo = run_demo(files=files, out=arguments.out, device=arguments.device, progress=not arguments.quiet)
    if arguments.json:
        _print_json({"run": demo.audit.run, "table": demo.rows})
        return
    console = _console()
    terminal.print_report(demo.audit.run, demo.audit.items, console=console)
    console.print()
    console.print(terminal.demo_table(demo.rows))
    console.print(
        "Each row is one score chosen beforehand. The FDP of one run may lie above its level; what is controlled "
        "is its mean. The last two columns average 1,000 random divisions of the non-members into calibration "
        "and candidates."
    )


def _same_weights(first: Any, second: Any) -> bool:
    import filecmp

    return filecmp.cmp(first / "model.safetensors", second / "model.safetensors", shallow=False)


def _score(arguments: argparse.Namespace) -> None:
    import pathlib

    from tdd.audit.score import score
    from tdd.audit.score_table import ENDINGS, write_scores
    from tdd.texts import load_texts
    from tdd.validate import runs

    out = pathlib.Path(arguments.out)
    runs.check_output_file(out, ENDINGS)
    texts = load_texts(
        arguments.texts, text_field=arguments.text_field, id_field=arguments.id_field, format=arguments.format
    )
    table = score(
        arguments.model,
        texts,
        _names(arguments.scores),
        reference=arguments.reference,
        resume_dir=arguments.resume_dir or out.with_name(f".{out.name}.scoring"),
        **_scoring(arguments),
    )
    write_scores(table, out, keep_store=arguments.resume_dir is not None)
    summary = {"out": str(out), "texts": len(table), "scores": list(table.values), "provenance": dict(table.provenance)}
    if arguments.json:
        _print_json(summary)
    else:
        _console().print(f"{len(table)} texts, {', '.join(table.values)} → {out}", markup=False)


def _audit(arguments: argparse.Namespace) -> None:
    from tdd.audit.run import run_audit
    from tdd.texts import load_texts

    def texts(path: str | None, label_field: str | None = None) -> Any:
        if path is None:
            return None
        return load_texts(
            path,
            text_field=arguments.text_field,
            id_field=arguments.id_field,
            label_field=label_field,
            format=arguments.format,
        )

    def paraphrases(path: str | None) -> list[Any]:
        if path is None:
            return []
        return [
            load_texts(path, text_field=field, id_field=arguments.id_field, format=arguments.format)
            for field in _split(arguments.knockoffs)
        ]

    conformal = arguments.rule == "conformal" or arguments.calibration is not None
    audit = run_audit(
        arguments.model[0] if len(arguments.model) == 1 else arguments.model,
        texts(arguments.candidates, arguments.label_field),
        texts(arguments.calibration, arguments.label_field),
        alpha=arguments.alpha,
        score=_one_or_all(_names(",".join(arguments.score or ["min_k_plus_plus"]))),
        combine=arguments.combine,
        rule=arguments.rule,
        knockoffs=paraphrases(arguments.candidates),
        calibration_knockoffs=paraphrases(arguments.calibration) if conformal else [],
        delta=arguments.delta,
        also=_names(arguments.also) if arguments.also else (),
        method=arguments.method,
        proportion=arguments.proportion,
        eta=arguments.eta,
        members=texts(arguments.members),
        null=arguments.null,
        out=arguments.out,
        seed=arguments.seed,
        reference=arguments.reference,
        **_scoring(arguments),
    )
    _print_audit(arguments, audit)


def _select(arguments: argparse.Namespace) -> None:
    from tdd.audit.select import select

    columns = {
        "calibration": arguments.calibration,
        "members": arguments.members,
        "role_field": arguments.role_field,
        "calibration_role": arguments.calibration_role,
        "candidate_role": arguments.candidate_role,
        "member_role": arguments.member_role,
        "id_field": arguments.id_field,
        "label_field": arguments.label_field,
        "group_field": arguments.group_field,
        "format": arguments.format,
    }
    scores, knockoffs = _split(arguments.score), _split(arguments.knockoffs)
    if arguments.higher_is_member:
        if not scores:
            from tdd.validate.errors import InputError

            raise InputError("--higher-is-member needs --score, the columns whose sign it turns")
        columns["higher_is_member"] = tuple(dict.fromkeys((*scores, *knockoffs)))
    audit = select(
        arguments.table,
        alpha=arguments.alpha,
        score=_one_or_all(scores) if scores else None,
        method=arguments.method,
        proportion=arguments.proportion,
        eta=arguments.eta,
        combine=arguments.combine,
        rule=arguments.rule,
        knockoffs=knockoffs,
        unit=arguments.unit,
        delta=arguments.delta,
        null=arguments.null,
        out=arguments.out,
        seed=arguments.seed,
        **columns,
    )
    _print_audit(arguments, audit)


def _report(arguments: argparse.Namespace) -> None:
    import pathlib

    from tdd.audit.run_folder import read_items, read_run
    from tdd.report import terminal

    folder = pathlib.Path(arguments.folder)
    run = read_run(folder)
    if arguments.json:
        _print_json(run)
        return
    terminal.print_report(run, read_items(folder), console=_console())


def _guarantees(arguments: argparse.Namespace) -> None:
    from tdd.methods.guarantees import all_guarantees
    from tdd.report import tables

    rows = all_guarantees()
    if arguments.json:
        _print_json([{"call": row.call, "option": row.option, "guarantee": row.guarantee} for row in rows])
    elif arguments.markdown:
        print(tables.markdown(tables.GUARANTEE_HEADER, tables.guarantee_rows(rows)))
    else:
        _console(wide=True).print(tables.guarantee_table(rows))


def _study_list(arguments: argparse.Namespace) -> None:
    from tdd.report.study_tables import list_table
    from tdd.study.named import STUDIES

    rows = [(name, title.shows, title.figure) for name, title in STUDIES.items()]
    rows.append(("validity", "what is valid and what is not, claim by claim", "the guarantees of all five papers"))
    if arguments.json:
        _print_json([{"study": name, "shows": shows, "regenerates": figure} for name, shows, figure in rows])
    else:
        _console(wide=True).print(list_table(rows))


def _study_named(arguments: argparse.Namespace) -> None:
    _set_host_devices(arguments.devices)
    import pathlib
    import shlex

    from tdd.report import study_plots, study_tables
    from tdd.study import named
    from tdd.study.named.driver import carry_out, verdict_rows
    from tdd.study.named.given import read_columns
    from tdd.study.named.record import Options
    from tdd.validate.errors import InputError

    study = named.load(arguments.study)
    columns = None
    if arguments.scores is not None:
        columns = read_columns(
            arguments.scores,
            study.needs,
            scores=_split(arguments.score),
            knockoffs=_split(arguments.knockoffs),
            labels=_split(arguments.label_field),
            higher_is_member=arguments.higher_is_member,
            id_field=arguments.id_field,
            format=arguments.table_format,
        )
    elif arguments.score or arguments.knockoffs or arguments.label_field or arguments.higher_is_member:
        raise InputError(
            "--score, --knockoffs, --label-field and --higher-is-member are of a table: give --scores FILE"
        )
    folder = None if arguments.out is None else pathlib.Path(arguments.out)
    options = Options(
        repetitions=study.repetitions if arguments.repetitions is None else arguments.repetitions,
        alphas=_levels(arguments.alpha) or study.alphas,
        seed=arguments.seed,
        columns=columns,
        target_se=arguments.target_se,
        folder=folder,
        devices=arguments.devices,
        progress=not arguments.quiet,
    )
    result, computed = carry_out(study, options, command=shlex.join(["tdd", *arguments.typed]))
    files = []
    if folder is not None:
        drawn = study_plots.draw(result, study.figure, title=study.title, caption=study.design(options))
        files = [folder / name for name in ("results.parquet", "results.csv", "study.json")]
        files.append(study_plots.write(drawn, folder / f"figure.{arguments.format}"))
        if study.example is not None:
            example = study.example(options)
            drawn = study_plots.draw_example(example, title=f"{study.title}: one draw")
            files.append(study_plots.write(drawn, folder / f"{example.kind}.{arguments.format}"))
    rows = verdict_rows(study, options, result)
    if arguments.json:
        about = {"study": study.name, "title": study.title, "design": study.design(options), "seconds": result.seconds}
        _print_json(about | {"provenance": result.provenance, "rows": rows, "files": [str(path) for path in files]})
        return
    console = _console(wide=True)
    console.print(study_tables.study_table(study.title, study.figure, tuple(result.cells[0]), rows))
    console.print(study_tables.time_line(result, computed=computed), markup=False)
    console.print(f"Design: {study.design(options)}.", markup=False)
    if files:
        console.print(f"Written: {', '.join(str(path) for path in files)}", markup=False)


def _study_validity(arguments: argparse.Namespace) -> None:
    import pathlib

    from tdd.audit.progress import progress_bar
    from tdd.audit.run_folder import to_json, versions
    from tdd.report import tables
    from tdd.study.validity import all_claims
    from tdd.study.validity.measure import choose, measure
    from tdd.validate import runs

    out = None if arguments.out is None else pathlib.Path(arguments.out)
    if out is not None:
        runs.check_output_file(out, (".json",))
    claims = choose(all_claims(), _split(arguments.only))
    with progress_bar("claims", len(claims), enabled=not arguments.quiet, unit="claims") as advance:
        measured = measure(
            claims,
            repetitions=arguments.repetitions,
            seed=arguments.seed,
            on_done=lambda row: advance(1),
        )
    rows = [row._asdict() for row in measured]
    result = {
        "command": f"tdd study validity --repetitions {arguments.repetitions} --seed {arguments.seed}",
        "versions": versions(),
        "repetitions": arguments.repetitions,
        "seed": arguments.seed,
        "claims": rows,
    }
    if out is not None:
        from tdd.atomic import write_atomically

        write_atomically(out, to_json(result).encode())
    if arguments.json:
        _print_json(result)
    else:
        _console(wide=True).print(tables.validity_table(rows))


def _set_host_devices(devices: int | None) -> None:
    """Before JAX starts: as many devices on the host as it has cores, unless XLA_FLAGS says how many."""
    if "jax" in sys.modules:
        return  # too late, and for somebody else to decide
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_force_host_platform_device_count" not in flags:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        wanted = cores if devices is None else devices
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={wanted}".strip()


def _print_audit(arguments: argparse.Namespace, audit: Any) -> None:
    if arguments.json:
        _print_json({**audit.run, "selected": list(audit.selected_ids)})
        return
    from tdd.report import terminal

    console = _console()
    terminal.print_report(audit.run, audit.items, console=console)
    if arguments.out:
        console.print(f"\nRun folder: {arguments.out} (run.json, items.csv, calibration.csv)", markup=False)


# --- arguments --------------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tdd",
        description="Which texts was a language model trained on? Answers with a controlled error rate.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tdd {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    demo = _command(commands, "demo", _demo, "audit the packaged model against the known truth")
    demo.add_argument(
        "--retrain",
        nargs="?",
        const="tdd-demo",
        metavar="DIR",
        help="first train the packaged model again, into DIR (minutes; default DIR: tdd-demo), and compare",
    )
    demo.add_argument("--out", metavar="DIR", help="write the run folder of the audit here")
    _add_device(demo)

    score = _command(commands, "score", _score, "score texts under a model")
    score.add_argument("model", help="checkpoint folder or hub id")
    score.add_argument("texts", help=".jsonl, .json, .csv, .parquet, .txt, or a folder of .txt files")
    score.add_argument(
        "--scores",
        default="loss,min_k_plus_plus",
        metavar="NAMES",
        help="comma-separated: loss, zlib, lowercase, reference, min_k, min_k_plus_plus, m_entropy, max_renyi; options "
        "after a colon, separated by semicolons: min_k:k=0.1 (default: %(default)s)",
    )
    score.add_argument("--out", required=True, metavar="FILE", help="table to write: .csv, .parquet or .jsonl")
    score.add_argument("--resume-dir", metavar="DIR", help="where finished batches are kept (default: beside FILE)")
    _add_texts(score)
    _add_scoring(score)

    audit = _command(commands, "audit", _audit, "texts and a model → selected members with a guarantee")
    audit.add_argument(
        "model", nargs="+", help="checkpoint folder or hub id; several for --method jmcs and --method jecs"
    )
    audit.add_argument("--candidates", required=True, metavar="FILE", help="texts to decide on")
    audit.add_argument(
        "--calibration",
        metavar="FILE",
        help="texts of the same kind for which the null holds: known NOT to be in the training data (ptdi), known to "
        "be in it (td4eval, jmcs, jecs); ktd needs none",
    )
    audit.add_argument(
        "--score",
        action="append",
        metavar="NAME",
        help="the score that decides (default: min_k_plus_plus); several, repeated or comma-separated, for td4eval",
    )
    audit.add_argument("--also", metavar="NAMES", help="further scores to store; they decide nothing")
    audit.add_argument(
        "--knockoffs",
        action="append",
        metavar="FIELDS",
        help="fields of FILE with paraphrases of each text, for --method ktd; repeated or comma-separated",
    )
    audit.add_argument(
        "--label-field", metavar="FIELD", help="known truth of candidates and calibration, 1 member, 0 not"
    )
    _add_decision(audit)
    _add_texts(audit)
    _add_scoring(audit)

    select = _command(commands, "select", _select, "a table of scores → selected members; no model needed")
    select.add_argument("table", help="scores, one row an item: .csv, .parquet, .jsonl")
    select.add_argument(
        "--score",
        action="append",
        metavar="COLUMNS",
        help="the column that decides; for td4eval, jmcs and jecs those of the detectors or models, repeated or "
        "comma-separated; needed where there are others",
    )
    select.add_argument(
        "--knockoffs",
        action="append",
        metavar="COLUMNS",
        help="columns with the scores of each item's knockoffs, for --method ktd; repeated or comma-separated",
    )
    select.add_argument("--higher-is-member", action="store_true", help="higher values are more member-like")
    select.add_argument("--calibration", metavar="FILE", help="table of the calibration items, if not rows of TABLE")
    select.add_argument(
        "--role-field", metavar="COLUMN", help='column of the roles in a single table (default: "role")'
    )
    select.add_argument("--calibration-role", default="calibration", metavar="WORD", help="(default: %(default)s)")
    select.add_argument("--candidate-role", metavar="WORD", help="without it every row of no other role is a candidate")
    select.add_argument("--member-role", metavar="WORD", help="known members, for --proportion moment")
    select.add_argument("--label-field", metavar="COLUMN", help="known truth, 1 member, 0 not, blank unknown")
    select.add_argument("--group-field", metavar="COLUMN", help="clusters of items, as the book of a passage")
    select.add_argument(
        "--unit",
        choices=["cluster", "item", "drawn"],
        help="what is decided on where --group-field names clusters (default: cluster)",
    )
    select.add_argument("--id-field", metavar="COLUMN", help='identifiers (default: "id", else row numbers)')
    select.add_argument("--format", help="format of the table, where its ending does not tell")
    _add_decision(select)

    report = _command(commands, "report", _report, "print the report of a finished run again")
    report.add_argument("folder", help="run folder")

    study = _command(commands, "study", _study_list, "Monte Carlo studies of error rates and power; alone: list them")
    studies = study.add_subparsers(metavar="STUDY", title="studies")
    for name, title in STUDIES.items():
        _add_study(_command(studies, name, _study_named, f"{title.shows} ({title.figure})"), name)
    validity = _command(studies, "validity", _study_validity, "measure what is valid and what is not")
    validity.add_argument(
        "--repetitions", type=int, default=100_000, metavar="N", help="for each claim (default: %(default)s)"
    )
    validity.add_argument("--only", action="append", metavar="NAMES", help="claims whose names begin so")
    validity.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    validity.add_argument("--out", metavar="FILE", help="write the measurements as JSON")

    bench.add(commands, _command)

    guarantees = _command(commands, "guarantees", _guarantees, "what each procedure controls, under which assumptions")
    guarantees.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    return parser


def _command(commands: Any, name: str, run: Any, summary: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=summary, description=summary[:1].upper() + summary[1:] + ".")
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar, errors only")
    parser.add_argument("-v", "--verbose", action="store_true", help="log what is being done")
    return parser


def _add_study(parser: argparse.ArgumentParser, name: str) -> None:
    parser.set_defaults(study=name)
    parser.epilog = "With the default repetitions it takes less than a minute on two cores."
    parser.add_argument("--repetitions", type=int, metavar="N", help="of each cell (default: the study's own)")
    parser.add_argument(
        "--alpha", action="append", metavar="LEVELS", help="levels, repeated or comma-separated (default: the study's)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default: %(default)s)")
    parser.add_argument(
        "--target-se", type=float, metavar="SE", help="stop a cell early once its standard errors are no larger"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="write results.parquet, results.csv, study.json and figures; an interrupted study continues there",
    )
    parser.add_argument("--format", choices=["png", "svg"], default="png", help="of the figures (default: %(default)s)")
    parser.add_argument(
        "--devices", type=int, metavar="N", help="share the repetitions out over N devices (default: all)"
    )
    group = parser.add_argument_group("a given score table, in place of synthetic data")
    group.add_argument("--scores", metavar="FILE", help="table: .csv, .parquet, .jsonl")
    group.add_argument(
        "--score", action="append", metavar="COLUMNS", help="its score columns, repeated or comma-separated"
    )
    group.add_argument(
        "--label-field",
        action="append",
        metavar="COLUMNS",
        help="known truth, 1 member, 0 not; for the jecs studies a column for each score column",
    )
    group.add_argument(
        "--knockoffs", action="append", metavar="COLUMNS", help="scores of paraphrases (ktd) or of shuffles (exchange)"
    )
    group.add_argument(
        "--higher-is-member", action="store_true", help="higher values are more member-like, as log-probabilities are"
    )
    group.add_argument("--id-field", metavar="COLUMN", help='identifiers (default: "id", else row numbers)')
    group.add_argument("--table-format", metavar="NAME", help="format of the table, where its ending does not tell")


def _add_decision(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("decision")
    group.add_argument(
        "--alpha", type=float, default=0.1, help="level of the false discovery rate (default: %(default)s)"
    )
    group.add_argument(
        "--method",
        default="ptdi",
        metavar="NAME",
        help="ptdi, ktd (find members); td4eval, jmcs, jecs (find clean items) (default: %(default)s)",
    )
    group.add_argument(
        "--combine",
        metavar="NAME",
        help="td4eval: pooled_rank (exact, the default), cauchy (the paper's, no guarantee), hommel, e_values, ...; "
        "see `tdd guarantees`",
    )
    group.add_argument(
        "--rule", metavar="NAME", help="ktd: multi (the default), derandomized, conformal, ktd (the paper's)"
    )
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
    group.add_argument("--eta", type=float, help="region of presumed non-members (ptdi; default: 0.05)")
    group.add_argument("--members", metavar="FILE", help="known members, for --proportion moment")
    group.add_argument(
        "--null", choices=["nonmember", "member"], help="state the null; refused where the method tests another"
    )
    group.add_argument("--out", metavar="DIR", help="run folder to write; an interrupted run continues there")


def _add_texts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("texts")
    group.add_argument("--text-field", default="text", metavar="FIELD", help="(default: %(default)s)")
    group.add_argument("--id-field", metavar="FIELD", help='(default: "id", else row numbers)')
    group.add_argument("--format", help="format of the files, where their ending does not tell")


def _add_scoring(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("scoring")
    group.add_argument("--reference", metavar="MODEL", help='second model, for the score "reference"')
    group.add_argument(
        "--dtype", choices=["float32", "bfloat16", "float16"], help="of the parameters (default: as stored)"
    )
    group.add_argument("--token-budget", type=int, metavar="N", help="tokens a batch")
    group.add_argument("--max-length", type=int, metavar="N", help="longest window in tokens (default: the model's)")
    group.add_argument(
        "--long-texts",
        choices=["window", "truncate"],
        default="window",
        help="score every token once in windows, or cut (default: %(default)s)",
    )
    _add_device(group)


def _add_device(parser: Any) -> None:
    parser.add_argument("--device", metavar="NAME", help="cpu, gpu, tpu, gpu:1 (default: JAX's first)")


def _scoring(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "dtype": arguments.dtype,
        "token_budget": arguments.token_budget,
        "max_length": arguments.max_length,
        "long_texts": arguments.long_texts,
        "device": arguments.device,
        "progress": not arguments.quiet,
    }


def _split(values: list[str] | None) -> list[str]:
    """Repeated and comma-separated names in one list."""
    return [name.strip() for value in values or () for name in value.split(",") if name.strip()]


def _levels(values: list[str] | None) -> tuple[float, ...]:
    """Levels out of repeated and comma-separated words."""
    try:
        return tuple(float(word) for word in _split(values))
    except ValueError as error:
        from tdd.validate.errors import InputError

        raise InputError(f"--alpha must be numbers between 0 and 1, got {', '.join(_split(values))}") from error


def _one_or_all(names: list[str]) -> Any:
    return names[0] if len(names) == 1 else names


def _names(text: str) -> list[str]:
    """ "loss,min_k:k=0.1;..." → names; semicolons separate the options of one score."""
    return [name.strip().replace(";", ",") for name in text.split(",") if name.strip()]


# --- output -----------------------------------------------------------------------------------------------------------


def _set_logging(arguments: argparse.Namespace) -> None:
    import logging

    level = logging.ERROR if arguments.quiet else logging.INFO if arguments.verbose else logging.WARNING
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    logging.getLogger("tdd").setLevel(level)
    logging.getLogger("tdd.findings").setLevel(logging.CRITICAL)  # the report says them


def _console(wide: bool = False) -> Any:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160 if wide else 100, highlight=False)


def _print_json(value: Any) -> None:
    from tdd.audit.run_folder import to_json

    sys.stdout.write(to_json(value))


if __name__ == "__main__":
    sys.exit(main())
