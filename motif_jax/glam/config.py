"""The configs of GLAM: its networks, DRRN's Q-learning, probes, players of levels, and behavioural cloning."""

from __future__ import annotations

from motif_jax.core import sections
from motif_jax.core.training.config import GradientConfig
from motif_jax.play.config import AgentCheckpoint
from motif_jax.play.keys import GREEDY
from motif_jax.rl.config import PlayedTask
from motif_jax.schema import (
    fraction,
    layer_size_key,
    length_key,
    non_negative,
    one_of,
    plain_key,
    positive,
    section_class,
    subsection,
)


@section_class
class LanguagePolicy:
    """A language model as an agent."""

    kind: str = one_of(("language",), "kind of policy, a language model that scores actions")
    model: str = plain_key("", "a folder, or a name of the Hugging Face hub")
    pretrained: bool = plain_key(
        True, "starts from the weights in the model's folder; False: fresh weights of the model's shapes"
    )
    keep_embedding: bool = plain_key(False, "takes the folder's embeddings all the same, with fresh weights")
    policy: str = one_of(
        ("score", "actions"), "scores the actions' words, or has a head on the value's state"
    )
    score: str = one_of(
        ("log_probability", "raw_logit", "scaled_probability"),
        "score of an action by its words: the sum of their tokens' log-probabilities, or of their logits, or the product of their tokens' "
        "probabilities over the greatest of all actions', which are logits in their turn: the policy is their softmax",
    )
    by_length: bool = plain_key(False, "divides an action's sum by its number of tokens")
    special_tokens: str = one_of(
        ("prompt", "nowhere"),
        "where the tokens that the tokenizer adds to a text (such as T5's end token) stand: around the prompt, as in pretraining, or "
        "nowhere, as in the released code",
    )
    # Of the probability of SmolLM2-135M-Instruct .15 lies on BabyAI-Text's six actions in plain text, .007 in turns; of Qwen2.5-Coder-0.5B's
    # .58 and .013: an answer begins in its own words, where "Action 0:" goes on with an action.
    chat: str = one_of(
        ("never", "auto", "always"),
        "whether a prompt is a turn of the user by the model's own chat template, and the action the beginning of the assistant's: 'auto' where a "
        "decoder that scores words has a template, and prompt and action are tokenised together; 'never': plain text",
    )
    head_widths: tuple[int, ...] = layer_size_key(
        (1024, 1024), "sizes of the hidden layers of the value's and the action's heads"
    )
    prompt_tokens: int = length_key(
        512, "greatest number of tokens of a prompt; batches are padded to the longest in them"
    )
    dtype: str = sections.DTYPE
    remat: bool = sections.REMAT


@section_class
class DrrnPolicy:
    """DRRN (He et al. 2016) as an agent, with the published sizes."""

    kind: str = one_of(("drrn",), "kind of policy, the DRRN baseline")
    tokenizer: str = plain_key("", "a tokenizer.json, or a folder with one")
    embedding: int = layer_size_key(128, "width of a token's")
    hidden_size: int = layer_size_key(128, "size of both encoders and of the layer before Q")
    prompt_tokens: int = length_key(
        512, "greatest number of tokens of a prompt; batches are padded to the longest in them"
    )


@section_class
class QLearning:
    """DRRN's Q-learning (glam/drrn_update.py)."""

    name: str = plain_key(
        "drrn", "algorithm, or module:Class of your own (motif_jax/rl/algorithms/algorithm.py)"
    )
    gamma: float = fraction(0.9, "discount of a step")
    epochs: int = positive(1, "steps of learning after each batch, each on its own draw")
    # All of the published run.
    replay_steps: int = positive(1_500_000, "steps remembered, each in 2.5 bytes x network.prompt_tokens")
    replay_draw: int = positive(64, "steps of a draw, of all devices together")
    positive_reward: bool = plain_key(True, "negative rewards of the task count as 0, as published")


@section_class
class ProbeQuestions:
    """What a language agent is asked before updates."""

    prompts: str = plain_key(
        "own",
        "fixed situations in which the agent is asked what it would do, before every update: 'own' (11 built-in ones in English, those with "
        "no more observations than its prompts), '' for none, or a JSON file like configs/probes/babyai_text.json",
    )
    clauses_every: int = non_negative(
        50, "updates between probes that leave out each clause in turn; 0: never"
    )


@section_class
class PublishedArrays:
    """Published trajectories."""

    dir: str | None = plain_key(
        None,
        "folder of published arrays in place of trajectories: DIR/NAME_prompts_NUMBER.npy, NAME_actions_NUMBER.npy",
    )
    name: str = plain_key("trajectories", "NAME of the published arrays, see dir")
    number: int = non_negative(13, "NUMBER of the published arrays, see dir")


@section_class
class CloningConfig(GradientConfig):
    """A training of a language agent on trajectories."""

    seed: int = sections.SEED
    trajectories: str | None = plain_key(None, "folder of collect_trajectories to learn from")
    # Arrays of Python objects are refused.
    published: PublishedArrays = subsection(PublishedArrays)
    train_pairs: int | None = positive(
        None, "the first ones (published: 400,000); None: all but held_out_share"
    )
    held_out_share: float = plain_key(
        0.05, "share of the steps that is held out to measure with", above=0, maximum=0.5
    )
    loss: str = one_of(
        ("tokens", "candidates"),
        "'tokens': cross-entropy of each token of the action's words and of the end token after them, as published. 'candidates': "
        "cross-entropy of the action among all actions, as PPO acts",
    )
    target_tokens: int = layer_size_key(3, "number of pads, at most, that count with compat.bc_pad_in_loss")
    batch_size: int = sections.batch_size_key(64, "steps of a batch")
    accumulate: int = sections.ACCUMULATE
    epochs: int = positive(1, "passes over the pairs")
    evaluate_every: int = positive(250, "optimiser steps between evaluations")
    evaluation_batches: int = positive(64, "greatest number of batches of held-out steps in an evaluation")
    chunk_steps: int = sections.CHUNK_STEPS
    warmup_share: float = fraction(
        0.01, "share of the steps that warm up, where optimizer.warmup_steps is None"
    )
    optimizer: sections.Optimizer = subsection(
        sections.Optimizer, learning_rate=5e-4, schedule="cosine", warmup_steps=None, max_gradient_norm=0.0
    )
    # What a language agent is made of.
    network: LanguagePolicy = subsection(LanguagePolicy)
    lora: sections.LoraOnBase = subsection(sections.LoraOnBase, rank=16, alpha=32.0)
    # Of our trajectories name, options and the wording of French goals (compat.glam_french_goal) are theirs.
    environment: PlayedTask = PlayedTask()
    keep_checkpoints: int = positive(
        3, "number of newest evaluations whose checkpoints stay, besides the best"
    )
    profile: sections.Profile = subsection(sections.Profile, steps=5)

    @property
    def source(self) -> str:
        """The place of the trajectories."""
        return self.trajectories or self.published.dir or ""


@section_class
class LevelPolicy:
    """Who plays BabyAI-Text; an agent keeps the environment's options and the network of its training."""

    seed: int = sections.SEED
    policy: str = ""
    agent: AgentCheckpoint = subsection(AgentCheckpoint)
    greedy: bool = GREEDY
    environment: PlayedTask = PlayedTask()
    network: LanguagePolicy = LanguagePolicy()
