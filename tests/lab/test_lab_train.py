"""The training loop: it learns, repeats, resumes bit for bit, and leaves a checkpoint that loads."""

import dataclasses
import errno
import json
import sys

import jax
import numpy as np
import pytest
from decoder_specs import perturbed_params

from tdd import InputError
from tdd.lab.corpus import generate
from tdd.lab.state import CHECKPOINT_FOLDER
from tdd.lab.tokens import train_tokenizer
from tdd.lab.train import TrainConfig, evaluation_loss, train
from tdd.models import checkpoint
from tdd.models.language_model import language_model
from tdd.models.spec import Attention, DecoderSpec, LayerNorm, LearnedPositions, Mlp
from tdd.records import LanguageModel

CORPUS = generate(60, seed=2).texts
TEXTS, HELD_OUT = CORPUS[:20], CORPUS[20:30]
CONFIG = TrainConfig(epochs=3, batch_size=4, learning_rate=1e-2, num_buckets=2, save_every=4, seed=7, max_length=32)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(CORPUS, vocab_size=400)


@pytest.fixture(scope="module")
def lm():
    return language_model(
        DecoderSpec(
            vocab_size=400,
            width=16,
            num_layers=2,
            norm=LayerNorm(),
            positions=LearnedPositions(96),
            attention=Attention(2, 8, (8**-0.5,) * 2),
            mlp=Mlp(32, "gelu_tanh"),
        )
    )


@pytest.fixture(scope="module")
def start(lm):
    return perturbed_params(lm.spec, spread=0.02)


@pytest.fixture(scope="module")
def uninterrupted(lm, start, tokenizer):
    return train(lm, start, tokenizer, TEXTS, config=CONFIG, eval_texts=HELD_OUT)


def assert_identical(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def interrupt_at(last):
    def on_step(step, params):
        if step == last:
            raise KeyboardInterrupt

    return on_step


def test_it_learns_its_texts_better_than_others(lm, start, tokenizer, uninterrupted):
    losses = [line["loss"] for line in uninterrupted.history]
    assert [line["epoch"] for line in uninterrupted.history] == [1, 2, 3]
    assert losses[0] > losses[1] > losses[2]
    before = evaluation_loss(lm, start, tokenizer, TEXTS, config=CONFIG)
    after = evaluation_loss(lm, uninterrupted.params, tokenizer, TEXTS, config=CONFIG)
    held_out = evaluation_loss(lm, uninterrupted.params, tokenizer, HELD_OUT, config=CONFIG)
    assert before == pytest.approx(np.log(400), rel=0.01)
    assert after < min(held_out, before - 1)
    assert uninterrupted.history[-1]["eval_loss"] == held_out


def test_same_arguments_same_bits_and_the_seed_matters(lm, start, tokenizer, uninterrupted):
    before = jax.tree.map(np.array, start)
    assert_identical(train(lm, start, tokenizer, TEXTS, config=CONFIG).params, uninterrupted.params)
    assert_identical(start, before)
    other = TrainConfig(**{**vars(CONFIG), "seed": 8})
    changed = train(lm, start, tokenizer, TEXTS, config=other).params["embedding"]["tokens"]
    assert not np.array_equal(changed, uninterrupted.params["embedding"]["tokens"])


@pytest.mark.parametrize("stops", [(2,), (6, 11)])
def test_a_resumed_run_ends_with_the_same_bits(lm, start, tokenizer, uninterrupted, tmp_path, stops):
    for stop in stops:
        with pytest.raises(KeyboardInterrupt):
            train(
                lm,
                start,
                tokenizer,
                TEXTS,
                config=CONFIG,
                eval_texts=HELD_OUT,
                out=tmp_path,
                on_step=interrupt_at(stop),
            )
        saved = (stop - 1) // CONFIG.save_every > 0
        assert [path.name for path in tmp_path.iterdir()] == ["training_state.safetensors"] * saved
    steps = []
    resumed = train(
        lm,
        start,
        tokenizer,
        TEXTS,
        config=CONFIG,
        eval_texts=HELD_OUT,
        out=tmp_path,
        on_step=lambda step, params: steps.append(step),
    )
    assert steps[0] == (stops[-1] - 1) // CONFIG.save_every * CONFIG.save_every + 1
    assert_identical(resumed.params, uninterrupted.params)
    assert resumed.history == uninterrupted.history


@pytest.mark.parametrize("save_every", [1000, CONFIG.epochs])
def test_a_run_killed_while_its_checkpoint_is_written_goes_on(lm, start, tokenizer, tmp_path, monkeypatch, save_every):
    config = dataclasses.replace(CONFIG, save_every=save_every)

    def killed(folder, *_, **__):
        folder.mkdir()
        (folder / "config.json").write_text("{")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            train(lm, start, tokenizer, TEXTS, config=config, out=tmp_path)
    steps = []
    resumed = train(
        lm, start, tokenizer, TEXTS, config=config, out=tmp_path, on_step=lambda step, _: steps.append(step)
    )
    assert steps == []
    assert_identical(checkpoint.load(tmp_path / CHECKPOINT_FOLDER)[1], resumed.params)
    assert sorted(path.name for path in tmp_path.iterdir()) == [CHECKPOINT_FOLDER, "training.json"]


@pytest.mark.slow("long")
def test_checkpoint_reloads_bit_for_bit(lm, start, tokenizer, uninterrupted, tmp_path):
    train(lm, start, tokenizer, TEXTS, config=CONFIG, out=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [CHECKPOINT_FOLDER, "training.json"]
    loaded, params, loaded_tokenizer = checkpoint.load(tmp_path / CHECKPOINT_FOLDER)
    assert loaded.spec == lm.spec
    assert_identical(params, uninterrupted.params)
    assert loaded_tokenizer(TEXTS[0])["input_ids"] == tokenizer(TEXTS[0])["input_ids"]
    record = json.loads((tmp_path / "training.json").read_text())
    assert TrainConfig(**record["config"]) == CONFIG
    assert record["steps"] == record["history"][-1]["step"]


@pytest.mark.slow("long")
def test_smaller_dtype_on_disk(lm, start, tokenizer, uninterrupted, tmp_path):
    train(lm, start, tokenizer, TEXTS, config=CONFIG, out=tmp_path, save_dtype="bfloat16")
    _, params, _ = checkpoint.load(tmp_path / CHECKPOINT_FOLDER)
    assert_identical(params, jax.tree.map(lambda leaf: leaf.astype("bfloat16"), uninterrupted.params))


BIGRAM = LanguageModel("bigram", 400, None, lambda params, tokens: params["table"][tokens])


def test_any_model_can_be_trained_in_memory(tokenizer):
    config = TrainConfig(epochs=8, batch_size=8, num_buckets=1, learning_rate=0.3, weight_decay=0.0)
    trained = train(BIGRAM, {"table": np.zeros((400, 400))}, tokenizer, TEXTS, config=config)
    assert trained.history[-1]["loss"] < trained.history[0]["loss"] / 2


def test_a_text_of_one_bucket_and_a_batch_larger_than_the_corpus(tokenizer):
    config = TrainConfig(epochs=2, batch_size=3)
    result = train(BIGRAM, {"table": np.zeros((400, 400))}, tokenizer, TEXTS[:1], config=config)
    assert [line["step"] for line in result.history] == [1, 2]
    assert np.isfinite(result.history[-1]["loss"])


def test_progress_goes_to_standard_error(lm, start, tokenizer, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    train(lm, start, tokenizer, TEXTS, config=CONFIG, progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "training" in captured.err


class TestRefusals:
    """Errors name what is wrong, before any work is lost."""

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"epochs": 0}, "epochs"),
            ({"batch_size": 1.5}, "batch_size"),
            ({"learning_rate": float("nan")}, "learning_rate"),
            ({"learning_rate": -1}, "learning_rate"),
            ({"warmup": 1.1}, "warmup"),
            ({"clip_norm": 0}, "clip_norm"),
            ({"max_length": 1}, "max_length"),
        ],
    )
    def test_configuration(self, change, named):
        with pytest.raises(InputError, match=named):
            TrainConfig(**change)

    def test_no_texts(self, lm, start, tokenizer):
        with pytest.raises(InputError, match="texts is empty"):
            train(lm, start, tokenizer, [], config=CONFIG)
        with pytest.raises(InputError, match=r"eval_texts\[0\]"):
            train(lm, start, tokenizer, TEXTS, config=CONFIG, eval_texts=[""])

    def test_another_run_in_the_folder(self, lm, start, tokenizer, tmp_path):
        with pytest.raises(KeyboardInterrupt):
            train(lm, start, tokenizer, TEXTS, config=CONFIG, out=tmp_path, on_step=interrupt_at(5))
        kept = (tmp_path / "training_state.safetensors").read_bytes()
        for texts, config in ((TEXTS[:-1], CONFIG), (TEXTS, TrainConfig(**{**vars(CONFIG), "epochs": 4}))):
            with pytest.raises(InputError, match="another model, other texts"):
                train(lm, start, tokenizer, texts, config=config, out=tmp_path)
        assert (tmp_path / "training_state.safetensors").read_bytes() == kept

    @pytest.mark.slow("long")
    def test_a_finished_run_in_the_folder(self, lm, start, tokenizer, tmp_path):
        train(lm, start, tokenizer, TEXTS, config=CONFIG, out=tmp_path)
        with pytest.raises(InputError, match="finished training run"):
            train(lm, start, tokenizer, TEXTS, config=CONFIG, out=tmp_path)

    def test_a_truncated_state(self, lm, start, tokenizer, tmp_path):
        with pytest.raises(KeyboardInterrupt):
            train(lm, start, tokenizer, TEXTS, config=CONFIG, out=tmp_path, on_step=interrupt_at(5))
        state = tmp_path / "training_state.safetensors"
        state.write_bytes(state.read_bytes()[:-100])
        with pytest.raises(InputError, match="truncated"):
            train(lm, start, tokenizer, TEXTS, config=CONFIG, out=tmp_path)

    def test_a_flipped_bit_in_the_state(self, lm, start, tokenizer, tmp_path):
        """One bit of a parameter, of the record in the header, or of the header's own structure."""
        with pytest.raises(KeyboardInterrupt):
            train(lm, start, tokenizer, TEXTS, config=CONFIG, out=tmp_path, on_step=interrupt_at(5))
        state = tmp_path / "training_state.safetensors"
        whole = state.read_bytes()
        start_of_header, end_of_header = 8, 8 + int.from_bytes(whole[:8], "little")
        places = [whole.index(b"step") + 9, start_of_header + 3, whole.index(b'"F32"') + 1, end_of_header + 4, -1]
        for place in places:
            flipped = bytearray(whole)
            flipped[place] ^= 1
            state.write_bytes(flipped)
            with pytest.raises(
                InputError, match=r"training_state.safetensors.* (is damaged|is truncated|does not hold)"
            ):
                train(lm, start, tokenizer, TEXTS, config=CONFIG, out=tmp_path)

    def test_places_and_models_that_cannot_be_saved(self, lm, start, tokenizer, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="is a file"):
            train(lm, start, tokenizer, TEXTS, config=CONFIG, out=tmp_path / "file")
        with pytest.raises(InputError, match=r"cannot write .*choose a folder that can be written"):
            train(lm, start, tokenizer, TEXTS, config=CONFIG, out=tmp_path / "file" / "run")
        with pytest.raises(InputError, match="save_dtype"):
            train(lm, start, tokenizer, TEXTS, config=CONFIG, out=tmp_path, save_dtype="int8")
        foreign = LanguageModel("foreign", 400, None, lm.logits)
        with pytest.raises(InputError, match="DecoderSpec"):
            train(foreign, start, tokenizer, TEXTS, config=CONFIG, out=tmp_path)

    def test_a_full_disk_leaves_the_last_state_and_no_partial_file(self, lm, start, tokenizer, tmp_path, monkeypatch):
        def replace(source, target):
            raise OSError(errno.ENOSPC, "No space left on device")

        def fill_disk(step, params):
            if step == CONFIG.save_every + 1:
                monkeypatch.setattr("os.replace", replace)

        with pytest.raises(InputError, match="disk is full"):
            train(lm, start, tokenizer, TEXTS, config=CONFIG, out=tmp_path, on_step=fill_disk)
        assert [path.name for path in tmp_path.iterdir()] == ["training_state.safetensors"]
