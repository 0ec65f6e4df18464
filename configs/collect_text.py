"""Draws dialogues of a text task and writes them as dialogues.parquet, to learn from (docs/ilql.md).

    python -m motif_jax.launch --config=configs/collect_text.py:wordle --workdir=runs/games

100,000 games of Wordle by the published noisy expert take about 10 seconds on 2 cores and 3 MB. Stopped at any moment, the same command
goes on; the result depends neither on that nor on the number of workers.

Variants: wordle (whole games), branch (an expert's games and others that leave it at every turn), adversarial (at the third guess),
tweets (games with the colours of tweets), smoke (500 games, seconds); visdial (the published files), reddit
(replies to comments); babyai (the steps of 500 random episodes of BabyAI-Text, to make a language model of: docs/glam.md).
"""

from __future__ import annotations

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from motif_jax.envs.babyai_text.catalogue import ACTIONS
from motif_jax.support.config import available_cores, compat, unknown_variant

VARIANTS = ("", "wordle", "branch", "adversarial", "tweets", "smoke", "visdial", "reddit", "babyai")
# The published noisy data with expert .5: else a word that was guessed before.
NOISY_EXPERT = "mixture(0.5, optimal, repeat(optimal))"


def get_config(variant: str | None = None) -> ConfigDict:
    if (variant or "") not in VARIANTS:
        raise unknown_variant(variant, VARIANTS)
    config = ConfigDict(
        {
            "stage": "collect_text",
            "seed": 1,
            # A text task: 'wordle', 'visdial', 'reddit', 'babyai_text', or module:Class for one from outside (docs/ilql.md).
            "task": "wordle",
            # What is drawn, of those that the task knows. Wordle: 'games', 'branch', 'adversarial', 'tweets'; visdial:
            # 'recorded', 'games' (talks with the server), 'reward_cache' (recorded ones, valued by the server); reddit: 'recorded', 'games'.
            # BabyAI-Text: 'games', or 'steps', each a dialogue of an agent's prompt, its action, and what is seen next; num_dialogues
            # counts episodes.
            "kind": "games",
            # How many; of 'branch' and 'adversarial' the expert's games, what branches off comes on top. 0: all of what is recorded.
            "num_dialogues": 100_000,
            # Who plays; of 'branch' and 'adversarial' the expert; of 'tweets' the simulated people. Wordle: fitting, random,
            # random_mixture(P, LIST), start(LIST), optimal(START), repeat(START, FIRST_N), wrong(LIST), mixture(P, ONE, OTHER),
            # monte_carlo(GAMES, PLAYER); LIST in quotes, a list's name or file.
            "policy": NOISY_EXPERT,
            # Options of a task from outside as JSON: {"words": 3}.
            "options": "",
            "wordle": {
                # wordle_official_200 (236 words), tweet_words (40), wordle_official (2,315), wordle_official_guess (12,972),
                # wordle_official_400 (431), wordle_official_800 (826), or a file with a word a line.
                "words": "wordle_official_200",
                # The first so many of them; 0 for all.
                "num_words": 0,
                # Of 'branch' and 'adversarial': who goes on, and how many games a state (branch) or a game (adversarial).
                "suboptimal": "random",
                "num_suboptimal": 1,
                # Of 'adversarial': who leaves the expert at its third guess, and how many games.
                "adversary": "wrong",
                "num_adversarial": 5,
                # Of 'tweets': a CSV file of tweets, or a JSON file {games, transitions}; empty for simulated people.
                "tweets": "",
                # Of 'tweets' from CSV: words that may have been guessed; empty for those of `words`.
                "guesses": "",
                # Of 'tweets': a JSON list of the games that are used; empty for all.
                "indexes": "",
                # Of 'tweets': the hidden word is the day's, not any that the colours allow.
                "true_word": False,
                # Of 'tweets': the best part of the games, by number of guesses, lost ones last.
                "top_p": 1.0,
                # Of 'tweets': how many simulated people tweet, and their seed.
                "simulated": 20_000,
                "simulated_seed": 1,
                # Of 'tweets': writes tweets.json, the published structure, beside the dialogues.
                "write_structure": False,
            },
            "visdial": {
                # The published files: dialogues (JSON), features of pictures (.h5, or .npz), what each answer was worth (JSON).
                "data": "",
                "features": "",
                "reward_cache": "",
                # 'train', 'val', 'test': which of the features.
                "split": "train",
                # 'env_stops': -1 a turn until enough is known; '10_stop': ten turns, paid their progress; 'agent_stops': so, until <stop>.
                "mode": "env_stops",
                # Of env_stops: the talk ends when the progress so far is this share of what was possible, goal - the value at the beginning.
                "goal": 1.0,
                "percentile": 0.5,
                # Of env_stops: which answers cost yes_no_reward besides: 'none', 'hard' (exactly yes or no), 'soft' (has one), 'conservative' (17 key words).
                "yes_no": "none",
                "yes_no_reward": -2.0,
                # Of progress, where that is what is paid.
                "reward_scale": 1.0,
                "reward_shift": 0.0,
                # Of 'games' and 'reward_cache': the server's address, its reward ('rank' or 'distance'), seconds that a request may take, and how
                # often it is made before it is given up.
                "url": "",
                "server_reward": "rank",
                "timeout_seconds": 60.0,
                "attempts": 6,
                # Divides the features of a picture by their length.
                "normalise": True,
                # Further dialogues (a parquet file) behind the recorded ones.
                "additional": "",
                # A folder with tokenizer.json, such as GPT-2's; empty to learn byte pairs from the dialogues, vocab_size of them (0: none yet).
                "tokenizer": "",
                "vocab_size": 0,
            },
            "babyai_text": {
                "level": "BabyAI-GoToLocal-v0",  # of docs/babyai_text.md; the policy is 'random'
                "kind": "",  # of task in the Mixed levels; '' draws it for each episode
                "language": "",  # 'english', 'french', or '' for the level's own
                "observations": 3,  # in a prompt
                "actions": ACTIONS,  # their names
            },
            "reddit": {
                # A folder with comments_positive.csv and comments_negative.csv; empty for num_comments made-up ones.
                "folder": "",
                # A JSON list of the rows that are used, counted through both files; empty for all.
                "indexes": "",
                # Shows what a reply is to.
                "include_parent": True,
                # 'toxicity' (0, 1, 2), 'toxicity_noised' (1 becomes 0 or 2), 'upvote' (the sign of its score, recorded replies alone),
                # 'upvote_model' (whether a model expects that it is liked, by `scores`), 'none'.
                "reward": "toxicity",
                # None: -5 of toxicity, as published, 1 of the others.
                "reward_scale": placeholder(float),
                "reward_shift": 0.0,
                # Recorded replies that are paid less are left out.
                "cutoff": placeholder(float),
                # A JSON file, a text -> its score; what has none in there is asked.
                "scores": "",
                # Of upvote_model: a run folder of train_upvote, which scores what has no score in the file.
                "upvote_run": "",
                "noise_seed": 0,
                "num_comments": 2000,
                "data_seed": 1,
                "tokenizer": "",
                "vocab_size": 512,
                # Who says how toxic a text is: lexicon (a YAML file, empty: built in), openai: any server of that protocol, or (of recorded
                # comments) vllm, both with a model and a prompt file (empty: built in; answer_mode 'soft', 'verdict', 'analysis'). Answers go into `store`.
                "annotator": "lexicon",
                "lexicon": "",
                "prompt": "",
                "answer_mode": "soft",
                "server": "",  # its address; the same command goes on with another
                "model": "",
                "store": "runs/answer_store",
            },
            # Processes; this one only hands out work.
            "workers": available_cores(),
            # Quirks of the published code: wordle_branch_restarts begins branches on an empty board, wordle_top_p_rows ranks a loss
            # in six rows like a win in six, visdial_last_turn_free lets the tenth turn cost nothing where the goal was not reached,
            # upvote_zero_one has upvote_model pay 1 and 0 for 1 and -1.
            "compat": compat(
                "wordle_branch_restarts", "wordle_top_p_rows", "visdial_last_turn_free", "upvote_zero_one"
            ),
        }
    )
    if variant == "branch":
        config.kind, config.num_dialogues, config.policy = "branch", 20_000, "optimal(start)"
    if variant == "adversarial":
        config.kind, config.num_dialogues, config.policy = "adversarial", 2_000, "optimal(start)"
        config.wordle.num_suboptimal = 5
    if variant == "tweets":
        config.kind = "tweets"
    if variant == "visdial":
        config.task, config.kind, config.num_dialogues, config.policy = "visdial", "recorded", 0, "remote"
    if variant == "babyai":
        config.task, config.kind, config.policy = "babyai_text", "steps", "random"
        config.num_dialogues, config.babyai_text.observations = 500, 1
    if variant == "reddit":
        config.task, config.kind, config.num_dialogues, config.policy = "reddit", "recorded", 0, "recorded"
    if variant == "smoke":
        config.num_dialogues = 500
    return config
