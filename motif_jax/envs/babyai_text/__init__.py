"""BabyAI-Text: grid worlds of BabyAI whose observations are sentences.

The order to read:

    catalogue.py            names of levels, kinds of task, actions; levels.py draws those that
                            minigrid lacks
    environment.py          the environment, its options and fields
    sentences.py            a view in clauses; missions.py translates missions into French
    prompts.py              the prompt of a language model; instructions.py is a mission in numbers,
                            for other networks
    changes.py              changed prompts for tests of an agent; exchange.py shows those of
                            another episode
    bot.py, probes.py       minigrid's scripted player, and fixed situations
"""
