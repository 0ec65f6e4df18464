"""Translates minigrid's English missions into French."""

from __future__ import annotations

import re

from motif_jax.envs.babyai_text.sentences import FRENCH_COLORS, FRENCH_NAMES

_NOUNS = {**FRENCH_NAMES, "object": "chose"}
# French verbs: infinitive and past infinitive.
_VERBS = {
    "go to": ("aller à", "être allé à"),
    "pick up": ("ramasser", "avoir ramassé"),
    "open": ("ouvrir", "avoir ouvert"),
    "put": ("poser", "avoir posé"),
}
_LOCATIONS = {
    " in front of you": " devant toi",
    " behind you": " derrière toi",
    " on your left": " à ta gauche",
    " on your right": " à ta droite",
}
_THING = re.compile(
    r"(?P<article>the|a) (?:(?P<color>red|green|blue|purple|yellow|grey) )?(?P<noun>key|ball|box|door|object)"
    r"(?P<location>| in front of you| behind you| on your left| on your right)"
)


def in_french(mission: str, published: bool = False) -> str:
    """A mission of minigrid in French. Raises ValueError: another text.

    With `published` (`compat.glam_french_goal`) it is always "aller à" the first thing named, with
    the article "une" if the text has a letter a.
    """
    if published:
        thing = _THING.search(mission)
        if thing is None:
            raise ValueError(f"no object is named by the mission {mission!r}")
        return f"aller à {'une' if 'a' in mission else 'la'} {_noun(thing)}"
    # From the outside in: each side of "then" and of "after you" may join two tasks by "and".
    if ", then " in mission:
        before, after = mission.split(", then ", 1)
        return f"{in_french(before)}, puis {in_french(after)}"
    if " after you " in mission:
        after, before = mission.split(" after you ", 1)
        return f"{in_french(after)} après {_tasks(before, past=True)}"
    return _tasks(mission, past=False)


def _tasks(mission: str, past: bool) -> str:
    return " et ".join(_task(task, past) for task in mission.split(" and "))


def _task(task: str, past: bool) -> str:
    for verb, forms in _VERBS.items():
        if task.startswith(verb + " "):
            things = [_thing(thing) for thing in task.removeprefix(verb + " ").split(" next to ")]
            # French elides "à côté de une" to "à côté d'une".
            return f"{forms[past]} {' à côté de '.join(things)}".replace("de une", "d'une")
    raise ValueError(f"the mission {task!r} is not one of minigrid's")


def _thing(text: str) -> str:
    thing = _THING.fullmatch(text)
    if thing is None:
        raise ValueError(f"a mission names {text!r}, which is not an object of minigrid's")
    article = "la" if thing["article"] == "the" else "une"
    return f"{article} {_noun(thing)}{_LOCATIONS.get(thing['location'], '')}"


def _noun(thing: re.Match[str]) -> str:
    """The noun of a match of `_THING` with its colour."""
    noun = _NOUNS[thing["noun"]]
    color = thing["color"]
    return f"{noun} {FRENCH_COLORS[color]}" if color else noun
