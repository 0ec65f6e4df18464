"""Captions of steps: one sentence for each event, two spaces between them, and '' for a step
without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from crafter import constants, objects

from motif_jax.envs.crafter.game import CrafterGame

# Between the sentences of a caption, as NetHack's messages have it.
_BETWEEN = "  "
# Needs at or below this are told, out of 9.
_LOW = 3
# An arrow's damage, and a zombie's to a player who is awake and who sleeps.
_ARROW_DAMAGE = 2
_ZOMBIE_DAMAGE = 2
_ZOMBIE_DAMAGE_ASLEEP = 7
# What a zombie's `cooldown` is after it has struck.
_COOLDOWN = 5

ACHIEVED = {
    "collect_coal": "You collect coal.",
    "collect_diamond": "You collect a diamond.",
    "collect_drink": "You drink water.",
    "collect_iron": "You collect iron.",
    "collect_sapling": "You collect a sapling.",
    "collect_stone": "You collect stone.",
    "collect_wood": "You collect wood.",
    "defeat_skeleton": "You defeat a skeleton.",
    "defeat_zombie": "You defeat a zombie.",
    "eat_cow": "You eat a cow.",
    "eat_plant": "You eat a ripe plant.",
    "make_iron_pickaxe": "You make an iron pickaxe.",
    "make_iron_sword": "You make an iron sword.",
    "make_stone_pickaxe": "You make a stone pickaxe.",
    "make_stone_sword": "You make a stone sword.",
    "make_wood_pickaxe": "You make a wood pickaxe.",
    "make_wood_sword": "You make a wood sword.",
    "place_furnace": "You place a furnace.",
    "place_plant": "You place a plant.",
    "place_stone": "You place a stone.",
    "place_table": "You place a table.",
    "wake_up": "You wake up rested.",
}
TOO_HARD = {
    "stone": "The stone is too hard without a pickaxe.",
    "coal": "The coal is too hard without a pickaxe.",
    "iron": "You need a stone pickaxe for the iron.",
    "diamond": "You need an iron pickaxe for the diamond.",
}
NEEDS = {"food": "You are hungry.", "drink": "You are thirsty.", "energy": "You are tired."}
LOSS_BY_NEED = {
    "food": "You lose health from hunger.",
    "drink": "You lose health from thirst.",
    "energy": "You are so tired that you lose health.",
}
_CREATURES = {objects.Cow: "cow", objects.Zombie: "zombie", objects.Skeleton: "skeleton"}
# What can stand in the player's way, besides creatures.
_OBSTACLES = {
    "water": "water",
    "stone": "a stone",
    "tree": "a tree",
    "coal": "coal",
    "iron": "iron",
    "diamond": "a diamond",
    "table": "a table",
    "furnace": "a furnace",
    None: "the edge of the world",
}


_DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}


class Before(NamedTuple):
    """What a caption needs to know of the state before a step.

    Attributes:
      material: of the cell that the action is about: in front of the player, or where a move leads;
          None outside the world.
      thing: the object in this cell, or None.
      objects: all objects of the world; the step may remove some of them.
      utilities: the materials next to the player.
    """

    inventory: Mapping[str, int]
    achievements: Mapping[str, int]
    sleeping: bool
    position: tuple[int, int]
    material: str | None
    thing: Any
    objects: tuple[Any, ...]
    utilities: tuple[str, ...]


def before_step(action: str, game: CrafterGame) -> Before:
    """The state of a game before it plays `action`, a name of the package."""
    player = game.player
    verb, _, name = action.partition("_")
    # A move turns the player first, so it is about the cell of its direction.
    across, down = _DIRECTIONS[name] if verb == "move" else player.facing
    column, row = _position(player)
    material, thing = game.world[column + across, row + down]
    # As far as the package looks for a table or a furnace.
    utilities, _ = game.world.nearby(player.pos, 1)
    return Before(
        inventory=dict(player.inventory),
        achievements=dict(player.achievements),
        sleeping=player.sleeping,
        position=(column, row),
        material=material,
        thing=thing,
        objects=tuple(game.world.objects),
        utilities=utilities,
    )


def caption(action: str, before: Before, game: CrafterGame) -> str:
    """The caption of the step from `before` by `action` to the state of `game` now."""
    return _BETWEEN.join(_sentences(action, before, game))


def _sentences(action: str, before: Before, game: CrafterGame) -> Iterator[str]:
    player = game.player
    achieved = [
        name for name, count in player.achievements.items() if count > before.achievements[name]
    ]
    yield from (ACHIEVED[name] for name in achieved)
    # A sleeper does nothing else; a player who wakes up rested acts in the same step.
    acts = not before.sleeping or "wake_up" in achieved
    if acts and achieved in ([], ["wake_up"]):
        yield from _vain(action, before, player)
    if player.sleeping and not before.sleeping:
        yield "You fall asleep."

    fell = game.world[player.pos][0] == "lava"
    if fell:
        yield "You fall into lava and die."
        return
    yield from _health(before, player)
    for need, sentence in NEEDS.items():
        left = player.inventory[need]
        if left < before.inventory[need] and left <= _LOW:
            yield sentence
    if any(isinstance(thing, objects.Plant) and thing.removed for thing in before.objects):
        yield "Your plant is eaten."
    if player.health <= 0:
        yield "You die."


def _position(player: Any) -> tuple[int, int]:
    return int(player.pos[0]), int(player.pos[1])


def _vain(action: str, before: Before, player: Any) -> Iterator[str]:
    """What an action without an achievement says."""
    verb, _, name = action.partition("_")
    if verb == "move" and _position(player) == before.position:
        yield from _bump(before)
    elif verb == "do":
        yield from _useless(before)
    elif verb == "place":
        yield from _unplaced(name, before)
    elif verb == "make":
        yield from _unmade(name, before)
    elif verb == "sleep" and not player.sleeping:
        yield "You are not tired."


def _bump(before: Before) -> Iterator[str]:
    if isinstance(before.thing, objects.Plant):
        yield "You bump into a plant."
    elif type(before.thing) in _CREATURES:
        yield f"You bump into a {_CREATURES[type(before.thing)]}."
    elif before.material in _OBSTACLES:
        yield f"You bump into {_OBSTACLES[before.material]}."


def _useless(before: Before) -> Iterator[str]:
    """A blow that did not kill, a plant that is not ripe, a stone that is too hard."""
    if isinstance(before.thing, objects.Plant):
        yield "The plant is not ripe yet."
    elif type(before.thing) in _CREATURES:
        yield f"You hit a {_CREATURES[type(before.thing)]}."
    elif before.material in TOO_HARD:
        yield TOO_HARD[before.material]


def _unplaced(name: str, before: Before) -> Iterator[str]:
    for item, amount in constants.place[name]["uses"].items():
        if before.inventory[item] < amount:
            lack = "no" if amount == 1 else "too little"
            yield (
                f"You have {lack} {item} for a {name}."
                if item != name
                else f"You have no {item} to place."
            )
            return
    yield f"There is no room for a {name}."


def _unmade(name: str, before: Before) -> Iterator[str]:
    tool = name.replace("_", " ")
    article = "an" if tool.startswith("iron") else "a"
    rule = constants.make[name]
    for utility in rule["nearby"]:
        if utility not in before.utilities:
            yield f"You need a {utility} to make {article} {tool}."
            return
    for item, amount in rule["uses"].items():
        if before.inventory[item] < amount:
            yield f"You have no {item} for {article} {tool}."
            return


def _health(before: Before, player: Any) -> Iterator[str]:
    """Blows, and what else the health rose or fell by."""
    lost = before.inventory["health"] - player.health
    zombies = [thing for thing in before.objects if isinstance(thing, objects.Zombie)]
    arrows = [thing for thing in before.objects if isinstance(thing, objects.Arrow)]
    # A zombie next to the player counts its cooldown down from the step after its blow on.
    if any(zombie.cooldown == _COOLDOWN and zombie.distance(player) <= 1 for zombie in zombies):
        lost -= _ZOMBIE_DAMAGE_ASLEEP if player.sleeping else _ZOMBIE_DAMAGE
        yield "A zombie hits you."
        if player.sleeping:
            yield "You are attacked in your sleep."
    # An arrow that hits is removed from the cell before the player's.
    if any(
        arrow.removed and tuple(arrow.pos + arrow.facing) == _position(player) for arrow in arrows
    ):
        lost -= _ARROW_DAMAGE
        yield "An arrow hits you."
    # What the blows leave of the loss comes from hunger, thirst or tiredness.
    if lost > 0:
        yield from (LOSS_BY_NEED[need] for need in NEEDS if player.inventory[need] == 0)
    if player.health > before.inventory["health"]:
        yield "Your health rises."
