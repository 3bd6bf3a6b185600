"""Options that several commands share: how to train, what to change in a model, where results go."""

from pathlib import Path
from typing import Annotated

import typer

from sgno.errors import InputError

Model = Annotated[str, typer.Option(help="A model of `sgno models`, or an APEBench network string.")]
Seeds = Annotated[int, typer.Option(help="How many network seeds, starting from --first-seed.")]
FirstSeed = Annotated[int, typer.Option(help="The first network seed.")]
Updates = Annotated[int | None, typer.Option(help="Training updates. [default: the protocol's 10,000]")]
Batch = Annotated[int | None, typer.Option(help="Batch size. [default: 20]")]
Rate = Annotated[float | None, typer.Option(help="Peak learning rate. [default: 1e-3]")]
Warmup = Annotated[int | None, typer.Option(help="Warm-up updates. [default: 2,000]")]
Unroll = Annotated[int | None, typer.Option(help="Train through so many steps. [default: 1]")]
Pushforward = Annotated[bool, typer.Option(help="Cut the gradient between unrolled steps.")]
Noise = Annotated[float | None, typer.Option(help="Input noise, as a fraction of the data's spread.")]
Precision = Annotated[str, typer.Option(help="float32 or float64.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="A setting of the model, for example --set width=8.")
]
Out = Annotated[Path, typer.Option(help="Folder of finished runs; a finished run answers from it.")]
Track = Annotated[
    str | None,
    typer.Option(help="Also track with tensorboard, wandb (offline) or both: --track tensorboard,wandb"),
]
CheckpointSeconds = Annotated[float, typer.Option(help="Seconds between a run's checkpoints.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object as the last line of standard output.")]
Cache = Annotated[
    Path | None, typer.Option(help="Folder of generated data. [default: $SGNO_CACHE or the user's cache]")
]


def check_checkpoint_seconds(seconds: float) -> None:
    if not seconds >= 0:
        raise InputError(f"--checkpoint-seconds {seconds} must not be negative.")
