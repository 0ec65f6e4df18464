"""Keys and sections of environments that several commands have."""

from __future__ import annotations

from motif_jax.schema import plain_key, positive, section_class

NO_KWARGS = "{}"
# Bytes of a text that a reward reads; the texts of gym:ID may have fewer.
REWARD_TEXT_BYTES = 256
MAX_EPISODE_STEPS = positive(5000, "longest episode in steps; longer ones are cut off")
LAST_TEXT = plain_key(
    None,
    "whether the text of an episode's final observation is collected and paid, with the step that led there; None: yes, but not in "
    "NetHack, where the published systems do not",
    bool,
)


@section_class
class GymOptions:
    """Options of the environments of gymnasium, gym:ID."""

    text: str = plain_key(
        "", "text of a step of gym:ID: 'module:function', 'info:KEY', 'obs:KEY'; empty: none"
    )
    text_bytes: int = positive(REWARD_TEXT_BYTES, "greatest number of bytes of a text of gym:ID")
    modules: str = plain_key(
        "", "modules that register environments of gym:ID, with commas between"
    )
    kwargs: str = plain_key(
        NO_KWARGS,
        'arguments of the environment, of gym:ID those for gymnasium.make, as a JSON object: {"is_slippery": false}',
    )
    wrappers: str = plain_key(
        "",
        "wrappers around the environment of gym:ID, the innermost first: module:Class or module:function, each called with the "
        "environment, with commas between",
    )
    action_mask: str = plain_key(
        "",
        "mask of the actions that a step of gym:ID allows: 'info:KEY' or 'obs:KEY'; empty: all are allowed",
    )


@section_class
class RecallOptions:
    """Options of Recall-v0."""

    cues: int = positive(4, "number of cues of Recall-v0")
    delay: int = positive(4, "steps of Recall-v0 between the cue and the question")
