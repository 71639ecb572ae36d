"""Parameters on eight devices: the numbers of one device, no copy gathered beforehand, no retrace, donation."""

import pytest
from child_process import run_python

pytestmark = pytest.mark.slow("processes")

CODE = """
import json, sys
import jax, jax.numpy as jnp, numpy as np, tdd
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from probed import small_probe, token_rows
from scored_models import small_model
from tdd.placement import partition

out, times = {}, []
lm, params = small_model()
logits = lm.logits

def counted(params, tokens):
    times.append(1)
    return logits(params, tokens)

mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
shares = jax.tree_util.tree_map_with_path(
    lambda path, leaf: NamedSharding(mesh, partition(leaf.shape, mesh, layered="layers" in str(path))), params
)
shared = jax.device_put(params, shares)
everywhere = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))
out["cut"] = sum(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(shared))
out["leaves"] = len(jax.tree.leaves(shared))

def numbers(result):
    return np.concatenate([result.suspect_scores, result.reference_scores]).tolist()

probe, one = small_probe(counted, every=1), small_probe(lm)
out["one"] = numbers(one.evaluate(params))
out["everywhere"] = numbers(small_probe(lm).evaluate(everywhere))
step = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf * 1.01, tree), donate_argnums=0)
records = []
for number in range(4):
    before = jax.tree.leaves(shared)
    records.append(probe(number, shared))
    if number == 0:
        out["traces"] = len(times)
    shared = step(shared)
out["deleted"] = all(leaf.is_deleted() for leaf in before)
out["traces again"] = len(times)
out["shared"] = numbers(records[0].result)
out["moved"] = numbers(records[3].result)
grown = jax.tree.map(lambda leaf: leaf * 1.01**3, params)
out["expected moved"] = numbers(one.evaluate(grown))
out["selected"] = np.array_equal(records[0].result.selected, one.evaluate(params).selected)
explicit = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Explicit,))
cuts = {"embedding": ("data",), "head": (None, "data")}
cut = lambda name: NamedSharding(explicit, PartitionSpec(*cuts[name]))
table = {"embedding": np.ones((304, 8)), "head": np.ones((8, 304))}
table = {name: np.random.default_rng(0).normal(size=leaf.shape).astype("f4") for name, leaf in table.items()}
lies = {name: jax.device_put(leaf, cut(name)) for name, leaf in table.items()}
here = NamedSharding(explicit, PartitionSpec())
hidden = lambda params, tokens: params["embedding"].at[tokens].get(out_sharding=here)
readout = lambda params: params["head"].T
explicit_lm = tdd.from_function(
    lambda params, tokens: hidden(params, tokens) @ params["head"],
    vocab_size=304, hidden=hidden, readout=readout, name="explicit",
)
plain = lambda params, tokens: params["embedding"][tokens] @ params["head"]
plain = small_probe(plain, grad_norms=True).evaluate(table)
for name, model in {"explicit logits": explicit_lm.logits, "explicit readout": explicit_lm}.items():
    found = small_probe(model, grad_norms=True)(0, lies).result
    out[name] = [numbers(found), found.grad_norm_quantiles.tolist()]
out["plain"] = [numbers(plain), plain.grad_norm_quantiles.tolist()]

spread = NamedSharding(explicit, PartitionSpec("data"))
tokens, mask = np.stack(token_rows(8)).astype(np.int32), np.ones((8, 24), bool)
order, stream = tdd.probe.OrderGuard(), tdd.probe.StreamGuard(tokens[:3], ngram=4)
values, p_values = np.sin(np.arange(40, dtype=np.float32)), np.linspace(0.001, 1, 40, dtype=np.float32)

def everything(lm, params, put):
    rows, scored = put(tokens), put(mask)
    stats = [tdd.token_stats(lm, params, *given).log_prob for given in ((tokens, mask), (rows, scored))]
    norms = [tdd.grad_norms(lm, params, *given).total for given in ((tokens, mask), (rows, scored))]
    evidence = jax.jit(order.observe)(order.init(), put(values[:8]))[1].p_value
    found = jax.jit(stream.evaluate)(rows, scored)
    selected = tdd.ptdi(put(values), put(values - 0.5), alpha=0.2)
    rest = [found.text, found.num_texts, selected.p_values, tdd.bh(put(p_values), 0.2).adjusted]
    return [np.asarray(one, np.float64).ravel().tolist() for one in (*stats, *norms, evidence, *rest)]

by_logits = lambda params, tokens: hidden(params, tokens) @ params["head"]
one_device = lambda params, tokens: params["embedding"][tokens] @ params["head"]
plain_lm, logits_lm = (
    tdd.from_function(function, vocab_size=304, name=name)
    for function, name in ((one_device, "plain"), (by_logits, "explicit logits"))
)
expected = everything(plain_lm, table, np.asarray)
for name, lm in (("heads", explicit_lm), ("logits", logits_lm)):
    found = everything(lm, lies, lambda array: jax.device_put(array, spread))
    out["statistics of " + name] = [np.allclose(*pair, rtol=1e-4, atol=1e-6) for pair in zip(found, expected)]
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def found():
    return run_python(CODE, devices=8)


def test_shares_give_the_numbers_of_one_device(found):
    assert found["cut"] > found["leaves"] // 2
    assert found["shared"] == pytest.approx(found["one"], rel=1e-5)
    assert found["everywhere"] == pytest.approx(found["one"], rel=1e-5)
    assert found["selected"]


def test_shares_may_be_donated_after_each_look_and_nothing_is_traced_again(found):
    assert found["deleted"]
    assert found["traces again"] == found["traces"] > 0
    assert found["moved"] == pytest.approx(found["expected moved"], rel=1e-4)
    assert found["moved"] != pytest.approx(found["one"], rel=1e-4)


def test_a_mesh_with_explicit_axes(found):
    """What `jax.make_mesh` makes unless it is told otherwise."""
    for name in ("explicit logits", "explicit readout"):
        for got, expected in zip(found[name], found["plain"], strict=True):
            assert got == pytest.approx(expected, rel=1e-4), name


@pytest.mark.parametrize("kind", ["heads", "logits"])
def test_statistics_guards_and_procedures_in_a_mesh_with_explicit_axes(found, kind):
    """Parameters, tokens, values and scores that lie over the devices give the numbers of one device."""
    assert found[f"statistics of {kind}"] == [True] * 9
