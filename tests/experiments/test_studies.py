"""Every study that is registered: its command, its committed results, its figures."""

import json
import pathlib
import re
import runpy
import signal
import subprocess
import sys

import pytest
from processes import HANG_S, started, wait_until
from small import flags as flags_of
from small import small_pairs
from studies import execute

from condvendi_jax.cli import flags
from experiments import THEMES, lab
from experiments import __main__ as overview
from experiments.lab import Setup, registry, runner, sizes, store

ROOT = pathlib.Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"
PAGES = ROOT / "docs" / "studies"
FIGURE = re.compile(r"!\[.*?\]\(\.\./\.\./figures/(\S+)\.png\)")

# Studies whose own tests do not run them as a whole.
RUN_HERE = {
    "many_processes": lambda folder: flags_of(n=1024, processes="1,2", repeats=3),
    "scaling": small_pairs("--parts=exact", "--exact_n=64"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "small"), RUN_HERE.items())
def test_a_study_runs(name, small, tmp_path):
    run = execute(registry.load(name), tmp_path, *small(tmp_path))
    sizes.refuse_unsaid(run)
    assert not run.missing


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.NAMES)
def test_committed_results_give_tables_and_captioned_figures(name):
    study = registry.load(name)
    folders = runner.run_folders(study, runner.COMMITTED)
    runs = [store.read_run(folder, study) for folder in folders]
    assert all(grid.row_count for run in runs for grid in run.study.tables(run))
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    drawn = study.figures(runs) if runs else {}
    assert set(drawn) == set(FIGURE.findall(page))
    for figure in drawn.values():
        figure.draw_without_rendering()
        caption = vars(figure)["_supxlabel"]
        box, words = caption.get_window_extent(), caption.get_text().replace("\n", " ")
        assert box.x1 <= figure.bbox.x1 and box.y0 >= 0
        assert study.unrepeated or not study.random or re.search(r"[sS]eed \d", words)


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # Of runpy.
@pytest.mark.parametrize("name", registry.NAMES)
def test_a_study_is_a_command_whose_help_names_every_option(name, capsys, monkeypatch):
    started = []
    monkeypatch.setattr(lab, "main", started.append)
    runpy.run_module(f"experiments.{name}", run_name="__main__")
    assert [study.name for study in started] == [name]
    with pytest.raises(SystemExit):
        runner.execute(registry.load(name), [name, "--help"])
    text = capsys.readouterr().out
    assert f"usage: python -m experiments.{name} " in text
    for field, _, _ in flags.fields(registry.load(name)):
        assert f"  --{field.name} VALUE" in text


def test_no_module_is_loaded_under_two_names():
    """A command finds a study by its name alone; the code, by its theme too."""
    for name in registry.NAMES:
        registry.load(name)
    loaded = [m for n, m in sys.modules.items() if n.startswith("experiments.")]
    files = [m.__file__ for m in loaded if not hasattr(m, "__path__")]  # Packages define nothing.
    assert len(set(files)) == len(files)
    stems = [path.stem for theme in THEMES for path in (EXPERIMENTS / theme).glob("[!_]*.py")]
    stems += [path.stem for path in EXPERIMENTS.glob("[!_]*") if path.is_dir()]
    assert len(set(stems)) == len(stems)


@pytest.mark.parametrize("name", registry.NAMES)
def test_committed_results_are_whole_and_those_of_the_committed_flags(name):
    """What figures/ shows is what the committed results give, by the study as it is now."""
    study = registry.load(name)
    folders = runner.run_folders(study, runner.COMMITTED)
    assert len(folders) == len(study.runs)
    known = registry.entry(name)
    assert (known.question, known.version) == (study.question(), study.version)
    runs = {folder: store.read_run(folder, study) for folder in folders}
    for folder, run in runs.items():
        assert not run.missing
        # What the list of studies reads in the place of the study.
        cells = json.loads((folder / store.RUN).read_bytes())["cells"]
        assert cells == {store.path_of(folder, c).name: c.coordinates for c in run.study.cells()}
        assert registry.state(known, folder) == "complete"
    for words in study.runs:
        given = runner.parse(study, words)
        committed = runs[runner.COMMITTED / given.study.folder(getattr(given, "data", None))]
        wanted = runner.identity_of(given.study, Setup(given.study, {}), committed.seed)
        assert committed.identity["settings"] == wanted["settings"]


def test_the_pages_of_studies_show_all_figures():
    texts = (page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))
    shown = {name for text in texts for name in FIGURE.findall(text)}
    # The README's picture, which test_idea.py computes anew, and that of the example of a report.
    wanted = {f"{name}{end}" for name in shown | {"idea"} for end in (".png", ".pdf")}
    there = {path.name: path.stat().st_size for path in (ROOT / "figures").iterdir()}
    assert set(there) == wanted | {"report.png"}
    assert min(there.values()) > 5000


def command(*arguments, **options):
    whole = [sys.executable, "-m", "experiments", *arguments]
    return subprocess.run(whole, capture_output=True, text=True, timeout=HANG_S, **options)


@pytest.mark.slow
def test_the_overview_lists_every_study_and_its_state(tmp_path):
    found = command(cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    for name in registry.NAMES:
        assert name in found.stdout
    assert "complete" in found.stdout
    assert command("--help").returncode == 0


def test_the_overview_imports_no_study():
    words = "import sys; from experiments import __main__; __main__.main(['experiments'])"
    words += "; sys.exit(str({'jax', 'numpy', 'xarray'} & {*sys.modules}))"
    found = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    assert found.stderr.strip() == "set()"


@pytest.mark.slow
def test_studies_run_and_are_drawn_by_name(tmp_path, capsys):
    results = tmp_path / "results"
    found = command("run", "theorems", "--samples=20", f"--output={results}")
    assert found.returncode == 0, found.stderr
    next((results / "theorems").glob("rke*.nc")).write_text("damaged")
    with pytest.raises(ValueError, match="damaged"):
        overview.main(["experiments", "draw", "theorems", f"--results={results}"])
    assert command("calls", "--seed=1").returncode == 2  # It draws nothing at random.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "which study?"),
        (["run", "nothing"], "unknown study 'nothing'; the studies are attributes,"),
        (["paint"], "expected one of list, run, check, draw, pages"),
        (["draw", "all", "--results=nowhere"], "nowhere: there are no results to draw"),
        (["draw", "all", "--result=nowhere"], "unknown flag --result; did you mean --results?"),
        (["list", "all"], "unexpected argument 'all'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        overview.main(["experiments", *arguments])
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_an_interrupt_ends_with_130_keeps_cells_and_the_command_resumes(tmp_path):
    """By a real signal, in the middle of the cells."""
    study = registry.load("convergence")
    small = small_pairs("--sizes=40,80", "--rules=median", "--truncation=10", "--repeats=400")
    flags = [*small(tmp_path), f"--output={tmp_path / 'results'}"]
    whole = [sys.executable, "-m", "experiments", "run", "convergence", *flags]
    folder = tmp_path / "results" / "convergence-gaussian"
    with started(whole) as process:
        wait_until(lambda: len(list(folder.glob("median-*.nc"))) > 1, process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    run = store.read_run(folder, study)
    assert 0 < len(run.results) < 400
    assert not list(folder.glob("*.png"))


def test_the_documents_study_is_whole_and_runs(tmp_path, monkeypatch):
    """The example of your_own.md: one file of at most 70 lines, and no other line."""
    text = (ROOT / "docs" / "studies" / "your_own.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"<!-- a study -->\n```python\n(.*?)```", text, re.DOTALL)
    assert len(code.splitlines()) <= 70
    (tmp_path / "blur.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    entry = registry.Entry("blur", "?", 1, module="blur", kind="Blur")
    monkeypatch.setitem(registry._ENTRIES, "blur", entry)
    study = registry.load("blur")
    run = execute(study, tmp_path, *small_pairs("--rule=median", "--noise=0,2")(tmp_path))
    assert not run.missing
    information = run.found.value.sel(score="Information-RKE", scale=1).mean("draw")
    assert information.sel(noise=2) < information.sel(noise=0)
    assert study.figures([run])["blur"].axes
