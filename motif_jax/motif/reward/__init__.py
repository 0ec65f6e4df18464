"""The reward model: its data, loss, training, statistics and files.

In the order to read them:

    config.py             the keys of train_reward
    reward_data.py        the dataset: distinct messages, targets, split, the batches of every epoch
    preference.py         the loss of a pair (equation 1 of the paper) and the step
    reward_task.py        the training, a `core/training/task.py:Task`; reward_evaluation.py has the
                          numbers of every evaluation
    normalisation.py      statistics of a reward, and what an agent gets of raw rewards
    reward_model.py       one evaluation of a run, loaded; safetensors_file.py makes one file of it,
                          training_texts.py keeps hashes of the texts that it was trained on
    reward_function.py    a reward as a Python function of messages
    motif.py              the reward of a run as an agent's, `reward.kind=motif`; frozen_text.py:
                          rewards of the text that nothing trains, of a table or any text
    reward_ratings.py     rates the messages of a dataset, for explain_reward
"""
