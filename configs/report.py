"""Writes one page about a run: curves, messages by reward, evaluations with intervals, configs and versions.

    python -m motif_jax.launch --config=configs/report.py --workdir=runs/report --config.agent.dir=runs/agent \\
        --config.reward.dir=runs/reward --config.dataset_dir=runs/dataset \\
        --config.evaluations=runs/evaluation,runs/evaluation_random

Out come WORKDIR/report.html, one file that needs no network, its numbers as report.md, report.tex and report.json, and its
charts as plots/*.png and plots/*.pdf. What is not given is left out, and the page says so. A few seconds.

Beside a training, a page that renews itself in the browser until the training ends (WORKDIR may lie in the training's folder):

    python -m motif_jax.launch --config=configs/report.py --workdir=runs/agent/page --config.agent.dir=runs/agent --config.follow=True
"""

from motif_jax.core import sections
from motif_jax.rl.reward_keys import QUANTILE, REWARD_STEP, THRESHOLD
from motif_jax.schema import Key, configs, positive

KEYS = {
    "stage": "report",
    "seed": sections.SEED,
    "title": Key("Motif: a run", "title of the page"),
    "dataset_dir": Key(None, "folder of a pairs dataset", str),
    "reward": {
        "dir": Key(None, "run folder of train_reward", str),
        "step": REWARD_STEP,
        "quantile": QUANTILE,
        "threshold": THRESHOLD,
    },
    "agent": {"dir": Key(None, "run folder of train_agent", str)},
    "language": {"dir": Key(None, "run folder of pretrain_language_model", str)},
    "text": {"dir": Key(None, "run folder of train_text", str)},
    "evaluations": Key("", "folders of evaluations with commas between, the agent's first"),
    "tests": Key("", "folders of test_language_agent, with commas between"),
    "yardsticks": Key("", "further evaluations to show; first_must_lead ignores them"),
    "first_must_lead": Key(
        False,
        "exit code 1 unless the first evaluation is better than all others. BabyAI-Text: the interval of each paired difference of success (to "
        "its own earlier checkpoint: of return) lies above 0. Text tasks: the interval of its mean return lies above the others'",
    ),
    "lead": Key(
        0.0,
        "with first_must_lead, BabyAI-Text: its success must exceed that of play that does not read (random, fixed shares, exchanged "
        "prompts) by this much, with intervals apart",
        minimum=0,
        below=1,
    ),
    "replays": Key("", "folders of `replay` of the training's recorded games, with commas between"),
    "max_messages": positive(
        5000, "number of messages in the page's list, the most frequent of the dataset first"
    ),
    "plots": Key(True, "PNG and PDF files beside the page"),
    "follow": Key(False, "write the page again while the training of agent.dir goes on"),
    "follow_seconds": positive(60, "seconds between two pages of follow"),
}
get_config = configs(KEYS, {"smoke": {"plots": False}, "quickstart": {"title": "Motif quickstart"}})
