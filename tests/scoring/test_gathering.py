"""Functions of shares equal functions of whole parameters, and hold one layer at a time."""

import pytest
from child_process import run_python

pytestmark = pytest.mark.slow("processes")

CODE = """
import json, re, sys
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from tdd.scoring import programs
from tdd.scoring.devices import find_devices
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec

whole, shared = find_devices(devices=4), find_devices(devices=4, shard_params=True)
rng = np.random.default_rng(0)
params = {
    "layers": {"kernel": rng.normal(size=(3, 8, 8)), "bias": rng.normal(size=(3, 8)), "odd": rng.normal(size=(3, 5))},
    "table": rng.normal(size=(12, 8)),
    "scale": rng.normal(size=8),
    "count": np.arange(4),
}
params = jax.tree.map(lambda x: x.astype(np.float32), params)
inputs = [rng.normal(size=(2, 8)).astype(np.float32) for _ in range(4)]

def block(x, layer):
    return jnp.tanh(x @ layer["kernel"]) + layer["bias"] + layer["odd"].sum(), x.sum()

def scanned(p, x):
    return lax.scan(block, x, p["layers"])[0]

def backwards(p, x):
    last, sums = lax.scan(block, x, p["layers"], reverse=True, unroll=3)
    return last * sums.mean()

def loss(p, x):
    return jnp.square(scanned(p, x)).sum()

def checkpointed(p, x):
    return lax.scan(jax.checkpoint(block), x, p["layers"])[0].sum()

@jax.custom_vjp
def scaled(x, s):
    return x * s

scaled.defvjp(lambda x, s: (x * s, (x, s)), lambda kept, g: (2 * g * kept[1], (g * kept[0]).sum(0)))

def constant(p, x):
    return lax.scan(lambda c, k: (c @ k * p["scale"], None), x, p["layers"]["kernel"])[0]

def by_platform(p, x):
    cpu, other = (lambda x: x @ p["table"].T), (lambda x: x @ p["table"].T + p["scale"].sum())
    return lax.platform_dependent(x, cpu=cpu, default=other)

FUNCTIONS = {
    "forward": scanned,
    "backwards": backwards,
    "under jit": jax.jit(scanned),
    "gradient of the input": lambda p, x: jax.grad(loss, argnums=1)(p, x),
    "gradient of the parameters": lambda p, x: jax.grad(loss)(p, x)["layers"]["kernel"],
    "checkpoint": lambda p, x: jax.grad(checkpointed, argnums=1)(p, x),
    "a constant of the scan": constant,
    "layers one by one": lambda p, x: x @ p["layers"]["kernel"][1] @ p["layers"]["kernel"][2],
    "a while loop": lambda p, x: lax.fori_loop(0, 3, lambda i, c: c @ p["layers"]["kernel"][i], x),
    "a condition": lambda p, x: lax.cond(x.sum() > 0, lambda: x * p["scale"], lambda: x - p["scale"]),
    "rows of a table": lambda p, x: p["table"][jnp.array([3, 11])] * x,
    "converted": lambda p, x: x @ p["layers"]["kernel"].astype(jnp.bfloat16)[0].astype(jnp.float32),
    "own derivative": lambda p, x: jax.grad(lambda x: scaled(x, p["scale"]).sum())(x),
    "own derivative, forward": lambda p, x: scaled(x, p["scale"]),
    "a parameter itself": lambda p, x: p["table"],
    "twice": lambda p, x: (p["table"] @ p["table"].T)[:2, :8] + x,
    "nothing of them": lambda p, x: x + 1,
    "a form by platform": by_platform,
    "gradient through a form by platform": lambda p, x: jax.grad(lambda x: jnp.sin(by_platform(p, x)).sum())(x),
}
out = {"same": {}}
for name, function in FUNCTIONS.items():
    found = [jax.jit(w.each, static_argnums=0)(function, w.put_params(params), w.put(inputs)) for w in (whole, shared)]
    alone = jax.jit(function)(params, inputs[2])
    out["same"][name] = [float(np.abs(np.asarray(f)[2] - alone).max()) for f in found]

spec = DecoderSpec.gpt2(vocab_size=64, width=64, num_layers=24, num_heads=4, max_length=16)
lm, shapes = language_model(spec), None
values = init_params(spec, jax.random.key(0))
layers = sum(leaf.nbytes for leaf in jax.tree.leaves(values["layers"]))
total = sum(leaf.nbytes for leaf in jax.tree.leaves(values))
tokens = [np.zeros((1, 8), np.int32)] * 4
rows = [np.arange(8, dtype=np.int32)] * 4
masks = [np.ones((1, 8), bool)] * 4
out["memory"] = {}
for name, program, arguments in (
    ("trunk", programs._trunk, (tokens, rows)), ("gradient", programs._norms, (tokens, masks))
):
    used = []
    for where in (whole, shared):
        placed = where.put_params(values)
        compiled = program.lower(lm, where, placed, *map(where.put, arguments)).compile()
        memory = compiled.memory_analysis()
        used.append([memory.argument_size_in_bytes, memory.temp_size_in_bytes])
    gathered = re.findall(r"= \\w+\\[([\\d,]+)\\]\\S* all-gather", compiled.as_text())
    largest = max(int(np.prod([int(size) for size in shape.split(",")])) * 4 for shape in gathered)
    out["memory"][name] = [*used, largest]
# rows of one text and a vocabulary whose blocks of columns differ between platforms
spec = DecoderSpec.gpt2(vocab_size=9000, width=8, num_layers=2, num_heads=2, max_length=512)
lm, values = language_model(spec), init_params(spec, jax.random.key(1))
tokens = [rng.integers(0, 9000, (1, 512)).astype(np.int32) for _ in range(4)]
masks = [np.ones((1, 512), bool)] * 4
norms = []
for where in (whole, shared):
    given = (lm, where, where.put_params(values), where.put(tokens), where.put(masks))
    norms.append(np.asarray(programs._norms(*given)))
    out["forms"] = "platform_index" in str(jax.make_jaxpr(programs._norms, static_argnums=(0, 1))(*given))
out["norms"] = float(np.abs(norms[0] / norms[1] - 1).max())
out["fast"] = lm.grad_sqnorm is not None
out["sizes"] = [total, layers, layers // 24]
print(json.dumps(out))
"""

FUNCTIONS = [
    "forward",
    "backwards",
    "under jit",
    "gradient of the input",
    "gradient of the parameters",
    "checkpoint",
    "a constant of the scan",
    "layers one by one",
    "a while loop",
    "a condition",
    "rows of a table",
    "converted",
    "own derivative",
    "own derivative, forward",
    "a parameter itself",
    "twice",
    "nothing of them",
    "a form by platform",
    "gradient through a form by platform",
]


@pytest.fixture(scope="module")
def four():
    return run_python(CODE, devices=4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shares_give_what_the_whole_gives(four, name):
    of_whole, of_shares = four["same"][name]
    assert of_whole < 1e-5
    assert of_shares < 1e-5
    assert set(four["same"]) == set(FUNCTIONS)


@pytest.mark.parametrize("program", ["trunk", "gradient"])
def test_a_device_holds_its_share_and_one_layer(four, program):
    """24 layers of about 200 KiB are 4.7 MiB; a quarter of the parameters is the share. What the program needs beyond
    what it needs with whole parameters on every device is less than four layers: one that is computed with, one that
    is being gathered, and their copies in another layout. So a model of about twice a device's memory runs on four."""
    (whole_in, whole_temp), (share_in, share_temp), largest = four["memory"][program]
    total, layers, one = four["sizes"]
    assert layers > 0.95 * total
    assert share_in < total / 4 + 2**14 < whole_in / 3
    assert share_temp - whole_temp < 4 * one
    assert share_in + share_temp < (whole_in + whole_temp) / 2
    assert largest <= one  # never a stack


def test_gradients_are_gathered_where_the_forms_of_the_head_differ(four):
    assert four["forms"]
    assert four["norms"] < 1e-5
