"""What the reproductions of single models share: scores, answers, stages, sums."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from scipy import stats

import tdd
from benchmarks.reproductions import models
from benchmarks.reproductions.summary import mean_and_error, spearman, standard_error
from tdd.demo import retrain
from tdd.lab.corpus import generate

TEXTS = [text for text in generate(60, seed=9).texts if len(text) < 350][:20]
LONGEST = 256  # tokens; all of every text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("base")


@pytest.fixture(scope="module")
def base(folder):
    return models.base_model(folder, scale=0.01, seed=0)


@pytest.mark.slow("training")
def test_scores_are_those_of_tdd_score(base):
    names = ("loss", "lowercase", "zlib", "grad_norm", "min_k_plus_plus", "max_renyi", "max_renyi:gamma=0.7")
    found = models.score_table(base, TEXTS, names, max_length=LONGEST, batch_size=8)
    wanted = tdd.score(base.lm, TEXTS, names, params=base.params, tokenizer=base.tokenizer, progress=False)
    for name in names:
        np.testing.assert_allclose(found[name], wanted.values[name], rtol=2e-5)


@pytest.mark.slow("training")
def test_texts_are_cut_alike_for_training_and_scoring(base):
    short = models.score_table(base, TEXTS, ["loss"], max_length=16, batch_size=8)["loss"]
    heads = [base.tokenizer.decode(base.tokenizer(text)["input_ids"][:16]) for text in TEXTS]
    np.testing.assert_allclose(
        short, models.score_table(base, heads, ["loss"], max_length=16, batch_size=8)["loss"], rtol=1e-6
    )


@pytest.mark.slow("training")
def test_log_probability_of_an_answer(base):
    prompts, answers = ["The baker left.", "It rained at"], [[" He came back.", " No."], [" noon.", " the mill today."]]
    found = models.answer_log_probs(base, prompts, answers, max_length=48, batch_size=3)
    for i, prompt in enumerate(prompts):
        for j, answer in enumerate(answers[i]):
            head, ids = (base.tokenizer(text)["input_ids"] for text in (prompt, prompt + answer))
            assert ids[: len(head)] == head
            logits = base.lm.logits(base.params, np.array([ids]))[0]
            log_p = jax.nn.log_softmax(logits)[np.arange(len(ids) - 1), np.array(ids[1:])]
            np.testing.assert_allclose(found[i, j], float(log_p[len(head) - 1 :].sum()), rtol=1e-4)


@pytest.mark.slow("training")
def test_fine_tuning_lowers_the_loss_of_members_and_repeats_itself(base):
    how = {"epochs": 20, "learning_rate": 1e-2, "seed": 1, "max_length": 32}
    tuned = models.fine_tune(base, TEXTS[:10], **how)
    again = models.fine_tune(base, TEXTS[:10], **how)
    jax.tree.map(np.testing.assert_array_equal, tuned.params, again.params)
    loss = models.score_table(tuned, TEXTS, ["loss"], max_length=32, batch_size=8)["loss"]
    assert loss[:10].mean() < loss[10:].mean() - 0.1


@pytest.mark.slow("training")
def test_the_base_is_read_again(folder, base):
    stamp = (folder / "base-16" / "training.json").stat().st_mtime_ns
    again = models.base_model(folder, scale=0.01, seed=0)
    assert (folder / "base-16" / "training.json").stat().st_mtime_ns == stamp
    jax.tree.map(np.testing.assert_array_equal, base.params, again.params)
    assert again.lm == base.lm


@pytest.mark.slow("long")
def test_a_base_of_another_width_is_trained_as_the_packaged_one(monkeypatch, tmp_path):
    packaged, seen = models.base_model(None, scale=1, seed=0), []
    monkeypatch.setattr(retrain, "planted_corpus", lambda: SimpleNamespace(training=SimpleNamespace(texts=TEXTS)))
    monkeypatch.setattr(models, "_trained", lambda start, *how: (seen.append(how), (start, []))[1])
    narrow = models.base_model(tmp_path, scale=1, seed=0, width=32)
    [(texts, config, folder, _)] = seen
    assert (list(texts), config, folder) == (TEXTS, retrain.CONFIG, tmp_path / "base-32")
    assert narrow.tokenizer.get_vocab() == packaged.tokenizer.get_vocab()
    assert narrow.params["embedding"]["tokens"].shape == (len(packaged.tokenizer), 32)
    assert models._untrained(packaged.tokenizer, 128, retrain.LAYERS, 0).lm == packaged.lm
    assert models.base_model(tmp_path, scale=1, seed=0, width=128).num_parameters == packaged.num_parameters
    assert len(seen) == 1


@pytest.mark.slow("long")
def test_stages_go_on_from_one_another(tmp_path):
    how = {"documents": 48, "width": 16, "seed": 0}
    one, two = models.trained_stages(tmp_path, stages=(1, 1), **how)
    leaves = zip(jax.tree.leaves(one.params), jax.tree.leaves(two.params), strict=True)
    assert any(not np.array_equal(a, b) for a, b in leaves)
    (tmp_path / "stage-2").rename(tmp_path / "gone")
    for found, wanted in zip(models.trained_stages(tmp_path, stages=(1, 1), **how), (one, two), strict=True):
        jax.tree.map(np.testing.assert_array_equal, found.params, wanted.params)
        assert found.lm == wanted.lm  # and so the same compiled programs


def test_spearman():
    rng = np.random.default_rng(0)
    one, two = rng.integers(0, 5, (2, 30, 8)).astype(float)
    wanted = [stats.spearmanr(a, b).statistic for a, b in zip(one, two, strict=True)]
    np.testing.assert_allclose(spearman(one, two), wanted, rtol=1e-12)
    assert np.isnan(spearman(np.ones(4), np.arange(4.0)))


def test_means_and_errors():
    assert standard_error([1.0, 3.0]) == pytest.approx(1.0)
    assert np.isnan(standard_error([1.0]))
    assert (mean_and_error([0.5]), mean_and_error([0.0, 1.0])) == ("0.500", "0.500 ± 0.500")
