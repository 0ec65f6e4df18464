"""Plays and evaluates agents that speak: the parts of `motif_jax/ilql/evaluate_text.py`.

`config.kind` says what an evaluation is; config.py has the keys of all kinds, each with the kinds
that read it:

    episodes                        text_setup.py opens the task and its speaker, text_episodes.py
                                    plays, many at a time, and text_games_page.py shows the first
                                    games by token
    episodes, of recorded dialogues recorded_texts.py: the policy's loss and the values of an agent
    rank                            text_ranks.py: utterances and n-grams by their advantage, and
                                    how often Q ranks an expert's tokens first
    play                            text_terminal.py: a person at the terminal

text_setup.py also plays the episodes of the evaluations of a training.
"""
