"""Writes films as GIF."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.play.messages import as_text, escaped
from motif_jax.play.watching import Film

BACK = (12, 13, 16)
# The 16 colours of the terminal, light enough on the dark screen.
COLOURS = (
    (107, 114, 128), (229, 83, 75), (87, 171, 90), (198, 144, 38), (108, 182, 255), (198, 120, 221), (86, 182, 194),
    (200, 204, 210), (138, 145, 156), (255, 123, 114), (126, 231, 135), (242, 204, 96), (165, 214, 255),
    (226, 168, 255), (139, 233, 253), (255, 255, 255),
)  # fmt: skip
_BAR_HEIGHT, _TEXT_ROWS, _LEAST_WIDTH = 46, 2, 400
_BAR, _GOOD, _INK, _NOW = (194, 87, 12), (126, 231, 135), (200, 204, 210), (255, 255, 255)


@lru_cache(maxsize=4)
def _font(size: int) -> Any:
    import matplotlib
    from PIL import ImageFont

    # DejaVu Sans Mono comes with matplotlib, so pictures are equal on all machines.
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono.ttf"
    return ImageFont.truetype(str(path), size)


def _drawable(text: str, font: Any) -> str:
    """`text` with escapes for the letters that `font` lacks, which would all be the same empty box."""
    box = bytes(font.getmask("\uffff"))
    return "".join(
        letter if letter.isascii() or bytes(font.getmask(letter)) != box else escaped(letter)
        for letter in text
    )


@lru_cache(maxsize=4096)
def _tile(character: int, color: int, size: int) -> np.ndarray:
    from PIL import Image, ImageDraw

    font, ink, back = _font(size), COLOURS[color & 15], BACK
    if color & 16:
        ink, back = back, ink
    image = Image.new("RGB", (round(font.getlength("M")), size + 4), back)
    if 32 < character < 127:
        ImageDraw.Draw(image).text((0, 1), chr(character), font=font, fill=ink)
    return np.asarray(image)


def _screen(film: Film, step: int, size: int) -> np.ndarray:
    cells = [
        np.concatenate([_tile(int(c), int(k), size) for c, k in zip(chars, colors, strict=True)], axis=1)
        for chars, colors in zip(film.chars[step], film.colors[step] & 31, strict=True)
    ]
    return np.concatenate(cells, axis=0)


def _picture(png: bytes) -> np.ndarray:
    from PIL import Image

    picture = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    times = -(-_LEAST_WIDTH // picture.shape[1])
    return picture.repeat(times, axis=0).repeat(times, axis=1)


def frame(film: Film, step: int, size: int = 12) -> np.ndarray:
    """One step, uint8 [height, width, 3]: the screen, a line of numbers, and bars of the intrinsic rewards so far."""
    from PIL import Image, ImageDraw

    screen = _picture(film.pictures[step]) if film.pictures is not None else _screen(film, step, size)
    height, width = screen.shape[:2]
    line = size + 6
    image = Image.new("RGB", (width, height + _TEXT_ROWS * line + _BAR_HEIGHT), BACK)
    image.paste(Image.fromarray(screen), (0, 0))
    draw, font = ImageDraw.Draw(image), _font(size)
    rewards = film.task_rewards if film.intrinsic is None else film.intrinsic
    action = film.action_names[film.actions[step]] if step < len(film.actions) else "end"
    facts = f"step {step}/{len(film) - 1}  next {action}  return {film.task_rewards[: step + 1].sum():.1f}"
    if film.intrinsic is not None:
        facts += f"  intrinsic {film.intrinsic[: step + 1].sum():.2f} ({round(float(film.intrinsic[step]), 2) + 0.0:+.2f})"
    if film.values is not None and step < len(film.values):
        facts += f"  value {film.values[step]:.2f}"
    draw.text((4, height + 2), facts, font=font, fill=_INK)
    # Sentences of a grid world are lines; a movie has room for one.
    text = as_text(film.texts[film.text_index[step]]).replace("\\x0a", " ") or "(no message)"
    text = _drawable(text, font)
    colour = _GOOD if film.intrinsic is not None and film.intrinsic[step] > 0 else _INK
    fits = width // max(1, round(font.getlength("M"))) - 1
    draw.text((4, height + line + 2), text[:fits], font=font, fill=colour)
    _draw_bars(draw, rewards, step, width, height + _TEXT_ROWS * line)
    return np.asarray(image)


def _draw_bars(draw: Any, rewards: np.ndarray, step: int, width: int, top: int) -> None:
    high, low = max(float(rewards.max()), 1e-9), min(0.0, float(rewards.min()))
    zero = top + _BAR_HEIGHT - 6 - (0 - low) / (high - low) * (_BAR_HEIGHT - 12)
    for row in np.flatnonzero(np.abs(rewards) > 0.005):
        x = 4 + int(row) / max(1, len(rewards) - 1) * (width - 8)
        y = zero - float(rewards[row]) / (high - low) * (_BAR_HEIGHT - 12)
        draw.line([(x, zero), (x, y)], fill=_BAR if row <= step else COLOURS[0])
    x = 4 + step / max(1, len(rewards) - 1) * (width - 8)
    draw.line([(x, top + 2), (x, top + _BAR_HEIGHT - 2)], fill=_NOW)


def chosen_steps(film: Film, start: int, stop: int | None, every: int) -> list[int]:
    """The steps of a movie: every `every`-th of [start, stop), and every step with a reward."""
    stop = len(film) if stop is None else min(stop, len(film))
    rewards = film.task_rewards if film.intrinsic is None else film.intrinsic
    return [
        s for s in range(start, stop) if (s - start) % every == 0 or abs(rewards[s]) > 0.05 or s == stop - 1
    ]


def gif(film: Film, steps: list[int], frames_per_second: float = 10.0, size: int = 10) -> bytes:
    """At least one step of a film with a screen as an animated GIF."""
    from PIL import Image

    frames = (frame(film, step, size) for step in steps)
    # With one palette for all frames only changed pixels are stored.
    colours = {BACK, _BAR, _GOOD, _INK, _NOW, *COLOURS}
    mixed = {
        tuple((part * a + (4 - part) * b) // 4 for a, b in zip(colour, BACK, strict=True))
        for colour in colours
        for part in (1, 2, 3)
    }
    entries = sorted(colours | mixed)[:256]
    if film.pictures is not None:
        some = [_picture(film.pictures[step]) for step in steps[:: max(1, len(steps) // 16)]]
        few = Image.fromarray(np.concatenate(some)).quantize(256 - len(entries)).getpalette() or []
        entries += [tuple(few[at : at + 3]) for at in range(0, len(few) - 2, 3)][: 256 - len(entries)]
    palette = Image.new("P", (1, 1))
    palette.putpalette([v for entry in entries for v in entry] + [0] * (768 - 3 * len(entries)))
    images = (Image.fromarray(array).quantize(palette=palette, dither=Image.Dither.NONE) for array in frames)
    return _encoded(images, round(1000 / frames_per_second))


def _encoded(images: Iterator[Any], duration: int) -> bytes:
    """An animated GIF of images that share a palette, each shown for `duration` milliseconds.

    Writes the same bytes as Pillow's `save`, but holds three frames in memory where `save` holds all (1 GB for thousands).
    Only the changed part of a frame is stored; equal frames are joined into one that is shown longer.
    """
    from PIL import GifImagePlugin, ImageChops

    first = last = next(images)
    parts, options, box, shown = [], {"loop": 0, "optimize": False}, None, duration

    def write() -> None:
        if box is None:
            parts.extend(GifImagePlugin.getheader(last, info={**options, "duration": shown})[0])
            parts.extend(GifImagePlugin.getdata(last, duration=shown))
        else:
            part = last.crop(box)
            parts.extend(GifImagePlugin.getdata(part, box[:2], duration=shown, include_color_table=True))

    for image in images:
        changed = ImageChops.subtract_modulo(image, last).getbbox()
        if changed is None:
            shown += duration
            continue
        write()
        last, box, shown = image, changed, duration
    if box is None:  # no pixel changed
        buffer = io.BytesIO()
        first.save(buffer, "GIF", duration=shown, **options)
        return buffer.getvalue()
    write()
    return b"".join([*parts, b";"])
