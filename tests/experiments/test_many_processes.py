"""The study of several processes: its cells, its gains, and what goes over the wire."""

import xarray as xr
from small import flags

from experiments import lab
from experiments.cost import many_processes as study


def small(folder, seed):
    return [*flags(n=1024, processes="1,2", repeats=3)]


def test_cells_keep_the_pairs_or_the_work_of_a_process():
    cells = [tuple(cell.values.values()) for cell in study.ManyProcesses(n=1024).cells()]
    spectral = [cell[1:] for cell in cells if cell[0] == "spectral"]
    assert spectral == [(1024, 1), (512, 1), (1024, 2), (724, 2), (1024, 4)]
    assert len(cells) == 2 * len(spectral)


def test_a_row_has_the_fastest_call_and_the_slowest_and_gains_are_of_as_many_pairs():
    given, results = study.ManyProcesses(n=64, processes=(1, 2)), {}
    for cell in given.cells():
        way, n, count = cell.values.values()
        busy = ("end", [8.0 * n / count, 9.0 * n])
        of = {"busy": busy, "wall": busy, "loopback": ("end", [4e6 * (count - 1)] * 2)}
        results[cell] = xr.Dataset(of)
    run = lab.Run(given, None, {"seed": 0}, results, {}, [])
    facts = study.ManyProcesses.facts([run])
    rows = [list(row) for row in zip(*(c.cells for c in facts["table"].columns), strict=True)]
    assert ["spectral", "64", "2", "256 (576)", "256 (576)", "2", "2.0"] in rows
    assert ["order 2", "45", "1", "360 (405)", "360 (405)", "1", "0.0"] in rows
    assert facts["gain"]("order_2", 2) == 2
    assert facts["fastest"]("busy", "spectral", 64, 2) == 256
