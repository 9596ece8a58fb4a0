"""Trained parameters on disk: whose they are, what is refused, when something is trained."""

import functools
import re

import chex
import jax
import numpy as np
import pytest
import safetensors.numpy
from flax import nnx

from experiments.generators import fitting, latent_diffusion, mixture_gan, picture_encoder
from experiments.generators.fitting import Places
from experiments.generators.mixture_gan import Training as Gan
from experiments.lab import records

pytestmark = pytest.mark.slow

TREE = {
    "layers": {0: {"kernel": np.arange(6.0).reshape(2, 3)}, 1: {"bias": np.float32(2.5)}},
    "trace": np.arange(4, dtype=np.float16),
}
IDENTITY = records.identify("model", 1, {"width": 3}, {"data": np.arange(3)}, seed=0)


def equal(tree, other):
    chex.assert_trees_all_equal(tree, other, strict=True)
    return True


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    fitting.save(path, TREE, IDENTITY)
    return path


def test_a_saved_tree_is_read_back_bit_by_bit_in_any_memory_order(path):
    with safetensors.safe_open(path, framework="numpy") as archive:
        assert set(archive.keys()) == {"layers/0/kernel", "layers/1/bias", "trace"}
    assert equal(fitting.load(path, IDENTITY), TREE)
    transposed = {"a": np.arange(6.0).reshape(2, 3).T}
    fitting.save(path, transposed, IDENTITY)
    assert equal(fitting.load(path, IDENTITY), transposed)


def test_an_nnx_model_survives_in_half_precision_and_is_refused_another_ones_parameters(path):
    make = functools.partial(nnx.Linear, 3)
    model = make(2, rngs=nnx.Rngs(1))
    half = jax.tree.map(lambda x: np.asarray(x, np.float16), nnx.to_pure_dict(nnx.state(model)))
    fitting.save(path, half, IDENTITY)
    restored = fitting.restore(make, 2, fitting.load(path, IDENTITY))
    assert restored.kernel[...].dtype == np.float32
    np.testing.assert_allclose(restored.kernel[...], model.kernel[...], rtol=1e-3)
    others = {"kernel": half | {"kernel": np.zeros((2, 2))}, "scale": half | {"scale": np.zeros(2)}}
    for name, tree in (others | {"bias": {"kernel": half["kernel"]}}).items():
        with pytest.raises(ValueError, match=f"another model: {name}."):
            fitting.restore(make, 2, tree)


def refused(path, words="damaged"):
    """Whether the file is refused, in one line with its path."""
    with pytest.raises(ValueError, match=words) as caught:
        fitting.load(path, IDENTITY)
    return str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_every_bit_of_a_file_counts(path):
    content = path.read_bytes()
    for place in range(0, len(content), 5):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        assert refused(path, "safetensors")
    for keep in (0, 7, 40, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:keep])
        assert refused(path)


def test_files_of_others_are_refused(path):
    fitting.save(path, TREE, records.identify("model", 1, {"width": 4}, {}, seed=0))
    assert refused(path, "of another training .width: 4 there, 3 asked for")
    safetensors.numpy.save_file({"a": np.zeros(2)}, path)
    assert refused(path, "not a file of this project")
    path.unlink()
    path.mkdir()
    assert refused(path)


class Training:
    """Counts how often it is run."""

    def __init__(self, folder):
        self.times, self.folder = 0, folder

    def train(self):
        self.times += 1
        return {"run": np.array(self.times)}

    def __call__(self, name="model", version=1, seed=0, data=0.0, **settings):
        identity = records.identify(name, version, settings, {"data": np.array([data])}, seed)
        places = Places(cache=self.folder / "cache", shipped=self.folder / "shipped")
        return places.trained(identity, self.train)["run"]


@pytest.fixture
def get(tmp_path):
    return Training(tmp_path)


def test_each_identity_is_trained_once(get, capsys):
    assert get() == get() == 1
    assert re.match(r"model-\w{16}.safetensors: neither in", capsys.readouterr().err)
    runs = get(width=3), get(seed=4), get(version=2), get(name="other"), get(data=1.0), get()
    assert runs == (2, 3, 4, 5, 6, 1)
    assert not (get.folder / "shipped").exists()


@pytest.mark.parametrize("place", ["shipped", "cache"])
@pytest.mark.parametrize("word", ["damaged", "of another training"])
def test_what_is_shipped_comes_first_but_no_damaged_or_foreign_file(get, place, word, capsys):
    get()
    if place == "shipped":
        (get.folder / "cache").rename(get.folder / "shipped")
        assert get() == 1 and not (get.folder / "cache").exists()
    (file,) = (get.folder / place).iterdir()
    fitting.save(file, TREE, IDENTITY)
    if word == "damaged":
        file.write_bytes(file.read_bytes()[:50])
    content = file.read_bytes()
    capsys.readouterr()
    assert get() == get() == 2
    assert any(str(file) in line and word in line for line in capsys.readouterr().err.splitlines())
    assert (file.read_bytes() == content) == (place == "shipped")


def test_a_cache_that_cannot_be_written_is_found_out_before_training(get):
    (get.folder / "cache").write_text("a file")
    with pytest.raises(OSError, match="cache"):
        get()
    assert get.times == 0


def test_every_shipped_file_is_of_a_training_as_it_is_now():
    """A number of a training that changes, or leaves its identity, changes the file's name."""
    kinds = mixture_gan.KINDS.items()
    gans = [Gan(m, kind, of.steps) for m in mixture_gan.MIXTURES for kind, of in kinds]
    identities = [
        *map(latent_diffusion.coder_identity, latent_diffusion.TRAININGS.values()),
        *map(latent_diffusion.identity, latent_diffusion.TRAININGS.values()),
        *map(picture_encoder.identity, picture_encoder.TRAININGS.values()),
        *map(mixture_gan.identity, gans),
    ]
    names = {path.name for path in fitting.SHIPPED.iterdir()}
    assert names == {fitting.file_name(identity) for identity in identities}
