"""`python -m benchmarks.speed`: measure speed and memory on this machine, ratios first, then times.

Compares SGNO with a PyTorch reference implementation of it (needs the extra "bench"), the baselines under our
loop and under APEBench's trainer, and the reference solver. An interrupted run goes on where it stopped."""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.speed.run import run_benchmark
from benchmarks.speed.text import lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("only", nargs="*", help="groups, or beginnings of their names; all by default")
    parser.add_argument("--out", type=Path, default=Path("results/bench"), help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="a smoke run on sizes that say nothing")
    parser.add_argument("--json", action="store_true", help="the summary as JSON, as the last line")
    parser.add_argument("--again", action="store_true", help="measure even what is already there")
    chosen = parser.parse_args()
    content = run_benchmark(
        chosen.out,
        small=chosen.quick,
        only=chosen.only,
        again=chosen.again,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    print("\n".join(lines(content)))
    if chosen.json:
        print(json.dumps(content["summary"], allow_nan=False))


if __name__ == "__main__":
    main()
