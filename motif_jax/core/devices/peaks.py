"""Peak rates of devices: floating-point operations a second of matrix products, by data type."""

from __future__ import annotations

from typing import Any, NamedTuple


class Peak(NamedTuple):
    """Dense floating-point operations a second, in units of 1e12, by the products' factors; sums
    are float32.

    `float32` are exact products, `rounded` those of float32 whose factors the device rounds by
    default (TF32 on GPUs since Ampere, bfloat16 on TPUs). None: the device has no units for it.
    """

    bfloat16: float | None
    rounded: float
    float32: float


# By a part of jax's `device_kind`; the first that fits counts. From the makers' data sheets,
# without sparsity.
PEAKS = {
    "B200": Peak(2250.0, 1100.0, 75.0),
    "H200": Peak(989.0, 494.0, 67.0),
    "GH200": Peak(989.0, 494.0, 67.0),
    "H100 PCIe": Peak(756.0, 378.0, 51.0),
    "H100 NVL": Peak(835.0, 417.0, 60.0),
    "H100": Peak(989.0, 494.0, 67.0),
    "A100": Peak(312.0, 156.0, 19.5),
    "L40S": Peak(362.0, 183.0, 91.6),
    "L4": Peak(121.0, 60.0, 30.3),
    "A10": Peak(125.0, 62.5, 31.2),
    "RTX 4090": Peak(165.2, 82.6, 82.6),
    "RTX 3090": Peak(71.0, 35.6, 35.6),
    "V100": Peak(None, 15.7, 15.7),
    "T4": Peak(None, 8.1, 8.1),
    "TPU v6": Peak(918.0, 918.0, 918.0),
    "TPU v5 lite": Peak(197.0, 197.0, 197.0),
    "TPU v5": Peak(459.0, 459.0, 459.0),
    "TPU v4": Peak(275.0, 275.0, 275.0),
}


def peak_flops(device: Any, dtype: str, precision: str) -> float | None:
    """Operations a second of products on a jax device; None where its kind is not known, as on
    every CPU.

    Args:
      dtype: of the computation, 'float32' or 'bfloat16'.
      precision: of float32 products, 'default' or 'highest' (`core.devices.precision`).
    """
    peak = _peak_of(device.device_kind)
    if peak is None:
        return None
    if dtype == "bfloat16":
        teraflops = peak.bfloat16
    elif precision == "highest":
        teraflops = peak.float32
    else:
        teraflops = peak.rounded
    return None if teraflops is None else 1e12 * teraflops


def _peak_of(device_kind: str) -> Peak | None:
    """The first entry of `PEAKS` whose name is a whole word of `device_kind`: an A100 is not an
    A10.
    """
    padded = f" {device_kind} "
    for kind, peak in PEAKS.items():
        start = padded.find(kind)
        end = start + len(kind)
        if start > 0 and not padded[start - 1].isalnum() and not padded[end].isalnum():
            return peak
    return None
