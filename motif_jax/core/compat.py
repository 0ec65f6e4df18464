"""The switches that turn quirks of the published code on, for exact comparisons with it."""

from __future__ import annotations

from typing import Any

from motif_jax import schema
from motif_jax.schema import plain_key, section_class


def quirk(help: str) -> Any:
    """A switch of `Compat`."""
    return plain_key(False, f"quirk of the published code: {help}")


@section_class
class Compat:
    """Quirks of the published code, each off unless a config turns it on."""

    # NetHack and its observations, also in MiniHack.
    sober_mask: bool = quirk("hallucination together with any other condition counts as sober")
    oracle_patch_edge: bool = quirk("the 3x3 patch around the hero is empty at the map's edge")
    crop_row_offset: bool = quirk("the 12x12 window is one row too high")
    seed_noop: bool = quirk("games have no seeds of their own, so that they cannot be played again")
    message_count_off: bool = quirk("message counts are 1 when the intrinsic coefficient is 0")
    # APPO and the end of episodes.
    vtrace_bootstrap: bool = quirk("the value after a rollout is made up from its last step")
    timeout_as_terminal: bool = quirk("the step limit ends an episode like a death")
    # Motif's reward and its labels.
    running_statistics: bool = quirk("mean and variance are merged batch by batch from a prior")
    quantile_two_decimals: bool = quirk("the threshold is the two-decimal number of the CSV file")
    glyph_crop_centre: bool = quirk("the glyph crop sits at the map's top left and blends glyph numbers")
    answer_first_match: bool = quirk("the first verdict in an answer decides")
    # ONI.
    oni_ranking_raw_reward: bool = quirk("the agent gets the raw output of the ranking network")
    oni_requeue: bool = quirk(
        "messages without a label are queued again with every batch, and asked as often as they were seen"
    )
    oni_untrained_reward: bool = quirk("a classifier or ranker that was never trained pays")
    oni_label_anywhere: bool = quirk(
        "the word for yes counts anywhere in a reply; one without it is a no (of pairs: a tie)"
    )
    oni_extended_steps: bool = quirk(
        "with 28 actions: skills, kills and prompts as the published environment sees them"
    )
    # GLAM, its baselines and its cloning.
    glam_raw_logit_score: bool = quirk("scores of actions are sums of raw logits")
    glam_pad_plus_one: bool = quirk("each place of padding adds 1 to a score")
    glam_separate_tokens: bool = quirk(
        "prompts and actions are tokenised apart for decoders, too, as for T5: tokens that no text has"
    )
    glam_scaled_probability_score: bool = quirk("scores are probabilities over the greatest of all actions")
    glam_end_token: bool = quirk("end tokens surround prompts and actions, which are tokenised apart")
    glam_untrained_dropout: bool = quirk("models made from a config sample and learn with dropout")
    glam_value_broadcast: bool = quirk(
        "each value is pulled to the returns of the steps that a process learns from together"
    )
    glam_french_goal: bool = quirk("prompts word French goals as the released code does")
    glam_fixed_kind_per_env: bool = quirk("each environment of the Mixed levels keeps one kind of task")
    drrn_first_observation: bool = quirk("DRRN does not read the first observation of an episode")
    symbolic_train_mode_batchnorm: bool = quirk(
        "batch normalisation takes the batch's statistics while it plays"
    )
    bc_unshuffled: bool = quirk("pairs are learned from in their order")
    bc_pad_in_loss: bool = quirk("pads up to target_tokens count in the loss")
    # ILQL, CHAI and the text tasks.
    ilql_utterance_int_reward: bool = quirk("rewards of utterances are cut to integers")
    ilql_policy_loss_norm: bool = quirk("the policy's loss is divided by the number of all tokens")
    ilql_padded_positions: bool = quirk(
        "in dialogues that were cut off one more action counts where they are not the longest of their micro-batch; one without actions has a weight "
        "at position 0"
    )
    ilql_utterance_truncation: bool = quirk(
        "with max_len, as many states of utterances are kept as of tokens"
    )
    ilql_next_q_zero: bool = quirk("a row of zeros after the last action is bootstrapped from")
    ilql_target_dropout: bool = quirk("dropout in the target trunk and in the policy's weights, too")
    chai_scores: bool = quirk("CHAI scores candidates as the released code does")
    wordle_branch_restarts: bool = quirk("branches begin on an empty board")
    wordle_top_p_rows: bool = quirk("a loss in six rows ranks like a win in six")
    visdial_last_turn_free: bool = quirk("the tenth turn costs nothing where the goal was not reached")
    upvote_zero_one: bool = quirk("upvote_model pays 1 and 0 for 1 and -1")


def switches(names: str) -> dict[str, schema.Key]:
    """The switches of a stage, all off, from their names with spaces between; KeyError for an unknown one."""
    all_switches = schema.section_keys(Compat)
    return {name: all_switches[name] for name in names.split()}


def switched_on(*names: str) -> dict[str, bool]:
    """The changes of a variant that turn these switches on."""
    return {f"compat.{name}": True for name in names}
