"""Scores with reference models, a population and a fine-tuned copy, against the papers' formulas in plain NumPy."""

import hashlib
import itertools
import math
import pathlib
import shutil
import zlib

import gpt2_files
import jax
import numpy as np
import pytest
from decoder_specs import REQUIRED
from given_scores import split, with_given
from scipy import stats
from scored_models import ids, losses_of_tokens, random_texts, scored_model

import tdd
from tdd.lab.train import tune
from tdd.models import source
from tdd.scoring import models
from tdd.scoring.scores.score import SCORES, finished, parse_score
from tdd.validate import InputError

TEXTS = random_texts(9, seed=2, shortest=3, longest=14)
POPULATION = random_texts(20, seed=3, shortest=3, longest=14)
UNSEEN = random_texts(12, seed=4, shortest=4, longest=14)


@pytest.fixture(scope="module")
def model():
    return scored_model(3)


@pytest.fixture(scope="module")
def references():
    return [scored_model(seed) for seed in (4, 5, 6)]


@pytest.fixture(scope="module")
def losses(model, references):
    """The loss of every text and of the population: [N], [K, N], [Z], [K, Z]."""
    every = [[row.mean() for row in losses_of_texts(one, [*TEXTS, *POPULATION])] for one in (model, *references)]
    (own, population), *others = (np.split(np.array(row), [len(TEXTS)]) for row in every)
    out, of_population = map(np.array, zip(*others, strict=True))
    return own, out, population, of_population


def losses_of_texts(model, texts):
    """-log p of every token but the first of each text, by itself."""
    return [losses_of_tokens(model, [], ids(model[2], text)) for text in texts]


def run(model, scores, texts=TEXTS, **options):
    given, options = split(options)
    return tdd.score(model, texts, with_given(scores, **given), token_budget=128, progress=False, **options)


def assert_differences(found, exact, *losses):
    """Differences of losses [N] or [K, N], each of which may be off by the required part of itself."""
    allowed = REQUIRED * sum(np.abs(loss).max(axis=0) if loss.ndim > 1 else np.abs(loss) for loss in losses)
    np.testing.assert_array_less(np.abs(found - exact), allowed)


def assert_quantiles(found, law, own):
    """z = (own - mean) / deviation, in which own, mean and, by z times as much, the deviation move with the losses."""
    z = (own - law.mean()) / law.std()
    np.testing.assert_array_less(np.abs(found - z), REQUIRED * np.abs(own).max() * (2 + 2 * np.abs(z)) / law.std())


def lira(own, out, name):
    """Equation 4 of Carlini et al.: the share of the OUT distribution below the signal, whose quantile is z."""
    if "logit" in name:
        own, out = (-np.log(np.exp(-x) / (1 - np.exp(-x))) for x in (own, out))
    variance = out.var(0, ddof=1)
    return stats.norm(out.mean(0), np.sqrt(variance.mean() if "each" not in name else variance)), own


LIRA = ("lira", "lira:variance=each", "lira:signal=logit", "lira:variance=each,signal=logit")


def test_lira(model, references, losses):
    table = run(model, LIRA, reference=references)
    for name in LIRA:
        law, own = lira(*losses[:2], name)
        assert_quantiles(table[name], law, own)
    assert np.abs(table["lira"] - table["lira:variance=each"]).max() > 1e-2


def test_lira_where_the_signals_differ():
    """Small losses, at which log(p / (1 - p)) is far from log p."""
    own, out = np.array([0.05, 1.2]), np.array([[0.1, 1.0], [0.3, 2.0], [0.2, 1.5]])
    found = {name: parse_score(name).finish(own, {"reference": out}) for name in LIRA}
    for name, z in found.items():
        law, signal = lira(own, out, name)
        np.testing.assert_allclose(z, (signal - law.mean()) / law.std(), rtol=1e-12, err_msg=name)
    assert all(np.abs(a - b).max() > 1e-2 for a, b in itertools.combinations(found.values(), 2))


def rmia(losses, a, gamma):
    """Zarifzadeh et al.: ratios of probabilities, every text with every text of the population."""
    own, out, population, of_population = (np.exp(-x) for x in losses)
    x, z = ((p / ((1 + a) / 2 * q.mean(0) + (1 - a) / 2)) for p, q in ((own, out), (population, of_population)))
    return 1 - (x[:, None] >= gamma * z[None]).mean(1)


@pytest.mark.parametrize(("name", "a", "gamma"), [
    ("rmia", 0.3, 1), ("rmia:a=1", 1, 1), ("rmia:a=0", 0, 1), ("rmia:gamma=1.2", 0.3, 1.2),
])  # fmt: skip
def test_rmia(model, references, losses, name, a, gamma):
    expected = rmia(losses, a, gamma)
    np.testing.assert_allclose(run(model, name, reference=references, population=POPULATION)[name], expected, atol=1e-5)
    assert len(set(expected)) > 3
    alone = run(model, name, reference=references[0], population=POPULATION)
    first = losses[0], losses[1][:1], losses[2], losses[3][:1]
    np.testing.assert_allclose(alone[name], rmia(first, a, gamma), atol=1e-5)


def test_rmia_of_long_texts_does_not_underflow():
    """A loss of 800 nats a token is a probability of 0 even in float64."""
    request = parse_score("rmia")
    evidence = {
        "reference": np.array([[810.0, 790.0]]), "population": np.array([800.0, np.nan]),
        "population under reference": np.array([[800.0, 1.0]]),
    }  # fmt: skip
    assert request.finish(np.array([799.0, 801.0]), evidence).tolist() == [0.0, 1.0]
    assert np.isnan(request.finish(np.array([np.nan, 1.0]), evidence)).tolist() == [True, False]


@pytest.mark.parametrize(("name", "a"), [("rmia", 0.3), ("rmia:a=1", 1), ("rmia:a=0", 0)])
@pytest.mark.parametrize("call", [lambda finish: finish, jax.jit], ids=["numpy", "jax"])
def test_rmia_of_texts_that_references_give_probability_zero(name, a, call):
    """p(x) is (1 - a)/2, or 0 for a = 1: the text dominates all; a text without probability dominates none."""
    own, out = np.array([0.5, 0.9, np.inf, 0.7]), np.array([[np.inf, np.inf, 1.0, np.inf], [np.inf, np.inf, 2.0, 1.5]])
    population, of_population = np.array([0.2, 0.6, 1.1, 3.0]), np.array([[0.5, 2.0, np.inf, 2.5]] * 2)
    evidence = {"reference": out, "population": population, "population under reference": of_population}
    with np.errstate(divide="ignore"):
        expected = rmia((own, out, population, of_population), a, 1)
    assert len(set(expected)) > 1
    np.testing.assert_allclose(call(parse_score(name).finish)(own, evidence), expected, atol=1e-6)


def test_numpy_and_jax_agree(losses):
    own, out, population, of_population = losses
    evidence = {"reference": out, "population": population, "population under reference": of_population}
    for name in (*LIRA, "rmia", "reference"):
        finish = parse_score(name).finish
        narrow = jax.tree.map(lambda x: np.asarray(x, np.float32), evidence)
        np.testing.assert_allclose(
            jax.jit(finish)(np.float32(own), narrow), finish(own, evidence), rtol=2e-3, atol=2e-3
        )


def test_the_reference_is_the_mean_of_several(model, references, losses):
    found = run(model, "reference", reference=references)["reference"]
    assert_differences(found, losses[0] - losses[1].mean(0), *losses[:2])
    one, alone = (run(model, "reference", reference=given) for given in ([references[0]], references[0]))
    np.testing.assert_array_equal(one["reference"], alone["reference"])
    assert one.provenance["reference"] == alone.provenance["reference"]


def test_another_tokenizer_makes_all_losses_per_byte(model, references):
    """The reference model prepends a token: one more of each text is scored, so that nats per token differ."""
    other = scored_model(8, bos=True)
    table = run(model, ("lira", "rmia"), reference=[references[0], other], population=POPULATION)

    def per_byte(one, texts):
        first = [0 if one is other else len(text.split()[0]) for text in texts]  # the token without a context
        rows = zip(losses_of_texts(one, texts), texts, first, strict=True)
        return np.array([row.sum() / (len(text) - start) for row, text, start in rows])

    own, population = per_byte(model, TEXTS), per_byte(model, POPULATION)
    out, of_population = (
        np.array([per_byte(one, texts) for one in (references[0], other)]) for texts in (TEXTS, POPULATION)
    )
    law, signal = lira(own, out, "lira")
    assert_quantiles(table["lira"], law, signal)
    np.testing.assert_allclose(table["rmia"], rmia((own, out, population, of_population), 0.3, 1), atol=1e-5)


def fsd(model, tuned, texts, name):
    """S before and S after, from the log-probabilities of the tokens."""

    def score(text, values):
        if "min_k" in name:
            return np.sort(values)[-max(1, int(len(values) * (0.4 if "0.4" in name else 0.2))) :].mean()
        return values.mean() / (len(zlib.compress(text.encode())) if "zlib" in name else 1)

    return [np.array([*map(score, texts, losses_of_texts(one, texts))]) for one in (model, tuned)]


FSD = ("fsd", "fsd:of=min_k", "fsd:of=min_k,k=0.4", "fsd:of=zlib", "loss")


def test_fsd(model):
    table = run(model, FSD, tune_on=UNSEEN)
    params, record = tune(*model, UNSEEN)
    tuned = (model[0], params, model[2])
    for name in FSD[:-1]:
        before, after = fsd(model, tuned, TEXTS, name)
        assert_differences(table[name], before - after, before, after)
    assert np.abs(table["fsd"]).max() > 1e-3
    before, after = fsd(model, tuned, UNSEEN, "fsd")
    assert (before - after).mean() > np.abs(table["fsd"]).mean()  # falls most where it is tuned
    found = table.provenance["tune_on"]
    assert (found["texts"], found["losses"], found["lora"]["rank"]) == (len(UNSEEN), record["losses"], 16)
    assert table.provenance["parameters"]["fsd"] == {
        "of": "loss", "epochs": "3", "rate": "0.001", "rank": "16", "seed": "0", "reduction": "mean",
    }  # fmt: skip


def test_a_continued_run_tunes_the_same_model(model, tmp_path):
    options = {"tune_on": UNSEEN, "store": tmp_path / "store"}
    first = run(model, "fsd:rate=0.01", **options)
    more = run(model, "fsd:rate=0.01", [*TEXTS, "one more"], **options)
    np.testing.assert_array_equal(more["fsd:rate=0.01"][:-1], first["fsd:rate=0.01"])
    assert more.provenance["num_stored_before"] == 2 * len(TEXTS)
    for i in range(2):
        assert run(model, "fsd:seed=1", shard=(i, 2), **options) is None
    joined = run(model, "fsd:seed=1", **options)
    assert joined.provenance["num_stored_before"] == len(TEXTS)  # of the model itself, before the shards
    np.testing.assert_array_equal(joined["fsd:seed=1"], run(model, "fsd:seed=1", tune_on=UNSEEN)["fsd:seed=1"])


def test_the_store_has_one_place_for_each_model(model, references, tmp_path):
    options = {"reference": references, "population": POPULATION, "store": tmp_path}
    first = run(model, ("rmia", "lira"), **options)
    assert first.provenance["num_stored_before"] == 0
    more = run(model, ("rmia", "reference"), [*TEXTS, "one more"], **options)
    assert more.provenance["num_stored_before"] == 4 * (len(TEXTS) + len(POPULATION))
    np.testing.assert_array_equal(more["rmia"][:-1], first["rmia"])
    single = run(model, "reference", reference=references[1], store=tmp_path)
    assert single.provenance["num_stored_before"] == 2 * len(TEXTS)


def test_several_checkpoints_are_in_memory_one_at_a_time(model, references, tmp_path, monkeypatch):
    from tdd.models import checkpoint
    from tdd.scoring.inputs import Deferred

    paths = [str(tmp_path / str(i)) for i in range(3)]
    read = []

    def load(path, **options):
        read.append(path)
        return references[paths.index(path)]

    for number, path in enumerate(paths):
        pathlib.Path(path).mkdir()
        (pathlib.Path(path) / "config.json").write_text(f'{{"number": {number}}}')
    monkeypatch.setattr(models, "load", load)
    assert checkpoint.load is not load
    where = tdd.scoring.devices.find_devices()
    found = [models.find_reference(path, None, where, deferred=True) for path in paths]
    assert [isinstance(one.params, Deferred) for one in found] == [True] * 3
    table = run(model, "lira", reference=paths)
    np.testing.assert_array_equal(table["lira"], run(model, "lira", reference=references)["lira"])
    assert read == paths + paths + paths  # found twice, and each loaded when its turn came
    assert table.provenance["reference"] == paths
    read.clear()
    run(model, "reference", reference=paths[0])
    assert read == paths[:1]  # and is kept


@pytest.mark.parametrize(
    ("scores", "given", "message"),
    [
        ("lira", {}, "'lira' needs several models that were not trained on the texts: give references="),
        ("lira", {"reference": 1}, "'lira' needs at least 2 reference models, got 1"),
        ("reference", {"reference": 0}, "model is an empty list"),
        ("rmia", {"reference": 1}, "'rmia' needs texts that no model was trained on: give population="),
        ("fsd", {}, "'fsd' needs texts that the model has not seen: give tune_on="),
        ("lira:variance=x", {"reference": 2}, "variance='x' is unknown"),
        ("lira:signal=x", {"reference": 2}, "signal='x' is unknown"),
        ("rmia:a=1.1", {}, r"a=1.1 must be a number in \[0, 1\]"),
        ("rmia:gamma=0", {}, "gamma=0 must be a finite number above 0"),
        ("fsd:of=grad_norm", {}, "of=grad_norm is not a score of one pass; choose one of loss, zlib"),
        ("fsd:of=fsd", {}, "of=fsd is not a score of one pass"),
        ("fsd:k=0.1", {}, "'loss' has no parameter 'k'; it has reduction"),
        ("fsd:rank=0", {}, "rank=0 must be a whole number of at least 1"),
        ("fsd:rank=17", {"tune_on": UNSEEN}, "rank=17 exceeds the smaller side"),
        ("rmia", {"reference": 1, "population": ["w1", "one \n two  three "]}, "to score is in population: '1'"),
        ("fsd", {"tune_on": ["one\ttwo three"]}, "1 of the texts to score is in tune_on: '1'; the score of"),
        (("fsd", "con_recall"), {"tune_on": ["a b"], "prefix": ["a b"], "member_prefix": ["c", "a  b"]},
         "1 of tune_on is in member_prefix: '1'"),
        (("fsd", "con_recall"), {"tune_on": ["a b"], "prefix": ["c d"], "member_prefix": ["a  b"]},
         "1 of tune_on is in member_prefix: '1'"),
    ],
)  # fmt: skip
def test_messages(model, references, scores, given, message):
    if isinstance(given.get("reference"), int):
        given = {**given, "reference": references[: given["reference"]]}
    with pytest.raises(InputError, match=message):
        run(model, scores, ["one two three"], **given)


def test_a_model_is_named_once(model):
    with pytest.raises(InputError, match="reference names 'other' more than once"):
        run(model, "lira", reference=["other", "other"])


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Two checkpoints whose files have equal sizes, and a copy of the first under another name."""
    folder = tmp_path_factory.mktemp("checkpoints")
    one = gpt2_files.write(folder / "one")[0]
    moved = {name: value + 0.1 for name, value in gpt2_files.tensors(gpt2_files.CONFIG).items()}
    other = gpt2_files.write(folder / "other", stored=moved)[0]
    return str(one), str(other), shutil.copytree(one, folder / "copy")


def test_a_checkpoint_is_a_reference_once(checkpoints):
    """By its files: neither another spelling of the path nor a copy makes it a second model."""
    one, other, copy = checkpoints
    texts = ["w1 w2 w3", "w4 w5 w6 w7"]
    for given in ([one + "/", one], [one, copy], [other, one, copy]):
        numbers = f"{len(given) - 1} .* and {len(given)} "
        with pytest.raises(InputError, match=f"references {numbers}.* are the same to the bit; keep one of them"):
            run(scored_model(4), "lira", texts, reference=given)
    assert np.isfinite(run(scored_model(4), "lira", texts, reference=[one, other])["lira"]).all()


def test_the_audited_checkpoint_is_no_reference(checkpoints):
    one, other, copy = checkpoints
    for given in (one, one + "/", copy, [other, copy], pathlib.Path(one)):
        with pytest.raises(InputError, match=f"reference .* is the audited model, '{one}', to the bit; give a model"):
            models.check_references(given if isinstance(given, list) else [given], one)
    with pytest.raises(InputError, match="to the bit"):
        run(one, "reference", ["w1 w2 w3"], reference=copy)
    with pytest.raises(InputError, match="to the bit"):
        tdd.run_audit(one, ["w1 w2"], ["w3 w4", "w5 w6"], alpha=0.5, score=tdd.scores.Reference(one), progress=False)
    models.check_references([other], one)
    models.check_references([one, other], None)
    models.check_references([], one)


def test_only_checkpoints_that_may_be_the_same_are_read(checkpoints, tmp_path, monkeypatch):
    """And those no second time where the record of the run has their hashes."""
    one, other, _ = checkpoints
    wider = str(gpt2_files.write(tmp_path / "wider", n_positions=99)[0])
    read = []
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: read.append(file.name) or digest(file, name))
    source._fingerprint.cache_clear()
    models.check_references([wider], one)
    assert read == []
    for model in (one, other):
        models.provenance_of(model)
    hashed = len(read)
    assert hashed > 0
    models.check_references([other], one)
    assert len(read) == hashed


def test_unseen_texts_may_serve_several_scores(model, references):
    table = run(model, ("fsd", "recall", "rmia"), tune_on=UNSEEN, prefix=UNSEEN[:2], population=UNSEEN,
                reference=references[0])  # fmt: skip
    assert all(np.isfinite(table[name]).all() for name in table.values)


def test_an_audit_refuses_a_text_of_any_role(model, references):
    texts, known = list(TEXTS), random_texts(9, seed=7, shortest=3, longest=30)
    for options, name in (
        ({"score": "fsd", "tune_on": [*UNSEEN, known[4]]}, "tune_on"),
        ({"score": "rmia", "population": [*POPULATION, f" {known[4]}"], "reference": references[0]}, "population"),
    ):
        given, options = split(options)
        (score,) = with_given(options["score"], **given).values()
        with pytest.raises(InputError, match=f"1 of the texts to score is in {name}: 'calibration/5'"):
            tdd.run_audit(model, texts, known, alpha=0.2, progress=False, token_budget=128, score=score)


def test_an_audit_records_what_was_fixed(model, references):
    known = random_texts(9, seed=7, shortest=3, longest=14)
    audit = tdd.run_audit(model, list(TEXTS), known, alpha=0.2, progress=False, token_budget=128, method="td4eval",
                          score=tdd.scores.Lira(references=references),
                          extra_scores=[tdd.scores.Fsd(tune_on=UNSEEN)])  # fmt: skip
    recorded = audit.run["model"]
    assert [one["name"] for one in recorded["reference"]] == ["model in memory"] * 3
    assert len({one["sha256"] for one in recorded["reference"]}) == 3
    assert recorded["scoring"]["parameters"]["lira"] == {"variance": "pooled", "signal": "loss"}
    assert audit.run["options"]["tune_on"] == recorded["scoring"]["tune_on"]["sha256"]
    (point,) = [point for point in audit.run["open_points"] if "before any result" in point]
    assert "reference" in point
    assert "tune_on" in point


def test_a_dump_of_log_probabilities_has_one_reference():
    dump = [{"id": "a", "log_probs": [None, -1.0, -3.0]}]
    with pytest.raises(InputError, match="several reference models"):
        tdd.score_log_probs(dump, tdd.scores.Lira(references=[dump, dump]))
    with pytest.raises(InputError, match="needs the model itself"):
        tdd.score_log_probs(dump, "fsd")


def test_scores_that_use_none_of_it_have_no_further_pass():
    assert not any(
        {"reference", "population", "tuned"} & {*SCORES[name]().passes()} for name in ("loss", "recall", "zlib")
    )
    assert math.isclose(float(parse_score("rmia").parameters["a"]), 0.3)


def test_what_is_no_model_is_named(model):
    with pytest.raises(InputError, match="model of the score 'reference' is 5, no model; give a model that was not"):
        tdd.score(model, ["one two three"], tdd.scores.Reference(model=5), progress=False)
    with pytest.raises(InputError, match=r"references of the score 'lira' is 0\.5, no model"):
        tdd.score(model, ["one two three"], tdd.scores.Lira(references=["a", 0.5]), progress=False)


@pytest.mark.filterwarnings("error")
def test_differences_of_infinite_losses_are_missing_without_a_warning():
    own, out = np.array([np.inf, 1.0, np.inf]), np.array([[np.inf, 1.0, 2.0], [np.inf, 3.0, 2.0]])
    evidence = {"reference": out, "population": own[1:], "population under reference": out[:, 1:]}
    found = finished(tdd.scores.Reference(model="a"), own, evidence)
    np.testing.assert_array_equal(found, [np.nan, -1.0, np.inf])
    found = finished(tdd.scores.Lira(references=["a", "b"], variance="each"), own, evidence)
    assert np.isnan(found[0])
    assert found[1] == pytest.approx(-1 / np.sqrt(2))
    found = finished(tdd.scores.Rmia(references=["a"], population=["t"], a=1), own, evidence)
    np.testing.assert_array_equal(found, [np.nan, 0.0, 0.5])
    half = finished(tdd.scores.Rmia(references=["a"], population=["t"], a=0), np.array([np.nan, 1.0]), {
        **evidence, "reference": np.array([[1.0, np.nan]])})  # fmt: skip
    np.testing.assert_array_equal(half, [np.nan, np.nan])
