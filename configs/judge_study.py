"""How small may the judge be: agents of DoorKey whose rewards come from real language models of three sizes, and from controls.

    python -m motif_jax.launch --config=configs/judge_study.py --workdir=runs/judge_study

The labels lie in `docs/studies/judges`, with the texts that were asked: no model is needed. docs/results_judges.md says how they were made.
Each method trains 250,000 steps with each seed and plays 200 games that no training meets, one line a run in `rows`; what has a line is not
run again. Half a minute a run on 2 quiet cores.

`qwen15`, `qwen05` and `smollm2` (1.5, 0.5 and 0.135 billion parameters) were asked in both orders with `configs/prompts/small.yaml`, `qwen15_long`
is the largest of them with `configs/prompts/minigrid.yaml`. Controls: `lexicon`, and `coin`, which labels every pair by chance.

The claims were written down before the first of the seeds 11 to 13 was run with these rewards. Two more, which have no form here, are checked on
the page: `qwen15` succeeds at most 0.1 less often than `lexicon`; a judge whose two orders agree on fewer than 60 % of its questions
gives no agent that succeeds more often than `coin`'s.
"""

from motif_jax.reports import study_config as studies

_RECORDED = "--config.annotator=motif_jax.motif.annotation.recorded:RecordedAnnotator --config.orders=both"
_JUDGES = ("qwen15", "qwen05", "smollm2", "qwen15_long")
_DATASET = "--config.dataset_dir={workdir}/dataset"
_LABELS = f"configs/annotate.py {_DATASET} --config.store_dir={{workdir}}/store"


def _prepare() -> dict[str, str]:
    """Random play in a small level, and a reward by each judge."""
    commands = {"dataset": "configs/collect.py:minigrid"}
    annotators = {
        judge: f'{_RECORDED} --config.options={{"file":"docs/studies/judges/doorkey_{judge}.jsonl.gz"}}'
        for judge in _JUDGES
    }
    annotators |= {"lexicon": "--config.lexicon.file=minigrid.yaml", "coin": "--config.annotator=random"}
    for judge, flags in annotators.items():
        commands[f"labels_{judge}"] = f"{_LABELS} --config.name={judge} {flags}"
        # Models answer with probabilities, which hold more than the label where they are near one half.
        soft = " --config.labels.soft=True" if judge in _JUDGES else ""
        commands[f"reward_{judge}"] = (
            f"configs/train_reward.py:minigrid {_DATASET} --config.annotator={judge}{soft}"
        )
    return commands


_METHODS = ("qwen15", "qwen05", "smollm2", "qwen15_long", "lexicon", "coin")
BASE = {
    "seed": 11,
    "seeds": 3,
    "rows": "docs/studies/judges.jsonl",
    "prepare": _prepare(),
    "training": "configs/train_agent.py:minigrid",
    "methods": {judge: f"--config.reward.dir={{workdir}}/reward_{judge}" for judge in _METHODS},
    "evaluation": "configs/evaluate.py --config.policy=agent --config.reward.dir= --config.seed=77003 --config.episodes=200 "
    "--config.lanes=64",
    "tables": {"doorkey": ",".join(_METHODS)},
    "claims": "qwen15 > coin: success; qwen15 > qwen05: success; qwen05 > smollm2: success; qwen15 > qwen15_long: success",
    "lexicon.file": "minigrid.yaml",
    "measures": "success,through_door",
}
get_config = studies.study(BASE)
