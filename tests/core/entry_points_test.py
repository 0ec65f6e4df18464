"""Parts by 'module:Class'."""

from __future__ import annotations

import pytest

from motif_jax.core import entry_points
from motif_jax.core.errors import UserError


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "motif_jax.core.errors,no_such_module:Class,:Class,json:,unfinished_module"
    monkeypatch.setenv("MOTIF_JAX_TRUST", names)


def test_a_class_of_any_module_is_found() -> None:
    assert entry_points.load("policy", "motif_jax.core.errors:UserError") is UserError
    assert entry_points.is_entry_point("a:B")
    others = ("NetHackScore-v1", None, "/data/runs/12:30", "runs/a:b")
    assert not any(map(entry_points.is_entry_point, others))


def test_a_registry_imports_a_part_when_it_is_loaded() -> None:
    registry = entry_points.Registry(
        "policy", {"error": "motif_jax.core.errors:UserError", "lost": "no_such_module:A"}
    )
    assert registry.load("error") is UserError
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        registry.load("lost")
