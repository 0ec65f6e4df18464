"""How small may the judge be: agents whose rewards come from real language models of three sizes,
and from controls.

    python -m motif_jax.launch --config=docs/studies/judges.py --workdir=runs/judge_study

The labels lie in `docs/studies/judges`, with the texts that were asked: no model is needed.
docs/studies/judges.md says how they were made. Each method trains with each seed and plays 200
games that no training meets, one line a run in `rows`; what has a line is not run again. On 2 quiet
cores a run takes half a minute to 3 minutes.

`qwen15`, `qwen05` and `smollm2` (1.5, 0.5 and 0.135 billion parameters) were asked in both orders
with `configs/prompts/small.yaml`, `qwen15_long` is the largest of them with
`configs/prompts/minigrid.yaml`, `qwen15_default` with `default.yaml`, `qwen15_nogoal` with
`small.yaml` and no goal. `qwen15_once`, `qwen05_once` and `smollm2_once` take one order of each
pair. Controls: `lexicon`, and `coin`, which labels every pair by chance.

The claims were written down before the first of the seeds 11 to 13 was run with these rewards. One
more, which has no form here, is checked on the page: a judge whose two orders agree on fewer than
60 % of its questions gives no agent that succeeds more often than `coin`'s.

Variants:
  (none)     DoorKey-8x8, 250,000 steps, captions of random play in a smaller level.
  keycorridor
             KeyCorridorS3R3, a million steps, captions of random play in a smaller level, as
             docs/studies/minigrid.py; `any_text` pays all captions alike.
  multiroom  MiniHack MultiRoom-N4, 300,000 steps, NetHack's messages, as docs/studies/minihack.py.
  keyroom    MiniHack KeyRoom-S5, the same; `qwen15_counted`, `qwen05_counted`, `coin_counted` and
             `all_counted` (all messages alike) pay a message less the more often an episode has
             seen it (`reward.count_exponent`, 3 is published).
  crafter    Crafter, 75,000 steps, its event captions; `task` has the task's reward alone,
             `qwen15_sentence` pays sentences apart (`reward.by`). `qwen15_alone`, `lexicon_alone`
             and `coin_alone` have the judge's reward alone, `random` plays at random. Needs the
             extra `crafter`; a run takes about 2 minutes.
  nethack    NetHack's score, a million steps with the settings of `train_agent.py:laptop`; `task`
             has the task's reward alone, the others a judge's besides it. `any_text` pays all
             messages alike; `qwen15_sentence` and `any_sentence` pay sentences apart,
             `qwen15_unpaid` pays nothing for fainting from hunger, `qwen15_played` learns from the
             play of trained agents in place of random play.
  staircase  NetHack's staircase, with the labels, steps and settings of `nethack`; `qwen15_weak`
             weighs the judge's reward a hundredth of the task's.
  steering   NetHack's first rooms with the settings of docs/studies/steering.py, whose lexicons
             are replaced by `qwen15` with the goals `combat` and `gold`, and with its
             `defaultgoal`; `score` has the task's reward alone, `random` plays at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from motif_jax.reports import study_config as studies

_RECORDED = (
    "--config.annotator=motif_jax.motif.annotation.recorded:RecordedAnnotator --config.orders=both"
)
_MODELS = ("qwen15", "qwen05", "smollm2")
_DATASET = "--config.dataset_dir={workdir}/dataset"
_LABELS = f"configs/annotate.py {_DATASET} --config.store_dir={{workdir}}/store"
# Games of 1,000 steps, and whole messages where a method does not say otherwise.
_LAPTOP = "configs/train_agent.py:laptop --config.environment.max_episode_steps=1000 --config.reward.by=message"


def _evaluation(episodes: int) -> str:
    """The games of seeds that no training meets."""
    return (
        f"configs/evaluate.py --config.policy=agent --config.reward.dir= --config.seed=77003 --config.episodes={episodes} "
        "--config.lanes=64"
    )


def _prepare(
    level: str,
    collect: str,
    models: tuple[str, ...],
    lexicon: str,
    goal: str = "",
    settings: str = "minigrid",
    later_models: tuple[str, ...] = (),
) -> dict[str, str]:
    """Collected play, and a reward by each judge.

    Args:
      goal: what the lexicon judges by; '' for its own default, which the flags of rows that were
          made without it do not name.
      settings: the variant of `train_reward`.
      later_models: asked when the others had been run. They come last: a run's row names all
          commands before its own, too.
    """
    commands = {"dataset": collect}

    def recorded(model: str) -> str:
        return f'{_RECORDED} --config.options={{"file":"docs/studies/judges/{level}_{model}.jsonl.gz"}}'

    annotators = {model: recorded(model) for model in models}
    named_goal = f" --config.goal={goal}" if goal else ""
    annotators["lexicon"] = f"--config.lexicon.file={lexicon}{named_goal}"
    annotators["coin"] = "--config.annotator=random"
    annotators |= {model: recorded(model) for model in later_models}
    for judge, flags in annotators.items():
        commands[f"labels_{judge}"] = f"{_LABELS} --config.name={judge} {flags}"
        # Models answer with probabilities, which hold more than the label where they are near one
        # half.
        soft = " --config.labels.soft=True" if judge in (*models, *later_models) else ""
        commands[f"reward_{judge}"] = (
            f"configs/train_reward.py:{settings} {_DATASET} --config.annotator={judge}{soft}"
        )
    return commands


def _rewards(*judges: str) -> dict[str, str]:
    return {judge: f"--config.reward.dir={{workdir}}/reward_{judge}" for judge in judges}


def _methods(models: tuple[str, ...]) -> dict[str, str]:
    return _rewards(*models, "lexicon", "coin")


def _minihack(
    level: str,
    name: str,
    more_methods: Mapping[str, str] = MappingProxyType({}),
    more_claims: Sequence[str] = (),
    goal: str = "",
) -> dict[str, Any]:
    """The study of a level that random labels are not expected to teach; trained as in
    docs/studies/minihack.py.
    """
    methods = {**_methods(_MODELS), **more_methods}
    claims = (
        "qwen15 > coin: success",
        "qwen15 > smollm2: success",
        "qwen15 > lexicon - 0.1: success",
        "qwen15 > qwen05 - 0.1: success",
        *more_claims,
    )
    environment = f"--config.environment.name=MiniHack-{name}-v0"
    collect = (
        f"configs/collect.py {environment} --config.policy=random --config.num_pairs=3000 --config.start_share=0.5 "
        "--config.spread=messages --config.screens=False"
    )
    training = (
        f"configs/train_agent.py:quickstart {environment} --config.network.encoder=tiles --config.train_for_env_steps=300000 "
        "--config.algorithm.exploration_coefficient=0.01 --config.reward.threshold=auto --config.reward.count_exponent=0 "
        "--config.reward.intrinsic_coefficient=0.1 --config.reward.extrinsic_coefficient=10 "
        "--config.algorithm.advantage_scale=returns --config.algorithm.value_normalisation=running"
    )
    return {
        "rows": f"docs/studies/judges_{level}.jsonl",
        "prepare": _prepare(level, collect, _MODELS, "minihack.yaml", goal),
        "training": training,
        "methods": methods,
        "tables": {level: ",".join(methods)},
        "claims": "; ".join(claims),
        "lexicon.file": "minihack.yaml",
        "measures": "success,scout",
    }


def _keycorridor() -> dict[str, Any]:
    """The study of minigrid's sparser level, which is learned by captions of a key, a door and a
    ball.
    """
    methods = {**_methods(_MODELS), "any_text": "--config.reward.kind=any_text"}
    return {
        "rows": "docs/studies/judges_keycorridor.jsonl",
        "prepare": _prepare(
            "keycorridor",
            "configs/collect.py:minigrid --config.environment.name=MiniGrid-KeyCorridorS3R1-v0 --config.num_pairs=6000",
            ("qwen05", "smollm2"),
            "minigrid.yaml",
            later_models=("qwen15",),
        ),
        "training": "configs/train_agent.py:minigrid --config.reward.pay=read --config.environment.name=MiniGrid-KeyCorridorS3R3-v0 "
        "--config.train_for_env_steps=1000000",
        "methods": methods,
        "tables": {"keycorridor": ",".join(methods)},
        "claims": "qwen15 > coin: success; qwen15 > smollm2: success; qwen15 > any_text: success; qwen15 > lexicon - 0.1: success; "
        "qwen15 > qwen05 - 0.1: success; qwen05 > coin: success",
    }


def _crafter() -> dict[str, Any]:
    """The study of a game with many things to reach, in which the task's reward alone teaches some
    of them.
    """
    methods = {
        **_rewards(*_MODELS),
        "qwen15_sentence": "--config.reward.dir={workdir}/reward_qwen15 --config.reward.by=sentence",
        **_rewards("lexicon", "coin"),
        "task": "--config.reward.intrinsic_coefficient=0",
    }
    # Added when the others had been run, in which the task pays for what these agents learn first;
    # claimed before their own seeds.
    alone = "--config.reward.extrinsic_coefficient=0 --config.reward.intrinsic_coefficient=1"
    for judge in ("qwen15", "lexicon", "coin"):
        methods[f"{judge}_alone"] = f"--config.reward.dir={{workdir}}/reward_{judge} {alone}"
    methods["random"] = "--config.reward.intrinsic_coefficient=0 --config.train_for_env_steps=1024"
    return {
        "rows": "docs/studies/judges_crafter.jsonl",
        "prepare": _prepare(
            "crafter",
            "configs/collect.py:crafter --config.num_pairs=400 --config.screens=False",
            _MODELS,
            "crafter.yaml",
            "crafter",
        ),
        "training": "configs/train_agent.py:crafter --config.reward.pay=read --config.train_for_env_steps=75000",
        "methods": methods,
        "games": {"random": "--config.policy=random"},
        "tables": {"crafter": ",".join(methods)},
        "claims": "qwen15 > task: achievements; qwen15 > coin: achievements; qwen15 > smollm2: achievements; "
        "qwen15 > lexicon - 0.5: achievements; qwen15_sentence > qwen15: achievements; "
        "qwen15_alone > random: achievements; qwen15_alone > coin_alone: achievements; qwen15_alone > task - 1: achievements",
        "goal": "crafter",
        "lexicon.file": "crafter.yaml",
        "measures": "achievements,length",
    }


def _nethack_labels() -> dict[str, str]:
    """Rewards of the pairs of launch/quickstart_llm.sh."""
    return _prepare(
        "nethack",
        "configs/collect.py:quickstart --config.num_pairs=3000",
        ("qwen15",),
        "nethack.yaml",
        "defaultgoal",
        settings="quickstart",
        later_models=("qwen05", "smollm2"),
    )


def _prepare_nethack() -> dict[str, str]:
    commands = _nethack_labels()
    # The dataset is kept with its labels, since nobody trains the same agents again.
    commands["reward_played"] = (
        "configs/train_reward.py:quickstart --config.dataset_dir=docs/studies/judges/nethack_played --config.annotator=qwen15 "
        "--config.labels.soft=True"
    )
    return commands


def _nethack() -> dict[str, Any]:
    """The study of NetHack itself, where the task's reward alone teaches something, too."""
    # The two smaller models were added when the others had been run; claimed after they were asked,
    # before their own seeds.
    methods = {
        judge: f"--config.reward.dir={{workdir}}/reward_{judge} --config.reward.intrinsic_coefficient=0.5"
        for judge in (*_MODELS, "lexicon", "coin")
    }
    methods["task"] = "--config.reward.intrinsic_coefficient=0"
    # Added when the others had been run, and KeyRoom had shown that the count alone may teach;
    # claimed before its own seeds.
    methods["any_text"] = "--config.reward.kind=any_text --config.reward.intrinsic_coefficient=0.5"
    # Added last, since the agents of `qwen15` are paid for "You faint from lack of food.  You
    # regain consciousness.", and each composition counts as a new text; claimed before its own
    # seeds.
    methods["qwen15_sentence"] = f"{methods['qwen15']} --config.reward.by=sentence"
    # The control of it, claimed when it had been run, before its own seeds: do sentences paid apart
    # help whatever the judge likes?
    methods["any_sentence"] = f"{methods['any_text']} --config.reward.by=sentence"
    # Added when no goal had made the judge dislike fainting from hunger: such texts pay nothing.
    # Claimed before its own seeds.
    unpaid = "docs.examples.unpaid_texts:UnpaidTexts"
    methods["qwen15_unpaid"] = f"{methods['qwen15']} --config.reward.kind={unpaid}"
    # Added last: what the same model likes in the play of trained agents (three of
    # `qwen15_sentence`) in place of random play. Claimed before its own seeds.
    methods["qwen15_played"] = (
        "--config.reward.dir={workdir}/reward_played --config.reward.intrinsic_coefficient=0.5"
    )
    return {
        "rows": "docs/studies/judges_nethack.jsonl",
        "prepare": _prepare_nethack(),
        "training": f"{_LAPTOP} --config.train_for_env_steps=1000000",
        "methods": methods,
        "games": {"qwen15_unpaid": f"--config.trust={unpaid}"},
        "tables": {"nethack": ",".join(methods)},
        # Four points are a tenth of what the task's reward alone reaches in twice as many steps
        # (docs/studies/nethack_laptop.md).
        "claims": "qwen15 > task: kills; qwen15 > task - 4: score; qwen15 > coin: kills; qwen15 > lexicon - 0.5: kills; "
        "qwen15 > any_text: kills; qwen15 > qwen15_sentence: deaths; qwen15_sentence > qwen15 - 0.3: kills; "
        "qwen15 > qwen05: kills; qwen05 > smollm2: kills; qwen05 > task: kills; "
        "qwen15_sentence > any_sentence: kills; qwen15_sentence > any_sentence: score; "
        "qwen15 > qwen15_unpaid: deaths; qwen15_unpaid > qwen15 - 0.3: kills; "
        "qwen15 > qwen15_played: deaths; qwen15_played > qwen15 - 0.3: kills",
        "lexicon.file": "nethack.yaml",
        "measures": "kills,score,scout,dlvl,deaths",
    }


def _staircase() -> dict[str, Any]:
    """The study of a sparse task of NetHack: only the stairs down pay, and an episode ends on
    them.
    """
    # The two smaller models were added last; claimed before their own seeds.
    methods = {
        judge: f"--config.reward.dir={{workdir}}/reward_{judge} --config.reward.intrinsic_coefficient=0.5"
        for judge in (*_MODELS, "lexicon", "coin")
    }
    methods["task"] = "--config.reward.intrinsic_coefficient=0"
    methods["any_text"] = "--config.reward.kind=any_text --config.reward.intrinsic_coefficient=0.5"
    # Added when the others had been run, whose judges keep the agents from the stairs: the two
    # weights as published for sparse tasks, of which the judge's is a hundredth of the task's in
    # place of a half. Claimed before its own seeds.
    methods["qwen15_weak"] = (
        "--config.reward.dir={workdir}/reward_qwen15 --config.reward.intrinsic_coefficient=0.1 --config.reward.extrinsic_coefficient=10"
    )
    return {
        "rows": "docs/studies/judges_staircase.jsonl",
        "prepare": _nethack_labels(),
        "training": f"{_LAPTOP} --config.environment.name=NetHackStaircase-v1 --config.train_for_env_steps=1000000",
        "methods": methods,
        "tables": {"staircase": ",".join(methods)},
        "claims": "qwen15 > task: success; qwen15 > coin: success; qwen15 > any_text: success; qwen15 > lexicon - 0.05: success; "
        "qwen15 > task: kills; qwen15_weak > qwen15 + 0.05: success; qwen15_weak > task: success; qwen15_weak > task: kills; "
        "task > qwen05: success; task > smollm2: success; qwen15 > qwen05: kills; qwen05 > smollm2: kills",
        "lexicon.file": "nethack.yaml",
        "measures": "success,kills,scout,score,deaths",
    }


def _steering() -> dict[str, Any]:
    """What the goal in a small model's prompt changes, with the games, settings and claims of
    docs/studies/steering.py.
    """
    goals = {"combat": "combat", "gold": "gold", "default": "defaultgoal"}
    commands = {"dataset": "configs/collect.py:steering --config.num_pairs=1000"}
    for method, goal in goals.items():
        answers = f'{_RECORDED} --config.options={{"file":"docs/studies/judges/steering_{method}.jsonl.gz"}}'
        commands[f"labels_{method}"] = (
            f"{_LABELS} --config.name={method} --config.goal={goal} {answers}"
        )
        commands[f"reward_{method}"] = (
            f"configs/train_reward.py:quickstart {_DATASET} --config.annotator={method} --config.labels.soft=True --config.epochs=8"
        )
    task_alone = "--config.reward.intrinsic_coefficient=0 --config.reward.extrinsic_coefficient=1"
    # Chosen on seed 1. This judge likes nearly all texts better than silence, so that
    # `reward.threshold=auto` would pay too many, and above the median "Ouch!  That hurts!" is paid,
    # too; above 0.95 only kobolds are.
    above = "--config.reward.threshold=quantile --config.reward.quantile=0.85"
    methods = {
        **{method: f"--config.reward.dir={{workdir}}/reward_{method} {above}" for method in goals},
        "score": task_alone,
        "random": f"{task_alone} --config.train_for_env_steps=2048",
    }
    measures = {"combat": "kills", "gold": "gathered"}
    claims = [
        f"{goal} > {other}: {measure}"
        for goal, measure in measures.items()
        for other in ("default", "score", "random")
    ]
    return {
        "rows": "docs/studies/judges_steering.jsonl",
        "prepare": commands,
        "training": "configs/train_agent.py:steering",
        "methods": methods,
        "evaluation": _evaluation(300),
        "games": {"random": "--config.policy=random"},
        "tables": {"steering": ",".join(methods)},
        "claims": "; ".join(claims),
        "lexicon.file": "steering.yaml",
        "goal": "combat",
        "measures": "kills,gathered,score,scout,dlvl",
    }


_DOORKEY_MODELS = (*_MODELS, "qwen15_long")
# Added when the others had been run: the largest model with other prompts, and each model asked in
# one order, whose answers are among those of both. Claimed before their own seeds.
_DOORKEY_PROMPTS = ("qwen15_nogoal", "qwen15_default")
_DOORKEY_ONCE = tuple(f"{model}_once" for model in _MODELS)


def _prepare_doorkey() -> dict[str, str]:
    commands = _prepare(
        "doorkey",
        "configs/collect.py:minigrid",
        _DOORKEY_MODELS,
        "minigrid.yaml",
        later_models=_DOORKEY_PROMPTS,
    )
    recorded = _RECORDED.replace("orders=both", "orders=once")
    for model in _MODELS:
        answers = (
            f'{recorded} --config.options={{"file":"docs/studies/judges/doorkey_{model}.jsonl.gz"}}'
        )
        commands[f"labels_{model}_once"] = f"{_LABELS} --config.name={model}_once {answers}"
        commands[f"reward_{model}_once"] = (
            f"configs/train_reward.py:minigrid {_DATASET} --config.annotator={model}_once --config.labels.soft=True"
        )
    return commands


_DOORKEY_METHODS = _methods(_DOORKEY_MODELS) | _rewards(*_DOORKEY_PROMPTS, *_DOORKEY_ONCE)
BASE = {
    "seed": 11,
    "seeds": 3,
    "rows": "docs/studies/judges.jsonl",
    "prepare": _prepare_doorkey(),
    "training": "configs/train_agent.py:minigrid --config.reward.pay=read",
    "methods": _DOORKEY_METHODS,
    "evaluation": _evaluation(200),
    "tables": {"doorkey": ",".join(_DOORKEY_METHODS)},
    "claims": "qwen15 > coin: success; qwen15 > qwen05: success; qwen05 > smollm2: success; qwen15 > qwen15_long: success; "
    "qwen15 > lexicon - 0.1: success; qwen15 > qwen15_once: success; qwen05 > qwen05_once: success; "
    "qwen15 > qwen15_default: success; qwen15 > qwen15_nogoal: success",
    "lexicon.file": "minigrid.yaml",
    "measures": "success,through_door",
}
# Added when the others had been run, whose agents stand still and are paid for one message again
# and again; claimed before its own seeds.
_COUNTED = {
    f"{judge}_counted": f"--config.reward.dir={{workdir}}/reward_{judge} --config.reward.count_exponent=3"
    for judge in ("qwen15", "qwen05", "coin")
}
# A control that was added after them, claimed before its own seeds: does the count alone teach it?
_COUNTED["all_counted"] = (
    "--config.reward.kind=table --config.reward.table=docs/studies/judges/keyroom_all.json --config.reward.count_exponent=3"
)
_COUNTED_CLAIMS = (
    "qwen15_counted > qwen15: success",
    "qwen05_counted > qwen05: success",
    "qwen15_counted > coin_counted: success",
    "qwen15_counted > all_counted: success",
)
VARIANTS = {
    "": {},
    "keycorridor": _keycorridor(),
    "multiroom": _minihack("multiroom", "MultiRoom-N4"),
    "keyroom": _minihack("keyroom", "KeyRoom-S5", _COUNTED, _COUNTED_CLAIMS, "defaultgoal"),
    "crafter": _crafter(),
    "nethack": _nethack(),
    "staircase": _staircase(),
    "steering": _steering(),
}
get_config = studies.study(BASE, VARIANTS)
