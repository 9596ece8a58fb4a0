"""GANs that are made to collapse while a monitor looks at them."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import lax
from matplotlib.figure import Figure

import condvendi_jax as cv
from experiments import lab
from experiments.generators import mixture_gan
from experiments.lab import figures, style, tables

CONSTANT, DOUBLING = "constant", "doubling"
_RATES = {CONSTANT: "rate constant", DOUBLING: "rate doubles"}
_NUMBERS = ("step", "score", "low", "high", "evidence")
_LAW = mixture_gan.MIXTURES["ring"]
_SHOWN = 400  # Points of a picture.


class Collapse(lab.Study):
    """Does a monitor see that a GAN collapses, and is it silent where none does?"""

    name = "collapse"
    control = "The same trainings go on at a constant rate."
    grows = ("look",)
    data = None
    drawings = ("collapse",)
    version = 2

    repeats: int = lab.flag(5, "Trainings, each continued at both rates.", at_least=1)
    start: int = lab.flag(3000, "Updates of the generator before the baseline.", at_least=1)
    steps: int = lab.flag(3000, "Updates after it.", at_least=1)
    every: int = lab.flag(100, "Updates between looks.", at_least=1)
    doubling: int = lab.flag(
        500, "Updates in which the generator's rate doubles, after the baseline.", at_least=1
    )
    batches: int = lab.flag(50, "Batches of independent samples, in place of prompts.", at_least=2)
    baseline: int = lab.flag(20, "Samples of each batch in the baseline.", at_least=4)
    samples: int = lab.flag(10, "Samples of each batch in a look.", at_least=3)
    tolerated: float = lab.flag(0.9, "Share of the baseline without an alarm.", above=0)
    bandwidth: float = lab.resolved(0.0)

    def prepare(self, load, seed):
        if self.steps % self.every:
            raise ValueError(f"--every={self.every}: expected a divisor of --steps={self.steps}.")
        if self.tolerated > 1:
            raise ValueError(f"--tolerated: expected a share up to 1, received {self.tolerated}.")
        return self.ready(
            state={rate: _advance(self._trainer(rate)) for rate in _RATES},
            arrays={"ring": np.append(np.ravel(_LAW.centres), _LAW.scale)},
            description=_LAW.description,
            bandwidth=_LAW.counting_bandwidth(),
        )

    def _trainer(self, rate: str) -> mixture_gan.Trainer:
        """A trainer whose generator learns at a rate that is constant, or doubles again and again.

        The critic's rate is constant.
        """
        kind = mixture_gan.KINDS["vanilla"]
        # Rates fall in the second half of a training, which this one does not reach.
        training = mixture_gan.Training("ring", "vanilla", 2 * (self.start + self.steps))
        trainer = mixture_gan.Trainer(kind, _LAW, training)
        if rate == DOUBLING:
            trainer.of_generator = kind.optimizer(
                lambda step: kind.rate * 2.0 ** (jnp.maximum(step - self.start, 0) / self.doubling)
            )
        return trainer

    def axes(self):
        return {"rate": tuple(_RATES), "repeat": range(self.repeats)}

    def compute(self, state, context, *, rate, repeat):
        """The looks at one training, and points of the baseline, of the alarm and of the end."""
        law, key = _LAW, context.shared_key
        # The same training up to the baseline at both rates.
        start_key, step_key, draw_key = jax.random.split(jax.random.fold_in(key, repeat), 3)
        networks = self._trainer(rate).start(start_key)
        networks = state[rate](networks, step_key, jnp.arange(self.start))

        def draw(of, step, count):
            points = mixture_gan.sample(
                {"layers": of.generator}, jax.random.fold_in(draw_key, step), self.batches * count
            )
            return np.asarray(points).reshape(self.batches, count, 2)

        kernel, drawn, seen = cv.Gaussian(self.bandwidth), [draw(networks, 0, self.baseline)], []
        prompts = np.arange(self.batches)
        monitor = cv.monitor(
            drawn[0],
            prompts,
            batches=np.arange(self.batches * self.baseline),  # Samples are independent.
            output_kernel=kernel,
            tolerated=self.tolerated,
        )

        def sample(of, step):
            drawn.append(draw(of, step, self.samples))
            return drawn[-1]

        for step in range(self.every, self.steps + 1, self.every):
            updates = jnp.arange(self.start + step - self.every, self.start + step)
            networks = state[rate](networks, step_key, updates)
            with warnings.catch_warnings():  # After a collapse all samples are equal.
                warnings.filterwarnings("ignore", ".*numerically constant", UserWarning)
                labels = np.arange(self.batches * self.samples)
                seen.append(
                    monitor.look(sample(networks, step), prompts, batches=labels, step=step)
                )
            context.say(f"step {step}: {seen[-1].looks[-1].score:.2f}")
        last, alarm = seen[-1], seen[-1].alarm
        captured = [int(law.captured(law.good_shares(of.reshape(-1, 2)))) for of in drawn]
        shown = [drawn[i] for i in (0, len(drawn) // 2 if alarm is None else alarm.look, -1)]
        count = min(_SHOWN, self.batches * min(self.baseline, self.samples))
        points = np.stack([of.reshape(-1, 2)[:count] for of in shown]).astype(np.float32)
        values = {name: ("look", [getattr(of, name) for of in last.looks]) for name in _NUMBERS}
        return xr.Dataset(
            {
                **values,
                "captured": ("look", captured[1:]),
                "baseline": ("end", list(last.baseline)),
                "bound": last.bound,
                "limit": last.limit,
                "alarm": np.nan if alarm is None else alarm.step,
                "captured_before": captured[0],
                "shown": (("time", "point", "coordinate"), points),
            },
            {"look": [of.look for of in last.looks], "end": ["score", "low", "high"]},
        )

    def tables(self, run):
        """The baseline, the look of the alarm and what was captured then, and the end."""
        found = summary(run.found).to_dataset(name="value")
        yield tables.table(found, rows=("rate", "repeat"), columns="what", digits=3)

    @classmethod
    def figures(cls, runs):
        return {run.folder.name: _figure(run) for run in runs}

    @classmethod
    def facts(cls, runs):
        return {"of": summary(runs[0].found)}


def summary(found: xr.Dataset) -> xr.DataArray:
    """By rate, repeat and `what`: where each training began, raised an alarm, and ended."""
    then = found.isel(look=(found.step == found.alarm).argmax("look")).where(found.alarm.notnull())
    whole = {
        "baseline": found.baseline.sel(end="score", drop=True),
        "alarm": found.alarm,
        "then": then.score.drop_vars("look"),
        "modes": then.captured.drop_vars("look"),
        "end": found.score.isel(look=-1, drop=True),
    }
    return xr.Dataset(whole).to_array("what")


def _advance(trainer: mixture_gan.Trainer):
    """A function of networks, a key and the numbers of updates that gives the networks after."""

    @jax.jit
    def advance(networks, key, updates):
        def step(of, update):
            return trainer.step(of, jax.random.fold_in(key, update))[0], None

        return lax.scan(step, networks, updates)[0]

    return advance


def _figure(run: lab.Run) -> Figure:
    """Scores and evidence of all trainings, and pictures of the first that collapses."""
    found, study = run.found, run.study
    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    parts = figure.subplot_mosaic("s0;e1", width_ratios=(2.6, 1))
    for (rate, name), colour in zip(_RATES.items(), (style.BLUE, style.VERMILION), strict=True):
        for repeat in range(study.repeats):
            of = found.sel(rate=rate, repeat=repeat)
            look = {"color": colour, "linewidth": 1, "label": None if repeat else name}
            for part, values in (("s", of.score), ("e", of.evidence)):
                parts[part].plot(of.step, values, **look)
                there = of.step.values == of.alarm.item()
                parts[part].plot(of.step[there], values[there], "o", color=colour)
    first = found.sel(rate=DOUBLING, repeat=0)
    parts["s"].set(ylabel="RKE", ylim=(0, 10.5), xticklabels=[])
    style.known(parts["s"], len(_LAW.centres), f"{len(_LAW.centres)} modes")
    parts["s"].legend(loc="lower left")
    parts["e"].set(yscale="log", ylabel="evidence of a fall", ylim=(1e-2, 1e8))
    style.known(parts["e"], first.limit.item(), "alarm", side="left")
    parts["e"].set_xlabel("updates after the baseline")
    alarm = "no alarm" if np.isnan(first.alarm) else f"alarm, {first.alarm.item():,.0f}"
    reach = 1.1 * np.abs(first.shown.values).max()
    for panel, title, points in zip("01", ("baseline", alarm), first.shown.values, strict=False):
        parts[panel].plot(*points.T, ".", color=style.VERMILION, markersize=2)
        parts[panel].set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        parts[panel].set(xticks=[], yticks=[], title=title)
    raised = found.alarm.notnull().sum("repeat")
    doubled, kept = (
        f"{raised.sel(rate=rate).item()} of {study.repeats}" for rate in (DOUBLING, CONSTANT)
    )
    finding = f"The monitor alarms in {doubled} trainings whose rate doubles"
    style.headline(figure, f"{finding}, {kept} others")
    n = f"looks of {study.batches} batches of {study.samples}, a baseline of {study.baseline}"
    n += f"; bandwidth {study.bandwidth:.3g}. Dots: alarms. Pictures: the first that doubles"
    return figures.caption(figure, run, n=n)
