"""Encoders that a test can name by an import path, and that count what they are given."""

import zlib

import numpy as np


class Means:
    """Of a picture its mean colours and size, of a text its length and its letters."""

    name = "means"

    def __init__(self):
        self.seen = []

    def encode(self, items):
        self.seen.append(list(items))
        return np.array([self._row(item) for item in items], np.float32)

    @staticmethod
    def _row(item):
        if isinstance(item, str):
            return [len(item), item.count("a"), sum(map(ord, item)), 1]
        return [*item.mean(axis=(0, 1)), item.shape[1]]

    @property
    def count(self):
        return sum(map(len, self.seen))


class Ideas:
    """Of a text its first word, one of 256 directions; the rest moves it by 0.02 at most."""

    name = "ideas"

    def encode(self, items):
        rest = [zlib.crc32(text.encode()) / 2**32 for text in items]
        first = np.eye(256)[[zlib.crc32(text.split()[0].encode()) % 256 for text in items]]
        return np.column_stack([first, 0.02 * np.array(rest)]).astype(np.float32)


class English(Means):
    name, language = "english", "English"


class Others(Means):
    name, made_with = "others", []

    def __init__(self, **options):
        super().__init__()
        self.made_with.append(options)


class Squares(Means):
    side = 8


class Nested:
    ready = Means()


def make():
    return Means()


def make_without_weights():
    raise ModuleNotFoundError("the weights are not installed; pip install weights")


ready = Means()
