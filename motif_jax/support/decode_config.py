"""The keys below `config.decode`: how an agent of text writes what it says (`language.decoding.Decoding`)."""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder


def defaults() -> ConfigDict:
    """Returns the section with its defaults."""
    config = ConfigDict()
    # 'sample', 'greedy', 'beam' (of `width`), or 'rerank': of `batches` x `width` samples the best one (utterance ILQL and CHAI: by
    # the value of the whole action; else by the sums of its tokens' advantages and log-probabilities).
    # None: what the agent's method was published with: 'rerank' for utterance ILQL and CHAI, else 'sample'.
    config.kind = placeholder(str)
    config.max_tokens = placeholder(
        int
    )  # of an action; None: the longest of the data that the agent learned from
    config.width = placeholder(int)  # None: 4 for utterance ILQL, 5 for CHAI, else 1
    config.batches = 1
    # Of the policy's logits, before they are steered.
    config.temperature = 1.0
    config.top_k = 0  # 0: all tokens
    config.top_p = 1.0
    # What is added to them: weight x (Q - V), at most `advantage_clip` (0: it can only make tokens less likely); in the form
    # 'sign' log(weight) where Q > V, else log(1 - weight).
    config.advantage_weight = 16.0
    config.advantage_clip = placeholder(float)
    config.advantage_form = "exp"
    config.logits = True  # False: values alone decide
    config.advantages = True  # False: the policy alone decides
    # Of 'rerank', of sums over an action's tokens.
    config.rerank_advantage_weight = 1.0
    config.rerank_log_prob_weight = 0.0
    config.log_prob_weight = 0.0  # utterance ILQL: of log pi, beside the action's value
    config.target_return = -5.7  # what a decision transformer is conditioned on
    return config
