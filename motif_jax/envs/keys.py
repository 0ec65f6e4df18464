"""Keys of environments that several commands have."""

from __future__ import annotations

from motif_jax.schema import plain_key, positive

NO_KWARGS = "{}"
GYM = {
    "text": plain_key("", "text of a step of gym:ID: 'module:function', 'info:KEY', 'obs:KEY'; empty: none"),
    "text_bytes": positive(256, "greatest number of bytes of a text of gym:ID"),
    "modules": plain_key("", "modules that register environments of gym:ID, with commas between"),
    "kwargs": plain_key(
        NO_KWARGS,
        'arguments of the environment, of gym:ID those for gymnasium.make, as a JSON object: {"is_slippery": false}',
    ),
    "wrappers": plain_key(
        "",
        "wrappers around the environment of gym:ID, the innermost first: module:Class or module:function, each called with the "
        "environment, with commas between",
    ),
    "action_bins": plain_key(
        0,
        "values at which each continuous number of an action of gym:ID is played, evenly between its bounds; 0: it has none, or is "
        "played as it is",
    ),
    "action_mask": plain_key(
        "",
        "mask of the actions that a step of gym:ID allows: 'info:KEY' or 'obs:KEY'; empty: all are allowed",
    ),
}
LAST_TEXT = plain_key(
    None,
    "whether the text of an episode's final observation is collected and paid, with the step that led there; None: yes, but not in "
    "NetHack, where the published systems do not",
    bool,
)
