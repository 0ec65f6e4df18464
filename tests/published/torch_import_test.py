"""Which tensor of an agent's file becomes which layer, for every network that the published system can build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.nets import layout
from motif_jax.published import torch_import
from motif_jax.published.torch_import import TorchCheckpoint
from tests import torch_files
from tests.agents import nethack_network
from tests.nets.agent_test import VARIANTS
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text

Shapes = dict[str, list[int]]
HIDDEN, FEATURES, RAW_STATUS = 512, 795, 512 + 128
GATES = {"gru": 3, "lstm": 4}


def split(shapes: Shapes) -> tuple[Shapes, Shapes]:
    """What stands before the heads, and the heads."""
    heads = {name: shape for name, shape in shapes.items() if "head" in name}
    return {name: shape for name, shape in shapes.items() if name not in heads}, heads


def with_two_layers(shapes: Shapes, core: str) -> Shapes:
    """The network with a core of two layers, each with PyTorch's order: weights of input and state, then biases."""
    trunk, heads = split({name: shape for name, shape in shapes.items() if not name.startswith(tuple(GATES))})
    width = GATES[core] * HIDDEN
    for layer, inputs in (("", FEATURES), ("2", HIDDEN)):
        trunk[f"{core}{layer}_input/weight"] = [width, inputs]
        trunk[f"{core}{layer}_hidden/weight"] = [width, HIDDEN]
        trunk |= {f"{core}{layer}_{part}/bias": [width] for part in ("input", "hidden")}
    return trunk | heads


def with_two_trunks(shapes: Shapes) -> Shapes:
    """The network with a critic of its own: one whole trunk after the other."""
    trunk, heads = split(shapes)
    return {f"{which}/{name}": shape for which in layout.TRUNKS for name, shape in trunk.items()} | heads


def networks(shapes: dict[str, Shapes]) -> dict[str, tuple[dict[str, Any], Shapes]]:
    """Settings of `nethack_network` and the tensors of its file, in the file's order."""
    found = {name: (VARIANTS[name], shapes[name]) for name in shapes}
    gru, impala = shapes["convnet_impala"], {"image_encoder": "convnet_impala"}
    for core in GATES:
        two = with_two_layers(gru, core)
        found[f"two layers of {core}"] = ({**impala, "core": core, "core_layers": 2}, two)
    residual = {"image_encoder": "resnet_impala", "separate_critic": True}
    found["two trunks"] = ({**impala, "separate_critic": True}, with_two_trunks(gru))
    found["two heads"] = ({"core": "none", "separate_critic": True}, with_two_trunks(shapes["no_rnn"]))
    two = with_two_trunks(with_two_layers(shapes["resnet_impala"], "gru"))
    found["two trunks of all that there is"] = ({**residual, "core_layers": 2}, two)
    return found


def checkpoint(tensors: dict[str, np.ndarray]) -> tuple[TorchCheckpoint, dict[str, str]]:
    """A file whose names say nothing, and which of ours each stands for."""
    ours = {f"net.{number:03d}.{name[-4:]}": name for number, name in enumerate(tensors)}
    named = [(foreign, tensors[name]) for foreign, name in ours.items()]
    return TorchCheckpoint(Path("agent.pth"), named, {}), ours


NUMBERS = [
    None,
    3,
    True,
    2.5,
    np.float32(1.5),
    np.ones(1, "f"),
    np.ones((1, 1), int),
    np.ones(2),
    np.nan,
    np.inf,
    "3",
    [3],
    np.array(["a"]),
]


def test_quantiles_numbers_and_names_of_a_file(tmp_path: Path, record: bool) -> None:
    path, levels = tmp_path / "q.csv", [round(0.05 * number, 2) for number in range(1, 20)]
    rows = [levels, [7, *range(19)], ["name", *range(19)], list(range(10, 29)), [*range(18), 0], [1, 2]]
    path.write_text("\n".join(",".join(map(str, row)) for row in rows))
    lines = [outcome_text(torch_import.read_quantiles, path, row, folder=tmp_path) for row in range(-4, 4)]
    path.write_text("\n".join(",".join(map(str, row)) for row in rows[1:4]))
    lines += [outcome_text(torch_import.read_quantiles, path, row, folder=tmp_path) for row in (0, -2)]
    path.write_bytes(b"\xff")
    places = path, tmp_path / "none"
    lines += [outcome_text(torch_import.read_quantiles, place, 0, folder=tmp_path) for place in places]
    for number in NUMBERS:
        file = TorchCheckpoint(Path("a.pth"), [], {"mean": number})
        lines += [
            outcome_text(file.number, "mean"),
            outcome_text(torch_import._moment, file, "mean", None, "variance"),
        ]
    lines += [outcome_text(torch_import._moment, file, "mean", 0.0, "mean")]
    texts = "", "a/weight=b, c = d,", "a", "a=", "=b", "a=b=c"
    lines += [outcome_text(torch_import.chosen_names, text) for text in texts]
    tensors, empty = {"w": torch_files.tensor(np.ones(2, "f"))}, {"w": 1}
    for content in (
        {"model": tensors, "x": 1},
        {"ema": tensors, "model": empty},
        {"model": {}, **tensors},
        tensors,
        [*tensors.values()],
        empty,
    ):
        file = torch_files.write(tmp_path / "a.pth", content)
        lines += [outcome_text(torch_import.read, file, "model", "ema", folder=tmp_path)]
    assert_matches_packed_recording("torch_import", {"lines": "\n".join(lines)}, record)


QUICK = ["convnet_impala", "no_rnn", "two layers of lstm", "two trunks", "two heads"]


@pytest.mark.parametrize("kinds", [QUICK, pytest.param(None, marks=pytest.mark.slow, id="all")])
def test_layers_are_found_by_order_and_of_26_status_numbers_the_27th_has_no_weight(
    golden: Any, kinds: list[str] | None
) -> None:
    """'two heads': a critic of its own without a core."""
    for case, (network, shapes) in networks(golden("core_variants_shapes.json")).items():
        if kinds is not None and case not in kinds:
            continue
        rng = np.random.default_rng(0)
        whole = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
        short = dict(whole)
        for name, array in whole.items():
            column = {27: 26, FEATURES: RAW_STATUS + 26}.get(array.shape[-1])
            if array.ndim == 2 and column is not None:
                short[name] = np.delete(array, column, axis=1)
                array[:, column] = 0
        assert any(short[name] is not whole[name] for name in whole)
        file, ours = checkpoint(short)
        params, match = torch_import.agent(file, nethack_network(**network), "")
        assert {name: ours[foreign] for name, foreign in match.names.items()} == {n: n for n in shapes}, case
        found = layout.to_torch(params)
        for name, array in whole.items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)
