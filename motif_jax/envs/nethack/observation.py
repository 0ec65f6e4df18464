"""The spec of the NetHack tasks, made without an engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from motif_jax.envs.nethack import buffers as b
from motif_jax.envs.nethack.actions import EXTENDED_KEYS, TASK_KEYS, action_names
from motif_jax.envs.nethack.game import EPISODE_FIELDS
from motif_jax.envs.nethack.library import reload_reason
from motif_jax.envs.nethack.status import NUM_STATUS
from motif_jax.envs.nethack.tasks import TASKS
from motif_jax.envs.nethack.window import WINDOW
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec

MAX_EPISODE_STEPS = 5000

# Published quirks of the environments.
SWITCHES = (
    "sober_mask",
    "oracle_patch_edge",
    "crop_row_offset",
    "seed_noop",
    "message_count_off",
    "timeout_as_terminal",
)
# Further quirks of the tasks with 28 actions.
EXTENDED_SWITCHES = (*SWITCHES, "oni_extended_steps")

_OBSERVATION = {
    "window_chars": ArraySpec((WINDOW, WINDOW), "uint8"),
    "window_colors": ArraySpec((WINDOW, WINDOW), "uint8"),
    "blstats": ArraySpec((NUM_STATUS,), "int32"),
    "message": ArraySpec((b.MESSAGE_LENGTH,), "uint8"),
    "message_count": ArraySpec((), "int32"),
}
_OPTIONAL = {
    "glyphs": ArraySpec(b.MAP_SHAPE, "int16"),
    "tty_chars": ArraySpec(b.SCREEN_SHAPE, "uint8"),
    "tty_colors": ArraySpec(b.SCREEN_SHAPE, "int8"),
}


def switches(compat: Mapping[str, bool] | None) -> dict[str, bool]:
    """The `compat` switches that concern environments."""
    return {
        name: bool(value) for name, value in dict(compat or {}).items() if name in EXTENDED_SWITCHES
    }


def make_spec(
    name: str,
    *,
    fields: Iterable[str] = (),
    max_episode_steps: int = MAX_EPISODE_STEPS,
    compat: Mapping[str, bool] | None = None,
) -> EnvironmentSpec:
    """The spec of the task `name` with these options."""
    extended = TASKS[name].extended
    keys = EXTENDED_KEYS if extended else TASK_KEYS
    reason = reload_reason()
    remark = ""
    if reason is not None:
        remark = f"engines loaded again for each game, which is slower ({reason})"
    return EnvironmentSpec(
        observation=_OBSERVATION | {field: _OPTIONAL[field] for field in fields},
        num_actions=len(keys),
        text_field="message",
        count_field="message_count",
        # As published: the message of an episode's last observation is not paid.
        last_text=False,
        episode_fields=EPISODE_FIELDS,
        family="nethack",
        action_names=action_names(keys),
        action_keys=keys,
        optional_fields=_OPTIONAL,
        quirks=EXTENDED_SWITCHES if extended else SWITCHES,
        renderer="motif_jax.envs.nethack.renderer:NetHackRenderer",
        group="motif_jax.envs.nethack.group:NetHackGroup",
        modules=("motif_jax.envs.nethack.engine",),
        remark=remark,
    )
