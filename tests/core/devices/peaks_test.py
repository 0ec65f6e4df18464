from __future__ import annotations

import pytest

from motif_jax.core.devices import memory
from motif_jax.core.devices.flops import peak_flops
from tests.made_up_devices import MadeUpDevice


@pytest.mark.parametrize(
    ("kind", "dtype", "precision", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "bfloat16", "default", 989e12),
        ("NVIDIA H100 80GB HBM3", "float32", "default", 494e12),
        ("NVIDIA H100 80GB HBM3", "float32", "highest", 67e12),
        ("NVIDIA H100 PCIe", "bfloat16", "default", 756e12),
        ("NVIDIA GH200 480GB", "bfloat16", "default", 989e12),
        ("NVIDIA A100-SXM4-80GB", "float32", "highest", 19.5e12),
        ("NVIDIA A10G", "bfloat16", "default", None),
        ("NVIDIA L4", "bfloat16", "default", 121e12),
        ("NVIDIA L40S", "bfloat16", "default", 362e12),
        ("Tesla V100-SXM2-16GB", "bfloat16", "default", None),
        ("TPU v5 lite", "bfloat16", "default", 197e12),
        ("cpu", "float32", "default", None),
    ],
)
def test_peak_of_a_device_by_its_name(
    kind: str, dtype: str, precision: str, expected: float | None
) -> None:
    assert peak_flops(MadeUpDevice(kind), dtype, precision) == expected


def test_a_device_that_reports_no_memory_shows_none() -> None:
    assert memory.in_use(MadeUpDevice(stats=None)) is None
