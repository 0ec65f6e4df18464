"""What config files and the checks of their values share."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.support.errors import UserError

_PORTS = 65_536
_TOO_LARGE = 1 << 63
# The most that a key of such a name may be, in whatever section: what is larger is a slip, and takes all memory before it fails.
_MOST: dict[str, float] = {
    "learning_rate": 100.0,
    **dict.fromkeys(
        """core_layers embedding embedding_dim feed_forward heads hidden_dim hidden_size image_features layers members
        message_features num_layers rank target_tokens threads vector_features width""".split(),
        1 << 16,
    ),
    **dict.fromkeys(
        "candidate_tokens envs_per_worker lanes length max_len max_length max_tokens prompt_tokens rollout".split(), 1 << 20
    ),
    **dict.fromkeys("accumulate batch_size chunk_steps microbatch_size minibatch_size".split(), 1 << 24),
}  # fmt: skip
# Quirks of the published code, each off unless a config turns it on.
COMPAT_SWITCHES = frozenset(
    """sober_mask oracle_patch_edge crop_row_offset seed_noop message_count_off vtrace_bootstrap
    timeout_as_terminal running_statistics quantile_two_decimals glyph_crop_centre answer_first_match
    oni_ranking_raw_reward oni_requeue oni_untrained_reward oni_label_anywhere oni_extended_steps glam_raw_logit_score
    glam_pad_plus_one glam_scaled_probability_score glam_end_token glam_untrained_dropout
    glam_value_broadcast glam_french_goal glam_fixed_kind_per_env drrn_first_observation
    symbolic_train_mode_batchnorm bc_unshuffled bc_pad_in_loss
    ilql_utterance_int_reward ilql_policy_loss_norm wordle_branch_restarts wordle_top_p_rows visdial_last_turn_free upvote_zero_one
    ilql_padded_positions ilql_utterance_truncation ilql_next_q_zero ilql_target_dropout chai_scores""".split()
)


def compat(*names: str) -> ConfigDict:
    """Returns the switches that a stage knows, all off.

    Raises:
      KeyError: a name is not one of the project's switches.
    """
    unknown = set(names) - COMPAT_SWITCHES
    if unknown:
        raise KeyError(f"not a compat switch: {', '.join(sorted(unknown))}")
    return ConfigDict(dict.fromkeys(names, False))


def compat_on(config: ConfigDict, *names: str) -> ConfigDict:
    """Turns some switches of `config.compat` on, for a `faithful` variant where others exclude each other; returns `config`."""
    for name in names:
        config.compat[name] = True
    return config


def all_compat_on(config: ConfigDict) -> ConfigDict:
    """Turns every switch in `config.compat` on, as `faithful` variants do, and returns `config`."""
    for name in config.compat:
        config.compat[name] = True
    return config


def unknown_variant(variant: str | None, allowed: Iterable[str]) -> ValueError:
    """The error of a `get_config` that does not know `variant`."""
    return ValueError(f"variant {variant!r} is not one of {', '.join(repr(v) for v in allowed)}")


def available_cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """One worker process for each core but one, at least one."""
    return max(1, available_cores() - 1)


def dotted(config: ConfigDict, key: str) -> Any:
    """Returns the value of a dotted `key` such as 'reward.quantile'."""
    value: Any = config
    for part in key.split("."):
        value = value[part]
    return value


def has(config: ConfigDict, key: str) -> bool:
    """Whether `config` has what a dotted `key` leads to."""
    value: Any = config
    for part in key.split("."):
        if not isinstance(value, ConfigDict) or part not in value:
            return False
        value = value[part]
    return True


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted name -> value of everything in nested mappings, in their order."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def require(condition: bool, key: str, value: Any, allowed: str) -> None:
    """Raises UserError "config.key=value: must be allowed" unless `condition` holds."""
    if not condition:
        shown = f"'{value}'" if isinstance(value, str) else value
        raise UserError(f"config.{key}={shown}: must be {allowed}")


def choice(config: ConfigDict, key: str, options: Iterable[Any]) -> None:
    """Requires that the value of `key` is one of `options`."""
    options = list(options)
    value = dotted(config, key)
    require(value in options, key, value, "one of " + ", ".join(str(o) for o in options))


def positive(config: ConfigDict, key: str, allow_zero: bool = False, allow_none: bool = False) -> None:
    """Requires that the value of `key` is a finite number above zero."""
    value = dotted(config, key)
    if value is None and allow_none:
        return
    good = is_finite(value) and (value > 0 or (allow_zero and value == 0))
    require(good, key, value, "a number of at least 0" if allow_zero else "a number above 0")


def check_values(config: ConfigDict) -> None:
    """Refuses what no key of any config can mean: numbers that are not finite or too large, and text that cannot be written.

    Stages ask for more of each key; this is asked for all of them before.

    Raises:
      UserError: names the key, the value and what is allowed.
    """
    for key, value in flat(config.to_dict()).items():
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, float):
                require(math.isfinite(each), key, value, "a finite number")
            elif isinstance(each, int):
                require(abs(each) < _TOO_LARGE, key, value, "below 2^63")
            if isinstance(each, float | int) and (most := _MOST.get(key.rpartition(".")[2])) is not None:
                require(each <= most, key, value, f"at most {most:,}")
            elif isinstance(each, str):
                written = each.isprintable() or _can_be_written(each)
                require(written, key, ascii(value), "text in UTF-8 without zeros")


def _can_be_written(text: str) -> bool:
    try:
        return "\0" not in text and bool(text.encode() or True)
    except UnicodeEncodeError:  # bytes that are no UTF-8
        return False


def check_profile(config: ConfigDict) -> None:
    """Checks `config.profile` (see `support.profiling`)."""
    positive(config, "profile.start", allow_zero=True, allow_none=True)
    positive(config, "profile.steps")
    positive(config, "profile.server_port", allow_none=True)
    port = config.profile.server_port
    require(port is None or port < _PORTS, "profile.server_port", port, f"below {_PORTS:,}")


def port(config: ConfigDict, key: str) -> None:
    """Requires that the value of `key` is a port to listen at; 0 stands for any that is free."""
    value = dotted(config, key)
    inside = isinstance(value, int) and 0 <= value < _PORTS
    require(inside, key, value, f"from 0 (any that is free) to {_PORTS - 1}")


def fraction(config: ConfigDict, key: str, allow_none: bool = False, inside: bool = False) -> None:
    """Requires that the value of `key` lies in [0, 1]; with `inside` in (0, 1)."""
    value = dotted(config, key)
    if value is None and allow_none:
        return
    good = isinstance(value, int | float) and (0 < value < 1 if inside else 0 <= value <= 1)
    require(good, key, value, f"a number between 0 and 1{', neither of them' if inside else ''}")


def is_natural(text: str) -> bool:
    """Whether `text` is a whole number in ASCII digits, as `int` reads it and below 10^18 (`str.isdigit` takes '²' too)."""
    return re.fullmatch("[0-9]{1,18}", text) is not None


def is_finite(value: Any) -> bool:
    """Whether `value` is a finite number that a float can hold: whole numbers, as JSON has them, may have any digits."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def existing_folder(config: ConfigDict, key: str) -> Path:
    """Requires that the value of `key` names an existing folder, and returns it."""
    value = dotted(config, key)
    require(bool(value), key, value, f"a folder: give it with --config.{key}=DIR")
    require(os.path.isdir(value), key, value, "an existing folder")
    return Path(value)
