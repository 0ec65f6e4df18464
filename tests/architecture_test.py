"""The direction of imports, and what each package may not import, as the structure of the house demands."""

from __future__ import annotations

import ast
import collections
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PACKAGE = Path(__file__).parent.parent / "motif_jax"
# From the top of the house to its ground: a module imports from folders behind its own, or its own.
ORDER = [
    "launch", "stages", "agents", "text_agents", "wrappers", "benchmarks", "reports", "rollouts", "rl", "trainers", "published",
    "devices", "language", "algorithms", "rewards", "networks", "labels", "actors", "envs", "datasets", "sections", "schema", "support",
]  # fmt: skip
JAX_FREE = {"launch", "reports", "actors", "envs", "labels", "datasets", "sections", "schema", "support"}
JAX_ALLOWED_FILES = {"support/checkpoints.py", "support/checkpoint_items.py", "support/profiling.py"}
JAX_FAMILY = {"jax", "jaxlib", "flax", "optax", "chex", "orbax"}
ONLY_IN = {
    "flax": ("networks/", "language/"),
    "orbax": ("support/checkpoints.py",),
    "nle": ("envs/nethack/",),
    "minigrid": ("envs/babyai_text/", "envs/minigrid_events/", "envs/minihack/"),
    # Below the stages functions take values or a class of sections/, no ConfigDict.
    "ml_collections": (
        "launch.py",
        "stages/",
        "benchmarks/",
        "schema.py",
        "sections/",
        "support/resources.py",
    ),
}
MOST_LINES = 420
MOST_ARGUMENTS = 7  # of a constructor, dataclasses of values apart
# What a user imports keeps its name, whatever stands below it.
PUBLIC = {"agents.py", "text_agents.py", "wrappers.py"}


# Each file below PACKAGE, and what its text means.
TEXTS = {
    str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
    if path != PACKAGE / "__init__.py"
}
TREES = {name: ast.parse(text) for name, text in TEXTS.items()}


def imports(name: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: imports are absolute"
            yield node.module or "", node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def layer(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if parts[0] == "motif_jax" and len(parts) > 1 and parts[1] in ORDER else None


def own_layer(file: str) -> str:
    return file.partition("/")[0].removesuffix(".py")


def wrong_imports(file: str) -> Iterator[str]:
    own = own_layer(file)
    for name, line in imports(file):
        target, root = layer(name), name.split(".")[0]
        if target is not None and ORDER.index(target) < ORDER.index(own):
            yield f"{file}:{line} imports {name}, which lies above {own}"
        if root in JAX_FAMILY and own in JAX_FREE and file not in JAX_ALLOWED_FILES:
            yield f"{file}:{line} imports {root}: {own} is free of jax"
        if root in ONLY_IN and not file.startswith(ONLY_IN[root]):
            yield f"{file}:{line} imports {root}, which only {', '.join(ONLY_IN[root])} may"


def test_imports_point_downwards_and_libraries_stay_where_they_belong() -> None:
    assert {own_layer(file) for file in TEXTS} <= set(ORDER)
    assert not [problem for file in TEXTS for problem in wrong_imports(file)]


def test_no_file_is_too_long_to_read() -> None:
    lines = {file: len(text.splitlines()) for file, text in TEXTS.items()}
    assert {file: count for file, count in lines.items() if count > MOST_LINES} == {}


def test_pmap_has_one_home_a_class_name_one_meaning_and_a_constructor_few_arguments() -> None:
    pmap, classes, constructors = set(), collections.defaultdict(list), {}
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == "pmap":
                pmap.add(file)
            if not isinstance(node, ast.ClassDef):
                continue
            if node in tree.body and not node.name.startswith("_") and file not in PUBLIC:
                classes[node.name].append(file)
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                    given = part.args.posonlyargs + part.args.args + part.args.kwonlyargs
                    constructors[file, part.lineno] = len(given) - 1
    assert pmap == {"devices/parallel.py"}
    assert {name: files for name, files in classes.items() if len(files) > 1} == {}
    assert {place: count for place, count in constructors.items() if count > MOST_ARGUMENTS} == {}


def test_files_do_not_import_each_other_in_circles() -> None:
    """Imports inside functions and for types alone do not count."""
    above: dict[str, set[str]] = {}
    for file, tree in TREES.items():
        heads = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        wanted = {f"{node.module}.{alias.name}" for node in heads for alias in node.names}
        name = f"motif_jax/{file}".removesuffix(".py").replace("/", ".")
        above[name] = {node.module or "" for node in heads} | wanted
    above = {name: needs & above.keys() for name, needs in above.items()}
    while free := {name for name, needs in above.items() if not needs}:
        above = {name: needs - free for name, needs in above.items() if name not in free}
    assert above == {}
