"""`tdd exchange`: was a data set in the training data, in the order in which it was published?"""

from __future__ import annotations

import argparse
import pathlib
import re
from typing import Any

from tdd.cli.common import CHECK_FAILED, DETECTED, command, present
from tdd.cli.options import (
    add_devices,
    add_distributed,
    add_revision,
    add_shard,
    add_store,
    connect,
    devices,
    leads,
    say_done,
)

_SHUFFLES = 50
_LAST_LOOK = 1 / 3
"""Smallest fraction of the level that the last look of "spending" has."""

_WITH_LOG_PROBS = {"log_probs", "test", "alpha", "seed", "json", "quiet", "verbose", "fail_on_detection"}
_WITH_LOG_PROBS |= {"command", "model", "dataset", "parser", "run", "typed", "usual"}
"""Arguments that the command reads beside --log-probs."""

_EPILOG = """\
what it does:
  A data set that was trained on as a file was seen in the order of that file.
  The examples are cut into contiguous shards; each shard is written out in its
  published order and in random orders of the same examples, and the model says
  how likely each of these texts is. A model that never saw the file has no
  reason to prefer the published order.

what it assumes:
  The published order is random: the examples could as well stand in any other
  order. Sorted files, files grouped by topic or numbered examples break this.
  Visible structure is looked for without the model and warned of; exactly
  sorted files are refused. A negative control (--control) is a second check.
  Separator, template, shards and test are to be chosen before any result is
  seen.

what it does not say:
  A large p-value does not show that the data set was absent. A small one does
  not say how the order came into the model.

examples:
  tdd exchange ./gpt2 boolq.jsonl --template '{question} {answer}' \\
      --out runs/boolq
  tdd exchange ./gpt2 canary.jsonl --template json --separator '\\n' --shards 25
  tdd exchange ./gpt2 mmlu/*.csv --template '{question} {answer}' \\
      --control ./bio --out runs/mmlu
  tdd exchange ./gpt2 boolq.jsonl --target-p 0.001 --shuffles 200
"""


def add(commands: Any) -> None:
    """Register the command."""
    exchange = command(
        commands,
        "exchange",
        _run,
        "was a data set in the training data? A test of its published order",
        usual=(
            "--template",
            "--separator",
            "--shards",
            "--shuffles",
            "--test",
            "--alpha",
            "--control",
            "--target-p",
            "--out",
            "--plot",
            "--device",
        ),
    )
    exchange.formatter_class = argparse.RawDescriptionHelpFormatter
    exchange.epilog, exchange.rare_epilog = _EPILOG, True
    exchange.add_argument("model", nargs="?", help="checkpoint folder, GGUF file or hub id")
    exchange.add_argument(
        "dataset",
        nargs="*",
        help="examples in their published order: .jsonl, .json, .csv, .tsv, .parquet, .txt; several are decided on "
        "together (Benjamini and Hochberg)",
    )
    exchange.add_argument(
        "--log-probs",
        metavar="FILE",
        help="instead of model and data sets: log-probabilities of the shards, as log_probs.npz of an earlier run or a "
        ".csv with the columns canonical, shuffle_1, shuffle_2, ... (and data, for several data sets)",
    )
    _add_examples(exchange.add_argument_group("data"))
    _add_orders(exchange.add_argument_group("orders"))
    _add_decision(exchange.add_argument_group("decision"))
    _add_model(exchange.add_argument_group("model"))
    _add_output(exchange.add_argument_group("output"))
    add_shard(exchange)
    add_distributed(exchange)
    exchange.set_defaults(usual=exchange.get_default)


def _add_examples(group: Any) -> None:
    group.add_argument(
        "--template",
        metavar="TEXT",
        help="how a row becomes an example: '{question} {answer}' names fields; json writes the row as a line of JSON, "
        "as .jsonl files mostly have it; td4eval is '### Question:', question, '### Answer:', answer, each on its line "
        "(default: the field with the text)",
    )
    group.add_argument(
        "--text-field",
        metavar="FIELD",
        help="(default: text, or the only field that is known to hold texts)",
    )
    group.add_argument("--input-format", metavar="NAME", help="format of the files, if their ending does not tell")
    group.add_argument(
        "--separator",
        default=r"\n\n",
        metavar="TEXT",
        help=r"text between two examples, as the training data is likely to have it; \n, \t, \r and \\ are "
        r"understood; a special token written in it is text (default: '%(default)s')",
    )
    group.add_argument(
        "--allow-sorted",
        action="store_true",
        help="test a sorted data set all the same; its p-value proves nothing without a control",
    )


def _add_orders(group: Any) -> None:
    group.add_argument(
        "--shards",
        type=int,
        default=50,
        metavar="R",
        help="contiguous parts of the data set, each shuffled by itself; more make more comparisons, of fewer examples "
        "each (default: %(default)s)",
    )
    group.add_argument(
        "--shuffles",
        type=int,
        metavar="K",
        help=f"random orders of each shard; the cost is R (K + 1) model calls (default: {_SHUFFLES}); with --stop and "
        "--target-p the most that are tried",
    )
    group.add_argument(
        "--suffix",
        type=float,
        default=1.0,
        metavar="FRACTION",
        help="shuffle only this fraction of each shard, its end; the beginning is computed once for all orders, which "
        "saves time and costs power (default: %(default)s)",
    )
    group.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")


def _add_decision(group: Any) -> None:
    group.add_argument(
        "--test",
        choices=["combined", "rank_sum", "exact", "t", "permutation"],
        default="combined",
        help="combined: rank_sum (strong if all shards are a little more likely) and exact (if a few are much "
        "more), corrected for taking both; t: the paper's, asymptotic, wrong for skewed shards; permutation: one "
        "comparison of the whole data set (default: %(default)s)",
    )
    group.add_argument(
        "--alpha",
        type=float,
        default=0.05,
        help="level; of several data sets the false discovery rate (default: %(default)s)",
    )
    group.add_argument(
        "--stop",
        choices=["none", "e_process", "spending", "besag_clifford"],
        help="stop before all shuffles are scored, as soon as the case is clear, with a p-value that stays valid: "
        "e_process and spending stop for evidence, besag_clifford for lack of it (default: none, with --target-p "
        "spending)",
    )
    group.add_argument(
        "--target-p",
        type=float,
        metavar="P",
        help="stop as soon as the p-value is this small; without --shuffles, as many are allowed as it can take",
    )
    group.add_argument(
        "--control",
        metavar="MODEL",
        help="a second model that cannot have seen the data sets; if it prefers the published order too, that order is "
        "not random",
    )


def _add_model(group: Any) -> None:
    add_revision(group)
    group.add_argument(
        "--bos",
        choices=["auto", "always", "never"],
        default="auto",
        help="begin each text with the beginning-of-sequence token (default: auto, as the tokenizer does)",
    )
    group.add_argument("--max-length", type=int, metavar="N", help="longest window in tokens (default: the model's)")
    group.add_argument(
        "--stride",
        type=int,
        metavar="N",
        help="tokens that each further window adds if a shard is longer than that; fewer give more context and cost "
        "more (default: all but one)",
    )
    group.add_argument(
        "--dtype", choices=["float32", "bfloat16", "float16"], help="type of the parameters (default: as stored)"
    )
    group.add_argument("--token-budget", type=int, metavar="N", help="tokens per batch")
    add_store(group, "scoring in --out")
    add_devices(group)


def _add_output(group: Any) -> None:
    group.add_argument(
        "--out",
        metavar="DIR",
        help="write run.json, shards.csv, log_probs.npz and figure.png there; an interrupted run continues there",
    )
    group.add_argument("--plot", metavar="FILE", help="write the figure here: .png or .svg")
    group.add_argument(
        "--fail-on-detection",
        action="store_true",
        help="exit status 1 if a data set is found (3 if its order does not look random, with or without this)",
    )
    group.add_argument("--shard-table", action="store_true", help="print the contribution of every shard")


def _run(arguments: argparse.Namespace) -> int:
    import shlex

    from tdd.exchange.run import run_exchange
    from tdd.exchange.summary import in_doubt
    from tdd.runs.atomic import check_output_file
    from tdd.validate import InputError

    if arguments.log_probs is not None:
        return _run_log_probs(arguments)
    if arguments.model is None or not arguments.dataset:
        raise InputError("a model and a data set are needed, or --log-probs FILE")
    connect(arguments)
    if arguments.plot:
        check_output_file(pathlib.Path(arguments.plot), (".png", ".svg"), arguments.dataset)
    stop, shuffles = _plan(arguments)
    same_names = (
        "test", "alpha", "text_field", "bos", "max_length", "stride", "suffix", "target_p", "control",
        "allow_sorted", "seed", "out", "store", "dtype", "token_budget", "revision",
    )  # fmt: skip
    options = dict(
        {name: getattr(arguments, name) for name in same_names},
        format=arguments.input_format,
        num_shards=arguments.shards,
        num_shuffles=shuffles,
        stop=stop,
        separator=_unescaped(arguments.separator),
        template=None if arguments.template is None else _unescaped(arguments.template),
        command=shlex.join(["tdd", *arguments.typed]),
        **devices(arguments),
    )
    data = _sources(arguments.dataset)
    if arguments.shard is not None:
        run_exchange(arguments.model, data, shard=arguments.shard, **options)
        say_done(arguments, arguments.store or arguments.out)
        return 0
    exchange = run_exchange(arguments.model, data, **options)
    if not leads(arguments):
        return 0
    data = exchange.run["data"]
    status = CHECK_FAILED if any(in_doubt(one) for one in data) else 0
    if arguments.fail_on_detection and not status and any(one["rejected"] for one in data):
        status = DETECTED
    from tdd.report.exchange import exchange_report

    files = _draw(arguments, exchange)
    report = exchange_report(exchange.run, exchange.shards, shard_table=arguments.shard_table)
    folder = pathlib.Path(arguments.out) if arguments.out else None
    present(arguments, report, record=exchange.run, folder=folder, files=files)
    return status


def _run_log_probs(arguments: argparse.Namespace) -> int:
    """The test on log-probabilities that exist already."""
    from tdd.exchange.result import order_of_log_probs, read_log_probs
    from tdd.report.exchange import log_probs_report
    from tdd.validate import InputError

    if arguments.model is not None:
        raise InputError("--log-probs takes no model and no data set: the log-probabilities say what they said")
    for name in sorted(vars(arguments).keys() - _WITH_LOG_PROBS):
        if getattr(arguments, name) != arguments.usual(name):
            raise InputError(
                f"--{name.replace('_', '-')} has no use beside --log-probs, which runs no model; leave it out"
            )
    result = order_of_log_probs(
        read_log_probs(arguments.log_probs), test=arguments.test, alpha=arguments.alpha, seed=arguments.seed
    )
    present(arguments, log_probs_report(result, arguments.log_probs), record=result)
    return DETECTED if arguments.fail_on_detection and any(one["rejected"] for one in result["data"]) else 0


def _plan(arguments: argparse.Namespace) -> tuple[str, int]:
    """The stopping rule, and the most shuffles: with a target p-value at least as many as it needs."""
    from tdd.exchange.data import check_target
    from tdd.validate import InputError
    from tdd.validate.arrays import as_count

    check_target(arguments.target_p)
    if arguments.target_p is None:
        return arguments.stop or "none", _SHUFFLES if arguments.shuffles is None else arguments.shuffles
    stop = arguments.stop or "spending"
    if stop in ("none", "besag_clifford"):
        raise InputError(
            f"--target-p {arguments.target_p:g} asks to stop for evidence, which --stop {stop} never does; use --stop "
            "e_process or --stop spending, or leave one of the two out"
        )
    from tdd.procedures.exchangeability import shuffles_needed

    as_count(arguments.shards, "num_shards")
    by_bets = stop == "e_process"
    level = arguments.target_p * (1 if by_bets else _LAST_LOOK)
    needed = shuffles_needed(arguments.shards, level, stop if by_bets else arguments.test)
    if arguments.shuffles is None:
        return stop, max(_SHUFFLES, 4 * needed)
    if arguments.shuffles < needed:
        raise InputError(
            f"--shuffles {arguments.shuffles} cannot reach --target-p {arguments.target_p:g} with {arguments.shards} "
            f"shards: at least {needed} are needed, and more for most data sets"
        )
    return stop, arguments.shuffles


def _sources(paths: list[str]) -> Any:
    """Each file under its own name, with its folder or under its path where that is not the only one."""
    from tdd.validate import InputError

    twice = [path for path in paths if paths.count(path) > 1]
    if twice:
        raise InputError(f"{twice[0]} is given twice; give each data set once")
    if len(paths) == 1:
        return paths[0]
    files = [pathlib.Path(path) for path in paths]
    forms = (
        [file.name.removesuffix(".gz").rsplit(".", 1)[0] for file in files],
        [file.name for file in files],
        [f"{file.name} ({file.absolute().parent.name})" for file in files],
        paths,
    )
    named = [next(form[i] for form in forms if form.count(form[i]) == 1) for i in range(len(paths))]
    return dict(zip(named, paths, strict=True))


def _unescaped(text: str) -> str:
    r"""Replace \n, \t, \r and \\ by the characters that they stand for; shells make these hard to type.

    >>> _unescaped(r"a\nb\\n")
    'a\nb\\n'
    """
    known = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
    return re.sub(r"\\([ntr\\])", lambda match: known[match[1]], text)


def _draw(arguments: argparse.Namespace, exchange: Any) -> list[Any]:
    """Draw the figures into the folder, or to --plot; returns every file written."""

    from tdd.exchange.result import FILES

    folder = None if arguments.out is None else pathlib.Path(arguments.out)
    files = [] if folder is None else [folder / name for name in FILES]
    if folder is None and not arguments.plot:
        return files
    from tdd.report import exchange_plots
    from tdd.report.plots import sheet

    several = len(exchange.run["data"]) > 1
    figures = [pathlib.Path(arguments.plot)] if arguments.plot else [folder / "figure.png"] if folder else []
    for path in figures:
        sheet.save(exchange_plots.draw(exchange.run, exchange.shards), path)
    if several and folder is not None:
        figures.append(folder / "shards.png")
        sheet.save(exchange_plots.draw_shards(exchange.run, exchange.shards), figures[-1])
    return [*files, *figures]
