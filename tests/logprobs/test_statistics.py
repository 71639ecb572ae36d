"""Statistics at every position, and slices: numbers as from the model, units, and what cannot be."""

import csv
import io
import json
import math

import jax
import numpy as np
import pytest
import vision_files
from adapted_models import VOCABULARY, reference
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from word_tokenizer import word_tokenizer

import tdd
from tdd import InputError, score_log_probs
from tdd.audit.images import SLICES, _read_and_describe
from tdd.cli import main
from tdd.kernels.token_stats import token_stats_from_logits
from tdd.logprobs import read_log_probs
from tdd.logprobs.statistics import STATISTICS
from tdd.models import vision

RENYI = [f"max_renyi:gamma={gamma},k={k}" for gamma in ("0.5", "1", "2", "inf") for k in ("0", "0.1", "1")]


def statistics(p):
    """Probabilities [n, V] above 0 -> the entropies, and sigma, as lists."""
    mu = (p * np.log(p)).sum(-1)
    return {
        "mu": mu.tolist(),
        "sigma": np.sqrt((p * (np.log(p) - mu[:, None]) ** 2).sum(-1)).tolist(),
        "renyi_half": (2 * np.log(np.sqrt(p).sum(-1))).tolist(),
        "renyi_two": (-np.log((p**2).sum(-1))).tolist(),
        "renyi_inf": (-np.log(p.max(-1))).tolist(),
    }


def record(seed=0, n=7, null=False, **more):
    """Statistics of random distributions over 50 tokens, and the log-probability of one drawn from each."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(50, 0.3), n) + 1e-9
    p /= p.sum(-1, keepdims=True)
    log_probs = np.log([row[rng.choice(50, p=row)] for row in p])
    lists = {**statistics(p), "log_probs": log_probs.tolist()}
    return {"id": f"r{seed}", **{name: [None] * null + values for name, values in lists.items()}, **more}


def without(one, *names):
    return {name: value for name, value in one.items() if name not in names}


def refuses(records, message, scores="max_renyi", **options):
    with pytest.raises(InputError, match=message):
        score_log_probs(records, scores, **options)


# The numbers of the model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    loaded = vision.load_vision_language(vision_files.write(tmp_path_factory.mktemp("llava"), "llava-1.5"))
    return loaded._replace(tokenizer=word_tokenizer(vision_files.IMAGE - 1, bos=True))


def png(seed):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (12, 12, 3), np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def image_record(model, name, image, published, monkeypatch):
    """What a person would log of one image: four lists, and the slices of every position."""
    seen = {}

    def spy(*arguments):
        seen["prompt"], seen["found"] = np.asarray(arguments[3]), _read_and_describe(*arguments)
        return seen["found"]

    monkeypatch.setattr("tdd.audit.images._read_and_describe", spy)
    table = tdd.score_images(model, [{"id": name, "image": image}], RENYI, published=published, progress=False)
    (description,), found = jax.device_get(seen["found"])
    ends = np.flatnonzero(description == (model.tokenizer.eos_token_id or -1))
    prompt, length = len(seen["prompt"]), int(ends[0]) if len(ends) else len(description)
    image_at = np.flatnonzero(seen["prompt"] == vision_files.IMAGE)
    first = int(image_at[-1]) + 1
    bounds = dict(
        zip(
            SLICES,
            ((image_at[0], first), (first, prompt + length), (first, prompt), (prompt, prompt + length)),
            strict=True,
        )
    )
    inside = [[part for part, (a, b) in bounds.items() if a + published <= t < b] for t in range(prompt + length)]
    lists = {key: [None, *np.float64(values[0])[: prompt + length - 1].tolist()] for key, values in found.items()}
    return table, {"id": name, **lists, "slice": inside}


@pytest.mark.parametrize("published", [False, True])
def test_the_same_numbers_as_score_images(model, published, monkeypatch):
    made = [image_record(model, f"a{seed}", png(seed), published, monkeypatch) for seed in range(3)]
    found = score_log_probs([one for _, one in made], RENYI)
    assert found.ids == ("a0", "a1", "a2")
    assert [*found.values] == [f"{name} {part}" for name in RENYI for part in SLICES]
    for row, (table, one) in enumerate(made):
        for column in found.values:
            assert found[column][row] == table[column][0]
        assert found.num_tokens[row] == (table.num_tokens[0] if not published else sum(map(bool, one["slice"])))
    assert len({*found["max_renyi:gamma=0.5,k=1 image"]}) == 3


@pytest.mark.slow("long")
def test_the_same_numbers_as_score():
    lm, params = reference()
    tokenizer = word_tokenizer(VOCABULARY)
    texts = [{"id": f"d{i}", "text": " ".join(f"w{(7 * i + j * j) % 150}" for j in range(5 + i))} for i in range(6)]
    names = (*RENYI, "min_k_plus_plus:k=0.5", "m_entropy", "surp", "acmia", "acmia:beta=1", "diversity", "loss")
    expected = tdd.score((lm, params, tokenizer), texts, names, progress=False)
    records = []
    for text in texts:
        ids = np.array(tokenizer(text["text"])["input_ids"])
        logits = lm.logits(params, ids[None])[0, :-1]
        stats = token_stats_from_logits(logits, ids[1:], np.ones(len(ids) - 1, bool))
        lists = {name: [None, *np.float64(getattr(stats, name)).tolist()] for name in ("log_prob", *STATISTICS)}
        records.append({"id": text["id"], **lists, "tokens": ids.tolist()})
    found = score_log_probs(records, names, field="log_prob", format="plain")
    np.testing.assert_array_equal(found.num_tokens, expected.num_tokens)
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, err_msg=name)


def test_scores_by_hand():
    one = record(3)
    found = score_log_probs([one], ("max_renyi:gamma=1,k=1", "max_renyi:gamma=inf,k=0", "min_k_plus_plus:k=0.3"))
    assert found["max_renyi:gamma=1,k=1"][0] == pytest.approx(-np.mean(one["mu"]), rel=1e-13)
    assert found["max_renyi:gamma=inf,k=0"][0] == max(one["renyi_inf"])
    z = np.sort((np.array(one["log_probs"]) - one["mu"]) / one["sigma"])
    assert found["min_k_plus_plus:k=0.3"][0] == pytest.approx(-z[:2].mean(), rel=1e-13)


def test_the_first_token_is_null_in_all_lists():
    found = score_log_probs([record(null=True)], RENYI)
    np.testing.assert_array_equal(found.num_tokens, [7])
    for name in RENYI:
        assert found[name][0] == score_log_probs([record()], name)[name][0]
    mixed = {**record(null=True), "mu": [-0.1, *record()["mu"]]}
    refuses([mixed], r"index 0: position 0 is null in log_probs and not in mu; the first token counts in all")


def test_bits_and_the_sign_of_a_loss():
    names = ("max_renyi:gamma=1", "min_k_plus_plus", "surp", "max_renyi:gamma=inf,k=0")
    nats = score_log_probs([record()], names)
    bits = {name: (np.array(values) / math.log(2)).tolist() for name, values in without(record(), "id").items()}
    loss = {**bits, "log_probs": (-np.array(bits["log_probs"])).tolist()}
    for one, options in ((bits, {}), (loss, {"polarity": "loss"})):
        found = score_log_probs([one], names, base=2, **options)
        for name in names:
            np.testing.assert_allclose(found[name], nats[name], rtol=1e-12)


def test_parquet_is_the_same(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = [["image"], [], *[["image", "all"]] * 5]
    records = [record(i, slice=parts) for i in range(3)]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "dump.parquet")
    stored, memory = read_log_probs(tmp_path / "dump.parquet"), read_log_probs(records)
    assert stored.sha256 == memory.sha256
    other = [records[0], records[1], {**records[2], "slice": [*parts[:-1], ["image"]]}]
    assert read_log_probs(other).sha256 != memory.sha256


# Slices


def test_slices_by_record_and_by_position():
    parts = ["image"] * 3 + [None] + ["text"] * 3
    whole = [record(i, slice=parts) for i in range(2)]
    split = [
        {**{name: values[part] for name, values in record(i).items() if name != "id"}, "id": f"r{i}", "slice": name}
        for name, part in (("image", slice(0, 3)), ("text", slice(4, 7)))
        for i in range(2)
    ]
    by_position, by_record = (score_log_probs(dump, (*RENYI, "min_k", "loss")) for dump in (whole, split))
    assert by_position.ids == by_record.ids == ("r0", "r1")
    assert [*by_position.values] == [*by_record.values]
    assert by_position.num_tokens.tolist() == by_record.num_tokens.tolist() == [6, 6]
    for name in by_position.values:
        np.testing.assert_array_equal(by_position[name], by_record[name])
    assert by_position["loss text"][1] == pytest.approx(-np.mean(record(1)["log_probs"][4:]), rel=1e-13)
    assert by_position.provenance["log_probs"]["slices"] == ["image", "text"]


def test_slices_share_positions_and_may_be_absent():
    parts = [["a", "both"], "b", ["b", "both"], *[None] * 4]
    found = score_log_probs([record(0, slice=parts), record(1, slice=["a"] * 7)], "max_renyi:gamma=2,k=1")
    entropies = record()["renyi_two"]
    for name, rows in (("a", [0]), ("b", [1, 2]), ("both", [0, 2])):
        assert found[f"max_renyi:gamma=2,k=1 {name}"][0] == pytest.approx(np.mean([entropies[t] for t in rows]))
    assert np.isnan(found["max_renyi:gamma=2,k=1 b"][1])
    assert found.num_tokens.tolist() == [3, 7]


@pytest.mark.parametrize(
    ("slices", "message"),
    [
        (["a"] * 6, "log_probs has 7 elements, slice has 6"),
        (3, "slice must be a name, or a list with a name, a list of names or null for every position, not 3"),
        (None, "slice must be a name, or a list"),
        ([None] * 7, "index 0 has no scored position in any slice"),
        ([[]] * 7, "has no scored position in any slice"),
        ([["a", 3]] * 7, "a slice's name must be printable, without comma and semicolon, not 3"),
        ("", "must be printable, without comma and semicolon, not ''"),
        ("\x1b[31m", r"must be printable, without comma and semicolon, not '\\x1b\[31m'"),
        ("a,b", "must be printable, without comma"),
        (["a\nb"] * 7, "must be printable"),
    ],
)
def test_bad_slices(slices, message):
    refuses([record(slice=slices)], message)


def test_slices_that_do_not_fit_together():
    refuses([record(slice="a"), record(slice="a")], "slice 'a' of 'r0' is at index 0 and index 1; an item has each")
    refuses([record(slice="a"), record(1, slice=["a"] * 7)], "slice is another kind of value at index 1 than at index")
    refuses([record(slice="a"), record(1)], "slice must be a name")
    refuses([without(record(slice="a"), "id")], "rows of one slice each belong together by their id, and have none")
    refuses([record(slice=["a"] * 7), record(slice=["b"] * 7)], "ids must be unique; repeated: 'r0'")
    many = [[f"s{7 * i + t}" for t in range(7)] for i in range(5)]
    refuses(
        [record(i, slice=names) for i, names in enumerate(many)], "slice has 35 different names, such as 's0', 's1'"
    )


# What the numbers do not suffice for


def test_scores_that_statistics_do_not_suffice_for():
    half = without(record(), "log_probs", "mu", "sigma", "renyi_two", "renyi_inf")
    assert len(score_log_probs([half], ("max_renyi", "max_renyi:gamma=1/2,k=0")).values) == 2
    with pytest.raises(InputError) as caught:
        score_log_probs([half], ("max_renyi:gamma=1", "min_k_plus_plus", "loss", "loss_per_byte", "recall"))
    message = str(caught.value)
    for reason in (
        "'max_renyi:gamma=1' needs mu at every position",
        "'min_k_plus_plus' needs the log-probabilities of the tokens, and this file has none",
        "'loss' needs the log-probabilities of the tokens, and this file has none",
        "'loss_per_byte' needs the log-probabilities of the tokens",
    ):
        assert reason in message
    assert message.endswith("Possible from this file: max_renyi")
    refuses(
        [record()], "'m_entropy' needs m_entropy at every position, .* A plain file may have them as lists", "m_entropy"
    )
    refuses([record()], "'acmia' needs the tokens' ids: whole numbers in a list tokens", "acmia")
    refuses([record(tokens=["a"] * 7)], "'acmia' needs the tokens' ids", "acmia")
    refuses([record()], "'dc_pdd' needs the model itself", "dc_pdd")
    for score in ("zlib", "loss_per_byte", "reference"):
        refuses([record(slice="a", text="t")], f"'{score}' needs whole texts, and this file holds slices", score)
    for other, lacks in ((without(record(), "log_probs"), "has no log-probabilities"), (record(slice="a"), "slices")):
        refuses(
            [record()],
            f"reference needs the log-probabilities of whole texts, .*{lacks}",
            tdd.scores.Reference([other]),
        )
    refuses([record(), without(record(1), "mu")], r"index 1: mu must be a list, one element a token, not None")


# Numbers that cannot be


def spoiled(name, value, position=2):
    values = list(record()[name])
    values[position] = value
    return {**record(), name: values}


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (
            spoiled("mu", 0.5),
            r"index 0: position 2 of mu holds 0\.5; mu is sum p log p, minus the entropy: never above 0",
        ),
        (spoiled("renyi_two", -0.5), r"position 2 of renyi_two holds -0\.5; an entropy is never below 0"),
        (spoiled("renyi_half", 23.0), r"position 2 of renyi_half holds 23, the entropy of more than 2\^32 tokens"),
        (spoiled("renyi_half", math.inf), "position 2 of renyi_half holds inf; leave the row out"),
        (spoiled("mu", math.nan), "position 2 of mu holds nan; leave the row out"),
        (spoiled("sigma", -0.1), r"position 2 of sigma holds -0\.1, which is never below 0"),
        (spoiled("sigma", math.inf), "position 2 of sigma holds inf"),
        (spoiled("mu", None), "position 2 of mu is null; only the first may be, in all lists"),
        (spoiled("mu", "-1"), "position 2 of mu holds '-1', no number"),
        (spoiled("mu", True), "position 2 of mu holds True, no number"),
        (spoiled("mu", -(10**400)), "one of the numbers has more digits than any mu"),
        (
            spoiled("renyi_half", 0.1),
            r"position 2: mu holds -[\d.]+ and renyi_half 0\.1; the entropy of order 1 is never",
        ),
        (
            spoiled("renyi_two", 3.9),
            r"position 2: renyi_two holds 3\.9 and .* order 2 is never above that of order 1/2",
        ),
        (spoiled("renyi_inf", 3.8), r"position 2: renyi_inf holds 3\.8 and .* order inf is never above that of order"),
        (
            spoiled("renyi_inf", 0.0),
            r"renyi_two holds .* order 2 is never above twice that of order inf: the lists have",
        ),
        (
            spoiled("log_probs", -0.01),
            r"position 2: the token's log-probability is -0\.01 and renyi_inf .* most likely one",
        ),
        ({**record(), "sigma": record()["sigma"][1:]}, "log_probs has 7 elements, sigma has 6"),
        ({**record(), "mu": -0.5}, r"index 0: mu must be a list, one element a token, not -0\.5"),
        ({"mu": []}, "has no scored token"),
        ({"mu": [None]}, "has no scored token"),
        ({"log_prob": record()["log_probs"]}, "no layout of token log-probabilities that is known"),
    ],
)
def test_impossible_numbers(one, message):
    refuses([one], message)


def test_positions_are_counted_from_the_null():
    one = record(null=True)
    one["renyi_two"][3] = -2.0
    refuses([one], r"position 3 of renyi_two holds -2;")


def test_messages_give_the_numbers_of_the_file():
    refuses([spoiled("mu", 0.5)], r"position 2 of mu holds 0\.5;", base=2)
    refuses([spoiled("mu", -1e308)], "position 2 of mu holds -inf", base=10)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(0, 10**6), st.sampled_from([2, 5, 400]), st.floats(0.01, 30), st.sampled_from([np.float16, np.float64])
)
def test_entropies_of_distributions_are_accepted(seed, vocabulary, scale, dtype):
    """As published, with half-precision probabilities that are raised to 1e-10, too."""
    logits = np.random.default_rng(seed).normal(size=(20, vocabulary)) * scale
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p = np.maximum((p / p.sum(-1, keepdims=True)).astype(dtype).astype(np.float64), 1e-10)
    own = np.concatenate([p[:1].max(-1), p[1:, 0]])  # the tokens' own, not all of the least probability
    lists = {**statistics(p), "log_probs": np.minimum(np.log(own), 0).tolist()}
    found = score_log_probs([lists], (*RENYI, "min_k_plus_plus"))
    assert found["max_renyi:gamma=inf,k=0"][0] == max(lists["renyi_inf"])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from(["mu", "renyi_two", "renyi_inf"]))
def test_a_list_in_bits_among_lists_in_nats_is_refused(seed, name):
    one = record(seed, n=60)
    refuses([{**one, name: (np.array(one[name]) / math.log(2)).tolist()}], "different bases")


# The command


@pytest.mark.slow("long")
def test_command_and_selection(tmp_path, capsys):
    tables = {}
    for role, offset in (("suspects", 0), ("fresh", 100)):
        lines = [record(i + offset, slice=["image"] * 4 + ["description"] * 3) for i in range(12)]
        (tmp_path / f"{role}.jsonl").write_text("".join(json.dumps(without(r, "log_probs")) + "\n" for r in lines))
        tables[role] = str(tmp_path / f"{role}.csv")
        command = ["score-logprobs", str(tmp_path / f"{role}.jsonl"), "--score", "max_renyi:gamma=0.5;k=1"]
        assert main([*command, "--out", tables[role], "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["scores"] == ["max_renyi:gamma=0.5,k=1 image", "max_renyi:gamma=0.5,k=1 description"]
    with open(tables["suspects"], newline="") as file:
        header = next(csv.reader(file))
    assert header == ["id", "num_tokens", *printed["scores"]]
    command = ["select", tables["suspects"], "--calibration", tables["fresh"], "--alpha", "0.5", "--json"]
    assert main([*command, "--score", "max_renyi:gamma=0.5;k=1 image", "--method", "ptdi"]) == 0
    decision = json.loads(capsys.readouterr().out)["decision"]
    assert (decision["num_tests"], decision["num_calibration"]) == (12, 12)
