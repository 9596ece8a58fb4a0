"""Repositories that a builder can read, made of a few files."""

import subprocess

import numpy as np

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


class WordCounts:
    """A text by its length and its first letters: what another cut would change."""

    name, dimension = "word-counts", 4

    def __init__(self):
        self.given = []

    def encode(self, items):
        self.given += list(items)
        return np.array([[len(t.split()), ord(t[0]) / 50, t.count("e"), 1] for t in items], float)


class Corners:
    """A picture by the mean colour of its middle, and of its corner."""

    name, dimension, side = "corners", 6, 8

    def __init__(self):
        self.given = 0

    def encode(self, items):
        self.given += len(items)
        middle = items[:, 2:6, 2:6].mean(axis=(1, 2))
        return np.concatenate([middle, items[:, 0, 0]], axis=1) / 255 + 0.01
