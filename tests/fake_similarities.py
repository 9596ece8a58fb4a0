"""Similarities that a test can name by an import path, and that count the pairs they are given."""

import functools

SEEN = []


def words(one, other):
    """The Jaccard index of the words of two texts."""
    SEEN.append((one, other))
    one, other = set(one.split()), set(other.split())
    return len(one & other) / len(one | other)


def of_files(one, other):
    return words(one.read_text(), other.read_text())


def failing(one, other):
    if "broken" in (one, other):
        raise RuntimeError("no such word")
    return words(one, other)


def distance(one, other):
    return 1 - words(one, other)


def one_sided(one, other):
    """The share of the words of one text that another has."""
    SEEN.append((one, other))
    return len({*one.split()} & {*other.split()}) / len({*one.split()})


class InBatches:
    name = "in batches"
    batch_size = 4

    def __call__(self, ones, others):
        assert len(ones) <= self.batch_size
        return [failing(*of) for of in zip(ones, others, strict=True)]


def equal(one, other):
    return float(one == other)


def powered(power):
    """A closure with the name of the function that it wraps."""

    @functools.wraps(words)
    def to_the(one, other):
        return words(one, other) ** power

    return to_the


class Powered:
    def __init__(self, power):
        self.power = power

    def __call__(self, one, other):
        return words(one, other) ** self.power


class Slots:
    __slots__ = ("power",)


class PoweredSlots(Slots):
    """Its `__dict__` is empty: what it depends on is in a slot of the class that it inherits."""

    __init__, __call__ = Powered.__init__, Powered.__call__


def powered_object(power):
    """An object without attributes, of a class that was made for its power."""

    class Made:
        def __call__(self, one, other):
            return words(one, other) ** power

    return Made()
