"""The tasks with 28 actions, which add cast, drink, pray, pick up and pay, and automatic keys."""

from __future__ import annotations

from collections.abc import Mapping

from motif_jax.envs.nethack import actions
from motif_jax.envs.nethack import buffers as b
from motif_jax.envs.nethack.game import KILL, Game, events


class ExtendedGame(Game):
    """A game with the 28 actions of the extended tasks.

    * Casting casts the hero's first spell: its letter follows the key at once, whatever the screen
      shows.
    * A skill is improved at the end of the step whose message allows it, or after the answer to an
      open question.
    * "yes" to the question what to drink selects the first choice, as for eating.

    With the switch `oni_extended_steps`, as published:

    * A skill message is missed if a cast caused it, or if the stairs' sentence kept over a prompt
      hides it. After a cast only the screen before the spell's letter is read, and only if a prompt
      follows.
    * Improving a skill on the stairs hides their sentence, and so the success.
    * A kill is counted on the step after its message, and on each further step on which the message
      stays.
    * Prompts are dismissed in one pass: prompts after an escaped question stay for the next step.
    """

    __slots__ = ("_as_published", "_looks_away", "skill_waits")

    action_keys = actions.EXTENDED_KEYS
    open_questions = actions.EXTENDED_OPEN_QUESTIONS

    def __init__(
        self, task: str, engine: b.Engine, max_steps: int, compat: Mapping[str, bool]
    ) -> None:
        self._as_published = compat.get("oni_extended_steps", False)
        super().__init__(task, engine, max_steps, compat)
        # The agent's keys go through `_play`; prompts and automatic keys are sent by `_send` alone.
        self.press = self._play
        if not self._as_published:
            self._send = self._send_and_look

    def _clear(self) -> None:
        super()._clear()
        self.skill_waits = False
        self._looks_away = False

    def _play(self, key: int) -> None:
        self._send(key)
        if key == actions.CAST and not self._ask():
            self._name_spell()
        # The prompts come first, then the skill, which they may have told of. An open question puts
        # it off.
        if any(self._misc):
            self.dismiss()
        elif self._as_published:
            self._look()
        if self.skill_waits and not any(self._misc) and not self._ask():
            self._improve_skill()

    def _name_spell(self) -> None:
        """Answers which spell to cast: the first."""
        shown = self.buffers.message_memory.tobytes()
        self._send(actions.FIRST_CHOICE)
        if self._as_published:
            self._looks_away = True
            self.skill_waits |= bool(self._misc[2]) and actions.SKILL_SENTENCE in shown

    def _improve_skill(self) -> None:
        message = self.buffers.message_memory
        step = self._engine.step
        shown = message.tobytes()
        step(actions.ENHANCE)
        step(actions.FIRST_CHOICE)
        self.dismiss()
        # The automatic keys have replaced the message by which the rule sees the stairs.
        if actions.STAIRS_SENTENCE in shown and not self._as_published:
            message[:] = shown
        self.skill_waits = False

    def _send_and_look(self, key: int) -> None:
        self._engine.step(key)
        self.skill_waits |= actions.SKILL_SENTENCE in self.buffers.message_memory.tobytes()

    def _look(self) -> None:
        """Reads the screen at the start of each pass except the first after a cast, as
        published.
        """
        if self._as_published and not self._looks_away:
            self.skill_waits |= actions.SKILL_SENTENCE in self.buffers.message_memory.tobytes()
        self._looks_away = False

    def _settle(self) -> tuple[bool, bool]:
        if self._as_published:
            return self._ask(), bool(self._engine.in_normal_game())
        return super()._settle()

    def act(self, action: int) -> None:
        if self._as_published:
            # The record is still that of the step before.
            self._kills += self.record[KILL]
        super().act(action)

    def _tells_of_kill(self) -> None:
        if not self._as_published:
            super()._tells_of_kill()

    def _describe(self, message: bytes) -> list:
        questions = (actions.EAT_QUESTION, actions.DRINK_QUESTION)
        return [0, actions.offered_letter(message, questions), *events(message)]
