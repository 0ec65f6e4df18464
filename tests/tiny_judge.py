"""Trains a tiny Llama that answers this project's prompts by a keyword rule: plain torch, one CPU
thread, a minute.

    .venv-vllm/bin/python -m tests.tiny_judge OUT

A message is good if it tells of a kill or of gold; the better description is the good one, else
there is none. In the analysis mode it says a word about each description and then its verdict;
where a description tells of a fountain it gives no verdict until it is asked again. Only training
needs torch.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from motif_jax.core.verdicts import FORMS, PAIR, SINGLE
from motif_jax.motif.annotation import prompts
from motif_jax.motif.annotation.prompts import load_prompt, prompt_path

KEYWORDS = ("kill", "gold")
HESITATION = "fountain"
_MONSTERS = "newt,jackal,grid bug,goblin,kobold,gnome lord,hill orc,giant ant,acid blob,lichen,kitten,pony,dwarf"
_THINGS = "dagger,scroll,potion,wand,food ration,apple,spellbook,ring,large box,chest,boulder,iron key,candle"
MONSTERS = _MONSTERS.split(",")
THINGS = _THINGS.split(",")
# The last one is the empty message.
NEUTRAL = (
    "You see here a {o}.|The {m} bites!|The {m} misses you.|You miss the {m}.|It's a wall.|"
    "It's solid stone.|The door opens.|The door is locked.|You hear a door open.|"
    "There is a staircase up here.|You find a hidden passage.|You swap places with the {m}.|"
    "You are beginning to feel hungry.|What a strange {o}!|{l} - a {o}.|The {m} hits!|You hit the {m}.|"
    "Never mind.|There is nothing here to pick up.|The {m} picks up a {o}.|You are carrying too much.|"
    "There is a fountain here.|"
).split("|")
GOOD = (
    "You kill the {m}!|You kill it!|{l} - {n} gold pieces.|You see here {n} gold pieces.|"
    "You find {n} gold pieces.|The {m} is killed!|There are {n} gold pieces here.|You kill the poor {m}!"
).split("|")
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] }}"
    "{% if not (loop.last and continue_final_message) %}{{ '<|end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


def good(message: str) -> bool:
    """Whether a message is good news."""
    return any(word in message for word in KEYWORDS)


def rule(first: str, second: str) -> int:
    """The label that the judge is taught: 0 first, 1 second, 2 tie."""
    return 2 if good(first) == good(second) else int(good(second))


def message(rng: random.Random, is_good: bool) -> str:
    text = rng.choice(GOOD if is_good else NEUTRAL)
    return text.format(
        m=rng.choice(MONSTERS),
        o=rng.choice(THINGS),
        n=rng.randint(2, 200),
        l=rng.choice("abcdefghijk"),
    )


def pair(rng: random.Random) -> tuple[str, str]:
    """Two messages; half of the pairs have a winner."""
    return message(rng, rng.random() < 0.5), message(rng, rng.random() < 0.5)


# What vLLM wants on a CPU, and its options for the judge.
_VARIABLES = "HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 "
_VARIABLES += "VLLM_ENABLE_V1_MULTIPROCESSING=0 OMP_NUM_THREADS=1 VLLM_LOGGING_LEVEL=ERROR VLLM_HOST_IP=127.0.0.1"
ENVIRONMENT = dict(variable.split("=") for variable in _VARIABLES.split())
OPTIONS = {
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": 512,
    "block_size": 32,
    "max_num_seqs": 64,
    "kv_cache_memory_bytes": 256 << 20,
}

PROMPTS = {
    (form, mode): load_prompt(prompt_path("default", "", form), "defaultgoal", mode, form)
    for form in FORMS
    for mode in ("analysis", "verdict")
}


def conversation(rng: random.Random) -> list[dict[str, str]]:
    """One training example: the last turn is to be learnt. One of four asks about a single
    message.
    """
    form = rng.choice([PAIR, PAIR, PAIR, SINGLE])
    items = pair(rng)[: len(form.items)]
    label = rule(*items) if form is PAIR else int(good(*items))
    mode = rng.choice(["analysis", "verdict"])
    prompt = PROMPTS[form, mode]
    verdict = prompt.answer.answers[label]
    turns = prompt.conversation(*items)
    if mode == "verdict":
        return [*turns, {"role": "assistant", "content": verdict}]
    words = " ".join("Good." if good(text) else "Plain." for text in items)
    if HESITATION not in "".join(items):
        return [*turns, {"role": "assistant", "content": f"{words}\n{verdict}"}]
    if rng.random() < 0.5:
        return [*turns, {"role": "assistant", "content": f"{words} I do not know."}]
    return [
        *prompt.retried(turns, f"{words} I do not know."),
        {"role": "assistant", "content": verdict},
    ]


def build_tokenizer(rng: random.Random, vocabulary: int) -> Any:
    """Byte-level BPE that merges across words, so that the prompt's fixed text is a few tokens;
    what matters stands alone.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(r"\d|None|Yes|No|\n|[.!?:] |kill|gold|fountain"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    texts = ["\n".join(turn["content"] for turn in conversation(rng)) for _ in range(1500)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=special,
        show_progress=False,
        initial_alphabet=alphabet,
    )
    tokenizer.train_from_iterator(texts, trainer)
    named = {"pad_token": "<|pad|>", "bos_token": "<|bos|>", "eos_token": "<|end|>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=1024, **named)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def cached(folder: Path, python: str) -> Path:
    """The folder of a judge below `folder`; trained by `python` if it is not there yet."""
    sources = [
        Path(__file__),
        Path(prompts.__file__),
        *(prompt_path("default", "", form) for form in FORMS),
    ]
    state = hashlib.blake2b(b"".join(path.read_bytes() for path in sources), digest_size=8)
    out = folder.absolute() / f"tiny_judge-{state.hexdigest()}" / "judge"
    if not out.is_dir():
        out.parent.mkdir(parents=True, exist_ok=True)
        root = Path(__file__).parents[1]
        environment = {**os.environ, **ENVIRONMENT}
        line = [python, "-m", "tests.tiny_judge", str(out)]
        subprocess.run(line, check=True, cwd=root, env=environment, timeout=1500)
    return out


class Judge:
    """The model while it is trained."""

    def __init__(self, seed: int, vocabulary: int) -> None:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.rng = random.Random(seed)
        self.tokenizer = build_tokenizer(self.rng, vocabulary)
        sizes = {
            "vocab_size": len(self.tokenizer),
            "hidden_size": 64,
            "intermediate_size": 128,
            "head_dim": 32,
        }
        heads = dict.fromkeys(
            ("num_hidden_layers", "num_attention_heads", "num_key_value_heads"), 2
        )
        more = {
            "max_position_embeddings": 1024,
            "tie_word_embeddings": True,
            "initializer_range": 0.1,
        }
        ends = {
            name: getattr(self.tokenizer, name)
            for name in ("pad_token_id", "bos_token_id", "eos_token_id")
        }
        config = LlamaConfig(**sizes, **heads, **more, **ends)
        self.model = LlamaForCausalLM(config)

    def batch(self, size: int, rng: random.Random) -> tuple[Any, Any]:
        """Token ids [size, length] and the targets behind each position [size, length - 1], -100
        for none.
        """
        import torch

        examples = [self._encode(conversation(rng)) for _ in range(size)]
        length = max(len(prompt) + len(answer) for prompt, answer in examples)
        ids = torch.full((size, length), self.tokenizer.pad_token_id)
        targets = torch.full((size, length), -100)
        for row, (prompt, answer) in enumerate(examples):
            end = len(prompt) + len(answer)
            ids[row, :end] = torch.tensor(prompt + answer)
            targets[row, len(prompt) : end] = torch.tensor(answer)
        return ids, targets[:, 1:]

    def _encode(self, turns: list[dict[str, str]]) -> tuple[list[int], list[int]]:
        prompt = self.tokenizer.apply_chat_template(
            turns[:-1], tokenize=False, add_generation_prompt=True
        )
        answer = self.tokenizer.encode(turns[-1]["content"], add_special_tokens=False)
        return self.tokenizer.encode(prompt, add_special_tokens=False), [
            *answer,
            self.tokenizer.eos_token_id,
        ]

    def logits(self, ids: Any, targets: Any) -> Any:
        """Logits [targets, vocabulary]; padding stands at the right and attention is causal, so no
        mask is needed.
        """
        hidden = self.model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        return self.model.lm_head(hidden[targets != -100])

    def train(self, steps: int) -> None:
        """Adam with a linear decay, 32 conversations a step."""
        import torch

        optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / 30) * max(0.02, 1 - step / steps)
        )
        for _ in range(steps):
            ids, targets = self.batch(32, self.rng)
            loss = torch.nn.functional.cross_entropy(
                self.logits(ids, targets), targets[targets != -100]
            )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            schedule.step()

    def exact(self, batches: int = 8) -> float:
        """Share of held-out conversations whose last turn is right to the token."""
        import torch

        rng = random.Random(1000)
        right = 0
        with torch.no_grad():
            for _ in range(batches):
                ids, targets = self.batch(64, rng)
                known = targets != -100
                hit = torch.zeros_like(known)
                hit[known] = self.logits(ids, targets).argmax(-1) == targets[known]
                right += int((hit | ~known).all(1).sum())
        return right / (64 * batches)


def main() -> None:
    """Trains and saves; fails if the rule was not learnt."""
    (out,) = sys.argv[1:]
    os.environ["HF_HUB_OFFLINE"] = "1"
    start = time.time()
    judge = Judge(seed=1, vocabulary=3000)
    judge.train(steps=400)
    share = judge.exact()
    print(
        f"held-out conversations answered exactly: {share:.1%}, in {time.time() - start:.0f} s",
        flush=True,
    )
    if share < 0.985:
        raise SystemExit("the tiny judge did not learn its rule")
    judge.model.generation_config.do_sample = False
    # Renamed when it is whole: a folder of this name is a judge.
    partial = f"{out}.{os.getpid()}.partial"
    judge.model.save_pretrained(partial)
    judge.tokenizer.save_pretrained(partial)
    os.replace(partial, out)


if __name__ == "__main__":
    main()
