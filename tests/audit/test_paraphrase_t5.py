"""`tdd paraphrase` by a small T5: sampling, beams, and what they refuse."""

import json

import jax
import numpy as np
import pytest
from t5_files import write_t5

import tdd
from tdd import InputError


def table(out):
    return [json.loads(line) for line in (out / "paraphrases.jsonl").read_text("utf-8").splitlines()]


def some_words(seed, count):
    return " ".join(map(str, np.random.default_rng(seed).integers(2, 60, count)))


def test_beams_of_a_t5(tmp_path):
    """Version v is the v-th best sequence, whatever the seed and the other versions."""
    from tdd.models.beams import BeamSearch
    from tdd.models.t5 import beams, load_t5

    model = write_t5(tmp_path / "t5")
    texts = [{"id": n, "text": some_words(n, 9)} for n in range(4)]
    options = {"model": model, "max_tokens": 6, "prompt": "{text}", "decoding": "beams"}
    run = tdd.paraphrase(texts, out=tmp_path / "three", versions=3, **options)
    assert run["options"]["decoding"] == {
        "beams": 5, "groups": 5, "diversity_penalty": 3.0, "repetition_penalty": 10.0, "no_repeat_ngram": 2,
        "max_tokens": 6,
    }  # fmt: skip
    spec, params, tokenizer = load_t5(model)
    rows = table(tmp_path / "three")
    tokens = [[*tokenizer(row["text"])["input_ids"], spec.end] for row in rows]
    for row, own in zip(rows, tokens, strict=True):
        ids, mask = np.zeros((2, 1, max(map(len, tokens))), np.int32)  # one shape for all
        ids[0, : len(own)], mask[0, : len(own)] = own, 1
        found = np.asarray(beams(spec, params, ids, mask.astype(bool), BeamSearch(), longest=6))[0]
        written = [tokenizer.decode(one[: [*one, spec.end].index(spec.end)]) for one in found.tolist()]
        assert [row[f"paraphrase_{version}"] for version in (1, 2, 3)] == written[:3]
        assert len({*written}) > 1
    tdd.paraphrase(texts, out=tmp_path / "one", seed=4, **options)
    one, three = ([row["paraphrase_1"] for row in table(tmp_path / name)] for name in ("one", "three"))
    assert one == three


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"versions": 6}, "versions must be at most 5, one a beam, got 6"),
        ({"temperature": 1.0}, "temperature=1.0 is an option of decoding='sampling'"),
        ({"endpoint": "http://localhost:1/v1"}, "decoding='beams' is for a T5 of this machine"),
        ({"decoding": "greedy"}, "decoding='greedy' is not supported; supported: sampling, beams"),
    ],
)
def test_decodings_that_are_refused(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        tdd.paraphrase(["a b"], out=tmp_path / "run", model="./t5", **{"decoding": "beams", **options})
    assert not (tmp_path / "run").exists()


def test_a_local_t5_answers_by_seed_and_text_alone(tmp_path):
    model = write_t5(tmp_path / "t5")
    texts = [{"id": n, "text": some_words(n, 5 + n)} for n in range(10)]
    options = {"model": model, "max_tokens": 12, "prompt": "{text}"}
    run = tdd.paraphrase(texts, out=tmp_path / "all", versions=2, **options)
    tdd.paraphrase(texts[8:3:-1], out=tmp_path / "some", **options)
    both = {row["id"]: row["paraphrase_1"] for row in table(tmp_path / "all")}
    assert {row["id"]: row["paraphrase_1"] for row in table(tmp_path / "some")}.items() <= both.items()
    assert len({*both.values()}) == len(both)
    assert all(row["paraphrase_1"] != row["paraphrase_2"] for row in table(tmp_path / "all"))
    tdd.paraphrase(texts[:1], out=tmp_path / "other", seed=1, **options)
    assert table(tmp_path / "other")[0]["paraphrase_1"] != both["0"]
    assert run["options"]["decoding"] == {"temperature": 1.9, "top_k": 50, "top_p": 0.95, "max_tokens": 12}
    assert run["paraphraser"]["kind"] == "t5"
    assert len(run["paraphraser"]["sha256"]) == 64
    answers = (tmp_path / "all" / "answers.jsonl").read_text().splitlines()
    (tmp_path / "all" / "run.json").unlink()
    (tmp_path / "all" / "paraphrases.jsonl").unlink()
    (tmp_path / "all" / "answers.jsonl").write_text("\n".join(answers[:7]) + "\n")
    tdd.paraphrase(texts, out=tmp_path / "all", versions=2, **options)
    assert {row["id"]: row["paraphrase_1"] for row in table(tmp_path / "all")} == both
    assert sorted((tmp_path / "all" / "answers.jsonl").read_text().splitlines()) == sorted(answers)
    (tmp_path / "copy").symlink_to(model)
    with pytest.raises(InputError, match="is the audited model"):
        tdd.paraphrase(texts, out=tmp_path / "refused", audited=tmp_path / "copy", **options)


def test_empty_answers_of_a_t5_are_drawn_again(tmp_path, monkeypatch):
    from tdd.models import t5

    keys, plain = [], t5.generate

    def empty_twice(spec, params, tokens, mask, given, **options):
        keys.append(np.asarray(jax.random.key_data(given)).tolist())
        found = np.array(plain(spec, params, tokens, mask, given, **options))
        if len(keys) < 3:
            found[0] = spec.end
        return found

    monkeypatch.setattr(t5, "generate", empty_twice)
    model = write_t5(tmp_path / "t5")
    run = tdd.paraphrase(
        [{"id": 1, "text": "3 4 5 6 7"}], out=tmp_path / "run", model=model, max_tokens=12, prompt="{text}"
    )
    assert len(keys) == 3
    assert len({str(one[0]) for one in keys}) == 3
    assert table(tmp_path / "run")[0]["paraphrase_1"]
    assert not any("empty" in warning for warning in run["warnings"])
    with pytest.raises(InputError, match="a piece of 3001 tokens is too long"):
        tdd.paraphrase(["7 " * 3000], out=tmp_path / "long", model=model, prompt="{text}")


def test_the_report_names_what_beams_leave_open(tmp_path):
    model = write_t5(tmp_path / "t5")
    options = {"model": model, "max_tokens": 6, "prompt": "{text}"}
    drawn = tdd.paraphrase(["3 4 5", "6 7 8"], out=tmp_path / "drawn", **options)
    searched = tdd.paraphrase(["3 4 5", "6 7 8"], out=tmp_path / "searched", decoding="beams", **options)
    assert [len(run["open_points"]) for run in (drawn, searched)] == [1, 2]
    page = (tmp_path / "searched" / "report.html").read_text("utf-8")
    assert "diversity_penalty 3.0" in page
    assert "not drawn but ranked" in page
