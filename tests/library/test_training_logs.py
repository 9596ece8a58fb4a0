"""What docs/training_loops.md logs arrives in W&B, TensorBoard and Trackio, offline."""

import importlib.util
import io
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import condvendi_jax as cv

PACKAGES = ("wandb", "trackio", "tensorboard", "torch", "torchmetrics")
PAGE = pathlib.Path(__file__).parents[2] / "docs/training_loops.md"

# In place of the page's model: all answers become equal, an alarm, and then no two are alike.
LOOKS = """
import numpy as np
import condvendi_jax as cv

prompts = np.repeat(np.arange(40), 12)
monitor = cv.monitor(np.random.default_rng(0).integers(8, size=480), prompts)
draws = iter([prompts, np.tile(np.arange(12), 40)])
sample = lambda _: next(draws)
"""
# Each package's own call is what the reward receives as `log_metric`.
SCALARS = """
import numpy as np
import torch
import trackio
import wandb
from torch.utils.tensorboard import SummaryWriter
from condvendi_jax.integrations import DiversityReward
from condvendi_jax.integrations.torch import ConditionalDiversity

class Length:
    def encode(self, texts):
        return np.array([[len(text)] for text in texts], np.float32)

reward = DiversityReward(bandwidth=0.1, num_generations=4, encoder=Length())
metric = ConditionalDiversity(output_kernel=None, prompt_kernel=None)
metric.update(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 0, 0]))
run, looks = wandb.init(project="diversity", mode="offline"), None
trackio.init(project="diversity")
writer = SummaryWriter("runs/diversity")
for log in (
    lambda name, value: run.log({name: value}),
    lambda name, value: trackio.log({name: value}),
    lambda name, value: writer.add_scalar(name, value, 0),
):
    reward(prompts=["p"] * 4, completions=["a", "b", "c", "long"], log_metric=log)
    for name, value in metric.compute().items():
        log(name, value.item())
writer.close()
run.finish()
trackio.finish()
"""
READ = """
import json
from pathlib import Path
import matplotlib.image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trackio.sqlite_storage import SQLiteStorage
from trackio.utils import MEDIA_DIR

board = EventAccumulator("runs/diversity").Reload()
scalars = {tag: [(e.step, e.value) for e in board.Scalars(tag)] for tag in board.Tags()["scalars"]}
pictures = [(e.step, e.width) for tag in board.Tags()["images"] for e in board.Images(tag)]
(name,) = SQLiteStorage.get_runs("diversity")
lines = SQLiteStorage.get_logs("diversity", name)
drawn = [(MEDIA_DIR / x["looks"]["file_path"]).read_text() for x in lines if "looks" in x]
files = sorted(Path("wandb").glob("offline-run-*/files/media/images/*.png"))
print(json.dumps({
    "looks": looks and [x._asdict() for x in looks.looks],
    "wandb": {k: v for k, v in summary.items() if isinstance(v, (int, float))},
    "pictures": [matplotlib.image.imread(file).shape for file in files],
    "tensorboard": scalars, "figures": pictures,
    "trackio": lines, "drawings": ["Alarm at step 500" in text for text in drawn],
}))
"""


def received(program, folder):
    """What the three packages keep of a program, in a process: they leave threads."""
    absent = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}")
    program = program.replace("run.finish()", "summary = dict(run.summary)\nrun.finish()")
    (folder / "program.py").write_text(program + READ)
    command, env = [sys.executable, "program.py"], {"TRACKIO_DIR": str(folder / "trackio")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=folder, env=os.environ | env, timeout=600, **pipes)
    assert done.returncode == 0, done.stdout
    for lost in ("skipped metric", "Reserved keys renamed", "wandb: WARNING"):
        assert lost not in done.stdout
    (last,) = re.findall("^{.*}$", done.stdout, re.MULTILINE)
    return json.loads(last)


@pytest.mark.slow
def test_looks_of_the_page_arrive_with_their_figures(tmp_path):
    """Also an infinite score, an alarm, and their steps."""
    (shown,) = re.findall(r"```python\n(import trackio\n.*?)```", PAGE.read_text(), re.DOTALL)
    read = received(LOOKS + shown, tmp_path)
    fallen, apart = read["looks"]
    assert fallen["alarm"] and fallen["score"] == 1 and apart["score"] == float("inf")
    assert {name: read["wandb"][name] for name in apart} == apart and read["wandb"]["_step"] == 1
    assert len(read["pictures"]) == 2 and all(shape[1] == 792 for shape in read["pictures"])
    for name in ("alarm", "evidence", "score"):
        expected = [[look["step"], pytest.approx(float(look[name]))] for look in (fallen, apart)]
        assert read["tensorboard"][name] == expected
    assert read["figures"] == [[500, 792], [600, 792]]
    lines = [{name: line[name] for name in apart} for line in read["trackio"]]
    assert lines == [fallen, apart] and read["drawings"] == [True, True]


@pytest.mark.slow
def test_the_reward_of_trl_and_the_metric_of_torch_arrive(tmp_path):
    read = received(SCALARS, tmp_path)
    # The lengths 1, 1, 1 and 4; of six pairs of labels, two are equal.
    for name, value in {"different_completions": 1.6, "conditional": 3.0}.items():
        assert read["wandb"][name] == pytest.approx(value)
        assert read["tensorboard"][name] == [[0, pytest.approx(value)]]
        values = [line[name] for line in read["trackio"] if name in line]
        assert values == [pytest.approx(value)]


@pytest.mark.slow
def test_figure_of_an_infinite_baseline_says_so_and_ends_at_the_scores():
    prompts = np.repeat(np.arange(40), 12)
    monitor = cv.monitor(np.tile(np.arange(12), 40), prompts)
    figure = monitor.look(np.random.default_rng(0).integers(8, size=480)).plot()
    figure.savefig(io.BytesIO())  # It can be drawn.
    (panel,) = figure.axes
    assert "baseline:\ninfinite" in [text.get_text() for text in panel.texts]
    assert panel.get_ylim()[1] < 100
