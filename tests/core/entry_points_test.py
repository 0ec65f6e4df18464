"""Parts by 'module:Class'."""

from __future__ import annotations

from pathlib import Path

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
    with pytest.raises(UserError, match="trust=/a/b: must be module:Class, or a module"):
        entry_points.trust(["json", "/a/b"])


@pytest.mark.parametrize(
    ("name", "reason"),
    [("no_such_module", "No module .*"), ("needy_module", "No module named 'no_such_module'")],
)
def test_a_module_without_classes_is_not_asked_for_one(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needy_module.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MOTIF_JAX_TRUST", name)
    line = rf"modules={name}: cannot be imported \({reason}\); must be a module that"
    with pytest.raises(UserError, match=line):
        entry_points.load_module("environment.modules", name)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("no_such_module:Class", ""), ("motif_jax.core.errors:Nothing", ""), (":Class", ""), ("json:", ""),
        ("unfinished_module:Policy", ".*line 2"),
    ],
)  # fmt: skip
def test_a_missing_or_broken_class_is_refused_with_its_key(
    name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unfinished_module.py").write_text("class Policy:\n    def (\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=rf"config\.policy={name}{line}"):
        entry_points.load("policy", name)


def test_a_registry_imports_a_part_when_it_is_loaded() -> None:
    registry = entry_points.Registry(
        "policy", {"error": "motif_jax.core.errors:UserError", "lost": "no_such_module:A"}
    )
    assert registry.load("error") is UserError
    with pytest.raises(UserError, match=r"config\.policy=no_such_module:A"):
        registry.load("lost")


def test_a_registry_names_its_parts_where_it_lacks_one() -> None:
    registry = entry_points.Registry("policy", {"error": "motif_jax.core.errors:UserError"})
    with pytest.raises(
        UserError, match=r"config\.policy=other: must be one of error, or module:Class"
    ):
        registry.load("other")
