"""The annotate stage with the real vLLM engine on the CPU, and a tiny judge trained on this
project's prompts.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax import schema
from motif_jax.core.verdicts import SINGLE
from motif_jax.oni import label_service as online
from motif_jax.oni.config import OnlineAnnotator, Queue
from motif_jax.oni.label_service import LabelService
from motif_jax.rl.config import agent_config
from motif_jax.schema import section_keys
from tests import tiny_judge
from tests.end_to_end.annotate_datasets import (
    expected,
    labels,
    run_stage,
    stored,
    summary,
    write_dataset,
)
from tests.processes import REPOSITORY, Program, ended, free_port, status_of, wait_until
from tests.reward_fixtures import command

pytestmark = [pytest.mark.extra, pytest.mark.vllm, pytest.mark.timeout(1800)]
NAME = "judge_msg_defaultgoal_default"
PYTHON = REPOSITORY / ".venv-vllm" / "bin" / "python"
CACHE = REPOSITORY / ".cache"
ENVIRONMENT = {**os.environ, **tiny_judge.ENVIRONMENT, "VLLM_CACHE_ROOT": str(CACHE / "vllm")}


@pytest.fixture(scope="module")
def judge() -> Path:
    if not (REPOSITORY / ".venv-vllm" / "requirements.sha256").exists():
        reason = "the vLLM CPU environment is not there: bash launch/setup_vllm_cpu.sh makes it"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(reason)
        pytest.skip(reason)
    return tiny_judge.cached(CACHE, str(PYTHON))


@pytest.fixture(scope="module")
def pairs():
    rng = random.Random(7)
    return [tiny_judge.pair(rng) for _ in range(300)]


@pytest.fixture
def dataset(tmp_path, pairs):
    return write_dataset(tmp_path / "dataset", pairs)


def flags(judge, *more):
    options = {"model": judge, **tiny_judge.OPTIONS}
    arguments = [f"--config.vllm.{key}={value}" for key, value in options.items()]
    return ["--config.annotator=vllm", *arguments, *more]


def line(dataset, store, workdir, *more):
    """The stage's command line in vLLM's environment."""
    folders = f"--config.dataset_dir={dataset}", f"--config.store_dir={store}"
    return [str(PYTHON), *command("annotate", workdir, *folders, *more, variant="")[1:]]


def accuracy(dataset, name=NAME):
    return (labels(dataset, name) == expected(dataset, tiny_judge.rule)).mean()


def test_free_answers_through_a_kill_and_by_two_slurm_tasks(judge, dataset, tmp_path):
    """Published style: analysis, verdict, one retry turn.

    The first of two shards is killed while it generates; then the body of launch/annotate.sbatch,
    run as a shell script for each of two array tasks side by side, continues it and answers the
    other.
    """
    store = tmp_path / "store"
    runs = [tmp_path / "runs" / f"shard-{task:05d}" for task in range(2)]
    shard = ["--config.num_shards=2", "--config.shard_index=0"]
    slow = ["--config.flush_seconds=0", "--config.vllm.in_flight=64"]
    arguments = flags(judge, *shard, *slow)
    program = Program(line(dataset, store, runs[0], *arguments), tmp_path / "log", ENVIRONMENT)
    # An answer has some 200 bytes.
    wait_until(
        lambda: sum(path.stat().st_size for path in store.glob("*.jsonl")) >= 8000,
        "answers",
        600,
        0.005,
    )
    program.send(signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL
    assert not (dataset / "preference").exists()
    tasks = []
    for task in range(2):
        array = {
            "SLURM_ARRAY_TASK_ID": str(task),
            "SLURM_ARRAY_TASK_COUNT": "2",
            "SLURM_ARRAY_JOB_ID": "1",
        }
        variables = {"PYTHON": str(PYTHON), "DATASET": str(dataset), "STORE": str(store)}
        variables |= {"WORKDIR": str(runs[0].parent)}
        script = ["bash", "launch/annotate.sbatch", *flags(judge)]
        tasks.append(
            subprocess.Popen(script, cwd=REPOSITORY, env={**ENVIRONMENT, **array, **variables})
        )
    assert [one.wait(900) for one in tasks] == [0, 0]
    assert accuracy(dataset) >= 0.98
    first, second = (summary(run) for run in runs)
    assert first["store_hits"] > 20
    assert first["asked"] > 20
    assert second["store_hits"] == 0
    for done in (first, second):
        assert done["asked"] + done["store_hits"] == done["questions"]
        assert done["cached_tokens"] > 0
        assert done["tokens_per_second"] > 0
    assert first["questions"] + second["questions"] == first["dataset_questions"]
    assert first["retried_share"] + second["retried_share"] > 0
    answers = stored(store)
    assert all(answer["text"] for answer in answers)
    # Of two turns both texts are kept.
    retried = next(answer for answer in answers if "\n\n" in answer["text"])
    assert any("fountain" in item for item in retried["items"])
    assert retried["label"] in (0, 1, 2)


def annotate(judge, dataset, *more, code=0):
    """What the stage beside `dataset` prints in vLLM's environment."""
    command = line(dataset, dataset.parent / "store", dataset.parent / "run", *flags(judge, *more))
    program = Program(command, dataset.parent / "log", ENVIRONMENT)
    with ended([program]):
        assert program.wait(900) == code, program.text()[-3000:]
    return program.text()


def test_structured_verdicts_in_both_orders(judge, dataset):
    printed = annotate(judge, dataset, "--config.answer.mode=verdict", "--config.orders=both")
    assert accuracy(dataset) >= 0.98
    done = summary(dataset.parent / "run")
    assert done["unknown_share"] == 0
    bias = done["merged"]["position_bias"]
    assert bias["consistent"] > 0.95
    assert 0.4 < bias["first_share"] < 0.6
    assert "asked both ways" in printed


def test_soft_labels_and_too_long_prompts(judge, pairs, tmp_path):
    # 256 bytes that the tokenizer has never seen are about 256 tokens: two of them do not fit into
    # the model.
    rng = np.random.default_rng(0)
    noise = ["".join(map(chr, rng.integers(161, 256, 256))) for _ in range(2)]
    dataset = write_dataset(tmp_path / "dataset", [*pairs, (noise[0], noise[1])])
    annotate(judge, dataset, "--config.answer.mode=soft")
    done = summary(tmp_path / "run")
    got = labels(dataset, NAME)
    assert got[-1] == 3
    assert done["unknown_notes"] == {"prompt too long for the model": 1}
    right = got[:-1] == expected(dataset, tiny_judge.rule)[:-1]
    assert right.mean() >= 0.98
    probabilities = np.load(dataset / "annotations" / NAME / "probabilities.npy")
    assert np.isnan(probabilities[-1]).all()
    np.testing.assert_allclose(probabilities[:-1].sum(1), 1, atol=1e-5)
    assert (probabilities[:-1].argmax(1) == got[:-1]).all()
    assert ((probabilities[:-1] > 0) & (probabilities[:-1] < 1)).mean() > 0.9
    assert done["mean_verdict_mass"] > 0.9


def online_accuracy(folder, **values):
    """The share of right labels of messages that come in two parts, with nothing to ask in
    between.
    """
    config = schema.section(
        {"annotator": section_keys(OnlineAnnotator), "queue": section_keys(Queue)}
    )
    config.annotator.store_dir = str(folder)
    config.annotator.sampling.max_tokens = 64
    config.update_from_flattened_dict({f"annotator.{key}": value for key, value in values.items()})
    settings = agent_config(config)
    online.check(settings, SINGLE)
    source = LabelService(settings, SINGLE)
    rng = random.Random(9)
    items = list({(tiny_judge.pair(rng)[0],) for _ in range(200)})
    requests = []
    try:
        source.start()
        for part in (items[::2], items[1::2]):
            source.enqueue(part, [1] * len(part), None, 0)
            wait_until(
                functools.partial(_have_arrived, source, requests, len(requests) + len(part)),
                "labels",
                300.0,
            )
    finally:
        source.close()
    return sum(entry.label == tiny_judge.good(entry.items[0]) for entry in requests) / len(items)


def _have_arrived(source: LabelService, requests: list[Any], count: int) -> bool:
    requests.extend(source.poll())
    return len(requests) >= count


def test_openai_compatible_server(judge, dataset, tmp_path):
    """vLLM's own server, asked from the main environment: free text, structured output, soft
    labels.
    """
    port = free_port()
    line = [
        PYTHON,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        judge,
        "--host",
        "127.0.0.1",
    ]
    line += [
        "--port",
        port,
        "--served-model-name",
        "judge",
        "--dtype",
        "float32",
        "--enforce-eager",
    ]
    line += ["--max-model-len", 512, "--max-num-seqs", 64, "--max-num-batched-tokens", 32768]
    line += ["--block-size", 32, "--kv-cache-memory-bytes", "256M"]
    server = Program([str(part) for part in line], tmp_path / "server.log", ENVIRONMENT)
    with ended([server]):

        def listens():
            assert server.process.poll() is None, server.text()[-3000:]
            return status_of(f"http://127.0.0.1:{port}/health") == 200

        wait_until(listens, "the server listens", 600)
        for mode in ("analysis", "verdict", "soft"):
            values = {
                "annotator": "openai",
                "openai__model": "judge",
                "answer__mode": mode,
                "name": mode,
            }
            values |= {"openai__base_url": f"http://127.0.0.1:{port}/v1"}
            done = run_stage(dataset, tmp_path / "run", tmp_path / "store", **values)
            assert accuracy(dataset, mode) >= 0.98, mode
            assert done["prompt_tokens"] > 0
        values = {"openai.base_url": f"http://127.0.0.1:{port}/v1", "openai.model": "judge"}
        assert online_accuracy(tmp_path / "online", kind="openai", **values) >= 0.98
        server.send(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):  # then it is killed
            server.wait(60)


def test_an_engine_that_does_not_load_is_one_line(judge, dataset):
    printed = annotate(judge, dataset, """--config.vllm.engine={"no_such_option": 1}""", code=1)
    last = printed.splitlines()[-1]
    assert last.startswith("error: TypeError")
    assert "no_such_option" in last
