"""Motif: a reward from a language model's preferences over recorded games (Klissarov, D'Oro et al.
2023).

The method has three phases (section 3 of the paper), one command each, in the order to read them:

    collect.py          plays games and keeps pairs of moments, each with its message (pairs/,
                        sampling.py); look.py only looks at the game
    annotate.py         asks a language model which message of a pair it prefers (annotation/)
    train_reward.py     fits a network to the preferences, equation 1 of the paper (reward/)

An agent then learns from the reward: `motif_jax/rl/train_agent.py`. `explain_reward.py` shows what
the reward likes (explanation.py has the data, explanation_page.py the page).

annotation/     its page lists the files in the order to read them. captions.py makes a text of a
                moment, questions.py the distinct questions of a dataset. annotator.py is the
                interface of every judge, chat.py is what judges by language models share.
                parsing.py reads a verdict. session.py asks a judge through store.py, which keeps
                every answer; shards.py and labels.py make the labels of it. judge_figures.py and
                judge_probes.py measure the judge.
model_judge.py  the judge that runs a model in this process; it stands here since annotation/ is
                free of jax.
pairs/          the dataset on disk: layout.py, writer.py, dataset.py; targets.py makes numbers of
                labels.
reward/         reward_data.py and preference.py are the training, reward_task.py its task;
                reward_model.py loads the result with the statistics that normalise it
                (normalisation.py), motif.py pays it to an agent.

Where a change goes:

    another server             none is needed where it speaks the OpenAI protocol: annotator=openai,
                               openai.base_url and openai.model (of a training annotator.kind and
                               annotator.openai.*). Else a subclass of
                               annotation.chat.ChatAnnotator, which has prompts and parsing; you
                               write what sends a conversation
    another judge              a subclass of annotation.annotator.Annotator, named as
                               annotator=module:Class; its docstring is the list of what it may
                               have, docs/annotation.md has one of 20 lines
    another reading of answers annotation/parsing.py (texts), answer_from_log_probabilities in
                               annotation/chat.py (probabilities), verdict_log_probabilities in
                               annotation/openai_client.py (those of a server), find_prefill in
                               model_judge.py (the tokens that count, of a model in this process),
                               annotation/labels.py (both orders), pairs/targets.py (numbers).
                               Change `parsing` of the identity in annotation/chat.py, too, for
                               probabilities its _SOFT_VERSION: labels are made of the stored
                               verdicts, and texts are not read again
    another form of verdict    core/verdicts.py (a `Form` of 2 or 3 verdicts, in FORMS), prompt
                               files in configs/prompts/NAME, which annotation/prompts.py finds,
                               `forms` of the judges that answer it (lexicon.py has its own rule),
                               and who asks it: annotation/text_judge.py, oni/label_service.py,
                               `form` of a reward in oni/. Pairs with more verdicts need more
                               columns, too: annotation/labels.py, pairs/targets.py, and UNKNOWN of
                               core/verdicts.py, which label files hold as 3
    another prompt             a YAML file as in configs/prompts
    another loss               reward/preference.py
    another normalisation      reward/normalisation.py
    another network            motif_jax/nets/reward.py
"""
