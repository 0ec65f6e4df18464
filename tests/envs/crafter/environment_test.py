"""Crafter with captions: a function of its seed, in words, and with the package's rewards."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.recording import record_actions
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED, empty_observation

pytest.importorskip(
    "crafter", reason="the package crafter is not there: pip install 'motif-jax[crafter]'"
)

from crafter import constants, objects

from motif_jax.envs.crafter.captions import before_step, caption
from motif_jax.envs.crafter.environment import CHANNELS, COLUMNS, ROWS
from motif_jax.envs.crafter.game import CrafterGame

SMALL = {"kwargs": {"area": [24, 24]}}
# Prints digests of all observations, captions and rewards of an episode each that lasts into the
# night.
PLAY = """
from tests.envs.crafter.environment_test import digest_of

print(digest_of("Crafter-v1"), digest_of("CrafterPixels-v1"))
"""


def digest_of(name: str) -> str:
    """A digest of the first 200 steps of a player that moves about at random."""
    # Without sleep, in which random players die early.
    actions = np.random.default_rng(1).integers(0, 6, 200)
    return record_actions(name, {}, 1, actions).digest


def small_game(material: str | None = None, **inventory: int) -> CrafterGame:
    """A game on plain grass; the player, in the middle, faces `material`."""
    game = CrafterGame((24, 24))
    for creature in game.world.objects:
        if creature is not game.player:
            game.world.remove(creature)
    for cell in np.ndindex(24, 24):
        game.world[cell] = "grass"
    if material:
        game.world[12, 13] = material
    game.player.inventory.update(inventory)
    return game


def caption_of(game: CrafterGame, action: str) -> str:
    before = before_step(action, game)
    game.play(constants.actions.index(action))
    return caption(action, before, game)


@pytest.mark.extra
def test_two_processes_play_the_same_episodes(repository):
    digests = []
    for hash_seed in ("1", "2"):
        environment = {
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": ":".join([str(repository), *sys.path]),
        }
        done = subprocess.run(
            [sys.executable, "-c", PLAY],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.append(done.stdout)

    assert digests[0] == digests[1] != ""


def test_the_creature_that_leaves_is_chosen_by_order_of_arrival():
    game = small_game()
    cows = [objects.Cow(game.world, (column, 2)) for column in (5, 3, 4)]

    for cow in cows:
        game.world.add(cow)

    ((_, first_chunk),) = [item for item in game.world.chunks.items() if cows[0] in item[1]]
    assert list(first_chunk) == cows


def test_a_look_at_the_night_does_not_change_the_game():
    rewards = []
    for is_watched in (False, True):
        game = CrafterGame((24, 24))
        game.begin(3)
        episode = []
        for step in range(260):
            game.player.health = 9
            episode.append((game.play(step % 6), tuple(game.player.pos)))
            if is_watched:
                game.picture(64)
        rewards.append((episode, game.world.random.uniform()))

    assert game.world.daylight < 0.5
    assert rewards[0] == rewards[1]


def test_a_picture_is_the_same_when_drawn_again():
    game = CrafterGame((24, 24))
    game.world.daylight = 0.1

    assert np.array_equal(game.picture(64), game.picture(64))


@pytest.mark.parametrize(
    ("material", "inventory", "action", "expected"),
    [
        ("tree", {}, "do", "You collect wood."),
        ("tree", {}, "move_down", "You bump into a tree."),
        ("grass", {}, "move_down", ""),
        ("grass", {}, "noop", ""),
        ("water", {"drink": 5}, "do", "You drink water."),
        ("stone", {}, "do", "The stone is too hard without a pickaxe."),
        ("stone", {"wood_pickaxe": 1}, "do", "You collect stone."),
        ("iron", {"wood_pickaxe": 1}, "do", "You need a stone pickaxe for the iron."),
        ("diamond", {"iron_pickaxe": 1}, "do", "You collect a diamond."),
        (None, {"wood": 9}, "place_table", "You place a table."),
        (None, {"wood": 1}, "place_table", "You have too little wood for a table."),
        ("water", {"wood": 9}, "place_table", "There is no room for a table."),
        (None, {}, "place_stone", "You have no stone to place."),
        ("water", {"stone": 1}, "place_stone", "You place a stone."),
        (None, {}, "place_plant", "You have no sapling for a plant."),
        (None, {"sapling": 1}, "place_plant", "You place a plant."),
        (None, {"wood": 1}, "make_wood_pickaxe", "You need a table to make a wood pickaxe."),
        ("table", {}, "make_wood_sword", "You have no wood for a wood sword."),
        ("table", {"wood": 1}, "make_wood_sword", "You make a wood sword."),
        ("table", {"wood": 1}, "make_iron_sword", "You need a furnace to make an iron sword."),
        ("lava", {}, "move_down", "You fall into lava and die."),
        (None, {}, "sleep", "You are not tired."),
        (None, {"energy": 5}, "sleep", "You fall asleep."),
    ],
)
def test_a_caption_says_what_an_action_did(material, inventory, action, expected):
    game = small_game(material, **inventory)

    assert caption_of(game, action) == expected


@pytest.mark.parametrize(
    ("kind", "health", "expected"),
    [
        ("Cow", 1, "You eat a cow."),
        ("Cow", 3, "You hit a cow."),
        ("Zombie", 1, "You defeat a zombie."),
        ("Skeleton", 3, "You hit a skeleton."),
    ],
)
def test_a_caption_names_the_creature_that_was_struck(kind, health, expected):
    game = small_game()
    position = (12, 13)
    # Cows need to know nothing of the player.
    creature = {
        "Cow": lambda: objects.Cow(game.world, position),
        "Zombie": lambda: objects.Zombie(game.world, position, game.player),
        "Skeleton": lambda: objects.Skeleton(game.world, position, game.player),
    }[kind]()
    creature.health = health
    creature.cooldown = 9
    game.world.add(creature)

    assert caption_of(game, "do") == expected


@pytest.mark.parametrize(
    ("grown", "action", "expected"),
    [
        (0, "do", "The plant is not ripe yet."),
        (999, "do", "You eat a ripe plant."),
        (0, "move_down", "You bump into a plant."),
    ],
)
def test_a_caption_says_what_became_of_a_plant(grown, action, expected):
    game = small_game()
    plant = objects.Plant(game.world, (12, 13))
    plant.grown = grown
    game.world.add(plant)

    assert caption_of(game, action) == expected


@pytest.mark.parametrize(
    ("sleeping", "expected"),
    [(False, "A zombie hits you."), (True, "A zombie hits you.  You are attacked in your sleep.")],
)
def test_a_zombies_blow_is_told(sleeping, expected):
    game = small_game(energy=5)
    game.player.sleeping = sleeping
    zombie = objects.Zombie(game.world, (12, 11), game.player)
    # It cannot move away.
    zombie.is_free = lambda *_: False
    game.world.add(zombie)

    assert caption_of(game, "noop") == expected
    # It waits before the next blow.
    assert "hits" not in caption_of(game, "noop")


def test_an_arrows_hit_is_told():
    game = small_game()
    game.world.add(objects.Arrow(game.world, (12, 11), np.array((0, 1))))

    assert caption_of(game, "noop") == "An arrow hits you."


def test_low_needs_and_the_loss_they_bring_are_told():
    game = small_game(food=4)
    # No creature comes to life on sand.
    for cell in np.ndindex(24, 24):
        game.world[cell] = "sand"
    noop = constants.actions.index("noop")
    # Food falls in every 26th step. Health falls once there were 16 more steps with a need at zero
    # than without.
    for _ in range(5):
        game.play(noop)
    game.player.inventory["drink"] = 0
    for _ in range(20):
        game.play(noop)

    assert caption_of(game, "noop") == "You lose health from thirst.  You are hungry."


def test_death_ends_the_episode():
    environment = registry.make("Crafter-v1", **SMALL)
    out = empty_observation(environment.spec)
    environment.reset(0, out)
    game = environment.game
    game.player.health = 1
    zombie = objects.Zombie(game.world, (12, 11), game.player)
    # It cannot move away.
    zombie.is_free = lambda *_: False
    game.world.add(zombie)

    _, end = environment.step(0, out)

    assert end == TERMINATED
    assert out["text"].tobytes().rstrip(b"\0").endswith(b"You die.")


@pytest.mark.parametrize("name", ["Crafter-v1", "CrafterPixels-v1"])
def test_observations_have_the_shapes_of_the_spec(name):
    environment = registry.make(name, fields=("frame",), max_episode_steps=3, **SMALL)
    out = empty_observation(environment.spec)

    environment.reset(1, out)
    ends = [environment.step(0, out)[1] for _ in range(3)]

    assert environment.spec == registry.spec(name, fields=("frame",), **SMALL)
    assert ends == [RUNNING, RUNNING, TRUNCATED]
    assert out["text_count"] == 4
    assert out["frame"].any()


def test_the_view_shows_the_cells_around_the_player():
    environment = registry.make("Crafter-v1", **SMALL)
    out = empty_observation(environment.spec)
    environment.reset(1, out)
    game = environment.game
    game.world[13, 12] = "diamond"

    environment.step(0, out)

    cells = out["view"].reshape(COLUMNS, ROWS, CHANNELS)
    assert (cells.sum(-1) == 1).all()
    names = [None, *constants.materials, "player"]
    assert names[cells[COLUMNS // 2, ROWS // 2].argmax()] == "player"
    assert names[cells[COLUMNS // 2 + 1, ROWS // 2].argmax()] == "diamond"


def test_an_achievement_is_paid_and_counted_once():
    environment = registry.make("Crafter-v1", **SMALL)
    out = empty_observation(environment.spec)
    environment.reset(1, out)
    game = environment.game
    collect = constants.actions.index("do")
    game.world[12, 13] = "tree"

    first_reward, _ = environment.step(collect, out)
    game.world[12, 13] = "tree"
    second_reward, _ = environment.step(collect, out)

    info = environment.episode_info()
    assert (first_reward, second_reward) == (1, 0)
    assert info["collect_wood"] == info["achievements"] == info["return"] == 1
    assert set(constants.achievements) <= set(environment.spec.episode_fields)
