"""Tests an agent of BabyAI-Text with words, actions, objects or tasks that its training did not
have.

    python -m motif_jax.launch --config=configs/test_language_agent.py --workdir=runs/gflan_tests \\
        --config.policy=runs/gflan
    python -m motif_jax.launch --config=configs/test_language_agent.py --workdir=runs/before \\
        --config.policy=zero_shot --config.network.model=MODEL \\
        --config.environment.name=BabyAI-GoToLocal-v0
    python -m motif_jax.launch --config=configs/test_language_agent.py \\
        --workdir=runs/random_tests --config.policy=random

Every test of every agent plays the episodes of the same seeds. Out come tests.json, tests.csv and
table.md (success, return and length of each test with intervals, and the change against none),
tests/NAME/episodes.jsonl (one line per episode, also the resume point) and
return_per_episode/NAME.npy, the published arrays. Stopped at any moment and started again, it loses
at most the episodes in flight.
"""

from motif_jax.glam.config import GeneralisationConfig, LanguagePolicy, PlayedLevelKeys
from motif_jax.schema import configs, section_keys

KEYS = {
    "stage": "test_language_agent",
    **section_keys(GeneralisationConfig),
    "environment": section_keys(PlayedLevelKeys),
    "network": section_keys(LanguagePolicy),  # of zero_shot
}
_SMOKE = {
    "episodes": 4,
    "lanes": 2,
    "workers": 1,
    "tests": "no_modification_test",
}
get_config = configs(KEYS, {"smoke": _SMOKE})
