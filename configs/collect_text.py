"""Draws dialogues of a text task and writes them as dialogues.parquet, to learn from (docs/ilql.md).

    python -m motif_jax.launch --config=configs/collect_text.py:wordle --workdir=runs/games

100,000 games of Wordle by the published noisy expert take about 10 seconds on 2 cores and 3 MB. Stopped at any moment, the same command
resumes; the result depends neither on that nor on the number of workers.

Variants: wordle (whole games), branch (an expert's games and others that leave it at every turn), adversarial (at the third guess),
tweets (games with the colours of tweets), smoke (500 games, seconds); visdial (the published files), reddit
(replies to comments); babyai (1,000 random episodes of BabyAI-Text, relabelled in hindsight, to make a language model of: docs/glam.md).
"""

from motif_jax import sections
from motif_jax.envs.babyai_text.catalogue import ACTIONS
from motif_jax.labels import defaults
from motif_jax.schema import Key, configs, fraction, natural, one_of, positive
from motif_jax.support.config import available_cores

# The published noisy data with expert .5: else a word that was guessed before.
NOISY_EXPERT = "mixture(0.5, optimal, repeat(optimal))"
_TOKENIZER = "a folder with tokenizer.json, such as GPT-2's; empty: byte pairs of the dialogues"
WORDLE = {
    "words": Key(
        "wordle_official_200",
        "wordle_official_200 (236 words), tweet_words (40), wordle_official (2,315), wordle_official_guess (12,972), wordle_official_400 (431), "
        "wordle_official_800 (826), or a file with a word a line",
    ),
    "num_words": natural(0, "the first so many of them; 0: all"),
    "suboptimal": Key("random", "of 'branch' and 'adversarial': who goes on"),
    "num_suboptimal": positive(1, "games of these for a state (branch) or a game (adversarial)"),
    "adversary": Key("wrong", "of 'adversarial': who leaves the expert at its third guess"),
    "num_adversarial": positive(5, "games of these"),
    "tweets": Key("", "of 'tweets': a CSV file, or JSON {games, transitions}; empty: simulated people"),
    "guesses": Key("", "of 'tweets' from CSV: words that may have been guessed; empty: those of `words`"),
    "indexes": Key("", "of 'tweets': a JSON list of the games that are used; empty: all"),
    "true_word": Key(False, "of 'tweets': the hidden word is the day's, not any that the colours allow"),
    "top_p": fraction(1.0, "of 'tweets': the best part of the games, by number of guesses, lost ones last"),
    "simulated": positive(20_000, "of 'tweets': people who tweet"),
    "simulated_seed": Key(1, "of those people"),
    "write_structure": Key(
        False, "of 'tweets': writes tweets.json, the published structure, beside the dialogues"
    ),
}
VISDIAL = {
    "data": Key("", "the published dialogues (JSON)"),
    "features": Key("", "the published features of pictures (.h5, or .npz)"),
    "reward_cache": Key("", "what each answer was worth (JSON)"),
    "split": one_of(("train", "val", "test"), "which of the features"),
    "mode": one_of(
        ("env_stops", "10_stop", "agent_stops"),
        "'env_stops': -1 a turn until enough is known; '10_stop': ten turns, paid their progress; 'agent_stops': so, until <stop>",
    ),
    "goal": Key(1.0, "of env_stops: share of the possible progress at which the talk ends"),
    "percentile": Key(0.5, "of the pictures' features, for progress"),
    "yes_no": one_of(
        ("none", "hard", "soft", "conservative"),
        "of env_stops: answers that cost yes_no_reward besides: 'hard' (exactly yes or no), 'soft' (has one), 'conservative' (17 key words)",
    ),
    "yes_no_reward": Key(-2.0, "see yes_no"),
    "reward_scale": Key(1.0, "of progress, where that is what is paid"),
    "reward_shift": Key(0.0, "of progress, where that is what is paid"),
    "url": Key("", "of 'games' and 'reward_cache': the server's address"),
    "server_reward": Key("rank", "of the server: 'rank' or 'distance'"),
    "timeout_seconds": positive(60.0, "that a request may take"),
    "attempts": positive(6, "how often a request is made before it is given up"),
    "normalise": Key(True, "divides the features of a picture by their length"),
    "additional": Key("", "further dialogues (a parquet file) behind the recorded ones"),
    "tokenizer": Key("", _TOKENIZER),
    "vocab_size": natural(0, "of byte pairs that are learned; 0: none yet"),
}
BABYAI_TEXT = {
    "level": Key("BabyAI-GoToLocal-v0", "of docs/babyai_text.md; the policy is 'random'"),
    "kind": Key("", "of task in the Mixed levels; '' draws it for each episode"),
    "language": Key("", "'english', 'french', or '' for the level's own"),
    "observations": positive(3, "in a prompt"),
    "actions": Key(ACTIONS, "their names"),
}
REDDIT = {
    "folder": Key("", "with comments_positive.csv and comments_negative.csv; empty: made-up ones"),
    "indexes": Key("", "a JSON list of the rows that are used, counted through both files; empty: all"),
    "include_parent": Key(True, "shows what a reply is to"),
    "reward": one_of(
        ("toxicity", "toxicity_noised", "upvote", "upvote_model", "none"),
        "'toxicity' (0, 1, 2), 'toxicity_noised' (1 becomes 0 or 2), 'upvote' (the sign of its score, recorded replies alone), 'upvote_model' "
        "(whether a model expects that it is liked, by `scores`), 'none'",
    ),
    "reward_scale": Key(None, "None: -5 of toxicity, as published, 1 of the others", float),
    "reward_shift": Key(0.0, "added to it"),
    "cutoff": Key(None, "recorded replies that are paid less are left out", float),
    "scores": Key("", "a JSON file, a text -> its score; what has none in there is asked"),
    "upvote_run": Key("", "of upvote_model: a run of train_upvote, for texts without a score in the file"),
    "noise_seed": Key(0, "of toxicity_noised"),
    "num_comments": positive(2000, "that are made up"),
    "data_seed": Key(1, "of those"),
    "tokenizer": Key("", _TOKENIZER),
    "vocab_size": natural(512, "of byte pairs that are learned"),
    "annotator": Key(
        "lexicon", "who says how toxic a text is: lexicon, openai, or (of recorded comments) vllm"
    ),
    "lexicon": Key("", "a YAML file; empty: built in"),
    "prompt": Key("", "a prompt file; empty: built in"),
    "answer_mode": one_of(("soft", "verdict", "analysis"), "as in annotate"),
    "server": Key("", "its address; the same command resumes with another"),
    "model": Key("", "its name on the server, or for vllm"),
    "store": defaults.STORE_DIR,
}
KEYS = {
    "stage": "collect_text",
    "seed": sections.seed(1),
    "task": Key("wordle", "wordle, visdial, reddit, babyai_text, or module:Class (docs/ilql.md)"),
    "kind": Key(
        "games",
        "what is drawn. Wordle: 'games', 'branch', 'adversarial', 'tweets'; visdial: 'recorded', 'games' (talks with the server), "
        "'reward_cache' (recorded ones, valued by the server); reddit: 'recorded', 'games'. BabyAI-Text: 'games', or 'steps', each a dialogue of "
        "an agent's prompt, its action, and what is seen next, or 'hindsight', those that led to a thing, which the prompt names as its goal; "
        "num_dialogues counts episodes of both",
    ),
    # Of 'branch' and 'adversarial' the expert's games, what branches off comes on top.
    "num_dialogues": natural(100_000, "how many; 0: all of what is recorded"),
    "policy": Key(
        NOISY_EXPERT,
        "who plays; of 'branch' and 'adversarial' the expert; of 'tweets' the simulated people. Wordle: fitting, random, random_mixture(P, LIST), "
        "start(LIST), optimal(START), repeat(START, FIRST_N), wrong(LIST), mixture(P, ONE, OTHER), monte_carlo(GAMES, PLAYER); LIST in quotes, a "
        "list's name or file",
    ),
    "options": Key("", 'of a task from outside, as JSON: {"words": 3}'),
    "wordle": WORDLE,
    "visdial": VISDIAL,
    "babyai_text": BABYAI_TEXT,
    "reddit": REDDIT,
    # This one only hands out work.
    "workers": positive(available_cores(), "processes"),
    "compat": sections.compat(
        "wordle_branch_restarts wordle_top_p_rows visdial_last_turn_free upvote_zero_one"
    ),
}
_EXPERT = "optimal(start)"
VARIANTS = {
    "wordle": {},
    "branch": {"kind": "branch", "num_dialogues": 20_000, "policy": _EXPERT},
    "adversarial": {
        "kind": "adversarial",
        "num_dialogues": 500,
        "policy": _EXPERT,
        "wordle.num_suboptimal": 5,
    },
    "tweets": {"kind": "tweets"},
    "smoke": {"num_dialogues": 500},
    "visdial": {"task": "visdial", "kind": "recorded", "num_dialogues": 0, "policy": "remote"},
    "reddit": {"task": "reddit", "kind": "recorded", "num_dialogues": 0, "policy": "recorded"},
    "babyai": {
        "task": "babyai_text",
        "kind": "hindsight",
        "policy": "random",
        "num_dialogues": 1000,
        "babyai_text.observations": 1,
    },
}
get_config = configs(KEYS, VARIANTS)
