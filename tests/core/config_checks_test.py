"""Checks of config values, and the lines with which they refuse one."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from motif_jax.core import config as checks

CONFIG = {"a": {"b": 0, "c": "x"}, "folder": None, "file": __file__}


@pytest.mark.parametrize("value", [0, -1.5, 10**308])
def test_a_number_that_a_float_can_hold_is_finite(value: object) -> None:
    assert checks.is_finite(value)


@pytest.mark.parametrize(
    "value", [10**400, -(10**400), float("nan"), float("inf"), True, "1", None], ids=repr
)
def test_other_values_are_no_finite_numbers(value: object) -> None:
    assert not checks.is_finite(value)


@pytest.mark.parametrize("text", ["0", "12", "9" * 18])
def test_digits_are_a_natural_number(text: str) -> None:
    assert checks.is_natural(text)


@pytest.mark.parametrize("text", ["9" * 19, "", "-1", "1.0", "²", "1\n"], ids=repr)
def test_other_texts_are_no_natural_numbers(text: str) -> None:
    assert not checks.is_natural(text)


def test_a_flat_config_has_dotted_keys() -> None:
    assert checks.flat(CONFIG) == {"a.b": 0, "a.c": "x", "folder": None, "file": __file__}


@pytest.mark.parametrize(
    ("key", "is_there"), [("a.b", True), ("a.d", False), ("folder.b", False), ("a", True)]
)
def test_keys_are_looked_for_in_sections(key: str, is_there: bool) -> None:
    assert checks.has(CONFIG, key) == is_there


def test_a_list_is_read_without_blanks_and_empty_entries() -> None:
    assert checks.listed(" a, b,,c ,") == ["a", "b", "c"]


def test_allowed_values_pass(tmp_path: Path) -> None:
    checks.choice(CONFIG, "a.c", "xy")
    checks.positive(CONFIG, "a.b", allow_zero=True)
    checks.positive({"n": 0.1}, "n")

    assert checks.existing_folder({"here": str(tmp_path)}, "here") == tmp_path


@pytest.mark.parametrize(
    ("cores", "gpu", "workers"),
    [(1, False, 1), (2, False, 1), (5, False, 4), (2, True, 1), (5, True, 3), (16, True, 14)],
)
def test_workers_leave_one_core_or_two_beside_a_gpu(
    monkeypatch: pytest.MonkeyPatch, cores: int, gpu: bool, workers: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
    monkeypatch.setattr(checks, "has_gpu", lambda: gpu)

    assert checks.available_cores() == cores
    assert checks.training_workers() == workers
    assert checks.default_workers() == max(1, cores - 1)


@pytest.mark.parametrize(
    ("platforms", "expected"), [("", True), ("cuda,cpu", True), ("gpu", True), ("cpu", False)]
)
def test_a_gpu_that_jax_may_not_use_is_none(
    monkeypatch: pytest.MonkeyPatch, platforms: str, expected: bool
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: iter([Path("/dev/nvidia0")]))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "jax_cuda12_plugin")
    assert checks.has_gpu() is expected


@pytest.mark.parametrize("hidden_by", ["variable", "plugin"])
def test_a_gpu_that_jax_cannot_reach_is_none(
    monkeypatch: pytest.MonkeyPatch, hidden_by: str
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "" if hidden_by == "variable" else "0")
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: iter([Path("/dev/nvidia0")]))
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if hidden_by == "plugin" else name
    )
    assert checks.has_gpu() is False
