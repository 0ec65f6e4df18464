"""Opening somebody else's files runs none of their code: what they name is imported only where the user's own command names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax.support import entry_points
from motif_jax.support.errors import UserError


@pytest.fixture(autouse=True)
def own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")


def evil(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "evil") -> Path:
    """A module that leaves a file where it is imported; returns that file."""
    ran = folder / f"{name}_ran"
    (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'w')\nclass Env: pass\nclass Other: pass\n")
    monkeypatch.syspath_prepend(folder)
    return ran


def test_a_name_that_only_data_give_is_refused_with_its_folder_and_the_remedy(tmp_path, monkeypatch):
    ran = evil(tmp_path, monkeypatch, "evil_class")
    entry_points.asked("runs/x", {"environment": {"name": "evil_class:Env"}})
    with pytest.raises(UserError) as refused:
        entry_points.load("environment.name", "evil_class:Env")
    for part in (
        "config.environment.name=evil_class:Env",
        "runs/x",
        "--config.trust=evil_class:Env",
        "trust=[",
    ):
        assert part in str(refused.value)
    assert not ran.exists()
    entry_points.trust(["evil_class:Env"])
    assert entry_points.load("environment.name", "evil_class:Env").__name__ == "Env"
    with pytest.raises(UserError, match="trust"):
        entry_points.load("environment.name", "evil_class:Other")


def test_a_module_is_imported_by_its_own_name_or_that_of_a_trusted_class(tmp_path, monkeypatch):
    ran = evil(tmp_path, monkeypatch, "evil_module")
    with pytest.raises(UserError, match=r"a file of data asks for.*--config.trust=evil_module"):
        entry_points.load_module("environment.modules", "evil_module")
    assert not ran.exists()
    entry_points.trust(["evil_module:Env"])
    assert entry_points.load_module("environment.modules", "evil_module").Env
    monkeypatch.setenv("MOTIF_JAX_TRUST", "")
    entry_points.trust("evil_module")
    assert entry_points.load("policy", "evil_module:Other")


@pytest.mark.parametrize("name", ["a b", "a:b:c", "runs/x:Env", "", "a:"])
def test_what_has_no_form_of_a_name_cannot_be_trusted(name):
    with pytest.raises(UserError, match="must be module:Class, or a module"):
        entry_points.trust([name])


def test_what_a_config_names_is_found_in_lists_and_json():
    config = {
        "environment": {"name": "a.b:Env", "modules": ("minihack", "own"), "text": "t:of"},
        "options": '{"annotator": "own:Judge", "url": "http://127.0.0.1:80/v1"}',
        "policy": "runs/x:y",
        "seed": 1,
    }
    assert entry_points.named(config) == {"a.b:Env", "minihack", "own", "t:of", "own:Judge"}


def test_a_long_text_is_looked_through_at_once():
    assert entry_points.named("a" * 10_000_000) == set()
