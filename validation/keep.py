"""What a validation found, beside what it was found with: `results/NAME.json`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sgno.io.files import write_json
from sgno.lab.machine import machine, versions

RESULTS = Path(__file__).parent.parent / "results"


def keep(name: str, content: dict[str, Any]) -> None:
    where = {"versions": versions(), "machine": machine()}
    write_json(
        RESULTS / f"{name}.json",
        {**content, **where, "finished": datetime.now(UTC).isoformat(timespec="seconds")},
    )
