"""Exports have the chat template of their model, or that of dialogues."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from motif_jax.lm import folder
from motif_jax.published import exports

MARKS = {"state_start": "<s>", "action_start": "<a>", "state_end": "</s>", "action_end": "</a>"}
USER = {"role": "user", "content": "hello {{ you }}"}
ASSISTANT = {"role": "assistant", "content": " what's 'up'? "}


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "<a>"),
        ([USER], "<s>hello {{ you }}</s>"),
        ([USER, ASSISTANT, USER], "<s>hello {{ you }}</s> what's 'up'? </a>hello {{ you }}</s>"),
        ([ASSISTANT, USER], "<a> what's 'up'? </a>hello {{ you }}</s>"),
        ([{"role": "system", "content": "be kind"}, ASSISTANT], "<s>be kind</s> what's 'up'? </a>"),
    ],
)
def test_template_of_dialogues_writes_turns_between_delimiters(
    tmp_path: Path, messages: list[dict[str, str]], text: str
) -> None:
    jinja2 = pytest.importorskip("jinja2")
    exports.write_dialogue_template(tmp_path, MARKS)
    template = jinja2.Template((tmp_path / exports.CHAT_TEMPLATE).read_text())
    assert template.render(messages=messages, add_generation_prompt=True) == text


def test_written_folder_keeps_the_chat_template(worded: Path, tmp_path: Path) -> None:
    source = shutil.copytree(worded, tmp_path / "source")
    (source / exports.CHAT_TEMPLATE).write_text("{{ messages }}")
    contents = folder.read(source)
    folder.write(tmp_path / "written", contents.config, contents.params, tokenizer=source)
    assert (tmp_path / "written" / exports.CHAT_TEMPLATE).read_text() == "{{ messages }}"


def test_written_folder_has_no_end_tokens_of_another_model(worded: Path, tmp_path: Path) -> None:
    contents = folder.read(worded)
    (tmp_path / exports.GENERATION).write_text('{"eos_token_id": 9}')
    folder.write(tmp_path, contents.config, contents.params)
    assert folder.read(tmp_path).config.end_ids == contents.config.end_ids
