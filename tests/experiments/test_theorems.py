"""The study of theorems: it reads the report of theory_checks, whole."""

import json

import numpy as np
import pytest
from small import flags

from experiments.conditional_vendi.theorems import REPORT, Theorems


def small(folder, seed):
    """A report in which the seed changes what one claim says."""
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    report["claims"][0]["detail"] = f"seed {seed}"
    path = folder / "report.json"
    path.write_text(json.dumps(report))
    return flags(report=path)


def test_the_data_of_theorems_are_the_report(tmp_path):
    setups = []
    for seed in (0, 1):
        (flag,) = small(tmp_path, seed)
        given = Theorems(report=flag.partition("=")[2])
        setups.append(given.prepare(lambda: None, 0))
    assert not np.array_equal(*(setup.arrays["report"] for setup in setups))
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(ValueError, match=r"--report: report\.json is no whole report"):
        given.prepare(lambda: None, 0)
