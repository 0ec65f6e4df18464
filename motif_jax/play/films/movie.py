"""Writes films as GIF."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.display import charts
from motif_jax.play.messages import as_text
from motif_jax.play.watching import Film

BACK = (12, 13, 16)
# The 16 colours of the terminal, light enough on the dark screen.
COLOURS = (
    (107, 114, 128), (229, 83, 75), (87, 171, 90), (198, 144, 38), (108, 182, 255), (198, 120, 221), (86, 182, 194),
    (200, 204, 210), (138, 145, 156), (255, 123, 114), (126, 231, 135), (242, 204, 96), (165, 214, 255),
    (226, 168, 255), (139, 233, 253), (255, 255, 255),
)  # fmt: skip
_BAR_HEIGHT = 46
_TEXT_ROWS = 2
_MIN_WIDTH = 400  # of a frame with a picture that is not a terminal's
_BAR = (194, 87, 12)
_PAID = (126, 231, 135)
_INK = (200, 204, 210)
_NOW = (255, 255, 255)


@lru_cache(maxsize=1)
def _font_file() -> str:
    import matplotlib

    # DejaVu Sans Mono comes with matplotlib, so pictures are equal on all machines.
    return str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono.ttf")


@lru_cache(maxsize=4)
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.truetype(_font_file(), size)


# A screen repeats few cells: each is drawn once.
@lru_cache(maxsize=4096)
def _tile(character: int, color: int, size: int) -> np.ndarray:
    """One cell of the screen, uint8 [height, width, 3]."""
    from PIL import Image, ImageDraw

    font = _font(size)
    ink = COLOURS[color & 15]
    back = BACK
    if color & 16:
        ink, back = back, ink
    image = Image.new("RGB", (round(font.getlength("M")), size + 4), back)
    if 32 < character < 127:
        ImageDraw.Draw(image).text((0, 1), chr(character), font=font, fill=ink)
    return np.asarray(image)


def _screen(film: Film, step: int, size: int) -> np.ndarray:
    rows = []
    for chars, colors in zip(film.chars[step], film.colors[step] & 31, strict=True):
        tiles = [
            _tile(int(char), int(color), size) for char, color in zip(chars, colors, strict=True)
        ]
        rows.append(np.concatenate(tiles, axis=1))
    return np.concatenate(rows, axis=0)


def _picture(png: bytes) -> np.ndarray:
    """A picture uint8 [height, width, 3]."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def _enlarged(picture: np.ndarray) -> np.ndarray:
    """A picture uint8 [height, width, 3], a whole number of times as large: at least `_MIN_WIDTH`
    pixels wide.
    """
    times = math.ceil(_MIN_WIDTH / picture.shape[1])
    return picture.repeat(times, axis=0).repeat(times, axis=1)


def frame(film: Film, step: int, size: int = 12) -> np.ndarray:
    """One step, uint8 [height, width, 3]: the screen, a line of numbers, and bars of the intrinsic
    rewards so far.

    Args:
      size: of the letters.
    """
    from PIL import Image, ImageDraw

    if film.pictures is None:
        screen = _screen(film, step, size)
    else:
        screen = _enlarged(_picture(film.pictures[step]))
    height, width, _ = screen.shape
    line_height = size + 6
    image = Image.new("RGB", (width, height + _TEXT_ROWS * line_height + _BAR_HEIGHT), BACK)
    image.paste(Image.fromarray(screen), (0, 0))
    draw = ImageDraw.Draw(image)
    font = _font(size)
    facts = charts.drawable(_facts(film, step), _font_file())
    draw.text((4, height + 2), facts, font=font, fill=_INK)

    # Sentences of a grid world are lines; a movie has room for one.
    text = as_text(film.texts[film.text_index[step]]).replace("\\x0a", " ") or "(no message)"
    is_paid = film.intrinsic is not None and film.intrinsic[step] > 0
    letters = width // max(1, round(font.getlength("M"))) - 1
    position = (4, height + line_height + 2)
    shown = charts.drawable(text, _font_file())[:letters]
    draw.text(position, shown, font=font, fill=_PAID if is_paid else _INK)

    rewards = film.task_rewards if film.intrinsic is None else film.intrinsic
    draw_bars(draw, rewards, step, width, height + _TEXT_ROWS * line_height)
    return np.asarray(image)


def _facts(film: Film, step: int) -> str:
    action = film.action_names[film.actions[step]] if step < len(film.actions) else "end"
    returned = film.task_rewards[: step + 1].sum()
    facts = f"step {step}/{len(film) - 1}  next {action}  return {returned:.1f}"
    if film.intrinsic is not None:
        # Adding 0 turns -0.0 into 0.0.
        reward = round(float(film.intrinsic[step]), 2) + 0.0
        facts += f"  intrinsic {film.intrinsic[: step + 1].sum():.2f} ({reward:+.2f})"
    if film.values is not None and step < len(film.values):
        facts += f"  value {film.values[step]:.2f}"
    return facts


def draw_bars(draw: Any, rewards: np.ndarray, step: int, width: int, top: int) -> None:
    """Draws the rewards [steps] over the whole width, and where `step` is."""
    # What is no number, or too large for one, has no bar: the library draws a line to it for
    # seconds.
    rewards = np.nan_to_num(rewards.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    high = max(float(rewards.max()), 1e-9)
    low = min(0.0, float(rewards.min()))
    # The height of 0, between the lowest reward and the highest.
    zero = top + _BAR_HEIGHT - 6 - (0 - low) / (high - low) * (_BAR_HEIGHT - 12)

    def x_of(row: int) -> float:
        return 4 + row / max(1, len(rewards) - 1) * (width - 8)

    for row in np.flatnonzero(np.abs(rewards) > 0.005).tolist():
        y = zero - float(rewards[row]) / (high - low) * (_BAR_HEIGHT - 12)
        draw.line([(x_of(row), zero), (x_of(row), y)], fill=_BAR if row <= step else COLOURS[0])
    x = x_of(step)
    draw.line([(x, top + 2), (x, top + _BAR_HEIGHT - 2)], fill=_NOW)


def gif(film: Film, steps: list[int], frames_per_second: float = 10.0, size: int = 10) -> bytes:
    """At least one step of a film with a screen as an animated GIF; `size` as for `frame`."""
    from PIL import Image

    # With one palette for all frames only changed pixels are stored.
    palette = _palette(film, steps)
    frames = (Image.fromarray(frame(film, step, size)) for step in steps)
    images = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in frames)
    return animated(images, round(1000 / frames_per_second))


def _palette(film: Film, steps: list[int]) -> Any:
    """At most 256 colours: the terminal's, their mixtures with the background at the edges of
    letters, and those of pictures.
    """
    from PIL import Image

    colours = {BACK, _BAR, _PAID, _INK, _NOW, *COLOURS}
    mixtures: set[tuple[int, ...]] = set()
    for colour in colours:
        for parts in (1, 2, 3):
            mixture = [
                (parts * ink + (4 - parts) * back) // 4
                for ink, back in zip(colour, BACK, strict=True)
            ]
            mixtures.add(tuple(mixture))
    entries = sorted(colours | mixtures)[:256]
    if film.pictures is not None:
        # Every picture would take minutes; sixteen have the colours.
        sample = steps[:: max(1, len(steps) // 16)]
        pictures = [_picture(film.pictures[step]) for step in sample]
        free = 256 - len(entries)
        values = Image.fromarray(np.concatenate(pictures)).quantize(free).getpalette() or []
        picture_colours = [
            tuple(values[start : start + 3]) for start in range(0, len(values) - 2, 3)
        ]
        entries += picture_colours[:free]
    palette = Image.new("P", (1, 1))
    # A palette has 256 entries of three bytes.
    padding = [0] * (768 - 3 * len(entries))
    palette.putpalette([value for entry in entries for value in entry] + padding)
    return palette


def animated(images: Iterator[Any], duration: int) -> bytes:
    """An animated GIF of images that share a palette, each shown for `duration` milliseconds.

    Writes the same bytes as Pillow's `save`, but holds three frames in memory where `save` holds
    all (1 GB for thousands). Only the changed part of a frame is stored; equal frames are joined
    into one that is shown longer.
    """
    from PIL import GifImagePlugin, ImageChops

    first = next(images)
    last = first
    parts: list[bytes] = []
    options = {"loop": 0, "optimize": False}
    # of `last` against the frame before; None for the first frame
    changed_box: tuple[int, int, int, int] | None = None
    shown_for = duration

    def write_last() -> None:
        if changed_box is None:
            parts.extend(GifImagePlugin.getheader(last, info={**options, "duration": shown_for})[0])
            parts.extend(GifImagePlugin.getdata(last, duration=shown_for))
        else:
            part = last.crop(changed_box)
            parts.extend(
                GifImagePlugin.getdata(
                    part, changed_box[:2], duration=shown_for, include_color_table=True
                )
            )

    for image in images:
        # Indices of one palette are compared, without their colours.
        box = ImageChops.subtract_modulo(image, last).getbbox()
        if box is None:
            shown_for += duration
            continue
        write_last()
        last = image
        changed_box = box
        shown_for = duration
    if changed_box is None:  # no pixel changed
        buffer = io.BytesIO()
        first.save(buffer, "GIF", duration=shown_for, **options)
        return buffer.getvalue()
    write_last()
    # The semicolon is a GIF's trailer.
    return b"".join([*parts, b";"])
