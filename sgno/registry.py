"""Every model by name, with one setting per spatial dimension."""

import contextlib
import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from sgno.config import ModelConfig
from sgno.errors import InputError, unknown_name
from sgno.io.plain import checked_fields
from sgno.nn.apebench_adapter import ApebenchConfig
from sgno.nn.cno import CNOConfig
from sgno.nn.linear import LinearConfig
from sgno.nn.normalised import NormalisedConfig
from sgno.nn.sgno import SGNOConfig
from sgno.sgno_x.config import SGNOXConfig


class ModelEntry(NamedTuple):
    """A named model: what it is, and its settings in 1D, 2D and 3D."""

    summary: str
    configs: Mapping[int, ModelConfig]


_SGNO = {1: SGNOConfig(11, 26, 7), 2: SGNOConfig(5, 10, 9), 3: SGNOConfig(10, 6, 2)}


def _sgno_with(**settings: Any) -> dict[int, ModelConfig]:
    return {d: dataclasses.replace(config, **settings) for d, config in _SGNO.items()}


def _sgno_x(**settings: Any) -> dict[int, ModelConfig]:
    return dict.fromkeys((1, 2, 3), SGNOXConfig(**settings))


def _apebench(*networks: str) -> dict[int, ModelConfig]:
    return {d: ApebenchConfig(network) for d, network in enumerate(networks, start=1)}


MODELS: dict[str, ModelEntry] = {
    "sgno": ModelEntry("Spectral Generator Neural Operator, the paper's settings", _SGNO),
    "sgno-matched": ModelEntry(
        "SGNO with as many real numbers as the paper prints parameters",
        {1: SGNOConfig(9, 26, 6), 2: SGNOConfig(5, 10, 5), 3: SGNOConfig(7, 6, 2)},
    ),
    "sgno-unconstrained": ModelEntry(
        "ablation: the generator may have any sign", _sgno_with(generator="unconstrained")
    ),
    "sgno-residual": ModelEntry(
        "ablation: plain residual update, no exponential, phi1, cap or budget", _sgno_with(update="residual")
    ),
    "sgno-nocorrection": ModelEntry(
        "ablation: spectral carry and local path only", _sgno_with(correction="none")
    ),
    "conv": ModelEntry(
        "APEBench's plain convolutional network",
        _apebench("Conv;34;10;relu", "Conv;26;11;relu", "Conv;26;12;relu"),
    ),
    "res": ModelEntry("APEBench's ResNet", _apebench("Res;26;8;relu", "Res;26;5;relu", "Res;25;6;relu")),
    "unet": ModelEntry("APEBench's U-Net", _apebench("UNet;12;2;relu", "UNet;10;2;relu", "UNet;11;2;relu")),
    "dil": ModelEntry(
        "APEBench's dilated ResNet", _apebench("Dil;2;32;2;relu", "Dil;2;26;2;relu", "Dil;2;27;2;relu")
    ),
    "fno": ModelEntry(
        "APEBench's Fourier Neural Operator",
        _apebench("FNO;12;18;4;gelu", "FNO;10;6;4;gelu", "FNO;5;7;4;gelu"),
    ),
    "cno": ModelEntry(
        "Convolutional Neural Operator", {1: CNOConfig(10), 2: CNOConfig(8), 3: CNOConfig(9, latent=32)}
    ),
    "sgno-x": ModelEntry(
        "SGNO-X: complex state-space generator and bilinear closure, bounded for ever",
        _sgno_x(),
    ),
    "sgno-x-start": ModelEntry(
        "SGNO-X by its best recipe: the least-squares start, deterministic, no updates",
        _sgno_x(updates="none"),
    ),
    "sgno-x-real": ModelEntry("ablation: damping alone, no dispersion", _sgno_x(generator="real")),
    "sgno-x-cold": ModelEntry("ablation: no warm start, everything drawn at random", _sgno_x(start="random")),
    "sgno-x-onestage": ModelEntry("ablation: no second stage", _sgno_x(second_stage=False)),
    "sgno-x-latent": ModelEntry(
        "ablation: latent copies are carried, not the state", _sgno_x(carry="latent")
    ),
    "sgno-x-noclosure": ModelEntry("ablation: no products", _sgno_x(closure="none")),
    "sgno-x-untrapped": ModelEntry("ablation: no trapping set", _sgno_x(trapping=False)),
    "linear": ModelEntry(
        "one complex multiplier per Fourier mode, by least squares", dict.fromkeys((1, 2, 3), LinearConfig())
    ),
}

SGNO_X_ABLATIONS = tuple(
    name
    for name, entry in MODELS.items()
    if name.startswith("sgno-x-") and entry.summary.startswith("ablation")
)

# Widths, modes and blocks of a model that a file may ask for: building it takes time before memory.
_LARGEST_SETTING = 4096

_KINDS: dict[str, type[ModelConfig]] = {
    NormalisedConfig.kind: NormalisedConfig,
    **{config.kind: type(config) for entry in MODELS.values() for config in entry.configs.values()},
}


def get_model(name: str, num_spatial_dims: int) -> ModelConfig:
    """The settings of a model in so many dimensions, or of an APEBench string such as `FNO;12;18;4;gelu`.

    **Raises:** `InputError` for an unknown name, listing the known ones.
    """
    if ";" in name:
        return ApebenchConfig(name)
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    configs = MODELS[name].configs
    if num_spatial_dims not in configs:
        raise InputError(
            f"Model '{name}' has settings for {sorted(configs)} dimensions, not {num_spatial_dims}."
        )
    return configs[num_spatial_dims]


def with_settings(config: ModelConfig, settings: Mapping[str, str]) -> ModelConfig:
    """A config with fields replaced by values given as text, as on a command line."""
    fields = get_type_hints(type(config))
    fields = {field.name: fields[field.name] for field in dataclasses.fields(config)}
    changed = {}
    for name, text in settings.items():
        if name not in fields:
            raise unknown_name(f"setting of {config.kind}", name, fields)
        changed[name] = _parse_like(fields[name], name, text)
    return dataclasses.replace(config, **changed)


def _parse_like(kind: Any, name: str, text: str) -> Any:
    """A text as a value of a field's type; of several types the first that fits, `none` where None is one."""
    choices = get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    for choice in choices:
        if choice is type(None):
            if text.lower() == "none":
                return None
        elif choice is bool:
            if text.lower() in ("true", "false"):
                return text.lower() == "true"
        elif choice in (int, float):
            with contextlib.suppress(ValueError):
                return choice(text)
        elif choice is str or get_origin(choice) is Literal:
            return text
    plain = " or ".join(getattr(choice, "__name__", str(choice)) for choice in choices)
    raise InputError(f"{name}={text} does not fit: {name} takes {plain.replace('NoneType', 'none')}.")


def config_from_json(content: Mapping[str, Any]) -> ModelConfig:
    """The config that `ModelConfig.to_json` wrote.

    **Raises:** `InputError` for an unknown kind or field.
    """
    if not isinstance(content, Mapping):
        raise InputError(f"The settings of a model are a {type(content).__name__}, not an object.")
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise unknown_name("kind of model", str(kind)[:100], _KINDS)
    what = f"a {kind} model"
    fields = checked_fields(_KINDS[kind], {k: v for k, v in content.items() if k != "kind"}, what)
    for name, value in fields.items():
        if type(value) is int and value > _LARGEST_SETTING:
            raise InputError(
                f"The setting {name} of {what} is {value}, but at most {_LARGEST_SETTING} is read."
            )
    return _KINDS[kind](**fields)
