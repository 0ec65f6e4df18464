"""Writes which tokens transformers makes of texts by folders whose tokens and blanks stand beside
tokenizer.json.

PYTHONPATH=. PYTHON tests/core/make_tokenizer_folders.py OUT.json

PYTHON is of an environment with transformers 5.24.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from tests.lm.tokenizer_families import mark_blanks

TEXTS = (
    "You kill the newt", " You kill", "a <think>b</think> <|turn|> c", "x <y> z<a><b> <b>", "[New] [new] <w>a <w> b", "<end> <eos> <pad>  <bos><img>",
    "<e1><e2> <plain> <q>", "<|endoftext|> You newt newts", "kill</s>You", "</s>  the", "",
)  # fmt: skip
_MERGES = (
    "Ġ Y", "o u", "ĠY ou", "Y ou", "Ġ k", "i l", "l l", "k il", "kil l", "Ġk il", "Ġkil l", "Ġ t", "h e", "Ġt he", "t he",
    "Ġ n", "e w", "n ew", "new t", "Ġn ew", "Ġnew t", "Ġ <", "< t", "t u",
)  # fmt: skip


class Case(NamedTuple):
    """The files of a folder: None for one that is not there.

    Attributes:
      backend: of `backends`.
      config: tokenizer_config.json.
      added: added_tokens.json.
      named: special_tokens_map.json.
      model_type: in config.json.
    """

    backend: str = "byte pairs"
    config: dict[str, Any] | None = None
    added: dict[str, int] | None = None
    named: dict[str, Any] | None = None
    model_type: str | None = None


def byte_pairs(blank: bool = False, split: bool = False) -> Tokenizer:
    """Byte pairs of bytes; `split`: words are cut as by Qwen 2."""
    merges = [tuple(merge.split(" ")) for merge in _MERGES]
    pieces = ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    pieces += [first + second for first, second in merges]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    backend = Tokenizer(BPE(vocabulary, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=blank)
    if split:
        words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(words), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    return backend


def sentence_piece() -> Tokenizer:
    """Llama 2's: a mark before each part of a text between special tokens."""
    merges = [tuple(merge.replace("Ġ", "▁").split(" ")) for merge in _MERGES[:22]]
    letters = sorted({letter for merge in merges for part in merge for letter in part})
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    pieces += [first + second for first, second in merges]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    backend = Tokenizer(
        BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    mark_blanks(backend)
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return backend


BACKENDS = {
    "byte pairs": byte_pairs,
    "byte pairs, blank": lambda: byte_pairs(blank=True),
    "byte pairs, split": lambda: byte_pairs(split=True),
    "sentence piece": sentence_piece,
}


def _token(content: str, **properties: bool) -> dict[str, Any]:
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False)
    return {"content": content, **flags, **properties}


def cases() -> dict[str, Case]:
    end = {"0": _token("<|endoftext|>", special=True)}
    fast = {"tokenizer_class": "PreTrainedTokenizerFast"}
    stripping = _token("<y>", lstrip=True, rstrip=True)
    turn = _token("<|turn|>", special=True)
    listed = {
        "listed": {**end, "300": _token("<think>"), "301": turn, "302": stripping},
        "listed, normalized": {
            **end,
            "300": _token("[New]", normalized=True),
            "301": _token("<w>", single_word=True),
        },
        "listed out of order": {**end, "301": _token("<b>"), "300": _token("<a>")},
        "listed with other properties": {"0": _token("<|endoftext|>", special=True, rstrip=True)},
        "listed, a piece already": {**end, "275": _token("newt")},
    }
    found = {
        name: Case(config={**fast, "added_tokens_decoder": tokens})
        for name, tokens in listed.items()
    }
    found["listed, an end"] = Case(
        config={
            **fast,
            "eos_token": "<end>",
            "added_tokens_decoder": {**end, "300": _token("<end>")},
        }
    )
    found["added"] = Case(config=fast, added={"<think>": 301, "<|turn|>": 300})
    found["added without a config"] = Case(added={"<think>": 300}, model_type="llama")
    found["added, some special"] = Case(
        config={**fast, "eos_token": "<|turn|>", "additional_special_tokens": ["<think>"]},
        added={"<think>": 301, "<|turn|>": 300, "<plain>": 302},
    )
    found["added and named apart"] = Case(
        config=fast,
        added={"<|turn|>": 300, "<plain>": 301},
        named={
            "eos_token": "<|turn|>",
            "additional_special_tokens": ["<q>"],
            "pad_token": {k: v for k, v in _token("<pad>", lstrip=True).items() if k != "special"},
        },
    )
    found["named"] = Case(
        config={
            **fast,
            "pad_token": "<pad>",
            "bos_token": "<bos>",
            "image_token": "<img>",
            "extra_special_tokens": ["<e1>", "<e2>"],
            "eos_token": {"__type": "AddedToken", **_token("<eos>", special=True)},
        }
    )
    found["named, further ones by names"] = Case(
        config={**fast, "extra_special_tokens": {"image_token": "<img>"}}
    )
    blanks: list[tuple[str, str, bool | None, str | None]] = [
        (backend, name, wanted, None)
        for backend in ("byte pairs", "byte pairs, blank")
        for name in ("GPT2Tokenizer", "GPT2TokenizerFast", "PreTrainedTokenizerFast")
        for wanted in (None, False, True)
    ]
    blanks += [("byte pairs, split", "Qwen2Tokenizer", wanted, "qwen2") for wanted in (None, True)]
    blanks += [("byte pairs, split", "PreTrainedTokenizerFast", True, "qwen2")]
    blanks += [
        ("sentence piece", "LlamaTokenizerFast", wanted, "llama") for wanted in (False, True)
    ]
    for backend, name, wanted, model_type in blanks:
        config: dict[str, Any] = {"tokenizer_class": name}
        if wanted is not None:
            config["add_prefix_space"] = wanted
        found[f"{backend}, {name}, {wanted}"] = Case(backend, config, model_type=model_type)
    llama = {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": True, "legacy": True}
    found["sentence piece, of old"] = Case("sentence piece", llama)
    found["gpt2 without a class"] = Case(config={"add_prefix_space": True}, model_type="gpt2")
    return found


def write(folder: Path, case: Case) -> Path:
    """Writes the files of a case, and gives its tokenizer.json."""
    folder.mkdir(parents=True)
    file = folder / "tokenizer.json"
    BACKENDS[case.backend]().save(str(file))
    model = None if case.model_type is None else {"model_type": case.model_type}
    files = {
        "tokenizer_config.json": case.config,
        "added_tokens.json": case.added,
        "special_tokens_map.json": case.named,
        "config.json": model,
    }
    for name, values in files.items():
        if values is not None:
            (folder / name).write_text(json.dumps(values))
    return file


def main(out: Path) -> None:
    import transformers

    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, case) in enumerate(cases().items()):
            file = write(Path(folder) / str(number), case)
            tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent)
            rows = [tokenizer(text)["input_ids"] for text in TEXTS]
            texts = [tokenizer.decode(row, skip_special_tokens=True) for row in rows]
            entry = json.dumps({"tokens": rows, "texts": texts})
            lines.append(f"{json.dumps(name)}: {entry}")
    out.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
