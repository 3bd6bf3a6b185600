"""The playground: our JavaScript gives ONNX Runtime's numbers for every operator, and JAX's over steps."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from browser import installed, open_browser
from onnx import TensorProto, helper, numpy_helper
from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait
from typer.testing import CliRunner

import sgno
from sgno.cli.app import app
from sgno.export.onnx import OPSET, export_onnx
from sgno.export.web import write_playground

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[1]
WEB = ROOT / "sgno" / "export" / "web"
FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
NAN, INF = float("nan"), float("inf")

# Reads jobs [{file, shape, steps}], takes the state of each from FILE.in, and writes FILE.out.
_RUNNER = """
const fs = require("fs"), { OnnxStep } = require(process.argv[1] + "/onnx.js");
for (const { file, steps, plain } of JSON.parse(process.argv[2])) {
  const bytes = fs.readFileSync(file + ".in");
  let u = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
  const step = plain ? new OnnxStep(fs.readFileSync(file), 1, null) : new OnnxStep(fs.readFileSync(file), 1);
  for (let i = 0; i < steps; i++) u = step.run(u);
  fs.writeFileSync(file + ".out", Buffer.from(Float32Array.from(u).buffer));
}
"""


def run_in_node(jobs: list[tuple[Path, np.ndarray, int]], plain: bool = False) -> list[np.ndarray]:
    """The last state of each rollout; `plain` leaves WebAssembly out."""
    for path, u, _ in jobs:
        Path(f"{path}.in").write_bytes(np.ascontiguousarray(u, "<f4").tobytes())
    listed = json.dumps([{"file": str(path), "steps": n, "plain": plain} for path, _, n in jobs])
    subprocess.run([installed("node"), "-e", _RUNNER, str(WEB), listed], check=True, timeout=300)
    return [np.fromfile(f"{path}.out", "<f4") for path, _, _ in jobs]


def _one(kind: str, *others, out=FLOAT, first: bool = True, **attributes) -> tuple:
    """One operator of the state and constants, its result made a number again."""
    return kind, others, out, first, attributes


def _line(n: int) -> np.ndarray:
    return np.linspace(-1, 1, n, dtype=np.float32)


# Every operator that the export writes, with the shapes in which it meets them.
OPERATORS = {
    **{kind: _one(kind) for kind in (
        "Exp", "Erf", "Tanh", "Sigmoid", "Sin", "Cos", "Sign", "Floor", "Neg", "Abs", "Identity",
        "Reciprocal",
    )},
    **{kind: _one(kind, np.float32(0.3)) for kind in ("Add", "Sub", "Mul", "Div", "Max", "Min")},
    **{f"{kind} of rows": _one(kind, _line(6)) for kind in ("Add", "Max", "Min")},
    "Mul of columns": _one("Mul", _line(4)[:, None]),
    "Sub from a matrix": _one("Sub", np.ones((3, 1, 1, 6), np.float32), first=False),
    **{kind: _one(kind, np.float32(0.2), out=BOOL) for kind in (
        "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal",
    )},
    **{kind: _one(kind, out=BOOL) for kind in ("IsNaN", "IsInf")},
    "Pow": _one("Pow", np.float32(2)),
    "Sqrt": _one("Sqrt"),
    "Log": _one("Log"),
    "Transpose": _one("Transpose", perm=[0, 3, 1, 2]),
    "Reshape": _one("Reshape", np.array([-1, 4, 18], np.int64)),
    "Expand": _one("Expand", np.array([2, 3, 4, 6], np.int64)),
    "Slice": _one("Slice", *(np.array(v, np.int64) for v in ([1, 0], [3, 6], [2, 3], [1, 2]))),
    "Gather": _one("Gather", np.array([2, 0, 2], np.int64), axis=1),
    "Gather of one": _one("Gather", np.int64(1), axis=1),
    "Concat": _one("Concat", np.ones((1, 3, 4, 2), np.float32), axis=3),
    "ReduceSum": _one("ReduceSum", np.array([1, 3], np.int64), keepdims=0),
    "ReduceMax": _one("ReduceMax", axes=[2, 3], keepdims=0),
    "ReduceMin": _one("ReduceMin", axes=[1], keepdims=0),
    "MatMul": _one("MatMul", _line(42).reshape(6, 7)),
    "MatMul from the left": _one("MatMul", _line(20).reshape(5, 4), first=False),
    "MatMul for each": _one("MatMul", _line(90).reshape(1, 3, 6, 5)),
    "Conv": _one("Conv", _line(54).reshape(2, 3, 3, 3), strides=[1, 2],
                 dilations=[2, 1], pads=[2, 1, 2, 0], group=1),
    "Conv by groups": _one("Conv", _line(27).reshape(3, 1, 3, 3), strides=[1, 1],
                           dilations=[1, 1], pads=[1, 1, 1, 1], group=3),
}  # fmt: skip
# Those whose operands are truth values, whose shapes matter, or which need more than one node.
GRAPHS = {
    "Where, And, Or, Not": [
        ("Greater", ["u", "zero"], "a", {}),
        ("Less", ["u", "one"], "b", {}),
        ("And", ["a", "b"], "c", {}),
        ("Or", ["a", "b"], "d", {}),
        ("Not", ["c"], "e", {}),
        ("Where", ["e", "u", "one"], "f", {}),
        ("Cast", ["d"], "g", {"to": FLOAT}),
        ("Add", ["f", "g"], "out", {}),
    ],
    "Shape": [
        ("Shape", ["u"], "s", {}),
        ("Gather", ["s", "first"], "n", {"axis": 0}),
        ("Concat", ["n", "rest"], "all", {"axis": 0}),
        ("Expand", ["one", "all"], "ones", {}),
        ("Add", ["u", "ones"], "out", {}),
    ],
}
_CONSTANTS = {
    "zero": np.float32(0), "one": np.float32(1), "first": np.array([0], np.int64),
    "rest": np.array([3, 4, 6], np.int64),
}  # fmt: skip


def _write(path: Path, nodes: list, constants: dict) -> None:
    graph = helper.make_graph(
        nodes,
        "step",
        [helper.make_tensor_value_info("u", FLOAT, ["batch", 3, 4, 6])],
        [helper.make_tensor_value_info("out", FLOAT, None)],
        initializer=[numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 8
    onnx.save(model, path)


@pytest.fixture(scope="module")
def operators(tmp_path_factory) -> dict[str, Path]:
    folder, files = tmp_path_factory.mktemp("operators"), {}
    for name, (kind, others, out, first, attributes) in OPERATORS.items():
        constants = {f"c{i}": value for i, value in enumerate(others)}
        inputs = ["u", *constants] if first else [*constants, "u"]
        result = "out" if out == FLOAT else "truth"
        nodes = [helper.make_node(kind, inputs, [result], **attributes)]
        if out != FLOAT:
            nodes.append(helper.make_node("Cast", ["truth"], ["out"], to=FLOAT))
        files[name] = folder / f"{len(files)}.onnx"
        _write(files[name], nodes, constants)
    for name, lines in GRAPHS.items():
        files[name] = folder / f"{len(files)}.onnx"
        nodes = [helper.make_node(kind, inputs, [out], **more) for kind, inputs, out, more in lines]
        _write(files[name], nodes, _CONSTANTS)
    return files


@pytest.mark.parametrize("plain", [False, True], ids=["with WebAssembly", "without"])
def test_every_operator_gives_the_numbers_of_onnx_runtime(operators, plain):
    u = np.random.default_rng(0).normal(size=(1, 3, 4, 6)).astype(np.float32) * 2
    u[0, 0, 0] = [0.2, -0.0, NAN, INF, -INF, 5.0]
    # What ONNX Runtime makes of NaN in a reduction depends on where it stands; ours keeps it.
    states = [np.nan_to_num(u, posinf=9, neginf=-9) if name.startswith("Reduce") else u for name in operators]
    found = run_in_node([(path, v, 1) for path, v in zip(operators.values(), states, strict=True)], plain)
    for (name, path), v, ours in zip(operators.items(), states, found, strict=True):
        with np.errstate(all="ignore"):
            expected = np.asarray(onnxruntime.InferenceSession(path).run(None, {"u": v})[0]).reshape(-1)
        np.testing.assert_allclose(ours, expected, rtol=2e-6, atol=2e-6, err_msg=name)


def test_large_products_give_the_same_numbers(tmp_path):
    """Those that WebAssembly takes, with edges that fill no tile."""
    rng, jobs = np.random.default_rng(1), []
    for rows, inner, columns in ((33, 64, 64), (64, 33, 17), (5, 130, 41), (1, 100, 200)):
        matrix = rng.normal(size=(inner, columns)).astype(np.float32)
        left = rng.normal(size=(1, 2, rows, inner)).astype(np.float32)
        path = tmp_path / f"{rows}.onnx"
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["u", "m"], ["out"])], "step",
            [helper.make_tensor_value_info("u", FLOAT, [1, 2, rows, inner])],
            [helper.make_tensor_value_info("out", FLOAT, None)],
            initializer=[numpy_helper.from_array(matrix, "m")],
        )  # fmt: skip
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)]), path)
        jobs.append((path, left, 1, left.astype(np.float64) @ matrix))
    for ours, (*_, expected) in zip(run_in_node([job[:3] for job in jobs]), jobs, strict=True):
        np.testing.assert_allclose(ours, expected.reshape(-1), atol=2e-5)


def test_every_operator_of_the_export_is_tested_here():
    text = "".join(path.read_text() for path in (ROOT / "sgno" / "export" / "onnx").glob("*.py"))
    emitted = set(re.findall(r'(?:node\(\s*|": )"([A-Z][A-Za-z]+)"', text))
    emitted |= set(re.findall(r'\("reduce_\w+", "(\w+)"\)', text)) | {"Add", "Sub", "ReduceSum"}
    tested = {kind for kind, *_ in OPERATORS.values()} | {line[0] for g in GRAPHS.values() for line in g}
    assert {"MatMul", "Erf", "Where", "ReduceMax", "Conv"} <= emitted
    assert emitted <= tested, f"Not tested: {emitted - tested}"


# Chaos multiplies the rounding of ks1d by about 10 in 50 steps: at 100 it is 1e-4 between any two runtimes.
@pytest.mark.parametrize(("name", "steps"), [("ks1d/sgno-x", 50), ("ks1d/sgno", 100), ("kdv1d/sgno-x", 100)])
def test_a_rollout_gives_the_numbers_of_jax(name, steps, tmp_path):
    step, path = sgno.load(name), tmp_path / "step.onnx"
    export_onnx(path, step, step.grid)
    (ours,) = run_in_node([(path, _start(step.grid), steps)])
    expected = np.asarray(sgno.rollout(step, _start(step.grid), steps))[-1]
    assert np.abs(ours.reshape(expected.shape) - expected).max() < 1e-4 * np.abs(expected).max()


def test_a_plane_gives_the_numbers_of_onnx_runtime(tmp_path):
    step, path = sgno.load("kolm2d/sgno-x"), tmp_path / "step.onnx"
    export_onnx(path, step, step.grid)
    u = _start(step.grid)[None]
    (ours,) = run_in_node([(path, u, 100)])
    session = onnxruntime.InferenceSession(path)
    for _ in range(100):
        (u,) = session.run(None, {"u": u})
    u = np.asarray(u)
    assert np.abs(ours.reshape(u.shape) - u).max() < 1e-4 * np.abs(u).max()


def _start(grid: sgno.Grid) -> np.ndarray:
    x = np.meshgrid(*(2 * np.pi * np.arange(n) / n for n in grid.points), indexing="ij")
    return np.asarray(sum(np.cos((i + 1) * a + i) + np.sin(2 * a) for i, a in enumerate(x)), np.float32)[None]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    steps = {name: sgno.load(name) for name in ("ks1d/sgno-x", "ks1d/sgno", "mixdisp2d/sgno-x")}
    starts = [(f"start of {name}", _start(step.grid)) for name, step in steps.items()]
    write_playground(path, steps, starts, title="</script><b>A title</b>", about="& about", version="0")
    return path


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> Iterator[webdriver.Chrome]:
    browser = open_browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.quit()


@pytest.fixture
def opened(driver, page) -> webdriver.Chrome:
    driver.get(page.as_uri())
    driver.execute_async_script("playground.ready.then(arguments[0])")
    return driver


def _state(browser: webdriver.Chrome) -> np.ndarray:
    return np.array(browser.execute_script("return [...playground.state()]"), np.float32)


def _choose(browser: webdriver.Chrome, name: str) -> None:
    browser.execute_async_script(
        "const s = document.getElementById('first'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('change')); const done = arguments[1];"
        "(function wait() { document.getElementById('status').textContent.startsWith('Loading') "
        "|| !document.querySelector('#view-first figcaption').textContent.startsWith(arguments[0]) "
        "? setTimeout(wait, 20) : done(); }).apply(null)".replace("arguments[0])", "s.value)"),
        name,
    )


def test_the_page_rolls_out_as_jax_does_and_says_nothing_to_the_console(opened):
    opened.execute_script("playground.advance(50)")
    step = sgno.load("ks1d/sgno-x")
    expected = np.asarray(sgno.rollout(step, _start(step.grid), 50))[-1].reshape(-1)
    assert np.abs(_state(opened) - expected).max() < 1e-4 * np.abs(expected).max()
    assert opened.execute_script("return playground.step()") == 50
    assert "The two differ by" in opened.find_element("id", "status").text
    opened.execute_script("playground.advance(50)")
    assert np.isfinite(_state(opened)).all()
    assert opened.get_log("browser") == []


def test_drawing_changes_the_state(opened):
    before = _state(opened)
    canvas = opened.find_element("css selector", "#view-first .field")
    webdriver.ActionChains(opened).move_to_element(canvas).click_and_hold().move_by_offset(
        20, 30
    ).release().perform()
    after = _state(opened)
    changed = np.abs(after - before) > 1e-3
    assert changed[75:90].all() and changed.mean() < 0.5
    _choose(opened, "mixdisp2d/sgno-x")
    before = _state(opened)
    opened.execute_script("playground.paint(0.5, 0.5)")
    change = (_state(opened) - before).reshape(64, 64)
    assert change[32, 32] == change.max() > 0 and abs(change[0, 0]) < 1e-6
    opened.execute_script("playground.advance(2)")
    assert opened.get_log("browser") == []


def test_it_plays_pauses_and_scrubs(opened):
    button, step = opened.find_element("id", "play"), "return playground.step()"
    button.click()
    WebDriverWait(opened, 60).until(lambda d: d.execute_script(step) > 5)
    button.click()
    reached = opened.execute_script(step)
    opened.execute_script(
        "const s = document.getElementById('scrub'); s.value = 2; s.dispatchEvent(new Event('input'))"
    )
    assert opened.execute_script(step) == 2 < reached
    opened.find_element("id", "once").click()
    assert opened.execute_script(step) == 3
    opened.find_element("id", "again").click()
    WebDriverWait(opened, 60).until(lambda d: d.execute_script(step) == 0)


def test_a_phone_has_no_sideways_scroll(opened):
    opened.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True},
    )
    try:
        for name in ("ks1d/sgno", "mixdisp2d/sgno-x"):
            _choose(opened, name)
            assert opened.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_command_writes_a_page_and_keeps_what_is_there(tmp_path):
    out, states = tmp_path / "page.html", tmp_path / "u.npy"
    np.save(states, _start(sgno.Grid(1, (160,))))
    command = ["play", "adv1d/sgno-x", "--initial", str(states), "--out", str(out)]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["models"] == ["adv1d/sgno-x"] and out.stat().st_size < 300_000
    assert not re.search(r'(?:src|href)="?https?:', out.read_text())
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 2 and "exists already" in again.stderr
    wrong = CliRunner().invoke(app, ["play", "kolm2d/sgno-x", "--initial", str(states), "--out", f"{out}2"])
    assert wrong.exit_code == 2 and not Path(f"{out}2").exists()
