"""`tdd audit` and `tdd select`: decisions and their reports."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from tdd.cli.common import CHECK_FAILED, DETECTED, command, names, one_or_all, page_option, present, split
from tdd.cli.options import (
    add_decision,
    add_distributed,
    add_scoring,
    add_shard,
    add_texts,
    connect,
    leads,
    say_done,
    scoring,
)

_CALIBRATION = """\
which calibration texts?  Chance alone should have separated them from the
candidates: one source, one time, one preparation.
  a benchmark    items made with it and never published, in the same template
  books          passages of unpublished or later books, by --group-field
  code           repositories begun after the model's cut-off, copies removed
  news           articles held back at that time; later ones name other events
  own documents  a part drawn at random and kept back before you published
Texts from after a hub model's cut-off are unseen, but also of another time. If
the checks see that, no verdict is given (exit status 3). What helps then, with
examples: tdd/audit/README.md, "Which calibration texts?"."""


def add(commands: Any) -> None:
    """Register the commands."""
    _add_audit(commands)
    _add_select(commands)


def _add_audit(commands: Any) -> None:
    audit = command(
        commands,
        "audit",
        _audit,
        "texts and a model → selected members with a guarantee",
        usual=(
            "--candidates",
            "--calibration",
            "--lm-eval",
            "--flagged",
            "--calibration-flagged",
            "--alpha",
            "--method",
            "--score",
            "--text-field",
            "--images",
            "--group-field",
            "--label-field",
            "--out",
            "--device",
            "--fail-on-detection",
        ),
    )
    audit.description = f"{audit.description}\n\n{_CALIBRATION}"
    _add_items(audit)
    audit.add_argument(
        "--score",
        action="append",
        metavar="NAME",
        help="the score that decides (default: grad_norm for ktd, min_k_plus_plus for the others); several, repeated "
        "or comma-separated, for best_score, combined_score and td4eval",
    )
    audit.add_argument(
        "--images",
        metavar="COLUMN",
        help="decide on the images in this column of the tables (paths, or bytes in Parquet) under LLaVA-1.5; a score "
        'is then "NAME SLICE" (default: max_renyi:gamma=0.5,k=0.1 image), SLICE one of image, instruction, '
        "description, instruction+description",
    )
    audit.add_argument("--extra-scores", metavar="NAMES", help="further scores to store; they decide nothing")
    audit.add_argument(
        "--knockoffs",
        action="append",
        metavar="FIELDS",
        help="fields of the candidates' file (and of the calibration file) with the paraphrases of each text, for "
        "--method ktd; repeated or comma-separated",
    )
    audit.add_argument(
        "--paraphraser",
        metavar="MODEL",
        help="for --method ktd: a T5, or a model at --endpoint, that writes the paraphrases first; they are kept in "
        "the folder OUT-paraphrases, see tdd paraphrase",
    )
    audit.add_argument("--endpoint", metavar="URL", help="service of the paraphraser, as http://localhost:8000/v1")
    audit.add_argument("--api-key-variable", metavar="NAME", help="environment variable with the key of --endpoint")
    audit.add_argument(
        "--paraphrases",
        type=int,
        default=3,
        metavar="N",
        help="paraphrases per text, with --paraphraser (default: %(default)s)",
    )
    audit.add_argument(
        "--label-field", metavar="FIELD", help="known truth of candidates and calibration texts: 1 member, 0 not"
    )
    audit.add_argument(
        "--group-field",
        metavar="FIELD",
        help="clusters of texts, as the book of a passage; ptdi then selects clusters, or as its option unit says",
    )
    add_decision(audit)
    add_texts(audit)
    add_scoring(audit, by_method=True)
    add_shard(audit)
    add_distributed(audit)
    page_option(audit)


def _add_items(audit: Any) -> None:
    """What is audited, and on what."""
    audit.add_argument(
        "model", nargs="*", help="checkpoint folder, GGUF file or hub id; several for --method jmcs and --method jecs"
    )
    audit.add_argument("--candidates", metavar="FILE", help="texts to decide on")
    audit.add_argument(
        "--lm-eval",
        nargs="+",
        metavar="SAMPLES",
        help="no model: decide on the items in samples that lm-evaluation-harness logged (samples_*.jsonl, or a folder "
        "of them), by the log-probabilities there; --calibration, --members and reference:model=SAMPLES too. "
        "Scores: loss_per_byte (default), choice_loss, reference",
    )
    audit.add_argument(
        "--flagged",
        metavar="FILE",
        help="ids of the candidates that a decontamination tool flagged by n-grams: decide on these alone",
    )
    audit.add_argument(
        "--calibration-flagged",
        metavar="FILE",
        help="ids of the calibration texts that the same rule flagged; without them the verdict is withheld, unless "
        '"independent" asserts that flags are independent of the scores under the null',
    )
    audit.add_argument(
        "--calibration",
        metavar="FILE",
        help="texts of the same kind for which the null holds: known NOT to be in the training data (ptdi), known to "
        "be in it (td4eval, jmcs, jecs); ktd needs none",
    )


def _add_select(commands: Any) -> None:
    select = command(
        commands,
        "select",
        _select,
        "a table of scores → selected members; no model needed",
        usual=(
            "--score",
            "--knockoffs",
            "--role-field",
            "--calibration",
            "--higher-is-member",
            "--alpha",
            "--method",
            "--group-field",
            "--label-field",
            "--out",
            "--fail-on-detection",
        ),
    )
    select.add_argument("table", help="scores, one row per item: .csv, .tsv, .parquet, .jsonl")
    select.add_argument(
        "--score",
        action="append",
        metavar="FIELDS",
        help="the column that decides; for the methods that take several those of the detectors or models, repeated or "
        "comma-separated; a semicolon stands for a comma in a name (default: the only score column)",
    )
    select.add_argument(
        "--knockoffs",
        action="append",
        metavar="FIELDS",
        help="columns with the scores of each item's knockoffs, for --method ktd; repeated or comma-separated",
    )
    select.add_argument(
        "--results",
        action="append",
        metavar="FIELDS",
        help="results of several models on each candidate, higher = better, for --method td4eval: the report ranks the "
        "models on all candidates and on the clean ones; repeated or comma-separated",
    )
    select.add_argument("--weight-field", metavar="FIELD", help="density ratio of each item, for --method weighted")
    select.add_argument(
        "--split-field",
        metavar="FIELD",
        help="1 for the calibration items from which td4eval:combine=split_weights learns (default: half of them, "
        "drawn)",
    )
    select.add_argument("--higher-is-member", action="store_true", help="higher values are more member-like")
    select.add_argument(
        "--calibration", metavar="FILE", help="table of the calibration items, if they are not in TABLE"
    )
    select.add_argument("--role-field", metavar="FIELD", help='column of the roles in a single table (default: "role")')
    select.add_argument("--calibration-role", metavar="WORD", help="(default: calibration)")
    select.add_argument(
        "--candidate-role",
        metavar="WORD",
        help="(default: candidate; with --calibration-role, every row without another role)",
    )
    select.add_argument(
        "--member-role",
        metavar="WORD",
        help="known members, for proportion=moment or moment_paper (ptdi, ktd) and combined_score:learn_from=members",
    )
    select.add_argument(
        "--nonmember-role",
        metavar="WORD",
        help="known clean items, for --results: the report ranks the models also on what the threshold of the highest "
        "accuracy keeps, a detector at a time; no error rate of these rows is controlled",
    )
    select.add_argument("--label-field", metavar="FIELD", help="known truth: 1 member, 0 not, blank unknown")
    select.add_argument(
        "--group-field",
        metavar="FIELD",
        help="clusters of items, as the book of a passage; ptdi then selects clusters, or as its option unit says",
    )
    select.add_argument("--id-field", metavar="FIELD", help='identifiers (default: "id", else row numbers)')
    select.add_argument("--input-format", metavar="NAME", help="format of the table (default: by its extension)")
    add_decision(select)
    page_option(select)


def _audit(arguments: argparse.Namespace) -> int:
    from tdd.audit.run import run_audit

    connect(arguments)
    _write_paraphrases(arguments)
    inputs = _inputs(arguments)
    options = dict(
        text_field=arguments.text_field,
        knockoff_fields=split(arguments.knockoffs),
        id_field=arguments.id_field,
        label_field=arguments.label_field,
        group_field=arguments.group_field,
        format=arguments.input_format if arguments.lm_eval is None else "lm-eval",
        image_field=arguments.images,
        flagged=arguments.flagged,
        calibration_flagged=arguments.calibration_flagged,
        alpha=arguments.alpha,
        score=one_or_all(names(",".join(arguments.score))) if arguments.score else None,
        delta=arguments.delta,
        extra_scores=names(arguments.extra_scores) if arguments.extra_scores else (),
        method=arguments.method,
        members=arguments.members,
        null=arguments.null,
        out=arguments.out,
        seed=arguments.seed,
        **scoring(arguments),
    )
    if arguments.shard is not None:
        run_audit(*inputs, shard=arguments.shard, **options)
        say_done(arguments, arguments.store or arguments.out)
        return 0
    audit = run_audit(*inputs, **options)
    return _print_audit(arguments, audit) if leads(arguments) else 0


def _inputs(arguments: argparse.Namespace) -> tuple[Any, Any, Any]:
    """The model, candidates and calibration texts; the samples without a model."""
    from tdd.validate import InputError

    if arguments.lm_eval is None:
        for name in ("model", "candidates"):
            if not getattr(arguments, name):
                raise InputError(
                    f"{'--' * (name != 'model')}{name} is missing: tdd audit MODEL --candidates FILE, or tdd audit "
                    "--lm-eval SAMPLES"
                )
        return one_or_all(arguments.model), arguments.candidates, arguments.calibration
    for name, value in (("a model", arguments.model), ("--candidates", arguments.candidates)):
        if value:
            raise InputError(
                f"--lm-eval SAMPLES has candidates and their scores; leave out {name}, {one_or_all(value)!r}"
            )
    if arguments.input_format not in (None, "lm-eval"):
        raise InputError(f"--lm-eval reads samples_*.jsonl; leave out --input-format {arguments.input_format}")
    return None, one_or_all(arguments.lm_eval), arguments.calibration


def _write_paraphrases(arguments: argparse.Namespace) -> None:
    """With --paraphraser, write the paraphrases of all texts, and let the arguments name their tables."""
    from tdd.validate import InputError

    if arguments.paraphraser is None:
        for name in ("endpoint", "api_key_variable"):
            if getattr(arguments, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} is for --paraphraser MODEL; add that or leave it out")
        return
    from tdd.audit.decide import choose
    from tdd.audit.inputs import check_roles
    from tdd.audit.paraphrase import TABLE, paraphrase
    from tdd.procedures.ktd import KTD
    from tdd.scoring.scores.score import parse_score
    from tdd.texts import load_texts
    from tdd.validate.arrays import as_count

    as_count(arguments.paraphrases, "--paraphrases")
    choices = {name: getattr(arguments, name) for name in ("alpha", "delta", "seed", "null")}
    procedure = choose(arguments.method, others={}, **choices).procedure
    if not isinstance(procedure, KTD):
        raise InputError(f"--paraphraser is for --method ktd; leave it out with {arguments.method}")
    for name in names(",".join([*(arguments.score or ()), *filter(None, [arguments.extra_scores])])):
        parse_score(name)
    for name in (
        "lm_eval", "images", "knockoffs", "group_field", "shard", "flagged", "calibration_flagged", "coordinator",
        "distributed",
    ):  # fmt: skip
        if getattr(arguments, name) not in (None, False):
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} is not possible beside --paraphraser; run tdd paraphrase first")
    _, candidates, calibration = _inputs(arguments)
    check_roles(procedure, calibration, arguments.members)
    if arguments.out is None or len(arguments.model) > 1:
        raise InputError("--paraphraser needs --out DIR, next to which the paraphrases are kept, and one model")
    reading = {"text_field": arguments.text_field, "id_field": arguments.id_field, "format": arguments.input_format}
    folder = pathlib.Path(f"{arguments.out.rstrip('/')}-paraphrases")
    roles = {"candidates": candidates, "calibration": calibration}
    if "members_knockoffs" in procedure.needs:
        roles["members"] = arguments.members
    texts = {
        role: load_texts(source, label_field=arguments.label_field if role != "members" else None, **reading)
        for role, source in roles.items()
        if source is not None
    }
    for role, of_role in texts.items():
        paraphrase(
            of_role,
            out=folder / role,
            model=arguments.paraphraser,
            endpoint=arguments.endpoint,
            api_key_variable=arguments.api_key_variable,
            audited=arguments.model[0],
            versions=arguments.paraphrases,
            seed=arguments.seed or 0,
        )
        setattr(arguments, role, str(folder / role / TABLE))
    arguments.text_field, arguments.id_field, arguments.input_format = "text", "id", None
    arguments.label_field = arguments.label_field and "label"
    arguments.knockoffs = [f"paraphrase_{version + 1}" for version in range(arguments.paraphrases)]


def _select(arguments: argparse.Namespace) -> int:
    from tdd.audit.select import select
    from tdd.cli.machine import keep_compiled

    keep_compiled()
    columns = {
        "calibration": arguments.calibration,
        "members": arguments.members,
        "role_field": arguments.role_field,
        "calibration_role": arguments.calibration_role or "calibration",
        "candidate_role": arguments.candidate_role or (None if arguments.calibration_role else "candidate"),
        "member_role": arguments.member_role,
        "nonmember_role": arguments.nonmember_role,
        "id_field": arguments.id_field,
        "label_field": arguments.label_field,
        "group_field": arguments.group_field,
        "format": arguments.input_format,
    }
    scores, knockoffs, results = (
        [name for one in given or () for name in names(one)]
        for given in (arguments.score, arguments.knockoffs, arguments.results)
    )
    if arguments.higher_is_member:
        if not scores:
            from tdd.validate import InputError

            raise InputError("--higher-is-member needs --score, the columns whose sign it turns")
        columns["higher_is_member"] = tuple(dict.fromkeys((*scores, *knockoffs)))
    audit = select(
        arguments.table,
        alpha=arguments.alpha,
        score=one_or_all(scores) if scores else None,
        method=arguments.method,
        knockoffs=knockoffs,
        results=results,
        weight_column=arguments.weight_field,
        split_column=arguments.split_field,
        delta=arguments.delta,
        null=arguments.null,
        out=arguments.out,
        seed=arguments.seed,
        **columns,
    )
    return _print_audit(arguments, audit)


def _print_audit(arguments: argparse.Namespace, audit: Any) -> int:
    """Print the report; return the exit status."""
    status = 0 if audit.verdict_stands else CHECK_FAILED
    if arguments.fail_on_detection and not status and audit.run["decision"]["num_selected"]:
        status = DETECTED

    folder = pathlib.Path(arguments.out) if arguments.out else None
    files = [folder / name for name in ("run.json", "items.csv", "calibration.csv")] if folder else []
    record = {**audit.run, "selected": list(audit.selected_ids)}
    present(arguments, audit.report(), record=record, folder=folder, files=files)
    return status
