"""The direction of imports, and what each package may not import, as the structure of the house demands."""

from __future__ import annotations

import ast
import collections
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "motif_jax"
# From the top of the house to its ground: a module imports from lines below its own, or its own package.
ORDER = (
    "launch stages agents text_agents wrappers benchmarks reports rollouts rl trainers published devices language algorithms rewards networks "
    "labels actors envs datasets sections schema support"
).split()
JAX_FREE = {"launch", "reports", "actors", "envs", "labels", "datasets", "sections", "schema", "support"}
JAX_ALLOWED_FILES = {"support/checkpoints.py", "support/checkpoint_items.py", "support/profiling.py"}
JAX_FAMILY = {"jax", "jaxlib", "flax", "optax", "chex", "orbax"}
ONLY_IN = {
    "flax": ("networks/", "language/"),
    "orbax": ("support/checkpoints.py",),
    "nle": ("envs/nethack/",),
    "minigrid": ("envs/babyai_text/", "envs/minigrid_events/", "envs/minihack/"),
}
MOST_LINES = 420
MOST_ARGUMENTS = 7  # of a constructor, dataclasses of values apart
# Lines of each folder's Python; a change that raises one says why in its commit.
BUDGET = {
    "actors": 1730,
    "agents": 220,
    "algorithms": 2910,
    "benchmarks": 1940,
    "datasets": 2550,
    "devices": 820,
    "envs": 8490,
    "labels": 4130,
    "language": 5890,
    "launch": 340,
    "networks": 1840,
    "published": 1780,
    "reports": 5950,
    "rewards": 2400,
    "rl": 3420,
    "rollouts": 4780,
    "schema": 230,
    "sections": 350,
    "stages": 4360,
    "support": 2870,
    "text_agents": 230,
    "trainers": 5260,
    "wrappers": 340,
}
# What a user imports keeps its name, whatever stands below it.
PUBLIC = {"agents.py", "text_agents.py", "wrappers.py"}


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py" or p.parent != PACKAGE)


def imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            yield node.module or "", node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def layer(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if parts[0] == "motif_jax" and len(parts) > 1 and parts[1] in ORDER else None


def own_layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def wrong_imports(path: Path) -> Iterator[str]:
    own, relative = own_layer(path), str(path.relative_to(PACKAGE))
    for name, line in imports(path):
        target, root = layer(name), name.split(".")[0]
        if target is not None and ORDER.index(target) < ORDER.index(own):
            yield f"{relative}:{line} imports {name}, which lies above {own}"
        if root in JAX_FAMILY and own in JAX_FREE and relative not in JAX_ALLOWED_FILES:
            yield f"{relative}:{line} imports {root}: {own} is free of jax"
        if root in ONLY_IN and not relative.startswith(ONLY_IN[root]):
            yield f"{relative}:{line} imports {root}, which only {', '.join(ONLY_IN[root])} may"


@pytest.mark.slow
def test_imports_point_downwards_and_libraries_stay_where_they_belong() -> None:
    rooms = {p.name for p in PACKAGE.iterdir() if p.is_dir() and any(p.glob("*.py"))}
    assert rooms <= set(ORDER)
    assert not [problem for path in modules() for problem in wrong_imports(path)]


@pytest.mark.slow
def test_files_stay_readable_and_pmap_has_one_home() -> None:
    too_long = {
        str(path.relative_to(PACKAGE)): lines
        for path in modules()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MOST_LINES
    }
    homes = {
        str(path.relative_to(PACKAGE))
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "pmap"
    }
    assert not too_long
    assert homes == {"devices/parallel.py"}


@pytest.mark.slow
def test_no_folder_grows_unnoticed() -> None:
    lines: collections.Counter[str] = collections.Counter()
    for path in modules():
        lines[own_layer(path)] += len(path.read_text(encoding="utf-8").splitlines())
    assert {room: count for room, count in lines.items() if count > BUDGET[room]} == {}


@pytest.mark.slow
def test_a_class_name_means_one_thing() -> None:
    homes = collections.defaultdict(list)
    for path in modules():
        relative = str(path.relative_to(PACKAGE))
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and relative not in PUBLIC:
                homes[node.name].append(relative)
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def constructors(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for part in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                given = part.args
                yield f"{path.name}:{part.lineno}", len(given.posonlyargs + given.args + given.kwonlyargs) - 1


@pytest.mark.slow
def test_a_constructor_takes_few_arguments() -> None:
    found = dict(pair for path in modules() for pair in constructors(path))
    assert {place: count for place, count in found.items() if count > MOST_ARGUMENTS} == {}


@pytest.mark.slow
def test_files_do_not_import_each_other_in_circles() -> None:
    """Imports inside functions and for types alone do not count."""
    files = {
        str(path.relative_to(PACKAGE.parent).with_suffix("")).replace("/", "."): path for path in modules()
    }
    above: dict[str, set[str]] = {}
    for name, path in files.items():
        heads = [
            node
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.ImportFrom)
        ]
        wanted = {f"{node.module}.{alias.name}" for node in heads for alias in node.names}
        above[name] = ({node.module or "" for node in heads} | wanted) & files.keys()
    while free := {name for name, needs in above.items() if not needs}:
        above = {name: needs - free for name, needs in above.items() if name not in free}
    assert above == {}
