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


def run_code(name, replaced, names, chosen=slice(None)):
    """The Python of a page, word for word but for sizes and places, in one namespace."""
    code = "\n".join(blocks(name, "python")[chosen])
    for there, here in replaced.items():
        assert there in code, there
        code = code.replace(there, here)
    names["__name__"] = "page"
    exec(compile(code, name, "exec"), names)
    return names


def test_pages_with_code_are_run():
    runs = {"README.md", "kernels/README.md", "tdd/models/README.md", "tdd/procedures/README.md", "tests/README.md"}
    runs |= {f"tdd/{room}/README.md" for room in ("audit", "exchange", "probe", "report", "study")} | set(RUN_ELSEWHERE)
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


@pytest.mark.slow("long")
def test_the_code_of_the_audits(capsys):
    """What the checks find of each kind of calibration texts is what the page says."""
    run_code("tdd/audit/README.md", {}, {"tdd": tdd})
    said = re.findall(r"^print\(found.*: (\[.*\])$", "".join(blocks("tdd/audit/README.md", "python")), re.MULTILINE)
    assert len(said) == 5
    assert capsys.readouterr().out.splitlines() == said


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
    assert (tmp_path / "levels.png").is_file()
    assert names["levels"].plot().axes


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
    probe = run_code(
        "tdd/probe/README.md", {"every=500": "every=5", "num_steps=20_000": "num_steps=60"}, names, slice(1)
    )["probe"]
    assert probe.first_alarm > 10
    assert probe.history[-1].step == probe.first_alarm, "it stops at the alarm"
    assert [*written] == [record.step for record in probe.history]
    assert main(["report", "runs/probe", "--plot", "figure.png"]) == 0
    assert f"first at step {probe.first_alarm}" in capsys.readouterr().out
    assert (tmp_path / "figure.png").is_file()


@pytest.mark.slow("long")
@pytest.mark.parametrize("canaries", [True, False])
def test_the_code_of_the_checkpoints(tmp_path, canaries):
    import equinox as eqx
    import flax.training.train_state
    import optax
    from adapted_models import VOCABULARY, equinox_model, nnx_model
    from flax import linen, nnx

    rng = np.random.default_rng(0)
    words = [" ".join(f"w{i}" for i in row) for row in rng.integers(0, 30, (60, 12))]
    tokenizer = word_tokenizer(VOCABULARY)
    rows = jnp.asarray(tokenizer(words[:20])["input_ids"])

    class Bigram(linen.Module):
        @linen.compact
        def __call__(self, tokens):
            return linen.Dense(VOCABULARY)(linen.Embed(VOCABULARY, 8)(tokens))

    module = Bigram()

    def loss(logits):
        log_p = jax.nn.log_softmax(logits[:, :-1])
        return -jnp.take_along_axis(log_p, rows[:, 1:, None], axis=-1).mean()

    def linen_step(state):
        return state.apply_gradients(
            grads=jax.grad(lambda params: loss(module.apply({"params": params}, rows)))(state.params)
        )

    def nnx_step(model):
        gradients = nnx.grad(lambda model: loss(model(rows)))(model)
        nnx.update(model, jax.tree.map(lambda x, g: x - g, nnx.state(model, nnx.Param), gradients))

    def equinox_step(model):
        gradients = eqx.filter_grad(lambda model: loss(jax.vmap(eqx.nn.inference_mode(model))(rows)))(model)
        return eqx.apply_updates(model, jax.tree.map(lambda g: -g, gradients))

    params = module.init(jax.random.key(0), rows)["params"]
    state = flax.training.train_state.TrainState.create(apply_fn=module.apply, params=params, tx=optax.sgd(1.0))
    names = {
        "tdd": tdd, "V": VOCABULARY, "folder": tmp_path, "tokenizer": tokenizer, "benchmark": words[:20],
        "fresh": words[20:45], "inserted": words[45:50], "kept_back": words[50:], "module": module,
        "linen_state": state, "linen_step": linen_step, "nnx_model": nnx_model(), "nnx_step": nnx_step,
        "equinox_model": equinox_model(), "equinox_step": equinox_step,
    }  # fmt: skip
    without = {'texts |= {"canaries": inserted, "canary_reference": kept_back}': "pass"}
    names = run_code("tdd/probe/README.md", {} if canaries else without, names, slice(1, None))
    assert [record.step for record in names["again"].history] == [0, 2, 4]
    first = names["watch"].history
    for name in ("watch", "watch_nnx", "watch_equinox"):
        looks = names[name].history
        assert [record.step for record in looks] == [0, 2]
        assert looks[1].scalars() != looks[0].scalars()
        assert ("canary" in str(sorted(looks[0].scalars()))) == canaries
    kind = {"watch": names["linen_lm"], "watch_nnx": names["nnx_lm"], "watch_equinox": names["equinox_lm"]}
    texts = names["texts"]
    for name, place in (
        ("watch", "linen-0"),
        ("watch", "linen-4"),
        ("watch_nnx", "nnx-4"),
        ("watch_equinox", "equinox-4"),
    ):
        probe = tdd.Probe(kind[name], **texts)
        names["restore"](tmp_path / place, probe)
        steps = [record.step for record in probe.history]
        assert steps == ([] if place.endswith("-0") else [record.step for record in names[name].history])
    np.testing.assert_array_equal(names["again"].history[1].e_values, first[1].e_values)


@pytest.mark.slow("long")
def test_the_code_of_the_reports(tmp_path, monkeypatch):
    import matplotlib.image

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    losses = np.concatenate([rng.normal(size=99), rng.normal(size=40) - 3 * (np.arange(40) < 20)])
    names = {"names": [f"x{i}" for i in range(139)], "roles": ["calibration"] * 99 + ["candidate"] * 40}
    names = run_code("tdd/report/README.md", {}, {"tdd": tdd, "losses": losses, **names})
    assert len(names["items"]) == 40
    assert set(names["items"]["id"][names["items"]["selected"]]) == set(names["audit"].selected_ids)
    assert matplotlib.image.imread("p_values.png").ndim == 3
    with pytest.raises(tdd.InputError, match="no figure 'P'; it has Bound for every cut, P-values, Scores"):
        names["audit"].plot("P")


def test_the_code_of_the_tests():
    import guarantees

    names = {
        "guarantees": guarantees, "alpha": 0.2, "budget": guarantees.Budget(1e-4, guarantees.SHORT),
        "one": lambda key: jax.random.bernoulli(key, 0.05).astype(float),
    }  # fmt: skip
    names["broken"] = guarantees.simulate(lambda key: jax.random.bernoulli(key, 0.9).astype(float), seed=1)
    run_code("tests/README.md", {}, names)
