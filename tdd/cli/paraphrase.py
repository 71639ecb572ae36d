"""`tdd paraphrase`."""

from __future__ import annotations

import argparse
from typing import Any

from tdd.cli.common import command, console, print_json, print_line
from tdd.cli.options import add_texts

_EXAMPLES = """\
A local T5, or any service with OpenAI's chat completions. Answers are kept as
they come: after an interruption the same command goes on, and asks nothing
twice.

examples:
  tdd paraphrase suspects.jsonl --model ./t5 --versions 3 --out paraphrases
  tdd paraphrase suspects.jsonl --endpoint http://localhost:8000/v1 \\
      --model NAME --audited ./suspect --out paraphrases
  tdd audit ./suspect --candidates paraphrases/paraphrases.jsonl \\
      --method ktd --knockoffs paraphrase_1,paraphrase_2,paraphrase_3
"""


def add(commands: Any) -> None:
    """Register the command."""
    parser = command(commands, "paraphrase", _run, "paraphrase texts, for audits by ktd")
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("texts", help=".jsonl, .json, .csv, .tsv, .parquet, .txt, or a folder of .txt files")
    parser.add_argument("--model", required=True, help="folder or hub id of a T5; with --endpoint, a name there")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the run")
    parser.add_argument("--endpoint", metavar="URL", help="service, as http://localhost:8000/v1")
    parser.add_argument(
        "--api-key-variable", metavar="NAME", help="environment variable with its key (default: no key is sent)"
    )
    parser.add_argument("--audited", metavar="MODEL", help="the audited model, which is refused as paraphraser")
    parser.add_argument("--label-field", metavar="FIELD", help="known truth, carried to the table: 1 member, 0 not")
    parser.add_argument(
        "--versions", type=int, default=1, metavar="N", help="paraphrases per text (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="random seed (default: %(default)s)")
    group = parser.add_argument_group("how they are written")
    group.add_argument("--prompt", metavar="TEXT", help="with {text} where the text goes")
    group.add_argument(
        "--decoding",
        choices=["sampling", "beams"],
        default="sampling",
        help="beams: the best sequences of a T5 by group beam search, up to 5 a text (default: %(default)s)",
    )
    group.add_argument("--temperature", type=float, metavar="X", help="(default: 1.9 of a T5, 1 of a service)")
    group.add_argument("--top-k", type=int, metavar="N", help="(default: 50 of a T5, not sent to a service)")
    group.add_argument("--top-p", type=float, metavar="X", help="(default: 0.95)")
    group.add_argument("--max-tokens", type=int, default=128, metavar="N", help="per answer (default: %(default)s)")
    group.add_argument(
        "--sentence-words",
        type=int,
        default=40,
        metavar="N",
        help="longer texts are paraphrased sentence by sentence (default: %(default)s)",
    )
    group.add_argument(
        "--attempts", type=int, default=6, metavar="N", help="attempts per sentence (default: %(default)s)"
    )
    add_texts(parser)


def _run(arguments: argparse.Namespace) -> None:
    import pathlib

    from tdd.audit.paraphrase import TABLE, paraphrase
    from tdd.cli.machine import keep_compiled
    from tdd.texts import load_texts

    keep_compiled()
    texts = load_texts(
        arguments.texts,
        text_field=arguments.text_field,
        id_field=arguments.id_field,
        label_field=arguments.label_field,
        format=arguments.input_format,
    )
    same_names = (
        "out", "model", "endpoint", "audited", "versions", "seed", "prompt", "decoding", "temperature", "top_k",
        "top_p", "max_tokens", "sentence_words", "api_key_variable", "attempts",
    )  # fmt: skip
    run = paraphrase(texts, **{name: getattr(arguments, name) for name in same_names})
    table = pathlib.Path(arguments.out) / TABLE
    if arguments.json:
        print_json({**run, "files": [str(table), str(table.with_name("run.json"))]})
        return
    if arguments.quiet:
        print_line(run["outcome"])
        return
    screen = console()
    for one in run["result"]:
        ratios = ", ".join(f"{one[f'length_ratio_{name}']:.2f}" for name in ("5%", "median", "95%"))
        screen.print(
            f"{one['column']}: {one['texts']} texts, length {ratios} of the text (5%, median, 95%), {one['copies']} "
            f"copies, {one['cut']} cut",
            markup=False,
        )
    for sentence in run["warnings"]:
        screen.print(f"Warning: {sentence}", markup=False)
    screen.print(f"Written: {table}", markup=False, soft_wrap=True)
