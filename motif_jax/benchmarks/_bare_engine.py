"""The game engine without this package's rules: the baseline of `actors`."""

from __future__ import annotations

from collections.abc import Callable

from motif_jax.core.seeds import derive, rng
from motif_jax.envs.nethack.actions import ESCAPE, OPEN_QUESTIONS, SPACE
from motif_jax.envs.nethack.engine import NetHackEngine
from motif_jax.envs.nethack.game import Game, game_seeds
from motif_jax.envs.nethack.observation import MAX_EPISODE_STEPS

# by game and step: the action, its key, whether the episode ended
Script = list[list[tuple[int, int, bool]]]


def write_script(task: str, games: int, length: int, seed: int) -> Script:
    """Plays `length` random actions in each game by this package's rules, and notes the first key
    of each action.
    """
    script: Script = []
    for index in range(games):
        game = Game(task, NetHackEngine(), MAX_EPISODE_STEPS, {})
        keys: list[int] = []
        game.press = _noting(game.press, keys)
        episode = 0
        steps = []
        game.start(derive(seed, index, episode))
        for action in rng(seed, "actions", index).integers(0, 23, length).tolist():
            keys.clear()
            end = game.advance(action)[1]
            # Keys after the first dismiss prompts: `Bare.play` finds them by itself.
            steps.append((action, keys[0], bool(end)))
            if end:
                episode += 1
                game.start(derive(seed, index, episode))
        game.close()
        script.append(steps)
    return script


def _noting(press: Callable[[int], None], keys: list[int]) -> Callable[[int], None]:
    """`press`, which also appends each key to `keys`."""

    def press_and_note(key: int) -> None:
        keys.append(key)
        press(key)

    return press_and_note


class Bare:
    """The engine alone, which plays a script.

    Attributes:
      engines: one of each game, with a copy of the engine's code of its own.
    """

    def __init__(self, script: Script, seed: int) -> None:
        self._script = script
        self._seed = seed
        self.engines = [NetHackEngine(shared_code=False) for _ in script]
        self._episodes = [0] * len(script)
        for index, engine in enumerate(self.engines):
            engine.start(*game_seeds(derive(seed, index, 0)))

    def play(self, start: int, stop: int) -> None:
        """Plays steps `start` to `stop` of the script in all games, and dismisses prompts as the
        package's rules do.
        """
        # Looked up once, not at every step: this loop is the baseline that is to be as fast as can
        # be.
        handles = [
            (e, e.step, e.done, e.buffers.misc, e.buffers.message_memory, steps, index)
            for index, (e, steps) in enumerate(zip(self.engines, self._script, strict=True))
        ]
        for position in range(start, stop):
            for engine, step, done, misc, message, steps, index in handles:
                _, key, ended = steps[position]
                step(key)
                while not done():
                    # NLE's `misc`: the game waits for yes or no, for a line of text, or for a
                    # space.
                    if misc[2]:
                        step(SPACE)
                    elif misc[1]:
                        step(ESCAPE)
                    elif misc[0]:
                        question = message.tobytes()
                        if not any(word in question for word in OPEN_QUESTIONS):
                            step(ESCAPE)
                        break
                    else:
                        break
                if ended:
                    self._episodes[index] += 1
                    engine.start(*game_seeds(derive(self._seed, index, self._episodes[index])))

    def close(self) -> None:
        for engine in self.engines:
            engine.close()
