"""NetHack pictures, status features and frames, the first two against published data."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.nethack import tiles
from motif_jax.envs.nethack.renderer import NetHackRenderer
from motif_jax.envs.nethack.status import BLSTATS_CLIP, BLSTATS_SCALE, X, Y
from motif_jax.nets.layers import scale_status
from tests.envs.nethack.fake_engine import FakeEngine, started_on


def test_published_pictures(golden):
    data = golden("render_and_vector.npz")
    table = tiles.load_tiles()
    np.testing.assert_array_equal(table, data["char_cache"])
    played = zip(
        data["tty_chars"], data["tty_colors"], data["blstats"][:, :2], data["obs"], strict=True
    )
    synthetic = zip(
        data["syn_tty_chars"], data["syn_tty_colors"], data["syn_xy"], data["syn_obs"], strict=True
    )
    engine = FakeEngine({})
    env, out = started_on(engine, compat={"crop_row_offset": True})
    for chars, colors, (x, y), expected in (*played, *synthetic):
        engine.first = {"x": int(x), "y": int(y)}
        engine.buffers.tty_chars[:] = chars
        engine.buffers.tty_colors[:] = colors
        # Stale contents: the reset must overwrite every field.
        for array in out.values():
            array[...] = 0x55
        env.reset(0, out)
        cells = table[out["window_chars"], out["window_colors"]]  # [12, 12, 6, 6, 3]
        np.testing.assert_array_equal(cells.transpose(4, 0, 2, 1, 3).reshape(3, 72, 72), expected)


@pytest.mark.parametrize("compat", [None, {"crop_row_offset": True}])
def test_every_place_on_the_map(compat):
    rng = np.random.default_rng(0)
    chars = rng.integers(1, 256, (24, 80)).astype(np.uint8)
    colors = rng.integers(1, 16, (24, 80)).astype(np.int8)
    # With a border of zeros, so that no window ends outside.
    padded = [np.pad(array.view(np.uint8), 16) for array in (chars, colors)]
    engine = FakeEngine({})
    env, out = started_on(engine, compat=compat)
    engine.buffers.tty_chars[:] = chars
    engine.buffers.tty_colors[:] = colors
    for y, x in itertools.product(range(21), range(79)):
        engine.first = {"x": x, "y": y}
        env.reset(0, out)
        for name, array in zip(("window_chars", "window_colors"), padded, strict=True):
            # The screen's first row is the message; the published windows leave that out of
            # account.
            message_rows = 0 if compat else 1
            top = 16 + y - 6 + message_rows
            left = 16 + x - 6
            np.testing.assert_array_equal(
                out[name], array[top : top + 12, left : left + 12], f"{x}, {y}"
            )


def test_status_features(golden):
    data = golden("render_and_vector.npz")
    np.testing.assert_allclose(
        scale_status(data["blstats"]), data["vector_obs"], rtol=1e-6, atol=1e-6
    )
    np.testing.assert_allclose(BLSTATS_SCALE, data["blstat_scale"], rtol=1e-6)
    np.testing.assert_array_equal([-BLSTATS_CLIP, BLSTATS_CLIP], data["blstat_clip"])
    for far in (-(10**6), 10**6):
        assert np.abs(scale_status(np.full((2, 27), far, np.int32))).max() == BLSTATS_CLIP


def test_a_frames_cursor_is_a_row_below_the_map_position():
    status = np.arange(100, 127, dtype=np.int32)
    status[[X, Y]] = 7, 3
    screen = np.full((2, 24, 80), 7, np.uint8)
    observation = {"tty_chars": screen[0], "tty_colors": screen[1], "blstats": status}

    frame = NetHackRenderer(registry.spec("NetHackScore-v1")).frame(observation)

    np.testing.assert_array_equal(frame.chars, screen[0])
    np.testing.assert_array_equal(frame.colors, screen[1])
    assert frame.cursor == (4, 7)
    # The message's row, and the first row of the map, which no level uses.
    assert frame.spare_rows == (0, 1)
    # Each number of the status line is 100 above its index in nle's blstats.
    assert frame.numbers == {
        "depth": 112,
        "score": 109,
        "gold": 113,
        "level": 118,
        "hp": 110,
        "max hp": 111,
        "turn": 120,
        "hunger": 121,
    }
    assert frame.notes == {}
    assert frame.picture is None
