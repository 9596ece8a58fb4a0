"""The study of several processes: its cells, its gains, and what goes over the wire."""

from small import flags

from experiments.cost import many_processes as study


def small(folder, seed):
    return [*flags(n=1024, processes="1,2", repeats=3)]


def test_cells_keep_the_pairs_or_the_work_of_a_process():
    cells = [tuple(cell.values.values()) for cell in study.ManyProcesses(n=1024).cells()]
    spectral = [cell[1:] for cell in cells if cell[0] == "spectral"]
    assert spectral == [(1024, 1), (512, 1), (1024, 2), (724, 2), (1024, 4)]
    assert len(cells) == 2 * len(spectral)
