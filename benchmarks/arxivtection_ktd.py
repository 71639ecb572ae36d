"""KTD end to end on arXivTection with known truth: `tdd audit --method ktd`, its false discoveries and its power.

arXivTection has passages of papers and three paraphrases of each. The papers are shared out at random: on some a small
GPT-2-shaped base model is trained, on the passages and on their paraphrases alike; the passages of the others are the
pool. A random half of the pool is planted (fine-tuned on, once each an epoch); the other half is not. So members and
non-members are exchangeable by construction, whatever the publication dates say. The dates' labels are not used.

What the rules need beyond that:

- "conformal" ranks W = mean score of the paraphrases - score of the text among the W of known non-members. Which
  non-members calibrate is a random division, so its guarantee holds however good or bad the paraphrases are.
- "multi", and "ktd" with one knockoff, need the scores of a non-member and of its paraphrases to be exchangeable.
  No paraphrase of the pool is ever trained on, but that does not suffice: passages are verbatim text, paraphrases are
  a machine's, and a model that was fine-tuned on verbatim passages may come to like that style in texts it never saw.
  Then W leans towards "member" for non-members too, and more of the selected are false than the level says.
- "ktd" with several knockoffs needs in addition that the averaged W of non-members is symmetric.

Two designs show both sides. In "verbatim" the text is the passage and its paraphrases are the knockoffs, as an auditor
would have them. In "drawn" the four versions of each passage are put into random order: the first is the text (the one
that is trained on, where it is a member), the other three are its knockoffs. There a non-member's versions are
exchangeable by construction, and the guarantees of "multi" and of "ktd" with one knockoff hold. The symmetry test that
the audit runs on known non-members is reported for both.

Every fine-tuned model is audited once with the command line; its run folder holds all scores. From these, FDP and power
of every rule are averaged over random divisions: half of the non-members calibrate, the others are candidates together
with as many members, the same candidates for every rule. Standard errors are over the fine-tuned models, beside them
those over the divisions alone. "promised" is what the guarantee of a rule bounds the FDR by in a design, if anything;
"leaning_of_nonmembers" is how many of the non-members' statistics say "member", as a multiple of what exchangeability
would give.

    python -m benchmarks.arxivtection_ktd --data arxivtection.csv
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import functools
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tdd
from benchmarks import harness
from tdd.cli import main as command_line
from tdd.lab.state import CHECKPOINT_FOLDER
from tdd.lab.tokens import train_tokenizer
from tdd.lab.train import TrainConfig, train
from tdd.models import checkpoint
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec

VERSIONS = ("Example_A", "Example_B", "Example_C", "Example_D")
SCORES = ("grad_norm", "loss")
RULES = (("ktd", ""), ("multi", ""), ("conformal", "none"), ("conformal", "storey"))
ALPHAS = (0.1, 0.2)
KNOCKOFFS = (1, 3)
DESIGNS = ("verbatim", "drawn")
AUDIT_LEVEL = 0.2


@dataclasses.dataclass(frozen=True)
class Scale:
    """Sizes of the model, of its training and of the pool."""

    width: int = 128
    layers: int = 2
    positions: int = 256
    vocabulary: int = 2048
    papers: int = 40
    base_papers: int = 15
    base_epochs: int = 3
    epochs: int = 5
    batch_size: int = 4
    learning_rate: float = 3e-3


SCALES = {
    "full": Scale(),
    "small": Scale(width=64, papers=24, base_papers=8, epochs=4),
    "tiny": Scale(width=32, layers=1, positions=64, vocabulary=512, papers=8, base_papers=2, base_epochs=1, epochs=1),
}


@dataclasses.dataclass(frozen=True)
class Pool:
    """Passages in four versions.

    Attributes:
      ids: row numbers in the file.
      versions: [passages][4] texts, the first verbatim.
      papers: paper of each passage.
    """

    ids: list[str]
    versions: list[list[str]]
    papers: list[str]


def main() -> None:
    options = parse_arguments()
    started = time.perf_counter()
    scale = SCALES[options.scale]
    base_texts, pool, dropped = read_passages(options.data, scale)
    tokenizer = train_tokenizer(
        [*base_texts, *(text for row in pool.versions for text in row)], vocab_size=scale.vocabulary
    )
    work = options.work / f"{options.scale}-{options.by}"
    work.mkdir(parents=True, exist_ok=True)
    seconds = {"total": 0.0}
    base_folder, base_history = train_once(work / "base", None, tokenizer, base_texts, scale, seed=1, seconds=seconds)
    models, rows = [], []
    for repetition in range(options.repetitions):
        for design in options.designs:
            name = f"{design}-{repetition}"
            member, order = planted(pool, design, options.by, repetition)
            training = [row[order[i, 0]] for i, row in enumerate(pool.versions) if member[i]]
            folder = work / name
            model, history = train_once(
                folder, base_folder, tokenizer, training, scale, seed=repetition, seconds=seconds
            )
            shown = not models
            timed(seconds, folder, "audit", functools.partial(audit, folder, model, pool, member, order, shown))
            run = json.loads((folder / "run" / "run.json").read_text())
            models.append({"design": design, "repetition": repetition, "losses": history, **described(run)})
            rows += evaluate(folder / "run", design, repetition, options.divisions)
            print(f"{name}: {json.dumps(models[-1]['audit'])}", flush=True)
    summary = summarise(rows)
    seconds["total"] += time.perf_counter() - started
    found = {
        "data": {
            "sha256": hashlib.sha256(options.data.read_bytes()).hexdigest(),
            "passages": len(pool.ids),
            "passages_without_text": dropped,
            "papers_of_the_pool": len(set(pool.papers)),
            "texts_of_the_base_model": len(base_texts),
        },
        "scale": dataclasses.asdict(scale),
        "planted_by": options.by,
        "repetitions": options.repetitions,
        "divisions": options.divisions,
        "command": " ".join(command("CHECKPOINT", "FOLDER")),
        "base_losses": base_history,
        "summary": summary,
        "models": models,
        "seconds": {step: round(value, 1) for step, value in seconds.items()},
        "tdd": tdd.__version__,
    }
    print(harness.table(summary))
    print(f"written to {harness.write(options.out, found).name}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--data", type=pathlib.Path, required=True, help="arxivtection.csv, or the folder that holds it"
    )
    parser.add_argument(
        "--scale", choices=list(SCALES), default="full", help="size of everything (default: %(default)s)"
    )
    parser.add_argument("--repetitions", type=int, default=3, help="fine-tuned models a design (default: %(default)s)")
    parser.add_argument("--divisions", type=int, default=400, help="random divisions a model (default: %(default)s)")
    parser.add_argument("--by", choices=["passage", "paper"], default="passage", help="what is planted at random")
    parser.add_argument("--designs", nargs="+", choices=DESIGNS, default=list(DESIGNS))
    parser.add_argument("--out", default="arxivtection_ktd", help="name of the result (default: %(default)s)")
    parser.add_argument(
        "--work",
        type=pathlib.Path,
        default=pathlib.Path(tempfile.gettempdir()) / "tdd-arxivtection-ktd",
        help="where models and runs are kept; what is finished there is not computed again",
    )
    options = parser.parse_args()
    if options.data.is_dir():
        options.data = next(iter(sorted(options.data.rglob("arxivtection.csv"))))
    return options


def read_passages(path: pathlib.Path, scale: Scale) -> tuple[list[str], Pool, int]:
    """The base model's texts, all versions of the passages of some papers; the pool, the passages of the others."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        every = [(str(number), row) for number, row in enumerate(csv.DictReader(file), start=1)]
    rows = [(number, row) for number, row in every if all(row[version].strip() for version in VERSIONS)]
    papers = np.random.default_rng(0).permutation(sorted({row["ID"] for _, row in rows}))[: scale.papers]
    base, others = set(papers[: scale.base_papers]), set(papers[scale.base_papers :])
    kept = [(number, row) for number, row in rows if row["ID"] in others]
    pool = Pool(
        [number for number, _ in kept],
        [[row[version] for version in VERSIONS] for _, row in kept],
        [row["ID"] for _, row in kept],
    )
    texts = [row[version] for _, row in rows if row["ID"] in base for version in VERSIONS]
    return texts, pool, len(every) - len(rows)


def planted(pool: Pool, design: str, by: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Who is a member, [passages] bool, and the versions of each passage: its text, then its knockoffs, [passages, 4].

    In "drawn" their order is uniformly random, so that the text and its first knockoff alone are exchangeable too.
    """
    rng = np.random.default_rng([seed, DESIGNS.index(design)])
    unit = np.arange(len(pool.ids)) if by == "passage" else np.unique(pool.papers, return_inverse=True)[1]
    order = rng.permutation(unit.max() + 1)
    member = np.isin(unit, order[: len(order) // 2])
    versions = np.tile(np.arange(len(VERSIONS)), (len(pool.ids), 1))
    return member, rng.permuted(versions, axis=1) if design == "drawn" else versions


def train_once(
    folder: pathlib.Path,
    base: pathlib.Path | None,
    tokenizer: Any,
    texts: Sequence[str],
    scale: Scale,
    *,
    seed: int,
    seconds: dict[str, float],
) -> tuple[pathlib.Path, list[float]]:
    """The checkpoint of a finished training run, trained now where there is none, and its losses by epoch."""
    spec = DecoderSpec.gpt2(
        vocab_size=scale.vocabulary,
        width=scale.width,
        num_layers=scale.layers,
        num_heads=scale.width // 32,
        max_length=scale.positions,
    )
    config = TrainConfig(
        epochs=scale.base_epochs if base is None else scale.epochs,
        batch_size=scale.batch_size,
        learning_rate=scale.learning_rate,
        max_length=scale.positions,
        seed=seed,
    )

    def run() -> None:
        if (folder / "training" / "training.json").exists():
            return
        if base is None:
            lm, params = language_model(spec), init_params(spec, jax.random.key(0))
        else:
            lm, params, _ = checkpoint.load(base)
        train(lm, params, tokenizer, texts, config=config, out=folder / "training", progress=True)

    timed(seconds, folder, "training", run)
    record = json.loads((folder / "training" / "training.json").read_text())
    return folder / "training" / CHECKPOINT_FOLDER, [round(epoch["loss"], 3) for epoch in record["history"]]


def timed(seconds: dict[str, float], folder: pathlib.Path, step: str, run: Callable[[], Any]) -> None:
    """Run a step unless it is finished; seconds of finished ones are those of the run that finished them."""
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / f"{step}.seconds"
    if not note.exists():
        started = time.perf_counter()
        run()
        note.write_text(str(time.perf_counter() - started))
    else:
        seconds["total"] += float(note.read_text())
    seconds[step] = seconds.get(step, 0.0) + float(note.read_text())


def command(model: str, folder: str) -> list[str]:
    """The audit as it is typed."""
    knockoffs = ",".join(VERSIONS[1:])
    return [
        *("audit", model, "--method", "ktd:rule=conformal", "--alpha", str(AUDIT_LEVEL)),
        *("--candidates", f"{folder}/candidates.csv", "--calibration", f"{folder}/calibration.csv"),
        *("--text-field", VERSIONS[0], "--knockoffs", knockoffs, "--label-field", "member"),
        *("--score", SCORES[0], "--extra-scores", ",".join(SCORES[1:]), "--out", f"{folder}/run"),
    ]


def audit(
    folder: pathlib.Path, model: pathlib.Path, pool: Pool, member: np.ndarray, order: np.ndarray, shown: bool
) -> None:
    """Write the two tables and run the command line on them; an interrupted audit goes on."""
    others = np.flatnonzero(~member)
    calibration = np.isin(np.arange(len(member)), np.random.default_rng(0).permutation(others)[: len(others) // 2])
    for name, chosen in (("candidates", ~calibration), ("calibration", calibration)):
        with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *VERSIONS, "member"])
            for i in np.flatnonzero(chosen):
                writer.writerow([pool.ids[i], *(pool.versions[i][version] for version in order[i]), int(member[i])])
    arguments = command(str(model), str(folder))
    if shown:  # in a process of its own, and its report on the screen
        subprocess.run([sys.executable, "-m", "tdd", *arguments], check=True)
        return
    with contextlib.redirect_stdout(io.StringIO()):
        if command_line([*arguments, "--quiet"]):
            raise SystemExit("the audit failed")


def described(run: Mapping[str, Any]) -> dict[str, Any]:
    """What the command line found, without its inputs' names."""
    decision, checks = run["decision"], run["checks"]
    names = ("method", "alpha", "num_tests", "num_calibration", "num_selected", "truth")
    return {
        "audit": {name: decision[name] for name in names},
        "checks": {
            "symmetry_p_value": checks["symmetry"]["p_value"],
            "blind_baseline_auc": checks["blind_baseline"]["auc"],
            **{name: checks[name] for name in ("knockoff_texts", "long_texts") if name in checks},
        },
    }


def evaluate(run: pathlib.Path, design: str, repetition: int, divisions: int) -> list[dict[str, Any]]:
    """FDP and power of every rule over random divisions of one model's scores, and the symmetry of its non-members."""
    member, scores = read_scores(run)
    rng = np.random.default_rng(repetition)
    others, members = np.flatnonzero(~member), np.flatnonzero(member)
    calibrating = len(others) // 2
    drawn = np.stack([rng.permutation(others) for _ in range(divisions)])
    planted_ones = np.stack([rng.permutation(members)[: len(others) - calibrating] for _ in range(divisions)])
    calibration, tested = drawn[:, :calibrating], np.concatenate([planted_ones, drawn[:, calibrating:]], axis=1)
    truth = member[tested]
    rows = []
    for name in SCORES:
        for k in KNOCKOFFS:
            copies = scores[name][:, : k + 1]
            for rule, proportion in RULES:
                symmetry = tdd.knockoff_symmetry(
                    copies[~member, 0], copies[~member, 1:], rule="ktd" if rule == "ktd" else "multi"
                )
                for alpha in ALPHAS:
                    selected = np.asarray(select(copies[tested], copies[calibration], rule, proportion, alpha))
                    false, found = (selected & ~truth).sum(axis=1), selected.sum(axis=1)
                    rows.append(
                        {
                            "design": design,
                            "repetition": repetition,
                            "score": name,
                            "knockoffs": k,
                            "rule": rule + (f", {proportion}" if proportion else ""),
                            "alpha": alpha,
                            "fdp": false / np.maximum(1, found),
                            "power": (selected & truth).sum(axis=1) / truth.sum(axis=1),
                            "selected": found,
                            "positive": float(leaning(copies[~member], rule)),
                            "symmetry_p": float(symmetry.p_value),
                        }
                    )
    return rows


@functools.partial(jax.jit, static_argnames=("rule", "proportion", "alpha"))
def select(candidates: Any, calibration: Any, rule: Any, proportion: str, alpha: float) -> jax.Array:
    """[divisions, m] selected, from [divisions, m, k + 1] and [divisions, n, k + 1] scores, the text's first."""

    def one(candidates: jax.Array, calibration: jax.Array) -> jax.Array:
        how: dict[str, Any] = {}
        if rule == "conformal":
            how = {
                "calibration": calibration[:, 0],
                "calibration_knockoffs": calibration[:, 1:],
                "proportion": proportion,
            }
        return tdd.ktd(candidates[:, 0], candidates[:, 1:], alpha=alpha, rule=rule, **how).selected

    return jax.vmap(one)(jnp.asarray(candidates), jnp.asarray(calibration))


def leaning(copies: np.ndarray, rule: str) -> float:
    """Share of the non-members whose statistic says "member", over what it would be under exchangeability."""
    if rule == "multi":
        return np.mean(copies.argmin(axis=1) == 0) * copies.shape[1]
    return 2 * np.mean(copies[:, 1:].mean(axis=1) > copies[:, 0])


def read_scores(run: pathlib.Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Truth [items] and scores [items, 1 + 3] by name, the text's own first, of a finished run."""
    with open(run / "items.csv", encoding="utf-8", newline="") as file:
        items = list(csv.DictReader(file))
    with open(run / "calibration.csv", encoding="utf-8", newline="") as file:
        calibration = list(csv.DictReader(file))
    member = np.array([row["label"] == "1" for row in items] + [False] * len(calibration))
    columns = {name: [name, *(f"{name} (knockoff {j + 1})" for j in range(len(VERSIONS) - 1))] for name in SCORES}
    rows = [*items, *calibration]
    return member, {
        name: np.array([[float(row[column]) for column in wanted] for row in rows]) for name, wanted in columns.items()
    }


def promised(design: str, rule: str, knockoffs: int, alpha: float) -> float | None:
    """What the rule's guarantee bounds the FDR by where half of the candidates are members; None: by nothing."""
    if rule == "conformal, none":
        return alpha / 2
    if rule == "conformal, storey" or (design == "drawn" and (rule == "multi" or knockoffs == 1)):
        return alpha
    return None


def summarise(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Means over models and divisions with two standard errors: over the models, and over the divisions alone."""
    keys = ("design", "score", "knockoffs", "rule", "alpha")
    summary = []
    for key in dict.fromkeys(tuple(row[name] for name in keys) for row in rows):
        mine = [row for row in rows if tuple(row[name] for name in keys) == key]
        line: dict[str, Any] = dict(zip(keys, key, strict=True))
        line["promised"] = promised(line["design"], line["rule"], line["knockoffs"], line["alpha"])
        for name in ("fdp", "power"):
            means = np.array([row[name].mean() for row in mine])
            within = np.mean([row[name].var(ddof=1) / row[name].size for row in mine]) / len(mine)
            line[name] = round(float(means.mean()), 4)
            line[f"{name}_by_model"] = [round(float(mean), 4) for mean in means]
            line[f"{name}_se"] = round(float(means.std(ddof=1) / np.sqrt(len(means))), 4) if len(means) > 1 else None
            line[f"{name}_se_divisions"] = round(float(np.sqrt(within)), 4)
        line["selected"] = round(float(np.mean([row["selected"].mean() for row in mine])), 1)
        line["leaning_of_nonmembers"] = round(float(np.mean([row["positive"] for row in mine])), 3)
        line["symmetry_p_median"] = float(f"{np.median([row['symmetry_p'] for row in mine]):.3g}")
        summary.append(line)
    return summary


if __name__ == "__main__":
    main()
