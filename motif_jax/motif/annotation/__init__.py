"""Captions, prompts, answers, annotators and the answer store; nothing here imports jax.

The way of a pair, file by file:

    captions.py             the text of a moment
    questions.py            the distinct questions of a dataset, and their ids
    annotator.py            the interface of every judge, and which there are
      lexicon.py, baselines.py, recorded.py           judges without a language model
      prompts.py, parsing.py, chat.py                 what judges by language models share: the
                                                      words, the verdict of an answer
      openai_client.py, vllm_engine.py                such judges: a server, and vLLM in this
                                                      process
      ../model_judge.py                               and a model in this process by jax, for which
                                                      it stands outside this folder
    session.py              asks a judge what the store has no answer to
    store.py                keeps every answer, the one place that does: a file for each writer
    shards.py               what a finished command leaves in the dataset, made of the store
    labels.py               labels and probabilities of the pairs, made of all shards

A question whose server dies is asked again: session.py says how.

What says something about the judge: judge_figures.py (position bias, agreement, advice),
judge_probes.py (pairs with a known answer), answers_page.py (what it said), dry_run.py (what it
will cost).

text_judge.py asks about single texts, for the rewards of a text task (ilql/tasks/reddit).
both_orders.py asks about a pair in both orders beside a training (oni/). model_files.py identifies
a model by its files. config.py has the keys of all of them.
"""
