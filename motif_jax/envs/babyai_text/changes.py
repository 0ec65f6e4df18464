"""Changes of a prompt for tests of an agent: other words for things, colours and goals.

The names are those of the generalisation tests in Carta et al. 2023 (GLAM). Here whole words are
replaced, in the published code any letters. English prompts are the same either way; in French
"grise" contains "gris", and the key of "fermée à clef" (locked) is no thing. Action names stay
(`prompts.Window.prompt`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from motif_jax.envs.babyai_text.catalogue import ENGLISH, FRENCH, LANGUAGES
from motif_jax.envs.babyai_text.prompts import GOALS
from motif_jax.envs.babyai_text.sentences import COLORS, FRENCH_COLORS

NONE = "no_modification_test"
# Ours, not published: another episode's mission, or its whole prompts, so that the text says
# nothing about the reward.
OTHER_MISSION = "other_mission"
OTHER_EPISODE = "other_episode"
EXCHANGED = {OTHER_MISSION: "with another mission", OTHER_EPISODE: "with another episode's prompts"}
Words = Mapping[str, str]


_THINGS = {ENGLISH: ("key", "ball", "box"), FRENCH: ("clef", "balle", "boîte")}
_COLORS = {ENGLISH: COLORS, FRENCH: tuple(FRENCH_COLORS.values())}
_INVENTED_THINGS = ("dax", "xolo", "afze")
_INVENTED_COLORS = ("faze", "jatu", "croh", "vurst", "gakul", "sil")
_LOCKED_BY = "fermée à "  # before a key that is part of the French word for locked
# In the order of `COLORS`.
_ENGLISH_SYNONYMS = ("vermilion", "jade", "cyan", "violet", "golden", "silver")
_FRENCH_SYNONYMS = ("vermillon", "émeraude", "azur", "mauve", "dorée", "argentée")


def _replacements(
    words: Mapping[str, Sequence[str]], english: Sequence[str], french: Sequence[str]
) -> dict[str, Words]:
    """Language -> word -> its replacement, in the order of `words`."""
    return {
        ENGLISH: dict(zip(words[ENGLISH], english, strict=True)),
        FRENCH: dict(zip(words[FRENCH], french, strict=True)),
    }


_NOUNS = _replacements(_THINGS, _INVENTED_THINGS, _INVENTED_THINGS)
_ADJECTIVES = _replacements(_COLORS, _INVENTED_COLORS, _INVENTED_COLORS)
# Name -> language -> word -> its replacement.
CHANGES: dict[str, Mapping[str, Words]] = {
    NONE: {language: {} for language in LANGUAGES},
    "other_name_same_categories": _replacements(
        _THINGS, ("chair", "table", "car"), ("chaise", "table", "voiture")
    ),
    "adj_synonym": _replacements(_COLORS, _ENGLISH_SYNONYMS, _FRENCH_SYNONYMS),
    "no_meaning_nouns": _NOUNS,
    "no_meaning_adj": _ADJECTIVES,
    "no_meaning_words": {
        language: {**_NOUNS[language], **_ADJECTIVES[language]} for language in LANGUAGES
    },
    "change_intro_first_personne_speaker": {
        ENGLISH: {GOALS[ENGLISH]: "I would like the agent to"},
        FRENCH: {GOALS[FRENCH]: "Je voudrais que l'agent puisse"},
    },
    "change_intro_first_personne_agent": {
        ENGLISH: {GOALS[ENGLISH]: "You have to"},
        FRENCH: {GOALS[FRENCH]: "Tu dois"},
    },
}


class PromptChange:
    """Rewrites goals and observations in `language`; `name` is one of `CHANGES`, or '' for no
    change.
    """

    def __init__(self, name: str, language: str = ENGLISH) -> None:
        # What another episode shows is exchanged elsewhere; its prompts keep their words.
        changes_words = name and name not in EXCHANGED
        self._words = CHANGES[name if changes_words else NONE][language]
        # Replaces whole words: no letter or digit may be next to a match.
        words = "|".join(map(re.escape, self._words))
        self._pattern = re.compile(rf"(?<!\w)(?<!{_LOCKED_BY})(?:{words})(?!\w)")

    def __call__(self, text: str) -> str:
        if not self._words:  # the empty pattern would match everywhere
            return text
        return self._pattern.sub(lambda match: self._words[match[0]], text)
