"""KTD's figures 9 and 10 under fine-tuned models, and the levels that six named studies promise.

Small models are fine-tuned on texts of the laboratory's grammar; as many others are non-members. KTD tests a part of
its training set (`ktd-dilution`), or few members among many non-members (`ktd-imbalance`): both studies leave out
candidates of the table of scores. With the design "original" the audited text is the document itself, as in the paper;
with "drawn" it is one of its k + 1 versions at random, and those of a non-member are exchangeable.

Then every level that the six promise for synthetic data is measured: how many values there are, how many are above
their bound by more than three standard errors, and the highest. The folder keeps what is finished.

    python -m benchmarks.training_sets [--models 3] [--repetitions 100000] [--folder training-sets]
"""

from __future__ import annotations

import argparse
import hashlib
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

import tdd
from benchmarks import harness
from benchmarks.known_truth import mean_and_error
from benchmarks.reproductions.models import Base, base_model, fine_tune, score_table
from benchmarks.reproductions.ptdi_ktd import DESIGNS, Sizes, versions_of
from tdd.report.plots.sheet import save
from tdd.report.plots.studies import draw
from tdd.study.named import load
from tdd.study.named.driver import run_named_study, verdict_rows
from tdd.study.named.record import Columns, StudyOptions

SIZES = Sizes(members=640, nonmembers=640, knockoffs=(5,))
STUDIES = {"ktd-dilution": "factor", "ktd-imbalance": "ratio"}
"""Study -> the field of its cells that a table of scores has too."""
REPETITIONS = 2_000
LEVELS = {
    "ktd-dilution": 100_000,
    "ktd-imbalance": 100_000,
    "jecs-training-fraction": 100_000,
    "td4eval-single": 100_000,
    "td4eval-noise": 100_000,
    "td4eval-weights": 20_000,
}
"""Study -> repetitions in each cell, fewer where one takes long; --repetitions is for all of them."""


def scored(base: Base, design: str, seed: int, sizes: Sizes) -> Columns:
    """The losses of all versions of members and non-members under one fine-tuned model."""
    versions = versions_of(design, seed, sizes)
    told = {"epochs": sizes.epochs, "learning_rate": sizes.learning_rate, "max_length": sizes.max_length}
    model = fine_tune(base, versions[: sizes.members, 0].tolist(), seed=seed, **told)
    table = score_table(model, versions.reshape(-1).tolist(), ("loss",), max_length=sizes.max_length)
    scores = np.asarray(table["loss"]).reshape(versions.shape)
    members = np.arange(len(scores)) < sizes.members
    digest = hashlib.sha256(scores.tobytes()).hexdigest()
    return Columns(f"model {seed}, {design}", digest, ("loss",), scores[:, 0][None], members[None], scores[:, 1:])


def thinned(columns: Columns, repetitions: int) -> dict[str, Any]:
    """Study -> its result on the table."""
    options = {"repetitions": repetitions, "columns": columns}
    return {name: load(name).run(StudyOptions(alphas=load(name).alphas, **options)) for name in STUDIES}


def under_models(count: int, sizes: Sizes, repetitions: int, scale: float = 1.0) -> tuple[list[dict[str, Any]], Any]:
    """Means over models with their standard errors, and the results of the first model by study, drawn versions."""
    base, found, shown = base_model(None, scale=scale, seed=0), dict[tuple[Any, ...], list[Any]](), None
    for design in DESIGNS:
        for seed in range(count):
            columns = scored(base, design, seed, sizes)
            results = thinned(columns, repetitions)
            shown = (columns, results) if shown is None or (design == "drawn" and seed == 0) else shown
            for name, field in STUDIES.items():
                for row in results[name].rows():
                    key = (name, design, row[field], row["method"], row["alpha"])
                    found.setdefault(key, []).append((row["fdr"], row["power"]))
            print(f"{columns.source}: done", flush=True)
    keys = ("study", "design", "value", "method", "alpha")
    return [
        dict(zip(keys, key, strict=True))
        | {
            name: value
            for place, what in enumerate(("fdr", "power"))
            for name, value in zip((what, f"{what}_se"), mean_and_error([v[place] for v in values]), strict=True)
        }
        for key, values in found.items()
    ], shown


def promised(folder: pathlib.Path, levels: Mapping[str, int]) -> list[dict[str, Any]]:
    """What each study promises of synthetic data, and what was measured."""
    rows = []
    for name, repetitions in levels.items():
        study = load(name)
        options = StudyOptions(repetitions, study.alphas, folder=folder / name, progress=True)
        result = run_named_study(study, options, command=f"tdd study {name} --repetitions {repetitions}").result
        bounds = [(row, study.bound(options, row, row["method"])) for row in verdict_rows(study, options, result)]
        held = [(row, bound.factor * row["alpha"]) for row, bound in bounds if bound.kind != "none"]
        rows.append(
            {
                "study": name,
                "repetitions": repetitions,
                "promised": len(held),
                "above": sum(row["fdr"] > level + 3 * row["fdr_se"] for row, level in held),
                "highest": max(row["fdr"] / level for row, level in held),
                "unpromised": len(bounds) - len(held),
            }
        )
        print(harness.table(rows[-1:]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=int, default=3)
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("training-sets"))
    given = parser.parse_args()
    start = time.perf_counter()
    rows, (columns, results) = under_models(given.models, SIZES, REPETITIONS)
    for name, result in results.items():
        study = load(name)
        options = StudyOptions(REPETITIONS, study.alphas, columns=columns)
        drawn = draw(result, study.figure, title=study.title, caption=study.describe(options))
        save(drawn, harness.RESULTS / "figures" / f"{name}-model.png")
    found = {
        "command": f"python -m benchmarks.training_sets --models {given.models}",
        "version": tdd.__version__,
        "models": given.models,
        "members": SIZES.members,
        "knockoffs": SIZES.knockoffs[-1],
        "repetitions": REPETITIONS,
        "seconds_of_models": time.perf_counter() - start,
        "rows": rows,
        "levels": promised(given.folder, {name: given.repetitions or LEVELS[name] for name in LEVELS}),
    }
    print(harness.write("training_sets", found).name)


if __name__ == "__main__":
    main()
