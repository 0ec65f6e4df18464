"""Writes which tokens llama.cpp makes of texts by small made-up GGUF files.

PYTHON tests/lm/gguf/make_llama_cpp_tokens.py OUT.json

PYTHON is of an environment with xllamacpp (llama.cpp's code), gguf, tokenizers and numpy.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import gguf
import numpy as np

# Every name of tokenizer.ggml.pre that is accepted, those together that cut alike.
NAMES = (
    ("gpt-2", "phi-2", "olmo", "mpt"),
    ("default",),
    ("smollm", "starcoder", "refact", "command-r", "codeshell"),
    ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"),
    ("smaug-bpe", "dbrx"),
    ("qwen2", "deepseek-r1-qwen", "megrez"),
)
TEXTS = (
    "", " ", "  ", "\n", "\n\n\n", "\t\t", "\r\n\r\n", "You kill the jackal!", " You kill", "  You kill", "trailing ", "It has 1234 gold (and 56 more).",
    "123456789", "3.14159 1,000,000 $100 + 20 = 120", "It's DON'T he'll they'VE I'M 'S 're", "a  b   c    d", "line\nline\n\n  line\r\n\tline",
    "x\n\n  y \n z", "def f(x):\n    return x**2 # a_b", "{'a': [1, 2]} <b> </b> a|b ~x^2 `code`", "... -- ?! \"quoted\" “quoted” – § €5",
    "naïve café Straße Ωμέγα привет", "cafe\u0301 e\u0301 ﬁ", "日本語 中文123 안녕 「x」。", "😀 👩‍🚀 🇩🇪 👍🏽", "½ ① Ⅻ ² ３ ٣٤٥", "\u00a0a\u3000b\u2028c\u200bd\u0085e",
    "<|im_start|>user\nYou kill<|im_end|>\n<|im_start|>assistant\n", "a<|im_end|> b<|im_end|>", "<|endoftext|>You", "<unk> <code>  x<code>y  <code>", "      six blanks       seven",
    "▁ a▁b <0x41>", "the door is open", "DoorKey is open",
)  # fmt: skip
# Special tokens, one of users, and an end of a turn whose kind is that of ordinary pieces.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
MARKS = {
    "<|endoftext|>": CONTROL,
    "<|im_start|>": CONTROL,
    "<|im_end|>": NORMAL,
    "<unk>": UNKNOWN,
    "<code>": USER_DEFINED,
    "      ": USER_DEFINED,
    "\n\n": USER_DEFINED,
}
# Tokens that no merges make.
WHOLE_WORDS = ("ĠDoorKey", "open")
# Variants of SentencePiece's files -> the architecture, and whether a blank stands before a text.
PIECES = {"a blank before": ("llama", True), "none": ("llama", False), "gemma": ("gemma3", False)}


def learned_pairs() -> list[str]:
    """Byte pairs of the texts, across words, so that each cut shows in the tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    texts = [text.replace("<|", "").replace("open", "") for text in TEXTS]
    backend.train_from_iterator(
        texts * 2,
        trainers.BpeTrainer(
            vocab_size=600, initial_alphabet=alphabet(), max_token_length=6, show_progress=False
        ),
    )
    return [" ".join(merge) for merge in json.loads(backend.to_str())["model"]["merges"]]


def alphabet() -> list[str]:
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def write_byte_pairs(path: Path, pre: str | None, merges: list[str], **more: Any) -> Path:
    """A file with GPT-2's byte pairs; `more` are further entries of tokenizer.ggml."""
    tokens = [*alphabet(), *dict.fromkeys(merge.replace(" ", "") for merge in merges)]
    tokens += WHOLE_WORDS
    writer = _writer(path, "llama", [*tokens, *MARKS])
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_types([NORMAL] * len(tokens) + list(MARKS.values()))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(len(tokens))
    writer.add_eos_token_id(len(tokens))
    for key, value in more.items():
        writer.add_bool(f"tokenizer.ggml.{key}", value)
    return _finished(writer, path, len(tokens) + len(MARKS))


def write_pieces(path: Path, architecture: str, blank_before: bool, **more: Any) -> Path:
    """A file of SentencePiece's kind, whose scores are not in the order of its pieces."""
    tokens = ["<unk>", "<s>", "</s>"]
    kinds = [UNKNOWN, CONTROL, CONTROL]
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    kinds += [BYTE] * 256
    for user in ("<code>", "\n\n", "  ", "      "):
        tokens.append(user)
        kinds.append(USER_DEFINED)
    tokens.append("<|im_end|>")
    kinds.append(NORMAL)
    words = "▁You ▁kill ▁the ▁jackal ▁door ▁is ▁open ▁▁ ▁a ▁b It's ▁has ▁gold 123 456 ▁line ▁return".split()
    beginnings = {word[:end] for word in words for end in range(2, len(word) + 1)}
    ends = {word[start:] for word in words for start in range(1, len(word) - 1)}
    letters = {letter for word in words for letter in word} | set("ABCDcdmnouxyz.,!?()é")
    pieces = [*sorted(beginnings | ends), *sorted(letters)]
    scores = [0.0] * len(tokens) + [-float(rank) for rank in _mixed(len(pieces))]
    tokens += pieces
    kinds += [NORMAL] * len(pieces)
    writer = _writer(path, architecture, tokens)
    writer.add_tokenizer_model("llama")
    writer.add_token_types(kinds)
    writer.add_token_scores(scores)
    writer.add_unk_token_id(0)
    writer.add_add_space_prefix(blank_before)
    for key, value in more.items():
        writer.add_bool(f"tokenizer.ggml.{key}", value)
    return _finished(writer, path, len(tokens))


def _mixed(count: int) -> list[int]:
    order = list(range(count))
    random.Random(0).shuffle(order)
    return order


def _writer(path: Path, architecture: str, tokens: list[str]) -> Any:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_key_length(8)
    writer.add_value_length(8)
    writer.add_layer_norm_rms_eps(1e-5)
    if architecture == "gemma3":
        writer.add_sliding_window(32)
    writer.add_token_list(tokens)
    return writer


def _finished(writer: Any, path: Path, vocab_size: int) -> Path:
    """Adds the tensors of one block: llama.cpp opens no file without."""
    shapes = {"token_embd": (vocab_size, 32), "output_norm": (32,)}
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        shapes[f"blk.0.{name}"] = (32, 32)
    for name in ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"):
        shapes[f"blk.0.{name}"] = (32,)
    for name in ("attn_q_norm", "attn_k_norm"):
        shapes[f"blk.0.{name}"] = (8,)
    for name in ("ffn_gate", "ffn_up"):
        shapes[f"blk.0.{name}"] = (48, 32)
    shapes["blk.0.ffn_down"] = (32, 48)
    is_gemma = writer.arch == "gemma3"
    for name, shape in shapes.items():
        if is_gemma or not name.endswith(
            ("post_attention_norm", "post_ffw_norm", "_q_norm", "_k_norm")
        ):
            writer.add_tensor(f"{name}.weight", np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tokens_of(path: Path) -> list[list[int]]:
    """What llama.cpp makes of the texts."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(path)
    settings.n_ctx = 64
    settings.n_parallel = 1
    settings.n_gpu_layers = 0
    settings.warmup = False
    settings.verbosity = 0
    server = xllamacpp.Server(settings)
    rows = []
    for text in TEXTS:
        body = {"content": text, "add_special": True, "parse_special": True}
        request = urllib.request.Request(
            f"{server.listening_address}/tokenize",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        rows.append(json.load(urllib.request.urlopen(request))["tokens"])
    return rows


def main(out: Path) -> None:
    merges = learned_pairs()
    words = {}
    pieces = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.gguf"
        for names in NAMES:
            rows = [tokens_of(write_byte_pairs(file, name, merges)) for name in names]
            assert all(row == rows[0] for row in rows), names
            words[" ".join(names)] = rows[0]
        for variant, (architecture, blank_before) in PIECES.items():
            pieces[variant] = tokens_of(write_pieces(file, architecture, blank_before))
    lines = []
    for kind, groups in (("words", words), ("pieces", pieces)):
        listed = [
            f"{json.dumps(group)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]"
            for group, rows in groups.items()
        ]
        lines.append(f"{json.dumps(kind)}: {{\n" + ",\n".join(listed) + "\n}")
    content = f'{{\n"merges": {json.dumps(merges)},\n' + ",\n".join(lines) + "\n}\n"
    out.write_text(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
