"""Matching foreign tensors to layers."""

from __future__ import annotations

import numpy as np

from motif_jax.published.name_matching import match
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text


def arrays(**shapes):
    return [(name, np.zeros(shape)) for name, shape in shapes.items()]


ROWS, TWO = {"reward_head/weight": (1, 8)}, {"fc1/w": (2, 3), "fc2/w": (2, 3)}
CASES = [
    (
        {"a": (4, 4), "b": (4, 2), "c": (4,), "d": (4, 4), "e": (9,)},
        {"conv1/weight": (4, 2), "conv2/weight": (4, 4), "conv3/weight": (4, 4), "conv1/bias": (4,)},
    ),
    ({"critic": (1, 8), "reward_linear": (1, 8)}, ROWS),
    ({"critic": (1, 8), "REWARD": (1, 8)}, {"value_head/w": (1, 8), **ROWS}),
    ({"msg_net": (8, 8), "blstats_net": (8, 8)}, {"vector_fc2/weight": (8, 8), "message_fc2/weight": (8, 8)}),
    ({"x": (1, 8)}, ROWS),
    ({"x": (1, 8), "y": (1, 8)}, ROWS),
    ({"reward.x": (1, 8), "reward.y": (1, 8)}, ROWS),
    ({"x": (1, 8), "y": (1, 8)}, ROWS, {"reward_head/weight": "y"}),
    ({"a": (2, 3)}, TWO),
    ({"a": (2, 3), "b": (2, 3)}, TWO, {"fc1/w": "b"}),
    ({"a": (2, 3)}, {"fc1/w": (3, 2)}, {"fc1/w": "a"}),
    ({"a": (2, 3)}, TWO, {"fc9/w": "a"}),
    ({"a": (2, 3)}, TWO, {"fc1/w": "z"}),
    (
        {"actor.logits": (2,), "gru.core": (2,), "z": (2,)},
        {"policy_head/b": (2,), "image_fc/b": (2,), "gru_x/b": (2,)},
    ),
]


def test_tensors_are_matched_by_shape_then_by_hints_then_by_order_or_by_hand(record):
    lines = [outcome_text(match, arrays(**shapes), *given) for shapes, *given in CASES]
    assert_matches_packed_recording("name_matching", {"lines": "\n".join(lines)}, record)
    found = match([("a", np.array([1.0, 2.0]))], {"x": (2,)}).tensors([("a", np.array([1.0, 2.0]))])
    np.testing.assert_array_equal(found["x"], np.float32([1, 2]), strict=True)
