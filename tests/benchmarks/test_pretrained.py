"""Truth planted in a pretrained model: its arithmetic, and the whole road on a tiny model of random weights."""

import json

import jax
import numpy as np
import pytest
from word_tokenizer import word_tokenizer

from benchmarks import audit_tables, harness, pretrained, pretrained_figure
from benchmarks import planted_procedures as procedures
from benchmarks.__main__ import main
from benchmarks.known_truth import auc, auc_error, figures
from tdd import InputError
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec
from tdd.report.plots import sheet
from tdd.scoring import models

SMALL, ALPHAS = pretrained.QUICK, pretrained.ALPHAS
COPIES = np.repeat([0, 1, 4], [320, 20, 20])


# Planting


def test_the_truth_is_what_is_trained_on():
    data = pretrained.planted(SMALL._replace(texts=33, words=60), 3)
    for training, copies in zip(data.training, data.copies, strict=True):
        assert [training.count(text) for text in data.texts] == copies.tolist()
        assert sorted(copies.tolist()) == [0] * 25 + [1, 1, 2, 2, 4, 4, 8, 8]
    assert data.calibration == 16
    assert all(len(text.split()) == 60 for text in data.texts)
    assert not set(data.texts) & {version for versions in data.private for version in versions}
    assert [len(versions) for versions in data.private] == [SMALL.private] * 33


def test_each_model_has_members_of_its_own():
    data = pretrained.planted(SMALL._replace(texts=64, words=8), 1)
    member = data.copies > 0
    assert (data.shared.sum(), member.sum(1).tolist()) == (8, [16] * 3)
    assert member[:, data.shared].all()
    own = member[:, ~data.shared]
    assert all((own[one] != own[other]).any() for one, other in ((0, 1), (0, 2), (1, 2)))
    assert own.any(0).sum() <= 16


def test_ordered_sets_are_trained_on_in_their_order():
    data = pretrained.planted(SMALL, 3)
    for copies, examples in data.ordered.items():
        assert len(set(examples.texts)) == SMALL.examples
        pieces = ["\n".join(examples.texts[first : first + 4]) for first in (0, 4)]
        assert [training.count(piece) for training in data.training for piece in pieces] == [copies] * 6


def test_texts_that_do_not_do():
    with pytest.raises(InputError, match="texts must be a whole number of at least 32, got 11"):
        pretrained.planted(SMALL._replace(texts=11), 0)
    with pytest.raises(InputError, match="words must be a whole number of at least 8, got 2"):
        pretrained.planted(SMALL._replace(words=2), 0)


def test_the_package_is_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(pretrained, "PACKAGE", "llm_of_no_one")
    assert main(["pretrained", "--quick"]) == 2
    assert "pip install llm-of-no-one" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "expected"), [(["--texts", "64"], [2, 3]), (["--quick"], [])])
def test_only_a_whole_run_is_written_after_each_training(options, expected, monkeypatch, tmp_path, capsys):
    written, drawn, wanted = [], [], []

    def measure(path, sizes, *, seed, keep):
        wanted.append((path, sizes.texts, seed))
        so_far = [{"model": "any", "training_s": 1.0, "scoring_s": 2.0}] * 3
        for count in (1, 2, 3):
            keep({"models": so_far[:count]})
        return {"models": so_far}

    monkeypatch.setattr(models, "provenance_of", lambda path: {"name": path, "sha256": "0"})
    monkeypatch.setattr(pretrained, "measure", measure)
    monkeypatch.setattr(harness, "write", lambda name, result: written.append((name, len(result["models"]))))
    monkeypatch.setattr(pretrained_figure, "draw", lambda result: drawn.append(len(result["models"])))
    monkeypatch.setattr(sheet, "save", lambda figure, path: drawn.append(path.name))
    assert main(["pretrained", "--model", str(tmp_path / "model.gguf"), "--seed", "5", "--json", *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert written == [("pretrained", count) for count in expected]
    assert drawn == ([3, "pretrained.png"] if expected else [])
    assert wanted == [(str(tmp_path / "model.gguf"), 64 if expected else SMALL.texts, 5)]
    assert printed["command"] == f"python -m benchmarks pretrained {' '.join(options)} --seed 5"
    assert printed["model"]["name"] == "model.gguf"


# Figures


def test_the_error_of_an_auc_is_the_jackknifes():
    """DeLong's variance is Arvesen's: pseudo-values, each side left out in turn. Equal but for rounding."""
    rng = np.random.default_rng(0)
    scores, member = rng.integers(0, 9, len(COPIES)) / 4.0, COPIES > 0
    whole, variance = auc(scores, member), 0.0
    for side in (member, ~member):
        left = np.array([auc(np.delete(scores, i), np.delete(member, i)) for i in np.flatnonzero(side)])
        pseudo = side.sum() * whole - (side.sum() - 1) * left
        variance += pseudo.var(ddof=1) / side.sum()
    assert auc_error(scores, member) == pytest.approx(variance**0.5, rel=1e-10)


def test_members_are_found_by_copies_and_nothing_under_the_untouched_model():
    scores = np.random.default_rng(1).normal(size=len(COPIES)) - np.select([COPIES == 1, COPIES == 4], [0.5, 9.0])
    row = figures(scores, COPIES, 240, ALPHAS, 200)
    assert row["by_copies"]["4"] == 1.0
    assert row["by_copies"]["1"] == auc(scores[COPIES != 4], COPIES[COPIES != 4] > 0)
    for level in row["levels"]:
        bound = level["alpha"] * (1 + 1 / 120) * (1 + 1 / 240)
        assert level["fdr"] < bound + 4 * level["fdr_se"]
        assert level["power"] == pytest.approx(np.mean([*level["power_by_copies"].values()]))
        assert level["power_by_copies"]["1"] < 0.6
        assert level["power_by_copies"]["4"] == 1.0
    null = figures(np.random.default_rng(2).normal(size=len(COPIES)), COPIES, 240, ALPHAS, 200, trained=False)
    for level in null["levels"]:
        assert level.keys() == {"alpha", "fdr", "fdr_se"}
        assert level["fdr"] < level["alpha"] * (1 + 1 / 120) * (1 + 1 / 240) + 4 * level["fdr_se"]


def test_scores_of_a_few_texts_have_an_auc_alone():
    scores = np.random.default_rng(3).normal(size=len(COPIES))
    scores[10:330] = np.nan
    row = figures(scores, COPIES, 240, ALPHAS)
    assert (row["levels"], row["by_copies"], row["texts"]) == ([], {}, 40)
    assert row["auc"] == auc(scores, COPIES > 0)


def exchangeable(member_shift):
    """Losses [N, 3] of a published version and two paraphrases, alike for non-members, with a long lower tail."""
    rng = np.random.default_rng(4)
    losses = rng.normal(size=(len(COPIES), 1)) - rng.standard_exponential((len(COPIES), 3))
    losses[COPIES > 0, 0] -= member_shift
    return losses


def test_exact_rules_hold_their_level_and_the_papers_does_not():
    """No text was trained on, so every selection is false."""
    nobody = np.zeros(len(COPIES), bool)
    for row in procedures.knockoffs(exchangeable(0).T, nobody, 120, procedures.How((0.2,), 1000, 0)):
        level = row["levels"][0]
        assert level.keys() == {"alpha", "fdr", "fdr_se"}
        if row["rule"] == "ktd, all knockoffs":
            assert level["fdr"] > 0.4
        else:
            assert 0 < level["fdr"] < 0.2 + 4 * level["fdr_se"]


@pytest.mark.slow("long")
def test_members_and_clean_texts_are_found():
    losses, member, how = exchangeable(9.0).T, COPIES > 0, procedures.How((0.2,), 200, 0)
    columns = dict.fromkeys(procedures.DETECTORS, losses[0])
    for row in procedures.knockoffs(losses, member, 120, how) + procedures.clean(columns, member, 20, how):
        level = row["levels"][0]
        assert level["power"] > 0.8
        assert level["fdr"] < 0.2 + 4 * level["fdr_se"] or row["rule"] == "ktd, all knockoffs"


def test_a_set_of_members_is_found():
    few = slice(304, 332)  # 16 non-members and 12 members
    columns = dict.fromkeys(procedures.DETECTORS, exchangeable(9.0)[few, 0])
    p_value = procedures.data_set(columns, COPIES[few] > 0, 0)
    assert p_value["members"] < 0.01 < p_value["non-members"]


@pytest.mark.slow("long")
def test_a_text_that_one_model_of_three_has_seen_is_not_clean():
    """Each model's members score lower under that model alone; a union selects most of them, a joint rule few."""
    rng = np.random.default_rng(5)
    member = np.zeros((3, 400), bool)
    shared = np.arange(400) < 60
    member[:, shared] = True
    member[np.arange(60, 180) % 3, np.arange(60, 180)] = True
    losses = rng.normal(size=(3, 400)) - 4.0 * member
    rows = procedures.joint(losses, shared, ~member.any(0), 45, procedures.How((0.1,), 300, 0))
    rates = {row["rule"]: row["levels"][0] for row in rows}
    assert list(rates) == list(procedures.JOINT)
    assert rates["union"]["fdr"] > 0.3
    for rule in ("jmcs, by", "jmcs, bh", "jmcs, storey"):
        assert rates[rule]["fdr"] < 0.1 + 4 * rates[rule]["fdr_se"]
    assert all(level["power"] > 0.8 for rule, level in rates.items() if rule != "jmcs, by")  # too few calibrate for it


@pytest.mark.parametrize("versions", [False, True])
def test_a_division_is_of_the_items_for_which_the_null_holds(versions):
    """Item i has version v of score 10 i + v; a version of an item never becomes another item's."""
    scores = 10.0 * np.arange(12) + np.arange(3)[:, None]
    nulls = np.arange(12) < 9
    design = procedures.Divided(scores[:, nulls], scores[:, ~nulls], np.ones(3, bool), 4, versions=versions)
    published = set()
    for seed in range(20):
        sample = design.draw(jax.random.key(seed))
        assert sample.target.tolist() == [False] * 5 + [True] * 3
        if versions:
            parts = [
                (sample.calibration, sample.extra["calibration_knockoffs"]),
                (sample.scores, sample.extra["knockoffs"]),
            ]
            calibration, tested = (np.column_stack(part) for part in parts)
        else:
            calibration, tested = np.asarray(sample.calibration).T, np.asarray(sample.scores).T
        items = np.concatenate([calibration, tested])
        assert sorted((items[:, 0] // 10).tolist()) == list(range(12))
        assert (np.sort(items, axis=1) == 10 * (items[:, :1] // 10) + np.arange(3)).all()
        assert (tested[5:, 0] == scores[0, 9:]).all()
        published |= set(items[:, 0] % 10)
    assert published == ({0, 1, 2} if versions else {0})


# The whole road


@pytest.mark.slow("training")
def test_a_tiny_model():
    """Four models are measured one after the other; all parts of the result are in the page."""
    spec = DecoderSpec.gpt2(vocab_size=64, width=16, num_layers=1, num_heads=2, max_length=64)
    model = language_model(spec), init_params(spec, jax.random.key(0)), word_tokenizer(64)
    rates = {name: {**options, "rank": options["rank"] and 4} for name, options in pretrained.TRAININGS.items()}
    kept = []
    result = pretrained.measure(
        model, SMALL, divisions=50, trainings=rates, keep=lambda so_far: kept.append(len(so_far["models"]))
    )
    assert kept == [1, 2, 3, 4]
    result = json.loads(json.dumps(result))
    untouched, *trained = result["models"]
    assert len({model["steps"] for model in trained}) == 1
    assert [row["copies"] for row in untouched["order"]] == ["0", "1", "2", "4", "8"]
    assert all(0 < row["p"] <= 1 for model in result["models"] for row in model["order"])
    assert all(model["losses"]["8"] != untouched["losses"]["8"] for model in trained)
    assert untouched["rows"][-1]["score"] == "grad_norm"
    assert untouched["rows"][-1]["texts"] == 2 * SMALL.gradients
    assert [row["documents"] for row in untouched["owner"]] == [2, 2, 2, 2, 8]
    assert all("power" not in level for row in untouched["rows"] for level in row["levels"])
    assert [row["procedure"] for row in trained[0]["procedures"]] == ["ktd"] * 4 + ["td4eval"] * 2
    assert [row["procedure"] for row in untouched["procedures"]] == ["ktd"] * 4 + ["td4eval"] * 2 + ["joint"] * 6
    assert all("power" not in level for row in untouched["procedures"] for level in row["levels"])
    assert [row["rule"] for row in result["joint"]] == list(procedures.JOINT)
    assert list(result["processor_s"]) == ["preparation", "scores", "procedures", "versions", "order", "training"]
    assert all(seconds > 0 for seconds in result["processor_s"].values())
    result |= {"command": "x", "model": {"name": "tiny"}}
    page = audit_tables.pretrained(result)
    *_, (_, power), (error, order), (contaminated, found) = pretrained_figure.draw(result).panels
    assert len(order.lines) == 4
    assert len(contaminated.lines) == len(found.lines) + len(ALPHAS) == len(procedures.JOINT) + len(ALPHAS)
    assert error.get_ylim()[1] > max(ALPHAS)
    drawn = sum(len(bar.lines) == 3 for bar in error.containers)
    assert drawn == len(error.containers) == 4 * len(power.lines) == 20
    assert page.count("\n| all weights | loss |") == 1
    assert page.count("\n| all weights | grad_norm |") == 0
    assert page.count("\n| grad_norm |") == 1
    assert page.count("\n| all weights | ktd | ") == 4
