"""Chat templates in the manner of known families, with a tokenizer of bytes that has their special
tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from motif_jax.lm import chat_template
from motif_jax.lm.chat_template import ChatTemplate


class Family(NamedTuple):
    """A template, its special tokens, and the one that begins a text, '' for none."""

    template: str
    special: tuple[str, ...]
    bos: str = ""


CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
FAMILIES = {
    "chatml": Family(CHATML, ("<|endoftext|>", "<|im_start|>", "<|im_end|>")),
    # A system prompt of its own, as Qwen and SmolLM2 have.
    "system": Family(
        "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}"
        + CHATML,
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    ),
    # Llama 3: a beginning of text, headers, and texts without blanks at their ends.
    "headers": Family(
        "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
        "{{ message['content'] | trim }}{{ '<|eot_id|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
        (
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
        ),
        "<|begin_of_text|>",
    ),
    # Mistral: a turn of the assistant has no opening.
    "instructions": Family(
        "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST]' + message['content'] + '[/INST]' }}"
        "{% else %}{{ message['content'] + '</s>' }}{% endif %}{% endfor %}",
        ("<unk>", "<s>", "</s>", "[INST]", "[/INST]"),
        "<s>",
    ),
}


def write(folder: Path, family: Family, adds_bos: bool = False) -> Path:
    """Writes the tokenizer and the template; `adds_bos`: the tokenizer begins a text by itself,
    too.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(BPE({letter: number for number, letter in enumerate(letters)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(family.special))
    if adds_bos:
        number = backend.token_to_id(family.bos)
        backend.post_processor = TemplateProcessing(
            single=f"{family.bos} $A", special_tokens=[(family.bos, number)]
        )
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    chat_template.write(folder, ChatTemplate(family.template, {"bos_token": family.bos}))
    return folder
