"""NetHack: engine, tasks, observations, groups of games; the only package that imports nle.

The order to read:

    observation.py              the fields of an observation, the options, the published quirks
    tasks.py                    success and reward of each task
    actions.py, status.py       keys and status line
    game.py                     one game: a step from key to reward; extended.py for the tasks with
                                28 actions
    group.py, environment.py    games stepped together, and one of them as an environment
    buffers.py, window.py       the memory that engines write, and views of it
    engine.py, library.py       nle's game, and how its code is shared among games
    level_engine.py             games that begin on a level of one's own (MiniHack)
    random_players.py           players for collecting; scripted_players.py has those that read the
                                screen
"""
