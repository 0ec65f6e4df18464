"""Imports Motif's PyTorch checkpoints: a reward, or an agent."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import config as checks
from motif_jax.core import digests
from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.errors import UserError, printable
from motif_jax.core.files import atomic_write_bytes, atomic_write_json
from motif_jax.core.run_folder import as_plain, describe
from motif_jax.envs import registry
from motif_jax.envs.nethack.status import NUM_STATUS
from motif_jax.motif.reward import safetensors_file
from motif_jax.motif.reward.config import RewardConfig
from motif_jax.motif.reward.normalisation import QUANTILE_LEVELS
from motif_jax.motif.reward.reward_model import RewardModel, architecture_of
from motif_jax.motif.reward.safetensors_file import statistics_of
from motif_jax.nets import image, layout
from motif_jax.nets.agent import AgentNetwork
from motif_jax.nets.reward import RewardNetwork
from motif_jax.published import name_matching, pickles
from motif_jax.published.config import ImportAgentConfig, ImportMotifRewardConfig
from motif_jax.published.name_matching import Match
from motif_jax.rl import agent_networks, settings
from motif_jax.rl.config import agent_config
from motif_jax.schema import read_section

MODEL, MAPPING = "model.safetensors", "mapping.json"
# Modules in the order of the published network's files, with the convolutions of all image
# encoders.
AGENT_ORDER = (
    *dict.fromkeys(
        name for kind in image.IMAGE_ENCODERS for name, *_ in image.convolution_shapes(kind)
    ),
    *(
        "image_fc",
        "image_fc1",
        "image_fc2",
        "vector_fc1",
        "vector_fc2",
        "message_fc1",
        "message_fc2",
    ),
    *("gru", "lstm", "value_head", "policy_head"),
)
# Layers that read the status, raw or in the features: a core's first layer, or both heads without a
# core.
_STATUS_READERS = ("vector_fc1", "gru_input", "lstm_input")
_HEADS = ("value_head", "policy_head")


@dataclasses.dataclass(frozen=True)
class TorchCheckpoint:
    """A checkpoint: tensors (name, array) of the requested model, in the file's order, and the
    whole object.
    """

    path: Path
    tensors: list[tuple[str, np.ndarray]]
    content: dict[str, Any]

    def number(self, name: str) -> float | None:
        """The number `name`, which may be a tensor of one entry; None if it is missing."""
        value = self.content.get(name)
        return None if value is None else float(np.asarray(value).reshape(()))


def read(path: str | Path, *parts: str) -> TorchCheckpoint:
    """Reads a checkpoint.

    The first of the keys `parts` in the file has the model; without any all tensors are the
    model's.
    """
    content = pickles.read_checkpoint(path)
    content = content if isinstance(content, dict) else {"model": content}
    candidates = [content.get(name) for name in parts]
    models = [model for model in candidates if isinstance(model, dict) and model]
    tensors = list(pickles.tensors(models[0] if models else content))
    return TorchCheckpoint(Path(path), tensors, content)


def write_reward(config: ImportMotifRewardConfig, workdir: Path, begin: Callable[[], None]) -> None:
    """Writes a run of train_reward and model.safetensors."""
    # An agent's checkpoint may hold the reward that it learned from beside it.
    checkpoint = read(config.path, "reward_model", "model")
    quantiles = None
    if config.quantiles:
        quantiles = read_quantiles(config.quantiles, config.quantile_row)
    reward, match = _reward(
        checkpoint, config.reward, config.names, quantiles, config.mean, config.variance
    )
    begin()
    write_mapping(checkpoint, match, workdir)
    safetensors_file.write_safetensors(reward, workdir / MODEL)
    safetensors_file.write_run_folder(reward, workdir)
    statistics = reward.statistics
    shown = "with its" if statistics["quantiles"] else "no threshold can be used without"
    print(
        f"mean {statistics['mean']:.6g}, variance {statistics['variance']:.6g}, {shown} quantiles"
    )
    print(f"written to {workdir}")


def _reward(
    checkpoint: TorchCheckpoint,
    config: Mapping[str, Any],
    names: str,
    quantiles: list[float] | None,
    mean: float | None,
    variance: float | None,
) -> tuple[RewardModel, Match]:
    """Makes a reward from a published reward checkpoint (keys reward_mean, reward_var, num_iter).

    Args:
      config: that of a run of train_reward whose network it has.
      mean, variance: in place of the checkpoint's.

    Raises:
      ValueError: tensors do not match the network.
      UserError: nobody says the mean or the variance.
    """
    network = RewardNetwork(architecture_of(read_section(RewardConfig, config)))
    shapes = layout.named_shapes(network)
    match = name_matching.match(checkpoint.tensors, shapes, chosen_names(names))
    params = layout.from_named(match.tensors(checkpoint.tensors), network)
    mean = _moment(checkpoint, "reward_mean", mean, "mean")
    variance = _moment(checkpoint, "reward_var", variance, "variance")
    statistics = statistics_of(mean, variance, quantiles)
    step = max(0, int(checkpoint.number("num_iter") or 0))
    return RewardModel(
        checkpoint.path, step, network, params, 1, statistics, as_plain(config), []
    ), match


def _moment(checkpoint: TorchCheckpoint, name: str, override: float | None, key: str) -> float:
    """`override`, or else the checkpoint's number `name`. Raises UserError, which names the
    config's `key`: there is neither.
    """
    value = checkpoint.number(name) if override is None else override
    if value is None:
        raise UserError(
            f"{checkpoint.path} has no {name}, so no reward of it can be normalised: give it with --config.{key}=NUMBER"
        )
    return float(value)


def read_quantiles(path: str | Path, row: int) -> list[float]:
    """One row of the published quantile file: its last 19 numbers.

    Raises:
      UserError: a row is cut short, or the chosen one does not ascend.
      IndexError: the file has no such row.
    """
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = list(_rows_of_numbers(csv.reader(file)))
    # Skipped, a row that a writer was killed in would shift the number of each row behind it.
    for number, numbers in enumerate(rows):
        if len(numbers) < len(QUANTILE_LEVELS):
            raise UserError(
                f"config.quantiles={path}: row {number} of numbers has {len(numbers)} in place of {len(QUANTILE_LEVELS)}: complete "
                "or remove it"
            )
    # A header of the quantile levels consists of numbers too.
    if rows and np.allclose(rows[0], QUANTILE_LEVELS):
        rows = rows[1:]
    # A threshold that is no number would pay for nothing, in silence.
    if not np.all(np.diff(rows[row]) >= 0):
        raise UserError(
            f"config.quantiles={path}: row {row} does not ascend, so it holds no quantiles"
        )
    return rows[row]


def _rows_of_numbers(lines: Iterable[list[str]]) -> Iterator[list[float]]:
    """The last 19 cells of each line that is not empty, from the first one with numbers on: there
    may be a header. Raises ValueError: a line behind it has none; skipped, it would shift the
    number of each row behind it.
    """
    has_begun = False
    for cells in lines:
        if not any(cell.strip() for cell in cells):
            continue
        try:
            yield [float(cell) for cell in cells[-len(QUANTILE_LEVELS) :]]
            has_begun = True
        except ValueError:
            if has_begun:
                raise


def write_agent(config: ImportAgentConfig, workdir: Path, begin: Callable[[], None]) -> None:
    """Writes a run of train_agent, and model.safetensors."""
    checkpoint = read(config.path, "model")
    params, match = agent(checkpoint, network_of(config.agent), config.names)
    begin()
    write_mapping(checkpoint, match, workdir)
    write_run(params, config.agent, int(checkpoint.number("env_steps") or 0), workdir)
    print(f"written to {workdir}")


def network_of(config: ConfigDict | Mapping[str, Any]) -> Any:
    """The network of an agent's config; UserError where its folder or values do not fit."""
    agent = agent_config(config)
    kind = agent_networks.class_of(agent)
    kind.check(agent)
    spec = registry.spec(agent.environment.name, **settings.environment_options(agent))
    return kind.make(agent, spec)


def agent(checkpoint: TorchCheckpoint, network: AgentNetwork, names: str) -> tuple[Any, Match]:
    """Makes parameters of `network` from a published agent checkpoint. Raises ValueError: tensors
    do not match.

    In files of engines with 26 status numbers, the 27th, which the network does not know, gets
    weights of 0.
    """
    abstract = jax.eval_shape(network.init, jax.random.key(0))
    # `to_torch` takes arrays; of these only the shapes are needed, and bools take least memory.
    empty = jax.tree.map(lambda leaf: np.empty(leaf.shape, np.bool_), abstract)
    shapes = {name: array.shape for name, array in layout.to_torch(empty).items()}
    # Tensors of one shape are told apart by their order: by names alone, weights of a residual
    # encoder would go into other layers.
    shapes = {name: shapes[name] for name in sorted(shapes, key=published_agent_order)}
    checkpoint = _with_27_status_numbers(checkpoint, shapes)
    match = name_matching.match(checkpoint.tensors, shapes, chosen_names(names))
    return layout.from_torch(match.tensors(checkpoint.tensors), abstract), match


def published_agent_order(name: str) -> tuple[int, int, str, int, bool, bool]:
    """Sort key of the published files' order: by trunk, then modules in execution order; a core's
    layer has weights first.
    """
    *trunk, layer, kind = name.split("/")
    core = re.fullmatch(r"(gru|lstm)(\d*)_(input|hidden)", layer)
    module, number, part = core.groups() if core else (layer, "", "")
    # The heads come after both trunks.
    first = layout.TRUNKS.index(trunk[0]) if trunk else len(layout.TRUNKS)
    index = AGENT_ORDER.index(module) if module in AGENT_ORDER else len(AGENT_ORDER)
    # Of a core's layer the file has both weights, then both biases.
    return first, index, module, int(number or 1), kind == "bias", part == "hidden"


def _with_27_status_numbers(
    checkpoint: TorchCheckpoint, shapes: Mapping[str, tuple[int, ...]]
) -> TorchCheckpoint:
    """Widens layers that read the status and have one input less in the file than in the
    network.
    """
    # Both trunks have layers of the same shapes.
    plain = {
        name.removeprefix("actor/").removeprefix("critic/"): shape for name, shape in shapes.items()
    }
    has_core = any(f"{core}/weight" in plain for core in _STATUS_READERS[1:])
    readers = _STATUS_READERS if has_core else (*_STATUS_READERS, *_HEADS)
    reader_shapes = [plain[f"{name}/weight"] for name in readers if f"{name}/weight" in plain]
    file_shapes = {array.shape for _, array in checkpoint.tensors}
    # A tensor in the file with the shape of such a layer has 27 status numbers already.
    if "vector_fc1/weight" not in plain or any(shape in file_shapes for shape in reader_shapes):
        return checkpoint
    widened = []
    for name, array in checkpoint.tensors:
        for rows, columns in reader_shapes:
            if array.shape == (rows, columns - 1):
                # In the first layer's input, the raw status comes before the message's features,
                # which are last.
                messages = 0 if columns == NUM_STATUS else plain["message_fc2/weight"][0]
                array = np.insert(array, columns - 1 - messages, 0.0, axis=1)
        widened.append((name, array))
    return dataclasses.replace(checkpoint, tensors=widened)


def chosen_names(text: str) -> dict[str, str]:
    """Parses 'LAYER/weight=NAME,...'."""
    pairs = (part.split("=", 1) for part in checks.listed(text))
    return {name.strip(): foreign.strip() for name, foreign in pairs}


def write_mapping(checkpoint: TorchCheckpoint, match: Match, workdir: Path) -> None:
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


def write_run(
    params: Any,
    config: Mapping[str, Any],
    step: int,
    workdir: Path,
    items: Mapping[str, Any] | None = None,
) -> None:
    """Writes an agent's run folder with one checkpoint of the parameters and `items`, and a
    file.
    """
    plain = as_plain(config)
    describe(workdir, plain)
    header = {"format": "motif_jax.agent", "version": 1, "step": step, "config": plain}
    tensors = {name: np.ascontiguousarray(array) for name, array in layout.to_torch(params).items()}
    data = digests.safetensors_of("agent", json.dumps(header), tensors)
    atomic_write_bytes(workdir / MODEL, data)
    write_checkpoint(workdir, step, {"params": params, **(items or {})})


def write_checkpoint(workdir: Path, step: int, items: Mapping[str, Any]) -> None:
    """Writes an import's only checkpoint, which completes the folder and therefore comes last."""
    # Removes the remains of a killed import.
    shutil.rmtree(workdir / "checkpoints", ignore_errors=True)
    with Checkpoints(workdir / "checkpoints") as checkpoints:
        checkpoints.save(step, items, asynchronous=False)
