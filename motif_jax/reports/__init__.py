"""Pages of runs, comparisons and studies; nothing here imports jax at its head.

`report` reads the folders of a run's stages into `run_data.RunData` and writes a page: `run_report`
lists its sections, each in a file of its own (`evaluation_sections`, `training_sections`,
`generalisation_section`, `text_section`, `learned_reward`, `probe_report`, `recorded_games`).
`glance` has its first lines, `hacking` and `success` its verdicts.

`compare` reads runs of several methods and seeds: `comparison` has the statistics, `smoothing` the
learning curves, `efficiency` their means up to a step, `claims` the claims that games carry or not,
`comparison_page` the page.

`run_study` trains the methods of a study (`study_config`), plays games with each and keeps one line
per run (`study`).
"""
