"""Audit of WikiMIA texts with known truth: who a small model was fine-tuned on, found with a controlled error rate.

A GPT-2-shaped base model is trained on generated documents, then fine-tuned on a random half of WikiMIA's label-1
texts, once a seed. The other half is split into calibration texts and non-member candidates, so that under the null
candidates and calibration are exchangeable; the members are candidates too. Realised false discovery proportion and
power of `tdd.ptdi` at level alpha are averaged over the seeds.

A last section calibrates the first seed's audit on label-0 texts (articles of another time), as is often done: there
the blind baseline has to warn that the texts differ without any model.

    python -m benchmarks.wikimia_audit --data wikimia.jsonl
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import platform
import tempfile
import time
from typing import Any

import jax
import numpy as np

import tdd
from tdd.audit.blind_baseline import blind_baseline
from tdd.lab.corpus import generate
from tdd.lab.plant import plant
from tdd.lab.tokens import train_tokenizer
from tdd.lab.train import TrainConfig, train
from tdd.models import checkpoint
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec
from tdd.records import LanguageModel, Scores, Texts

SCORES = ("loss", "min_k_plus_plus")
PROPORTIONS = ("none", "storey")
VOCABULARY, LAYERS, WIDTH, HEADS, POSITIONS = 2048, 4, 128, 4, 256
BASE_DOCUMENTS = 1500
BASE = TrainConfig(epochs=4, batch_size=16, learning_rate=2e-3, max_length=POSITIONS, seed=1)
FIRST_WORDS = 12


def main() -> None:
    options = parse_arguments()
    started = time.perf_counter()
    texts = {label: read_articles(options.data, label) for label in (0, 1)}
    tokenizer = train_tokenizer([*texts[0].texts, *texts[1].texts], vocab_size=VOCABULARY)
    spec = DecoderSpec.gpt2(
        vocab_size=VOCABULARY, width=WIDTH, num_layers=LAYERS, num_heads=HEADS, max_length=POSITIONS
    )
    lm = language_model(spec)
    base = train(
        lm,
        init_params(spec, jax.random.key(0)),
        tokenizer,
        generate(BASE_DOCUMENTS, seed=0).texts,
        config=BASE,
        progress=True,
    )
    seeds, shift = [], {}
    for seed in range(options.seeds):
        config = TrainConfig(epochs=options.epochs, batch_size=16, learning_rate=1e-3, max_length=POSITIONS, seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            seeds.append(audit(pathlib.Path(folder), lm, base.params, tokenizer, texts[1], config, options.alpha))
            if seed == 0:
                shift = audit_against_other_texts(pathlib.Path(folder), texts, options.alpha)
        print(f"seed {seed}: {json.dumps(seeds[-1]['results'])}", flush=True)
    report = {
        "alpha": options.alpha,
        "data_sha256": hashlib.sha256(options.data.read_bytes()).hexdigest(),
        "texts": {f"label_{label}": len(of_label) for label, of_label in texts.items()},
        "parts": part_sizes(len(texts[1])),
        "model": {"parameters": sum(leaf.size for leaf in jax.tree.leaves(base.params)), "spec": repr(spec)},
        "fine_tuning_epochs": options.epochs,
        "base_history": base.history,
        "summary": summarise([entry["results"] for entry in seeds]),
        "seeds": seeds,
        "calibrated_on_label_0": shift,
        "versions": {"tdd": tdd.__version__, "jax": jax.__version__, "python": platform.python_version()},
        "device": jax.devices()[0].device_kind,
        "seconds": round(time.perf_counter() - started, 1),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["summary"], indent=1))
    print(json.dumps(shift, indent=1))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, required=True, help="wikimia.jsonl: id, length, label, input")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=8, help="of fine-tuning")
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path(__file__).parent / "results" / "wikimia_audit.json",
    )
    return parser.parse_args()


def read_articles(path: pathlib.Path, label: int) -> Texts:
    """One text an article: the longest of at most 64 words. (WikiMIA's longer texts repeat its shorter ones.)"""
    longest: dict[str, tuple[str, str]] = {}
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    for row in sorted(rows, key=lambda row: (row["length"], row["id"])):
        if row["label"] == label and row["length"] <= 64:
            longest[" ".join(row["input"].split()[:FIRST_WORDS])] = (str(row["id"]), row["input"])
    ids, texts = zip(*longest.values(), strict=True)
    return Texts(ids=ids, texts=texts)


def part_sizes(available: int) -> dict[str, int]:
    """Half is trained on; the rest calibrates and gives the non-member candidates."""
    members = available // 2
    nonmembers = (available - members) // 2
    return {"members": members, "nonmembers": nonmembers, "calibration": available - members - nonmembers}


def audit(
    folder: pathlib.Path,
    lm: LanguageModel,
    base: Any,
    tokenizer: Any,
    texts: Texts,
    config: TrainConfig,
    alpha: float,
) -> dict[str, Any]:
    """Split, fine-tune, save the checkpoint to `folder`, score, select."""
    planted = plant(texts, **part_sizes(len(texts)), seed=config.seed)
    tuned = train(lm, base, tokenizer, planted.training.texts, config=config)
    checkpoint.save(folder / "checkpoint", lm, tuned.params, tokenizer)
    calibration = score(folder, planted.calibration)
    candidates = score(folder, planted.candidates)
    entry = {
        "seed": config.seed,
        "train_loss": tuned.history[-1]["loss"],
        "mean_loss": {
            "members": float(np.mean(candidates["loss"][np.array(planted.candidates.labels) == 1])),
            "nonmembers": float(np.mean(candidates["loss"][np.array(planted.candidates.labels) == 0])),
            "calibration": float(np.mean(calibration["loss"])),
        },
        "results": select_all(calibration, candidates, planted.candidates.labels, alpha),
    }
    if config.seed == 0:
        entry["blind_baseline"] = describe_baseline(planted.calibration, planted.candidates)
    return entry


def audit_against_other_texts(folder: pathlib.Path, texts: dict[int, Texts], alpha: float) -> dict[str, Any]:
    """The first seed's candidates, calibrated on label-0 texts."""
    planted = plant(texts[1], **part_sizes(len(texts[1])), seed=0)
    calibration, candidates = score(folder, texts[0]), score(folder, planted.candidates)
    return {
        "blind_baseline": describe_baseline(texts[0], planted.candidates),
        "results": select_all(calibration, candidates, planted.candidates.labels, alpha),
    }


def score(folder: pathlib.Path, texts: Texts) -> Scores:
    return tdd.score(str(folder / "checkpoint"), texts, scores=SCORES)


def select_all(
    calibration: Scores, candidates: Scores, labels: tuple[int, ...], alpha: float
) -> dict[str, dict[str, float]]:
    """FDP, power and number of selections for every score and proportion estimate."""
    member = np.array(labels) == 1
    results = {}
    for name in SCORES:
        for proportion in PROPORTIONS:
            selection = tdd.ptdi(calibration[name], candidates[name], alpha=alpha, proportion=proportion)
            selected = np.asarray(selection.selected)
            results[f"{name}/{proportion}"] = {
                "selected": int(selected.sum()),
                "fdp": float(np.sum(selected & ~member) / max(1, selected.sum())),
                "power": float(np.sum(selected & member) / member.sum()),
                "proportion": float(selection.proportion),
            }
    return results


def describe_baseline(calibration: Texts, candidates: Texts) -> dict[str, Any]:
    found = blind_baseline(calibration, candidates, seed=0)
    return {
        "auc": found.auc,
        "p_value": found.p_value,
        "threshold": found.threshold,
        "warning": found.warning,
    }


def summarise(results: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Mean and standard error over the seeds."""
    summary = {}
    for name in results[0]:
        summary[name] = {}
        for figure in ("fdp", "power", "selected", "proportion"):
            values = np.array([entry[name][figure] for entry in results])
            summary[name][figure] = round(float(values.mean()), 4)
            if len(values) > 1:
                summary[name][f"{figure}_se"] = round(float(values.std(ddof=1) / np.sqrt(len(values))), 4)
    return summary


if __name__ == "__main__":
    main()
