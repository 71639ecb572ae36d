"""The summary of a laboratory run: losses by part, files, the command to continue with."""

from __future__ import annotations

import shlex

from tdd.lab.recipe import AssignmentsDesign, BlocksDesign, CanariesDesign
from tdd.lab.recipe_run import LabRun
from tdd.report.sections import Column, Facts, Report, Row, Table

_EXAMPLES_A_SHARD = 10
"""Suggested for the exchangeability test: a set of 200 examples that the example recipe plants 50 times has p = .012 in
50 shards of 4, and .0005 in 20 shards of 10 at fewer model calls."""


def lab_report(run: LabRun) -> Report:
    """Mean loss of each model on each part after training, the files, and how to go on."""
    many = len(run.checkpoints) > 1
    columns = (*((Column("model"),) if many else ()), Column("part"))
    numbers = tuple(Column(name, number=True) for name in ("copies", "texts", "loss"))
    rows = tuple(
        Row(
            (
                *((str(row["model"]),) if many else ()),
                row["part"],
                str(row["copies"]),
                f"{row['num_texts']:,}",
                f"{row['loss']:.3f}",
            ),
            ruled=index > 0 and row["model"] != run.parts[index - 1]["model"],
        )
        for index, row in enumerate(run.parts)
    )
    models = run.summary["models"]
    files = ["truth.csv", *run.summary["audited"], *(model["checkpoint"] for model in models), "lab.json"]
    written = Facts("Files", (("folder", str(run.folder)), ("written", ", ".join(files))))
    table = Table("Mean loss after training, nats per token", (*columns, *numbers), rows)
    return Report("Laboratory run", "", (table, written))


def next_command(run: LabRun) -> str:
    """The command that audits the run, ready for a shell."""
    design, folder = run.recipe.plant, run.folder
    models = " ".join(shlex.quote(str(place)) for place in run.checkpoints)
    if isinstance(design, CanariesDesign):
        sets = " ".join(shlex.quote(str(place)) for place in run.audited.values())
        fewest = min(row["num_examples"] for row in run.truth)
        shards = f" --shards {max(2, fewest // _EXAMPLES_A_SHARD)}" if fewest < 50 * _EXAMPLES_A_SHARD else ""
        separator = shlex.quote(design.separator.encode("unicode_escape").decode())
        return f"tdd exchange {models} {sets} --separator {separator}{shards}"
    candidates = shlex.quote(str(folder / "candidates.jsonl"))
    calibration = "calibration.jsonl"
    options = "--label-field label"
    if isinstance(design, AssignmentsDesign):
        models, options = shlex.quote(str(run.checkpoints[0])), "--label-field model-1"
        if not design.calibration and not design.known_members:  # nothing to calibrate with
            return f"tdd score {models} {candidates} --out {shlex.quote(str(run.checkpoints[0].parent / 'scores.csv'))}"
        if not design.calibration:
            calibration, options = "known_members.jsonl", f"{options} --method td4eval --score loss,min_k"
    elif isinstance(design, BlocksDesign):
        options += " --method jecs"
    return (
        f"tdd audit {models} --candidates {candidates} --calibration {shlex.quote(str(folder / calibration))} {options}"
    )
