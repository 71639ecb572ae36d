"""The README says what the results and the code say."""

import pathlib

import flax.training.train_state
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from word_tokenizer import word_tokenizer

import tdd
from benchmarks import tables
from tdd.cli import main
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec
from tdd.scoring.scores import SCORES

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_tables_are_generated_from_the_results():
    readme = (ROOT / "README.md").read_text("utf-8")
    assert tables.updated(readme) == readme, "run python -m benchmarks.tables --write"


def test_names_exist():
    readme = (ROOT / "README.md").read_text("utf-8")
    for name in SCORES:
        assert f"`{name}`" in readme
    for name in ("conformal_p_values", "ptdi", "bh", "storey_bh", "by", "holm", "bonferroni", "hochberg", "run_audit"):
        assert f"tdd.{name}" in readme
        assert getattr(tdd, name)


@pytest.mark.slow("long")
def test_the_code_of_the_studies_runs(tmp_path, monkeypatch):
    """Word for word, with fewer repetitions."""
    section = (ROOT / "README.md").read_text("utf-8").split("## Studies")[1]
    code = section.split("```python\n")[1].split("```")[0]
    for many in ("1_000_000", "100_000"):
        assert many in code
        code = code.replace(many, "2_000")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    is_member = np.arange(100) < 50
    names = {"scores": rng.normal(size=100) - 2 * is_member, "is_member": is_member}
    exec(code, names)
    assert names["found"].fdr.shape == (3, 3, 1)
    assert (tmp_path / "studies" / "shift" / "results.csv").is_file()


@pytest.mark.slow("long")
def test_the_code_of_the_training_loop_runs(tmp_path, monkeypatch, capsys):
    """Word for word, with fewer steps, in a loop that trains on the benchmark from step 10 on."""
    section = (ROOT / "README.md").read_text("utf-8").split("## In a training loop")[1]
    code = section.split("```python\n")[1].split("```")[0]
    for many, few in (("every=500", "every=5"), ("num_steps=20_000", "num_steps=60")):
        assert many in code
        code = code.replace(many, few)
    rng = np.random.default_rng(0)
    lm = language_model(DecoderSpec.gpt2(vocab_size=60, width=32, num_layers=1, num_heads=2, max_length=16))
    words = [" ".join(f"w{i}" for i in row) for row in rng.integers(0, 30, (90, 12))]
    tokenizer = word_tokenizer(60)
    rows = np.array(tokenizer(words)["input_ids"])

    @jax.jit
    def train_step(state, batch):
        def loss(params):
            log_p = jax.nn.log_softmax(lm.logits(params, batch)[:, :-1])
            return -jnp.take_along_axis(log_p, batch[:, 1:, None], axis=-1).mean()

        return state.apply_gradients(grads=jax.grad(loss)(state.params))

    state = flax.training.train_state.TrainState.create(
        apply_fn=None, params=init_params(lm.spec, jax.random.key(0)), tx=optax.adam(1e-2)
    )
    written = {}
    names = {
        "tdd": tdd, "lm": lm, "tokenizer": tokenizer, "benchmark": words[:20], "fresh": words[20:60], "state": state,
        "train_step": train_step, "writer": written.__setitem__,
        "batches": [jnp.asarray(rows[60:] if step < 10 else rows[:20]) for step in range(60)],
    }  # fmt: skip
    monkeypatch.chdir(tmp_path)
    exec(code, names)
    probe = names["probe"]
    assert probe.first_alarm > 10
    assert probe.history[-1].step == probe.first_alarm, "it stops at the alarm"
    assert [*written] == [record.step for record in probe.history]
    assert main(["report", "runs/probe", "--plot", "figure.png"]) == 0
    assert f"first at step {probe.first_alarm}" in capsys.readouterr().out
    assert (tmp_path / "figure.png").is_file()
