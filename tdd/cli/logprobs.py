"""`tdd score-logprobs`."""

from __future__ import annotations

import argparse
from typing import Any

from tdd.cli.common import command, console, names, print_json

_EXAMPLES = """\
Log-probabilities of the texts' own tokens suffice for loss, min_k and camia;
with the texts for zlib and loss_per_byte; with a second dump for lowercase and
reference; statistics of the distribution at every position for max_renyi, and
with the log-probabilities for min_k_plus_plus, surp and acmia. Scores that the
file does not suffice for are refused.

layouts (told apart by their fields, or --input-format):
  plain    {"id": "a1", "text": "...", "log_probs": [null, -3.2, -0.1]}, one
           line per text; also token_logprobs, and Parquet. Beside or instead
           of them mu, sigma, renyi_half, renyi_two, renyi_inf, m_entropy, one
           number a position, and slice: the part of the item that the line
           holds, or one a position; columns are then "SCORE SLICE"
  openai   completions with echo=true: choices[].logprobs.token_logprobs; also
           batch files
  vllm     prompt_logprobs of vLLM, with prompt_token_ids or prompt_logprobs=0
  together, sglang, tgi   their answers, with the prompt's log-probabilities
  inspect  logs of inspect_ai (.eval, .json), run with --prompt-logprobs 1
  olmes    predictions of OLMES: sums and numbers of tokens
  lm-eval  samples_*.jsonl of lm-evaluation-harness: sums, for loss_per_byte,
           reference and, of multiple choice, choice_loss; tdd audit --lm-eval
           takes them directly

examples:
  tdd score-logprobs suspects.jsonl --score loss,min_k:k=0.1 --out suspects.csv
  tdd score-logprobs fresh.jsonl --score loss,min_k:k=0.1 --out fresh.csv
  tdd select suspects.csv --calibration fresh.csv --score min_k:k=0.1
  tdd score-logprobs vllm.jsonl --texts texts.jsonl --out scores.csv \\
      --score zlib,reference:model=small.jsonl   # a dump under another model
  tdd score-logprobs dump.parquet --log-prob-field nll --polarity loss \\
      --base 2 --out scores.csv
  tdd score-logprobs images.jsonl --score "max_renyi:gamma=0.5;k=0.1" \\
      --out images.csv      # of a vision-language model that tdd does not load
  tdd select images.csv --calibration unseen.csv --alpha 0.1 \\
      --score "max_renyi:gamma=0.5;k=0.1 image"
  tdd score-logprobs samples_wikitext.jsonl --score loss_per_byte \\
      --out scores.csv
"""


def add(commands: Any) -> None:
    """Register the command."""
    parser = command(
        commands, "score-logprobs", _run, "score texts from logged numbers of their tokens, without a model"
    )
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", help="dump of log-probabilities or statistics: .jsonl, .json or .parquet, also .gz")
    parser.add_argument(
        "--score",
        action="append",
        metavar="NAMES",
        help="repeated or comma-separated: scores of tdd score, loss_per_byte and choice_loss; options after a colon, "
        "separated by semicolons (default: loss,min_k)",
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="table to write: .csv, .parquet or .jsonl")
    parser.add_argument("--lowercase-dump", metavar="FILE", help="dump of the lowercased texts, matched by id")
    parser.add_argument("--texts", metavar="FILE", help="the texts, matched by id, if the dump has none")
    group = parser.add_argument_group("how the dump is read")
    group.add_argument(
        "--input-format",
        choices=["auto", "plain", "openai", "vllm", "together", "sglang", "tgi", "lm-eval", "olmes", "inspect"],
        default="auto",
        metavar="NAME",
        help="one of the layouts below, or auto (default: by fields)",
    )
    group.add_argument("--base", default="e", metavar="B", help="logarithm base: e, 2, 10 (default: %(default)s)")
    group.add_argument(
        "--polarity", choices=["log_prob", "loss"], default="log_prob", help="log p or -log p (default: %(default)s)"
    )
    group.add_argument(
        "--floor",
        type=float,
        default=-9999.0,
        metavar="X",
        help="smaller log-probabilities, and minus infinity, count as X nats (default: %(default)s)",
    )
    group.add_argument("--log-prob-field", metavar="FIELD", help="the field with the list (plain)")
    group.add_argument("--id-field", metavar="FIELD", help='(default: "id", "custom_id" or "doc_id", else row numbers)')
    group.add_argument("--text-field", default="text", metavar="FIELD", help="(default: %(default)s)")
    group.add_argument(
        "--generated", type=int, metavar="N", help="generated tokens at the end of every list (openai; default: usage)"
    )
    group.add_argument(
        "--first-entry", action="store_true", help="the prompt's token comes first, as vLLM writes it (vllm)"
    )


def _run(arguments: argparse.Namespace) -> None:
    import pathlib

    from tdd.audit.logprobs import score_log_probs
    from tdd.runs.atomic import check_output_file
    from tdd.scoring.table import ENDINGS, write_scores

    out = pathlib.Path(arguments.out)
    read = (arguments.file, arguments.lowercase_dump, arguments.texts)
    check_output_file(out, ENDINGS, read)
    table = score_log_probs(
        arguments.file,
        names(",".join(arguments.score or ["loss,min_k"])),
        lowercase=arguments.lowercase_dump,
        texts=arguments.texts,
        format=arguments.input_format,
        base=arguments.base,
        polarity=arguments.polarity,
        floor=arguments.floor,
        field=arguments.log_prob_field,
        id_field=arguments.id_field,
        text_field=arguments.text_field,
        generated=arguments.generated,
        first_entry=arguments.first_entry,
    )
    write_scores(table, out)
    summary = {"out": str(out), "texts": len(table), "scores": list(table.values), "provenance": dict(table.provenance)}
    if arguments.json:
        print_json(summary)
    else:
        layout = table.provenance["log_probs"]["format"]
        console().print(f"{len(table)} texts ({layout}), {', '.join(table.values)} → {out}", markup=False)
