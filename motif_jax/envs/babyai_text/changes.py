"""Changes of a prompt for tests of an agent: other words for things, colours and goals.

The names are those of the generalisation tests in Carta et al. 2023 (GLAM). Here whole words are replaced, in the published code
any letters. English prompts are the same either way; in French "grise" contains "gris". Action names stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from motif_jax.envs.babyai_text.catalogue import ENGLISH, FRENCH, LANGUAGES
from motif_jax.envs.babyai_text.prompts import GOALS
from motif_jax.envs.babyai_text.sentences import COLORS, FRENCH_COLORS

NONE = "no_modification_test"
# Ours, not published: another episode's mission, or its whole prompts, so that the text says nothing about the reward.
OTHER_MISSION, OTHER_EPISODE = "other_mission", "other_episode"
EXCHANGED = {OTHER_MISSION: "with another mission", OTHER_EPISODE: "with another episode's prompts"}
Words = Mapping[str, str]


def _words(before: str, after: str) -> Words:
    return dict(zip(before.split(), after.split(), strict=True))


_THINGS = {ENGLISH: "key ball box", FRENCH: "clef balle boîte"}
_COLORS = {ENGLISH: " ".join(COLORS), FRENCH: " ".join(FRENCH_COLORS.values())}
_INVENTED_THINGS, _INVENTED_COLORS = "dax xolo afze", "faze jatu croh vurst gakul sil"


def _in_each(before: Mapping[str, str], english: str, french: str) -> dict[str, Words]:
    return {ENGLISH: _words(before[ENGLISH], english), FRENCH: _words(before[FRENCH], french)}


_NOUNS = _in_each(_THINGS, _INVENTED_THINGS, _INVENTED_THINGS)
_ADJECTIVES = _in_each(_COLORS, _INVENTED_COLORS, _INVENTED_COLORS)
# Name -> language -> word -> its replacement.
CHANGES: dict[str, Mapping[str, Words]] = {
    NONE: {language: {} for language in LANGUAGES},
    "other_name_same_categories": _in_each(_THINGS, "chair table car", "chaise table voiture"),
    "adj_synonym": _in_each(
        _COLORS, "vermilion jade cyan violet golden silver", "vermillon émeraude azur mauve dorée argentée"
    ),
    "no_meaning_nouns": _NOUNS,
    "no_meaning_adj": _ADJECTIVES,
    "no_meaning_words": {language: {**_NOUNS[language], **_ADJECTIVES[language]} for language in LANGUAGES},
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
    """Rewrites prompts in `language`; `name` is one of `CHANGES`, or '' for no change."""

    def __init__(self, name: str, language: str = ENGLISH) -> None:
        self._words = CHANGES[NONE if name in ("", *EXCHANGED) else name][language]
        # Replaces whole words: no letter or digit may be next to a match.
        self._pattern = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in self._words))

    def __call__(self, prompt: str) -> str:
        return self._pattern.sub(lambda found: self._words[found[0]], prompt) if self._words else prompt
