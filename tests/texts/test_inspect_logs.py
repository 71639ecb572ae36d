"""Logs of inspect_ai, of JSON and archives: the items of a benchmark, and log-probabilities of the prompts' tokens."""

import json
import zipfile
import zlib

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
            if method != 93:
                archive.writestr(name, data)
                continue
            archive.writestr(name, pyarrow.compress(data, codec="zstd", asbytes=True))
            info = archive.filelist[-1]  # written into the directory at the end
            info.compress_type, info.file_size, info.CRC = method, len(data), zlib.crc32(data)


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


@pytest.mark.parametrize("number", [None, "", True, 1.5, [1], {}])
def test_a_sample_without_a_usable_id_is_refused(write, number):
    with pytest.raises(InputError, match="sample 2: id must be a number or a text"):
        load_texts(write(sample(1), {**sample(2), "id": number}))


def test_no_sample_takes_the_place_of_another(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log(sample(1), {**sample(1), "id": "1", "input": "another"})))
    with pytest.raises(InputError, match="sample 2: id '1' occurs twice in epoch 1"):
        load_texts(path)


def test_an_attachment_that_is_not_there_is_refused(write):
    with pytest.raises(InputError, match="has no text for 'attachment://a'"):
        load_texts(write(sample(1, input="attachment://a", attachments={"a": 5})))


def test_ids_of_any_length_are_ordered(write):
    digits = "9" * 5000
    texts = load_texts(write({**sample(2), "id": digits}, {**sample(1), "id": "10"}, {**sample(1), "id": 9}))
    assert texts.ids == ("quiz/9", "quiz/10", f"quiz/{digits}")


def changed(path, name, change):
    """The archive with another entry in its directory."""
    with zipfile.ZipFile(path, "a") as archive:
        change(archive.getinfo(name))
        archive._didModify = True


@pytest.mark.parametrize(
    ("field", "change", "words"),
    [
        ("CRC", lambda value: value ^ 1, "size or CRC-32"),
        ("file_size", lambda value: value - 1, "size or CRC-32"),
        ("file_size", lambda value: value + 1, "size or CRC-32"),
        ("flag_bits", lambda value: value | 1, "encrypted"),
    ],
)
def test_a_member_is_what_the_directory_says(tmp_path, field, change, words):
    """Damage is found, and no member unpacks to more than is stated."""
    path = tmp_path / "log.eval"
    write_archive(path, log(sample(1), sample(2)), 93)
    assert len(load_texts(path).texts) == 2
    changed(path, "samples/2_epoch_1.json", lambda info: setattr(info, field, change(getattr(info, field))))
    with pytest.raises(InputError, match=rf"samples/2_epoch_1.json is .*{words}|{words}"):
        load_texts(path)


def test_a_folder_in_the_archive_is_no_sample(tmp_path):
    path = tmp_path / "log.eval"
    write_archive(path, log(sample(1)), zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("samples/", "")
    assert len(load_texts(path).texts) == 1
