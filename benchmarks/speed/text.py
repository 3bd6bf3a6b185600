"""The benchmark in words: ratios first, then times."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.speed.summary import rollout_seconds, rows


def lines(content: Mapping[str, Any]) -> Iterator[str]:
    """What a reader should see, line by line."""
    summary, groups = content["summary"], content["groups"]
    yield "Times longer than sgno or our loop (range over the repeats)"
    for r in summary["speed"]:
        yield f"  {r['what']:<58} {r['value']:8.2f}x  ({r['low']:.2f} to {r['high']:.2f})"
    yield "First update, from after the imports on"
    for what, value in summary["first_update"].items():
        yield f"  {what:<58} {value:8.2f}x"
    yield "Peak memory compared with sgno: resident above the imports, once compiled"
    for what, value in summary["memory"].items():
        yield f"  {what:<58} {value:8.2f}x"
    yield "Share of an update spent on norm caps, generator and budget"
    for what, value in summary["coefficients_share_of_update"].items():
        yield f"  {what:<58} {value:8.1%}"
    if summary["matmul_gflops"] is not None:
        yield f"Matrix products reach {summary['matmul_gflops']:.0f} GFLOP/s; an SGNO update reaches of that"
        for what, value in summary["share_of_matmul_rate"].items():
            yield f"  {what:<58} {value:8.1%}"
    yield "Largest growth beyond N log N between two grids (at most 1 is within)"
    for what, value in summary["growth_over_n_log_n"].items():
        if value is not None:
            yield f"  {what:<58} {value:8.2f}x"
    yield "Measured"
    for name in groups:
        for label, record in rows(groups, name).items():
            yield f"  {name + ': ' + label:<58} {_time(record)}"


def _time(record: Mapping[str, Any]) -> str:
    low, high = record["spread"]
    text = f"{1e3 * record['seconds']:9.1f} ms ({1e3 * low:.1f} to {1e3 * high:.1f})"
    text += f", compile {record['compile_seconds']:.1f} s"
    if "peak_megabytes" in record:
        text += f", peak {record['peak_megabytes']:.0f} MB"
    if record["case"]["work"] == "rollout":
        text += f", 200 steps {rollout_seconds(record):.2f} s"
    return text
