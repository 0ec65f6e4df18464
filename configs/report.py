"""Writes one page about a run: curves, messages by reward, evaluations with intervals, configs and versions.

    python -m motif_jax.launch --config=configs/report.py --workdir=runs/report --config.agent.dir=runs/agent \\
        --config.reward.dir=runs/reward --config.dataset_dir=runs/dataset \\
        --config.evaluations=runs/evaluation,runs/evaluation_random

Out come WORKDIR/report.html, one file that needs no network, its numbers as report.md, report.tex and report.json, and its
charts as plots/*.png and plots/*.pdf. What is not given is left out, and the page says so. A few seconds.
"""

from motif_jax import sections
from motif_jax.schema import Key, configs, positive

KEYS = {
    "stage": "report",
    "seed": sections.SEED,
    "title": Key("Motif: a run", "of the page"),
    "dataset_dir": Key(None, "folder of a pairs dataset", str),
    "reward": {
        "dir": Key(None, "run folder of train_reward", str),
        "step": sections.REWARD_STEP,
        "quantile": sections.QUANTILE,
        "threshold": sections.THRESHOLD,
    },
    "agent": {"dir": Key(None, "run folder of train_agent", str)},
    "language": {"dir": Key(None, "run folder of pretrain_language_model", str)},
    "text": {"dir": Key(None, "run folder of train_text", str)},
    "evaluations": Key("", "folders of evaluations with commas between, the agent's first"),
    "tests": Key("", "folders of test_language_agent, with commas between"),
    "yardsticks": Key("", "further evaluations, shown beside the first one, which is not judged by them"),
    "first_must_lead": Key(
        False,
        "exit code 1 unless the first one is better than all others: of BabyAI-Text each paired difference of success (to its own earlier "
        "checkpoint of return) has its interval above 0, of text tasks the interval of its mean return lies above theirs",
    ),
    "lead": Key(
        0.0,
        "with first_must_lead, of BabyAI-Text: how much more success than what does not read (random play, fixed shares, exchanged prompts) "
        "it must have, with intervals apart",
        least=0,
        below=1,
    ),
    "replays": Key("", "folders of `replay` of the training's recorded games, with commas between"),
    "max_messages": positive(5000, "of the dataset, most frequent first, in the page's list"),
    "plots": Key(True, "PNG and PDF files beside the page"),
}
get_config = configs(KEYS, {"smoke": {"plots": False}, "quickstart": {"title": "Motif quickstart"}})
