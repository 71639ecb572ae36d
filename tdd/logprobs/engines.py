"""Answers of Together, SGLang and TGI, predictions of OLMES, and logs of inspect_ai.

Together, completions with `echo`: {"prompt": [{"text": ..., "logprobs": {"tokens", "token_ids", "token_logprobs"}}],
"choices": [...]}; the list of a choice holds what was generated, that of the prompt the text. Its first number is null
or 0 (togethercomputer/together-python, types/completions.py: PromptPart, LogprobsPart).

SGLang, /generate with `return_logprob` and `logprob_start_len=0`: {"text": what was generated, "meta_info":
{"prompt_tokens": n, "input_token_logprobs": [[null, id, token], [-3.2, id, token], ...]}} (sgl-project/sglang,
managers/tokenizer_manager.py: convert_logprob_style).

TGI, /generate with `details` and `decoder_input_details`: {"generated_text": ..., "details": {"prefill": [{"id",
"text", "logprob"}, ...]}}, the first without a log-probability (huggingface/text-generation-inference,
router/src/lib.rs: PrefillToken).

OLMES, predictions: {"doc_id", "native_id", "label", "metrics": {"correct_choice": 2}, "model_output": [{"sum_logits",
"num_tokens", ...}, ...]}, one a choice (allenai/olmes, oe_eval/metrics/metric.py).

inspect_ai, samples: {"output": {"choices": [{"prompt_logprobs": {"content": [{"token", "logprob"}, ...]}}]}}, without
the first token, which has no context (UKGovernmentBEIS/inspect_ai, model/_openai.py: parse_vllm_prompt_logprobs_raw).
"""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tdd.logprobs.record import Entry, check_lengths, check_list
from tdd.logprobs.servers import records
from tdd.texts.rows import Rows, shown
from tdd.validate import InputError

_LARGEST = sys.float_info.max
_TASK = re.compile(r"task-\d+-(.+)-predictions\.jsonl(?:\.gz|\.zst)?")


def is_together(prompt: Any) -> bool:
    """Whether a completion's prompt is a list with log-probabilities, as only Together writes it."""
    return isinstance(prompt, list) and any(isinstance(part, Mapping) and part.get("logprobs") for part in prompt)


def together_entries(rows: Rows, *, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text a prompt; the first token has no context, whatever number stands there."""
    for place, record, identifier in records(rows, id_field):
        parts: Any = record.get("prompt")
        if not is_together(parts):
            raise InputError(f"{rows.source}: {place}: prompt has no logprobs ({shown(parts)}); ask with echo=true")
        for number, part in enumerate(parts):
            name, where = identifier, place
            if len(parts) > 1:
                name, where = None if identifier is None else f"{identifier}-{number}", f"{place}, prompt {number}"
            logprobs: Any = part.get("logprobs") if isinstance(part, Mapping) else None
            values: Any = logprobs.get("token_logprobs") if isinstance(logprobs, Mapping) else None
            check_list(rows.source, where, "prompt[].logprobs.token_logprobs", values)
            ids = logprobs.get("token_ids")
            yield _entry(rows.source, where, values, name, part.get("text"), ids)


def sglang_entries(rows: Rows, *, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text an answer: the prompt's tokens, all of them; the field "text" holds what was generated."""
    for place, record, identifier in records(rows, id_field):
        meta: Any = record.get("meta_info")
        found: Any = meta.get("input_token_logprobs") if isinstance(meta, Mapping) else None
        check_list(rows.source, place, "meta_info.input_token_logprobs", found)
        if not all(isinstance(entry, (list, tuple)) and len(entry) >= 2 for entry in found):
            raise InputError(
                f"{rows.source}: {place}: input_token_logprobs must hold [logprob, token id, token] for every token, "
                f"not {shown(next(entry for entry in found if not isinstance(entry, (list, tuple)) or len(entry) < 2))}"
            )
        if (total := meta.get("prompt_tokens")) is not None and total != len(found):
            raise InputError(
                f"{rows.source}: {place}: input_token_logprobs has {len(found)} of the prompt's {total} tokens; ask "
                "with return_logprob=true and logprob_start_len=0"
            )
        text = record.get(text_field if text_field != "text" else "prompt")
        yield _entry(rows.source, place, [entry[0] for entry in found], identifier, text, [one[1] for one in found])


def tgi_entries(rows: Rows, *, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text an answer: the tokens of `details.prefill`."""
    for place, record, identifier in records(rows, id_field):
        details = record.get("details")
        found = details.get("prefill") if isinstance(details, Mapping) else None
        if not isinstance(found, list) or not found or not all(isinstance(token, Mapping) for token in found):
            raise InputError(
                f"{rows.source}: {place}: details.prefill must list the prompt's tokens, not {shown(found)}; ask with "
                "details=true and decoder_input_details=true"
            )
        values, ids = [token.get("logprob") for token in found], [token.get("id") for token in found]
        text = record.get(text_field, record.get("inputs"))
        yield _entry(rows.source, place, values, identifier, text, ids)


def _entry(source: str, place: str, values: Sequence[Any], identifier: Any, text: Any, ids: Any) -> Entry:
    """A prompt from its first token on, which is never scored."""
    whole = isinstance(ids, list) and all(type(token) is int for token in ids)
    if whole:
        check_lengths(source, place, ("the list of log-probabilities", len(values)), ("that of token ids", len(ids)))
    text = text if isinstance(text, str) else None
    return Entry(place, [None, *values[1:]], identifier, text, token_ids=ids if whole else ())


def olmes_entries(rows: Rows, *, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text a line: the right choice, with the sums of all choices, and the number of its tokens."""
    columns = {name: rows.column(name) for name in rows.fields}
    for index in range(rows.num_rows):
        place = rows.place(index)
        row = {name: column[index] for name, column in columns.items()}
        outputs = row.get("model_output")
        outputs = [outputs] if isinstance(outputs, Mapping) else outputs
        if not isinstance(outputs, list) or not outputs or not all(isinstance(one, Mapping) for one in outputs):
            raise InputError(
                f"{rows.source}: {place}: model_output must list one object a choice, not {shown(outputs)}"
            )
        sums: list[Any] = [one.get("sum_logits") for one in outputs]
        if not all(type(one) in (int, float) and -_LARGEST < one < _LARGEST for one in sums):
            raise InputError(
                f"{rows.source}: {place}: model_output holds no log-likelihood (sum_logits: {shown(sums)}); tasks that "
                "generate text have none"
            )
        right = _right(rows.source, place, row, len(sums))
        count = outputs[right].get("num_tokens")
        if type(count) is not int or count < 1:
            raise InputError(f"{rows.source}: {place}: num_tokens must be a number of tokens, not {shown(count)}")
        text = row.get(text_field)
        name = row.get(id_field) if id_field else _name(rows.source, place, row)
        choices = [float(one) for one in sums] if len(sums) > 1 else ()
        yield Entry(place, float(sums[right]), name, text if isinstance(text, str) else None, choices, count=count)


def inspect_entries(rows: Rows, *, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text a sample: the prompt's tokens but the first. Its text is theirs where it ends with them."""
    for place, record, identifier in records(rows, id_field):
        output: Any = record.get("output")
        answers = output.get("choices") if isinstance(output, Mapping) else None
        answer: Any = answers[0] if isinstance(answers, list) and answers else None
        found: Any = answer.get("prompt_logprobs") if isinstance(answer, Mapping) else None
        if found is None:
            raise InputError(
                f"{rows.source}: {place}: the log has no log-probabilities of the prompt, and those of what was "
                "generated are not the text's; run inspect eval with --prompt-logprobs 1 (models that vLLM serves)"
            )
        tokens: Any = found.get("content") if isinstance(found, Mapping) else None
        check_list(rows.source, place, "output.choices[0].prompt_logprobs.content", tokens)
        if not all(isinstance(token, Mapping) for token in tokens):
            raise InputError(f"{rows.source}: {place}: prompt_logprobs.content must hold objects, not {shown(tokens)}")
        text = record.get(text_field)
        whole = isinstance(text, str) and text.endswith("".join(str(token.get("token")) for token in tokens))
        values = [None, *(token.get("logprob") for token in tokens)]
        yield Entry(place, values, identifier, text if whole else None)


def _right(source: str, place: str, row: Mapping[str, Any], number: int) -> int:
    metrics = row.get("metrics")
    given = [metrics.get("correct_choice")] if isinstance(metrics, Mapping) else []
    given = [one for one in (*given, row.get("correct_choice"), row.get("label")) if type(one) is int]
    if number == 1 and not given:
        return 0
    if len({*given}) != 1 or not 0 <= given[0] < number:
        raise InputError(
            f"{source}: {place}: which of the {number} choices is right is not said (metrics.correct_choice, label: "
            f"{shown(given)})"
        )
    return given[0]


def _name(source: str, place: str, row: Mapping[str, Any]) -> Any:
    """The task, by the name of the file, and the item's own identifier."""
    name = row.get("native_id") if row.get("native_id") is not None else row.get("doc_id")
    file = place.split(", line")[0] if ".jsonl" in place else source
    task = _TASK.fullmatch(pathlib.PurePath(file).name)
    return name if task is None or name is None else f"{task[1]}/{name}"
