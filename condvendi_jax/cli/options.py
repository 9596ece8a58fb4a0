"""The flags that every verb of the command line has, and what they mean to the library."""

from __future__ import annotations

import contextlib
import functools
import json
import pathlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import flags

from condvendi_jax import bandwidth, files, validation
from condvendi_jax.cli import command, programs, provenance
from condvendi_jax.cli.inputs import Inputs
from condvendi_jax.inference._compare import Comparison
from condvendi_jax.inference._plan import Keys
from condvendi_jax.inference._results import Evaluation
from condvendi_jax.kernels import Cosine, Gaussian, Indicator, Kernel
from condvendi_jax.pairs import NAMES
from condvendi_jax.spectra import _estimators as estimators
from condvendi_jax.spectra import _feature_maps as feature_maps
from condvendi_jax.spectra import _methods as methods
from condvendi_jax.spectra._methods import Auto, Method

DEFAULT_RULE = "variance"
# The flags, of any verb, that name a figure to draw, and those that name a file to write.
_FIGURES = ("plot", "profile")
_FILES = ("output", "json", "latex", "by_prompt", "csv", "markdown", "checkpoint", *_FIGURES)
PROFILE = (
    "Also draw the scores of order 2 against the bandwidth, from 1/8 to 8 times the chosen ones, "
    "to this file (.png, .pdf, .svg)."
)
_BANDWIDTHS = {"outputs": "output_bandwidth", "prompts": "prompt_bandwidth"}


def define(values: flags.FlagValues) -> None:
    """Adds the flags."""
    kinds = flags.DEFINE_string, flags.DEFINE_integer, flags.DEFINE_enum, flags.DEFINE_float
    text, number, choice, real = (functools.partial(kind, flag_values=values) for kind in kinds)
    choice("kernel", "gaussian", ["gaussian", "cosine"], "The kernel of both.")
    for role, name in _BANDWIDTHS.items():
        real(name, None, f"Gaussian bandwidth of the {role}, in their units; by rule if unset")
    flags.DEFINE_bool(
        "equal_prompts",
        False,
        "Prompts count as the same where they are equal and as different elsewhere, so that "
        "Conditional scores count the different outputs of one prompt.",
        flag_values=values,
    )
    text("bandwidths_from", None, "A --json of an earlier call, whose bandwidths are used.")
    words = (
        "How an unset bandwidth is chosen: the smallest whose RKE over disjoint subsets has a "
        "variance (CV) or a standard deviation (RKE) below 0.01, or the median distance; "
        f"{DEFAULT_RULE} if unset."
    )
    choice("rule", None, list(bandwidth.RULES), words)
    words = "Renyi orders above 0, 'inf' included."
    flags.DEFINE_list("order", ["2", "1"], words, flag_values=values)
    words = (
        "Order 2 as in the papers, which compare every row with itself, so that it grows with the "
        "number of rows. If unset it is unbiased, and the papers' numbers stand beside it."
    )
    flags.DEFINE_bool("plugin", False, words, flag_values=values)
    number("truncation", None, "Eigenvalues that every entropy keeps (CV eq. 13); all if unset.")
    words = (
        "How eigenvalues are computed: 'exact' takes all of them; 'stored' and 'matrix-free' "
        "estimate them, with a 95% interval, from products with n x n matrices that are kept or "
        "never formed; 'auto', the default, is exact up to n = 4,096, then stored while they fit "
        "in memory. 'sampled' bounds order 1 of up to millions of rows from samples of them, "
        "without standard errors. 'random-features' scores finite features in the kernels' place, "
        "in time linear in n, at order 2 too: with wide intervals at order 1."
    )
    choice("method", None, list(methods.BY_NAME), words)
    words = (
        "Relative half width of the intervals that an estimated score is refined to; "
        f"{estimators.DEFAULT_RTOL:g} if unset."
    )
    real("rtol", None, words)
    words = (
        "Frequencies of --method=random-features, a multiple of 8, or rows of each sample of "
        f"--method=sampled; {feature_maps.DEFAULT_COUNT} and {methods.Sampled.rows} if unset."
    )
    number("features", None, words)
    words = (
        "Compute standard errors by deletions: a jackknife that leaves out this many groups of "
        "rows in turn. If unset, the influences of the rows give them, at the price of the scores."
    )
    number("groups", None, words)
    words = (
        "Rows that depend on each other, for standard errors: a label for every row, in a .txt of "
        "one a line, or a .npy. If unset, rows with equal prompts."
    )
    text("groups_file", None, words)
    words = (
        "Weights of the rows, not negative: one a line in a .txt, or a .npy. Only their shares "
        "matter for the scores. For standard errors, integers count independent copies of a row. "
        "Several models share one file, or each has its own, separated by commas."
    )
    text("weights", None, words)
    number("seed", 0, "Of the bandwidth rule's subsets, groups and probes.")
    text("json", None, "Also write the results, with provenance, to this file or pipe.")
    text("latex", None, "Also write a paragraph, a table and citations for a paper to this file.")
    flags.DEFINE_bool("x64", False, "Compute in float64.", flag_values=values)
    words = (
        "Replace files that exist. Without it, only earlier results of this command are replaced. "
        "A file that is read is never replaced."
    )
    flags.DEFINE_bool("overwrite", False, words, flag_values=values)
    words = "Keep compiled programs in the user's cache folder: the next call starts sooner."
    flags.DEFINE_bool("compile_cache", True, words, flag_values=values)
    flags.DEFINE_bool("help", False, "List these flags.", short_name="h", flag_values=values)


def parse(
    values: flags.FlagValues, argv: Sequence[str], usage: str
) -> tuple[list[str], dict[str, Any]]:
    """The words of a command line and its flags by name; prints the help where asked for.

    Switches the cache of compiled programs on.
    """
    words = command.parse(values, argv)
    given: dict[str, Any] = values.flag_values_dict()
    if given["help"]:
        print(usage)
        print(command.list_flags(values))
    for name, value in given.items():
        if value == "":
            raise ValueError(
                f"--{name}: received nothing after the '='; give a value, or leave the flag out."
            )
    if given["compile_cache"] and not given["help"]:
        programs.keep()  # Before the first program is compiled.
    return words, given


def check(given: dict[str, Any]) -> None:
    """Refuses, before anything is read, flags out of range or without effect (ValueError)."""
    names = (*_BANDWIDTHS.values(), "bandwidths_from")
    widths = [name for name in names if given[name] is not None]
    if widths and given["kernel"] == "cosine":
        why = "the cosine kernel has no bandwidth; give none, or --kernel=gaussian."
        raise ValueError(f"--{widths[0]}: {why}")
    if len(widths) > 1 and "bandwidths_from" in widths:
        raise ValueError(f"--{widths[0]} and --bandwidths_from: give one or the other.")
    paired = bool(given["prompts"] or given["records"])
    if given["equal_prompts"]:
        if not paired:
            raise ValueError("--equal_prompts without --prompts: there is nothing to use it on.")
        for name in ("prompt_bandwidth", "bandwidths_from"):
            if given[name] is not None:
                raise ValueError(f"--{name} and --equal_prompts: give one or the other.")
    roles = NAMES if paired and not given["equal_prompts"] else NAMES[:1]
    chosen = given["kernel"] == "cosine" or given["bandwidths_from"] is not None
    chosen = chosen or None not in [given[_BANDWIDTHS[role]] for role in roles]
    if given["rule"] is not None and chosen:
        raise ValueError("--rule: no bandwidth is left to choose.")
    name = given["method"]
    approximate = name is not None and methods.BY_NAME[name].approximates
    if given["truncation"] is None and orders(given) == [2.0] and not approximate:
        for flag in ("method", "rtol"):
            if given[flag] is not None:
                raise ValueError(f"--{flag}: order 2 has no spectrum to compute; it is exact.")
    if given["plugin"] and (approximate or given["truncation"] or 2 not in orders(given)):
        raise ValueError("--plugin: there is no other score without order 2 of all pairs of rows.")
    sized = name is not None and methods.takes_features(name)
    if given["rtol"] is not None and (sized or name == "exact"):
        why = "; more --features narrow its intervals" if sized else ", which estimates nothing"
        raise ValueError(f"--rtol means nothing with --method={name}{why}.")
    if given["features"] is not None and not sized:
        raise ValueError("--features is for --method=random-features and sampled.")
    if approximate and given["kernel"] == "cosine":
        raise ValueError(f"--method={name} is of Gaussian kernels, not of --kernel=cosine.")
    if given["groups_file"] is not None and given["groups"] is not None:
        raise ValueError("--groups and --groups_file: give one or the other.")
    checks = {"truncation": validation.check_truncation}
    checks |= dict.fromkeys(_BANDWIDTHS.values(), validation.check_bandwidth)
    for flag, check_value in checks.items():
        try:
            if given[flag] is not None:
                check_value(given[flag])
        except ValueError as error:  # It names the argument of the library.
            raise ValueError(f"--{flag}: {str(error).partition(': ')[2]}") from error
    if given["groups"] is not None:
        validation.check_count(given["groups"], name="--groups", minimum=2)
    validation.check_seed(given["seed"], name="--seed")
    if given["rtol"] is not None:
        validation.check_rtol(given["rtol"], name="--rtol")
    orders(given)
    method(given)


def check_figures(given: dict[str, Any]) -> None:
    """Refuses files of another kind than figures are written as, and a profile that cannot be."""
    for flag in _FIGURES:
        path = given.get(flag)
        if path and pathlib.Path(path).suffix.lower() not in (".png", ".pdf", ".svg"):
            raise ValueError(
                f"--{flag}: expected a file ending in .png, .pdf or .svg, received {path!r}."
            )
    if given["profile"] and given["kernel"] == "cosine":
        raise ValueError("--profile: the cosine kernel has no bandwidth; expected a Gaussian one.")
    if given["profile"] and given["groups"] is not None:
        raise ValueError("--profile takes its errors from influences; expected no --groups.")


def prepare(given: dict[str, Any], sources: Mapping[str, Sequence[Any]]) -> None:
    """Sets the precision, and refuses what would be written nowhere or over something.

    Raises:
      ValueError, OSError: as `files.check_targets` and `command.require_output`.
    """
    targets = {f"--{flag}": given[flag] for flag in _FILES if given.get(flag)}
    if not targets or any(map(files.is_standard_output, targets.values())):
        command.require_output()
    files.check_targets(targets, sources, overwrite=given["overwrite"])
    jax.config.update("jax_enable_x64", given["x64"])


def orders(given: dict[str, Any]) -> list[float]:
    """The requested orders."""
    found = []
    for text in given["order"] or [""]:
        try:
            if np.isinf(float(text)) and "inf" not in text.lower():
                raise ValueError("a number beyond the range of floats")
            found.append(validation.check_order(float(text)))
        except ValueError as error:
            wanted = "expected numbers above 0 or 'inf'"
            raise ValueError(f"--order: {wanted}, received {text!r}.") from error
    if len(set(found)) < len(found):
        raise ValueError(f"--order: expected different numbers, received {given['order']}.")
    return found


def method(given: dict[str, Any]) -> Method:
    """How eigenvalues are computed, with a key of the seed."""
    key = Keys(given["seed"]).probes
    name, features = given["method"] or Auto.name, given["features"]
    try:
        return methods.named(name, key=key, rtol=given["rtol"], features=features)
    except ValueError as error:
        # The argument has another name there.
        raise ValueError(f"--features: {str(error).partition(': ')[2]}") from error


def kernels(given: dict[str, Any], *, paired: bool) -> dict[str, Kernel | None]:
    """The kernels that are given, None where a rule is to choose the bandwidth."""
    if given["equal_prompts"]:
        return kernels(given | {"equal_prompts": False}, paired=False) | {"prompts": Indicator()}
    roles = NAMES if paired else NAMES[:1]
    if given["kernel"] == "cosine":
        return dict.fromkeys(roles, Cosine())
    if not paired and given["prompt_bandwidth"] is not None:
        raise ValueError("--prompt_bandwidth without --prompts: there is nothing to use it on.")
    widths = {role: given[_BANDWIDTHS[role]] for role in roles}
    if given["bandwidths_from"] is not None:
        widths = _bandwidths_from(given["bandwidths_from"], roles)
    return {role: None if sigma is None else Gaussian(sigma) for role, sigma in widths.items()}


def _bandwidths_from(path: str, roles: tuple[str, ...]) -> dict[str, float]:
    """The bandwidths that an earlier call wrote."""
    try:
        content = json.loads(files.expanded(path).read_bytes())
        return {role: float(content["bandwidths"][role]["bandwidth"]) for role in roles}
    except OSError as error:
        raise ValueError(f"--bandwidths_from: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"--bandwidths_from: {path} holds no Gaussian bandwidths of {' and '.join(roles)}; "
            "expected what --json wrote."
        ) from error


def groups(given: dict[str, Any], n: int) -> int | np.ndarray | None:
    """How many groups of n rows deletions leave out, or the label of every row, or None."""
    path = given["groups_file"]
    if path is None:
        if given["groups"] and given["weights"] is None and given["groups"] > n:
            raise ValueError(f"--groups: expected at most n = {n}, received {given['groups']}.")
        return given["groups"]
    try:
        return files.read_labels(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"--groups_file: {error}") from error


def weights(given: dict[str, Any], models: Sequence[str] = ()) -> Any:
    """The weights of the rows, one array or one for each model by its name, or None."""
    if given["weights"] is None:
        return None
    try:
        paths = of_models("weights", given["weights"], models)
        if paths:
            return {name: files.read_weights(path) for name, path in paths.items()}
        return files.read_weights(given["weights"])
    except (TypeError, ValueError, OSError) as error:
        flag = "" if str(error).startswith("--weights") else "--weights: "
        raise ValueError(f"{flag}{error}") from error


def of_models(flag: str, given: str | None, models: Sequence[str]) -> dict[str, str]:
    """The file of each model that a flag names; none where all share one file, or there is none."""
    if given is None or not models or files.expanded(given).exists():
        return {}
    paths = given.split(",")
    if "" in paths:
        raise ValueError(f"--{flag}={given}: a name beside a comma is missing.")
    if len(paths) == 1:
        return {}
    if len(paths) != len(models):
        raise ValueError(
            f"--{flag}: expected one file, or one for each of {len(models)} models, received "
            f"{len(paths)}."
        )
    return dict(zip(models, paths, strict=True))


@contextlib.contextmanager
def printed_last(table: object, targets: Sequence[str | None]) -> Iterator[None]:
    """Prints a table after the files are written, and also where one of them cannot be.

    Not before: a reader that leaves early ends the process. Where a file goes to standard output,
    the table goes to standard error.
    """
    piped = any(files.is_standard_output(target) for target in targets if target)
    try:
        yield
    finally:
        print(command.escaped(table), file=sys.stderr if piped else sys.stdout)


def settings(given: dict[str, Any], read: Inputs, models: Sequence[str] = ()) -> dict[str, Any]:
    """The arguments that `evaluate` and `compare` share."""
    chosen = kernels(given, paired=bool(read.prompts))
    kept = read.kept if models else next(iter(read.kept.values()), None)
    return {
        "output_kernel": chosen["outputs"],
        "prompt_kernel": chosen.get("prompts"),
        "rule": given["rule"] or DEFAULT_RULE,
        "orders": orders(given),
        "unbiased": not given["plugin"],
        "truncation": given["truncation"],
        "method": method(given),
        "groups": groups(given, min(map(len, read.outputs.values()))),
        "weights": weights(given, models) if not read.kept else kept,
        "seed": given["seed"],
    }


def report(
    found: Evaluation | Comparison, given: dict[str, Any], read: dict[str, Any], *, since: float
) -> dict[str, Any]:
    """What --json writes: the result, what was read, seconds since the start, and provenance."""
    return {
        **found.as_dict(),
        "kernel": given["kernel"],
        "inputs": read,
        "seconds": time.perf_counter() - since,
        "provenance": provenance.collect(),
    }


def write_latex(
    given: dict[str, Any], found: Evaluation | Comparison, read: Mapping[str, Any]
) -> None:
    """What --latex writes, if it was asked for: paragraph, table and works to cite."""
    if given["latex"]:
        media = {"image_encoder": "pictures", "text_encoder": "texts"}
        named = [f"{read[key]} ({what})" for key, what in media.items() if key in read]
        paper = found.report(encoder=" and ".join(named) or None)
        with files.atomic_writer(given["latex"]) as stream:
            stream.write(f"{paper}\n".encode())
