"""The state of a probe in an Orbax checkpoint: before the first look and after it, with canaries and without."""

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from adapted_models import weights
from probed import small_probe, token_rows

from tdd.probe.folder import with_empty, without_empty

ROWS = token_rows(9, 5)
CANARIES = {"canaries": ROWS[:3], "canary_reference": ROWS[3:]}


@pytest.mark.parametrize("looks", [0, 2])
@pytest.mark.parametrize("options", [{}, CANARIES], ids=["without canaries", "canaries"])
def test_a_state_is_restored_equal(options, looks, tmp_path):
    probe = small_probe(**options)
    for look in range(looks):
        probe(10 * look, weights())
    state = probe.state_dict()
    assert all(array.size for array in state.values())
    with ocp.StandardCheckpointer() as orbax:
        orbax.save(tmp_path / "state", state)
        orbax.wait_until_finished()
        held = orbax.restore(tmp_path / "state")
    assert held.keys() == state.keys()
    again = small_probe(**options)
    again.load_state_dict(held)
    assert [record.step for record in again.history] == [10 * look for look in range(looks)]
    after = again.state_dict()
    assert after.keys() == state.keys()
    for name, array in state.items():
        assert after[name].dtype == array.dtype
        np.testing.assert_array_equal(after[name], array)
    for one, other in zip(probe.history, again.history, strict=True):
        jax.tree.map(np.testing.assert_array_equal, (one.result, one.evidence), (other.result, other.evidence))
    assert (again(10 * looks, weights()) is None) == (probe(10 * looks, weights()) is None)
    np.testing.assert_array_equal(again.history[-1].e_values, probe.history[-1].e_values)


def test_empty_arrays_are_described():
    arrays = {"a": np.zeros((0, 3), np.float32), "b": np.arange(2), "c": np.zeros(0, bool)}
    held = without_empty(arrays)
    assert held.keys() == {"b", "empty"}
    found = with_empty(held)
    assert {name: (array.dtype, array.shape) for name, array in found.items()} == {
        name: (array.dtype, array.shape) for name, array in arrays.items()
    }
    assert without_empty({"b": np.arange(2)}).keys() == {"b"}
