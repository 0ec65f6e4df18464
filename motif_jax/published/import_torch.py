"""Reads checkpoints of the published PyTorch systems Motif, ONI and GLAM into run folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core.errors import printable
from motif_jax.core.files import atomic_write_json
from motif_jax.envs import registry
from motif_jax.motif.reward import safetensors_file
from motif_jax.published import glam_checkpoint, motif_checkpoint, oni_checkpoint
from motif_jax.published.config import (
    ImportAgentConfig,
    ImportLanguageAgentConfig,
    ImportMotifRewardConfig,
)
from motif_jax.published.motif_checkpoint import TorchCheckpoint
from motif_jax.published.name_matching import Match
from motif_jax.rl import agent_networks, settings
from motif_jax.rl.config import agent_config

_ALONE = "none"  # config.agent.reward.kind of an agent that learns from the task alone
MODEL, MAPPING, LABELS = "model.safetensors", "mapping.json", "labels.json"


def check_reward(config: ImportMotifRewardConfig, workdir: Path) -> None:
    """Raises UserError for a file of quantiles that there is not, or a row of none."""
    del workdir
    table = config.quantiles
    checks.require_key(
        config, "quantiles", table is None or Path(table).is_file(), "an existing file"
    )
    if table is None:
        config.require_default("quantile_row", "there is no file of quantiles")


def write_reward(config: ImportMotifRewardConfig, workdir: Path, begin: Callable[[], None]) -> None:
    """Writes a run of train_reward and model.safetensors."""
    # An agent's checkpoint may hold the reward that it learned from beside it.
    checkpoint = motif_checkpoint.read(config.path, "reward_model", "model")
    quantiles = None
    if config.quantiles:
        quantiles = motif_checkpoint.read_quantiles(config.quantiles, config.quantile_row)
    reward, match = motif_checkpoint.reward(
        checkpoint, config.reward, config.names, quantiles, config.mean, config.variance
    )
    begin()
    _write_mapping(checkpoint, match, workdir)
    safetensors_file.write_safetensors(reward, workdir / MODEL)
    safetensors_file.write_run_folder(reward, workdir)
    statistics = reward.statistics
    shown = "with its" if statistics["quantiles"] else "no threshold can be used without"
    print(
        f"mean {statistics['mean']:.6g}, variance {statistics['variance']:.6g}, {shown} quantiles"
    )
    print(f"written to {workdir}")


def check_agent(config: ImportAgentConfig | ImportLanguageAgentConfig, workdir: Path) -> None:
    """Raises UserError where the network that `config.agent` describes cannot be made."""
    del workdir
    network_of(config.agent)


def write_agent(config: ImportAgentConfig, workdir: Path, begin: Callable[[], None]) -> None:
    """Writes a run of train_agent, or of ONI with its labels, and model.safetensors."""
    checkpoint = motif_checkpoint.read(config.path, "model")
    params, match = motif_checkpoint.agent(checkpoint, network_of(config.agent), config.names)
    labels, classifier = _labels_and_classifier(config.agent, checkpoint)
    begin()
    _write_mapping(checkpoint, match, workdir)
    agent, items = _write_labels(config.agent, labels, classifier, workdir)
    step = int(checkpoint.number("env_steps") or 0)
    motif_checkpoint.write_agent(params, agent, step, workdir, items)
    print(f"written to {workdir}")


def _write_mapping(checkpoint: TorchCheckpoint, match: Match, workdir: Path) -> None:
    """Writes and prints which tensor of the file became which layer."""
    sizes = {name: list(array.shape) for name, array in checkpoint.tensors}
    for name, foreign in match.names.items():
        print(printable(f"{name:22} <- {foreign}  {sizes[foreign]}"))
    for note in match.notes:
        print(printable(f"note: {note}"))
    if match.left_over:
        print(printable(f"not used: {', '.join(match.left_over)}"))
    about = {"file": str(checkpoint.path), "names": match.names, "not_used": match.left_over}
    atomic_write_json(workdir / MAPPING, {**about, "notes": match.notes})


def write_language_agent(
    config: ImportLanguageAgentConfig, workdir: Path, begin: Callable[[], None]
) -> None:
    """Writes a run of train_language_agent."""
    imported = glam_checkpoint.language_agent(
        motif_checkpoint.read(config.path), network_of(config.agent), config.seed
    )
    begin()
    for head in imported.fresh:
        print(f"note: the file has no head {head}: it keeps its initial values")
    if imported.left_over:
        print(printable(f"not used: {', '.join(imported.left_over)}"))
    about = {"file": str(config.file), "names": imported.names, "not_used": imported.left_over}
    atomic_write_json(
        workdir / MAPPING, {**about, "notes": [f"fresh: {head}" for head in imported.fresh]}
    )
    glam_checkpoint.write(imported.params, config.agent, workdir)
    print(f"written to {workdir}: {len(imported.names)} tensors")


def network_of(config: ConfigDict | Mapping[str, Any]) -> Any:
    """The network of an agent's config; UserError where its folder or values do not fit."""
    agent = agent_config(config)
    kind = agent_networks.class_of(agent)
    kind.check(agent)
    spec = registry.spec(agent.environment.name, **settings.environment_options(agent))
    return kind.make(agent, spec)


def _labels_and_classifier(
    agent: Mapping[str, Any], checkpoint: TorchCheckpoint
) -> tuple[dict[str, int] | None, Any | None]:
    """The labels and the classifier's parameters of an ONI checkpoint; None for what it lacks, or
    where the agent is imported alone.
    """
    if "annotator" not in agent or agent["reward"]["kind"] == _ALONE:
        return None, None
    labels = oni_checkpoint.labels(checkpoint)
    return labels, None if labels is None else oni_checkpoint.classifier(checkpoint)


def _write_labels(
    agent: Mapping[str, Any],
    labels: dict[str, int] | None,
    classifier: Any | None,
    workdir: Path,
) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """The agent's config with the reward that an ONI checkpoint holds, and the checkpoint item of
    that reward.
    """
    if "annotator" not in agent:
        return agent, {}
    if labels is None:
        is_alone = agent["reward"]["kind"] == _ALONE
        reason = f"config.agent.reward.kind={_ALONE}" if is_alone else "no labels in it"
        print(f"{reason}: the agent is read without a reward")
        return _with_reward(agent, kind=_ALONE, intrinsic_coefficient=0.0), {}
    kind = "retrieval" if classifier is None else "classification"
    atomic_write_json(workdir / LABELS, labels)
    share = sum(labels.values()) / max(1, len(labels))
    network = "" if classifier is None else ", and the classifier that learned from them"
    print(f"{len(labels):,} labels, {100 * share:.3g} % helpful{network}: {workdir / LABELS}")
    reward_item = oni_checkpoint.reward_item(labels, classifier, workdir)
    return _with_reward(agent, kind=kind), {"reward": reward_item}


def _with_reward(agent: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """An agent's config with these values in its section `reward`."""
    return {**agent, "reward": {**agent["reward"], **values}}
