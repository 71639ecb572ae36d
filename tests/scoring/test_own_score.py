"""A score that a user writes in one file, with a text input of its own, in everything that takes scores."""

import csv
import dataclasses
import json
import pathlib
import re
import sys
from collections.abc import Mapping

import numpy as np
import pytest
from scored_models import ids, losses_of_tokens, random_texts, scored_model

import tdd
from tdd.audit.paraphrase import Decoding
from tdd.cli import main
from tdd.scoring.scores import Pass, Score, models_given, option, texts_given
from tdd.scoring.scores.score import parse_score
from tdd.study.runner import StudyRun
from tdd.tables import Roles

UNSEEN = ["w1 w2 w3", "w4 w5"]


def _check_weight(value):
    if not 0 < float(value) <= 1:
        raise tdd.InputError(f"weight={value} must be in (0, 1]")
    return float(value)


@dataclasses.dataclass(frozen=True)
class Relief(Score):
    """The loss, less a part of the loss behind a prefix; each per character of the text."""

    name = "relief"
    meaning = "what a prefix takes from the loss"
    statistics = ("log_prob",)

    weight: float = option(0.5, _check_weight)
    shift: int = 0
    halved: bool = False
    before: object = texts_given("texts that the model has not seen", known="unseen")

    def rows(self, stats):
        xp = stats.log_prob.__array_namespace__()
        return -xp.where(stats.mask, stats.log_prob, 0).sum(-1)

    def passes(self) -> Mapping[str, Pass]:
        return {"behind": Pass(prefix=self.before, keep=Relief())}

    def measures(self):
        return {"characters": len}

    def finish(self, rows, evidence):
        shift = self.shift / 2 if self.halved else self.shift
        return shift + (rows - self.weight * evidence["behind"]) / evidence["characters"]


@pytest.fixture(scope="module")
def model():
    return scored_model(3)


def expected(model, text, weight=0.5, shift=0):
    before, tokens = ids(model[2], "".join(UNSEEN)), ids(model[2], text)
    alone, behind = (losses_of_tokens(model, first, tokens).sum() for first in ([], before))
    return shift + (alone - weight * behind) / len(text)


def test_scores_with_it(model, tmp_path):
    texts = random_texts(7, seed=2, shortest=4, longest=20)
    given = [Relief(before=UNSEEN), Relief(weight=0.25, shift=2, before=UNSEEN), tdd.scores.ReCall(UNSEEN), "loss"]
    table = tdd.score(model, texts, given, progress=False, store=tmp_path / "store")
    assert [*table.values] == ["relief", "relief:weight=0.25,shift=2", "recall", "loss"]
    np.testing.assert_allclose(table["relief"], [expected(model, text) for text in texts], rtol=1e-5)
    second = [expected(model, text, 0.25, 2) for text in texts]
    np.testing.assert_allclose(table["relief:weight=0.25,shift=2"], second, rtol=1e-5)
    more = [*texts, "one more text"]
    again = tdd.score(model, more, {"mine": Relief(before=UNSEEN)}, progress=False, store=tmp_path / "store")
    assert again.provenance["num_stored_before"] == 2 * len(texts), "ReCaLL and it share the pass behind the prefix"
    np.testing.assert_allclose(again["mine"][:-1], table["relief"], rtol=1e-6)


def test_two_inputs_make_two_columns(model):
    texts = random_texts(4, seed=2, shortest=4)
    table = tdd.score(model, texts, [tdd.scores.ReCall(UNSEEN), tdd.scores.ReCall(UNSEEN[:1])], progress=False)
    assert [*table.values] == ["recall#1", "recall#2"]
    alone = tdd.score(model, texts, tdd.scores.ReCall(UNSEEN[:1]), progress=False)["recall"]
    np.testing.assert_allclose(table["recall#2"], alone, rtol=1e-5)
    assert {"prefix", "prefix 2"} <= {*table.provenance}


def test_text_form_and_messages(model, tmp_path, monkeypatch):
    assert parse_score("relief:weight=0.25,shift=2") == Relief(weight=0.25, shift=2)
    assert parse_score("relief:before=a.jsonl").before == "a.jsonl"
    assert [parse_score(f"relief:halved={word}").halved for word in ("true", "False")] == [True, False]
    texts = random_texts(4, seed=2, shortest=4)
    for given, message in (
        ("relief", "the score 'relief' needs texts that the model has not seen: give before=..., as in"),
        ("relief:weight=2", r"weight=2 must be in \(0, 1\]"),
        ("relief:shift=x", "shift=x is no number"),
        ("relief:halved=x", "halved=x must be true or false"),
        ("relief:k=1", "'relief' has no parameter 'k'; it has weight, shift, halved, before"),
        (Relief(before=texts[:1]), "1 of the texts to score is in before: '1'"),
        (Relief(before=[]), "before of the score 'relief': .*empty"),
        (Relief(before=5), "before of the score 'relief': .*of type int"),
        ({"a": 3}, "cannot read the score 3"),
        (Relief, r"Relief is the class of a score and no score; call it, as in Relief\(\)"),
        ({"a": Relief}, "Relief is the class of a score"),
        (("loss", None), "cannot read the score None"),
        (tdd.scores.Reference(model=[None]), "model of the score 'reference' has None among its models"),
    ):
        with pytest.raises(tdd.InputError, match=message):
            tdd.score(model, texts, given, progress=False)


def test_values_compare_and_hash_whatever_they_were_given(model):
    other = scored_model(4)
    ways = tdd.scores.ReCall(UNSEEN), tdd.scores.Reference(other), tdd.scores.DcPdd(cap=0.02, corpus=UNSEEN)
    for one in ways:
        again = dataclasses.replace(one)
        assert one == again
        assert hash(one) == hash(again)
        assert len({one, again}) == 1
    assert tdd.scores.Reference(other) != tdd.scores.Reference(scored_model(5))
    assert tdd.scores.ReCall(UNSEEN) == tdd.scores.ReCall([*UNSEEN]) != tdd.scores.ReCall(UNSEEN[:1])
    assert tdd.scores.DcPdd(cap=0.02) != tdd.scores.DcPdd()
    assert tdd.scores.Loss() != "loss"
    corpora = [tdd.scores.DcPdd(corpus=tdd.load_texts(UNSEEN)).bound(model[2], model[0].vocab_size) for _ in range(2)]
    assert hash(corpora[0]) == hash(corpora[1])
    assert corpora[0] == corpora[0] != corpora[1]


@dataclasses.dataclass(frozen=True)
class Probe(Score):
    """Whatever passes a test asks for."""

    statistics = ("log_prob",)

    asked: tuple = ()
    model: object = models_given("another model")
    prefix: object = texts_given("texts that the model has seen", known="seen")
    beside: object = texts_given("other texts", known="unseen")

    def rows(self, stats):
        return tdd.scores.Loss().rows(stats)

    def passes(self):
        given = {"model": self.model, "texts": self.beside}
        return {name: Pass(**{**options, **{key: given[key] for key in use}}) for name, use, options in self.asked}

    def finish(self, rows, evidence):
        return rows * 0 + sum(number * evidence[name].mean() for number, (name, *_) in enumerate(self.asked, 1))


def probe(*asked, **given):
    usual = {"model": scored_model(4), "prefix": ["w8 w9"], "beside": UNSEEN}
    return Probe(tuple(asked), **{**usual, **given})


def test_a_pass_may_be_of_any_kind_under_any_name(model):
    texts, other = random_texts(3, seed=2, shortest=4, longest=20), scored_model(4)
    upper = {"change": str.upper}
    asked = ("gradient", "", upper), ("text", "", {"gradient": True}), ("x", ["model"], {"gradient": True})
    found = tdd.score(model, texts, {"probe": probe(*asked, model=other)}, progress=False)["probe"]
    changed = tdd.score(model, [text.upper() for text in texts], "loss", progress=False)["loss"]
    norms = [tdd.score(one, texts, "grad_norm", progress=False)["grad_norm"].mean() for one in (model, other)]
    np.testing.assert_allclose(found, changed.mean() + 2 * norms[0] + 3 * norms[1], rtol=1e-5)
    with pytest.raises(tdd.InputError, match="the change of the x pass made int of a text; it must return a string"):
        tdd.score(model, texts, {"probe": probe(("x", "", {"change": len}))}, progress=False)


def test_the_order_of_passes_does_not_change_the_unit(model):
    """Losses under another tokenizer are per byte, whether the pass of the own model is named before or after."""
    other, texts = scored_model(6, bos=True), random_texts(3, seed=2, shortest=4)
    passes = ("own", ["texts"], {}), ("under", ["model", "texts"], {})
    first, second = (
        tdd.score(model, texts, {"probe": probe(*asked, model=other)}, progress=False)["probe"]
        for asked in (passes, passes[::-1])
    )
    difference = tdd.score(model, UNSEEN, tdd.scores.Reference(other), progress=False)["reference"].mean()
    np.testing.assert_allclose(second - first, difference, rtol=1e-5)


def test_what_is_known_of_texts_does_not_depend_on_other_scores(model):
    texts = random_texts(3, seed=2, shortest=4)
    contradictory = tdd.scores.ConReCall(prefix=UNSEEN, member_prefix=UNSEEN)
    other = probe(beside=["w7 w9"])
    for scores in ([contradictory], [contradictory, other], [other, contradictory]):
        with pytest.raises(tdd.InputError, match=r"2 of prefix( 2)? are in member_prefix"):
            tdd.score(model, texts, dict(enumerate(scores)), progress=False)


@dataclasses.dataclass(frozen=True)
class Scaled(Score):
    """Has an option without a default, and several numbers as an option."""

    name = "scaled"
    statistics = ("log_prob",)

    by: float
    more: tuple[float, ...] = (1.0,)

    def rows(self, stats):
        return self.by * sum(self.more) * tdd.scores.Loss().rows(stats)


def test_options_without_a_default_and_of_several_numbers(model):
    assert Scaled(2.0, (0.5, 1.0)).label == "scaled:by=2.0,more=0.5:1.0"
    assert parse_score(Scaled(2.0, (0.5, 1.0)).label) == Scaled(2.0, (0.5, 1.0))
    with pytest.raises(tdd.InputError, match=r"score 'scaled' has no default for by; write 'scaled:by=\.\.\.'"):
        parse_score("scaled")
    with pytest.raises(tdd.InputError, match=r"of=\[\] is not a score of one pass; choose one of loss, zlib"):
        tdd.scores.Fsd(of=[])
    with pytest.raises(tdd.InputError, match="score 'scaled' has no default for by"):
        parse_score("fsd:of=scaled")
    assert parse_score("fsd:of=scaled,by=2").of == Scaled(2.0)


def test_the_label_of_a_score_that_compares_another_reads_back():
    for of in ("loss", "loss:reduction=sum", "min_k", "min_k:k=0.1", "max_renyi", "scaled:by=2"):
        score = tdd.scores.Fsd(of=parse_score(of), epochs=5)
        assert parse_score(score.label) == score
    assert tdd.scores.Fsd().label == "fsd"
    assert parse_score("fsd:of=min_k,k=0.1").label == "fsd:of=min_k,k=0.1"


def test_an_audit_takes_scores_by_names_of_its_caller(model, tmp_path):
    known, suspects = random_texts(12, seed=3, shortest=6), random_texts(4, seed=4, shortest=6)
    both = {"mine": Relief(before=UNSEEN), "loss": "min_k:k=0.5"}
    given = (model, suspects, known)
    audit = tdd.run_audit(*given, alpha=0.4, score=both, extra_scores="zlib", method="td4eval", progress=False,
                          out=tmp_path / "run")  # fmt: skip
    assert audit.run["options"]["score"] == ["mine", "loss"]
    assert audit.run["options"]["named"] == {"mine": "relief", "loss": "min_k:k=0.5", "zlib": "zlib"}
    smallest = tdd.score(model, suspects, "min_k:k=0.5", progress=False)["min_k:k=0.5"]
    np.testing.assert_allclose(audit.items["loss"], smallest, rtol=1e-5)
    for options, message in (
        ({"score": {"mine": "zlib"}, "out": tmp_path / "run"}, "another"),
        ({"score": 3}, "score=3 is neither a name nor a sequence"),
        ({"score": Relief}, "Relief is the class of a score"),
        ({"extra_scores": None}, "extra_scores=None is neither a name nor a sequence"),
        ({"score": "loss", "extra_scores": {"loss": "min_k"}}, "'loss' names one score in score and another in extra"),
    ):
        with pytest.raises(tdd.InputError, match=message):
            tdd.run_audit(*given, alpha=0.4, progress=False, **options)


def test_what_each_score_was_given_identifies_a_run(model, tmp_path):
    """The same columns and models in the same order; only which score has which of them differs."""
    one, other, third = (scored_model(seed) for seed in (4, 5, 6))
    given = {"a": tdd.scores.Rmia(references=[one, other], population=UNSEEN), "b": tdd.scores.Reference(third)}
    moved = {"a": tdd.scores.Rmia(references=[one], population=UNSEEN), "b": tdd.scores.Reference([other, third])}

    def run(scores):
        known, suspects = random_texts(12, seed=3, shortest=6), random_texts(4, seed=4, shortest=6)
        return tdd.run_audit(model, suspects, known, alpha=0.4, method="td4eval", score=scores, progress=False,
                             out=tmp_path / "run")  # fmt: skip

    first = run(given)
    np.testing.assert_array_equal(run(given).items["a"], first.items["a"])
    with pytest.raises(tdd.InputError, match="holds a run of other inputs"):
        run(moved)


@dataclasses.dataclass(frozen=True)
class Named(Score):
    """Its field has the name of an option of runs."""

    name = "named"
    statistics = ("log_prob",)

    alpha: object = texts_given("texts that the model has not seen", known="unseen")

    def rows(self, stats):
        return tdd.scores.Loss().rows(stats)


def test_a_field_named_as_an_option_replaces_none(model):
    known, suspects = random_texts(12, seed=3, shortest=6), random_texts(4, seed=4, shortest=6)
    given = {"alpha": 0.4, "score": Named(UNSEEN), "progress": False}
    audit = tdd.run_audit(model, suspects, known, method="td4eval", **given)
    assert audit.run["options"]["alpha"] == 0.4
    test = tdd.run_dataset_inference(model, suspects, known, **given)
    assert test.run["options"]["alpha"] == 0.4


def test_how_to_run_is_checked(model):
    for options, message in (
        ({"dtype": "int8"}, "dtype='int8' is not supported; supported: float32"),
        ({"dtype": 3}, "dtype=3 is not supported"),
        ({"store": 5}, "store=5 must be the path of a folder"),
        ({"job": None}, "job=None must be a text"),
        ({"on_batch": 5}, "on_batch=5 must be a function"),
    ):
        with pytest.raises(tdd.InputError, match=message):
            tdd.score(model, ["w1 w2"], "loss", progress=False, **options)


def test_log_probs_by_names_of_the_caller():
    dump = [{"id": "a", "text": "a b c", "log_probs": [None, -1.0, -3.0]}]
    both = {"x": "min_k:k=0.5", "loss_per_byte": "loss_per_byte", "y": tdd.scores.Loss()}
    assert {name: float(one[0]) for name, one in tdd.score_log_probs(dump, both).values.items()} == {
        "x": 3.0, "loss_per_byte": 0.8, "y": 2.0,
    }  # fmt: skip
    for scores, message in (
        ({"loss_per_byte": "loss"}, "the column 'loss_per_byte' is that score alone"),
        ({"x": "loss_per_byte"}, "the column 'loss_per_byte' is that score"),
        ({"x": None}, "cannot read the score None"),
        ({}, "scores is empty"),
        ("lira", "'lira' needs several reference models"),
        (tdd.scores.Reference(model=5), "reference: cannot read rows from a value of type int"),
    ):
        with pytest.raises(tdd.InputError, match=message):
            tdd.score_log_probs(dump, scores)
    with pytest.raises(tdd.InputError, match="there is no option 'device'; those of how a dump is read are format"):
        tdd.score_log_probs(dump, "loss", device="cpu")


def test_an_audit_and_the_commands_know_it(model, tmp_path, monkeypatch, capsys):
    known, suspects = random_texts(12, seed=3, shortest=6), random_texts(4, seed=4, shortest=6)
    given = {"alpha": 0.4, "method": "td4eval", "progress": False}
    audit = tdd.run_audit(model, suspects, known, score=Relief(before=UNSEEN), **given)
    np.testing.assert_allclose(audit.items["relief"], [expected(model, text) for text in suspects], rtol=1e-5)
    assert audit.run["options"]["before"] == tdd.load_texts(UNSEEN).sha256
    assert any("that score, before, level and options" in point for point in audit.run["open_points"])

    from tdd.models.checkpoint import save

    (tmp_path / "own_scores.py").write_text(
        "import dataclasses, tdd\n"
        "@dataclasses.dataclass(frozen=True)\n"
        "class Twice(tdd.Score):\n"
        "    name = 'twice'\n    meaning = 'twice the loss'\n    statistics = ('log_prob',)\n    times: float = 2.0\n"
        "    def rows(self, stats):\n"
        "        return self.times * tdd.scores.Loss().rows(stats)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    save(tmp_path / "model", *model)
    for name, texts in (("suspects", suspects), ("known", known)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    scored = [
        "score",
        str(tmp_path / "model"),
        str(tmp_path / "suspects.jsonl"),
        "-q",
        "--out",
        str(tmp_path / "s.csv"),
    ]
    assert main([*scored, "--score", "own_scores:Twice:times=3,loss"]) == 0
    with open(tmp_path / "s.csv", newline="") as file:
        rows = [*csv.DictReader(file)]
    np.testing.assert_allclose([float(row["twice:times=3"]) / float(row["loss"]) for row in rows], 3)
    audited = ["audit", str(tmp_path / "model"), "--candidates", str(tmp_path / "suspects.jsonl"), "--alpha", "0.4",
               "--method", "td4eval", "--calibration", str(tmp_path / "known.jsonl"), "-q",
               "--score", "own_scores:Twice"]  # fmt: skip
    assert main([word for word in audited if word != "-q"]) in (0, 3)
    assert "│ score │ twice (lower = more like an item" in " ".join(capsys.readouterr().out.split())
    assert main([*audited[:-1], "own_scores:Missing"]) == 2
    assert "is no class of a tdd.Score with a name" in capsys.readouterr().err
    assert main([*audited[:-1], "no_such_module:Twice"]) == 2
    assert "cannot be imported" in capsys.readouterr().err
    sys.modules.pop("own_scores")


def test_the_score_of_the_page(model):
    page = pathlib.Path(tdd.scores.__file__).parents[1] / "README.md"
    (code,) = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    names = {"__name__": "page"}
    exec(compile(code, str(page), "exec"), names)
    texts = random_texts(3, seed=2, shortest=4, longest=20)
    table = tdd.score(model, texts, [names["Gain"](before=UNSEEN), "loss", tdd.scores.ReCall(UNSEEN)], progress=False)
    np.testing.assert_allclose(table["gain"], table["loss"] * (1 + table["recall"] / 2), rtol=1e-6)


def test_the_name_of_an_own_score_of_tdd_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Mine(Score):
        name = "loss"

    try:
        with pytest.raises(tdd.InputError, match=r"Mine has the name of tdd's own 'loss'; change it"):
            list(tdd.scores.SCORES)
    finally:
        Mine.name = ""


@dataclasses.dataclass(frozen=True)
class Annotated(Score):
    """Has a field whose type only a type checker knows."""

    name = "annotated"
    statistics = ("log_prob",)

    limit: "decimal.Decimal | None" = None  # noqa: F821
    number: "int" = 3


def test_names_for_type_checkers_alone():
    """A text is read by the type of its own option; one whose type cannot be known stays a text."""
    assert parse_score("annotated:number=4") == Annotated(number=4)
    assert parse_score("annotated:number=4,limit=0.5") == Annotated(number=4, limit="0.5")
    with pytest.raises(tdd.InputError, match="number=x is no number"):
        parse_score("annotated:number=x")


def test_a_path_with_a_comma_in_the_text_form():
    with pytest.raises(
        tdd.InputError, match=r"'recall:prefix=a,b.jsonl'.* a comma begins the next option: a path with"
    ):
        parse_score("recall:prefix=a,b.jsonl")
    with pytest.raises(tdd.InputError, match=r"'max_renyi:gamma=2,k=0.1'$"):
        parse_score("recall:")


def test_texts_that_are_seen_and_unseen(model):
    scores = tdd.scores.ConReCall(prefix=UNSEEN, member_prefix=UNSEEN[:1])
    with pytest.raises(
        tdd.InputError, match="1 of prefix is in member_prefix: '1'; no model was trained on the texts of"
    ):
        tdd.score(model, ["w7 w8"], scores, progress=False)


@pytest.mark.parametrize(
    ("record", "name", "message"),
    [
        (tdd.Run, "devise", "Run has no field 'devise'; did you mean 'device'? it has device, devices, shard_params,"),
        (Roles, "roles_field", "Roles has no field 'roles_field'; did you mean 'role_field'? it has role_fi"),
        (Decoding, "temp", "Decoding has no field 'temp'; did you mean 'temperature'? it has dec"),
        (StudyRun, "shards", "StudyRun has no field 'shards'; did you mean 'shard'? it has folder,"),
        (tdd.PTDI, "etta", "PTDI has no field 'etta'; did you mean 'eta'? it has proportion, eta, unit"),
        (tdd.scores.MinK, "q", "MinK has no field 'q'; it has k"),
        (tdd.scores.Loss, "q", "Loss has no field 'q'; it has reduction"),
        (Annotated, "limits", "Annotated has no field 'limits'; did you mean 'limit'? it has limit, number"),
    ],
)
def test_fields_that_there_are_not(record, name, message):
    with pytest.raises(tdd.InputError, match=re.escape(message)):
        record(**{name: 1})
