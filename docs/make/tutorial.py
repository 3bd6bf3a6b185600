"""The tutorial: `python docs/make/tutorial.py` runs its notebook and keeps what the cells print and draw.

A notebook is JSON; running one needs no Jupyter.
"""

import ast
import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "tutorial.ipynb"


def run(cells: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The outputs of every code cell, run in order in one namespace in the folder where we are."""
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    made = []
    for number, cell in enumerate(cell for cell in cells if cell["cell_type"] == "code"):
        source, printed = "".join(cell["source"]), io.StringIO()
        body = ast.parse(source, f"cell {number + 1}")
        last = body.body.pop() if isinstance(body.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(printed):
            exec(compile(body, f"cell {number + 1}", "exec"), names)
            value = None if last is None else eval(compile(ast.Expression(last.value), "", "eval"), names)
        outputs = []
        if printed.getvalue():
            outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
        if plt.get_fignums():
            picture = io.BytesIO()
            plt.savefig(picture, dpi=70, bbox_inches="tight")
            plt.close("all")
            data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": "<Figure>"}
            outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
        elif value is not None:
            data = {"text/plain": repr(value)}
            outputs.append(
                {"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": number + 1}
            )
        made.append(outputs)
    return made


def main() -> None:
    content = json.loads(NOTEBOOK.read_text())
    outputs = iter(run(content["cells"]))
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code):
        cell["outputs"], cell["execution_count"] = next(outputs), number + 1
    NOTEBOOK.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
