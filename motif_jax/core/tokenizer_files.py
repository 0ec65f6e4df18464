"""Reads a tokenizer.json with what stands beside it, and keeps its special tokens out of texts."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers

from motif_jax.core.files import read_json

# Files beside a tokenizer.json, which transformers reads with it.
CONFIG_FILE = "tokenizer_config.json"
# Names the special tokens in folders that older releases of transformers wrote.
TOKENS_FILE = "special_tokens_map.json"
ADDED_TOKENS_FILE = "added_tokens.json"
_REMEDY = "restore it from where the model came from"
# Names of special tokens, in the order in which transformers adds those that are missing.
_NAMED = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
# transformers' classes that put a blank before a text where `add_prefix_space` says so. Others,
# such as PreTrainedTokenizerFast, leave that to tokenizer.json.
_BYTE_LEVEL = ("GPT2Tokenizer", "RobertaTokenizer", "Qwen2Tokenizer", "CodeGenTokenizer")
_SENTENCE_PIECE = "LlamaTokenizer"
# The class of a model whose tokenizer_config.json names none.
_CLASSES = {
    "gpt2": "GPT2Tokenizer",
    "roberta": "RobertaTokenizer",
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
}
_MARK, _BLANK = "▁", " "


def read(path: str | os.PathLike[str]) -> Tokenizer:
    """Opens a tokenizer.json, without the padding and truncation that it may ask for, and with the
    tokens and the blank before a text that files beside it ask for, as transformers' AutoTokenizer
    does.
    """
    backend = Tokenizer.from_file(str(path))
    backend.no_padding()
    backend.no_truncation()
    folder = Path(path).parent
    described = entries(folder / CONFIG_FILE)
    _set_prefix_space(backend, described, entries(folder / "config.json").get("model_type"))
    backend.add_tokens(_missing_tokens(backend, described, folder))
    return backend


def entries(path: Path) -> dict[str, Any]:
    """The entries of a JSON file that are not null; {} without the file."""
    if not path.is_file():
        return {}
    values = read_json(path, _REMEDY)
    return {name: value for name, value in values.items() if value is not None}


def _set_prefix_space(
    backend: Tokenizer, described: Mapping[str, Any], model_type: str | None
) -> None:
    """Puts a blank before texts, or takes it away, where transformers' class of the tokenizer reads
    `add_prefix_space`.
    """
    default = _CLASSES.get(model_type or "", "")
    kind = described.get("tokenizer_class", default).removesuffix("Fast")
    if model_type == "qwen2":
        # Files of this model name other classes, which transformers does not believe.
        kind = default
    wanted = described.get("add_prefix_space")
    first: Any = backend.pre_tokenizer
    is_sequence = isinstance(first, pre_tokenizers.Sequence)
    steps = list(first) if is_sequence else [first]
    byte_level = [step for step in steps if isinstance(step, pre_tokenizers.ByteLevel)]
    if kind in _BYTE_LEVEL:
        for step in byte_level:
            step.add_prefix_space = bool(wanted)
    elif kind == _SENTENCE_PIECE and wanted is not None and not byte_level:
        # Before every part between special tokens as in old files, or before the text alone.
        before = "always" if described.get("legacy", False) else "first"
        backend.normalizer = None
        backend.pre_tokenizer = pre_tokenizers.Metaspace(
            replacement=_MARK, prepend_scheme=before if wanted else "never", split=False
        )
        decoding = [decoders.Replace(_MARK, _BLANK), decoders.ByteFallback(), decoders.Fuse()]
        if wanted:
            decoding.append(decoders.Strip(_BLANK, left=1, right=0))
        backend.decoder = decoders.Sequence(decoding)


def _missing_tokens(
    backend: Tokenizer, described: Mapping[str, Any], folder: Path
) -> list[AddedToken]:
    """The tokens of the files beside tokenizer.json that it lacks, or has with other properties, in
    the order in which transformers adds them.
    """
    own = backend.get_added_tokens_decoder()
    listed = described.get("added_tokens_decoder")
    if listed is None:
        described = {**described, **entries(folder / TOKENS_FILE)}
    named, others = _special_tokens(described)
    if listed is None:
        special = {token.content for token in (*named, *others)}
        by_number = {
            number: AddedToken(text, normalized=text not in special, special=text in special)
            for text, number in entries(folder / ADDED_TOKENS_FILE).items()
        }
        by_number |= own
    else:
        by_number = {int(number): AddedToken(**values) for number, values in listed.items()}
    texts_named = {token.content for token in named}
    for token in by_number.values():
        if token.content in texts_named:
            token.special = True
    known = {repr(token) for token in own.values()}
    missing = [token for _, token in sorted(by_number.items()) if repr(token) not in known]
    texts = {token.content for token in (*own.values(), *missing)}
    for token in (*named, *others):
        if token.content not in texts:
            texts.add(token.content)
            missing.append(token)
    return missing


def _special_tokens(
    described: Mapping[str, Any],
) -> tuple[list[AddedToken], list[AddedToken]]:
    """The special tokens with a name (`eos_token`), and the others."""
    names = [f"{name}_token" for name in _NAMED]
    names += [name for name in described if name.endswith("_token") and name not in names]
    others = described.get("extra_special_tokens") or described.get("additional_special_tokens", [])
    if isinstance(others, dict):
        others = list(others.values())
    named = [_special(described[name]) for name in names if name in described]
    return (
        [token for token in named if token is not None],
        [token for token in map(_special, others) if token is not None],
    )


def _special(value: Any) -> AddedToken | None:
    """A special token that a file holds as its text, or as an object with its properties."""
    if isinstance(value, str):
        return AddedToken(value, special=True)
    if isinstance(value, dict) and "content" in value:
        properties = {name: property for name, property in value.items() if name != "__type"}
        return AddedToken(**{**properties, "special": True})
    return None


# Characters that Unicode keeps out of texts: no piece with them is in a text.
_PREFIX = "\ufdd0"
_SUFFIX = "\ufdd1"


def without_pieces(backend: Tokenizer, texts: Collection[str]) -> Tokenizer:
    """A tokenizer with the same numbers of tokens that encodes texts and never gives the tokens
    `texts` or a special token.

    What spells one of them is encoded by its characters. Setting `encode_special_tokens` is not
    enough: added tokens that are not special are matched all the same, and Unigram, WordLevel and
    WordPiece find a special token that is in their vocabulary.
    """
    values = json.loads(backend.to_str())
    model = values["model"]
    unknown = model.get("unk_token")
    special = {token["content"] for token in values["added_tokens"] if token["special"]}
    # The unknown token keeps its name: it stands for whatever no other piece spells.
    hidden = {*texts, *special} - {unknown}
    if model.get("unk_id") is not None:
        hidden.discard(model["vocab"][model["unk_id"]][0])
    for token in values["added_tokens"]:
        if token["content"] in hidden:
            # Under another name the token keeps its number.
            token |= {"content": _renamed(token["content"]), "special": True, "normalized": False}
    if isinstance(model["vocab"], dict):
        model["vocab"] = {
            _renamed(piece) if piece in hidden else piece: number
            for piece, number in model["vocab"].items()
        }
    else:
        model["vocab"] = [
            [_renamed(piece) if piece in hidden else piece, score]
            for piece, score in model["vocab"]
        ]
    if "merges" in model:
        # A merge with a piece that the table lacks could not be loaded.
        model["merges"] = [
            merge for merge in model["merges"] if not hidden & _pieces_of(merge, model)
        ]
    values["post_processor"] = None  # it adds special tokens, under their old names
    changed = Tokenizer.from_str(json.dumps(values))
    changed.encode_special_tokens = True
    return changed


def _renamed(piece: str) -> str:
    return f"{_PREFIX}{piece}{_SUFFIX}"


def _pieces_of(merge: str | list[str], model: Mapping[str, Any]) -> set[str]:
    """The two pieces of a merge of byte pairs, and the piece that they become."""
    # Older files write a merge as "a b", newer ones as ["a", "b"].
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    prefix = model.get("continuing_subword_prefix") or ""
    return {first, second, first + second.removeprefix(prefix)}
