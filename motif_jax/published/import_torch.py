"""Reads a .pth checkpoint of the published system into a run folder and a safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core.errors import printable
from motif_jax.core.files import atomic_write_json
from motif_jax.envs import registry
from motif_jax.motif.reward import safetensors_file
from motif_jax.published import glam_checkpoint, oni_checkpoint, torch_import
from motif_jax.published.config import ImportTorchConfig
from motif_jax.published.imports import (
    Begin,
    ImportStage,
    has_checkpoints,
    require_default,
)
from motif_jax.published.torch_import import TorchCheckpoint
from motif_jax.rl import agent_networks, settings
from motif_jax.rl.config import agent_config

LANGUAGE_AGENT = "language_agent"
_ALONE = "none"  # config.agent.reward.kind of an agent that learns from the task alone
MODEL, MAPPING, LABELS = "model.safetensors", "mapping.json", "labels.json"


def _check_values(config: ImportTorchConfig, workdir: Path) -> None:
    del workdir
    section = config.reward if config.kind == "reward" else config.agent
    checks.require_key(
        config, "kind", bool(section), f"that of the config's variant: use :{config.kind}"
    )
    if config.kind == "reward":
        table = config.quantiles
        checks.require(
            table is None or Path(table).is_file(), "quantiles", table, "an existing file"
        )
        if table is None:
            require_default(config, ("quantile_row",), "there is no file of quantiles")
    if config.kind == LANGUAGE_AGENT:
        require_default(config, ("names",), "tensors of GLAM's files are known by their names")
        network_of(config.agent)


def _write(config: ImportTorchConfig, workdir: Path, begin: Begin) -> None:
    if config.kind == LANGUAGE_AGENT:
        return _language_agent(config, workdir, begin)
    # An agent's checkpoint may hold the reward that it learned from beside it.
    parts = ("reward_model", "model") if config.kind == "reward" else ("model",)
    checkpoint = torch_import.read(config.path, *parts)
    if config.kind == "reward":
        row = config.quantile_row
        quantiles = torch_import.read_quantiles(config.quantiles, row) if config.quantiles else None
        reward, match = torch_import.reward(
            checkpoint, config.reward, config.names, quantiles, config.mean, config.variance
        )
    else:
        params, match = torch_import.agent(checkpoint, network_of(config.agent), config.names)
        labels, classifier = _labels_and_classifier(config.agent, checkpoint)
    # Here the folder is first written: all that the file may be refused for lies before.
    begin()
    sizes = {name: list(array.shape) for name, array in checkpoint.tensors}
    for name, foreign in match.names.items():
        print(printable(f"{name:22} <- {foreign}  {sizes[foreign]}"))
    for note in match.notes:
        print(printable(f"note: {note}"))
    if match.left_over:
        print(printable(f"not used: {', '.join(match.left_over)}"))
    about = {"file": str(config.file), "names": match.names, "not_used": match.left_over}
    atomic_write_json(workdir / MAPPING, {**about, "notes": match.notes})
    if config.kind == "reward":
        safetensors_file.write_safetensors(reward, workdir / MODEL)
        safetensors_file.write_run_folder(reward, workdir)
        statistics = reward.statistics
        shown = "with its" if statistics["quantiles"] else "no threshold can be used without"
        print(
            f"mean {statistics['mean']:.6g}, variance {statistics['variance']:.6g}, {shown} quantiles"
        )
    else:
        agent, items = _write_labels(config.agent, labels, classifier, workdir)
        step = int(checkpoint.number("env_steps") or 0)
        torch_import.write_agent(params, agent, step, workdir, items)
    print(f"written to {workdir}")


_STAGE = ImportStage(
    section=ImportTorchConfig,
    file="a checkpoint: --config.file=FILE.pth",
    is_complete=has_checkpoints,
    check_values=_check_values,
    write=_write,
    keeps_config=False,
)
check, run = _STAGE.check, _STAGE.run


def _language_agent(config: ImportTorchConfig, workdir: Path, begin: Begin) -> None:
    imported = glam_checkpoint.language_agent(
        torch_import.read(config.path), network_of(config.agent), config.seed
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
