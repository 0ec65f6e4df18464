"""Rules of methods from outside the package."""

from __future__ import annotations

import dataclasses

import pytest

from motif_jax.ilql.methods import Rule, rule_of


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes of this module are trusted no longer than a test."""
    monkeypatch.setenv("MOTIF_JAX_TRUST", __name__)


class Best(Rule):
    """Says its choices as attributes."""

    bootstrap = "best"
    huber = True


@dataclasses.dataclass(frozen=True)
class Soft(Best):
    """A dataclass with a choice of its own, beside those of its class."""

    bootstrap: str = "soft"


def choices(name: str) -> dict[str, object]:
    """The choices of a class of this module that are not the package's defaults."""
    rule = dataclasses.asdict(rule_of(f"{__name__}:{name}"))
    return {key: value for key, value in rule.items() if value != getattr(Rule, key)}


def test_attributes_of_a_user_s_rule_take_effect() -> None:
    assert choices("Best") == {"bootstrap": "best", "huber": True}
    assert choices("Soft") == {"bootstrap": "soft", "huber": True}
