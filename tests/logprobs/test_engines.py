"""Shapes of Together, SGLang, TGI, vLLM's flat lists and OLMES; hints of messages lead to a right score or an error."""

import json
import math

import pytest

from tdd import InputError, score_log_probs
from tdd.logprobs import Reading, read_log_probs

VALUES = [-1.0, -2.0, -4.0]  # a loss of 2.3333 over 3 tokens


def together(first=None, generated=-0.1):
    logprobs = {"tokens": [*"abcd"], "token_ids": [5, 6, 7, 8], "token_logprobs": [first, *VALUES]}
    choice = {"text": "e", "logprobs": {"tokens": ["e"], "token_logprobs": [generated]}}
    return {"id": "a", "prompt": [{"text": "abcd", "logprobs": logprobs}], "choices": [choice]}


def sglang(**more):
    found = [[None, 5, None], *([value, 6, None] for value in VALUES)]
    return {"text": "generated", "meta_info": {"input_token_logprobs": found, "prompt_tokens": 4, **more}}


def tgi():
    prefill = [{"id": 5, "text": "a", "logprob": None}, *({"id": 6, "text": "b", "logprob": v} for v in VALUES)]
    return {"inputs": "abbb", "generated_text": "c", "details": {"prefill": prefill, "tokens": [{"logprob": -9}]}}


def flat(**more):
    lists = {"start_indices": [0, 0, 1, 4], "end_indices": [0, 1, 4, 6], "token_ids": [7, 8, 8, 9, 3, 1]}
    return {"prompt_logprobs": {**lists, "logprobs": [-1.0, -2.0, -2.0, -0.5, -4.0, -0.1], **more}}


@pytest.mark.parametrize(
    ("record", "format", "text"),
    [
        (together(), "together", "abcd"),
        (together(first=0.0), "together", "abcd"),
        (together(first=-11.5), "together", "abcd"),
        (sglang(), "sglang", None),
        (tgi(), "tgi", "abbb"),
        (flat(), "vllm", None),
        ({**flat(), "prompt_token_ids": [4, 7, 8, 3]}, "vllm", None),
    ],
)
def test_the_prompts_tokens_are_scored(record, format, text):
    found = read_log_probs([record])
    assert (found.format, found.texts) == (format, (text,))
    assert found.tokens[0].tolist() == VALUES
    assert score_log_probs([record], "loss")["loss"].tolist() == [pytest.approx(7 / 3, abs=1e-12)]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (sglang(prompt_tokens=9), "has 4 of the prompt's 9 tokens; ask with return_logprob=true"),
        ({"meta_info": {"id": "x"}}, "input_token_logprobs must be a list"),
        ({"details": {"prefill": []}}, "ask with details=true and decoder_input_details=true"),
        (flat(end_indices=[0, 1, 4, 60]), "a position of the entries 4 to 60, of 6"),
        ({**flat(), "prompt_token_ids": [4, 7, 9, 3]}, "has no entry for the prompt's token 9"),
        ({"answer": {"x": 1}}, r"fields found: answer\. Known: .* \(sglang\), .* \(tgi\), .* \(olmes\)"),
    ],
)
def test_other_shapes_are_refused(record, message):
    with pytest.raises(InputError, match=message):
        read_log_probs([record])


def test_no_hint_makes_generated_tokens_the_text():
    """An answer that is no echo: no message names an option that would score it, and the option is held against it."""
    values = {"logprobs": {"tokens": ["x"], "token_logprobs": [-0.1]}}
    answer = {"choices": [values], "usage": {"completion_tokens": 1}}
    with pytest.raises(InputError, match=r"ask with echo=true and max_tokens=0$"):
        read_log_probs([answer])
    with pytest.raises(InputError, match="generated=0, and the answer says that 1 tokens were generated"):
        read_log_probs([answer], Reading(generated=0))
    zero = {"choices": [{"logprobs": {"token_logprobs": [0.0, -1.5, -2.5]}}]}
    assert score_log_probs([zero], "loss", generated=0)["loss"].tolist() == [2.0]


def test_no_hint_takes_probabilities_for_losses():
    with pytest.raises(InputError, match=r"if the numbers are probabilities, give their logarithms$"):
        read_log_probs([{"log_probs": [None, 0.25, 0.9]}])
    with pytest.raises(InputError, match=r"say polarity='loss'$"):
        read_log_probs([{"log_probs": [None, 0.25, 1.9]}])


@pytest.mark.parametrize("order", ["token id", "likelihood"])
def test_first_entry_of_a_sorted_file_is_refused(order):
    """The hint first_entry=True holds in vLLM's order alone: the prompt's token, then the likely ones."""
    own = {"9": {"logprob": -2.0, "rank": 2}, "4": {"logprob": -0.5, "rank": 1}}
    other = {"6": {"logprob": -0.5, "rank": 1}, "3": {"logprob": -2.0, "rank": 2}}
    record = {"prompt_logprobs": [None, *[own, other] * 10]}
    assert read_log_probs([record], Reading(first_entry=True)).tokens[0].tolist() == [-2.0, -0.5] * 10
    key = (lambda one: int(one[0])) if order == "token id" else (lambda one: -one[1]["logprob"])
    record = {"prompt_logprobs": [None, *[dict(sorted(one.items(), key=key)) for one in [own, other] * 10]]}
    with pytest.raises(InputError, match=f"are sorted by {order}, so they are not in vLLM's order"):
        read_log_probs([record], Reading(first_entry=True))


def test_olmes(tmp_path):
    outputs = [{"sum_logits": -6.0, "num_tokens": 3}, {"sum_logits": -2.0, "num_tokens": 4}]
    rows = [{"doc_id": i, "native_id": f"q{i}", "label": i, "model_output": outputs} for i in range(2)]
    path = tmp_path / "task-003-arc_easy-predictions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scores = score_log_probs(path, ["loss", "choice_loss"])
    assert scores.ids == ("arc_easy/q0", "arc_easy/q1")
    assert scores["loss"].tolist() == [2.0, 0.5]
    assert scores["choice_loss"].tolist() == pytest.approx([4 + math.log1p(math.exp(-4)), math.log1p(math.exp(-4))])
    assert scores.num_tokens.tolist() == [3, 4]
    with pytest.raises(InputError, match="which of the 2 choices is right is not said"):
        read_log_probs([{"doc_id": 0, "model_output": outputs}])
    with pytest.raises(InputError, match="needs the log-probability of every token"):
        score_log_probs(path, "min_k")


def test_samples_of_two_tasks_have_ids_apart(tmp_path):
    """The same names as those that an audit of samples gives."""
    from tdd import load_texts

    for task in ("arc", "piqa"):
        rows = [
            {
                "doc_id": i,
                "doc": {"q": f"{task} {i}"},
                "arguments": [[f"{task} {i}"]],
                "filtered_resps": [str(-2.5 - i)],
            }
            for i in range(2)
        ]
        file = tmp_path / f"samples_{task}_2026-01-02T03-04-05.678901.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = sorted(map(str, tmp_path.iterdir()))
    names = ("arc/0", "arc/1", "piqa/0", "piqa/1")
    scores = score_log_probs(files, "loss_per_byte")
    assert scores.ids == names == load_texts(files, format="lm-eval").ids
    assert score_log_probs(tmp_path, "loss_per_byte").ids == names, "a folder of them"
    assert score_log_probs(files[0], "loss_per_byte").ids == names[:2]
    assert score_log_probs(files[0], "loss_per_byte", id_field="doc_id").ids == ("0", "1")
    assert score_log_probs(files, "loss_per_byte", texts=load_texts(files, format="lm-eval")).ids == names
