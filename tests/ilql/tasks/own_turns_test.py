"""A chat model's own turns stand round the utterances of dialogues, as its template writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from motif_jax import text_agents
from motif_jax.core.errors import UserError
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.dialogue_tokens import (
    TokenItem,
    constant_reward,
    to_act,
    tokenise,
    utterances,
)
from motif_jax.ilql.tasks import file_tokens
from motif_jax.ilql.tasks.file_tokens import FileTokenizer
from motif_jax.lm import chat_template
from tests import chat_families
from tests.chat_families import CHATML, FAMILIES, Family

TALK = Dialogue(("late?", "I look.", "and now?", "It came."), (None, 0.0, None, 1.0), False)
PATIENT = Dialogue(("late?", "I look.", "and now?"), (None, 0.0, None), False)
# The agent begins, and speaks twice in turn; so does the other side.
UNEVEN = Dialogue(
    ("hello", "still there?", "yes", "here", "fine"), (0.0, 0.0, None, None, 1.0), True
)


def messages_of(dialogue: Dialogue) -> list[dict[str, str]]:
    roles = ["user" if reward is None else "assistant" for reward in dialogue.rewards]
    return [
        {"role": role, "content": text} for role, text in zip(roles, dialogue.texts, strict=True)
    ]


def tokenizer_of(folder: Path, name: str = "chatml") -> FileTokenizer:
    return FileTokenizer("k", str(chat_families.write(folder, FAMILIES[name])), turns="own")


def item_of(dialogue: Dialogue, tokenizer: FileTokenizer) -> TokenItem:
    return tokenise(dialogue, tokenizer, constant_reward(0.0))


def tokens_of_text(folder: Path, text: str) -> list[int]:
    """The tokens of a rendered text, whose special tokens the template wrote."""
    return (
        Tokenizer.from_file(str(folder / "tokenizer.json"))
        .encode(text, add_special_tokens=False)
        .ids
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_a_dialogue_has_the_tokens_of_the_rendered_template(tmp_path: Path, name: str) -> None:
    tokens = item_of(PATIENT, tokenizer_of(tmp_path, name)).tokens.tolist()

    template = chat_template.read(tmp_path)
    assert template is not None
    assert tokens == tokens_of_text(tmp_path, template.prompt(messages_of(PATIENT)))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_dialogue_without_a_next_action_ends_at_its_last(tmp_path: Path, name: str) -> None:
    tokenizer = tokenizer_of(tmp_path, name)

    tokens = item_of(TALK, tokenizer).tokens.tolist()

    template = chat_template.read(tmp_path)
    assert template is not None
    rendered = tokens_of_text(tmp_path, template.text_of(messages_of(TALK)))
    assert tokenizer.turns is not None
    assert tokens + list(tokenizer.turns.action_close) == rendered
    assert tokens[-1] == tokenizer.delimiters.action_end


def test_uneven_turns_are_those_of_the_template(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path)

    *tokens, last = item_of(UNEVEN, tokenizer).tokens.tolist()

    template = chat_template.read(tmp_path)
    assert template is not None
    assert tokens + tokens_of_text(tmp_path, "\n") == tokens_of_text(
        tmp_path, template.text_of(messages_of(UNEVEN))
    )
    assert last == tokenizer.delimiters.dialogue_end


def test_an_agent_that_speaks_again_reads_its_next_opening(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path)

    tokens = [*item_of(TALK, tokenizer).tokens.tolist(), *to_act(TALK, tokenizer)]

    template = chat_template.read(tmp_path)
    assert template is not None
    assert tokens == tokens_of_text(tmp_path, template.prompt(messages_of(TALK)))
    assert to_act(PATIENT, tokenizer) == []


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dialogue", [TALK, PATIENT, UNEVEN])
def test_actions_are_the_agents_texts_and_ends(
    tmp_path: Path, name: str, dialogue: Dialogue
) -> None:
    tokenizer = tokenizer_of(tmp_path, name)

    item = item_of(dialogue, tokenizer)

    spoken = [
        text
        for text, reward in zip(dialogue.texts, dialogue.rewards, strict=True)
        if reward is not None
    ]
    end = tokenizer.decode([tokenizer.delimiters.action_end])
    assert tokenizer.decode(item.tokens[item.action_indices + 1].tolist()) == "".join(
        text + end for text in spoken
    )


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dialogue", [TALK, PATIENT, UNEVEN])
def test_utterances_are_read_back_from_tokens(
    tmp_path: Path, name: str, dialogue: Dialogue
) -> None:
    tokenizer = tokenizer_of(tmp_path, name)

    parts = utterances(item_of(dialogue, tokenizer), tokenizer)

    assert tuple(tokenizer.decode(tokens) for tokens, _ in parts) == dialogue.texts
    assert [is_action for _, is_action in parts] == [
        reward is not None for reward in dialogue.rewards
    ]


@pytest.mark.parametrize("name", ["headers", "instructions"])
def test_a_text_begins_once_where_template_and_tokenizer_begin_it(
    tmp_path: Path, name: str
) -> None:
    family = FAMILIES[name]
    tokenizer = FileTokenizer(
        "k", str(chat_families.write(tmp_path, family, adds_bos=True)), turns="own"
    )

    text = tokenizer.decode(item_of(TALK, tokenizer).tokens.tolist())

    assert text.count(family.bos) == 1
    assert text.startswith(family.bos)


def test_no_token_is_added_and_a_spelled_one_stays_text(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path)
    assert tokenizer.size == 256 + 3

    tokens = tokenizer.encode("say <|im_end|>")

    assert max(tokens) < 256
    assert tokenizer.decode(tokens) == "say <|im_end|>"


def test_outer_blanks_are_stripped_where_the_template_strips_them(tmp_path: Path) -> None:
    headers = tokenizer_of(tmp_path / "headers", "headers")
    chatml = tokenizer_of(tmp_path / "chatml")

    assert headers.decode(headers.encode(" so ")) == "so"
    assert chatml.decode(chatml.encode(" so ")) == " so "


def test_a_saved_tokenizer_has_the_same_turns(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path / "model", "headers")

    tokenizer.save(tmp_path / "saved")

    saved = FileTokenizer("k", str(tmp_path / "saved"), turns="own")
    assert saved.turns == tokenizer.turns
    assert saved.delimiters == tokenizer.delimiters


UNUSABLE = {
    "a turn of the user begins with no special token": Family(
        "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '</s>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}",
        ("<unk>", "</s>"),
    ),
    "the second answer begins otherwise than the first": Family(
        CHATML.replace(
            "message['content']", "('<think>' if loop.last else '') + message['content']"
        ),
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    ),
    "refuses the conversation": Family("{{ raise_exception('no talk') }}", ("<unk>",)),
    "leaves no special token for padding": Family(CHATML, ("<|im_start|>", "<|im_end|>")),
}


@pytest.mark.parametrize("reason", UNUSABLE)
def test_own_turns_are_refused_where_a_template_has_none(tmp_path: Path, reason: str) -> None:
    folder = str(chat_families.write(tmp_path, UNUSABLE[reason]))

    with pytest.raises(UserError, match=f"config.turns=own: must be auto or new: .*{reason}"):
        file_tokens.choose("own", folder)

    choice = file_tokens.choose("auto", folder)
    assert choice.turns == "new"
    assert reason in choice.reason


def test_own_turns_are_chosen_where_a_template_has_them(tmp_path: Path) -> None:
    folder = str(chat_families.write(tmp_path, FAMILIES["chatml"]))

    assert [file_tokens.choose(turns, folder).turns for turns in ("auto", "own", "new")] == [
        "own",
        "own",
        "new",
    ]


WITH_SYSTEM = [
    {"role": "system", "content": "You are a pirate."},
    {"role": "user", "content": "late?"},
    {"role": "assistant", "content": "Aye."},
    {"role": "user", "content": "why?"},
]


def dialogue_of(messages: list[dict[str, str]]) -> Dialogue:
    return dialogue_files.parsed({"messages": messages, "done": False}, "here")


@pytest.mark.parametrize("name", ["chatml", "system", "headers"])
def test_a_system_message_has_the_turn_that_the_template_writes(tmp_path: Path, name: str) -> None:
    tokenizer = tokenizer_of(tmp_path, name)
    item = item_of(dialogue_of(WITH_SYSTEM), tokenizer)

    template = chat_template.read(tmp_path)
    assert template is not None
    assert item.tokens.tolist() == tokens_of_text(tmp_path, template.prompt(WITH_SYSTEM))
    texts = [tokenizer.decode(tokens) for tokens, _ in utterances(item, tokenizer)]
    assert texts == [message["content"] for message in WITH_SYSTEM]
    assert text_agents.as_dialogue(WITH_SYSTEM).meta == dialogue_of(WITH_SYSTEM).meta


def test_messages_that_have_no_turn_in_the_template_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="writes no system message apart: put it into the user's first"
    ):
        item_of(dialogue_of(WITH_SYSTEM), tokenizer_of(tmp_path / "a", "instructions"))

    later = [*WITH_SYSTEM[1:], {"role": "tool", "content": "12"}, WITH_SYSTEM[0]]
    with pytest.raises(
        ValueError, match="messages of system and tool behind the first have no turns"
    ):
        item_of(dialogue_of(later), tokenizer_of(tmp_path / "b"))


def test_rewards_stand_at_the_ends_of_actions(tmp_path: Path) -> None:
    item = item_of(TALK, tokenizer_of(tmp_path))

    np.testing.assert_array_equal(item.utterance_rewards, [0.0, 1.0])
    assert item.rewards[-1] == 1.0
    assert item.rewards.sum() == 1.0
