"""The options of the command as typed data: the fields of a dataclass are the flags of a verb."""

import dataclasses
import functools
import itertools
import pathlib
import re
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NewType, Self

import numpy as np

from condvendi_jax import report as reports
from condvendi_jax.base import checks, files
from condvendi_jax.cli import command, flags
from condvendi_jax.cli.flags import flag
from condvendi_jax.data import bandwidth
from condvendi_jax.data.kernels import Cosine, Gaussian, Indicator, Kernel, check_bandwidth
from condvendi_jax.data.rows import NAMES
from condvendi_jax.inference.comparisons import Comparison
from condvendi_jax.inference.evaluations import Keys
from condvendi_jax.inference.planning import StudyPlan
from condvendi_jax.inference.profiles import Profile
from condvendi_jax.results.evaluation import warning_lines
from condvendi_jax.spectra import computation
from condvendi_jax.spectra.methods import Method

_VIEWS = ("image_encoder", "text_encoder", "similarity")
_OF_ONE = ("profile", "record", "latex", "latex_details", "csv_pairs")
_SLUG = re.compile(r"[^\w.@+-]+")  # What names of models have, and those of files may not.
WORDS = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
Source = NewType("Source", str)
"""The name of a file to read, or of several that are separated by commas."""
Target = NewType("Target", str)
"""The name of a file to write."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The flags that all verbs have."""

    several = False  # Whether the verb takes several models.
    under_all = False  # Whether it takes several encoders and similarities.
    prompts: Source | None = flag(None, WORDS["prompts"])
    outputs_key: str | None = flag(None, "The array to read from a file of outputs.")
    prompts_key: str | None = flag(None, "The array to read from a file of prompts.")
    image_encoder: str | None = flag(None, WORDS["image_encoder"])
    text_encoder: str | None = flag(None, WORDS["text_encoder"])
    encoder_device: str | None = flag(None, "Device of encoders by name; the best if unset.")
    encoder_batch_size: int = flag(32, "Items of a forward pass of encoders by name.")
    similarity: str | None = flag(None, WORDS["similarity"], excludes=("class_field",))
    class_field: str | None = flag(None, WORDS["class_field"], excludes=("text_encoder", "cache"))
    long_texts: str | None = flag(
        None, WORDS["long_texts"], choices=("cut", "chunks"), excludes=("text_encoder",)
    )
    prompt_column: str | None = flag(None, "The column of the prompts' file with the prompts.")
    image_column: str | None = flag(None, WORDS["image_column"])
    text_column: str | None = flag(None, "The column of the texts' file that holds the texts.")
    cache: Source | None = flag(None, WORDS["cache"])
    prompt_field: str | None = flag(None, WORDS["prompt_field"])
    answer_field: str | None = flag(None, "The field of the answer or answers, or 'tool_calls'.")
    model_field: str | None = flag(None, WORDS["model_field"])
    quality_field: str | None = flag(None, WORDS["quality_field"])
    at_least: float | None = flag(None, "The quality from which an answer is good.")
    draws: int | None = flag(None, WORDS["draws"])
    batch_field: str | None = flag(None, WORDS["batch_field"])
    clean: bool = flag(True, WORDS["clean"])
    kernel: str = flag("gaussian", WORDS["kernel"], choices=("gaussian", "cosine"))
    output_bandwidth: float | None = flag(None, WORDS["output_bandwidth"], check=check_bandwidth)
    prompt_bandwidth: float | None = flag(
        None, WORDS["prompt_bandwidth"], check=check_bandwidth, excludes=("equal_prompts",)
    )
    equal_prompts: bool = flag(False, WORDS["equal_prompts"], excludes=("similar_prompts",))
    similar_prompts: bool = flag(False, WORDS["similar_prompts"])
    rule: str | None = flag(None, WORDS["rule"], choices=(*bandwidth.RULES, bandwidth.AUTO))
    order: tuple[float, ...] = flag((2.0, 1.0), WORDS["order"], check=checks.check_order)
    truncation: int | None = flag(None, WORDS["truncation"], check=checks.check_truncation)
    method: str | None = flag(None, WORDS["method"], choices=tuple(computation.BY_NAME))
    groups_file: Source | None = flag(None, WORDS["groups_file"])
    weights: Source | None = flag(None, WORDS["weights"])
    seed: int = flag(0, WORDS["seed"], check=checks.check_seed)
    profile: Target | None = flag(None, WORDS["profile"], endings=(".png", ".pdf", ".svg"))
    json: Target | None = flag(None, "Also write the results, with provenance, to this file.")
    latex: Target | None = flag(None, WORDS["latex"])
    latex_details: Target | None = flag(None, WORDS["latex_details"])
    record: Target | None = flag(None, WORDS["record"], endings=(".json",))
    x64: bool = flag(False, "Compute in float64.")
    overwrite: bool = flag(False, "Replace output files that exist, never an input.")
    verbose: bool = flag(False, WORDS["verbose"])

    def __post_init__(self) -> None:
        compared = self.similarity or self.text_encoder or self.class_field
        if self.answer_field == "tool_calls" and not compared:
            object.__setattr__(self, "similarity", "calls")

    def is_set(self, *names: str) -> bool:
        """Whether one of these flags has another value than its default."""
        defaults = type(self).__dataclass_fields__
        return any(getattr(self, name) != defaults[name].default for name in names)

    def paths(self, kind: Any) -> dict[str, str]:
        """The values of the flags that are a `Source` or a `Target`, by `--name`."""
        names = [field.name for field, hint, _ in flags.fields(type(self)) if hint is kind]
        return {f"--{name}": getattr(self, name) for name in names if self.is_set(name)}

    def views(self) -> dict[str, Self]:
        """The options under each encoder and similarity, which commas separate, by their names."""
        parts = (map(str.strip, paths_in(getattr(self, name) or "")) for name in _VIEWS)
        image, text, compare = ([*filter(None, part)] for part in parts)
        encoders = itertools.product(image or [None], text or [None], [None])
        views: list[Any] = [*encoders] if image or text or not compare else []
        views += [(None, None, one) for one in compare]
        alone = not self.under_all or any(getattr(self, name, None) for name in _OF_ONE)
        if alone and len(views) > 1:
            expected = f"expected one encoder or similarity, received {len(views)}"
            raise ValueError(f"{expected}; compare takes several, without {', '.join(_OF_ONE)}.")
        named = {", ".join(filter(None, v)): dict(zip(_VIEWS, v, strict=True)) for v in views}
        return {name: dataclasses.replace(self, **view) for name, view in named.items()}

    def record_files(self, models: Iterable[str]) -> dict[str, str]:
        """The file of --record of each of several models; {} without it."""
        start = (self.record or "").removesuffix(".json")
        return {name: f"{start}-{_SLUG.sub('_', name)}.json" for name in models if self.record}

    def prompts_of(self, models: Sequence[str]) -> dict[str, str]:
        """The file of prompts of each model; none where all share one, or none."""
        paths = [] if self.prompts is None else paths_in(self.prompts)
        if len(paths) < 2:
            return {}
        if len(paths) != len(models) or "" in paths:
            expected = f"expected one file, or one for each of {len(models)} models"
            raise ValueError(f"--prompts: {expected}, received {self.prompts!r}.")
        return dict(zip(models, paths, strict=True))

    def chosen_method(self) -> Method:
        """How eigenvalues are computed, with a key of the seed."""
        return computation.named(self.method or computation.Auto.name, key=Keys(self.seed).probes)

    def kernels(self, *, paired: bool) -> dict[str, Kernel | None]:
        """The kernels of outputs and prompts, None where a rule is to choose the bandwidth."""
        roles = NAMES if paired and not self.equal_prompts else NAMES[:1]
        widths: Any = {"outputs": self.output_bandwidth, "prompts": self.prompt_bandwidth}
        fixed = Cosine() if self.kernel == "cosine" else None
        chosen: Any = {role: fixed or (widths[role] and Gaussian(widths[role])) for role in roles}
        return chosen | {"prompts": Indicator()} if self.equal_prompts else chosen

    def of_rows(self, flag: str, read: Callable[[str], np.ndarray]) -> np.ndarray | None:
        """What the file of a flag holds of every row, or None without one."""
        with checks.naming(f"--{flag}"):
            return None if (path := getattr(self, flag)) is None else read(path)


def paths_in(value: str) -> list[str]:
    """What commas separate in a flag; its value where a file has this name, also after a colon."""
    path = value.partition(":")[2] or value
    return [value] if files.expanded(path).exists() else value.split(",")


def write(
    given: Options,
    result: Any,
    read: Any,
    *,
    profile: Profile | None = None,
    plan: StudyPlan | None = None,
    beside: Sequence[str] = (),
    **further: Callable[[str], Any],
) -> None:
    """Writes the files that were asked for, then prints the table, also where writing fails.

    `read` are the `Inputs`, `further` writes the files of other flags, and `beside` are lines below
    the table. A plan is printed in place of its pilot. Comparisons have their own profile.
    """
    profile = result.profile if isinstance(result, Comparison) else profile

    def as_json(path: str) -> None:
        content = {**result.as_dict(), "kernel": given.kernel, "inputs": read.described}
        content["seconds"] = time.perf_counter() - read.started
        content["provenance"] = command.provenance()
        beneath = {"profile": profile, "plan": plan}
        content |= {name: part.as_dict() for name, part in beneath.items() if part is not None}
        files.write_json(path, content)

    def as_figure(path: str) -> None:
        if profile is None:
            raise ValueError(f"--profile={path}: not written, since there is no profile.")
        with files.atomic_writer(path) as stream:
            profile.plot().savefig(stream, format=pathlib.Path(path).suffix.lower()[1:], dpi=200)

    def as_latex(path: str, *, long: bool = False) -> None:
        files.write_text(path, f"{reports.latex(result, encoder=read.encoders(), long=long)}\n")

    def as_record(path: str) -> None:
        told = {"encoder": read.described}
        if isinstance(result, Comparison):
            made = result.record(**told)
            records = {file: made[model] for model, file in given.record_files(made).items()}
        else:
            file = pathlib.Path(read.described.get("outputs", ""))
            model = next(iter(read.described.get("answers", {})), file.stem)
            records = {path: result.record(model, **told)}
        for file, record in records.items():
            files.write_json(file, record)
            name = record["evaluation_id"].rsplit("/", 3)[0]
            sys.stderr.write(f"note: {file} is a record of: {name}.\n" * (not given.verbose))

    writers: dict[str, Callable[[str], Any]] = {"json": as_json, "latex": as_latex}
    writers["csv"] = lambda path: files.write_text(path, (plan or result).comma_separated())
    writers |= {**further, "profile": as_figure, "record": as_record}
    writers["latex_details"] = functools.partial(as_latex, long=True)
    writers["csv_pairs"] = lambda path: files.write_text(path, result.comma_separated("pairs"))
    piped = files.STANDARD_OUTPUT in given.paths(Target).values()
    try:
        for name, write_to in writers.items():
            if (path := getattr(given, name, None)) is not None:
                write_to(path)
    finally:
        every = getattr(result, "comparisons", {"": result}).values()
        answer = [str(plan or result)]
        if given.verbose:
            answer = [*answer * (len(every) > 1), *(one.details() for one in every), *read.notes]
        answer += ["", str(plan)] if given.verbose and plan else []
        table = "\n".join([*answer, *beside])
        together = piped or (sys.stdout.isatty() and sys.stderr.isatty())  # Seen in one place.
        for line in dict.fromkeys(line for one in every for line in warning_lines(one.advice)):
            if not (together and line in table.split("\n")):
                sys.stderr.write(f"{command.escaped(line)}\n")
        print(command.escaped(table), file=sys.stderr if piped else sys.stdout)
