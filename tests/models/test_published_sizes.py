"""Configurations of published checkpoints are accepted, and describe as many parameters as were published."""

import json
import math

import pytest
from published_sizes import SIZES

from tdd.models.configuration import read_spec
from tdd.models.families import FAMILIES, family_of_spec
from tdd.models.families.tensors import slots
from tdd.models.rotary import RotaryPositions

_THETA, _POSITIONS = 10_000.0, 2048  # of files that say nothing of them


@pytest.mark.parametrize("repository", SIZES)
def test_number_of_parameters(tmp_path, repository):
    """That the decoder has the parameters of the slots is tested in `test_families_tensors`."""
    expected, config = SIZES[repository]
    (tmp_path / "config.json").write_text(json.dumps(config))
    family, spec = read_spec(tmp_path)
    assert family.model_type == config["model_type"]
    assert sum(math.prod(slot.whole_shape) for slot in slots(spec, family.names)) == expected
    keys = ("original_max_position_embeddings", "max_position_embeddings", "max_seq_len", "n_positions")
    assert spec.max_length == next((config[key] for key in keys if key in config), _POSITIONS)
    if isinstance(spec.positions, RotaryPositions):
        assert spec.positions.theta == config.get("rope_theta", _THETA)
    family_of_spec(spec)  # it can be written too


def test_every_family_has_one():
    assert {config["model_type"] for _, config in SIZES.values()} == set(FAMILIES)
    assert len(SIZES) >= 100
