"""Matching foreign tensors to layers."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.published.name_matching import match


def arrays(**shapes):
    return [(name, np.zeros(shape)) for name, shape in shapes.items()]


def test_by_shape_and_order():
    wanted = {"conv1/weight": (4, 2), "conv2/weight": (4, 4), "conv3/weight": (4, 4), "conv1/bias": (4,)}
    found = match(arrays(a=(4, 4), b=(4, 2), c=(4,), d=(4, 4), e=(9,)), wanted)
    assert found.names == {"conv1/weight": "b", "conv2/weight": "a", "conv3/weight": "d", "conv1/bias": "c"}
    assert (found.left_over, found.notes) == (("e",), ())


def test_hints_decide_between_heads_and_win_over_the_order_of_the_file():
    found = match(arrays(critic=(1, 8), reward_linear=(1, 8)), {"reward_head/weight": (1, 8)})
    assert found.names == {"reward_head/weight": "reward_linear"}
    assert "by its name" in found.notes[0]
    wanted = {"vector_fc2/weight": (8, 8), "message_fc2/weight": (8, 8)}
    found = match(arrays(msg_net=(8, 8), blstats_net=(8, 8)), wanted)
    assert found.names == {"vector_fc2/weight": "blstats_net", "message_fc2/weight": "msg_net"}


def test_without_a_hint_a_choice_must_be_made_by_hand():
    wanted = {"reward_head/weight": (1, 8)}
    for one, other in (("x", "y"), ("reward.x", "reward.y")):
        with pytest.raises(ValueError, match="choose by hand"):
            match(arrays(**{one: (1, 8), other: (1, 8)}), wanted)
    chosen = {"reward_head/weight": "y"}
    assert match(arrays(x=(1, 8), y=(1, 8)), wanted, chosen).names == chosen


def test_what_does_not_fit_is_named():
    given = arrays(a=(2, 3))
    told = r"fc1/w, fc2/w: shape \[2, 3\] is needed 2 times, the file has it 1"
    with pytest.raises(ValueError, match=told):
        match(given, {"fc1/w": (2, 3), "fc2/w": (2, 3)})
    with pytest.raises(ValueError, match=r"a has shape \[2, 3\], fc1/w \[3, 2\]"):
        match(given, {"fc1/w": (3, 2)}, {"fc1/w": "a"})
    with pytest.raises(ValueError, match="has no fc9/w"):
        match(given, {"fc1/w": (3, 2)}, {"fc9/w": "a"})
