"""Log-probabilities from elsewhere → scores: the driver's own numbers, refusals, second dumps, the command."""

import json
import zlib

import numpy as np
import pytest

import tdd
from tdd import InputError, score_log_probs
from tdd.cli import main
from tdd.scoring.scores import Reference

RNG = np.random.default_rng(4)
TEXTS = {f"t{i}": " ".join(f"Word{j}" for j in RNG.integers(0, 50, 3 + 4 * i)) for i in range(9)}


def dump(seed=0, extra=0, texts=True):
    rng = np.random.default_rng(seed)
    return [
        {"id": name, "log_probs": [None, *(-rng.exponential(2.0, len(text.split()) + extra)).tolist()]}
        | ({"text": text} if texts else {})
        for name, text in TEXTS.items()
    ]


def numbers(record):
    return np.array(record["log_probs"][1:])


def test_loss_and_min_k_by_hand():
    found = score_log_probs(dump(), ("loss", "min_k", "min_k:k=0.5"))
    assert found.ids == tuple(TEXTS)
    for i, record in enumerate(dump()):
        values = np.sort(numbers(record))
        assert found.num_tokens[i] == len(values)
        np.testing.assert_allclose(found["loss"][i], -values.mean(), rtol=1e-13)
        for label, share in (("min_k", 0.2), ("min_k:k=0.5", 0.5)):
            np.testing.assert_allclose(found[label][i], -values[: max(1, int(share * len(values)))].mean(), rtol=1e-13)


def test_scores_that_need_texts():
    found = score_log_probs(dump(), ("zlib", "loss_per_byte"))
    for i, (record, text) in enumerate(zip(dump(), TEXTS.values(), strict=True)):
        size = len(zlib.compress(text.encode()))
        np.testing.assert_allclose(found["zlib"][i], -numbers(record).mean() / size, rtol=1e-13)
        np.testing.assert_allclose(found["loss_per_byte"][i], -numbers(record).sum() / len(text.encode()), rtol=1e-13)
    joined = [{"id": name, "text": text} for name, text in reversed(TEXTS.items())]
    again = score_log_probs(dump(texts=False), ("zlib", "loss_per_byte"), texts=joined)
    for name in found.values:
        np.testing.assert_array_equal(found[name], again[name])
    with pytest.raises(InputError, match=r"'zlib' needs the texts, and 9 rows have none.*text_field, or give texts="):
        score_log_probs(dump(texts=False), "zlib")
    with pytest.raises(InputError, match="1 ids of the scored texts are not in texts: 't0'"):
        score_log_probs(dump(texts=False), "zlib", texts=joined[:-1])


def test_second_dumps_are_matched_by_id():
    lower = [{**record, "text": record["text"].lower()} for record in reversed(dump(1, extra=2))]
    other = list(reversed(dump(2)))
    found = score_log_probs(dump(), ("lowercase", Reference(other)), lowercase=lower)
    pairs = zip(dump(), reversed(lower), reversed(other), strict=True)
    for i, (record, lowered, reference) in enumerate(pairs):
        loss, low, ref = (-numbers(r).mean() for r in (record, lowered, reference))
        np.testing.assert_allclose(found["lowercase"][i], loss / low, rtol=1e-13)
        np.testing.assert_allclose(found["reference"][i], loss - ref, rtol=1e-12, atol=1e-13)
    assert found.provenance["reference_unit"] == "token"
    assert found.provenance["lowercase"]["num_tokens"] == sum(len(numbers(r)) for r in lower)


def test_another_tokenizer_is_compared_per_byte():
    found = score_log_probs(dump(), Reference(dump(2, extra=1, texts=False)))
    assert found.provenance["reference_unit"] == "byte"
    for i, (a, b, text) in enumerate(zip(dump(), dump(2, extra=1), TEXTS.values(), strict=True)):
        np.testing.assert_allclose(
            found["reference"][i], (numbers(b).sum() - numbers(a).sum()) / len(text.encode()), rtol=1e-12
        )
    with pytest.raises(InputError, match="both losses must be per byte of text, and 9 rows have no text"):
        score_log_probs(dump(texts=False), Reference(dump(2, extra=1)))


def samples(seed):
    return [
        {"doc_id": name, "arguments": [[record["text"]]], "filtered_resps": [str(numbers(record).sum())]}
        for name, record in zip(TEXTS, dump(seed), strict=True)
    ]


def test_sums():
    found = score_log_probs(samples(0), ("loss_per_byte", Reference(samples(2))))
    tokens = score_log_probs(dump(), "loss_per_byte")
    np.testing.assert_allclose(found["loss_per_byte"], tokens["loss_per_byte"], rtol=1e-12)
    difference = found["loss_per_byte"] - score_log_probs(dump(2), "loss_per_byte")["loss_per_byte"]
    np.testing.assert_allclose(found["reference"], difference, rtol=1e-9, atol=1e-12)
    with pytest.raises(InputError, match=r"'loss' needs the log-probability of every token; lm-eval .* 'zlib' needs"):
        score_log_probs(samples(0), ("loss", "loss_per_byte", "zlib"))
    with pytest.raises(InputError, match="lowercase needs one log-probability a token, this file holds sums"):
        score_log_probs(dump(), "lowercase", lowercase=samples(1))


def test_refused_by_name():
    labels = (
        "min_k_plus_plus",
        "m_entropy",
        "max_renyi:gamma=2",
        "grad_norm",
        "lowercase",
        "reference",
        "recall",
        "loss",
    )
    with pytest.raises(InputError) as caught:
        score_log_probs(dump(), labels)
    message = str(caught.value)
    assert "'min_k_plus_plus' needs mu and sigma at every position" in message
    assert "'m_entropy' needs m_entropy" in message
    assert "'max_renyi:gamma=2' needs renyi_two at every position" in message
    assert "top-k lists never suffice" in message
    assert "'grad_norm' needs the model itself" in message
    assert "'recall' needs the model itself (prefix); see tdd.score" in message
    assert "'lowercase' needs a second dump: give lowercase=" in message
    assert "'reference' needs a second dump: give model=" in message
    assert "'loss'" not in message
    with pytest.raises(InputError, match="there is no score 'perplexity'"):
        score_log_probs(dump(), "perplexity")


def test_dumps_that_do_not_fit():
    with pytest.raises(InputError, match="lowercase is given but no score uses it"):
        score_log_probs(dump(), "loss", lowercase=dump())
    with pytest.raises(InputError, match="1 ids of the scored texts are not in reference: 't8'"):
        score_log_probs(dump(), Reference(dump()[:-1]))
    with pytest.raises(InputError, match="the text of 't0' in lowercase is not the lowercased text"):
        score_log_probs(dump(), "lowercase", lowercase=dump())
    with pytest.raises(InputError, match="the text of 't0' in reference is not the same text"):
        score_log_probs(dump(), Reference([{**r, "text": "x"} for r in dump()]))


@pytest.mark.slow("long")
def test_the_same_numbers_as_the_model():
    """Dumping the log-probabilities of a model and scoring the dump gives `tdd.score`'s own table."""
    from adapted_models import VOCABULARY, reference
    from word_tokenizer import word_tokenizer

    lm, params = reference()
    tokenizer = word_tokenizer(VOCABULARY)
    texts = [{"id": f"d{i}", "text": " ".join(f"w{(7 * i + j * j) % 150}" for j in range(5 + i))} for i in range(6)]
    names = ("loss", "min_k", "zlib", "camia", "camia:signal=above")
    expected = tdd.score((lm, params, tokenizer), texts, names, progress=False)
    records = []
    for record in texts:
        ids = np.array(tokenizer(record["text"])["input_ids"])
        logits = np.asarray(lm.logits(params, ids[None]), np.float64)[0, :-1]
        log_probs = logits[np.arange(len(ids) - 1), ids[1:]] - np.logaddexp.reduce(logits, axis=-1)
        records.append({**record, "prompt_token_ids": ids.tolist(), "prompt_logprobs": [None]})
        records[-1]["prompt_logprobs"] += [
            {str(i): {"logprob": v}, "x": {"logprob": -0.1}} for i, v in zip(ids[1:], log_probs)
        ]
    found = score_log_probs(records, names)
    assert found.ids == expected.ids
    np.testing.assert_array_equal(found.num_tokens, expected.num_tokens)
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5)


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


@pytest.mark.slow("long")
def test_command_and_selection(tmp_path, capsys):
    out = {}
    for role, seed in (("suspects", 0), ("fresh", 1)):
        file = write(tmp_path / f"{role}.jsonl", [{**r, "id": f"{role}-{r['id']}"} for r in dump(seed)])
        out[role] = str(tmp_path / f"{role}.csv")
        assert main(["score-logprobs", file, "--score", "loss,min_k:k=0.5", "--out", out[role], "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["scores"] == ["loss", "min_k:k=0.5"]
        assert printed["provenance"]["log_probs"]["num_texts"] == 9
    stored = json.loads((tmp_path / "suspects.csv.provenance.json").read_text())
    assert len(stored["log_probs"]["file_sha256"]) == 64
    arguments = [
        "select",
        out["suspects"],
        "--calibration",
        out["fresh"],
        "--score",
        "loss",
        "--alpha",
        "0.5",
        "--json",
    ]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["decision"]["num_tests"] == 9
    assert main(["score-logprobs", out["fresh"], "--out", str(tmp_path / "x.csv")]) == 2
    assert "no layout of token log-probabilities" in capsys.readouterr().err
