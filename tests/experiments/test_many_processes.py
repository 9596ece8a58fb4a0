"""The study of several processes: what is counted in texts and on the wire, and its model."""

import jax
import numpy as np
import pytest
import xarray as xr

from experiments import lab
from experiments.cost import many_processes as study

PROGRAM = """\
HloModule jit_f

%add (x: f32[], y: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%x, %y), metadata={op_name="a"}
}

%inner (p: (s32[], f32[4,3])) -> (s32[], f32[4,3]) {
  %hop = f32[4,3]{1,0} collective-permute(%x), source_target_pairs={{0,1},{1,0}}
  %both = (f32[2]{0}, f32[]) all-reduce(%x, %y), to_apply=%add, metadata={op_name="a"}
}

%outer (p: (s32[], f32[4,3])) -> (s32[], f32[4,3]) {
  %w = (s32[], f32[4,3]) while(%p), body=%inner, backend_config={"known_trip_count":{"n":"3"}}
}

%other (p: f32[]) -> f32[] {
  %more = f32[8]{0} all-gather(%p), dimensions={0}
}

ENTRY %main (p: f32[4,3]) -> f32[] {
  %w = (s32[], f32[4,3]) while(%p), condition=%add, body=%outer
  %c = f32[] conditional(%p), branch_computations={%add, %other}
}
"""


@pytest.mark.parametrize("trips", [1, 5])
def test_collectives_count_as_often_as_the_loops_around_them_turn(trips):
    loop = [("collective-permute", 12), ("all-reduce", 3)]
    expected = 3 * trips * loop + [("all-gather", 8)]
    assert list(study.traffic(PROGRAM, trips)) == expected


@pytest.fixture
def found():
    """By the model: 0.5 s, and 8 s to be divided at n = 64; 4 calls, 100 bytes of each kind."""
    kinds = {"kind": list(study.COLLECTIVES)}
    call, byte, parts = np.array([1e-3, 2e-3, 3e-3]), 1e-5, []
    for count in (2, 4):
        network = xr.Dataset({"call": ("kind", call), "byte": ("kind", 3 * [byte])}, kinds)
        parts.append(({"way": "network", "n": 0, "processes": count}, network))
    for way in study.WAYS:
        for n, count in ((64, 1), (32, 1), (64, 2), (64, 4)):
            several = float(count > 1)
            busy = 0.5 + 8 * (n / 64) ** 2 / count + several * (4 * call.sum() + 300 * byte)
            values = {
                name: ("kind", 3 * [x * several]) for name, x in (("messages", 4), ("sent", 100))
            }
            values |= {"busy": busy, "wall": 2 * busy, "loopback": 400.0 * count * several}
            parts.append(({"way": way, "n": n, "processes": count}, xr.Dataset(values, kinds)))
    return lab.gather(parts)


def test_the_model_adds_calls_and_bytes_to_a_share_of_the_arithmetic(found):
    table = study.measured(found).value
    own = table.sel(of="busiest process, CPU s")
    np.testing.assert_allclose(table.sel(of="model, CPU s"), own)
    at = table.sel(way="order 2", n=64, processes=4)
    assert at.sel(of="gain").item() == pytest.approx(8.5 / (2.5 + 4 * 6e-3 + 3e-3))
    assert at.sel(of="MB sent by each").item() == pytest.approx(3e-4)
    assert at.sel(of="MB on the wire / P").item() == pytest.approx(4e-4)
    assert at.sel(of="messages") == 12
    assert np.isnan(table.sel(n=32, processes=2)).all()


def test_many_hosts_by_hand(found):
    """From 4 processes: gathered bytes grow with n and (P - 1) / P, passed ones with n alone."""
    table = study.extrapolated(found).value
    for way in study.WAYS:
        grows = study.FAR[way] / 64
        for hosts in (16, 64):
            at = table.sel(way=way, hosts=hosts)
            expected = 0.5 + 8 * grows**2 / hosts
            assert at.sel(of="arithmetic, s").item() == pytest.approx(expected)
            share = (hosts - 1) / hosts / 0.75
            sent = 100 * (grows * share + share + grows)
            assert at.sel(of="bytes at 10 Gbit/s, s").item() == pytest.approx(8 * sent / 1e10)
            assert at.sel(of="bytes at 100 Gbit/s, s").item() == pytest.approx(8 * sent / 1e11)
            steps = 4 * (hosts - 1) + 8 * (hosts - 1) + hosts
            assert at.sel(of="messages, s").item() == pytest.approx(5e-5 * steps)


def test_cells_keep_the_pairs_or_the_work_of_a_process():
    cells = [tuple(cell.values.values()) for cell in study.ManyProcesses(n=1024).cells()]
    spectral = [cell[1:] for cell in cells if cell[0] == "spectral"]
    assert spectral == [(1024, 1), (512, 1), (1024, 2), (724, 2), (1024, 4)]
    assert [cell for cell in cells if cell[0] == "network"] == [
        ("network", 0, 2),
        ("network", 0, 4),
    ]


def test_one_process_alone_is_compared_with_nothing():
    with pytest.raises(ValueError, match="--processes: expected a number above 1"):
        study.ManyProcesses(processes=(1,)).prepare(lambda: None, 0)
    assert study.ManyProcesses(processes=(2,)).prepare(lambda: None, 0).study.processes == (1, 2)


@pytest.mark.slow
def test_the_wire_carries_what_the_programs_say():
    """Two processes of order 2; others may use the loopback interface too."""
    setup = study.ManyProcesses(n=1024, processes=(1, 2), repeats=1).prepare(lambda: None, 0)
    context = lab.Context(jax.random.key(1), jax.random.key(0), {}, lambda words: None)
    found = setup.study.compute(setup.state, context, way="order 2", n=1024, processes=2)
    padded = 512 * (sum(study.DIMENSIONS) + 3)
    assert found.sent.sel(kind="collective-permute") == 4 * padded
    assert found.loopback >= 2 * found.sent.sum()
