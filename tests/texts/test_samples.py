"""Samples of lm-evaluation-harness: items, right choices, scores, and audits without a model."""

import decimal
import json
import pathlib

import numpy as np
import pytest

import tdd
from tdd import InputError, load_texts, score_log_probs
from tdd.cli import main

QUESTION = "Which planet is red?"
CHOICES = ["Venus", "Mars", "the Moon"]


def sample(
    doc_id=0, sums=(-3.0, -1.5, -4.0), target="1", choices=CHOICES, question=QUESTION, context="Q: {}\nA:", **more
):
    """As save_results_samples writes it: numbers as strings, requests as objects."""
    arguments = {
        f"gen_args_{i}": {"arg_0": context.format(question), "arg_1": f" {choice}"} for i, choice in enumerate(choices)
    }
    doc = {"question": question, "choices": choices, "answer": 1, "source_id": "activity~v_1", "label": 0}
    answers = [[str(value), "False"] for value in sums]
    record = {"doc_id": doc_id, "doc": doc, "target": target, "arguments": arguments, "doc_hash": f"hash{doc_id}"}
    return {**record, "resps": [[answer] for answer in answers], "filtered_resps": answers, **more}


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def test_the_scores_by_hand():
    found = score_log_probs([sample()], ("loss_per_byte", "choice_loss"))
    assert found["loss_per_byte"][0] == 1.5 / len(" Mars")
    np.testing.assert_allclose(found["choice_loss"][0], np.log(np.exp([-3.0, -1.5, -4.0]).sum()) + 1.5, rtol=1e-12)
    assert found["choice_loss"][0] == score_log_probs([sample(target="Mars")], "choice_loss")["choice_loss"][0]


def test_a_reference_is_compared_per_byte():
    other = sample(sums=(-1.0, -2.5, -1.0))
    found = score_log_probs([sample()], tdd.scores.Reference([other]))
    np.testing.assert_allclose(found["reference"], (1.5 - 2.5) / len(" Mars"), rtol=1e-12)


def test_the_sum_of_the_losses_needs_no_number_of_tokens():
    found = score_log_probs([sample()], ("loss:reduction=sum", "loss_per_byte"))
    assert (found["loss:reduction=sum"][0], found["loss_per_byte"][0]) == (1.5, 1.5 / len(" Mars"))
    tokens = [{"id": "a", "log_probs": [None, -1.0, -3.0]}, {"id": "b", "log_probs": [None, -0.5]}]
    assert score_log_probs(tokens, "loss:reduction=sum")["loss:reduction=sum"].tolist() == [4.0, 0.5]
    with pytest.raises(InputError, match="needs the model itself; logged statistics have the orders"):
        score_log_probs(tokens, "max_renyi:gamma=3")


def test_scores_that_sums_do_not_suffice_for_are_refused_by_name():
    message = (
        r"'loss' needs the log-probability of every token.*Possible from this file: reference, loss_per_byte, choice"
    )
    with pytest.raises(InputError, match=message):
        score_log_probs([sample()], ("loss", "choice_loss"))
    one = sample(choices=["Mars"], sums=(-1.0,))
    with pytest.raises(InputError, match="'choice_loss' needs the log-likelihoods of several choices"):
        score_log_probs([one], "choice_loss")


def test_choices_without_a_context_are_left_out():
    """`acc_mutual_info` asks for every choice a second time, without the context."""
    given = sample(sums=(-3.0, -1.5, -4.0, -9.0, -8.0, -7.0))
    given["arguments"] |= {
        f"gen_args_{3 + i}": {"arg_0": "", "arg_1": f" {choice}"} for i, choice in enumerate(CHOICES)
    }
    both = ("loss_per_byte", "choice_loss")
    found, expected = score_log_probs([given], both), score_log_probs([sample()], both)
    assert [found[name][0] for name in both] == [expected[name][0] for name in both]


def test_the_accuracy_tells_a_number_from_a_text():
    """Choices "1", "2", "0": target "1" is the second choice by number and the first by text."""
    numbers = {"choices": ["1", "2", "0"], "sums": (-1.0, -2.0, -3.0)}
    first = score_log_probs([sample(**numbers, acc=1.0)], "loss_per_byte")
    second = score_log_probs([sample(**numbers, acc=0.0)], "loss_per_byte")
    assert (first["loss_per_byte"][0], second["loss_per_byte"][0]) == (0.5, 1.0)
    with pytest.raises(InputError, match="is the number of one choice and the text of another"):
        score_log_probs([sample(**numbers)], "loss_per_byte")
    with pytest.raises(InputError, match="which of the 3 choices is right"):  # neither agrees with the accuracy
        score_log_probs(
            [sample(**numbers, target="1", acc=1.0), sample(1, **numbers, target="2", acc=1.0)], "loss_per_byte"
        )


@pytest.mark.parametrize("target", ["7", "Pluto", "[0, 1]", "-100", None])
def test_an_unknown_right_choice(target):
    with pytest.raises(InputError, match="which of the 3 choices is right"):
        score_log_probs([sample(target=target)], "loss_per_byte")


def test_generated_text_has_no_log_probabilities(tmp_path):
    generated = sample(
        arguments={"gen_args_0": {"arg_0": "Q: 1 + 1", "arg_1": {"until": ["\n"]}}}, filtered_resps=["2"]
    )
    with pytest.raises(InputError, match=r"generates text \(generate_until\).*no log-probabilities.*--input-format"):
        score_log_probs([generated], "loss_per_byte")
    with pytest.raises(InputError, match="must be a list with one log-likelihood, or one a choice, not None"):
        score_log_probs([sample(filtered_resps=None)], "loss_per_byte")


def test_items(tmp_path):
    """Text, ids, and fields of the item; nothing that names the benchmark is in the text."""
    path = write(tmp_path / "samples_space_2025-01-02T03-04-05.678.jsonl", [sample(0), sample(1)])
    found = load_texts(path, format="lm-eval", label_field="label")
    assert found.ids == ("space/0", "space/1")
    assert found.texts[0] == "Which planet is red?\nVenus\nMars\nthe Moon"
    assert found.labels == (0, 0)
    assert load_texts(path, format="lm-eval", id_field="doc_hash").ids == ("hash0", "hash1")
    assert load_texts(path, format="lm-eval", text_field="question").texts == (QUESTION, QUESTION)
    few = load_texts([sample(context="Q: What is a cat?\nA: an animal\n\nQ: {}\nA:")], format="lm-eval")
    assert few.texts == found.texts[:1]  # the examples of the prompt are not the item
    assert few.ids == ("0",)


def test_several_files(tmp_path):
    for task in ("a", "b"):
        write(tmp_path / f"samples_{task}_2025-01-02T03-04-05.678.jsonl", [sample(0), sample(1)])
    assert load_texts(str(tmp_path), format="lm-eval").ids == ("a/0", "a/1", "b/0", "b/1")
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match=r"the folder holds no samples_\*\.jsonl"):
        load_texts(tmp_path / "other", format="lm-eval")
    with pytest.raises(InputError, match="no samples of lm-evaluation-harness: there is no field 'doc_id'"):
        load_texts([{"text": "a"}], format="lm-eval")


# Audits


WORDS = [f"word{i}" for i in range(300)]


def benchmark(count, members, seed):
    """Items of which the first `members` were trained on: the right choice is far more probable."""
    rng = np.random.default_rng(seed)
    records = []
    for number in range(count):
        choices = [" ".join(rng.choice(WORDS, 3)) for _ in range(4)]
        sums, right = -rng.normal(25, 3, 4), int(rng.integers(4))
        sums[right] += 12.0 * (number < members)
        question = " ".join(rng.choice(WORDS, 12))
        records.append(sample(number, sums, str(right), choices, question))
        records[-1]["doc"] |= {"label": int(number < members)}
    return records


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    return (
        write(folder / "samples_old_2025-01-02T03-04-05.678.jsonl", benchmark(60, 30, 1)),
        write(folder / "samples_new_2025-01-02T03-04-05.678.jsonl", benchmark(80, 0, 2)),
    )


def test_an_audit_is_that_of_the_scores(files, tmp_path, capsys):
    """The command decides as `tdd.ptdi` on the same scores; report and record say whence they are."""
    status = main(
        ["audit", "--lm-eval", files[0], "--calibration", files[1], "--score", "choice_loss", "--label-field", "label",
         "--out", str(tmp_path / "run"), "--json"]
    )  # fmt: skip
    run = json.loads(capsys.readouterr().out)
    scores = [score_log_probs(file, "choice_loss")["choice_loss"] for file in files]
    selected = np.asarray(tdd.ptdi(scores[1], scores[0], alpha=0.1).selected)
    assert status == 0
    assert run["selected"] == [f"old/{i}" for i in np.flatnonzero(selected)]
    assert run["decision"]["truth"]["power"] > 0.5
    assert run["model"]["name"] == "samples of lm-evaluation-harness"
    assert any("of one model, asked alike" in line for line in run["decision"]["guarantee"]["assumes"])
    assert run["checks"].keys() >= {"blind_baseline", "duplicates", "overlap"}
    assert len((tmp_path / "run" / "calibration.csv").read_text().splitlines()) == 81


def test_a_reference_may_be_a_folder_of_samples(files, tmp_path):
    """Items of several tasks are those of the other model's files of the same tasks."""
    for file, records in zip(files, (benchmark(60, 30, 1), benchmark(80, 0, 2)), strict=True):
        for record in records:
            record["filtered_resps"] = [[str(float(value) - 6), flag] for value, flag in record["filtered_resps"]]
        write(tmp_path / pathlib.Path(file).name, records)
    audit = tdd.run_audit(None, *files, alpha=0.1, score=f"reference:model={tmp_path}", format="lm-eval")
    right = [record["doc"] | record for record in benchmark(60, 30, 1)]
    sizes = [len(" " + record["choices"][int(record["target"])]) for record in right]
    np.testing.assert_allclose(audit.items["reference"], [-6 / size for size in sizes], rtol=1e-9)


def test_clean_items(files):
    """Calibrated on known members, in the other direction."""
    known = benchmark(80, 80, 3)
    audit = tdd.run_audit(None, files[0], known, alpha=0.2, method="jmcs", format="lm-eval", label_field="label")
    selected = np.asarray(audit.items["selected"])
    assert selected[30:].mean() > 0.5
    assert selected[:30].mean() < 0.2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": None}, "model is None; give a checkpoint, or samples of lm-evaluation-harness"),
        ({"method": "ktd", "knockoff_fields": "question"}, "needs the scores of knockoffs"),
        ({"max_length": 8}, "max_length has no use for samples"),
        ({"shard": "0/2"}, "shard has no use for samples"),
        ({"score": "min_k_plus_plus"}, "'min_k_plus_plus' needs mu and sigma"),
        ({"score": ("loss_per_byte", "choice_loss")}, "score names 2 scores"),
        ({"calibration_flagged": ["0"]}, "calibration_flagged was given without flagged"),
    ],
)
def test_audits_that_cannot_be(files, options, message):
    with pytest.raises(InputError, match=message):
        tdd.run_audit(None, *files, **{"alpha": 0.1, "format": "lm-eval", **options})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--calibration", "x"], "model is missing: tdd audit MODEL --candidates FILE, or tdd audit --lm-eval"),
        (["gpt2"], "--candidates is missing"),
        (["gpt2", "--lm-eval", "x"], "leave out a model, 'gpt2'"),
        (["--lm-eval", "x", "--candidates", "y"], "leave out --candidates, 'y'"),
        (["--lm-eval", "x", "--input-format", "csv"], "leave out --input-format csv"),
    ],
)
def test_commands_that_cannot_be(arguments, message, capsys):
    arguments = [*arguments[1:], arguments[0]] if arguments[0] == "gpt2" and len(arguments) == 1 else arguments
    assert main(["audit", *arguments]) == 2
    assert message in capsys.readouterr().err


# Flagged items


def test_flagged_items_alone_are_decided_on(files):
    """Those of both sides: the scores are those of the flagged ones, in the order of the files."""
    flagged = [{"doc_id": i, "overlap": i % 3} for i in range(60)] + [{"doc_id": 1, "overlap": 4}]
    known = [f"new/{i}" for i in range(0, 80, 2)]
    audit = tdd.run_audit(None, *files, alpha=0.2, format="lm-eval", flagged=flagged, calibration_flagged=known)
    kept = [i for i in range(60) if i % 3]
    assert list(audit.items["id"]) == [f"old/{i}" for i in kept]
    assert list(audit.calibration["id"]) == known
    scores = [score_log_probs(file, "loss_per_byte")["loss_per_byte"] for file in files]
    np.testing.assert_array_equal(audit.items["loss_per_byte"], scores[0][kept])
    np.testing.assert_array_equal(audit.calibration["loss_per_byte"], scores[1][::2])
    flags = audit.run["checks"]["flags"]
    assert (flags["num_flagged"], flags["num_candidates"]) == (40, 60)
    assert (flags["num_calibration_flagged"], flags["num_calibration"], flags["warning"]) == (40, 80, "")
    assert any("one rule" in line for line in audit.run["decision"]["guarantee"]["assumes"])
    assert audit.run["options"].keys() >= {"flagged", "calibration_flagged"}


@pytest.mark.parametrize("asserted", [None, "independent"])
def test_calibration_that_was_not_flagged_withholds_the_verdict_unless_flags_are_independent(files, tmp_path, asserted):
    (tmp_path / "hits.txt").write_text("\n".join(f"hash{i}" for i in range(40)))
    flags = {"flagged": tmp_path / "hits.txt", "calibration_flagged": asserted, "id_field": "doc_hash"}
    audit = tdd.run_audit(None, *files, alpha=0.2, format="lm-eval", **flags)
    assert audit.verdict_stands == (asserted is not None)
    assert audit.run["options"].get("calibration_flagged") == asserted
    assert any("not applied to the calibration items" in line for line in audit.run["warnings"])
    assert any("flags tell nothing" in line for line in audit.run["decision"]["guarantee"]["assumes"])
    assert audit.run["checks"]["flags"]["num_calibration_flagged"] is None


@pytest.mark.parametrize(
    ("flagged", "message"),
    [
        (["old/3", "old/60"], "1 ids of memory are of no item, the first is 'old/60'; items have ids such as 'old/0'"),
        ([{"id": "old/3", "overlap": 0}], "flags no item"),
        ([{"name": "old/3"}], "has no field id, doc_id or doc_hash; fields found: name"),
    ],
)
def test_flags_that_do_not_fit(files, flagged, message):
    with pytest.raises(InputError, match=message):
        tdd.run_audit(None, *files, alpha=0.2, format="lm-eval", flagged=flagged)


def flags_of(table, tmp_path=None):
    """Ids of the items of "a", "b", "c" that the table flags; through a file of CSV where there is a folder."""
    from tdd.audit.flagged import restrict_to_flagged
    from tdd.audit.inputs import Reading, read_inputs

    items = [{"id": name, "text": f"text {name}", "label": 0} for name in "abc"]
    fields = {"label_field": "label", "group_field": None, "text_field": None}
    inputs = read_inputs(tdd.procedure("ptdi"), (items, items, None), Reading(**fields))
    if tmp_path is not None:
        path = tmp_path / "hits.csv"
        path.write_text("\n".join(",".join(map(str, row)) for row in [[*table[0]], *(row.values() for row in table)]))
        table = path
    return restrict_to_flagged(inputs, table, ["a"], "nonmember").inputs.candidates.ids


@pytest.mark.parametrize("column", ["flagged", "contaminated", "overlap", "num_overlaps", "ngrams", "hits", "count"])
@pytest.mark.parametrize(
    ("hit", "none"),
    [
        (True, False), (np.True_, np.False_), (3, 0), (0.01, -0.0), (np.int64(1), np.float32(0)), (["a b"], []),
        (("a b",), ()), (np.ones(2), np.ones(0)), ("true", "False"), (" YES ", "no"), ("1", "0"),
        ("0.01", "0.00"), ("2e0", "00"), (decimal.Decimal("0.1"), decimal.Decimal("0.00")),
    ],
)  # fmt: skip
def test_what_a_hit_is(column, hit, none):
    assert flags_of([{"id": "a", column: none}, {"id": "b", column: hit}]) == ("b",)


@pytest.mark.parametrize(
    ("hit", "none"), [("True", "false"), ("Yes", "NO"), ("0.5", "0.00"), ("12", "00"), ("1", "-0")]
)
def test_what_a_hit_is_in_a_file(tmp_path, hit, none):
    assert flags_of([{"id": "a", "overlap": none}, {"id": "c", "overlap": hit}], tmp_path) == ("c",)


@pytest.mark.parametrize(
    "value",
    [None, "", " ", {}, {"a": 1}, "n", "f", "y", "t", "none", "null", "[]", "0%", "5%", "-1", -1, -0.5, float("nan"),
     "nan", float("inf"), "inf", "1_0", "\u0661", set(),
     pytest.param(10**400, id="huge")],
)  # fmt: skip
def test_values_that_are_neither_a_hit_nor_none(value):
    with pytest.raises(InputError) as error:
        flags_of([{"id": "b", "overlap": 1}, {"id": "a", "overlap": value}])
    message = str(error.value)
    for words in ("flagged: memory: ", "id 'a'", "overlap=", "neither a hit nor none; write true or false"):
        assert words in message
    assert "\n" not in message


def test_the_place_of_a_bad_flag_in_a_file(tmp_path):
    with pytest.raises(InputError, match=r"flagged: .*hits\.csv: line 3, id 'a': contaminated='maybe' is neither"):
        flags_of([{"id": "b", "contaminated": "1"}, {"id": "a", "contaminated": "maybe"}], tmp_path)


@pytest.mark.parametrize("flag", ["flagged", "contaminated"])
@pytest.mark.parametrize("count", ["count", "overlap", "hits"])
def test_a_flag_goes_before_a_count(flag, count):
    """A count may be of something else, or lie below the tool's threshold; it need not even be a number then."""
    rows = [{"id": "a", count: 12, flag: 0}, {"id": "b", count: 0, flag: 1}, {"id": "c", count: "?", flag: False}]
    assert flags_of(rows) == ("b",)


def test_two_flags_that_contradict_each_other():
    agreeing = {"id": "b", "flagged": 1, "contaminated": "yes"}
    assert flags_of([{"id": "a", "flagged": 0, "contaminated": False}, agreeing]) == ("b",)
    with pytest.raises(InputError, match="id 'a': flagged and contaminated contradict each other; remove one"):
        flags_of([agreeing, {"id": "a", "flagged": 0, "contaminated": True}])


def test_flags_with_groups_knockoffs_and_labels():
    """Everything that belongs to an item stays with it."""
    from tdd.audit.flagged import restrict_to_flagged
    from tdd.audit.inputs import Reading, read_inputs

    table = [
        {"id": f"x{i}", "text": f"text {i}", "b": f"other {i}", "book": f"b{i // 2}", "label": 0} for i in range(8)
    ]
    fields = {"label_field": "label", "group_field": "book", "text_field": None}
    for method in ("ptdi", "ktd:rule=conformal"):
        procedure = tdd.procedure(method)
        knockoffs = ("b",) if method != "ptdi" else ()
        inputs = read_inputs(procedure, (table, table, None), Reading(knockoff_fields=knockoffs, **fields))
        found = restrict_to_flagged(inputs, ["x1", "x6"], ["x2", "x3", "x7"], "nonmember").inputs
        assert found.candidates.ids == ("x1", "x6")
        assert found.calibration.ids == ("x2", "x3", "x7")
        assert found.calibration.labels == (0, 0, 0)
        assert found.candidates.sha256 != inputs.candidates.sha256
        if method == "ptdi":
            assert (found.clusters, found.calibration_clusters) == (("b0", "b3"), ("b1", "b1", "b3"))
        else:
            assert found.knockoffs("candidate")[0].texts == ("other 1", "other 6")
            assert found.knockoffs("calibration")[0].texts == ("other 2", "other 3", "other 7")
            assert found.ignored_groups == ("b0", "b3", "b1", "b1", "b3")
