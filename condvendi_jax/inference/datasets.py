"""Outputs of models with their prompts, from files, texts or arrays, on their way to `Pairs`."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from condvendi_jax.base import checks, labelling
from condvendi_jax.data import kernel_choice, kernels, shapes
from condvendi_jax.data.bandwidth import AUTO, RuledBandwidth
from condvendi_jax.data.pairs import Pairs, check_names, of_each_model
from condvendi_jax.data.similarities import Similarities
from condvendi_jax.encoders import embedding, limits, pictures
from condvendi_jax.inference import saturation
from condvendi_jax.records import answers, cleaning, matching
from condvendi_jax.results.evaluation import DOUBT, Advice, Evaluation

_ROLES = "encoder", "similarity"
_LOOK = "Look at them: refusals, errors and unfinished answers that differ count as diverse"


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Outputs of models with their prompts, and how both are compared."""

    outputs: Mapping[str, Any]  # Of each model: arrays, texts, paths of pictures, `Similarities`.
    prompts: Any = None  # Those that all models share, or those of each model by its name.
    # Makes the embeddings of `outputs` and of texts of `prompts`; by role, where there are.
    embed: Mapping[str, Callable[..., np.ndarray]] = dataclasses.field(default_factory=dict)
    # Makes `Similarities` of outputs and prompts, in place of embeddings.
    compare: Callable[[Mapping[str, Any], Any], Mapping[str, Similarities]] | None = None
    encoder: embedding.LoadedEncoder | None = None  # Whose bandwidth the rule 'auto' takes.
    read: str = ""  # What the outputs and prompts are and what was cut from them, in a line.
    # Of records, the names of those of `prompts` and of `answers`.
    fields: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    runs: bool = False  # Whether the outputs are the tool calls of runs, not what a model said.
    cut: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)  # Of `Records`.

    @classmethod
    def of(
        cls, outputs: Any, prompts: Any, encoder: Any, similarity: Any, clean: bool, *, across: bool
    ) -> Self:
        """What the arguments of `evaluate` and `compare` name; texts are embedded or compared."""
        check_names(outputs)
        for name, x in zip(_ROLES, (encoder, similarity), strict=True):
            if isinstance(x, (list, tuple)):
                raise TypeError(f"{name}: expected one, received {len(x)}; compare takes several.")
        outputs = {**outputs}
        for name, asked in of_each_model(prompts, outputs, "prompts").items():
            checks.check_indices({"outputs": outputs[name], "prompts": asked})
            with checks.naming(name):
                if isinstance(outputs[name], dict):
                    shapes.unpacked(outputs[name], "outputs")
                outputs[name] = shapes.without_table(outputs[name], asked)
        outputs, prompts = by_row(outputs, prompts, lists=similarity is not None)
        if similarity is not None:
            if encoder is not None:
                raise ValueError("similarity: received one beside encoder; expected one of them.")
            compare = functools.partial(compare_pairs, similarity, across=across)
            runs = isinstance(similarity, str) and similarity == "calls"
            if runs and not any("\n" in str(run) for said in outputs.values() for run in said):
                checks.warn("outputs: all runs have one call; a run is one text, a call a line.")
            return cls(outputs, prompts, compare=compare, runs=runs).cleaned(clean)
        seen = {name: pictures.checked(rows, "outputs") for name, rows in outputs.items()}
        kind = "images" if all(seen.values()) else "texts"
        if kind == "texts" and not _are_texts(outputs):
            for rows in outputs.values():
                shapes.refuse_missing(rows, "outputs")
            if encoder is not None or any(seen.values()):
                expected = f"expected texts or pictures. {checks.PICTURES}"
                raise TypeError(f"encoder: received one beside arrays; {expected}")
            return cls(outputs, prompts)
        loaded = embedding.encoder_of(kind, encoder)
        rows = functools.partial(embedding.embed, encoder=loaded, kind=kind)
        embed = {"outputs": rows, "prompts": rows if kind == "texts" else _embed_texts}
        outputs = outputs if kind == "texts" else seen
        return cls(outputs, prompts, embed, encoder=loaded).cleaned(clean)

    def cleaned(self, clean: bool) -> Self:
        """The dataset with cleaned texts, if `clean`; it warns of what was cut and of odd texts."""
        outputs, cut, doubts = {**self.outputs}, collections.Counter[str](), []
        asked = of_each_model(self.prompts, self.outputs, "prompts")
        for name, said in self.texts.items():
            if asked[name] is not None and len(asked[name]) != len(said):
                continue  # `Pairs` says so.
            prompts = asked[name] if _are_texts(asked[name]) else [None] * len(said)
            without = cleaning.cleaned(said, [*prompts])
            cut.update(without.cut)
            if clean:  # Blanks around texts go, too.
                outputs[name] = without.texts
            labels = range(len(said)) if asked[name] is None else map(str, asked[name])
            lines = answers.doubts(outputs[name], [*labels])
            doubts += [f"{name and f'{name}: '}{line}" for line in lines]
        words, count = str(cleaning.Cleaned([], cut)), sum(map(len, self.texts.values()))
        if cut:
            kept = "; pass clean=False to keep it" if clean else " stands around answers"
            checks.warn(f"outputs: {'cut ' if clean else ''}{words}{kept}.")
        if doubts:
            checks.warn("\n".join(["some outputs may not be what a model said:", *doubts]))
        said = f"{count:,} texts; cut: {words}" if cut and clean else ""
        read = "; ".join(filter(None, [self.read, said]))
        return dataclasses.replace(self, outputs=outputs, read=read)

    @property
    def texts(self) -> dict[str, list[str]]:
        """The texts of the models whose outputs are texts that a model said."""
        outputs = () if self.runs else self.outputs.items()
        return {name: [*map(str, texts)] for name, texts in outputs if _are_texts(texts)}

    @functools.cached_property
    def scripts(self) -> dict[str, dict[str, float]]:
        """The shares of scripts in the texts of each model, under an encoder of one language."""
        known = hasattr(self.encoder and self.encoder.encoder, "language")
        return {name: limits.scripts(texts) for name, texts in self.texts.items() if known}

    @property
    def noun(self) -> str:
        """What texts call the outputs: see `Evaluation.noun`."""
        other = "pictures" if "outputs" in self.embed else "outputs"
        return "runs" if self.runs else "answers" if self.texts else other

    @property
    def prompt_texts(self) -> Any:
        """The prompts, if they are texts: they say which prompts are the same."""
        return self.prompts if _are_texts(self.prompts) else None

    @property
    def asked(self) -> dict[str, Sequence[str]]:
        """The texts of the prompts of each model; {} without."""
        texts = self.prompt_texts
        return {} if texts is None else of_each_model(texts, self.outputs, "prompts")

    def matched(self, *, refuse: bool) -> Self:
        """With the prompts of `matching.without_samples`; `read` says which texts are the same."""
        if not self.asked:
            return self
        lines = [self.read, *matching.forms(itertools.chain(*self.asked.values()))]
        prompts = matching.without_samples(self.prompts, refuse=refuse)
        return dataclasses.replace(self, prompts=prompts, read="; ".join(filter(None, lines)))

    def embedded(self, prompt_kernel: Any, similar_prompts: bool) -> list[str]:
        """Which of outputs and prompts are embedded: not prompts that are equal or different."""
        given = prompt_kernel is not None and kernels.is_equality(prompt_kernel)
        equal = self.prompt_texts is None or given
        if not (equal or similar_prompts or prompt_kernel is not None):
            equal = _repeat(self.prompts)
        return [role for role in self.embed if role == "outputs" or not equal]

    def pairs(self, **options: Any) -> dict[str, Pairs]:
        """The pairs of all models under the same kernels; arguments as of `Pairs.of_models`."""
        rows = {"outputs": self.outputs, "prompts": self.prompts}
        if self.compare is not None:
            rows = {"outputs": self.compare(self.outputs, self.prompts), "prompts": None}
        elif self.embed:
            if options.get("prompt_ids") is None:
                options["prompt_ids"] = self.prompt_texts
            for role in self.embedded(options["prompt_kernel"], options["similar_prompts"]):
                rows[role] = _together(self.embed[role], rows[role])
        by_rule = options["output_kernel"] is None and options["rule"] == AUTO
        if by_rule and self.encoder and self.encoder.bandwidth is not None:
            words = f"fits people's judgements with {self.encoder.name}"
            words += getattr(self.encoder.encoder, "rewording", "")
            options["output_kernel"] = RuledBandwidth(float(self.encoder.bandwidth), words)
        if [*self.outputs] == [""]:  # One model may lie on several devices.
            return {"": Pairs(rows["outputs"][""], rows["prompts"], **options)}
        return Pairs.of_models(rows["outputs"], rows["prompts"], **options)


def views(models: Any, prompts: Any, given: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The outputs and further arguments of a comparison under each encoder or similarity."""
    check_names(models)
    asked = []
    for role in _ROLES:
        several = isinstance(x := given.get(role), (list, tuple)) and x
        asked += [(role, y) for y in several] if several else [(role, x)] * (x is not None)
    inner = [x.values() if isinstance(x, dict) else [None] for x in models.values()]
    # Without prompts, the keys of a model may be prompts.
    if prompts is not None and all(getattr(rows, "ndim", 0) for x in inner for rows in x):
        first = next(iter(models.values()))
        views = {name: (of_each_model(x, first, "models"), {}) for name, x in models.items()}
    elif len(asked) < 2:
        return {"": (models, dict(asked))}
    else:
        plain = ("default" if x is None else x for _, x in asked)
        names = [x if isinstance(x, str) else embedding.as_loaded(x).name for x in plain]
        if len({*names}) < len(names):
            raise ValueError(f"encoder, similarity: expected different names, received {names}.")
        hows = (dict.fromkeys(_ROLES) | {role: x} for role, x in asked)
        views = {name: (models, how) for name, how in zip(names, hows, strict=True)}
    kernels = of_each_model(given.get("output_kernel"), views, "output_kernel")
    return {name: (x, how | {"output_kernel": kernels[name]}) for name, (x, how) in views.items()}


def by_row(outputs: Any, prompts: Any, *, lists: bool) -> tuple[Any, Any]:
    """Lists of the answers to each prompt, one after the other, each with its prompt.

    Where all outputs are lists of texts or, if `lists`, of anything; others are as they were.
    """
    outputs, prompts = shapes.listed(outputs), shapes.listed(prompts)
    if isinstance(outputs, Mapping) and any(isinstance(rows, str) for rows in outputs.values()):
        raise TypeError("outputs: received one text; expected a list of texts, [text].")
    of_models: Any = outputs.values() if isinstance(outputs, Mapping) else [None]
    if not all(isinstance(rows, list | tuple) for rows in of_models):
        return outputs, prompts
    rows = [*itertools.chain(*of_models)]
    if {str, list} <= {*map(type, rows)}:
        expected = "expected a list of answers to each prompt, also where there is one: [answer]."
        raise TypeError(f"outputs: received lists of answers beside single answers; {expected}")
    if not rows or not all(isinstance(row, list) if lists else _are_items(row) for row in rows):
        return outputs, prompts
    flat = {name: shapes.listed([*itertools.chain(*rows)]) for name, rows in outputs.items()}
    if prompts is None and not lists:
        return flat, None
    if prompts is None:
        prompts = {name: range(len(rows)) for name, rows in outputs.items()}
    repeated = {}
    for name, asked in of_each_model(prompts, outputs, "prompts").items():
        rows = outputs[name]
        if len(asked) != len(rows):
            expected = f"expected lists of answers to {len(asked):,} prompts"
            whose = name and f" of {name}"
            raise ValueError(f"outputs{whose}: {expected}, received {len(rows):,} lists.")
        repeated[name] = [p for p, row in zip(asked, rows, strict=True) for _ in row]
    first = next(iter(repeated.values()))
    return flat, first if all(asked == first for asked in repeated.values()) else repeated


def advised(
    evaluation: Evaluation, pairs: Pairs, dataset: Dataset | None, name: str = ""
) -> Evaluation:
    """The evaluation of a model's pairs with what was read, and advice on texts that are odd."""
    if dataset is None:
        return evaluation
    advice = evaluation.advice
    if dataset.noun != evaluation.noun:  # The same in its own word.
        evaluation = dataclasses.replace(evaluation, noun=dataset.noun)
        advice = saturation.advice(evaluation, pairs.supported())
    if texts := dataset.texts.get(name):
        kinds = pairs.prompt_kinds[1].tolist() if pairs.paired else [0] * len(texts)
        lines = answers.doubts(texts, kinds) if pairs.paired else []
        lines += dataset.cut.get(name, ())
        doubt = Advice(DOUBT, "some answers may not be what a model said", "; ".join(lines), _LOOK)
        unseen = limits.limits_of(name, texts, kinds, dataset.scripts, dataset.encoder)
        advice = (*itertools.starmap(Advice, unseen), *advice, *[doubt] * bool(lines))
    return dataclasses.replace(evaluation, read=dataset.read, advice=advice)


def compare_pairs(
    similarity: Any, outputs: Mapping[str, Any], prompts: Any, *, across: bool, **options: Any
) -> dict[str, Similarities]:
    """The outputs of models, compared by a function within each model, or also `across` models."""
    asked = of_each_model(prompts, outputs, "prompts")
    make = functools.partial(Similarities.from_function, similarity, **options)
    if not across:
        return {name: make(of_model, asked[name]) for name, of_model in outputs.items()}
    items = [item for of_model in outputs.values() for item in of_model]
    models = [name for name, of_model in outputs.items() for _ in of_model]
    labels = None if prompts is None else [label for name in outputs for label in asked[name]]
    return make(items, labels).split(models)


def _are_texts(values: Any) -> bool:
    """Whether values, or those of all models by their names, are texts."""
    if isinstance(values, Mapping):
        return all(map(_are_texts, values.values()))
    return shapes.are_labels(values) and all(isinstance(value, str) for value in values)


def _embed_texts(texts: Sequence[str]) -> np.ndarray:
    return embedding.embed(texts, embedding.encoder_of("texts", None), kind="texts")


def _are_items(row: Any) -> bool:
    """Whether a row is a list, not one answer, and some of its entries are texts or pictures."""
    items = row if isinstance(row := shapes.listed(row), (list, tuple)) else ()
    return any(isinstance(item, (str, bytes)) or pictures.is_picture(item) for item in items)


def _repeat(texts: Any) -> bool:
    """Whether the texts of all models repeat: more than half of them, or enough."""
    if isinstance(texts, Mapping):
        return all(map(_repeat, texts.values()))
    kinds = labelling.check_labels(texts, len(texts), name="prompts")[1]
    several = np.bincount(kinds) > 1
    return bool(several.sum() >= kernel_choice.ENOUGH_REPEATED or np.mean(several[kinds]) > 0.5)


def _together(embed: Callable[[Sequence[str]], np.ndarray], items: Any) -> Any:
    """The embeddings of items, or of those of each model by its name, made in one call."""
    if not isinstance(items, Mapping):
        return embed([str(item) if isinstance(item, str) else item for item in items])
    ends = np.cumsum([*map(len, items.values())])
    rows = _together(embed, [*itertools.chain(*items.values())])
    return dict(zip(items, np.split(rows, ends[:-1]), strict=True))
