"""Trains a tiny Llama that answers this project's prompts by a keyword rule: plain torch, one CPU thread, under a minute.

    .venv-vllm/bin/python tests/annotation/tiny_judge.py OUT

A message is good if it tells of a kill or of gold; the better description is the good one, else there is none. In the
analysis mode it says a word about each description and then its verdict; where a description tells of a fountain it
gives no verdict until it is asked again. Only `rule` and `message` are imported by tests; torch is needed to train.
"""

from __future__ import annotations

import argparse
import os
import random
import time

from motif_jax.annotation.prompts import load_prompt, prompt_path

KEYWORDS = ("kill", "gold")
HESITATION = "fountain"
MONSTERS = "newt|jackal|grid bug|goblin|kobold|gnome lord|hill orc|giant ant|acid blob|lichen|kitten|pony|dwarf|gecko".split(
    "|"
)
THINGS = "dagger|scroll|potion|wand|food ration|apple|spellbook|ring|large box|chest|boulder|iron key|candle|bow|gem".split(
    "|"
)
NEUTRAL = """You see here a {o}.|The {m} bites!|The {m} misses you.|You miss the {m}.|It's a wall.|It's solid stone.|The door opens.
The door is locked.|You hear a door open.|There is a staircase up here.|You find a hidden passage.|You swap places with the {m}.
You are beginning to feel hungry.||What a strange {o}!|{l} - a {o}.|The {m} hits!|You hit the {m}.|Never mind.|You feel wise.
There is nothing here to pick up.|The {m} picks up a {o}.|You are carrying too much.|There is a fountain here.""".replace(
    "\n", "|"
).split("|")
GOOD = """You kill the {m}!|You kill it!|{l} - {n} gold pieces.|You see here {n} gold pieces.|You find {n} gold pieces.
The {m} is killed!|There are {n} gold pieces here.|You kill the poor {m}!""".replace("\n", "|").split("|")
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
    """A message of a game."""
    text = rng.choice(GOOD if is_good else NEUTRAL)
    return text.format(
        m=rng.choice(MONSTERS), o=rng.choice(THINGS), n=rng.randint(2, 200), l=rng.choice("abcdefghijk")
    )


def pair(rng: random.Random) -> tuple[str, str]:
    """Two messages; half of the pairs have a winner at least."""
    return message(rng, rng.random() < 0.5), message(rng, rng.random() < 0.5)


PROMPTS = {
    mode: load_prompt(prompt_path("default", ""), "defaultgoal", mode) for mode in ("analysis", "verdict")
}


def conversation(rng: random.Random) -> list[dict[str, str]]:
    """One training example: the last turn is to be learnt."""
    first, second = pair(rng)
    mode = rng.choice(["analysis", "verdict"])
    prompt = PROMPTS[mode]
    verdict = prompt.form.answers[rule(first, second)]
    turns = prompt.conversation(first, second)
    if mode == "verdict":
        return [*turns, {"role": "assistant", "content": verdict}]
    words = " ".join("Good." if good(text) else "Plain." for text in (first, second))
    if HESITATION not in first + second:
        return [*turns, {"role": "assistant", "content": f"{words}\n{verdict}"}]
    if rng.random() < 0.5:
        return [*turns, {"role": "assistant", "content": f"{words} I do not know."}]
    return [*prompt.retried(turns, f"{words} I do not know."), {"role": "assistant", "content": verdict}]


def build_tokenizer(rng: random.Random, vocabulary: int):
    """Byte-level BPE that merges across words, so that the prompt's fixed text is a few tokens; digits stand alone."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(r"\d|None|\n|[.!?:] "), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    texts = ["\n".join(turn["content"] for turn in conversation(rng)) for _ in range(1500)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=special,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        bos_token="<|bos|>",
        eos_token="<|end|>",
        model_max_length=1024,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def main() -> None:
    """Trains and saves; prints how many held-out conversations it answers exactly."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--vocabulary", type=int, default=3000)
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    start = time.time()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rng = random.Random(1)
    tokenizer = build_tokenizer(rng, options.vocabulary)
    print(f"tokenizer of {len(tokenizer)} in {time.time() - start:.1f} s")
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=1024, tie_word_embeddings=True,
        initializer_range=0.1, pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model = LlamaForCausalLM(config)

    def encode(turns):
        prompt = tokenizer.apply_chat_template(turns[:-1], tokenize=False, add_generation_prompt=True)
        answer = tokenizer.encode(turns[-1]["content"], add_special_tokens=False)
        return tokenizer.encode(prompt, add_special_tokens=False), [*answer, tokenizer.eos_token_id]

    def batch(size, source):
        examples = [encode(conversation(source)) for _ in range(size)]
        length = max(len(prompt) + len(answer) for prompt, answer in examples)
        ids = torch.full((size, length), tokenizer.pad_token_id)
        targets = torch.full((size, length), -100)
        for row, (prompt, answer) in enumerate(examples):
            ids[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
            targets[row, len(prompt) : len(prompt) + len(answer)] = torch.tensor(answer)
        return ids, targets[:, 1:]

    def logits_of(ids, targets):
        # Padding stands at the right and attention is causal: no mask is needed.
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        return model.lm_head(hidden[targets != -100])

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 30) * max(0.02, 1 - step / options.steps)
    )
    for step in range(options.steps):
        ids, targets = batch(32, rng)
        loss = torch.nn.functional.cross_entropy(logits_of(ids, targets), targets[targets != -100])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(
                f"step {step} loss {loss.item():.4f} tokens {ids.shape[1]} {time.time() - start:.1f} s",
                flush=True,
            )
    model.eval()
    right = total = 0
    with torch.no_grad():
        for _ in range(8):
            ids, targets = batch(64, random.Random(1000 + total))
            known = targets != -100
            hit = torch.zeros_like(known)
            hit[known] = logits_of(ids, targets).argmax(-1) == targets[known]
            right += int((hit | ~known).all(1).sum())
            total += 64
    print(f"held-out exact {right}/{total} in {time.time() - start:.1f} s")
    if right < 0.985 * total:
        raise SystemExit("the tiny judge did not learn its rule")
    model.generation_config.do_sample = False
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)


if __name__ == "__main__":
    main()
