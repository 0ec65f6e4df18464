"""Chat templates of models: what they make of a conversation, and what they are not allowed to
do.
"""

from __future__ import annotations

import json

import pytest

from motif_jax.core.errors import UserError
from motif_jax.lm import chat_template
from motif_jax.lm.chat_template import ChatTemplate
from tests.made_up_judge import CHATML

TURNS = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "A or B?"}]
BEGUN = [*TURNS, {"role": "assistant", "content": "Message"}]
HEAD = "<|im_start|>system\nJudge.<|im_end|>\n<|im_start|>user\nA or B?<|im_end|>\n<|im_start|>assistant\n"


def test_a_prompt_ends_where_the_answer_begins() -> None:
    assert ChatTemplate(CHATML).prompt(TURNS) == HEAD


def test_a_begun_answer_is_left_open() -> None:
    assert ChatTemplate(CHATML).continued(BEGUN) == HEAD + "Message"


def test_a_template_writes_special_tokens_by_name() -> None:
    template = ChatTemplate("{{ bos_token }}{{ messages[0]['content'] }}", {"bos_token": "<s>"})
    assert template.prompt(TURNS) == "<s>Judge."


def test_a_template_sees_that_there_are_no_tools() -> None:
    """As transformers, which gives templates `tools` and `documents` without a value."""
    template = ChatTemplate(
        "{% if tools is not none or documents is not none %}You have tools.{% endif %}A or B?"
    )
    assert template.prompt(TURNS) == "A or B?"


def test_a_templates_date_is_the_same_every_day() -> None:
    """A run, its agent and stored answers would have other tokens tomorrow."""
    template = ChatTemplate("Today: {{ strftime_now('%d %b %Y') }}\n{{ messages[0]['content'] }}")

    assert template.prompt(TURNS) == "Today: 26 Jul 2024\nJudge."


def test_json_in_a_template_is_not_escaped_for_html() -> None:
    text = ChatTemplate("{{ messages | tojson }}").prompt([{"role": "user", "content": "<é>"}])
    assert text == '[{"role": "user", "content": "<é>"}]'


def test_a_template_without_the_answers_beginning_is_refused() -> None:
    with pytest.raises(UserError, match="does not show the beginning of an answer, 'Message'"):
        ChatTemplate("{{ messages[0]['content'] }}").continued(BEGUN)


def test_the_file_beside_the_tokenizer_comes_first(tmp_path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": "old", "bos_token": "<s>"})
    )
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}new")
    assert chat_template.read(tmp_path).prompt(TURNS) == "<s>new"


def test_of_several_templates_the_default_is_read(tmp_path) -> None:
    several = [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    assert chat_template.read(tmp_path).prompt(TURNS) == "d"


def test_special_tokens_of_older_folders_are_read(tmp_path) -> None:
    """Folders of earlier releases of transformers name them in a file of their own."""
    values = {
        "chat_template": "{{ bos_token }}{{ eos_token }}",
        "bos_token": None,
        "eos_token": "</s>",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values))
    special = {"bos_token": {"content": "<s>"}, "eos_token": "<end>"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(special))
    assert chat_template.read(tmp_path).prompt(TURNS) == "<s></s>"


def test_every_special_token_is_written_by_its_name(tmp_path) -> None:
    """A token that the folder does not have is not defined, as in transformers."""
    names = ("cls_token", "image_token", "add_bos_token", "bos_token", "unk_token")
    text = "".join(f"{{% if {name} is defined %}}{{{{ {name} }}}}{{% endif %}}" for name in names)
    values = {"chat_template": text, "cls_token": "<cls>", "add_bos_token": True, "unk_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values))
    special = {"image_token": {"content": "<image>"}}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(special))

    assert chat_template.read(tmp_path).prompt(TURNS) == "<cls><image>"


def test_a_base_model_has_no_template(tmp_path) -> None:
    assert chat_template.read(tmp_path) is None


def test_a_beginning_is_not_sought_in_the_templates_words() -> None:
    """ "end" stands in <|im_end|>, too."""
    begun = [*BEGUN[:-1], {"role": "assistant", "content": "end"}]
    assert ChatTemplate(CHATML).continued(begun) == HEAD + "end"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (
            "{% for m in messages %}{{ m.content }}{% if loop.index == 1 %}{% break %}{% endif %}{% endfor %}",
            "one",
        ),
        (
            "{% for m in messages %}{% if loop.index == 1 %}{% continue %}{% endif %}{{ m.content }}{% endfor %}",
            "two",
        ),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "one!"),
        ("{{ {'b': 1, 'a': 2} | tojson(separators=(',', ':'), sort_keys=True) }}", '{"a":2,"b":1}'),
    ],
)
def test_tags_and_filters_are_those_of_transformers(template: str, text: str) -> None:
    turns = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    assert ChatTemplate(template).text_of(turns) == text
