"""A study that is a class, as the runner and the store take one."""

from __future__ import annotations

import xarray as xr

from experiments.lab.declaring import Cell, Study
from experiments.lab.study import StudyRecord


def record(study: type[Study]) -> StudyRecord:
    """The study as a record of functions."""
    return StudyRecord(
        name=study.name,
        version=study.version,
        question=(study.__doc__ or "").partition("\n")[0],
        reproduces=study.reproduces,
        duration=study.duration,
        options=study,
        settings=study,
        cell=Cell,
        result=xr.Dataset,
        prepare=study.prepare,
        cells=study.cells,
        compute=lambda setup, cell, context: setup.settings.compute(
            setup.state, context, **cell.values
        ),
        cost=lambda settings, cell: settings.cost(**cell.values),
        table=lambda run: run.settings.tables(run if study.name == "scaling" else run.found),
        draw=study.figures if study.drawings else None,
        variant=study.variant,
        committed=study.runs,
        figures=study.drawings,
        data=study.data,
        labels=study.needs,
        more_labels=study.takes,
        further=study.further,
        paired=study.paired,
        random=study.random,
    )
