"""The direction of imports, and what each package may not import, as the structure of the house
demands.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PACKAGE = Path(__file__).parent.parent / "motif_jax"
# What each folder may import besides itself, as docs/architecture.md says. Modules of a user's own
# (agents.py, wrappers.py, ...) and the table of stages lie above all of them.
GROUND = {"schema", "core"}
FOLDERS = {
    "core": {"schema"},
    "schema": {"core"},
    "envs": GROUND,
    "nets": GROUND | {"envs"},
    "display": GROUND,
    "lm": GROUND | {"envs", "nets", "display"},
    "rl": GROUND | {"envs", "nets", "lm"},
    "play": GROUND | {"envs", "nets", "lm", "rl", "display"},
}
SHARED = set(FOLDERS)
METHODS = {"motif": set(), "oni": {"motif"}, "glam": set(), "ilql": set()}
FOLDERS |= {method: SHARED | others for method, others in METHODS.items()}
FOLDERS |= {
    "published": SHARED | METHODS.keys() | {"rewards"},
    "reports": SHARED | METHODS.keys() | {"published"},
    "benchmarks": SHARED | METHODS.keys() | {"published"},
}
TOP = {
    "launch",
    "running",
    "command_line",
    "stages",
    "agents",
    "text_agents",
    "wrappers",
    "rewards",
}
# What actor processes and readers of data need is free of jax, in files that these do not name.
JAX_FREE = {
    "launch", "running", "command_line", "stages", "schema", "envs", "display", "reports", "core", "rl/actors", "motif/annotation", "motif/pairs", "motif/explanation",
    "motif/explanation_page", "glam/generalisation_files", "ilql/dialogues", "ilql/tasks",
    "ilql/evaluation/text_games_page",
}  # fmt: skip
JAX_ALLOWED = (
    "core/devices/", "core/training/", "core/checkpoint", "core/profiling.py", "ilql/tasks/reddit/",
    "ilql/dialogues/dialogue_batches.py",
)  # fmt: skip
JAX_FAMILY = {"jax", "jaxlib", "flax", "optax", "chex", "orbax"}
ONLY_IN = {
    "flax": ("nets/", "lm/", "glam/", "ilql/agent/", "ilql/tasks/reddit/", "published/exports.py"),
    "orbax": ("core/checkpoints.py",),
    "nle": ("envs/nethack/",),
    "crafter": ("envs/crafter/",),
    "minigrid": ("envs/babyai_text/", "envs/minigrid_events/", "envs/minihack/"),
}


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Each file below PACKAGE, parsed."""
    return {
        str(path.relative_to(PACKAGE)): parsed(path)
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != PACKAGE / "__init__.py"
    }


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(name: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(trees()[name]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: imports are absolute"
            yield node.module or "", node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def folder_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "motif_jax" and len(parts) > 1 else None


def forbidden_imports(file: str) -> Iterator[str]:
    """Imports of a file that the structure of the house forbids."""
    folder = file.partition("/")[0].removesuffix(".py")
    jax_free = any(file == f"{name}.py" or file.startswith(f"{name}/") for name in JAX_FREE)
    for name, line in imports(file):
        target = folder_of(name)
        allowed = FOLDERS.get(folder, set()) | {folder}
        if target is not None and folder not in TOP and target not in allowed:
            yield f"{file}:{line} imports {name}: {folder} may not import {target}"
        root = name.split(".")[0]
        if root in JAX_FAMILY and jax_free and not file.startswith(JAX_ALLOWED):
            yield f"{file}:{line} imports {root}: it must be free of jax"
        if root in ONLY_IN and not file.startswith(ONLY_IN[root]):
            yield f"{file}:{line} imports {root}, which only {', '.join(ONLY_IN[root])} may"


def test_imports_follow_the_structure_of_the_house() -> None:
    assert not [problem for file in trees() for problem in forbidden_imports(file)]


def test_the_picture_of_the_house_shows_its_imports() -> None:
    script = PACKAGE.parent / "launch" / "draw_architecture.py"
    subprocess.run([sys.executable, script, "--check"], check=True)


def test_every_folder_with_modules_is_a_package() -> None:
    """Else the wheel lacks it."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert {folder for folder in folders if not (folder / "__init__.py").is_file()} == set()


def test_files_do_not_import_each_other_in_circles() -> None:
    """Imports inside functions and for types alone do not count."""
    above: dict[str, set[str]] = {}
    for file, tree in trees().items():
        heads = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        wanted = {f"{node.module}.{alias.name}" for node in heads for alias in node.names}
        name = f"motif_jax/{file}".removesuffix(".py").replace("/", ".")
        above[name] = {node.module or "" for node in heads} | wanted
    above = {name: needs & above.keys() for name, needs in above.items()}
    while free := {name for name, needs in above.items() if not needs}:
        above = {name: needs - free for name, needs in above.items() if name not in free}
    assert above == {}
