"""Tests an agent of BabyAI-Text with words, actions, objects or tasks that its training did not have.

    python -m motif_jax.launch --config=configs/test_language_agent.py --workdir=runs/gflan_tests --config.policy=runs/gflan
    python -m motif_jax.launch --config=configs/test_language_agent.py --workdir=runs/before --config.policy=zero_shot \\
        --config.network.model=MODEL --config.environment.name=BabyAI-GoToLocal-v0
    python -m motif_jax.launch --config=configs/test_language_agent.py --workdir=runs/random_tests --config.policy=random

Every test of every agent plays the episodes of the same seeds. Out come tests.json, tests.csv and table.md (success, return and length of each
test with intervals, and the change against none), tests/NAME/episodes.jsonl (one line per episode, also the resume point) and
return_per_episode/NAME.npy, the published arrays. Stopped at any moment and started again, it loses at most the episodes in flight.
"""

from motif_jax.core import resources
from motif_jax.glam.config import LevelPolicy
from motif_jax.play.keys import CONFIDENCE, LANES, PLAYED_LEVEL, RESAMPLES, WORKERS
from motif_jax.schema import Key, configs, length_key, positive, section_keys

_AGENT = resources.config_file("train_language_agent")["KEYS"]
KEYS = {
    "stage": "test_language_agent",
    **section_keys(LevelPolicy),
    "policy": Key(
        "random",
        "'random'; 'bot'; 'zero_shot' (network.model as it is, before any training); the folder of an agent run (language, cloned, DRRN, "
        "symbolic); or module:Class of your own (play/policies.py)",
    ),
    "tests": Key(
        "all",
        "names with commas between, or levels; 'all': every test that applies to the policy (docs/glam.md lists them) and whose prompts "
        "fit it. The first is always no_modification_test, which the others are compared with",
    ),
    "action_names": Key(
        (),
        "names of the actions in the test action_names, as many as there are actions; (): rotate left, move ahead, ...",
    ),
    "episodes": positive(1000, "number of episodes of each test"),
    "prompt_tokens": length_key(
        None, "longest prompt in tokens; None: the training's, twice as many where words may take more", int
    ),
    "workers": WORKERS,
    "lanes": LANES,
    "resamples": RESAMPLES,
    "confidence": CONFIDENCE,
    "environment": _AGENT["environment"] | {"name": PLAYED_LEVEL},
    "network": _AGENT["network"],  # of zero_shot
}
_SMOKE = {
    "episodes": 4,
    "lanes": 2,
    "resamples": 200,
    "workers": 1,
    "tests": "no_modification_test",
}
get_config = configs(KEYS, {"smoke": _SMOKE})
