"""Made-up texts for trainings of language models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

WORDS = "the a red blue small old key door box ball is was opens holds under behind near and then you see take drop".split()


def sentences(count: int, seed: int = 0) -> list[str]:
    draws = np.random.default_rng(seed)
    return [" ".join(draws.choice(WORDS, draws.integers(4, 12))) + "." for _ in range(count)]


def write(folder: Path, count: int = 60, prompts: bool = False) -> Path:
    """A file of `count` items: paragraphs of two sentences, or objects with a prompt and a text."""
    folder.mkdir(parents=True, exist_ok=True)
    words = sentences(2 * count)
    pairs = list(zip(words[::2], words[1::2], strict=True))
    if prompts:
        path = folder / "texts.jsonl"
        path.write_text(
            "".join(json.dumps({"prompt": a, "text": " " + b}) + "\n" for a, b in pairs)
        )
    else:
        path = folder / "texts.txt"
        path.write_text("\n\n".join(f"{a}\n{b}" for a, b in pairs) + "\n")
    return path
