"""Small repositories, and sets that a builder makes of them by encoders that need no weights."""

import io
import json
import subprocess
import types
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from experiments.builders import common
from experiments.data import PairedEmbeddings, sets
from experiments.data.repository import Repository


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    command = ["git", *who, "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def repository(folder, name, files):
    """A clone of one commit with these files, by path."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all")
    commit = git(folder, "rev-parse", "HEAD")
    return Repository.opened(name, commit, source=str(folder), cache=folder)


def picture(colour, side=256, kind="PNG"):
    """The file of a picture of one colour."""
    content = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(content, kind)
    return content.getvalue()


def json_lines(records):
    """The file of records, one a line."""
    return "\n".join(map(json.dumps, records)).encode()


class Texts:
    """A direction for each text."""

    dimension = 4

    def __init__(self, name="words"):
        self.name, self.given = name, []

    def encode(self, items):
        self.given += list(items)
        seeds = [[len(self.name), *item.encode()] for item in items]
        return np.array([np.random.default_rng(seed).random(4) for seed in seeds])

    def rows(self, texts):
        """The embeddings as a set has them."""
        return common.unit_rows(self.encode(texts))


class Corners:
    """A picture by the mean colour of its middle, and of its corner."""

    name, dimension, side = "corners", 6, 8

    def __init__(self):
        self.given = 0

    def encode(self, items):
        self.given += len(items)
        items = np.stack(items)
        middle = items[:, 2:6, 2:6].mean(axis=(1, 2))
        return np.concatenate([middle, items[:, 0, 0]], axis=1) / 255 + 0.01


class Made(NamedTuple):
    """A set that was made: its pairs, its entries, what was cut, and the encoders."""

    pairs: PairedEmbeddings
    stored: dict
    cut: dict
    pictures: Corners
    texts: Texts


def work(name, folder, *clones, **flags):
    """The making of a set in a folder."""
    given = types.SimpleNamespace(**flags)
    return common.Work(name, folder / f"{name}.npz", folder / "cache", clones, given)


def make(builder, folder, *clones, name=None, flag_values=(), **constants):
    """Makes a set twice of clones, and writes it with its cache in a folder.

    The second time nothing is embedded and the file is the same. It has the references of the
    clones and the licence of the set, and no text that was embedded. The name is needed where it is
    not the module's; the constants are of the module or of `common`, and other here.
    """
    name = name or builder.__name__.rpartition(".")[2]
    output = folder / f"{name}.npz"
    pictures, texts, others = Corners(), Texts(), Texts("others")
    loaders = {"load_efficientnet": pictures, "load_minilm": texts, "load_universal": others}
    with pytest.MonkeyPatch.context() as patch:
        for loader, encoder in loaders.items():
            patch.setattr(common, loader, lambda encoder=encoder, **knobs: encoder)
        patch.setattr(common.importlib.metadata, "version", lambda package: "0")
        for constant, value in constants.items():
            patch.setattr(builder if hasattr(builder, constant) else common, constant, value)
        found = []
        for _ in range(2):
            work(name, folder, *clones, **dict(flag_values)).make()
            found.append((output.read_bytes(), pictures.given, texts.given[:], others.given[:]))
    assert found[0] == found[1]
    with np.load(output, allow_pickle=False) as file:
        stored = dict(file)
    assert stored["provenance"].tolist()[: len(clones)] == [clone.reference for clone in clones]
    assert str(stored["licence"]) == sets.SETS[name].licence
    words = " ".join(str(array) for array in stored.values() if array.dtype.kind == "U")
    assert not any(text in words for text in texts.given if len(text) > 5)
    return Made(sets.read_set(output), stored, json.loads(str(stored["cut"])), pictures, texts)
