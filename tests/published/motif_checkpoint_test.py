"""Which tensor of an agent's file becomes which layer, for every network that the published system
can build.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.nets import layout
from motif_jax.published import import_motif
from motif_jax.published.import_motif import TorchCheckpoint
from tests import torch_files
from tests.agents import nethack_network
from tests.nets.agent_test import VARIANTS

Shapes = dict[str, list[int]]
HIDDEN = 512
FEATURES = 795
RAW_STATUS = 512 + 128
GATES = {"gru": 3, "lstm": 4}


def split(shapes: Shapes) -> tuple[Shapes, Shapes]:
    """What stands before the heads, and the heads."""
    heads = {name: shape for name, shape in shapes.items() if "head" in name}
    return {name: shape for name, shape in shapes.items() if name not in heads}, heads


def with_two_layers(shapes: Shapes, core: str) -> Shapes:
    """The network with a core of two layers, each with PyTorch's order: weights of input and state,
    then biases.
    """
    trunk, heads = split(
        {name: shape for name, shape in shapes.items() if not name.startswith(tuple(GATES))}
    )
    width = GATES[core] * HIDDEN
    for layer, inputs in (("", FEATURES), ("2", HIDDEN)):
        trunk[f"{core}{layer}_input/weight"] = [width, inputs]
        trunk[f"{core}{layer}_hidden/weight"] = [width, HIDDEN]
        trunk |= {f"{core}{layer}_{part}/bias": [width] for part in ("input", "hidden")}
    return trunk | heads


def with_two_trunks(shapes: Shapes) -> Shapes:
    """The network with a critic of its own: one whole trunk after the other."""
    trunk, heads = split(shapes)
    return {
        f"{which}/{name}": shape for which in layout.TRUNKS for name, shape in trunk.items()
    } | heads


def networks(shapes: dict[str, Shapes]) -> dict[str, tuple[dict[str, Any], Shapes]]:
    """Settings of `nethack_network` and the tensors of its file, in the file's order."""
    matched = {name: (VARIANTS[name], shapes[name]) for name in shapes}
    gru = shapes["convnet_impala"]
    impala = {"image_encoder": "convnet_impala"}
    for core in GATES:
        two = with_two_layers(gru, core)
        matched[f"two layers of {core}"] = ({**impala, "core": core, "core_layers": 2}, two)
    residual = {"image_encoder": "resnet_impala", "separate_critic": True}
    matched["two trunks"] = ({**impala, "separate_critic": True}, with_two_trunks(gru))
    matched["two heads"] = (
        {"core": "none", "separate_critic": True},
        with_two_trunks(shapes["no_rnn"]),
    )
    two = with_two_trunks(with_two_layers(shapes["resnet_impala"], "gru"))
    matched["two trunks of all that there is"] = ({**residual, "core_layers": 2}, two)
    return matched


def checkpoint(tensors: dict[str, np.ndarray]) -> tuple[TorchCheckpoint, dict[str, str]]:
    """A file whose names say nothing, and which of ours each stands for."""
    ours = {f"net.{number:03d}.{name[-4:]}": name for number, name in enumerate(tensors)}
    named = [(foreign, tensors[name]) for foreign, name in ours.items()]
    return TorchCheckpoint(Path("agent.pth"), named, {}), ours


NUMBERS = [
    (3, 3),
    (2.5, 2.5),
    (True, 1),
    (np.float32(1.5), 1.5),
    (np.ones(1, "f"), 1),
    (np.ones((1, 1), int), 1),
]


LEVELS = [round(0.05 * number, 2) for number in range(1, 20)]
# Rows of quantiles behind a first column that names them or not, and one that falls.
ROWS = [LEVELS, [7, *range(19)], ["name", *range(19)], list(range(10, 29)), [*range(18), 0]]


@pytest.fixture
def quantiles(tmp_path: Path) -> Path:
    path = tmp_path / "q.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in ROWS))
    return path


@pytest.mark.parametrize(("row", "first"), [(-4, 0), (-2, 10), (0, 0), (1, 0), (2, 10)])
def test_rows_of_quantiles_are_counted_without_the_levels(
    quantiles: Path, row: int, first: int
) -> None:
    assert import_motif.read_quantiles(quantiles, row) == list(range(first, first + 19))


def test_a_file_without_levels_has_quantiles_too(quantiles: Path) -> None:
    quantiles.write_text("\n".join(",".join(map(str, row)) for row in ROWS[1:4]))

    assert import_motif.read_quantiles(quantiles, 0) == list(range(19))


@pytest.mark.parametrize("row", [-1, 3])
def test_quantiles_that_fall_are_refused(quantiles: Path, row: int) -> None:
    with pytest.raises(
        UserError, match=f"^config.quantiles={quantiles}: row {row} does not ascend"
    ):
        import_motif.read_quantiles(quantiles, row)


def test_a_row_of_quantiles_that_is_cut_short_is_refused(quantiles: Path) -> None:
    lines = quantiles.read_text().splitlines()
    lines.insert(2, "1,2")
    quantiles.write_text("\n".join(lines) + "\n\n")

    with pytest.raises(
        UserError, match=r"q.csv: row 2 of numbers has 2 in place of 19: complete or remove it"
    ):
        import_motif.read_quantiles(quantiles, 0)


def test_a_header_in_words_is_no_row(quantiles: Path) -> None:
    quantiles.write_text("the quantiles\n\nq5,q10\n" + ",".join(map(str, range(19))))

    assert import_motif.read_quantiles(quantiles, 0) == list(range(19))
    with pytest.raises(IndexError):
        import_motif.read_quantiles(quantiles, 1)


def test_a_later_row_that_is_no_numbers_is_refused(quantiles: Path) -> None:
    lines = quantiles.read_text().splitlines()
    lines[2] = lines[2].replace("5", "five")
    quantiles.write_text("\n".join(lines))

    with pytest.raises(ValueError, match="'five'"):
        import_motif.read_quantiles(quantiles, 0)


def test_quantiles_that_are_no_numbers_are_refused(quantiles: Path) -> None:
    quantiles.write_text(",".join([*map(str, range(18)), "nan"]))

    with pytest.raises(UserError, match=r"q\.csv: row 0 does not ascend"):
        import_motif.read_quantiles(quantiles, 0)


@pytest.mark.parametrize(("number", "expected"), NUMBERS)
def test_a_single_number_of_a_file_is_read(number: Any, expected: float) -> None:
    assert TorchCheckpoint(Path("a.pth"), [], {"mean": number}).number("mean") == expected


def test_a_number_that_the_file_lacks_is_none() -> None:
    assert TorchCheckpoint(Path("a.pth"), [], {"mean": None}).number("mean") is None


@pytest.mark.parametrize(
    ("text", "names"),
    [("", {}), ("a/weight=b, c = d,", {"a/weight": "b", "c": "d"}), ("a=b=c", {"a": "b=c"})],
)
def test_names_of_layers_are_pairs_with_commas(text: str, names: dict[str, str]) -> None:
    assert import_motif.chosen_names(text) == names


TENSORS = {"w": np.ones(2, "f")}


@pytest.mark.torch
@pytest.mark.parametrize(
    ("content", "name"),
    [
        ({"model": TENSORS, "x": 1}, "w"),
        ({"model": {}, **TENSORS}, "w"),
        (TENSORS, "w"),
        ([*TENSORS.values()], "model.0"),
    ],
)
def test_tensors_stand_under_the_model_or_alone(tmp_path: Path, content: Any, name: str) -> None:
    file = import_motif.read(torch_files.write(tmp_path / "a.pth", content), "model", "ema")

    ((tensor_name, array),) = file.tensors
    assert tensor_name == name
    np.testing.assert_array_equal(array, [1, 1])


QUICK = ["convnet_impala", "no_rnn", "two layers of lstm", "two trunks", "two heads"]


@pytest.mark.parametrize("kinds", [QUICK, pytest.param(None, marks=pytest.mark.slow, id="all")])
def test_layers_match_by_order_and_a_new_status_lacks_weights(
    golden: Any, kinds: list[str] | None
) -> None:
    """'two heads': a critic of its own without a core."""
    for case, (network, shapes) in networks(golden("core_variants_shapes.json")).items():
        if kinds is not None and case not in kinds:
            continue
        rng = np.random.default_rng(0)
        tensors = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
        short = dict(tensors)
        for name, array in tensors.items():
            column = {27: 26, FEATURES: RAW_STATUS + 26}.get(array.shape[-1])
            if array.ndim == 2 and column is not None:
                short[name] = np.delete(array, column, axis=1)
                array[:, column] = 0
        assert any(short[name] is not tensors[name] for name in tensors)
        file, ours = checkpoint(short)
        params, match = import_motif.agent(file, nethack_network(**network), "")
        assert {name: ours[foreign] for name, foreign in match.names.items()} == {
            n: n for n in shapes
        }, case
        exported = layout.to_torch(params)
        for name, array in tensors.items():
            np.testing.assert_array_equal(exported[name], array, err_msg=name)
