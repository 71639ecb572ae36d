"""Layouts of token log-probabilities: what is read out of each, and what is refused."""

import gzip
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdd import InputError
from tdd.logprobs import FORMATS, Reading, read_log_probs

NUMBERS = [-1.5, -0.25, -3.0]


def write(tmp_path, records, name="dump.jsonl"):
    path = tmp_path / name
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def read(records, **options):
    return read_log_probs(records, Reading(**options))


def refuses(records, message, **options):
    with pytest.raises(InputError, match=message):
        read(records, **options)


def plain(*values, **more):
    return {"log_probs": [None, *values], **more}


# plain


@pytest.mark.parametrize("name", ["dump.jsonl", "dump.jsonl.gz", "dump.log"])
def test_plain_files(tmp_path, name):
    path = write(tmp_path, [plain(*NUMBERS, id="a", text="x y"), plain(-1, id=7)], name)
    found = read_log_probs(path)
    assert (found.ids, found.texts, found.format) == (("a", "7"), ("x y", None), "plain")
    np.testing.assert_array_equal(found.tokens[0], NUMBERS)
    np.testing.assert_array_equal(found.sums, [-4.75, -1.0])
    np.testing.assert_array_equal(found.num_tokens, [3, 1])
    assert len(found.file_sha256) == len(found.sha256) == 64


def test_parquet_and_memory_are_the_same(tmp_path):
    records = [plain(*NUMBERS, id="a"), plain(-0.5, id="b")]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "dump.parquet")
    stored, memory = read_log_probs(tmp_path / "dump.parquet"), read(records)
    assert stored.sha256 == memory.sha256
    assert memory.file_sha256 == ""
    assert read([plain(*NUMBERS, id="a"), plain(-0.5000001, id="b")]).sha256 != memory.sha256


@pytest.mark.parametrize("name", ["log_probs", "logprobs", "token_log_probs", "token_logprobs"])
def test_names_of_the_list(name):
    found = read([{name: NUMBERS}, {name: [-1.0]}])
    assert found.ids == ("1", "2")  # and a list without null is scored from its first token on
    np.testing.assert_array_equal(found.num_tokens, [3, 1])


def test_named_fields():
    records = [{"key": "k", "nll": [2.0], "logprobs": [-1.0], "body": "t"}]
    found = read(records, format="plain", field="nll", id_field="key", text_field="body", polarity="loss")
    assert (found.ids, found.texts, found.sums.tolist()) == (("k",), ("t",), [-2.0])
    refuses(records, "there is no field 'nl'; fields found: key, nll", format="plain", field="nl")
    refuses(records, "no field id_field='kex'", id_field="kex")
    refuses([{"logprobs": [-1.0], "log_probs": [-2.0]}], r"could be \['log_probs', 'logprobs'\].*name one with field=")


@pytest.mark.parametrize(("base", "nats"), [("e", 1.0), (2, math.log(2)), ("10", math.log(10)), (4.0, math.log(4))])
def test_bases(base, nats):
    np.testing.assert_allclose(read([plain(*NUMBERS)], base=base).tokens[0], np.multiply(NUMBERS, nats), rtol=1e-15)


@pytest.mark.parametrize("base", ["two", 1, 0, -2, math.inf, math.nan, True, None])
def test_bad_bases(base):
    refuses([plain(-1.0)], "is not a valid logarithm base", base=base)


def test_floor(caplog):
    found = read([plain(-math.inf, -9999.0, -9998.0), plain(-1.0)])
    assert found.num_floored == 2
    np.testing.assert_array_equal(found.tokens[0], [-9999, -9999, -9998])
    assert "2 log-probabilities are at or below -9999" in caplog.text
    refuses([plain(-1.0), plain(-2.0, -math.inf)], "index 1: position 2 holds minus infinity.*give floor=", floor=None)
    for floor in (0.0, 3, -math.inf, "x", math.nan):
        refuses([plain(-1.0)], "floor=.* must be a negative number, or None", floor=floor)


def test_a_position_in_no_slice_is_not_counted_as_floored(caplog):
    record = {"id": 1, "log_probs": [None, -1.0, -9999.0], "slice": [None, "x", None]}
    assert read([record]).num_floored == 0
    assert not caplog.records


def test_roundings_of_one_are_zero():
    np.testing.assert_array_equal(read([plain(1e-7, 0, -0.0, -1)]).tokens[0], [0, 0, 0, -1])


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (plain(-1, 0.5), r"line 1: position 2 holds 0\.5; a log-probability is never above 0$"),
        (plain(1.5, 0.5), r"position 1 holds 1.5; .* never above 0; if the numbers are -log p, say polarity='loss'"),
        (plain(-1, math.nan), "position 2 holds NaN"),
        (plain(-1, None), r"position 2 has no log-probability \(null\); only the first.*prefix caching"),
        (plain(-1, "-2"), "position 2 holds '-2', no number"),
        (plain(-1, True), "position 2 holds True, no number"),
        (plain(-1, -(10**400)), "line 1: one of the numbers has more digits"),
        (plain(), "line 1 has no scored token"),
        ({"log_probs": []}, "line 1 has no scored token"),
        ({"log_probs": -3.0}, "line 1: log_probs must be a list, one element a token, not -3.0"),
        ({"log_probs": None}, "log_probs must be a list.*not None"),
        (plain(-1, tokens=["a"]), "line 1: log_probs has 2 elements, tokens has 1"),
    ],
)
def test_bad_numbers(tmp_path, record, message):
    with pytest.raises(InputError, match=message):
        read_log_probs(write(tmp_path, [record]))


def test_losses():
    refuses([plain(1.0, -0.5)], r"position 2 holds -0\.5; -log p is never below 0", polarity="loss")
    assert read([plain(math.inf)], polarity="loss").sums.tolist() == [-9999]
    refuses([plain(1.0)], "polarity='nll' is unknown; use 'log_prob'", polarity="nll")


def test_ids():
    refuses([plain(-1, id="a"), plain(-1, id="a")], "ids must be unique; repeated: 'a' at index 0 and index 1")
    refuses([plain(-1, id="a"), plain(-1)], "1 of 2 rows have no id; give all an id, or none")
    refuses([plain(-1, id=1.5)], "must be a non-empty string or a whole number")


def test_unknown_layout():
    refuses([{"score": 3, "text": "x"}], r"no layout .* known; fields found: score, text\. Known:.*\(openai\)")
    refuses(
        [{"score": 3}],
        "format='echo' is not known; layouts: auto, plain, openai, vllm, together, sglang, tgi, lm-eval, olmes",
        format="echo",
    )


# openai


def choice(values, generated=0, **more):
    tokens = [f" w{i}" for i in range(len(values))]
    lists = {"tokens": tokens, "token_logprobs": values, "top_logprobs": [None] + [{" a": -0.1}] * (len(values) - 1)}
    return {"text": "".join(tokens), "logprobs": {**lists, "text_offset": [3 * i for i in range(len(values))]}, **more}


def answer(*choices, completion_tokens=0, **more):
    usage = {"prompt_tokens": 3, "completion_tokens": completion_tokens, "total_tokens": 3 + completion_tokens}
    return {"id": "cmpl-9", "object": "text_completion", "choices": list(choices), "usage": usage, **more}


def test_echo():
    found = read([answer(choice([None, *NUMBERS]))])
    assert (found.format, found.ids, found.texts) == ("openai", ("1",), (" w0 w1 w2 w3",))
    np.testing.assert_array_equal(found.tokens[0], NUMBERS)


def test_generated_tokens_are_dropped():
    one = read([answer(choice([None, -1.0, -2.0, -9.0]), completion_tokens=1)])
    assert (one.sums.tolist(), one.texts) == ([-3.0], (" w0 w1 w2",))
    two = answer(choice([None, -1.0, -9.0], index=1), choice([None, -2.0, -9.0], index=0), completion_tokens=2)
    found = read([two], id_field="object")
    assert found.ids == ("text_completion-1", "text_completion-0")
    assert found.sums.tolist() == [-1, -2]
    assert read([two]).ids == ("1", "2")
    unclear = answer(choice([None, -1.0, -9.0]), choice([None, -2.0, -9.0]), completion_tokens=3)
    refuses([unclear], "3 tokens were generated in 2 choices.*max_tokens=0")
    assert read([unclear], generated=1).sums.tolist() == [-1, -2]
    refuses([answer(choice([None, -1.0]), completion_tokens=2)], "all 2 tokens were generated")
    refuses([two], "generated=-1 must be a number of tokens", generated=-1)


def test_an_echo_may_begin_with_zero_where_nothing_was_generated():
    zero = {"logprobs": {"token_logprobs": [0.0, -1, -2], "tokens": ["a", "b", "c"]}, "text": "abc"}
    found = read([{"id": "x", "choices": [zero], "usage": {"completion_tokens": 0}}])
    assert found.statistics["log_prob"][0].tolist() == [-1, -2]
    refuses([{"id": "x", "choices": [zero]}], "or give generated=0 if the server writes 0")


def test_lists_that_all_begin_with_zero_are_named(caplog):
    read([{"log_probs": [0.0, -3, -2]}, {"log_probs": [0, -1]}])
    assert "all 2 lists begin with 0" in caplog.text
    caplog.clear()
    read([{"log_probs": [0.0, -3, -2]}, {"log_probs": [-1, -2]}])
    assert not caplog.text


@pytest.mark.parametrize("name", ["answer.json", "answer.jsonl"])
def test_one_answer_may_be_a_file(tmp_path, name):
    path = tmp_path / name
    path.write_text(json.dumps(answer(choice([None, -1, -2])), indent=2))
    assert read_log_probs(path).sums.tolist() == [-3]


def test_echo_without_usage_is_said(caplog):
    found = read([{"id": "a", "choices": [choice([None, -1.0])]}])
    assert (found.ids, found.sums.tolist()) == (("a",), [-1])
    assert "1 choices do not say how many tokens were generated" in caplog.text


def test_batch_file():
    record = {
        "id": "batch_req_1",
        "custom_id": "t1",
        "response": {"status_code": 200, "body": answer(choice([None, -2]))},
    }
    found = read([record])
    assert (found.format, found.ids, found.sums.tolist()) == ("openai", ("t1",), [-2])
    failed = {"custom_id": "t2", "response": {"status_code": 500, "body": None}, "error": {"code": "x"}}
    refuses([record, failed], "index 1: the request failed: {'code': 'x'}")
    unanswered = {"custom_id": "t2", "response": None, "error": {"code": "x"}}
    refuses([record, unanswered], "index 1: the request failed: {'code': 'x'}")
    refuses([unanswered, record], "index 0: the request failed: {'code': 'x'}")


@pytest.mark.parametrize(
    ("logprobs", "message"),
    [
        (None, r"logprobs has no list token_logprobs \(None\); ask with echo=true"),
        ({"content": [{"token": "a", "logprob": -1}]}, "a chat's logprobs are of the tokens that the model generated"),
        ({"token_logprobs": [-1.0, -2.0]}, r"first token has a log-probability \(-1.0\), so the list is not an echo"),
        ({"token_logprobs": [None, -2.0], "tokens": ["a"]}, "token_logprobs has 2 elements, tokens has 1"),
    ],
)
def test_no_echo(logprobs, message):
    refuses([answer({"text": "x", "logprobs": logprobs})], message)


def test_choices_that_are_none():
    refuses([answer()], r"choices must be a list of objects, not \[\]")


# vllm


def entry(*candidates):
    return {str(token): {"logprob": value, "rank": rank, "decoded_token": "x"} for token, value, rank in candidates}


PROMPT = [None, entry((11, -4.0, 9), (5, -0.5, 1), (6, -0.9, 2)), entry((6, -0.7, 2), (5, -0.6, 1))]


def test_prompt_token_ids_decide():
    found = read([{"id": "a", "text": "t", "prompt_token_ids": [1, 11, 5], "prompt_logprobs": PROMPT}])
    assert (found.format, found.ids, found.texts, found.sums.tolist()) == ("vllm", ("a",), ("t",), [-4.6])
    refuses(
        [{"prompt_token_ids": [1, 11, 99], "prompt_logprobs": PROMPT}],
        "position 2 of prompt_logprobs has no entry for the prompt's token 99 but for 6, 5",
    )
    refuses([{"prompt_token_ids": [1, 11], "prompt_logprobs": PROMPT}], "has 3 elements, prompt_token_ids has 2")


def test_ranks_decide_where_they_leave_no_doubt():
    one = entry((7, -2.0, 30))
    assert read([{"prompt_logprobs": [None, one, PROMPT[1]]}]).sums.tolist() == [-6]
    # k = 1, because a position has one entry: of two, the one that is not the most likely is the prompt's
    assert read([{"prompt_logprobs": [None, one, entry((8, -0.1, 1), (9, -3.0, 2))]}]).sums.tolist() == [-5]
    refuses([{"prompt_logprobs": PROMPT}], "position 2 of prompt_logprobs has 2 entries and nothing says which")
    # without ranks, as old versions write it, only single entries are certain
    assert read([{"prompt_logprobs": [None, {"7": -2.0}, -1.0]}]).sums.tolist() == [-3]
    refuses([{"prompt_logprobs": [None, {"7": -2.0, "8": -0.1}]}], "write prompt_token_ids beside them")


def test_order_decides_only_when_it_is_vouched_for():
    assert read([{"prompt_logprobs": PROMPT}], first_entry=True).sums.tolist() == [-4.7]
    by_rank = [None, entry((5, -0.5, 1), (6, -0.9, 2), (11, -4.0, 9))]
    refuses([{"prompt_logprobs": by_rank}], "ranks at position 1 of .* contradict first_entry", first_entry=True)


def test_server_answers():
    inside = {"id": "cmpl-1", "choices": [{"index": 0, "text": "!", "logprobs": None, "prompt_logprobs": PROMPT}]}
    inside["choices"][0]["prompt_token_ids"] = [1, 11, 6]
    found = read([inside])
    assert (found.format, found.ids, found.texts, found.sums.tolist()) == ("vllm", ("1",), (None,), [-4.7])
    assert read([{**inside, "prompt_logprobs": None}]).sums.tolist() == [-4.7]
    both = {"choices": [{**choice([None, -1.0, -2.0]), "prompt_logprobs": PROMPT}], "usage": {"completion_tokens": 0}}
    assert read([both]).format == "openai"  # an echo says itself which tokens are the prompt's


def test_chats_are_said(caplog):
    chat = {"choices": [{"message": {}}], "prompt_token_ids": [1, 11, 6], "prompt_logprobs": PROMPT}
    assert read([chat]).sums.tolist() == [-4.7]
    assert "1 answers are of a chat" in caplog.text


def test_positions_without_entries():
    refuses([{"prompt_logprobs": [None, {}]}], "position 1 of prompt_logprobs is empty")
    refuses([{"prompt_logprobs": None}], "prompt_logprobs must be a list")


@pytest.mark.parametrize(
    "answer",
    [
        {"sequences": [], "prompt_logprobs": [None, -1.25, -0.75]},
        {"prompt_logprobs": [None, -1.25, -0.75]},
        {"choices": [{"logprobs": {"token_logprobs": [None, -1.25, -0.75], "tokens": ["a", "b", "c"]}}]},
        {"details": {"best_of_sequences": [], "prefill": [{"id": 1, "logprob": None}, {"id": 2, "logprob": -2.0}]}},
        {"id": "a1", "text": "a b c", "log_probs": [None, -1.25, -0.75]},
    ],
    ids=["lists", "one list", "choices", "details", "plain"],
)
def test_one_answer_is_the_same_in_json_and_in_json_lines(tmp_path, answer):
    for name in ("a.json", "a.jsonl"):
        (tmp_path / name).write_text(json.dumps(answer))
        assert read_log_probs(tmp_path / name).sums.tolist() == [-2.0]


# lm-evaluation-harness


@pytest.mark.parametrize(
    "responses", [[-120.5], ["-120.5"], [["-120.5", "False"]], [[-120.5, False]], [[[-120.5, True]]]]
)
@pytest.mark.parametrize("arguments", [[["ein Satz"]], {"gen_args_0": {"arg_0": "ein Satz"}}])
def test_samples(responses, arguments):
    found = read([{"doc_id": 4, "doc": {}, "arguments": arguments, "resps": [[0]], "filtered_resps": responses}])
    assert (found.format, found.ids, found.texts) == ("lm-eval", ("4",), ("ein Satz",))
    assert (found.sums.tolist(), found.tokens, found.num_tokens.tolist()) == ([-120.5], (), [0])


def test_filters_log_an_item_once_each(tmp_path):
    def line(number, name, total):
        how = {"filter": name, "filtered_resps": [total], "arguments": [["", f"text {number}"]]}
        return {"doc_id": number, "doc": {}, "target": "", **how}

    def path(*lines):
        return write(tmp_path, lines, "samples_task_2026-01-02T03-04-05.jsonl")

    totals = {"none": float, "other": str}  # the same numbers
    lines = [line(number, name, write_as(-1.0 - number)) for name, write_as in totals.items() for number in range(3)]
    assert read(lines).sums.tolist() == [-1, -2, -3]
    assert read_log_probs(path(*lines)).sums.tolist() == [-1, -2, -3]
    with pytest.raises(InputError, match="filters 'none' and 'other', differ in filtered_resps"):
        read_log_probs(path(*lines[:5], line(2, "other", -9)))
    with pytest.raises(InputError, match="ids must be unique; repeated: 'task/1'"):
        read_log_probs(path(*lines, lines[1]))


def test_continuations():
    found = read([{"doc_id": 0, "arguments": [["a context", " the end"]], "resps": [[["-2.5", "True"]]]}])
    assert (found.texts, found.sums.tolist()) == ((" the end",), [-2.5])


def choices(contexts, texts, sums, target="1", **more):
    return {
        "doc_id": 0,
        "target": target,
        "arguments": [[context, text] for context, text in zip(contexts, texts, strict=True)],
        "filtered_resps": [[str(total), "False"] for total in sums],
        **more,
    }


@pytest.mark.parametrize("alone", ["", "Answer:"])
@pytest.mark.parametrize("blank", [" ", ""])
def test_choices_asked_again_without_the_context_are_left_out(alone, blank):
    """`acc_mutual_info`: up to version 0.4.8 without the blank before them, in some with a context of words."""
    contexts = ["Q\nAnswer:"] * 2 + [alone] * 2
    found = read([choices(contexts, [" red", " blue", f"{blank}red", f"{blank}blue"], [-2, -1, -9, -8], acc=1.0)])
    assert (np.asarray(found.choices).tolist(), found.sums.tolist()) == ([[-2.0, -1.0]], [-1.0])


def test_a_second_half_without_any_context_is_left_out_where_the_first_has_none():
    found = read([choices([""] * 4, list("abab"), [-1, -2, -3, -4], "0")])
    assert np.asarray(found.choices).tolist() == [[-1.0, -2.0]]


def test_contexts_that_differ_are_no_second_half():
    """One context a choice, and the same end."""
    contexts = ["Ann saw Eve, because Ann", "Ann saw Eve, because Eve"]
    assert np.asarray(read([choices(contexts, [" came."] * 2, [-2, -1])]).choices).tolist() == [[-2.0, -1.0]]
    assert len(read([choices([*contexts, *contexts], list("abab"), [-2, -1, -3, -4])]).choices[0]) == 4
    assert len(read([choices(["c1", "c1", "c2", "c2"], list("abab"), [-2, -1, -3, -4], "3", acc=0)]).choices[0]) == 4


@pytest.mark.parametrize("accuracy", [0.3, 0.999])
def test_several_right_answers_are_refused(accuracy):
    refuses([choices(["Q"] * 3, list("abc"), [-2, -1, -4], "0", acc=accuracy)], "several right answers")
    assert read([choices(["Q"] * 3, list("abc"), [-2, -1, -4], "0", acc=math.nan)]).sums.tolist() == [-2]


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        ([["-1", "False"], ["-2", "True"]], "filtered_resps has 2 log-likelihoods and arguments 1 requests"),
        (["a sentence"], "holds 'a sentence', no log-likelihood; tasks that generate text have none"),
        ([], "must be a list with one log-likelihood"),
        ([3.5], r"position 0 holds 3\.5; a log-probability is never above 0"),
    ],
)
def test_samples_without_a_log_likelihood(responses, message):
    refuses([{"doc_id": 0, "arguments": [["x"]], "filtered_resps": responses}], message)


# Anything else


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.sampled_from(["", "a", "7", "-1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["logprob", "rank", "token_logprobs", "tokens", "5", "body"]), inner, max_size=3
        )
        | st.fixed_dictionaries(
            {}, optional={"choices": inner, "logprobs": inner, "usage": inner, "prompt_logprobs": inner}
        )
    ),
    max_leaves=12,
)
NAMES = ["log_probs", "choices", "prompt_logprobs", "prompt_token_ids", "response", "custom_id", "usage", "doc_id"]
RECORD = st.dictionaries(
    st.sampled_from([*NAMES, "filtered_resps", "arguments", "id", "text", "tokens", "mu", "renyi_inf", "slice"]),
    JSON,
    min_size=1,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(RECORD, min_size=1, max_size=2), st.sampled_from(FORMATS), st.booleans())
@pytest.mark.slow("long")
def test_any_file_is_read_or_refused(records, format, first_entry):
    try:
        found = read(records, format=format, first_entry=first_entry)
    except InputError:
        return
    assert len(found.ids) == len(set(found.ids)) == len(found.sums) == len(found.texts)
    assert np.isfinite(found.sums).all()
    assert (found.sums <= 0).all()
