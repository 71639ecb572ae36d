"""KTD end to end with a T5 of our own: train the paraphraser, paraphrase, audit, and compare with the truth.

The laboratory's grammar writes short texts. A small T5 learns to paraphrase them from pairs that are made by rule
(other words of the same lists, sentences in new order), on texts that no audit meets. Each seed fine-tunes the packaged
model on new texts, the members; `tdd.paraphrase` writes three versions of members and non-members alike, and
`tdd.run_audit(method=KTD(rule="ktd"))` audits them by the norm of the gradient. The same candidates are audited under a
model that was fine-tuned on other texts, where every selection is wrong.

KTD assumes that a non-member and its paraphrases are exchangeable. Here the original is a document of the grammar and
the paraphrase a model's attempt at one, so the assumption fails as far as the attempt does; the decoding sets how far.
The audit's symmetry test on known non-members is reported, and "conformal", which ranks the same statistic among them.

From the scores of each audit, FDP and power of every rule are averaged over random divisions of the non-members into
calibration items and candidates. The thresholds of KTD's section 5.2 are chosen on 100 texts with known labels: half of
them members, which are candidates of no rule, and half calibration items.

    python -m benchmarks.paraphrased_ktd [--seeds 3] [--folder paraphrased-ktd]
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from safetensors.numpy import save_file

import tdd
from benchmarks import harness
from benchmarks.arxivtection_ktd import leaning, select
from benchmarks.known_truth import mean_and_error
from benchmarks.paraphrases import paraphrases, split_sentences
from benchmarks.reproductions.models import base_model, fine_tune
from tdd.audit.paraphrase import TABLE
from tdd.lab.corpus import generate
from tdd.models import t5
from tdd.runs.atomic import write_atomically
from tdd.runs.folder import Audit, to_json
from tdd.study.baselines import threshold

ALPHAS = (0.05, 0.1, 0.2)
VERSIONS = 3
SCORES = ("grad_norm", "loss", "min_k", "zlib")
DECODINGS: dict[str, dict[str, Any]] = {
    "temperature 1.9": {},
    "temperature 1": {"temperature": 1.0},
    "beams": {"decoding": "beams"},
}
"""Name -> options of `tdd.paraphrase`; the first is KTD's."""
RULES = (("ktd", 1, ""), ("ktd", VERSIONS, ""), ("multi", VERSIONS, ""), ("conformal", VERSIONS, "storey"))
"""Rule, k, proportion."""
_PAIRS, _POOL, _OTHERS, _VERSIONS = 910_000, 920_000, 930_000, 940_000


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of everything.

    Attributes:
      words: Most words of a text of several sentences.
      tokens: Most tokens of a text.
      width, layers: Of the T5, whose heads are 32 wide.
      steps, batch, learning_rate, pairs: Of its training.
      members, nonmembers: Texts that are trained on, texts that are not.
      epochs: Of fine-tuning.
      labelled: Texts with known labels on which thresholds are chosen.
      divisions: Random divisions a model.
    """

    words: int = 16
    tokens: int = 48
    width: int = 128
    layers: int = 2
    steps: int = 2_400
    batch: int = 32
    learning_rate: float = 3e-3
    pairs: int = 40_000
    members: int = 100
    nonmembers: int = 160
    epochs: int = 4
    labelled: int = 100
    divisions: int = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("paraphrased-ktd"))
    options = parser.parse_args()
    sizes = Sizes()
    options.folder.mkdir(parents=True, exist_ok=True)
    training = train_paraphraser(options.folder / "t5", sizes)
    print(f"paraphraser: {json.dumps(training)}", flush=True)
    measured = functools.partial(measure, folder=options.folder, sizes=sizes)
    of_seeds = harness.of_seeds(range(options.seeds), options.folder, measured)
    found = {
        "command": f"python -m benchmarks.paraphrased_ktd --seeds {options.seeds}",
        "version": tdd.__version__,
        "sizes": dataclasses.asdict(sizes),
        "paraphraser": training,
        **joined(of_seeds),
    }
    print(harness.table(found["rows"]))
    print(f"written to {harness.write('paraphrased_ktd', found).name}")


def texts_of(seed: int, count: int, sizes: Sizes) -> list[str]:
    """Different texts of whole sentences: the first ones of each document, as many as `words` allows, at least one."""
    kept: dict[str, None] = {}
    for document in generate(2 * count, seed=seed).texts:
        sentences, length = split_sentences(document), 0
        for number, sentence in enumerate(sentences):
            length += len(sentence.split())
            if number and length > sizes.words:
                sentences = sentences[:number]
                break
        kept[" ".join(sentences)] = None
    return [*kept][:count]


def train_paraphraser(folder: pathlib.Path, sizes: Sizes) -> dict[str, Any]:
    """Train a T5 and write it as Hugging Face's files; a finished one is read. Returns its losses and its seconds."""
    place = folder / "training.json"
    if place.exists():
        return json.loads(place.read_text("utf-8"))
    begun = time.perf_counter()
    tokenizer = base_model(None, scale=1, seed=0).tokenizer
    end = tokenizer.eos_token_id
    config = {
        "model_type": "t5", "vocab_size": len(tokenizer), "d_model": sizes.width, "d_kv": 32, "d_ff": 2 * sizes.width,
        "num_layers": sizes.layers, "num_heads": sizes.width // 32, "feed_forward_proj": "gated-gelu",
        "relative_attention_max_distance": 64, "decoder_start_token_id": end, "pad_token_id": end, "eos_token_id": end,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    spec = t5._read_spec(folder / "config.json", tied=True)
    save_file(first_tensors(spec), folder / "model.safetensors")
    params = t5.load_t5(folder)[1]
    sources = texts_of(_PAIRS, sizes.pairs, sizes)
    targets = [versions[0] for versions in paraphrases(sources, 1, seed=_PAIRS)]
    rows = [
        [[*ids, end] for ids in tokenizer(texts)["input_ids"]] for texts in (sources, targets)
    ]  # [source, target][pairs]
    kept = [pair for pair in zip(*rows, strict=True) if max(map(len, pair)) <= sizes.tokens]
    held_out, kept = kept[: 2 * sizes.batch], kept[2 * sizes.batch :]
    params, losses = fitted(spec, params, kept, sizes)
    result = {
        "parameters": int(sum(leaf.size for leaf in jax.tree.leaves(params))),
        "pairs": len(kept),
        "losses": [round(float(np.mean(part)), 3) for part in np.array_split(losses, min(10, len(losses)))],
        "held_out_loss": float(mean_loss(spec, params, *padded(held_out, sizes.tokens, end))),
        "seconds": time.perf_counter() - begun,
    }
    save_file(stored(spec, params), folder / "model.safetensors")
    write_atomically(place, to_json(result).encode())
    return result


def first_tensors(spec: t5.T5Spec) -> dict[str, np.ndarray]:
    """Random parameters under their names: kernels with variance 1 / inputs, those of queries divided by d besides."""
    rng, tensors = np.random.default_rng(0), {}
    for name, shape in t5._expected(spec).items():
        scale = 1.0 if name == t5._SHARED else 0.1 if "bias" in name else shape[-1] ** -0.5
        scale *= spec.head_dim**-0.5 if name.endswith(".q.weight") else 1
        value = np.ones(shape) if len(shape) == 1 else rng.normal(0, scale, shape)
        tensors[name] = value.astype(np.float32)
    return tensors


def stored(spec: t5.T5Spec, params: Any) -> dict[str, np.ndarray]:
    """Parameters under the names of Hugging Face's files: what `load_t5` reads back."""
    tensors = {t5._SHARED: params["embedding"]}
    for part, depth in (("encoder", spec.num_layers), ("decoder", spec.num_decoder_layers)):
        layers = params[part]["layers"]
        tensors[f"{part}.final_layer_norm.weight"] = params[part]["norm"]
        tensors[t5._distances(part)] = params[part]["distances"]
        for layer in range(depth):
            block = f"{part}.block.{layer}"
            for name, parts in t5._layer_tensors(spec, part):
                kernels = np.split(np.asarray(layers[name][layer]), len(parts), 1)
                tensors |= {f"{block}.{one}": kernel.T for (one, _), kernel in zip(parts, kernels, strict=True)}
            for number, name in enumerate(t5._norms(part)):
                tensors[f"{block}.layer.{number}.layer_norm.weight"] = layers[name][layer]
    return {name: np.ascontiguousarray(value) for name, value in tensors.items()}


def padded(pairs: Sequence[Any], length: int, padding: int) -> tuple[np.ndarray, ...]:
    """Tokens [B, T] and mask of the sources, then of the targets."""
    arrays = []
    for side in range(2):
        tokens, mask = np.full((len(pairs), length), padding, np.int32), np.zeros((len(pairs), length), bool)
        for number, pair in enumerate(pairs):
            tokens[number, : len(pair[side])], mask[number, : len(pair[side])] = pair[side], True
        arrays += [tokens, mask]
    return tuple(arrays)


def mean_loss(spec: t5.T5Spec, params: Any, tokens: Any, mask: Any, target: Any, scored: Any) -> jax.Array:
    """Mean -log p of the target tokens, in nats."""
    shifted = jnp.roll(target, 1, 1).at[:, 0].set(spec.start)
    log_probs = jax.nn.log_softmax(t5.logits(spec, params, tokens, mask, shifted))
    own = jnp.take_along_axis(log_probs, target[..., None], -1)[..., 0]
    return -jnp.sum(jnp.where(scored, own, 0)) / jnp.sum(scored)


def fitted(spec: t5.T5Spec, params: Any, pairs: Sequence[Any], sizes: Sizes) -> tuple[Any, list[float]]:
    """The parameters after training, and the loss of each step."""
    schedule = optax.warmup_cosine_decay_schedule(0, sizes.learning_rate, sizes.steps // 10, sizes.steps)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.98))

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Any, state: Any, *batch: Any) -> tuple[Any, Any, jax.Array]:
        loss, gradient = jax.value_and_grad(functools.partial(mean_loss, spec))(params, *batch)
        change, state = optimiser.update(gradient, state, params)
        return optax.apply_updates(params, change), state, loss

    rng, state, losses = np.random.default_rng(0), optimiser.init(params), []
    for _ in range(sizes.steps):
        chosen = rng.integers(len(pairs), size=sizes.batch)
        batch = padded([pairs[i] for i in chosen], sizes.tokens, spec.padding)
        params, state, loss = step(params, state, *batch)
        losses.append(float(loss))
    return params, losses


def measure(seed: int, folder: pathlib.Path, sizes: Sizes) -> dict[str, Any]:
    """Fine-tune both models of a seed; paraphrase, audit and evaluate with each decoding."""
    begun = time.perf_counter()
    texts = texts_of(_POOL + seed, sizes.members + sizes.nonmembers, sizes)
    base = base_model(None, scale=1, seed=0)
    options = {"epochs": sizes.epochs, "learning_rate": 1e-3, "seed": seed, "max_length": 2 * sizes.tokens}
    models = {
        "trained": fine_tune(base, texts[: sizes.members], **options),
        "null": fine_tune(base, texts_of(_OTHERS + seed, sizes.members, sizes), **options),
    }
    calibrating = sizes.nonmembers // 2
    rows = [{"id": f"{n:04}", "text": text, "label": int(n < sizes.members)} for n, text in enumerate(texts)]
    written, audits, rates = [], [], []
    for name, how in DECODINGS.items():
        place = folder / f"{name.replace(' ', '-')}-{seed}"
        of_role = {"candidates": rows[:-calibrating], "calibration": rows[-calibrating:]}
        runs = {
            role: tdd.paraphrase(
                tdd.load_texts(part, label_field="label"), out=place / role, model=folder / "t5", prompt="{text}",
                versions=VERSIONS, seed=_VERSIONS + seed, max_tokens=2 * sizes.tokens, **how,
            )
            for role, part in of_role.items()
        }  # fmt: skip
        written.append({"decoding": name, **described(place, runs)})
        for truth, model in models.items():
            audit = tdd.run_audit(
                tuple(model),
                place / "candidates" / TABLE,
                place / "calibration" / TABLE,
                knockoff_fields=tuple(f"paraphrase_{version + 1}" for version in range(VERSIONS)),
                alpha=ALPHAS[1],
                method=tdd.KTD(rule="ktd"),
                score=SCORES[0],
                extra_scores=SCORES[1:],
                label_field="label" if truth == "trained" else None,
            )
            symmetry, decision = audit.run["checks"]["symmetry"], audit.run["decision"]
            audits.append(
                {
                    "decoding": name,
                    "model": truth,
                    "symmetry_p": symmetry["p_value"],
                    "verdict": audit.verdict_stands,
                    "selected": decision["num_selected"],
                }
            )
            rates += [
                {"decoding": name, "model": truth, **row}
                for row in evaluate(read_scores(audit), truth == "trained", seed, sizes)
            ]
    return {"seed": seed, "written": written, "audits": audits, "rates": rates, "seconds": time.perf_counter() - begun}


def described(place: pathlib.Path, runs: Mapping[str, Any]) -> dict[str, Any]:
    """Copies, empty and cut answers as shares of all answers, length ratios, and one text with its paraphrases."""
    rows = [json.loads(line) for role in runs for line in (place / role / TABLE).read_text("utf-8").splitlines()]
    column = lambda name: np.array([row[f"{name}_{v + 1}"] for row in rows for v in range(VERSIONS)])  # noqa: E731
    ratios = column("length_ratio")
    return {
        "copies": float(column("copy").mean()),
        "cut": float(column("cut").mean()),
        "empty": float((ratios == 0).mean()),
        "length_ratio": np.quantile(ratios, (0.05, 0.5, 0.95)).round(3).tolist(),
        "example": [rows[0]["text"], *(rows[0][f"paraphrase_{v + 1}"] for v in range(VERSIONS))],
    }


def read_scores(audit: Audit) -> dict[str, np.ndarray]:
    """[items, 1 + VERSIONS] of each score, candidates first, the text's own in front."""
    columns = {name: [name, *(f"{name} (knockoff {v + 1})" for v in range(VERSIONS))] for name in SCORES}
    return {
        name: np.stack([np.concatenate([audit.items[one], audit.calibration[one]]) for one in mine], 1).astype(float)
        for name, mine in columns.items()
    }


def evaluate(scores: Mapping[str, np.ndarray], trained: bool, seed: int, sizes: Sizes) -> list[dict[str, Any]]:
    """FDP and power of every rule over random divisions of one model's scores; the members stand first."""
    rng, half = np.random.default_rng(seed), sizes.labelled // 2
    count, calibrating = sizes.members + sizes.nonmembers, sizes.nonmembers // 2
    members = np.stack([rng.permutation(sizes.members) for _ in range(sizes.divisions)])
    others = np.stack([sizes.members + rng.permutation(sizes.nonmembers) for _ in range(sizes.divisions)])
    tested = np.concatenate([members[:, half:], others[:, calibrating:]], 1)
    calibration, labelled = others[:, :calibrating], np.concatenate([members[:, :half], others[:, :half]], 1)
    truth = (tested < sizes.members) & trained
    main, known = scores[SCORES[0]], np.arange(count) >= sizes.members * trained

    def row(rule: str, k: int, alpha: float | None, selected: np.ndarray, lean: float | None = None) -> dict[str, Any]:
        false, found = (selected & ~truth).sum(1), selected.sum(1)
        return {
            "rule": rule,
            "k": k,
            "alpha": alpha,
            "fdp": float((false / np.maximum(found, 1)).mean()),
            "power": float(((selected & truth).sum(1) / truth.sum(1)).mean()) if trained else None,
            "leaning": lean,
        }

    rows = []
    for rule, k, proportion in RULES:
        copies = main[:, : k + 1]
        lean = None if proportion else float(leaning(copies[known], rule))
        for alpha in ALPHAS:
            selected = np.asarray(select(copies[tested], copies[calibration], rule, proportion, alpha))
            rows.append(row(rule, k, alpha, selected, lean))
    difference = main[:, 1:].mean(1) - main[:, 0]
    rows.append(row("W > 0", VERSIONS, None, difference[tested] > 0))
    for name in SCORES if trained else ():
        own = scores[name][:, 0]
        for alpha in ALPHAS:
            selected = _by_threshold(own[labelled], labelled < sizes.members, own[tested], alpha)
            rows.append(row(f"threshold on {name}", 0, alpha, np.asarray(selected)))
    return rows


@functools.partial(jax.jit, static_argnames="alpha")
def _by_threshold(labelled: Any, is_member: Any, tested: Any, alpha: float) -> jax.Array:
    """[divisions, m] selected by thresholds whose FDP on the labelled texts is at most alpha."""

    def one(labelled: jax.Array, is_member: jax.Array, tested: jax.Array) -> jax.Array:
        return threshold(labelled, is_member, tested, null="nonmember", rule="fdr", alpha=alpha).selected

    return jax.vmap(one)(*map(jnp.asarray, (labelled, is_member, tested)))


def joined(of_seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the seeds with their standard errors."""
    keys = ("decoding", "model", "rule", "k", "alpha")
    rows = []
    for number, first in enumerate(of_seeds[0]["rates"]):
        row: dict[str, Any] = {key: first[key] for key in keys}
        for name in ("fdp", "power", "leaning"):
            values = [one["rates"][number][name] for one in of_seeds]
            row[name], row[f"{name}_se"] = (None, None) if values[0] is None else mean_and_error(values)
        rows.append(row)
    written, audits = [], []
    for name in DECODINGS:
        mine = [next(one for one in found["written"] if one["decoding"] == name) for found in of_seeds]
        means = {key: float(np.mean([one[key] for one in mine])) for key in ("copies", "cut", "empty")}
        ratios = np.mean([one["length_ratio"] for one in mine], 0).round(3).tolist()
        written.append({"decoding": name, **means, "length_ratio": ratios, "example": mine[0]["example"]})
        for model in ("trained", "null"):
            of_model = [
                one for found in of_seeds for one in found["audits"] if (one["decoding"], one["model"]) == (name, model)
            ]
            audits.append(
                {
                    "decoding": name,
                    "model": model,
                    "symmetry_p": [one["symmetry_p"] for one in of_model],
                    "withheld": sum(not one["verdict"] for one in of_model),
                    "audits": len(of_model),
                }
            )
    seconds = float(sum(one["seconds"] for one in of_seeds))
    return {"seeds": len(of_seeds), "seconds": seconds, "written": written, "audits": audits, "rows": rows}


if __name__ == "__main__":
    main()
