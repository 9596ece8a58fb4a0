"""Flags as the fields of a dataclass: how they are written, their rules, their help."""

import dataclasses
import math

import pytest

from condvendi_jax.cli import flags
from condvendi_jax.cli.flags import flag


def _even(value):
    if value % 2:
        raise ValueError(f"number: expected an even one, received {value}.")


@dataclasses.dataclass(frozen=True)
class Group:
    """A group of flags."""

    kernel: str = flag("gaussian", "The kernel.", choices=("gaussian", "cosine"))
    width: float | None = flag(None, "Its width.", above=0, needs={"kernel": "gaussian"})
    share: float = 0.0  # No flag, although there is one of this name beside the group.


@dataclasses.dataclass(frozen=True)
class Base:
    """What is inherited."""

    loud: bool = flag(False, "Says 100% more.")
    group: Group = Group()
    resolved: str = "no flag"


@dataclasses.dataclass(frozen=True)
class Flags(Base):
    """Does something.

    usage: program [--flag=value ...]
    """

    sizes: tuple[int, ...] | None = flag(None, "Sizes.", at_least=2)
    orders: tuple[float, ...] = flag((2.0, math.inf), "Orders.", above=0)
    names: tuple[str, ...] = flag((), "Names.", choices=("a", "b"))
    share: float = flag(0.5, "A share.", above=0, below=1)
    count: int = flag(2, "A count.", check=_even)
    picture: str | None = flag(None, "A file.", endings=(".png", ".pdf"), excludes=("loud",))
    quiet: bool = flag(True, "Says less.", excludes=("picture", "count"))


def parse(*argv: str) -> tuple[list[str], Flags]:
    return flags.parse(Flags, argv)


def test_without_flags_there_are_the_defaults():
    assert parse() == ([], Flags())


@pytest.mark.parametrize(
    ("argv", "given"),
    [
        ("--share=0.25", {"share": 0.25}),
        ("--share 0.25", {"share": 0.25}),
        ("-share=0.25 -loud", {"share": 0.25, "loud": True}),
        ("--sizes=3,2", {"sizes": (3, 2)}),
        ("--sizes=3", {"sizes": (3,)}),
        ("--orders=1,,3,", {"orders": (1.0, 3.0)}),
        ("--names=b,a", {"names": ("b", "a")}),
        ("--picture=a.PNG", {"picture": "a.PNG"}),
        ("--loud", {"loud": True}),
        ("--loud=T --noquiet", {"loud": True, "quiet": False}),
        ("--loud=0 --quiet=false", {"quiet": False}),
        ("--count=-2", {"count": -2}),
        ("--count -2", {"count": -2}),
        ("--width=2", {"group": Group(width=2.0)}),
        ("--kernel=cosine", {"group": Group(kernel="cosine")}),
    ],
)
def test_a_flag_has_its_type_however_it_is_written(argv, given):
    words, made = parse("one", *argv.split(), "two")
    assert words == ["one", "two"]
    assert repr(made) == repr(Flags(**given))  # 1 and 1.0 are equal.


def test_spaces_beside_commas_are_no_part_of_a_value():
    assert parse("--names=a, b")[1].names == ("a", "b")
    assert parse("--sizes= 3 , 4")[1].sizes == (3, 4)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("--share=x", "--share: expected a number, received 'x'; --help lists all flags."),
        (
            "--count=1.5",
            "--count: expected a whole number, received '1.5'; --help lists all flags.",
        ),
        ("--loud=perhaps", "--loud: expected true or false, received 'perhaps'; --help lists"),
        ("--sizes=4,x", "--sizes: expected a whole number, received '4,x'; --help lists all"),
        ("--picture=", "--picture: received nothing; leave it out, or give a value; --help lists"),
        ("--sizes=,", "--sizes: received nothing; leave it out, or give a value; --help lists all"),
        ("--share", "--share: expected one argument; --help lists all flags."),
        ("--size=3", "unknown flag --size; did you mean --sizes? --help lists all flags."),
        ("--noquie", "unknown flag --noquie; did you mean --noquiet? --help lists all flags."),
        ("--kernels cosine", "unknown flag --kernels; did you mean --kernel? --help lists all"),
        ("--zzzzzz=1", "unknown flag --zzzzzz; --help lists all flags."),
        ("--resolved=1", "unknown flag --resolved; --help lists all flags."),
        ("--nosizes", "unknown flag --nosizes; did you mean --sizes? --help lists all flags."),
        ("-x", "unknown flag --x; --help lists all flags."),
        # The rules.
        ("--names=a,c", "--names: expected one of a, b, received 'c'."),
        ("--kernel=linear", "--kernel: expected one of gaussian, cosine, received 'linear'."),
        ("--picture=a.svg", "--picture: expected a file ending in .png, .pdf, received 'a.svg'."),
        ("--sizes=1,2", "--sizes: expected a number at least 2, received 1."),
        ("--share=0", "--share: expected a number above 0 and below 1, received 0.0."),
        ("--share=1", "--share: expected a number above 0 and below 1, received 1.0."),
        ("--share=nan", "--share: expected a number above 0 and below 1, received nan."),
        ("--width=inf", "--width: expected a number above 0, received inf."),
        ("--width=-1", "--width: expected a number above 0, received -1.0."),
        ("--sizes=3,4,3", "--sizes: 3 is given twice; give it once."),
        ("--names=b,b", "--names: b is given twice; give it once."),
        ("--count=3", "--count: expected an even one, received 3."),
        ("--loud --picture=a.png", "--picture and --loud: give one or the other."),
        ("--noquiet --picture=a.png", "--quiet and --picture: give one or the other."),
        ("--noquiet --count=4", "--quiet and --count: give one or the other."),
        (
            "--width=1 --kernel=cosine",
            "--width means nothing with --kernel=cosine; it is for --kernel=gaussian.",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(argv, message):
    with pytest.raises(ValueError) as caught:
        parse(*argv.split())
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_values_at_their_bounds_are_taken():
    given = parse("--sizes=2", "--share=0.999", "--width=1e-9", "--count=4")[1]
    assert (given.sizes, given.share, given.group.width) == ((2,), 0.999, 1e-9)


def test_the_last_value_counts():
    argv = ("--share=0.1", "--share=0.2", "--loud", "--noloud", "--sizes=3", "--sizes=4")
    assert parse(*argv)[1] == Flags(share=0.2, sizes=(4,))


@pytest.mark.parametrize("word", ["-h", "-help", "--help", "--helpfull", "--helpshort"])
def test_the_help_has_every_flag_with_its_default_and_rules(word, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        parse("--share=x", word)
    assert ended.value.code is None
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["Does something.", "", "usage: program [--flag=value ...]"]
    expected = {
        "sizes": "Sizes. (several are separated by commas)",
        "orders": "Orders. (several are separated by commas; default 2,inf)",
        "names": "Names. (several are separated by commas; of a, b)",
        "share": "A share. (default 0.5)",
        "count": "A count. (default 2)",
        "picture": "A file.",
        "quiet": "Says less. (default true)",
        "kernel": "The kernel. (default gaussian; of gaussian, cosine)",
        "width": "Its width. (only with --kernel=gaussian)",
        "loud": "Says 100% more. (default false)",
    }
    shown = [line.split(maxsplit=2) for line in lines if line.startswith("  --")]
    assert {name: text for name, _, text in shown} == {f"--{k}": v for k, v in expected.items()}
    # Those that are inherited come last.
    assert [name for name, _, _ in shown][:2] + [shown[-1][0]] == ["--kernel", "--width", "--loud"]
