"""`tdd versions`, `tdd dataset`: a data owner's tests; `tdd checkpoints`: evidence over a training run."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from tdd.cli.common import CHECK_FAILED, DETECTED, command, names, present
from tdd.cli.options import add_device, add_devices, add_revision, add_store, devices
from tdd.validate import InputError


def add(commands: Any) -> None:
    """Register the commands."""
    _add_versions(commands)
    _add_dataset(commands)
    _add_checkpoints(commands)


def _add_versions(commands: Any) -> None:
    versions = command(
        commands,
        "versions",
        _versions,
        "was a model trained on the published versions of an owner's documents?",
        usual=("--document-field", "--published-field", "--score", "--test", "--alpha", "--out", "--device"),
    )
    versions.add_argument("model", help="checkpoint folder, GGUF file or hub id")
    versions.add_argument(
        "documents", help="table with a row for each version: its text, its document, and whether it was published"
    )
    group = versions.add_argument_group("data")
    group.add_argument("--document-field", default="document", metavar="FIELD", help="(default: %(default)s)")
    group.add_argument(
        "--published-field",
        default="published",
        metavar="FIELD",
        help="1 for the published version of each document, 0 for its private ones (default: %(default)s)",
    )
    _add_reading(group)
    group = versions.add_argument_group("decision")
    group.add_argument("--score", default="loss", metavar="NAME", help="a per-token score (default: %(default)s)")
    _add_decision(group, ["rank_sum", "exact", "combined", "t"])
    _add_scoring(versions.add_argument_group("scoring"))


def _add_dataset(commands: Any) -> None:
    dataset = command(
        commands,
        "dataset",
        _dataset,
        "was a model trained on a set of texts, beside texts of the same owner that were kept back?",
        usual=("--suspects", "--heldout", "--group-field", "--score", "--test", "--alpha", "--out", "--device"),
    )
    dataset.add_argument("model", help="checkpoint folder, GGUF file or hub id")
    group = dataset.add_argument_group("data")
    group.add_argument("--suspects", required=True, metavar="FILE", help="texts that may be in the training data")
    group.add_argument(
        "--heldout", required=True, metavar="FILE", help="texts of the same kind that were kept from the training data"
    )
    _add_reading(group)
    group.add_argument(
        "--group-field", metavar="FIELD", help="group of each text, as the book of a passage; groups are then tested"
    )
    group = dataset.add_argument_group("decision")
    group.add_argument(
        "--score",
        action="append",
        metavar="NAMES",
        help="scores that are learned into one, repeated or comma-separated (default: loss,min_k,min_k_plus_plus,zlib)",
    )
    _add_decision(group, ["permutation", "t"])
    group.add_argument(
        "--splits",
        type=int,
        default=10,
        metavar="N",
        help="random halves to learn from; the others are tested (default: %(default)s)",
    )
    _add_scoring(dataset.add_argument_group("scoring"))


def _add_reading(group: Any) -> None:
    group.add_argument("--text-field", metavar="FIELD", help="(default: text, or the only field known to hold texts)")
    group.add_argument("--input-format", metavar="NAME", help="format of the files (default: by their extension)")


def _add_decision(group: Any, tests: list[str]) -> None:
    group.add_argument(
        "--test", choices=tests, default=tests[0], help="t is the paper's, asymptotic (default: %(default)s)"
    )
    group.add_argument("--alpha", type=float, default=0.05, help="level (default: %(default)s)")
    group.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    group.add_argument("--out", metavar="DIR", help="run folder to write; an interrupted run continues there")
    group.add_argument(
        "--fail-on-detection",
        action="store_true",
        help="exit status 1 if the test rejects (3 if a check failed, with or without this)",
    )


def _add_scoring(group: Any) -> None:
    add_revision(group)
    group.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], help="(default: as stored)")
    group.add_argument("--token-budget", type=int, metavar="N", help="tokens per batch")
    group.add_argument("--max-length", type=int, metavar="N", help="longest window in tokens (default: the model's)")
    add_store(group, "scoring in --out")
    add_devices(group)


def _versions(arguments: argparse.Namespace) -> int:
    from tdd.audit.owner_versions import run_version_test

    fields = {name: getattr(arguments, name) for name in ("document_field", "published_field", "score")}
    return _present(arguments, run_version_test(arguments.model, arguments.documents, **fields, **_options(arguments)))


def _dataset(arguments: argparse.Namespace) -> int:
    from tdd.audit.owner_dataset import DATASET_SCORES, run_dataset_inference

    score = names(",".join(arguments.score or DATASET_SCORES))
    texts = (arguments.suspects, arguments.heldout)
    own = {"score": score, "num_splits": arguments.splits, "group_field": arguments.group_field}
    return _present(arguments, run_dataset_inference(arguments.model, *texts, **own, **_options(arguments)))


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of both tests as keywords."""
    same_names = ("text_field", "test", "alpha", "seed", "out", "revision", "dtype", "token_budget", "max_length")
    options = {name: getattr(arguments, name) for name in same_names}
    if arguments.store is not None:
        options["store"] = arguments.store
    return {"format": arguments.input_format, **options, **devices(arguments)}


def _present(arguments: argparse.Namespace, result: Any) -> int:
    from tdd.audit.owner import TABLES

    folder = None if arguments.out is None else pathlib.Path(arguments.out)
    files = [] if folder is None else [folder / name for name in (TABLES[result.run["kind"]], "run.json")]
    present(arguments, result.report(), record=result.run, folder=folder, files=files)
    if not result.verdict_stands:
        return CHECK_FAILED
    return DETECTED if arguments.fail_on_detection and result.run["result"]["rejected"] else 0


def _add_checkpoints(commands: Any) -> None:
    checkpoints = command(
        commands,
        "checkpoints",
        _checkpoints,
        "do texts become more member-like over the checkpoints of a training run?",
        usual=("--suspects", "--references", "--score", "--alpha", "--out", "--device"),
    )
    checkpoints.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="checkpoints of one training run in its order, folders or hub ids as owner/name@step1000; the first one "
        "is the base that later ones are compared with: from before the texts could have been seen",
    )
    group = checkpoints.add_argument_group("texts")
    group.add_argument("--suspects", required=True, metavar="FILE", help="texts whose membership is in question")
    group.add_argument(
        "--references", required=True, metavar="FILE", help="texts of the same kind that are not in the training data"
    )
    group.add_argument("--text-field", metavar="FIELD", help="(default: text, or the only field known to hold texts)")
    group = checkpoints.add_argument_group("decision")
    group.add_argument("--score", default="loss", metavar="NAME", help="(default: %(default)s)")
    group.add_argument("--alpha", type=float, default=0.05, help="level over all checkpoints (default: %(default)s)")
    group.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    group.add_argument("--out", required=True, metavar="DIR", help="run folder; an interrupted run continues there")
    group.add_argument("--fail-on-detection", action="store_true", help="exit status 1 if the alarm is raised")
    group = checkpoints.add_argument_group("scoring")
    group.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], help="(default: as stored)")
    group.add_argument("--max-length", type=int, metavar="N", help="longest text in tokens (default: the model's)")
    group.add_argument("--token-budget", type=int, metavar="N", help="tokens per batch")
    add_device(group)


def _checkpoints(arguments: argparse.Namespace) -> int:
    from tdd.probe.checkpoints import over_checkpoints
    from tdd.report import folder_report
    from tdd.texts import load_texts

    if len(arguments.models) < 2:
        raise InputError("at least two checkpoints are needed; for one model, use tdd audit")
    texts = [load_texts(file, text_field=arguments.text_field) for file in (arguments.suspects, arguments.references)]
    same_names = ("score", "alpha", "seed", "out", "dtype", "max_length", "token_budget", "device")
    options = {name: value for name in same_names if (value := getattr(arguments, name)) is not None}
    over_checkpoints(arguments.models, *texts, progress=not arguments.quiet, **options)
    folder = pathlib.Path(arguments.out)
    run, report = folder_report(folder)
    present(arguments, report, record=run, folder=folder, files=())
    return DETECTED if arguments.fail_on_detection and run["alarm"] else 0
