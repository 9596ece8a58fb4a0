"""The benchmark: time, memory and accuracy against peers and the machine's measured limit.

`python -m experiments.scaling` runs it, `python -m experiments.scaling.report` prints a saved
result as Markdown. Each contestant runs in a process of its own (`worker.py`), called in turn with
the others (`contests.py`): two runtimes in one process would fight over the cores, and apart they
still meet on the same data at the same time.
`engines.py` holds the contestants that run on JAX, `peers.py` those that need a package of the
`bench` extra, `reference.py` the float64 values. `study.py` is the study: options, data, cells;
`report.py` derives every ratio, error and coverage from what was saved, `figures.py` draws it.
"""
