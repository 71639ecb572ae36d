"""Parameters straight into their places: values, shares, memory, and a mesh that cannot be used."""

import tracemalloc

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from child_process import run_python
from jax.sharding import AxisType, Mesh, PartitionSpec

from tdd.placement import Placement, partition, partitions
from tdd.validate import InputError

SOURCE = np.random.default_rng(0).normal(size=(3, 16, 24)).astype(np.float32)


def one_device(axis_type=AxisType.Auto):
    return jax.make_mesh((1,), ("data",), axis_types=(axis_type,))


@pytest.mark.parametrize("mesh", [None, "mesh"])
@pytest.mark.parametrize("dtype", [None, jnp.bfloat16, np.float16, "float32"])
def test_the_values_are_those_of_the_tensors(mesh, dtype):
    placement = Placement(one_device() if mesh else None, dtype)
    expected = SOURCE if dtype is None else SOURCE.astype(jnp.dtype(dtype))
    stack = placement.stacked(3, (16, 24), np.float32, lambda layer: SOURCE[layer])
    alone = placement.single((16, 24), np.float32, lambda: SOURCE[1])
    assert stack.dtype == alone.dtype == expected.dtype
    np.testing.assert_array_equal(stack, expected)
    np.testing.assert_array_equal(alone, expected[1])


@pytest.mark.parametrize("stored", [ml_dtypes.bfloat16, np.float16])
def test_every_stored_number_is_converted_as_numpy_converts_it(stored):
    """Subnormal numbers, infinities and both zeros among them; of NaN only that it is one."""
    every = np.arange(2**16, dtype=np.uint16).view(stored)
    got = np.asarray(Placement(dtype=np.float32).single(every.shape, stored, lambda: every))
    with np.errstate(invalid="ignore"):
        expected = every.astype(np.float32)
    real = ~np.isnan(expected)
    np.testing.assert_array_equal(got.view(np.uint32)[real], expected.view(np.uint32)[real])
    assert np.isnan(got[~real]).all()


def test_layers_stored_in_different_types_meet_in_one():
    layers = [SOURCE[0].astype(ml_dtypes.bfloat16), SOURCE[1]]
    got = Placement().stacked(2, (16, 24), np.float32, layers.__getitem__)
    np.testing.assert_array_equal(got, np.stack([layers[0].astype(np.float32), layers[1]]))


def test_stacks_are_not_cut_along_their_layers():
    """Those of every run of equal layers, and no other parameter that is called alike."""
    names = ("layers", "layers_from_3", "layers_3", "my_layers")
    found = partitions({name: {"kernel": np.zeros((16, 8))} for name in names}, one_device())
    expected = [PartitionSpec(None, "data")] * 2 + [PartitionSpec("data", None)] * 2
    assert [found[name]["kernel"] for name in names] == expected


@pytest.mark.parametrize(
    ("shape", "layered", "expected"),
    [
        ((12, 768, 2304), True, PartitionSpec(None, None, "data")),
        ((12, 3072, 768), True, PartitionSpec(None, "data", None)),
        ((50257, 768), False, PartitionSpec(None, "data")),
        ((16, 16), False, PartitionSpec("data", None)),
        ((8, 768), True, PartitionSpec(None, "data")),
        ((8, 7), True, PartitionSpec()),
        ((8, 0), True, PartitionSpec()),
        ((9,), False, PartitionSpec()),
        ((), False, PartitionSpec()),
    ],
)
def test_where_a_parameter_is_cut(shape, layered, expected):
    mesh = type("EightDevices", (), {"axis_names": ("data",), "size": 8})()
    assert partition(shape, mesh, layered=layered) == expected


@pytest.mark.parametrize("mesh", [None, "mesh"])
def test_one_tensor_in_host_memory_at_a_time(mesh):
    """8 layers of 256 x 256 float32, 256 KiB each: beside the stack of 2 MiB, which NumPy holds where the device is the
    host, never more than one of them (1 * 256 KiB, and 64 KiB for everything small)."""
    one, placement = 256 * 256 * 4, Placement(one_device() if mesh else None)

    def read(layer):
        return np.full((256, 256), layer, np.float32)

    placement.stacked(8, (256, 256), np.float32, read)  # compiled
    tracemalloc.start()
    stack = placement.stacked(8, (256, 256), np.float32, read)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(stack[:, 0, 0], np.arange(8))
    held = 0 if mesh else 8 * one
    assert held + one < peak < held + one + 2**16


@pytest.mark.parametrize("shape", [(16, 24), (5,), ()])
def test_on_the_host_nothing_is_compiled_or_copied(shape, monkeypatch, caplog):
    put, given = jax.device_put, []
    monkeypatch.setattr(jax, "device_put", lambda array, *to: given.append(array) or put(array, *to))
    layers = [np.full(shape, layer, np.float32) for layer in range(3)]
    with jax.log_compiles(True), caplog.at_level("WARNING", logger="jax"):
        found = Placement(dtype=jnp.bfloat16).stacked(3, shape, np.float32, layers.__getitem__)
        Placement(dtype=jnp.bfloat16).single(shape, np.float32, lambda: layers[0])
    assert "Compiling" not in caplog.text
    assert found.unsafe_buffer_pointer() == given[0].ctypes.data
    np.testing.assert_array_equal(found, np.stack(layers))


def test_the_device_holds_the_stack_once():
    """While layer i is read the device holds 6 layers of the stack and nothing else of this size (the layer before
    is gone): 6 * 16 KiB. Each write goes into the same memory."""
    before = sum(array.nbytes for array in jax.live_arrays())
    held, places = [], []

    def read(layer):
        arrays = [array for array in jax.live_arrays() if array.shape == (6, 64, 64)]
        places.append([array.unsafe_buffer_pointer() for array in arrays])
        held.append(sum(array.nbytes for array in jax.live_arrays()) - before)
        return np.full((64, 64), layer, np.float32)

    Placement(one_device()).stacked(6, (64, 64), np.float32, read)
    one = 64 * 64 * 4
    assert max(held) < 6 * one + one // 2
    assert all(len(found) == 1 and found == places[0] for found in places)


def test_layers_may_all_be_read_into_one_buffer():
    buffer = np.zeros((16, 24), np.float32)

    def read(layer):
        buffer[:] = SOURCE[layer]
        return buffer

    stack = Placement().stacked(3, (16, 24), np.float32, read)
    buffer[:] = np.nan
    np.testing.assert_array_equal(stack, SOURCE)


EIGHT = """
import json
import jax, numpy as np
from benchmarks.throughput.memory import peak_bytes  # ru_maxrss begins with that of the parent
from jax.sharding import AxisType
from tdd.placement import Placement, shard
mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
source = np.random.default_rng(0).normal(size=(3, 16, 24)).astype(np.float32)
placement = Placement(mesh)
params = {
    "embedding": {"tokens": placement.single((50, 16), np.float32, lambda: np.ones((50, 16), np.float32))},
    "layers": {"kernel": placement.stacked(3, (16, 24), np.float32, lambda layer: source[layer])},
    "odd": placement.single((7,), np.float32, lambda: np.ones(7, np.float32)),
}
shapes = jax.tree.map(lambda leaf: [list(part.data.shape) for part in leaf.addressable_shards], params)
plain = jax.tree.map(np.asarray, params)
again = shard(plain, mesh)

def place(leaf):
    return leaf.addressable_data(3).unsafe_buffer_pointer()

same = jax.tree.map(lambda a, b: a.sharding == b.sharding and np.array_equal(a, b), again, params)
kept = jax.tree.map(lambda a, b: place(a) == place(b), shard(params, mesh), params)

def layer(number):
    return np.full((1024, 2048), number, np.float32)

placement.stacked(2, (1024, 2048), np.float32, layer)
before = peak_bytes()
big = placement.stacked(16, (1024, 2048), np.float32, layer)
grown = (peak_bytes() - before) / 2**20
print(json.dumps([shapes, same, kept, bool((np.asarray(params["layers"]["kernel"]) == source).all()), grown]))
"""


@pytest.mark.slow("processes")
def test_each_of_eight_devices_holds_its_share():
    """Resident memory: 16 layers of 8 MiB are 128 MiB of devices. Two layers of them (16 MiB), one on the host and one
    on the devices (another 16) were there before; 24 MiB of slack are less than the 128 of a second stack."""
    shapes, same, kept, values, grown = run_python(EIGHT, devices=8)
    assert shapes["embedding"]["tokens"] == [[50, 2]] * 8
    assert shapes["layers"]["kernel"] == [[3, 16, 3]] * 8
    assert shapes["odd"] == [[7]] * 8
    assert same == kept == {"embedding": {"tokens": True}, "layers": {"kernel": True}, "odd": True}
    assert values
    assert 90 < grown < 128 + 24


def test_bad_meshes_and_tensors():
    grid = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    with pytest.raises(InputError, match="mesh has the axes 'data', 'model'; it must have exactly one"):
        Placement(grid)
    with pytest.raises(InputError, match="axis of type Explicit; make it with"):
        Placement(one_device(AxisType.Explicit))
    with pytest.raises(InputError, match="mesh is int; pass a"):
        Placement(8)
    with pytest.raises(InputError, match=r"shape \[16, 24\] was read with \[24, 16\]"):
        Placement().single((16, 24), np.float32, lambda: SOURCE[0].T)
    with pytest.raises(InputError, match=r"shape \[16, 24\] was read with \[16\]"):
        Placement().stacked(2, (16, 24), np.float32, lambda layer: SOURCE[layer, :, 0])
