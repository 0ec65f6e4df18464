"""The residual encoder by hand, and the shapes of convolutions."""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.nets import image

Layer = tuple[jnp.ndarray, jnp.ndarray]
PLAIN = (1.0, 0.0)


def scaling(factor: float, bias: float) -> Layer:
    """A convolution of one channel that scales every pixel by itself."""
    kernel = np.zeros((3, 3, 1, 1), np.float32)
    kernel[1, 1] = factor
    return jnp.asarray(kernel), jnp.array([bias], jnp.float32)


def stage(first: Layer, second: Layer) -> dict[str, Layer]:
    """One stage whose first convolution leaves the picture, and whose two blocks have the same
    convolutions.
    """
    layers = {"image_stage1_conv": scaling(*PLAIN)}
    for block in (1, 2):
        layers[f"image_stage1_block{block}_conv1"] = first
        layers[f"image_stage1_block{block}_conv2"] = second
    return layers


def encode(picture: np.ndarray, layers: dict[str, Layer]) -> np.ndarray:
    """Features of a picture [H, W] with one channel, by one stage with ReLU."""
    pixels = jnp.asarray(picture, jnp.float32)[None, :, :, None]
    return np.asarray(image.residual_net(layers, pixels, 1, nn.relu))[0]


@pytest.mark.parametrize("shape", [(5, 5), (6, 4)])
def test_a_stage_keeps_the_largest_of_three_by_three_pixels(shape: tuple[int, int]) -> None:
    picture = np.random.default_rng(0).permutation(shape[0] * shape[1]).reshape(shape)

    features = encode(picture, stage(scaling(*PLAIN), scaling(0.0, 0.0)))

    # Windows lie around every second pixel, so that those at an edge hold fewer pixels.
    expected = [
        picture[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2].max()
        for row in range(0, shape[0], 2)
        for column in range(0, shape[1], 2)
    ]
    np.testing.assert_allclose(features, expected)


def test_a_block_adds_its_convolutions_to_its_activated_input() -> None:
    picture = np.array([[-2.0], [-2.0], [3.0]])  # two pools: -2, 3

    features = encode(picture, stage(scaling(2.0, -1.0), scaling(0.5, -4.0)))

    def block(x: np.ndarray) -> np.ndarray:
        skip = np.maximum(x, 0)
        return skip + 0.5 * np.maximum(2 * skip - 1, 0) - 4

    expected = np.maximum(block(block(np.array([-2.0, 3.0]))), 0)
    np.testing.assert_allclose(features, expected)


def test_a_convolution_reads_the_channels_of_the_one_before() -> None:
    assert image.convolution_shapes("convnet_simple") == [
        ("image_conv1", 3, 32, 8),
        ("image_conv2", 32, 64, 4),
        ("image_conv3", 64, 128, 3),
    ]


def test_a_residual_stage_has_five_convolutions() -> None:
    shapes = image.convolution_shapes("resnet_impala")

    assert shapes[:6] == [
        ("image_stage1_conv", 3, 16, 3),
        ("image_stage1_block1_conv1", 16, 16, 3),
        ("image_stage1_block1_conv2", 16, 16, 3),
        ("image_stage1_block2_conv1", 16, 16, 3),
        ("image_stage1_block2_conv2", 16, 16, 3),
        ("image_stage2_conv", 16, 32, 3),
    ]
    assert len(shapes) == 15
