"""Draws docs/images/architecture.svg from the imports of the package, so that the picture stays
true.

    python launch/draw_architecture.py            writes the picture
    python launch/draw_architecture.py --check    ends with 1 if the picture is not what the imports
                                                  say

A folder stands above what it imports. An arrow is left out where others lead to the same folder,
and where it leads to core/, which everything imports. An arrow that points upwards is red: an
import against the rules of tests/architecture_test.py.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "motif_jax"
PICTURE = REPOSITORY / "docs" / "images" / "architecture.svg"

# Rows from the top of the house to its ground; each folder with the words below its name.
ROWS: tuple[tuple[tuple[str, str], ...], ...] = (
    (
        ("reports", "pages of runs and studies"),
        ("benchmarks", "measurements"),
    ),
    (("published", "others' files"),),
    (
        ("motif", "a reward from preferences"),
        ("oni", "labels while it plays"),
        ("glam", "the model is the agent"),
        ("ilql", "agents that speak"),
    ),
    (("play", "episodes, evaluation, films"),),
    (("rl", "APPO, PPO, actors, learner"),),
    (("lm", "language models"), ("nets", "networks of agents and rewards")),
    (
        ("envs", "NetHack, MiniHack, minigrid, gymnasium"),
        ("display", "statistics, tables, charts, pages"),
    ),
    (("core", "files, checkpoints, devices, the offline trainer"),),
)
GROUND = "core"
WIDTH = 1000
ROW_HEIGHT = 104
BOX_HEIGHT = 46
BOX_WIDTH = 190
MARGIN = 30


def folder_of(module: str) -> str:
    """The folder of a module of the package: 'rl' of 'motif_jax.rl.learner'."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def arrows() -> set[tuple[str, str]]:
    """(importing folder, imported folder) over all files, inside functions too; without those that
    the text above leaves out.
    """
    folders = {name for row in ROWS for name, _ in row}
    pairs = set()
    for path in PACKAGE.rglob("*.py"):
        importing = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            for module in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                if module.split(".")[0] == "motif_jax":
                    pairs.add((importing, folder_of(module)))
    pairs = {
        (importing, imported)
        for importing, imported in pairs
        if importing in folders
        and imported in folders
        and imported != GROUND
        and importing != imported
    }
    rows = {name: index for index, row in enumerate(ROWS) for name, _ in row}
    downward = {(upper, lower) for upper, lower in pairs if rows[upper] < rows[lower]}
    implied = {
        (upper, lower)
        for upper, lower in downward
        if any((upper, between) in downward and (between, lower) in downward for between in folders)
    }
    return pairs - implied


def centres() -> dict[str, tuple[float, float]]:
    """The middle of each folder's box, in pixels from the upper left."""
    positions = {}
    for row_index, row in enumerate(ROWS):
        for column, (name, _) in enumerate(row):
            x = WIDTH * (column + 1) / (len(row) + 1)
            y = MARGIN + ROW_HEIGHT * row_index + BOX_HEIGHT / 2
            positions[name] = (x, y)
    return positions


def line(start: tuple[float, float], end: tuple[float, float]) -> str:
    """An arrow from the edge of one box to the edge of another; those within a row bend below the
    boxes.
    """
    if start[1] == end[1]:
        depth = start[1] + BOX_HEIGHT / 2
        middle = (start[0] + end[0]) / 2
        path = f"M {start[0]:.0f} {depth:.0f} Q {middle:.0f} {depth + 34:.0f} {end[0]:.0f} {depth + 3:.0f}"
        return f'<path d="{path}" class="arrow"/>'
    downwards = end[1] > start[1]
    edge = BOX_HEIGHT / 2 if downwards else -BOX_HEIGHT / 2
    kind = "arrow" if downwards else "arrow upwards"
    x1, y1 = start[0], start[1] + edge
    x2, y2 = end[0], end[1] - edge - (3 if downwards else -3)
    return f'<path d="M {x1:.0f} {y1:.0f} L {x2:.0f} {y2:.0f}" class="{kind}"/>'


def picture() -> str:
    """The whole SVG."""
    height = 2 * MARGIN + ROW_HEIGHT * (len(ROWS) - 1) + BOX_HEIGHT
    positions = centres()
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        "<title>Folders of motif_jax and what they import</title>",
        "<style>",
        ".arrow { stroke: #8a94a6; stroke-width: 1.3; fill: none; marker-end: url(#head) }",
        ".upwards { stroke: #c0392b }",
        ".box { fill: #f4f6fa; stroke: #44506a; stroke-width: 1.3 }",
        ".name { font-size: 15px; font-weight: bold; fill: #1d2433; text-anchor: middle }",
        ".words { font-size: 11px; fill: #44506a; text-anchor: middle }",
        "</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M 0 0 L 8 4 L 0 8 z" fill="#8a94a6"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    parts += [
        line(positions[importing], positions[imported]) for importing, imported in sorted(arrows())
    ]
    for row in ROWS:
        for name, words in row:
            x, y = positions[name]
            width = max(BOX_WIDTH, 7 * len(words))
            corner_x = x - width / 2
            corner_y = y - BOX_HEIGHT / 2
            parts.append(
                f'<rect x="{corner_x:.0f}" y="{corner_y:.0f}" width="{width}" height="{BOX_HEIGHT}" rx="6" class="box"/>'
            )
            parts.append(f'<text x="{x:.0f}" y="{y - 3:.0f}" class="name">{name}/</text>')
            parts.append(f'<text x="{x:.0f}" y="{y + 14:.0f}" class="words">{words}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    """Writes the picture, or with --check says whether it is true."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare the picture with the imports")
    text = picture()
    if not parser.parse_args().check:
        PICTURE.write_text(text, encoding="utf-8")
        return 0
    if PICTURE.is_file() and PICTURE.read_text(encoding="utf-8") == text:
        return 0
    print(
        "docs/images/architecture.svg is not what the imports say: python launch/draw_architecture.py",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
