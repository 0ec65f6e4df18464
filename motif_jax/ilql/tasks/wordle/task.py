"""Wordle as a text task: its options, policies and streams."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from motif_jax.core import seeds
from motif_jax.ilql.dialogues.dialogue import Dialogue, DialogueStream
from motif_jax.ilql.tasks.contract import TextPolicy, TextTask
from motif_jax.ilql.tasks.wordle import streams, tweets
from motif_jax.ilql.tasks.wordle.environment import WordleEnvironment, WordleTokenizer
from motif_jax.ilql.tasks.wordle.game import NAMES, START_WORDS, WordTable, distinct, read_words
from motif_jax.ilql.tasks.wordle.policies import Plan, parse, policy_of
from motif_jax.schema import Key, non_negative, positive

# Files of 'tweets' in the folder that they are prepared in.
_SIMULATED, _STRUCTURE = "tweets.csv", "tweets.json"
# Of the simulated people: the data's own seed draws what is made of their tweets.
_SIMULATED_SEED = 1
# Bytes of a worker's array [games, words] for a chunk of games.
_CHUNK_BYTES, _MAX_GAMES, _FEWEST_GAMES = 1 << 22, 1024, 16


KEYS: Mapping[str, Key] = {
    "words": Key(
        "wordle_official_200",
        "wordle_official_200 (236 words), tweet_words (40), wordle_official (2,315), wordle_official_guess (12,972), wordle_official_400 (431), "
        "wordle_official_800 (826), or a file with a word a line",
    ),
    "num_words": non_negative(0, "number of words that are used, the first of the list; 0: all"),
    "suboptimal": Key("random", "policy that goes on in games of 'branch' and 'adversarial'"),
    "num_suboptimal": positive(
        1, "number of suboptimal games for a state (branch) or a game (adversarial)"
    ),
    "adversary": Key(
        "wrong", "policy that takes over from the expert at its third guess, in 'adversarial'"
    ),
    "num_adversarial": positive(5, "number of adversarial games for a game"),
    "tweets": Key(
        "", "file of 'tweets': CSV, or JSON {games, transitions}; empty: simulated people"
    ),
    "guesses": Key(
        "",
        "file of the words that may have been guessed in 'tweets' from CSV; empty: those of `words`",
    ),
    "indexes": Key("", "file of 'tweets': a JSON list of the games that are used; empty: all"),
    "true_word": Key(
        False, "the hidden word of 'tweets' is the day's, not any that the colours allow"
    ),
    "top_p": Key(
        1.0,
        "share of the games of 'tweets' that is used, the best by number of guesses, lost ones last",
        above=0,
        maximum=1,
    ),
    "simulated": positive(20_000, "number of simulated people who tweet, for 'tweets'"),
    "write_structure": Key(
        False, "writes tweets.json, the published structure of 'tweets', beside the dialogues"
    ),
}


class Wordle(TextTask):
    """The game, its policies (`motif_jax.ilql.tasks.wordle.policies`), and four kinds of data."""

    name = "wordle"
    kinds = ("games", "branch", "adversarial", "tweets")
    switches = "wordle_"
    paths = ("words", "guesses", "tweets", "indexes")
    lists = (*NAMES, START_WORDS)
    keys: ClassVar[Mapping[str, Key]] = {
        **KEYS,
        "branch_restarts": Key(False, "compat.wordle_branch_restarts"),
        "top_p_rows": Key(False, "compat.wordle_top_p_rows"),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        values = self.options
        self.words = read_words("wordle.words", values["words"], values["num_words"] or None)
        available = len(self.words)
        self.require(
            values["num_words"] <= available,
            "num_words",
            f"at most {available}, the words of the list",
        )
        self._facts: dict[str, Any] = {}

    def tokenizer(self) -> WordleTokenizer:
        return WordleTokenizer()

    def environment(self) -> WordleEnvironment:
        return WordleEnvironment(WordTable(self.words))

    def outcome(self, dialogue: Dialogue) -> dict[str, float]:
        pairs = zip(dialogue.texts, dialogue.rewards, strict=True)
        actions = [(guess, reward) for guess, reward in pairs if reward is not None]
        repeated = float(len(actions) - len({guess for guess, _ in actions}))
        return {
            "success": float(bool(actions) and actions[-1][1] == 0.0),
            "repeated_guesses": repeated,
        }

    def policy(self, name: str) -> TextPolicy:
        plan = parse(name)
        table = self._table(plan)
        return policy_of(plan.player(table), table)

    def _table(self, *plans: Plan) -> WordTable:
        return WordTable(self.words, [word for plan in plans for word in plan.lists])

    def check(self, kind: str, policy: str) -> None:
        super().check(kind, policy)
        if kind != "tweets":
            self._plans(kind, policy)
            return
        if self.options["guesses"]:
            read_words("wordle.guesses", self.options["guesses"])
        if not self.options["tweets"]:
            parse(policy)

    def _plans(self, kind: str, policy: str) -> list[Plan]:
        plans = [parse(policy)]
        if kind in ("branch", "adversarial"):
            plans.append(parse(self.options["suboptimal"], "wordle.suboptimal"))
        if kind == "adversarial":
            plans.append(parse(self.options["adversary"], "wordle.adversary"))
        return plans

    def stream(self, kind: str, policy: str) -> DialogueStream:
        if kind == "tweets":
            return self._tweets()
        plans = self._plans(kind, policy)
        table = self._table(*plans)
        expert, *rest = [plan.player(table) for plan in plans]
        restarts = self.options["branch_restarts"]
        others = self.options["num_suboptimal"]
        if kind == "branch":
            return streams.branching(table, expert, rest[0], others, restarts)
        if kind == "adversarial":
            count = self.options["num_adversarial"]
            return streams.adversarial(table, (expert, rest[0], rest[1]), others, count, restarts)
        return streams.games(table, expert)

    def prepare(self, kind: str, policy: str, folder: Path) -> dict[str, Any]:
        if kind != "tweets":
            return self.options
        options = dict(self.options)
        if not options["tweets"]:
            path = folder / _SIMULATED
            if not path.exists():
                self._simulate(path, policy)
            options["tweets"] = str(path)
        structure = folder / _STRUCTURE
        if options["write_structure"] and not structure.exists():
            # A task of the new options, which name the file of tweets.
            tweets.write_structure(structure, *Wordle(options).read_tweets())
        return options

    def _simulate(self, path: Path, policy: str) -> None:
        plan = parse(policy)
        days = read_words("wordle.words", "tweet_words")
        # The days' words are hidden ones, whether the game has them or not.
        table = WordTable(distinct([*self.words, *days]), plan.lists)
        rng = seeds.rng(_SIMULATED_SEED, "tweets")
        tweets.simulate(path, days, table, plan.player(table), self.options["simulated"], rng)

    def read_tweets(self) -> tuple[list[tweets.Tweet], tweets.Guesses]:
        options = self.options
        if str(options["tweets"]).endswith(".json"):
            return tweets.read_structure(options["tweets"])
        games = tweets.read_csv(options["tweets"], read_words("wordle.words", "tweet_words"))
        guess_words = (
            read_words("wordle.guesses", options["guesses"]) if options["guesses"] else self.words
        )
        return games, tweets.Guesses.of(self.words, guess_words)

    def _tweets(self) -> DialogueStream:
        options = self.options
        games, guesses = self.read_tweets()
        if options["indexes"]:
            games = [games[index] for index in self.read_indexes(len(games))]
        if options["top_p"] < 1:
            games = tweets.best(games, options["top_p"], options["top_p_rows"])
        stream = tweets.TweetGames(games, guesses, options["true_word"])
        self._facts = stream.facts
        return stream

    def dialogues_per_draw(self, kind: str) -> int:
        # Fewer games of longer lists, since a game has a bool for each word.
        return max(_FEWEST_GAMES, min(_MAX_GAMES, _CHUNK_BYTES // len(self.words)))

    def facts(self, kind: str) -> dict[str, Any]:
        return {"words": len(self.words), **(self._facts if kind == "tweets" else {})}
