"""`tdd score`."""

from __future__ import annotations

import argparse
from typing import Any

from tdd.cli.common import command, console, names, print_json
from tdd.cli.options import (
    add_distributed,
    add_ray,
    add_scoring,
    add_shard,
    add_texts,
    check_ray,
    connect,
    leads,
    ray_options,
    say_done,
    scoring,
)

_OF_TEXTS = (
    "text_field", "input_format", "token_budget", "max_length", "store", "device", "devices", "shard_params", "shard",
    "ray",
)  # fmt: skip
"""Options that do nothing with images."""


def add(commands: Any) -> None:
    """Register the command."""
    score = command(
        commands,
        "score",
        _run,
        "score texts under a model",
        usual=(
            "--score",
            "--out",
            "--text-field",
            "--dtype",
            "--device",
            "--store",
            "--shard",
        ),
    )
    score.add_argument("model", help="checkpoint folder, GGUF file or hub id")
    score.add_argument("texts", help=".jsonl, .json, .csv, .tsv, .parquet, .txt, or a folder of .txt files")
    score.add_argument(
        "--score",
        action="append",
        metavar="NAMES",
        help="repeated or comma-separated: loss, zlib, lowercase, reference, min_k, min_k_plus_plus, m_entropy, "
        "max_renyi, grad_norm, acmia, surp, dc_pdd, camia, diversity, recall, con_recall, lira, rmia, fsd; options "
        "after a colon, separated by semicolons: min_k:k=0.1; what a score needs likewise: recall:prefix=FILE, "
        "reference:model=MODEL, dc_pdd:corpus=FILE, fsd:tune_on=FILE; a score of your own: module:Class "
        "(default: loss,min_k_plus_plus)",
    )
    score.add_argument("--out", required=True, metavar="FILE", help="table to write: .csv, .parquet or .jsonl")
    score.add_argument(
        "--images",
        metavar="COLUMN",
        help="score the images in this column (paths, or bytes in Parquet) under LLaVA-1.5, by max_renyi on image, "
        "instruction and a description that the model writes; --revision, --dtype and --id-field apply",
    )
    add_texts(score)
    add_scoring(score)
    add_shard(score)
    add_ray(score)
    add_distributed(score)


def _run(arguments: argparse.Namespace) -> None:
    import pathlib

    from tdd.runs.atomic import check_output_file
    from tdd.scoring.score import score
    from tdd.scoring.scores.score import as_scores, check_complete, loaded
    from tdd.scoring.table import ENDINGS, store_beside, write_scores
    from tdd.texts import load_texts

    if arguments.images is not None:
        return _score_images(arguments)
    by_ray = check_ray(arguments)
    connect(arguments)
    out = pathlib.Path(arguments.out)
    check_output_file(out, ENDINGS, (arguments.texts,))
    texts = load_texts(
        arguments.texts, text_field=arguments.text_field, id_field=arguments.id_field, format=arguments.input_format
    )
    asked = as_scores(names(",".join(arguments.score or ["loss,min_k_plus_plus"])))
    check_complete(asked.values())
    scores = loaded(asked, text_field=arguments.text_field)
    store = arguments.store or store_beside(out)
    options = {**scoring(arguments), "store": store, "job": out.name}
    if arguments.shard is not None:
        score(arguments.model, texts, scores, shard=arguments.shard, **options)
        return say_done(arguments, store)
    if by_ray:
        from tdd import on_ray

        options |= ray_options(arguments)
        table = on_ray.score(arguments.model, texts, scores, **options)
    else:
        table = score(arguments.model, texts, scores, **options)
    if not leads(arguments):
        return None
    # what others share stays: a shard or a process that is started again must find it
    shared = (not by_ray and (store_beside(out) / "shards").exists()) or "num_processes" in table.provenance
    write_scores(table, out, keep_store=arguments.store is not None or shared)
    summary = {"out": str(out), "texts": len(table), "scores": list(table.values), "provenance": dict(table.provenance)}
    if arguments.json:
        print_json(summary)
    else:
        console().print(f"{len(table)} texts, {', '.join(table.values)} → {out}", markup=False)


def _score_images(arguments: argparse.Namespace) -> None:
    """Score the images of a table."""
    import pathlib

    from tdd.audit.images import score_images
    from tdd.cli.machine import keep_compiled
    from tdd.runs.atomic import check_output_file
    from tdd.scoring.table import ENDINGS, write_scores
    from tdd.validate import InputError

    given = {f"--{name.replace('_', '-')}": getattr(arguments, name) for name in _OF_TEXTS}
    given["--long-texts"] = arguments.long_texts != "window"
    if named := [option for option, value in given.items() if value]:
        raise InputError(f"{', '.join(named)} is for texts and does nothing with --images; leave it out")
    keep_compiled(not arguments.no_compilation_cache)
    out = pathlib.Path(arguments.out)
    check_output_file(out, ENDINGS, (arguments.texts,))
    table = score_images(
        arguments.model,
        arguments.texts,
        names(",".join(arguments.score or ["max_renyi:gamma=0.5;k=0.1"])),
        image_field=arguments.images,
        id_field=arguments.id_field,
        revision=arguments.revision,
        dtype=arguments.dtype,
    )
    write_scores(table, out)
    if arguments.json:
        scores = [*table.values]
        print_json({"out": str(out), "images": len(table), "scores": scores, "provenance": dict(table.provenance)})
    else:
        console().print(f"{len(table)} images, {', '.join(table.values)} → {out}", markup=False)
