"""Matching foreign tensors to layers."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.published.name_matching import match


def arrays(**shapes):
    return [(name, np.zeros(shape)) for name, shape in shapes.items()]


ROWS = {"reward_head/weight": (1, 8)}
TWO = {"fc1/w": (2, 3), "fc2/w": (2, 3)}


def test_tensors_of_one_shape_are_matched_in_their_order():
    file = arrays(a=(4, 4), b=(4, 2), c=(4,), d=(4, 4), e=(9,))
    layers = {
        "conv1/weight": (4, 2),
        "conv2/weight": (4, 4),
        "conv3/weight": (4, 4),
        "conv1/bias": (4,),
    }
    matched = match(file, layers)
    assert matched.names == {
        "conv1/weight": "b",
        "conv2/weight": "a",
        "conv3/weight": "d",
        "conv1/bias": "c",
    }
    assert (matched.left_over, matched.notes) == (("e",), ())


@pytest.mark.parametrize(
    ("file", "layers", "names"),
    [
        (
            {"critic": (1, 8), "reward_linear": (1, 8)},
            ROWS,
            {"reward_head/weight": "reward_linear"},
        ),
        (
            {"critic": (1, 8), "REWARD": (1, 8)},
            {"value_head/w": (1, 8), **ROWS},
            {"value_head/w": "critic", "reward_head/weight": "REWARD"},
        ),
        (
            {"msg_net": (8, 8), "blstats_net": (8, 8)},
            {"vector_fc2/weight": (8, 8), "message_fc2/weight": (8, 8)},
            {"vector_fc2/weight": "blstats_net", "message_fc2/weight": "msg_net"},
        ),
        (
            {"actor.logits": (2,), "gru.core": (2,), "z": (2,)},
            {"policy_head/b": (2,), "image_fc/b": (2,), "gru_x/b": (2,)},
            {"policy_head/b": "actor.logits", "image_fc/b": "z", "gru_x/b": "gru.core"},
        ),
    ],
)
def test_hints_in_names_go_before_the_order_and_are_noted(file, layers, names):
    matched = match(arrays(**file), layers)
    assert matched.names == names
    assert all(": by its name, among " in note for note in matched.notes)
    assert matched.notes


def test_a_tensor_that_is_chosen_by_hand_leaves_the_others():
    matched = match(arrays(x=(1, 8), y=(1, 8)), ROWS, {"reward_head/weight": "y"})
    assert (matched.names, matched.left_over) == ({"reward_head/weight": "y"}, ("x",))
    assert match(arrays(a=(2, 3), b=(2, 3)), TWO, {"fc1/w": "b"}).names == {
        "fc1/w": "b",
        "fc2/w": "a",
    }


@pytest.mark.parametrize(
    ("file", "arguments", "words"),
    [
        (
            {"x": (1, 8), "y": (1, 8)},
            (ROWS,),
            "reward_head/weight may each be any of x, y, .*: choose by hand",
        ),
        (
            {"reward.x": (1, 8), "reward.y": (1, 8)},
            (ROWS,),
            r"may each be any of reward\.x, reward\.y, .*: choose by hand",
        ),
        (
            {"a": (2, 3)},
            (TWO,),
            r"fc1/w, fc2/w: shape \[2, 3\] is needed 2 times, the file has it 1 times",
        ),
        (
            {"a": (2, 3)},
            ({"fc1/w": (3, 2)}, {"fc1/w": "a"}),
            r"a has shape \[2, 3\], fc1/w \[3, 2\]",
        ),
        (
            {"a": (2, 3)},
            (TWO, {"fc9/w": "a"}),
            "fc9/w=a: the network has no fc9/w or the file no a",
        ),
        (
            {"a": (2, 3)},
            (TWO, {"fc1/w": "z"}),
            "fc1/w=z: the network has no fc1/w or the file no z",
        ),
        (
            {"a": (2, 3), "b": (2, 3)},
            (TWO, {"fc1/w": "a", "fc2/w": "a"}),
            "a is chosen for two layers, of which fc2/w is one",
        ),
    ],
)
def test_tensors_that_cannot_be_matched_are_named(file, arguments, words):
    with pytest.raises(ValueError, match=words):
        match(arrays(**file), *arguments)


def test_matched_tensors_are_float32():
    file = [("a", np.array([1.0, 2.0]))]
    tensors = match(file, {"x": (2,)}).tensors(file)
    np.testing.assert_array_equal(tensors["x"], np.float32([1, 2]), strict=True)
