"""What every folder above stands on: configs, run folders, files, devices, metrics, the offline
trainer. It knows no method.

A command is checked, opens its run folder, works until it is done or asked to stop, and leaves
checkpoints and metrics from which the same command resumes. The order to read:

    errors.py           `UserError`: one line for the user, in place of a traceback
    config.py           checks of a config's values; the keys are made by motif_jax/schema.py
    sections.py         sections that several configs have; compat.py has the switches for quirks of
                        published agents
    entry_points.py     `module:Class` of a user; which of them a run may import
    run_folder.py       config, versions and command of a run; refuses another run's config
    interruption.py     stops on request, with the exit code that asks for another start
    checkpoints.py      saves and restores by item
    metrics.py          writes metrics; metric_files.py reads them
    devices/            data parallelism, hosts, split models, threads, precision (services.py,
                        parallel.py, hosts.py)
    training/           the offline trainer: task.py is its interface; its page has the order

Files:

    files.py            written entirely or not at all; locks.py, tempdirs.py, checked_lines.py,
                        tensor_files.py
    digests.py          digests of files and tensors
    hub.py              hf://OWNER/NAME; tokenizer_files.py reads tokenizers
    resources.py        files that come with the package

Processes: cluster.py (which host this is), capacity.py (memory), progress.py, profiling.py.
Numbers: seeds.py, nan_policy.py. Texts: text_bytes.py, sentences.py, joint_tokens.py, distinct.py,
verdicts.py.

Where a change goes:

    another key of several commands     sections.py; a key of one command belongs to the config.py
                                        of its folder
    another published quirk             a switch in compat.py; of a training that one method alone
                                        has, in its config.py
    another check of a value            a limit of the `Key` in motif_jax/schema.py, else config.py
    another place for metrics           metrics.py
    another key or file of a run        a higher LAYOUT in run_folder.py, where a folder from before
                                        would be read as another run
    another file that a kill may cut    files.py, or checked_lines.py where lines are appended
"""
