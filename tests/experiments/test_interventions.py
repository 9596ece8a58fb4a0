"""The study of cures at equal quality, on answers whose places and qualities are known."""

import numpy as np
import pytest
import studies
from small import flags, write

from experiments.language_models.interventions import Interventions

# By source and cure: the places of four answers to each prompt, and their qualities.
ARMS = {
    "one": {
        "base": ([0, 0, 0, 1], [8, 8, 8, 8]),
        "junk": ([0, 0, 1, 2], [8, 8, 2, 2]),
        "bad": ([0, 0, 1, 1], [1, 1, 1, 1]),
    },
    "two": {"poor base": ([0, 1, 1, 1], [8, 8, 4, 4]), "better": ([0, 0, 1, 1], [20 / 3] * 4)},
}


def small(folder, seed):
    """Six prompts a source; answers in different places lie 5 apart. Rows are in no order."""
    generator = np.random.default_rng(seed)
    rows = [
        (source, cure, 6 * number + prompt, place, quality)
        for number, (source, of) in enumerate(ARMS.items())
        for prompt in range(6)
        for cure, arm in of.items()
        for place, quality in zip(*arm, strict=True)
    ]
    source, cure, prompt, place, quality = map(np.array, zip(*rows, strict=True))
    places = 3.5 * np.linalg.qr(generator.normal(size=(36, 36)))[0].reshape(12, 3, 36)
    files = write(
        folder,
        outputs=places[prompt, place],
        prompts=generator.normal(size=(12, 4))[prompt],
        source=source,
        models=cure,
        prompt=prompt,
        quality=quality.astype(float),
    )
    return [*files, *flags(bandwidth=1, scales="1", bars="0")]


finished = studies.finished(Interventions)


@pytest.mark.parametrize(
    ("source", "cure", "number", "times", "better", "good"),
    [
        ("one", "base", 2, 1, 0, {0: 2, 6: 2}),
        # More different answers, of which one passes the bar.
        ("one", "junk", 6, 3, -3, {0: 3, 6: 1}),
        ("one", "bad", 3, 1.5, -7, {0: 2, 6: 0}),
        ("two", "better", 3, 1.5, 2 / 3, {0: 2, 6: 2}),
    ],
)
def test_answers_below_the_bar_do_not_count(finished, source, cure, number, times, better, good):
    found = finished.found.sel(source=source, model=cure, scale=1, text="whole").isel(end=0)
    first = {name: found[name].item() for name in ("number", "times", "better")}
    assert first == pytest.approx(dict(number=number, times=times, better=better), rel=1e-4)
    base = {"one": 2, "two": {0: 2, 6: 2}}[source]
    for bar, expected in good.items():
        assert found.good.sel(bar=bar).item() == pytest.approx(expected, abs=1e-4)
        ratio = expected / (base if source == "one" else base[bar])
        assert found.good_times.sel(bar=bar).item() == pytest.approx(ratio, abs=1e-4)
    assert found.quality.item() == pytest.approx(np.mean(ARMS[source][cure][1]))
