"""Tokenizers of text tasks from a tokenizer.json: a language model's, or one learned from the
task's dialogues; with delimiters of dialogues as new tokens, or with a chat model's own turns,
which are derived from its chat template and checked against its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from motif_jax.core import tokenizer_files
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_text
from motif_jax.ilql.dialogues.dialogue_tokens import DELIMITER_TEXTS, Delimiters, Turns
from motif_jax.ilql.tasks.contract import TextTask
from motif_jax.lm import chat_template
from motif_jax.lm.chat_template import ChatTemplate

FILE = "tokenizer.json"
TOKENIZER_HELP = "a folder with tokenizer.json, such as GPT-2's; empty: byte pairs of the dialogues"
# Values of `config.turns`.
AUTO = "auto"
OWN = "own"
NEW = "new"
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
      turns: see `dialogue_tokens.turns_of`; None with new delimiters.
      system_start: tokens before a system message; () where the model's template writes none apart,
          None with new delimiters.

    Raises:
      UserError: there is no such file, or the model has no turns of its own.
    """

    def __init__(self, key: str, path: str, words: Sequence[str] = (), turns: str = NEW) -> None:
        file = file_of(path)
        if turns not in (OWN, NEW):
            raise UserError(f"config.{key}: turns={turns}: must be {OWN} or {NEW}")
        backend = tokenizer_files.read(file)
        self.template: ChatTemplate | None = None
        self.turns: Turns | None = None
        self.system_start: tuple[int, ...] | None = None
        self._strips = False
        if turns == OWN:
            model_turns = read(file, backend)
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


class OwnTurns(NamedTuple):
    """A chat model's turns.

    Attributes:
      texts: of the fields of `Delimiters`; where a turn has several tokens, all of them.
      system_start: before a system message, which ends as a turn of the user does; () where the
          template writes none apart.
      strips: blanks at the ends of an utterance are left out, as the template does.
    """

    template: ChatTemplate
    delimiters: Delimiters
    turns: Turns
    texts: tuple[str, ...]
    system_start: tuple[int, ...]
    strips: bool


def file_of(path: str) -> Path:
    """The tokenizer.json that `path` is, or that its folder has."""
    return Path(path) / FILE if Path(path).is_dir() else Path(path)


class Choice(NamedTuple):
    """The turns of a run, `OWN` or `NEW`, and why they are new; the reason is empty where none is
    needed.
    """

    turns: str
    reason: str


def choose(turns: str, folder: str) -> Choice:
    """What `config.turns` comes to for the tokenizer in `folder`; '' for tokens that are learned
    from the dialogues.

    Raises:
      UserError: `OWN`, and the model has no turns that can be used so.
    """
    if turns == NEW or (turns == AUTO and not folder):
        return Choice(NEW, "")
    try:
        if not folder:
            raise UserError("tokens that are learned from the dialogues have no chat template")
        file = file_of(folder)
        read(file, tokenizer_files.read(file))
    except UserError as error:
        if turns == OWN:
            raise UserError(f"config.turns={OWN}: must be {AUTO} or {NEW}: {error}") from None
        return Choice(NEW, str(error))
    return Choice(OWN, "")


def read(file: Path, backend: Backend) -> OwnTurns:
    """The turns of the model beside the tokenizer.json `file`.

    Raises:
      UserError: there is no chat template, or its turns do not begin and end with special tokens.
    """
    template = chat_template.read(file.parent)
    if template is None:
        raise UserError(f"{file.parent} has no chat template")
    texts = chat_template.turn_texts(template)
    # Special tokens alone cannot come from an utterance's own text (`FileTokenizer.encode`).
    special = {
        token for token, added in backend.get_added_tokens_decoder().items() if added.special
    }

    def tokens_of(text: str) -> tuple[int, ...]:
        # A template writes the beginning of text itself.
        return tuple(backend.encode(text, add_special_tokens=False).ids)

    def require_special(name: str, tokens: tuple[int, ...]) -> None:
        if not tokens or tokens[0] not in special:
            raise UserError(f"{file.parent}: in its chat template {name} with no special token")

    user_open = tokens_of(texts.user_open)
    user_close = tokens_of(texts.user_close)
    assistant_open = tokens_of(texts.assistant_open)
    assistant_close = tokens_of(texts.assistant_close)
    require_special("a turn of the user begins", user_open)
    require_special("a turn of the user ends", user_close)
    require_special("a turn of the assistant ends", assistant_close)
    if assistant_open:
        require_special("a turn of the assistant begins", assistant_open)

    turns = Turns(
        # Together, since a text may have other tokens in one piece than in two.
        state_start=tokens_of(texts.begin + texts.user_open),
        action_start=tokens_of(texts.begin + texts.assistant_open),
        state_open=user_open,
        state_close=user_close,
        action_open=assistant_open,
        # Its first token is `Delimiters.action_end`, which the agent says itself.
        action_close=assistant_close[1:],
    )
    if not turns.action_start:
        raise UserError(
            f"{file.parent}: its chat template writes nothing before an answer that comes first"
        )
    system_start = tokens_of(chat_template.before_system(template, texts))
    written = {*assistant_close, *(token for tokens in (*turns, system_start) for token in tokens)}
    unwritten = sorted(special - written)
    if not unwritten:
        raise UserError(f"{file.parent}: its chat template leaves no special token for padding")

    # The first special token that no turn has: that of the end of text, of padding or of what is
    # unknown, by family.
    pad = unwritten[0]
    delimiters = Delimiters(
        pad=pad,
        state_start=turns.state_start[0],
        action_start=turns.action_start[0],
        state_end=user_close[0],
        action_end=assistant_close[0],
        # A chat has no token for its end: that of the padding stands for it.
        dialogue_end=pad,
    )
    pad_text = backend.decode([pad], skip_special_tokens=False)
    end_text = backend.decode([delimiters.action_end], skip_special_tokens=False)
    delimiter_texts = (
        pad_text,
        texts.begin + texts.user_open,
        texts.begin + texts.assistant_open,
        texts.user_close + texts.assistant_open,
        end_text,
        pad_text,
    )
    return OwnTurns(template, delimiters, turns, delimiter_texts, system_start, texts.strips)
