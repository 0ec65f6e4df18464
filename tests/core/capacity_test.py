"""Workers that the machine has no room for are refused before one is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax.core import capacity
from motif_jax.core.errors import UserError


def leave_memory(monkeypatch: pytest.MonkeyPatch, size: int | None) -> None:
    """Makes the machine have `size` bytes of memory left, None for unknown."""
    monkeypatch.setattr(capacity, "available_memory", lambda: size)


def test_workers_that_fill_the_memory_may_start(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_memory(monkeypatch, 3 * capacity.WORKER_BYTES)

    capacity.require_workers("actors.workers", 3)


def test_workers_that_the_memory_has_no_room_for_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leave_memory(monkeypatch, 96 << 20)

    with pytest.raises(UserError) as error:
        capacity.require_workers("actors.workers", 4)

    line = "config.actors.workers=4: these processes need about 128 MiB of memory, 96 MiB are left: choose fewer"
    assert str(error.value) == line


def test_each_further_game_of_a_worker_needs_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_memory(monkeypatch, 96 << 20)

    # 2 workers of 32 MiB, with 4 MiB for each of the 19 further games of each.
    with pytest.raises(UserError, match="about 216 MiB of memory"):
        capacity.require_workers("actors.workers", 2, games_each=20)


def fake_system(root: Path, files: dict[str, str]) -> Path:
    """A folder with files of proc/ and sys/, as `available_memory` reads them."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def full_group(tmp_path: Path) -> Path:
    """A system with 7,000 kB left, whose control group has used 990,000 of 1,000,000 bytes."""
    files = {
        "proc/meminfo": "MemTotal:       8 kB\nMemAvailable:    7000 kB\nHugePages_Total:       0\n",
        "sys/fs/cgroup/memory.max": "1000000\n",
        "sys/fs/cgroup/memory.current": "990000\n",
    }
    return fake_system(tmp_path, files)


def test_a_group_s_limit_minus_its_use_is_left(full_group: Path) -> None:
    assert capacity.available_memory(full_group) == 10_000


def test_cached_files_of_a_group_do_not_count_as_used(full_group: Path) -> None:
    stat = "anon 90000\nfile 900000\ninactive_file 500000\nactive_file 300000\n"
    (full_group / "sys/fs/cgroup/memory.stat").write_text(stat)

    assert capacity.available_memory(full_group) == 810_000


def test_without_a_limit_all_available_memory_is_left(full_group: Path) -> None:
    (full_group / "sys/fs/cgroup/memory.max").write_text("max\n")

    assert capacity.available_memory(full_group) == 7000 * 1024


def test_a_group_beyond_its_limit_has_nothing_left(full_group: Path) -> None:
    (full_group / "sys/fs/cgroup/memory.max").write_text("9\n")

    assert capacity.available_memory(full_group) == 0


@pytest.mark.parametrize(
    ("own_cgroup", "memory"),
    [
        ("9:memory:/elsewhere\n0::/slurm/job_7/step_0\n", 3_000),
        ("0::/slurm/job_7/step_0/gone\n", 3_000),
        ("0::/slurm/job_8\n", 9_000),
        # A path with .. lies outside of what the process sees: the root's limit counts.
        ("0::/../slurm/job_7\n", 9_000),
        (None, 9_000),
    ],
)
def test_the_smallest_limit_of_a_cgroup_and_its_parents_counts(
    tmp_path: Path, own_cgroup: str | None, memory: int
) -> None:
    """Slurm and systemd set the limit on a job's cgroup, which may lie above or below cgroups
    without one.
    """
    # (limit, use): 9,000 are left at the root, 3,000 in the job, 7,500 in its step.
    groups = {
        "": ("10000", 1000),
        "slurm": ("max", 900),
        "slurm/job_7": ("3900", 900),
        "slurm/job_7/step_0": ("8000", 500),
    }
    files = {"proc/meminfo": "MemAvailable:    7000 kB\n"}
    for group, (ceiling, used) in groups.items():
        files[f"sys/fs/cgroup/{group}/memory.max"] = f"{ceiling}\n"
        files[f"sys/fs/cgroup/{group}/memory.current"] = f"{used}\n"
    if own_cgroup is not None:
        files["proc/self/cgroup"] = own_cgroup

    assert capacity.available_memory(fake_system(tmp_path, files)) == memory
