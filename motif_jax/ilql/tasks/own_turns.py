"""A chat model's own turns as the delimiters of dialogues: derived from its chat template, and
checked against its tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer as Backend

from motif_jax.core import tokenizer_files
from motif_jax.core.errors import UserError
from motif_jax.ilql.dialogues.items import Delimiters, Turns
from motif_jax.lm import chat_template
from motif_jax.lm.chat_template import ChatTemplate

FILE = "tokenizer.json"
# Values of `config.turns`.
AUTO = "auto"
OWN = "own"
NEW = "new"


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
