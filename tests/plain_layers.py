"""Layers in plain numpy, in float64, from the trees of parameters that ours have."""

from __future__ import annotations

from typing import Any

import numpy as np


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def linear(x: np.ndarray, layer: Any) -> np.ndarray:
    return x @ np.asarray(layer["kernel"], np.float64) + np.asarray(layer["bias"], np.float64)


def normed(x: np.ndarray, layer: Any, epsilon: float = 1e-5) -> np.ndarray:
    """A layer norm."""
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return y * np.asarray(layer["scale"]) + np.asarray(layer["bias"])


def convolution(x: np.ndarray, layer: Any, stride: int = 1) -> np.ndarray:
    """Cross-correlation of [N, H, W, C] with a zero on each side."""
    kernel = np.asarray(layer["kernel"], np.float64)
    size = len(kernel)
    x = np.pad(np.asarray(x, np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows, columns = ((side - size) // stride + 1 for side in x.shape[1:3])
    y = np.zeros((len(x), rows, columns, kernel.shape[-1])) + np.asarray(layer["bias"], np.float64)
    for i, j in np.ndindex(size, size):
        y += x[:, i : i + stride * rows : stride, j : j + stride * columns : stride] @ kernel[i, j]
    return y


def gru(x: np.ndarray, state: np.ndarray, layers: Any, name: str = "gru") -> np.ndarray:
    """One step of PyTorch's GRU, from [..., inputs] and a state [..., H]."""
    rx, zx, nx = np.split(linear(x, layers[f"{name}_input"]), 3, axis=-1)
    rh, zh, nh = np.split(linear(state, layers[f"{name}_hidden"]), 3, axis=-1)
    update = sigmoid(zx + zh)
    return (1 - update) * np.tanh(nx + sigmoid(rx + rh) * nh) + update * state


def lstm(
    x: np.ndarray, state: np.ndarray, cell: np.ndarray, layers: Any, name: str = "lstm"
) -> tuple[np.ndarray, np.ndarray]:
    """One step of PyTorch's LSTM: its state and its cell."""
    gates = linear(x, layers[f"{name}_input"]) + linear(state, layers[f"{name}_hidden"])
    write, forget, candidate, read = np.split(gates, 4, axis=-1)
    cell = sigmoid(forget) * cell + sigmoid(write) * np.tanh(candidate)
    return sigmoid(read) * np.tanh(cell), cell
