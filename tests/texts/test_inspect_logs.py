"""Logs of inspect_ai, of JSON and archives: the items of a benchmark, and log-probabilities of the prompts' tokens."""

import json
import struct
import zipfile

import pyarrow
import pytest

from tdd import InputError, load_texts, score_log_probs

VALUES = {1: [-1.0, -2.0, -6.0], 2: [-0.5, -0.5, -2.0], 10: [-4.0, -4.0, -4.0]}


def sample(number, epoch=1, **more):
    """A sample as version 2 of the log writes it, with the fields that are read and one that is not."""
    content = [{"token": t, "logprob": v, "top_logprobs": None} for t, v in zip("bcd", VALUES[number], strict=True)]
    choice = {
        "message": {"role": "assistant", "content": "x"},
        "logprobs": None,
        "prompt_logprobs": {"content": content},
    }
    given = {"id": number, "epoch": epoch, "input": "abcd", "target": "x", "store": {}}
    return {**given, "output": {"model": "m", "choices": [choice]}, **more}


def log(*samples):
    return {"version": 2, "status": "success", "eval": {"task": "quiz", "model": "vllm/m"}, "samples": [*samples]}


def write_archive(path, content, method):
    """An `.eval` file; zipfile of this Python cannot write Zstandard, so its members are stored and named so."""
    samples = content["samples"]
    members = {"_journal/start.json": {}, "header.json": {"eval": content["eval"]}, "summaries.json": []}
    members |= {f"samples/{one['id']}_epoch_{one['epoch']}.json": one for one in samples}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED if method == 93 else method) as archive:
        for name, value in members.items():
            data = json.dumps(value).encode()
            archive.writestr(name, pyarrow.compress(data, codec="zstd", asbytes=True) if method == 93 else data)
    if method == 93:
        data = path.read_bytes()
        for mark, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
            pieces = data.split(mark)
            pieces[1:] = [p[: at - 4] + struct.pack("<H", method) + p[at - 2 :] for p in pieces[1:]]
            data = mark.join(pieces)
        path.write_bytes(data)


@pytest.fixture(params=["json", zipfile.ZIP_DEFLATED, 93])
def write(request, tmp_path):
    def written(*samples):
        if request.param == "json":
            path = tmp_path / "log.json"
            path.write_text(json.dumps(log(*samples)))
        else:
            path = tmp_path / "log.eval"
            write_archive(path, log(*samples), request.param)
        return path

    return written


def test_the_prompts_tokens_are_scored(write):
    path = write(sample(10), sample(2), sample(1))
    scores = score_log_probs(path, ["loss", "loss_per_byte"])
    assert scores.ids == ("quiz/1", "quiz/2", "quiz/10")
    assert scores["loss"].tolist() == [3.0, 1.0, 4.0]
    assert scores["loss_per_byte"].tolist() == [
        9 / 4,
        3 / 4,
        12 / 4,
    ]  # the prompt ends with its tokens: its bytes are known
    assert scores.num_tokens.tolist() == [3, 3, 3]


def test_texts_are_the_items(write):
    """Strings, chats with parts, long parts that are kept apart, choices; the first epoch of each."""
    name = "0" * 32
    chat = [
        {"role": "system", "content": "Answer."},
        {
            "role": "user",
            "content": [{"type": "text", "text": f"attachment://{name}"}, {"type": "image", "image": "u"}],
        },
    ]
    path = write(
        sample(2, input=chat, attachments={name: "A long question?"}, choices=["yes", "no"]),
        sample(1, epoch=2, input="the second time"),
        sample(1, input="the first time"),
    )
    texts = load_texts(path)
    assert texts.ids == ("quiz/1", "quiz/2")
    assert texts.texts == ("the first time", "Answer.\nA long question?\nyes\nno")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"output": {"choices": [{"logprobs": {"content": []}}]}}, "run inspect eval with --prompt-logprobs 1"),
        ({"output": {"choices": [{"prompt_logprobs": {"content": 3}}]}}, "prompt_logprobs.content must be a list"),
        ({"output": {"choices": [{"prompt_logprobs": {"content": [3]}}]}}, "must hold objects"),
        ({"output": {"choices": [{"prompt_logprobs": {"content": [{"logprob": 0.5}]}}]}}, "sample 1"),
    ],
)
def test_logs_without_such_numbers(write, changes, words):
    with pytest.raises(InputError, match=words):
        score_log_probs(write(sample(1, **changes)), "loss")


def test_other_archives_are_refused(tmp_path):
    path = tmp_path / "log.eval"
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match="not a readable log of inspect_ai: File is not a zip file"):
        load_texts(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("samples/1_epoch_1.json", "{}")
    with pytest.raises(InputError, match=r"the archive has neither header\.json nor _journal/start\.json"):
        load_texts(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", "{}")
    with pytest.raises(InputError, match="holds no samples"):
        load_texts(path)
