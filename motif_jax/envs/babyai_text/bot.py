"""minigrid's scripted player, called before every step with the action played last."""

from __future__ import annotations

from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.utils.baby_ai_bot import BabyAIBot

NO_ANSWER = 255


class Bot:
    """The bot of one episode, made from a level after its reset; another player may choose the
    actions.
    """

    def __init__(self, world: RoomGridLevel, num_actions: int) -> None:
        self._bot: BabyAIBot | None = BabyAIBot(world)
        self._num_actions = num_actions

    def action(self, played: int | None) -> int:
        """The bot's next action after `played` (None at the start); `NO_ANSWER` once it has
        failed, and where its action is not one of the first `num_actions`.
        """
        if self._bot is None:
            return NO_ANSWER
        try:
            action = int(self._bot.replan(played))
        except Exception:
            # Its plans end in failed assertions where somebody else has moved what they need.
            self._bot = None
            return NO_ANSWER
        return action if action < self._num_actions else NO_ANSWER
