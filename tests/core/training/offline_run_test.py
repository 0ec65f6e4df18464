from __future__ import annotations

import jax
import numpy as np
import pytest

from motif_jax.core.training import offline_run
from motif_jax.ilql.config import TextConfig
from motif_jax.schema import read_section
from tests.reward_fixtures import load_config


@pytest.mark.parametrize("devices", [1, 4])
def test_devices_divide_the_data_unless_parameters_are_split(devices: int) -> None:
    values = {"num_devices": devices}
    config = read_section(TextConfig, load_config("train_text", "wordle_ilql", values))

    assert offline_run.mesh_sizes(config) == {"data": devices, "fsdp": 1, "tensor": 1}


def test_numbers_are_counted_in_arrays_and_shapes() -> None:
    tree = {"a": np.zeros((2, 3)), "b": [jax.ShapeDtypeStruct((4,), np.float32)]}

    assert offline_run.numbers_in(tree) == 10
