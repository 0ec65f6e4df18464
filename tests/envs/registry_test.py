"""What environments are made with by name: the options that all take, and the errors for those that
have no text.
"""

from __future__ import annotations

import contextlib

import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.checked import CheckedEnvironment
from tests.toys import Corridor


@pytest.mark.parametrize("last_text", [False, True])
@pytest.mark.parametrize("name", ["Recall-v0", "NetHackScore-v1", "tests.toys:Corridor"])
def test_a_made_environment_has_the_last_text_of_its_options(name: str, last_text: bool) -> None:
    with contextlib.closing(registry.make(name, last_text=last_text)) as environment:
        assert environment.spec.last_text is last_text
        assert environment.spec == registry.spec(name, last_text=last_text)


@pytest.mark.parametrize("name", ["Recall-v0", "NetHackScore-v1"])
def test_without_the_option_an_environment_decides_on_its_last_text(name: str) -> None:
    with contextlib.closing(registry.make(name)) as environment:
        assert environment.spec == registry.spec(name)


class Talkative(Corridor):
    """Its row of an episode has a number that the player's row has, too."""

    def episode_info(self) -> dict[str, float]:
        return {**super().episode_info(), "seed": 5.0}


def test_a_number_of_an_episode_keeps_off_row_names() -> None:
    corridor = Talkative("corridor")
    environment = CheckedEnvironment("mine:Talkative", corridor)
    with pytest.raises(UserError, match=r"mine:Talkative: its episode_info\(\) has 'seed', which"):
        environment.episode_info()


def test_places_are_for_environments_that_keep_them() -> None:
    with contextlib.closing(registry.make_group("tests.toys:Corridor", 2, places=[4, 5])) as group:
        assert group.count == 2
