"""How a text agent decodes: the section of a config that several commands have."""

from __future__ import annotations

from motif_jax.schema import layer_size_key, length_key, one_of, plain_key, positive, section_class

# Of VisDial.
PUBLISHED_RETURN = -5.7
# Values with whole output layers, and those beside low-rank additions to a pretrained model, whose
# sentences few dialogues teach less than its pretraining did.
PUBLISHED_WEIGHT, LOW_RANK_WEIGHT = 16.0, 4.0


@section_class
class Decode:
    """How text agents choose what they write."""

    kind: str | None = plain_key(
        None,
        "'sample', 'greedy', 'beam' (of `width`), or 'rerank': the best of `batches` x `width` samples (utterance ILQL and CHAI: by the value "
        "of the whole action; others: by sums over its tokens). None: as published, 'rerank' for these two methods, else 'sample'",
        choices=("sample", "greedy", "beam", "rerank"),
    )
    max_tokens: int | None = length_key(
        None, "greatest number of tokens of an action; None: the longest of the agent's data"
    )
    width: int | None = layer_size_key(
        None, "number of candidate texts (beams); None: 4 for utterance ILQL, 5 for CHAI, else 1"
    )
    batches: int = positive(1, "number of batches of samples, for 'rerank'")
    temperature: float = plain_key(
        1.0, "temperature of the policy's logits, before they are steered"
    )
    top_k: int = plain_key(0, "number of most likely tokens that may be drawn; 0: all")
    top_p: float = plain_key(
        1.0, "probability of the most likely tokens that may be drawn together"
    )
    advantage_weight: float | None = plain_key(
        None,
        "weight of Q - V, which is added to the logits; None: 16 as published, 4 where trunk and values were learned by low-rank additions",
    )
    advantage_clip: float | None = plain_key(
        None, "greatest addition to a logit; 0: tokens can only become less likely"
    )
    advantage_form: str = one_of(
        ("exp", "sign"), "'sign' adds log(weight) where Q > V, else log(1 - weight)"
    )
    logits: bool = plain_key(True, "steers the policy's logits; False: values alone decide")
    advantages: bool = plain_key(True, "steers by advantages; False: the policy alone decides")
    rerank_advantage_weight: float = plain_key(
        1.0, "weight of the advantages' sum over an action's tokens, for 'rerank'"
    )
    rerank_log_prob_weight: float = plain_key(
        0.0, "weight of the log-probabilities' sum over an action's tokens, for 'rerank'"
    )
    log_prob_weight: float = plain_key(
        0.0, "utterance ILQL and CHAI: weight of log pi beside the action's value"
    )
    target_return: float = plain_key(
        PUBLISHED_RETURN,
        "return that a decision transformer is conditioned on; the default is VisDial's published one: give that of your task",
    )
