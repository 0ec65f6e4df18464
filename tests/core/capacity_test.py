"""Workers that the machine has no room for are refused before one is started."""

from __future__ import annotations

import pytest

from motif_jax.core import capacity
from motif_jax.core.errors import UserError


def test_the_memory_of_workers_and_their_games_is_counted(monkeypatch):
    monkeypatch.setattr(capacity, "available_memory", lambda: 3 * capacity.WORKER_BYTES)
    capacity.require_workers("workers", 3)
    for needed, (workers, games) in {128: (4, 1), 216: (2, 20)}.items():
        with pytest.raises(UserError) as error:
            capacity.require_workers("n.workers", workers, games)
        line = f"config.n.workers={workers}: these processes need about {needed} MiB of memory, 96 MiB are left: choose fewer"
        assert str(error.value) == line
    for free in (None, 5 << 20):
        capacity.require("it", 5 << 20, free)
    with pytest.raises(UserError, match=r"^it takes 5 MiB of memory, 4 MiB are left$"):
        capacity.require("it", 5 << 20, 4 << 20)
    monkeypatch.setattr(capacity, "available_memory", lambda: None)
    capacity.require_workers("workers", 10**9)


def made_up_system(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_full_cache_is_not_taken_for_used_memory(tmp_path):
    files = {
        "proc/meminfo": "MemTotal:       8 kB\nMemAvailable:    7000 kB\nHugePages_Total:       0\n",
        "sys/fs/cgroup/memory.max": "1000000\n",
        "sys/fs/cgroup/memory.current": "990000\n",
    }
    root = made_up_system(tmp_path, files)
    assert capacity.available_memory(root) == 10_000
    cached = "anon 90000\nfile 900000\ninactive_file 500000\nactive_file 300000\n"
    (root / "sys/fs/cgroup/memory.stat").write_text(cached)
    assert capacity.available_memory(root) == 810_000
    (root / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert capacity.available_memory(root) == 7000 * 1024
    (root / "sys/fs/cgroup/memory.max").write_text("9\n")
    assert capacity.available_memory(root) == 0
    (root / "proc/meminfo").unlink()
    assert capacity.available_memory(root) is None


@pytest.mark.parametrize(
    ("limits", "memory"),
    [
        ("9:memory:/elsewhere\n0::/slurm/job_7/step_0\n", 3_000),
        ("0::/slurm/job_7/step_0/gone\n", 3_000),
        ("0::/slurm/job_8\n", 9_000),
        ("0::/../slurm/job_7\n", 9_000),
        (None, 9_000),
    ],
)
def test_the_smallest_limit_of_a_cgroup_and_its_parents_counts(tmp_path, limits, memory):
    """Slurm and systemd give it to a job's group, below one that has none."""
    groups = {"": ("10000", 1000), "slurm": ("max", 900), "slurm/job_7": ("3900", 900), "slurm/job_7/step_0": ("8000", 500)}  # fmt: skip
    files = {"proc/meminfo": "MemAvailable:    7000 kB\n"}
    for group, (ceiling, used) in groups.items():
        files[f"sys/fs/cgroup/{group}/memory.max"] = f"{ceiling}\n"
        files[f"sys/fs/cgroup/{group}/memory.current"] = f"{used}\n"
    if limits is not None:
        files["proc/self/cgroup"] = limits
    assert capacity.available_memory(made_up_system(tmp_path, files)) == memory
