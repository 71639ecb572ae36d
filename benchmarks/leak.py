"""A watched benchmark that leaks into training, clean runs that must stay silent, and how much of a leak is needed.

    python -m benchmarks.leak --folder build/leak
    python -m benchmarks.leak --scores

One run is shown look by look: from a step on, items of the benchmark are in the training stream;
`tdd.probe.contamination` sees parameters alone, `tdd.probe.StreamGuard` the stream itself. Then many small runs, each a
compiled loop from a fresh start with a fresh division of the same texts into benchmark and reference: clean ones for
false alarms, and planted ones by share and copies of the items. Beside ours: an alarm whenever a single look has p <=
alpha, and the same with alpha divided by the number of looks. Runs are kept in the folder; an interrupted benchmark
continues there.

With --scores another leak: the model was trained on no text, and those that a score's prefix or fine-tuning took stay
among calibration texts or candidates, which `tdd.score` refuses; how often PTDI then selects something.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import stats

import tdd
from benchmarks import harness
from tdd import probe
from tdd.lab.corpus import generate
from tdd.lab.step import Stepper, token_losses
from tdd.lab.tokens import Batch, train_tokenizer
from tdd.lab.train import TrainConfig, train
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import Attention, DecoderSpec, LayerNorm, LearnedPositions, Mlp
from tdd.probe.benchmark import rises, start_of_rise
from tdd.records import LanguageModel, Texts
from tdd.runs.folder import versions
from tdd.scoring.devices import find_devices
from tdd.scoring.inputs import Model
from tdd.scoring.plan import Planner
from tdd.scoring.run import Runners, ScoreRun, Turn
from tdd.scoring.scores import Fsd, ReCall, Score
from tdd.scoring.tasks import tasks_of

STEPS, EVERY, BATCH, LENGTH, VOCABULARY = 400, 20, 8, 32, 320
ITEMS, LEAK, RATE, DRAWS = 100, 200, 3e-3, 1_999
SHARES, COPIES, ALPHAS = (0.1, 0.3, 1.0), (1, 4, 16), (0.05, 0.2)
CLEAN_RUNS, PLANTED_RUNS = 200, 24
SEEDS, POOL, CALIBRATION, CANDIDATES, DIVISIONS, WORDS, CONTEXT, LEVEL = 10, 250, 99, 10, 1_000, 8, 320, 0.1
TAKEN = {"recall": 8, "fsd:rate=0.01": 24}
"""Score -> texts that its prefix or its fine-tuning takes."""


def model(length: int, width: int) -> tuple[DecoderSpec, LanguageModel]:
    """A decoder of two layers."""
    spec = DecoderSpec(
        vocab_size=VOCABULARY,
        width=width,
        num_layers=2,
        norm=LayerNorm(),
        positions=LearnedPositions(length),
        attention=Attention(2, width // 2, ((width // 2) ** -0.5,) * 2),
        mlp=Mlp(2 * width, "gelu_tanh"),
    )
    return spec, language_model(spec)


@functools.cache
def rows(length: int, count: int) -> np.ndarray:
    """[count, length] the first tokens of synthetic documents."""
    tokenizer = train_tokenizer(generate(300, seed=101).texts, vocab_size=VOCABULARY)
    return np.array([ids[:length] for ids in tokenizer(list(generate(count, seed=102).texts))["input_ids"]], np.int32)


def stream(rng: np.random.Generator, items: np.ndarray, others: np.ndarray, copies: int, steps: int) -> np.ndarray:
    """[steps, B] rows of a training run; `items` take random places from step LEAK on, `copies` times each."""
    found = rng.choice(others, (steps, BATCH))
    late = found[LEAK:].reshape(-1)
    late[rng.permutation(late.size)[: copies * items.size]] = rng.permutation(np.repeat(items, copies))
    return found


class Runs:
    """Small runs of one compiled loop."""

    def __init__(self) -> None:
        self.tokens = rows(LENGTH, 2_000)
        self.spec, self.lm = model(LENGTH, 24)
        items = self.tokens[: 2 * ITEMS]
        self.watch = probe.contamination(
            self.lm, items[:ITEMS], items[ITEMS:], every=EVERY, num_steps=STEPS, num_draws=DRAWS, token_budget=1_600
        )
        self.loop = jax.jit(self._loop)

    def _loop(self, key: jax.Array, order: jax.Array, division: jax.Array) -> Any:
        """Evidence and scores [L, ...] of a run; items are relabelled by `division`, so each run has its own."""
        optimizer, tokens = optax.adam(RATE), jnp.asarray(self.tokens)
        params = init_params(self.spec, key)
        mask = jnp.broadcast_to(jnp.arange(LENGTH) > 0, (BATCH, LENGTH))

        def step(carry: Any, chosen: jax.Array) -> Any:
            params, moments = carry
            gradients = jax.grad(lambda p: jnp.sum(token_losses(self.lm, p, tokens[chosen], mask)) / mask.sum())(params)
            changes, moments = optimizer.update(gradients, moments)
            return (optax.apply_updates(params, changes), moments), None

        def look(carry: Any, chunk: jax.Array) -> Any:
            params, moments, state = carry
            result = self.watch.evaluate(params)
            scores = jnp.concatenate([result.suspect_scores, result.reference_scores])[division]
            result = dataclasses.replace(result, suspect_scores=scores[:ITEMS], reference_scores=scores[ITEMS:])
            state, evidence = self.watch.observe(state, result)
            (params, moments), _ = jax.lax.scan(step, (params, moments), chunk)
            return (params, moments, state), (evidence, scores)

        start = (params, optimizer.init(params), self.watch.init())
        return jax.lax.scan(look, start, order)[1]

    def __call__(self, seed: int, share: float, copies: int) -> dict[str, np.ndarray]:
        """What a run leaves: p-values, anytime p-values, rises, and the step of the first planted item."""
        rng = np.random.default_rng([7, seed, round(100 * share), copies])
        division = rng.permutation(2 * ITEMS)
        planted, others = division[: round(share * ITEMS)], np.arange(2 * ITEMS, len(self.tokens))
        steps = STEPS + EVERY  # what follows the last look is not seen
        chosen = stream(rng, planted, others, copies, steps)
        found = np.isin(chosen, planted).any(axis=1) if planted.size else np.zeros(steps, bool)
        key = jax.random.key(rng.integers(2**31))
        evidence, scores = jax.device_get(self.loop(key, chosen.reshape(-1, EVERY, BATCH), division))
        return {
            "p": evidence.p_value,
            "anytime": evidence.anytime_p_value,
            "rises": rises(scores, ITEMS),
            "first": np.array(found.argmax() if found.any() else -1),
        }


def measure(folder: pathlib.Path, runs: int, share: float, copies: int) -> list[dict[str, np.ndarray]]:
    """`runs` runs of one kind; those in the folder are read."""
    folder.mkdir(parents=True, exist_ok=True)
    found, begin = [], time.perf_counter()
    for seed in range(runs):
        kept = folder / f"{share:g}-{copies}-{seed}.npz"
        if not kept.exists():
            partial = kept.with_suffix(".part.npz")
            left = shared_runs()(seed, share, copies)
            np.savez(partial, **left)  # pyright: ignore[reportArgumentType]
            partial.rename(kept)
        with np.load(kept) as held:
            found.append(dict(held))
    print(f"{runs} runs, share {share:g}, {copies} copies: {time.perf_counter() - begin:.0f} s", flush=True)
    return found


@functools.cache
def shared_runs() -> Runs:
    return Runs()


def alarms(runs: list[dict[str, np.ndarray]], alpha: float) -> dict[str, np.ndarray]:
    """[runs] the look of the first alarm of each rule, the number of looks where there is none."""
    looks = len(runs[0]["p"])
    anytime, p = (np.array([run[name] for run in runs]) for name in ("anytime", "p"))
    rules = {"ours": anytime <= alpha, "single look": p <= alpha, "divided": p <= alpha / looks}
    return {name: np.where(hit.any(axis=1), hit.argmax(axis=1), looks) for name, hit in rules.items()}


def clean(runs: list[dict[str, np.ndarray]]) -> list[dict[str, Any]]:
    """False alarms of each rule, with exact binomial intervals (95%)."""
    table, looks = [], len(runs[0]["p"])
    for alpha in ALPHAS:
        for rule, first in alarms(runs, alpha).items():
            count = int((first < looks).sum())
            low, high = stats.binomtest(count, len(runs)).proportion_ci(0.95)
            table.append(
                {"alpha": alpha, "rule": rule, "runs": len(runs), "looks": looks, "false_alarms": count,
                 "interval": [float(low), float(high)],
                 "p_more": float(stats.binom.sf(count - 1, len(runs), alpha))}
            )  # fmt: skip
    return table


def power(runs: list[dict[str, np.ndarray]], share: float, copies: int) -> dict[str, Any]:
    """How often and how soon the leak is reported, and how far off the estimate of its beginning is, in looks."""
    looks = len(runs[0]["p"])
    first = alarms(runs, ALPHAS[0])
    row: dict[str, Any] = {"share": share, "copies": copies, "runs": len(runs), "alpha": ALPHAS[0]}
    true = np.array([run["first"] // EVERY + 1 for run in runs])  # the first look that a planted item could move
    for rule, alarm in first.items():
        row[f"found, {rule}"] = float(((alarm >= true) & (alarm < looks)).mean())
        row[f"before the leak, {rule}"] = float((alarm < true).mean())
    hit = np.flatnonzero((first["ours"] >= true) & (first["ours"] < looks))
    delays = first["ours"][hit] - true[hit]
    errors = np.array([start_of_rise(runs[i]["rises"][: first["ours"][i] + 1]) - true[i] for i in hit])
    if hit.size:
        row |= {"delay": [float(np.quantile(delays, q)) for q in (0.5, 0.9)], "error": float(np.median(errors)),
                "absolute_error": [float(np.quantile(np.abs(errors), q)) for q in (0.5, 0.9)],
                "within_one": float((np.abs(errors) <= 1).mean())}  # fmt: skip
    return row


def shown(folder: pathlib.Path, steps: int = 600, every: int = 25, leak: int = 300, length: int = 48) -> dict[str, Any]:
    """One run, look by look: 60 of 100 items, 20 copies each, in random places from step `leak` on."""
    tokens, rng = rows(length, 1_400), np.random.default_rng(0)
    tokens = tokens[rng.permutation(len(tokens))]
    spec, lm = model(length, 32)
    config = TrainConfig(learning_rate=RATE, batch_size=BATCH, seed=0)
    stepper = Stepper(lm, config, None, jax.jit(init_params, static_argnums=0)(spec, jax.random.key(0)))
    benchmark, reference = tokens[:100], tokens[100:200]
    watch = probe.contamination(lm, benchmark, reference, every=every, num_steps=steps)
    guard = probe.StreamGuard(list(benchmark), reference=list(tokens[200:]))
    planted = rng.permutation(np.repeat(rng.permutation(100)[:60], 20))
    order = rng.integers(200, len(tokens), (steps + 1, BATCH))
    late = order[leak:].reshape(-1)
    late[rng.permutation(late.size)[: planted.size]] = planted
    mask = np.broadcast_to(np.arange(length) > 0, (BATCH, length))
    found, exposures, seconds = [], 0, {"step": [], "guard": []}
    for step, chosen in enumerate(order):
        record = watch(step, stepper.params)
        if record is not None:
            found.append(
                {"step": step, "exposures": exposures, "p_value": float(record.evidence.p_value),
                 "anytime_p_value": float(record.evidence.anytime_p_value), "alarm": record.alarm,
                 "flagged": int(record.flagged.sum()), "proportion": float(record.result.proportion),
                 "seconds": record.seconds}
            )  # fmt: skip
            print(found[-1], flush=True)
        begin = time.perf_counter()
        guard(step, tokens[chosen])
        middle = time.perf_counter()
        stepper.step([Batch(tokens[chosen], mask)], RATE, step)
        seconds["guard"].append(middle - begin)
        seconds["step"].append(time.perf_counter() - middle)
        exposures += int((chosen < 100).sum())
    known = watch.leak()
    if known is None:
        raise SystemExit("the planted leak was not reported")
    print(known)
    watch.save(folder)  # tdd report FOLDER --plot benchmarks/results/figures/leak.png
    leaked = {str(i + 1) for i in planted.tolist()}
    seen = guard.seen()
    print(f"stream: {len(seen)} items seen, first at step {min(text.first_step for text in seen)}")
    return {
        "looks": found, "leak": {**dataclasses.asdict(known), "words": str(known)}, "planted": len(leaked),
        "first_step": int(leak + np.argmax((order[leak:] < 100).any(axis=1))), "seed": 0,
        "wrongly_named": len(set(known.items) - leaked),
        "stream": {"seen": len(seen), "first_step": min(text.first_step for text in seen),
                   "times": [text.times for text in seen], "wrong": len({text.id for text in seen} - leaked)},
        "milliseconds": {name: 1e3 * float(np.median(values)) for name, values in seconds.items()},
    }  # fmt: skip


def unguarded(model: Model, texts: Texts, score: Score) -> np.ndarray:
    """A score of every text, without the check that the texts that it was given are others: [N]."""
    where = find_devices()
    tasks = tasks_of({score.name: score}, model, None, where)
    run = ScoreRun.prepare(Turn(0, texts), tasks=tasks, max_length=None, long_texts="window")
    plan = Planner(tasks.models, where, 4_096, None, alone=True).plan(run.inputs, run.distinct)
    for _ in run.run(plan, plan.numbered(), Runners(tasks.models, where)):
        pass
    return run.scores(plan).values(score.name, tasks)


def share_with_selections(scores: np.ndarray, taken: int, place: str, rng: np.random.Generator) -> float:
    """Share of the divisions of non-members, the first `taken` of them used by the score, in which PTDI selects."""
    divisions = []
    for _ in range(DIVISIONS):
        others = scores[taken:][rng.permutation(len(scores) - taken)]
        calibration, candidates = np.split(others[: CALIBRATION + CANDIDATES], [CALIBRATION])
        if place == "calibration":
            calibration[:taken] = scores[:taken]
        elif place == "candidates":
            candidates[: CANDIDATES // 2] = rng.choice(scores[:taken], CANDIDATES // 2, replace=False)
        divisions.append((calibration, candidates))
    return float(selects(*map(np.array, zip(*divisions, strict=True))).mean())


@jax.jit
@jax.vmap
def selects(calibration: jax.Array, candidates: jax.Array) -> jax.Array:
    """Whether PTDI selects anything, without an estimate of the proportion: its level is nearly reached."""
    return tdd.ptdi(calibration, candidates, alpha=LEVEL, proportion="none").selected.any()


def score_leaks(seeds: int) -> dict[str, Any]:
    """False discovery rates at LEVEL: nobody was trained on any text, so every selection is false."""
    tokenizer = train_tokenizer(generate(300, seed=101).texts, vocab_size=VOCABULARY)
    spec, lm = model(CONTEXT, 32)
    config = TrainConfig(epochs=1, learning_rate=1e-2, batch_size=8, max_length=CONTEXT, num_buckets=1)
    start = jax.jit(init_params, static_argnums=0)
    rates: dict[tuple[str, str], list[float]] = {}
    begin = time.perf_counter()
    for seed in range(seeds):
        params = start(spec, jax.random.key(seed))
        short = [" ".join(text.split()[:WORDS]) for text in generate(2_000, seed=200 + seed).texts]
        training = [" ".join(short[i : i + 9]) for i in range(0, len(short), 9)]
        params = train(lm, params, tokenizer, training, config=dataclasses.replace(config, seed=seed)).params
        documents = generate(POOL, seed=300 + seed)
        texts = dataclasses.replace(documents, texts=tuple(" ".join(t.split()[:WORDS]) for t in documents.texts))
        audited = Model(lm, params, tokenizer, "audited")
        for name, taken in TAKEN.items():
            used = Texts(texts.ids[:taken], tuple(f"{text} " for text in texts.texts[:taken]))
            score = ReCall(prefix=used) if name == "recall" else Fsd(rate="0.01", tune_on=used)
            scores = unguarded(audited, texts, score)
            for place in ("left out", "calibration", "candidates"):
                rng = np.random.default_rng([seed, taken])
                rates.setdefault((name, place), []).append(share_with_selections(scores, taken, place, rng))
        print(f"seed {seed}: {time.perf_counter() - begin:.0f} s", {k: v[-1] for k, v in rates.items()}, flush=True)
    return {
        "command": f"python -m benchmarks.leak --scores --seeds {seeds}",
        "versions": versions(),
        "setting": {"seeds": seeds, "divisions": DIVISIONS, "calibration": CALIBRATION,
                    "candidates": CANDIDATES, "alpha": LEVEL, "width": 32, "layers": 2,
                    "seconds": time.perf_counter() - begin},
        "rows": [
            {"score": name, "taken": TAKEN[name], "place": place, "fdr": float(np.mean(found)),
             "standard_error": float(np.std(found, ddof=1) / np.sqrt(len(found))), "by_seed": found}
            for (name, place), found in rates.items()
        ],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=pathlib.Path, help="of the runs; interrupted ones continue")
    parser.add_argument("--scores", action="store_true", help="leaks into a score's prefix or fine-tuning instead")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="models of --scores")
    parser.add_argument("--runs", type=int, default=CLEAN_RUNS, help="clean ones")
    parser.add_argument("--planted", type=int, default=PLANTED_RUNS, help="runs of each share and number of copies")
    parser.add_argument("--quick", action="store_true", help="few runs, nothing is written")
    arguments = parser.parse_args()
    if arguments.scores:
        leaks = score_leaks(2 if arguments.quick else arguments.seeds)
        if not arguments.quick:
            harness.write("score_leak", leaks)
        return
    if arguments.folder is None:
        parser.error("--folder is missing")
    clean_runs, planted_runs = (4, 2) if arguments.quick else (arguments.runs, arguments.planted)
    result = {
        "command": f"python -m benchmarks.leak --runs {clean_runs} --planted {planted_runs}",
        "versions": versions(),
        "setting": {
            "steps": STEPS, "every": EVERY, "batch": BATCH, "length": LENGTH, "items": ITEMS, "leak": LEAK,
            "draws": DRAWS, "rate": RATE, "vocabulary": VOCABULARY, "width": 24, "layers": 2,
            "seeds": f"runs 0 to {clean_runs - 1} (clean), 0 to {planted_runs - 1} (planted)",
        },
        "clean": clean(measure(arguments.folder, clean_runs, 0.0, 0)),
        "power": [
            power(measure(arguments.folder, planted_runs, share, copies), share, copies)
            for share in SHARES
            for copies in COPIES
        ],
        "shown": shown(arguments.folder / "shown"),
    }  # fmt: skip
    for row in result["clean"] + result["power"]:
        print(row)
    if not arguments.quick:
        harness.write("leak", result)


if __name__ == "__main__":
    main()
