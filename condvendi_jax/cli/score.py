"""`condvendi score`: the scores of one model's outputs, with errors."""

import dataclasses
from collections.abc import Sequence

from condvendi_jax.base import files, optional
from condvendi_jax.base.result import comma_separated
from condvendi_jax.cli import command, flags, inputs, options
from condvendi_jax.cli.flags import flag
from condvendi_jax.cli.options import Target
from condvendi_jax.inference import datasets, evaluations, profiles, prompt_tables


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(options.Options):
    """Scores of a model's outputs and, with prompts, how much of them is the model's own.

    usage: condvendi score answers.jsonl [--flag=value ...]
           condvendi score x.npy --prompts=t.npy [--flag=value ...]
           condvendi score folder --prompts=prompts.csv [--flag=value ...]

    The outputs are records with their prompts, embeddings, texts or a folder of pictures, as in
    `condvendi compare`.
    """

    errors: bool = flag(True, "Compute standard errors.", excludes=("groups_file",))
    by_prompt: Target | None = flag(
        help="Also write a CSV file with a line for each prompt and order: the number, share, "
        "score and similarity of its outputs, with an interval, and what they contribute to all "
        "scores. The mean of the scores over prompts is printed."
    )


def main(argv: Sequence[str]) -> None:
    """Reads, scores, prints, writes."""
    words, given = flags.parse(Options, argv)
    options.keep_programs()
    models = inputs.models_of(words, given)
    paired = any(model.prompts or model.kind == "records" for model in models.values())
    if given.by_prompt and not paired:
        raise ValueError(f"--by_prompt={given.by_prompt} needs --prompts: there are none.")
    tables, over, failed = [], None, dict[str, str]()
    with command.progress_bar() as bar:
        read = inputs.read(given, models, bar)
        pairs, settings, show = read.pairs()[""], read.settings, read.settings["progress"]
        scores = evaluations.evaluate(pairs, **settings, errors=given.errors)
        scores = datasets.advised(scores, pairs, read.items.get(""))
        if given.by_prompt:
            chosen = {name: settings[name] for name in ("truncation", "method")}
            chosen |= {"labels": read.dataset.prompt_texts}
            with optional.part("by_prompt", failed, asked=True):
                tables = [prompt_tables.prompt_table(pairs, order=o, **chosen) for o in given.order]
        if given.profile:
            chosen = {name: settings[name] for name in ("seed", "unbiased")}
            with optional.part("profile", failed, asked=True):
                over = profiles.profile({"": pairs}, **chosen, progress=show)
    beside = [line for part in (*tables, over) if part for line in ("", str(part))]

    def write_tables(path: str) -> None:
        if not tables:
            raise ValueError(f"--by_prompt={path}: not written, since there is no table.")
        lines = [line for table in tables for line in table.lines()]
        files.write_text(path, comma_separated(lines))

    further = {"by_prompt": write_tables}
    options.write(given, scores, read, further, profile=over, beside=beside)
