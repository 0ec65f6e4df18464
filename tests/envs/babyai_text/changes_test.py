from __future__ import annotations

import pytest

from motif_jax.core import seeds
from motif_jax.envs.babyai_text import changes, exchange
from motif_jax.envs.babyai_text.changes import PromptChange
from motif_jax.envs.babyai_text.environment import decoded
from tests.envs.babyai_text.environment_test import LOCAL
from tests.envs.playing import error_line, started

PROMPT = "Goal of the agent: go to the red ball \n Observation 0: You see a grey key 1 step left, "


@pytest.mark.parametrize(
    ("change", "goal", "observation"),
    [
        ("no_modification_test", "Goal of the agent: go to the red ball", "a grey key"),
        ("other_name_same_categories", "Goal of the agent: go to the red table", "a grey chair"),
        ("adj_synonym", "Goal of the agent: go to the vermilion ball", "a silver key"),
        ("no_meaning_nouns", "Goal of the agent: go to the red xolo", "a grey dax"),
        ("no_meaning_adj", "Goal of the agent: go to the faze ball", "a sil key"),
        ("no_meaning_words", "Goal of the agent: go to the faze xolo", "a sil dax"),
        (
            "change_intro_first_personne_speaker",
            "I would like the agent to go to the red ball",
            "a grey key",
        ),
        ("change_intro_first_personne_agent", "You have to go to the red ball", "a grey key"),
    ],
)
def test_a_published_change_replaces_its_words_alone(change, goal, observation):
    assert (
        PromptChange(change)(PROMPT)
        == f"{goal} \n Observation 0: You see {observation} 1 step left, "
    )


def test_no_published_change_is_without_a_test_of_its_words():
    assert len(changes.CHANGES) == 8


def test_whole_words_are_replaced_in_both_languages():
    french = "But de l'agent: aller à la clef grise \n Observation 0: Tu vois une balle verte 2 pas devant, "
    assert PromptChange("no_meaning_words", "french")(french) == (
        "But de l'agent: aller à la dax sil \n Observation 0: Tu vois une xolo jatu 2 pas devant, "
    )
    assert (
        PromptChange("no_meaning_words")("a keyboard, balls and a key")
        == "a keyboard, balls and a dax"
    )
    for name in changes.CHANGES:
        assert (PromptChange(name, "french")(french) == french) == (name == changes.NONE)


def test_the_french_word_for_locked_stays():
    locked = "Tu vois une porte rouge fermée à clef 2 pas devant, Tu vois une clef rouge 1 pas à droite, "
    changed = PromptChange("other_name_same_categories", "french")(locked)
    assert changed == locked.replace("une clef", "une chaise")
    for name in ("no_meaning_nouns", "no_meaning_words"):
        assert "fermée à clef" in PromptChange(name, "french")(locked)


@pytest.mark.parametrize("name", [name for name in changes.CHANGES if name != changes.NONE])
def test_a_change_leaves_the_names_of_actions(name):
    """The agent scores the names of the list, so that the prompt shows them, too."""
    actions = ("open box", "red", "take the key")
    env, out = started(LOCAL, 3, fields=("prompt",), actions=actions, change=name)
    env.step(0, out)
    changed = decoded(out["prompt"])
    plain, out = started(LOCAL, 3, fields=("prompt",), actions=actions)
    plain.step(0, out)

    assert changed != decoded(out["prompt"])
    assert changed.startswith("Possible action of the agent: open box, red, take the key \n ")
    assert "\n Action 0: open box \n Observation 1: " in changed


def test_exchanged_texts_are_of_another_episode_with_the_same_actions(monkeypatch):
    def play(seed, **options):
        """What is said of the goal, what is seen in the prompt, and what in the text, of each
        step.
        """
        env, out = started(LOCAL, seed, fields=("prompt",), observations=1, **options)
        lines = []
        for action in (0, 2, 1, 0):
            _, goal, observation, _ = decoded(out["prompt"]).split("\n")
            lines.append((goal, observation, decoded(out["text"])))
            env.step(action, out)
        return list(zip(*lines, strict=True))

    played = {change: play(4, change=change) for change in ("", *changes.EXCHANGED)}
    (goal, *_), observation, text = played[""]
    for change in changes.EXCHANGED:
        assert played[change][2] == text  # what is done is done in the episode
        assert goal not in played[change][0]
        assert len(set(played[change][0])) == 1
    assert played[changes.OTHER_MISSION][1] == observation
    # The other episode is that of a seed of its own, in which the same is done.
    assert play(seeds.derive(4, "exchanged", 0))[:2] == played[changes.OTHER_EPISODE][:2]
    assert not set(played[changes.OTHER_EPISODE][1]) & set(observation)
    monkeypatch.setattr(exchange, "MAX_TRIES", 3)
    line = error_line(started, "BabyAI-GoToRedBallNoDists-v0", 1, change=changes.OTHER_MISSION)
    assert "every mission of the level is 'go to the red ball'" in line
