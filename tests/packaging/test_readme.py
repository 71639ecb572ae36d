"""Pages: their tables are those of the results, their links lead somewhere, their commands and their code run."""

import contextlib
import io
import pathlib
import re
import shlex

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from word_tokenizer import word_tokenizer

import tdd
from benchmarks import tables
from tdd.cli import _parser, main
from tdd.demo.data import demo_files
from tdd.scoring.scores.score import OWN

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("README.md", "*/README.md", "tdd/*/README.md")
    for path in ROOT.glob(pattern)
    if "kernels" not in path.parts[-3:-1] or path.parent == ROOT / "kernels"
)
GENERATED = re.compile(r"<!-- (guarantees|differences|validity|measured): begin -->.*?<!-- \1: end -->", re.DOTALL)
RUN_ELSEWHERE = {
    "tdd/runs/README.md": "tests/scoring/test_recipes.py, tests/test_on_ray.py",
    "tdd/scoring/README.md": "tests/scoring/test_own_score.py",
}


def page(name):
    return (ROOT / name).read_text("utf-8")


def blocks(name, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page(name), re.DOTALL | re.MULTILINE)


def test_tables_are_generated_from_the_results():
    for path in tables.PAGES.values():
        text = path.read_text("utf-8")
        assert tables.updated(text) == text, "run python -m benchmarks.tables --write"


def test_pages_are_short():
    assert len(page("README.md").splitlines()) <= 250
    for name in PAGES:
        written = GENERATED.sub("", page(name))
        assert len(written.splitlines()) <= 200, name


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)\s]+)\)", page(name)):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        place = (ROOT / name).parent / file if file else ROOT / name
        assert place.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", place.read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, target


def test_scores_are_named():
    for name in OWN:
        assert f"`{name}`" in page("tdd/scoring/README.md")


@pytest.mark.parametrize("name", [name for name in PAGES if blocks(name, "bash")])
def test_commands_are_understood(name):
    parser = _parser()
    for block in blocks(name, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            words = words[: words.index(">")] if ">" in words else words
            if words[:1] == ["srun"]:
                words = words[1:]
            if words[:1] == ["tdd"]:
                with contextlib.redirect_stderr(io.StringIO()) as said:
                    try:
                        parser.parse_args(words[1:])
                    except SystemExit:
                        pytest.fail(f"{line}: {said.getvalue()}")


def run_code(name, replaced, names):
    """The Python of a page, word for word but for sizes and places, in one namespace."""
    code = "\n".join(blocks(name, "python"))
    for there, here in replaced.items():
        assert there in code, there
        code = code.replace(there, here)
    names["__name__"] = "page"
    exec(compile(code, name, "exec"), names)
    return names


def test_pages_with_code_are_run():
    runs = {"README.md", "kernels/README.md", "tdd/models/README.md", "tdd/procedures/README.md", "tests/README.md"}
    runs |= {f"tdd/{room}/README.md" for room in ("exchange", "study", "probe")} | set(RUN_ELSEWHERE)
    assert {name for name in PAGES if blocks(name, "python")} == runs


@pytest.mark.slow("long")
def test_the_code_of_the_front_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    demo, rng = demo_files(), np.random.default_rng(0)
    names = {"suspects": demo.candidates, "unseen": demo.candidates.with_name("calibration.jsonl")}
    names |= {"calibration_scores": rng.normal(size=99), "candidate_scores": rng.normal(size=20)}
    run_code("README.md", {"path/or/hub-id": str(demo.checkpoint)}, names)
    assert names["audit"].run["verdict"]["stands"]
    assert names["audit"].selected_ids
    assert (tmp_path / "runs" / "first" / "items.csv").is_file()


def test_the_code_of_the_kernels():
    names = run_code("kernels/README.md", {"(1000, ": "(10, "}, {})
    assert names["decided"].shape == (10, 20)
    assert names["decided"].all()


def test_the_code_of_the_procedures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [f"x{i},{'calibration' if i < 60 else 'candidate'},{x}" for i, x in enumerate(rng.normal(size=80))]
    pathlib.Path("scores.csv").write_text("\n".join(["id,role,loss", *rows]))
    names = {"calibration": rng.normal(size=60), "scores": rng.normal(size=20), "p_values": rng.random((4, 30))}
    names = run_code("tdd/procedures/README.md", {}, names)
    assert names["selection"].guarantee.kind == "finite-sample"


@pytest.mark.slow("long")
def test_the_code_of_the_models():
    from adapted_models import (
        VOCABULARY,
        WIDTH,
        adapted,
        equinox_model,
        linen_class,
        nnx_model,
        reference_logits,
        weights,
    )

    adapted("equinox")  # skipped where it is absent
    names = {
        "tdd": tdd, "V": VOCABULARY, "module": linen_class()(WIDTH),
        "logits_fn": reference_logits, "tokens": jnp.ones((2, 6), int), "mask": jnp.ones((2, 6), bool),
        "texts": ["w1 w2 w3 w4", "w5 w6 w7"], "tokenizer": word_tokenizer(VOCABULARY),
    }  # fmt: skip
    models = {"nnx": nnx_model(), "equinox": equinox_model()}
    code = "\n".join(blocks("tdd/models/README.md", "python"))
    for library, model in models.items():
        line = f"lm, params = tdd.from_{library}(model, vocab_size=V)\n"
        assert line in code
        exec(line, names | {"model": model})
        code = code.replace(line, "")
    names["params"] = weights()
    exec(code, names)
    assert np.isfinite(names["scores"].values["loss"]).all()
    assert names["norms"].total.shape == (2,)


@pytest.mark.slow("long")
def test_the_code_of_the_exchange(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [f'{{"question": "what is {a}?", "answer": "{b}"}}' for a, b in rng.integers(0, 10**6, (40, 2))]
    pathlib.Path("boolq.jsonl").write_text("\n".join(rows))
    small = {
        "path/or/hub-id": str(demo_files().checkpoint),
        "num_shards=50, num_shuffles=50": "num_shards=4, num_shuffles=4",
    }
    versions = [f"what is {a} and {b}, said {c}" for a, b, c in rng.integers(0, 10**6, (12, 3))]
    names = run_code("tdd/exchange/README.md", small, {"tdd": tdd, "texts": versions, "k": 3})
    assert names["run"].log_probs["boolq"][1].shape == (4, 4)
    assert names["scores"].shape == (3, 4)


@pytest.mark.slow("long")
def test_the_code_of_the_studies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    is_member = np.arange(100) < 50
    names = {"scores": rng.normal(size=100) - 2 * is_member, "is_member": is_member}
    names = run_code("tdd/study/README.md", {"1_000_000": "2_000", "100_000": "2_000"}, names)
    assert names["result"].fdr.shape == (3, 3, 1)
    assert (tmp_path / "studies" / "shift" / "results.csv").is_file()


@pytest.mark.slow("long")
def test_the_code_of_the_training_loop(tmp_path, monkeypatch, capsys):
    """With fewer steps, in a loop that trains on the benchmark from step 10 on."""
    import flax.training.train_state
    import optax

    from tdd.models.decoder import init_params
    from tdd.models.language_model import language_model
    from tdd.models.spec import DecoderSpec

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
    probe = run_code("tdd/probe/README.md", {"every=500": "every=5", "num_steps=20_000": "num_steps=60"}, names)[
        "probe"
    ]
    assert probe.first_alarm > 10
    assert probe.history[-1].step == probe.first_alarm, "it stops at the alarm"
    assert [*written] == [record.step for record in probe.history]
    assert main(["report", "runs/probe", "--plot", "figure.png"]) == 0
    assert f"first at step {probe.first_alarm}" in capsys.readouterr().out
    assert (tmp_path / "figure.png").is_file()


def test_the_code_of_the_tests():
    import guarantees

    names = {
        "guarantees": guarantees, "alpha": 0.2, "budget": guarantees.Budget(1e-4, guarantees.SHORT),
        "one": lambda key: jax.random.bernoulli(key, 0.05).astype(float),
    }  # fmt: skip
    names["broken"] = guarantees.simulate(lambda key: jax.random.bernoulli(key, 0.9).astype(float), seed=1)
    run_code("tests/README.md", {}, names)
