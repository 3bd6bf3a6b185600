"""The site builds, and every command and snippet on it and in README is really run.

Pages are written as a user would type them. Here they run in a folder of their own, page by page and in the
order of the page, with one change: what a command may spend is cut down by the table below. What cannot be
run is marked on the page itself, `<!-- not run: reason -->`, and the marks are counted.
"""

import importlib
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import sgno
from sgno.cli.app import app
from sgno.lab.report.groups import compare
from sgno.lab.report.runs import read_store
from sgno.lab.tasks import TASKS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_SMALL_TASK = ["--points", "64", "--train-samples", "4", "--test-samples", "2", "--test-steps", "6"]
# Put behind the words of a command: the last value of an option counts.
SHRINK = {
    "run": ["--updates", "2", "--batch", "4", "--seeds", "1", *_SMALL_TASK],
    "fit": ["--updates", "2", "--batch", "4"],
    "rollout": ["--steps", "40", "--every", "10"],
    "certify": ["--samples", "2", "--steps", "3"],
    "reproduce": shlex.split("--preset smoke --tasks diff1d --models linear --workers 1 --no-estimate"),
}
_SMALL_SGNO_X = shlex.split(
    "--set max_terms=1 --set degree=2 --set stages=2 --set inner_steps=1 --set forcing=false"
)
# Nearly all of a tiny run is compiling: one block instead of seven, one scheme of SGNO-X instead of four.
SHRINK_MODEL = {
    "sgno": shlex.split("--set num_blocks=1 --set num_modes=4"),
    "sgno-x": _SMALL_SGNO_X,
    "sgno-x-start": _SMALL_SGNO_X,
}
# The same for Python: a pattern and what it becomes.
SHRINK_PYTHON = {
    r'sgno\.get_task\("(\w+)"\)': r'sgno.get_task("\1").with_options(num_points=64, num_train_samples=4, '
    r"train_steps=5, num_test_samples=2, test_steps=6)",
    r"updates=\d+, warmup=\d+": "updates=2, warmup=1",
    r"num_modes=26, num_blocks=7": "num_modes=4, num_blocks=1",
}
# The number of blocks that may be marked as not run, so that the list cannot grow unseen.
MOST_NOT_RUN = 8
_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>.+?) -->\n)?^```(?P<kind>sh|python)\n(?P<text>.*?)^```", re.M | re.S
)


class Block(NamedTuple):
    """A fenced block of a page: `sh` or `python`, and why it is not run, if so."""

    kind: str
    text: str
    not_run: str | None


def blocks(page: Path) -> list[Block]:
    found = _BLOCK.finditer(page.read_text())
    return [Block(match["kind"], match["text"], match["reason"]) for match in found]


def commands(text: str) -> list[list[str]]:
    """The lines of a shell block as words, without comments."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def shrunk(words: list[str]) -> list[str]:
    """A command of sgno with less to spend; `--dry-run` and `--statistics` spend nothing to begin with."""
    if "--dry-run" in words:
        return words
    model = SHRINK_MODEL.get(words[words.index("--model") + 1], []) if "--model" in words else []
    return [*words, *SHRINK.get(words[0], []), *model]


@pytest.fixture(scope="module", autouse=True)
def quick_compilation() -> Iterator[None]:
    """Programs that run for milliseconds need not be optimised for seconds."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory) -> Path:
    """One data cache and one compilation cache for all pages."""
    return tmp_path_factory.mktemp("docs-cache")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_everything_on_a_page_runs(page, tmp_path, monkeypatch, shared_cache, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SGNO_CACHE", str(shared_cache))
    # The tables of a page are made for a terminal of the usual width.
    monkeypatch.setenv("COLUMNS", "100")
    for number, block in enumerate(blocks(page)):
        if block.not_run is not None:
            continue
        if block.kind == "python":
            script = tmp_path / f"block_{number}.py"
            text = block.text
            for pattern, small in SHRINK_PYTHON.items():
                text = re.sub(pattern, small, text)
            script.write_text(text)
            runpy.run_path(str(script), run_name="__main__")
            continue
        for words in commands(block.text):
            assert words[0] == "sgno", (
                f"{page.name}: '{' '.join(words)}' is neither sgno nor marked as not run."
            )
            done = CliRunner().invoke(app, shrunk(words[1:]))
            assert done.exit_code == 0, (
                f"{page.name}: {' '.join(words)}\n{done.output}\n{capsys.readouterr().err}"
            )


# The pages of the tasks are made while the site is built, and their commands differ in the name alone.
@pytest.mark.parametrize(("name", "points"), [("ks1d", 64), ("mixdisp2d", 16), ("advdiff3d", 8)])
def test_the_command_of_a_tasks_page_runs(name, points, tmp_path, monkeypatch, shared_cache):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SGNO_CACHE", str(shared_cache))
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "make"))
    ((_, *words),) = commands(importlib.import_module("task_pages").run_it(name))
    done = CliRunner().invoke(app, [*shrunk(words), "--points", str(points)])
    assert done.exit_code == 0, done.output


@pytest.fixture
def tools(monkeypatch) -> Callable[[str], Any]:
    """The scripts that make pages, by name."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "make"))
    return importlib.import_module


def test_every_mistake_gets_the_answer_that_its_page_says(tools, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mistakes = tools("mistakes")
    assert sum(map(len, mistakes.MISTAKES.values())) >= 30
    assert mistakes.page() == mistakes.PAGE.read_text(), "Run: python docs/make/mistakes.py"
    assert not re.search(r"exit code \d|no error", mistakes.page().split("##", 1)[1])


def test_the_tutorial_runs(tools, tmp_path, monkeypatch, shared_cache):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SGNO_CACHE", str(shared_cache))
    tutorial = tools("tutorial")
    cells = json.loads(tutorial.NOTEBOOK.read_text())["cells"]
    printed = "".join(output.get("text", "") for outputs in tutorial.run(cells) for output in outputs)
    coefficients = {
        name: float(number) for number, name in re.findall(r"([+-]\S+) (u\S* ?u?_?x*)$", printed, re.M)
    }
    assert np.isclose(coefficients["u u_x"], -1, rtol=1e-3) and "same step: True" in printed


def test_the_table_of_data_shows_what_was_measured(tools):
    table = tools("wild_table")
    titles = {title: model for model, title in table.MODELS.items()}
    names = {description: row for row, description in table.ROWS.items()}
    known = table.records()
    for page in table.PAGES:
        block = page.read_text().split(table.BEGIN)[1].split(table.END)[0]
        head, _, *rows = [
            line.strip("| ").split(" | ") for line in block.splitlines() if line.startswith("|")
        ]
        assert len(rows) > 15
        for description, *cells in rows:
            for title, cell in zip(head[1:], cells, strict=True):
                assert cell.strip("*") == table.number(known.get((names[description], titles[title]))).strip(
                    "*"
                )


def test_pages_of_tasks_in_the_repository_are_current(tools):
    for name, text in tools("task_pages").committed().items():
        assert (ROOT / "docs" / "tasks" / name).read_text() == text + "\n", (
            "Run: python docs/make/task_pages.py"
        )


def test_every_link_works_in_the_repository():
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "docs" / "tutorial.ipynb",
    ]
    for page in pages:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in link or link.startswith("mailto:"):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page.name} links to {link}, which is not there."
            if anchor and target.suffix == ".md":
                heads = re.findall(r"^#+ (.+)$", target.read_text(), re.M)
                known = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
                assert anchor in known, f"{page.name} links to {link}, but there is no such heading."


def test_what_is_not_run_is_marked_with_a_reason_and_limited():
    marked = [
        (page.name, block.not_run) for page in PAGES for block in blocks(page) if block.not_run is not None
    ]
    for name, reason in marked:
        print(f"not run: {name}: {reason}")
    assert len(marked) <= MOST_NOT_RUN
    stray = sum(page.read_text().count("<!-- not run") for page in PAGES) - len(marked)
    assert stray == 0, "A mark must stand on the line before its block."


def test_make_targets_on_the_pages_exist():
    targets = {
        word for page in PAGES for word in re.findall(r"\bmake ([a-z]+)\b(?=`| |\n)", page.read_text())
    }
    rules = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    mentioned = {target for target in targets if f"`make {target}`" in "".join(p.read_text() for p in PAGES)}
    assert {"demo", "test"} <= rules and mentioned <= rules


def _commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return {name: group.get_command(None, name) for name in group.list_commands(None)}


def _prose() -> dict[str, str]:
    """Every page but that of mistakes, whose commands are meant to be wrong."""
    pages = [*PAGES, ROOT / "CONTRIBUTING.md"]
    return {page.name: page.read_text() for page in pages if page.name != "mistakes.md"}


def test_every_name_that_the_docs_mention_exists():
    for page, text in _prose().items():
        for name in set(re.findall(r"\bsgno(?:\.[A-Za-z_]\w*)+", text)):
            parts = name.split(".")
            if parts[-1] in ("py", "json", "sgno", "md") or f"{name}/" in text:
                continue
            assert _resolves(parts), f"{page} mentions {name}, which does not exist."
        for path in set(re.findall(r"`((?:sgno|docs|tests|validation|results)/[\w/.-]+)`", text)):
            assert "NAME" in path or (ROOT / path).exists(), f"{page} mentions {path}, which does not exist."


def _resolves(parts: list[str]) -> bool:
    for split in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_every_command_and_option_that_the_docs_mention_exists():
    known = _commands()
    options = {
        text for command in known.values() for p in command.params for text in (*p.opts, *p.secondary_opts)
    }
    # The last is of `dask scheduler`.
    options |= {"--help", "--version", "--no-dashboard"}
    for page, text in _prose().items():
        for span in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S)):
            for command in re.findall(r"^sgno ([a-z]+)\b", span):
                assert command in known, f"{page} mentions `{span}`, but there is no command {command}."
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", span):
                assert option in options, f"{page} mentions {option}, which no command has."


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return out


def test_the_site_builds_strictly_and_holds_every_page(site):
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").is_file()
    for name in TASKS:
        assert (site / "tasks" / f"{name}.html").is_file()


def test_the_site_can_be_searched_and_every_page_has_a_title(site):
    page = (site / "tasks" / "index.html").read_text()
    assert 'data-md-component="search"' in page and "iframe-worker.js" in page
    assert (site / "search" / "search_index.json").stat().st_size > 10_000
    for path in site.rglob("*.html"):
        title = re.search(r"<title>(.*?)</title>", path.read_text())
        assert title and not title[1].startswith("Index"), path.name


def test_every_public_name_is_on_the_api_page(site):
    text = (site / "api.html").read_text()
    for name in sgno.__all__:
        assert f"sgno.{name}" in text, f"{name} is missing from the API page."


def test_every_command_is_on_the_page_of_commands(site):
    text = (site / "commands.html").read_text()
    for name in _commands():
        assert f"sgno {name}" in text


def test_task_pages_say_what_was_run_and_what_was_not(site):
    run = {row.name for row in compare(read_store(ROOT / "results" / "desk").runs).rows}
    for name in TASKS:
        text = (site / "tasks" / f"{name}.html").read_text()
        assert ("Not run</strong> so far" in text) == (name not in run)
        assert "paper's medians" in text.replace("&#39;", "'").replace("’", "'")


def test_the_site_needs_nothing_from_elsewhere(site):
    """No script, style, font or picture is fetched from another host."""
    fetched = re.compile(r"<(?:script|img|link|iframe|source)[^>]*(?:src|href)=\"?(https?:)?//", re.I)
    for page in site.rglob("*.html"):
        assert not fetched.search(page.read_text()), f"{page.name} fetches something from elsewhere."


def test_animations_are_small():
    made = list((ROOT / "docs" / "gallery").glob("*.webp"))
    assert {path.stem for path in made} == set(TASKS)
    assert all(path.stat().st_size < 400_000 for path in made)
    kept = [path for path in (ROOT / "docs").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(path.stat().st_size for path in kept) < 6_000_000
    gallery = (ROOT / "docs" / "gallery.md").read_text()
    assert all(path.name in gallery for path in made)
