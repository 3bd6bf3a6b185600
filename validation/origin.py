"""Where the dependencies come from: `make origin` writes their hashes, licences and a bill of materials.

pip resolves the package with its extras under constraints.txt and installs nothing. Written are `hashes.txt`,
in the form of `pip install --require-hashes`, and `results/sbom.json` (CycloneDX 1.5). Neither names a
registry: a hash is the same wherever a file comes from. Hashes are those for this platform and Python.
"""

import importlib.metadata
import json
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# What users install; torch, whose files differ by accelerator, is left out.
EXTRAS = "paper,report,data,cluster,tracking,stablehlo,onnx"
_LICENCE = "License :: OSI Approved :: "
# Names of licences that say the same thing in the words of SPDX.
_SPDX: dict[str, str] = {
    "Apache Software License": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "MIT License": "MIT",
    "The MIT License (MIT)": "MIT",
    "BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


def resolved() -> list[dict[str, Any]]:
    """What pip would install, with the hash and the metadata of each file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed"),
                *("--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")),
                *("--report", str(report), f"{ROOT}[{EXTRAS}]"),
            ],
            check=True,
        )
        installed = json.loads(report.read_text())["install"]
    others = [one for one in installed if one["metadata"]["name"] != "sgno"]
    return sorted(others, key=lambda one: one["metadata"]["name"].lower())


def licence(metadata: dict[str, Any]) -> str:
    """The licence as the package states it, in the words of SPDX where they are known."""
    # Older pips leave an SPDX expression out of their report; the installed package has it.
    try:
        own = importlib.metadata.distribution(metadata["name"])
        stated = own.metadata.get("License-Expression")  # pyright: ignore[reportAttributeAccessIssue]
        texts = [file.read_text() for file in own.files or [] if file.name.upper().startswith("LICENSE")]
    except importlib.metadata.PackageNotFoundError:
        stated, texts = None, []
    if stated := metadata.get("license_expression") or stated:
        return stated
    named: list[str] = [
        text.removeprefix(_LICENCE) for text in metadata.get("classifier", []) if text.startswith(_LICENCE)
    ]
    first_line = (metadata.get("license") or "").strip().partition("\n")[0]
    # Some put the whole text there.
    found: list[str] = named or ([first_line] if 0 < len(first_line) < 60 else [])
    if not found and texts:
        found = [texts[0].strip().partition("\n")[0]]
    return " AND ".join(_SPDX.get(one, one) for one in found) or "not stated"


def main() -> None:
    components, lines = [], []
    for one in resolved():
        metadata = one["metadata"]
        name, version = metadata["name"], metadata["version"]
        digest = one["download_info"]["archive_info"]["hashes"]["sha256"]
        plain = re.sub(r"[-_.]+", "-", name).lower()
        lines.append(f"{plain}=={version} --hash=sha256:{digest}\n")
        components.append(
            {
                "type": "library",
                "bom-ref": f"pkg:pypi/{plain}@{version}",
                "name": name,
                "version": version,
                "purl": f"pkg:pypi/{plain}@{version}",
                "licenses": [{"license": {"name": licence(metadata)}}],
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        )
    where = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    (ROOT / "hashes.txt").write_text(
        f"# Made by `make origin` for {where}: extras {EXTRAS}.\n" + "".join(lines)
    )
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": "sgno",
                "name": "sgno",
                "version": importlib.metadata.version("sgno"),
                "licenses": [{"license": {"id": "MIT"}}],
            },
            "properties": [{"name": "platform", "value": where}, {"name": "extras", "value": EXTRAS}],
        },
        "components": components,
    }
    (ROOT / "results" / "sbom.json").write_text(json.dumps(content, indent=1) + "\n")
    unstated = [one["name"] for one in components if one["licenses"][0]["license"]["name"] == "not stated"]
    print(f"{len(components)} packages; licence not stated: {', '.join(unstated) or 'none'}")


if __name__ == "__main__":
    main()
