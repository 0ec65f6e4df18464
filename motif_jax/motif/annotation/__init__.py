"""Captions, prompts, answers, annotators and the shard store; nothing here imports jax.

The files in the order to read them:

    captions.py             the text of a moment
    questions.py            the distinct questions of a dataset, and their ids
    annotator.py            the interface of every judge, and which there are
      lexicon.py, baselines.py, recorded.py           judges without a language model
      prompts.py, parsing.py, chat.py                 what judges by language models share: the
                                                      words, the verdict of an answer
      openai_client.py, vllm_engine.py                such judges: a server, and vLLM in this
                                                      process
      ../model_judge.py, ../judge_prompts.py          and a model in this process by jax, for which
                                                      they stand outside this folder
    session.py              asks a judge what store.py has no answer to
    shards.py, labels.py    answers become labels
    judge_figures.py        what the answers say about the judge: position bias, agreement, advice;
                            judge_probes.py asks it pairs with a known answer, answers_page.py shows
                            what it said
    text_judge.py           asks a judge about single texts, for the rewards of a text task
                            (ilql/tasks/reddit)
    both_orders.py          asks about a pair in both orders beside a training (oni/)

config.py has the keys of all of them.
"""
