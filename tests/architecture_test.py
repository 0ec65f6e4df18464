"""The direction of imports, and what each package may not import, as the structure of the house demands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "motif_jax"
# From the top of the house to its ground: a module imports from lines below its own, or its own package.
ORDER = (
    "launch stages benchmarks reports runtime algorithms rewards networks actors envs annotation datasets support"
).split()
JAX_FREE = {"launch", "reports", "actors", "envs", "annotation", "datasets", "support"}
JAX_ALLOWED_FILES = {"support/checkpoints.py", "support/profiling.py"}
JAX_FAMILY = {"jax", "jaxlib", "flax", "optax", "chex", "orbax"}
ONLY_IN = {"flax": ("networks/",), "orbax": ("support/checkpoints.py",), "nle": ("envs/",)}


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


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    own = ORDER.index(own_layer(path))
    for name, line in imports(path):
        target = layer(name)
        if target is not None:
            assert ORDER.index(target) >= own, f"{path}:{line} imports {name}, which lies above {ORDER[own]}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_libraries_stay_where_they_belong(path: Path) -> None:
    relative = str(path.relative_to(PACKAGE))
    for name, line in imports(path):
        root = name.split(".")[0]
        if root in JAX_FAMILY and own_layer(path) in JAX_FREE:
            assert relative in JAX_ALLOWED_FILES, f"{path}:{line}: {own_layer(path)} is free of jax"
        if root in ONLY_IN:
            assert relative.startswith(ONLY_IN[root]), (
                f"{path}:{line}: {root} is imported only in {ONLY_IN[root]}"
            )


def test_pmap_has_one_home() -> None:
    homes = {
        str(path.relative_to(PACKAGE))
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "pmap"
    }
    assert homes <= {"runtime/parallel.py"}


def test_every_layer_is_known() -> None:
    there = {p.name for p in PACKAGE.iterdir() if p.is_dir() and any(p.glob("*.py"))}
    assert there <= set(ORDER)


def test_files_stay_readable() -> None:
    too_long = {
        str(p.relative_to(PACKAGE)): n for p in modules() if (n := len(p.read_text().splitlines())) > 420
    }
    assert not too_long
