"""The switches that turn quirks of the published code on, for exact comparisons with it.

Those of agents, of their environments and of annotators are here, since folders below the methods
read them. Those of a training that one method alone has stand in its config:
motif/reward/config.py, glam/config.py, ilql/config.py.
"""

from __future__ import annotations

from typing import Any

from motif_jax import schema
from motif_jax.schema import plain_key, section_class


def quirk(help: str) -> Any:
    """A switch."""
    return plain_key(False, f"quirk of the published code: {help}")


# A training of a reward has it, and whatever pays the reward.
QUANTILE_TWO_DECIMALS = quirk("the threshold is the two-decimal number of the CSV file")


@section_class
class Compat:
    """Quirks of agents and annotators, each off unless a config turns it on."""

    # NetHack and its observations, also in MiniHack.
    sober_mask: bool = quirk("hallucination together with any other condition counts as sober")
    oracle_patch_edge: bool = quirk("the 3x3 patch around the hero is empty at the map's edge")
    crop_row_offset: bool = quirk("the 12x12 window is one row too high")
    seed_noop: bool = quirk("games have no seeds of their own, so that they cannot be played again")
    message_count_off: bool = quirk("message counts are 1 when the intrinsic coefficient is 0")
    # APPO and the end of episodes.
    vtrace_bootstrap: bool = quirk("the value after a rollout is made up from its last step")
    timeout_as_terminal: bool = quirk("the step limit ends an episode like a death")
    # What a reward pays, and its labels.
    quantile_two_decimals: bool = QUANTILE_TWO_DECIMALS
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
    # GLAM and its baselines.
    glam_raw_logit_score: bool = quirk("scores of actions are sums of raw logits")
    glam_pad_plus_one: bool = quirk("each place of padding adds 1 to a score")
    glam_separate_tokens: bool = quirk(
        "prompts and actions are tokenised apart for decoders, too, as for T5: tokens that no text has"
    )
    glam_scaled_probability_score: bool = quirk(
        "scores are probabilities over the greatest of all actions"
    )
    glam_end_token: bool = quirk(
        "end tokens surround prompts and actions, which are tokenised apart"
    )
    glam_untrained_dropout: bool = quirk("models made from a config sample and learn with dropout")
    glam_value_broadcast: bool = quirk(
        "each value is pulled to the returns of the steps that a process learns from together"
    )
    glam_french_goal: bool = quirk("prompts word French goals as the released code does")
    glam_fixed_kind_per_env: bool = quirk(
        "each environment of the Mixed levels keeps one kind of task"
    )
    drrn_first_observation: bool = quirk("DRRN does not read the first observation of an episode")
    symbolic_train_mode_batchnorm: bool = quirk(
        "batch normalisation takes the batch's statistics while it plays"
    )


def switches(names: str, section: type = Compat) -> dict[str, schema.Key]:
    """The switches of a stage, all off, from their names in `section` with spaces between; KeyError
    for an unknown one.
    """
    all_switches = schema.section_keys(section)
    return {name: all_switches[name] for name in names.split()}


def switched_on(*names: str) -> dict[str, bool]:
    """The changes of a variant that turn these switches on."""
    return {f"compat.{name}": True for name in names}
