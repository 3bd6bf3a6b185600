"""What mkdocs runs while it builds the site: equations, pages of results, of the commands, of the API."""

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

# mkdocs loads a hook by its path, so its neighbours are found only with their folder on the path.
sys.path.insert(0, str(Path(__file__).parent))

import api_page
import command_page
import equations
import sgno_x_page
import speed_page
import task_pages


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fences called `math` become pictures, and the pages that are made here get their place."""
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {}).setdefault("custom_fences", [])
    fences.append({"name": "math", "class": "math", "format": equations.fence})
    config.nav = [_with_tasks(entry) for entry in config.nav or []]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is generated. Pages of these names in the repository, which say less, give way to them."""
    root = Path(config.config_file_path).parent
    pages = {
        **task_pages.pages(root / "results" / "desk"),
        **speed_page.pages(root / "results" / "bench"),
        **sgno_x_page.pages(root / "results" / "desk"),
        "commands.md": command_page.page(),
        "api.md": api_page.page(),
    }
    for path, content in pages.items():
        if (kept := files.get_file_from_path(path)) is not None:
            files.remove(kept)
        files.append(File.generated(config, path, content=content))
    return files


def _with_tasks(entry: object) -> object:
    return {"Tasks": task_pages.nav()} if entry == {"Tasks": "tasks/"} else entry
