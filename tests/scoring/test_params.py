"""Parameters that cannot be used, wherever a model is called."""

import gpt2_files
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tdd

TEXTS = ["one two three", "four five six"]
TOKENS = np.ones((1, 4), np.int32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tdd.load(gpt2_files.write(tmp_path_factory.mktemp("model") / "gpt2")[0])


@pytest.fixture(scope="module")
def probe(model):
    rng = np.random.default_rng(0)
    rows = rng.integers(1, model[0].vocab_size, (60, 6)).tolist()
    return tdd.Probe(model[0], rows[:8], rows[8:])


CALLS = {
    "score": lambda model, probe, params: tdd.score((model[0], params, model[2]), TEXTS, "loss"),
    "probe": lambda model, probe, params: probe(0, params),
    "token_stats": lambda model, probe, params: tdd.token_stats(model[0], params, TOKENS, TOKENS > 0),
    "check_causal": lambda model, probe, params: tdd.check_causal(model[0], params, TOKENS),
}


def donated(params):
    copy = jax.tree.map(jnp.array, params)
    jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree), donate_argnums=0)(copy)
    return copy


WRONG = [
    (donated, r"an array of shape .* was deleted, as by donation .*; pass the parameters that the step returned"),
    (lambda params: {"layers": params["layers"]}, "with embedding, layers; got one without embedding"),
    (lambda params: {**params, "embedding": None}, "with embedding, layers; got one without embedding"),
    (lambda params: (jnp.zeros(()), params), "params must be the dictionary that tdd.load .*; got tuple"),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_parameters_that_are_none(model, probe, call, wrong, message):
    with pytest.raises(tdd.InputError, match=message):
        CALLS[call](model, probe, wrong(model[1]))


@pytest.mark.parametrize(
    ("call", "instead"), [("score", "tdd.token_stats"), ("probe", "probe.evaluate and probe.observe")]
)
def test_calls_that_no_trace_holds_say_what_does(model, probe, call, instead):
    with pytest.raises(tdd.InputError, match=f"is traced; inside jit call {instead}"):
        jax.jit(lambda params: CALLS[call](model, probe, params) and 0)(model[1])


def test_leaves_that_are_no_arrays(model, probe):
    with pytest.raises(tdd.InputError, match=r"params\['layers'\] must be an array, got str"):
        CALLS["score"](model, probe, {**model[1], "layers": "x"})


def test_no_parameter_is_printed(model, probe, monkeypatch):
    """To print an array is to copy it from its device."""

    def printed(array):
        raise AssertionError("an array was printed")

    for name in ("__repr__", "__str__", "__format__"):
        monkeypatch.setattr(type(jnp.ones(1)), name, printed)
    CALLS["score"](model, probe, model[1])
