"""Tokenizers of text tasks from a tokenizer.json: a language model's, or one learned from the
task's dialogues.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from motif_jax.core import tokenizer_files
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_text
from motif_jax.ilql.dialogues.items import DELIMITER_TEXTS, Delimiters, Turns
from motif_jax.ilql.tasks import own_turns
from motif_jax.ilql.tasks.contract import TextTask
from motif_jax.ilql.tasks.own_turns import NEW, OWN
from motif_jax.lm import chat_template
from motif_jax.lm.chat_template import ChatTemplate

FILE = own_turns.FILE
TOKENIZER_HELP = "a folder with tokenizer.json, such as GPT-2's; empty: byte pairs of the dialogues"


# Tokens that end a turn of a chat model: ChatML's (Qwen, SmolLM2), Llama 3's, Gemma's.
_ENDS_OF_TURNS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>")
_ACTION_END = "</a>"


def delimiter_texts(backend: Backend) -> tuple[str, ...]:
    """The texts of the fields of `Delimiters` in a tokenizer.

    An action of a chat model ends at the token that ends its turns, which the model has learned; a
    new token would have to be. A tokenizer with </a> has that.
    """
    if backend.token_to_id(_ACTION_END) is not None:
        return DELIMITER_TEXTS
    action_end = next(
        (text for text in _ENDS_OF_TURNS if backend.token_to_id(text) is not None), _ACTION_END
    )
    return tuple(action_end if text == _ACTION_END else text for text in DELIMITER_TEXTS)


def with_delimiters(backend: Backend, words: Sequence[str] = ()) -> Backend:
    """Adds those of `delimiter_texts` that `backend` lacks, in the published order: </a> <a> WORDS
    </eod> <s> </s> <|pad|>.

    `words` are further tokens that texts may contain, such as <stop>.
    """
    texts = delimiter_texts(backend)
    for text in (_ACTION_END, "<a>", *words, "</eod>", "<s>", "</s>", "<|pad|>"):
        # </a>, where the model's own end of a turn ends actions.
        if text not in (*texts, *words):
            continue
        if backend.token_to_id(text) is None:
            is_word = text in words
            # Words may stand in texts; special tokens are delimiters, which texts may only spell.
            token = AddedToken(text, special=not is_word, normalized=False)
            if is_word:
                backend.add_tokens([token])
            else:
                backend.add_special_tokens([token])
    return backend


class FileTokenizer:
    """A `TextTokenizer` from a tokenizer.json or its folder.

    A text is encoded by characters where it spells a delimiter or a special token, even if its
    model has that as a piece.

    Args:
      words: see `with_delimiters`.
      turns: 'own': a chat model's own turns surround utterances, and no token is added; 'new':
          `with_delimiters`.

    Attributes:
      template: of the model's own turns; None with new delimiters.
      turns: see `items.turns_of`; None with new delimiters.
      system_start: tokens before a system message; () where the model's template writes none apart,
          None with new delimiters.

    Raises:
      UserError: it names the config's `key`: no such file; or the model has no turns of its own.
    """

    def __init__(self, key: str, path: str, words: Sequence[str] = (), turns: str = NEW) -> None:
        file = own_turns.file_of(path)
        if not path or not file.is_file():
            raise UserError(f"config.{key}='{path}': must be a folder with {FILE}, such as GPT-2's")
        if turns not in (OWN, NEW):
            raise UserError(f"config.{key}: turns={turns}: must be {OWN} or {NEW}")
        backend = tokenizer_files.read(file)
        self.template: ChatTemplate | None = None
        self.turns: Turns | None = None
        self.system_start: tuple[int, ...] | None = None
        self._strips = False
        if turns == OWN:
            model_turns = own_turns.read(file, backend)
            self._backend = backend
            self.delimiter_texts = model_turns.texts
            self.delimiters = model_turns.delimiters
            self.template = model_turns.template
            self.turns = model_turns.turns
            self.system_start = model_turns.system_start
            self._strips = model_turns.strips
        else:
            self._backend = with_delimiters(backend, words)
            self.delimiter_texts = delimiter_texts(self._backend)
            numbers: list[Any] = [self._backend.token_to_id(text) for text in self.delimiter_texts]
            self.delimiters = Delimiters(*numbers)
        # For `encode` alone: a text that spells a delimiter must not end an utterance.
        self._of_texts = tokenizer_files.without_pieces(self._backend, self.delimiter_texts)

    @property
    def size(self) -> int:
        return self._backend.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        if self._strips:
            text = text.strip()
        return self._of_texts.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: list[int]) -> str:
        # With delimiters that an agent wrote within an action.
        return self._backend.decode([int(token) for token in tokens], skip_special_tokens=False)

    def save(self, folder: Path) -> None:
        """Writes tokenizer.json, and the chat template of the model's own turns with the tokens
        that it names.
        """
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write_text(folder / FILE, self._backend.to_str())
        if self.template is not None:
            chat_template.write(folder, self.template)


class FileTokenTask(TextTask):
    """A task with the options `tokenizer` (a folder with tokenizer.json) and `vocab_size` (of a
    learned tokenizer).
    """

    words: ClassVar[tuple[str, ...]] = ()

    def tokenizer(self) -> FileTokenizer:
        turns = self.options.get("turns", NEW)
        return FileTokenizer("options.tokenizer", self.options["tokenizer"], self.words, turns)

    def learned_tokens(self) -> int:
        return 0 if self.options["tokenizer"] else int(self.options["vocab_size"])
