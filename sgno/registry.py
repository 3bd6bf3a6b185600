"""Every model by name: what it is, what it is for, and its settings in each number of dimensions.

The table is plain data. The class of a kind is imported when it is first used, so that listing models takes
no time and a model whose packages are not installed costs nothing.
"""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sgno.errors import InputError, unknown_name
from sgno.io.plain import decode, decode_fields

if TYPE_CHECKING:
    from sgno.config import ModelConfig

Role = Literal["model", "ablation", "recipe", "network", "baseline"]
Settings = Mapping[str, Any]
C = TypeVar("C", bound=type)

# Widths, modes and blocks of a model that a file may ask for: building it takes time before memory.
_LARGEST_SETTING = 4096


@dataclasses.dataclass(frozen=True)
class ModelEntry:
    """A named model.

    - `role`: `model` (of this package), `ablation` (a model with a part changed), `recipe` (a model trained
        in another way), `network` (a network of others), `baseline` (no network).
    - `family`: the name of the model that it is, or is a version of.
    - `kind`: the kind of its config; `settings` are the fields of that config by number of dimensions.
    """

    name: str
    summary: str
    role: Role
    family: str
    kind: str
    settings: Mapping[int, Settings]

    def config(self, num_spatial_dims: int) -> "ModelConfig":
        """**Raises:** `InputError` if there are no settings for this number of dimensions."""
        if num_spatial_dims not in self.settings:
            known = ", ".join(map(str, sorted(self.settings)))
            raise InputError(
                f"Model '{self.name}' has settings for {known} dimensions, not for {num_spatial_dims}."
            )
        return config_from_json({"kind": self.kind, **self.settings[num_spatial_dims]})


# By name, or the class itself if a user registered it.
_KINDS: dict[str, "str | type[ModelConfig]"] = {
    "sgno": "sgno.nn.sgno:SGNOConfig",
    "sgno-x": "sgno.sgno_x:SGNOXConfig",
    "equation": "sgno.identify.equation:EquationConfig",
    "linear": "sgno.nn.linear:LinearConfig",
    "persistence": "sgno.nn.persistence:PersistenceConfig",
    "cno": "sgno.nn.cno:CNOConfig",
    "apebench": "sgno.nn.apebench:ApebenchConfig",
    "conditioned": "sgno.nn.conditioned:ConditionedConfig",
    "walled": "sgno.nn.walled:WalledConfig",
    "normalised": "sgno.nn.normalised:NormalisedConfig",
}

_PAPER = ((11, 26, 7), (5, 10, 9), (10, 6, 2))
_MATCHED = ((9, 26, 6), (5, 10, 5), (7, 6, 2))


def _always(**settings: Any) -> dict[int, Settings]:
    return dict.fromkeys((1, 2, 3), settings)


def _sgno(sizes: tuple[tuple[int, int, int], ...] = _PAPER, **changed: Any) -> dict[int, Settings]:
    fields = ("width", "num_modes", "num_blocks")
    return {d: {**dict(zip(fields, size, strict=True)), **changed} for d, size in enumerate(sizes, start=1)}


def _apebench(*networks: str) -> dict[int, Settings]:
    return {d: {"network": network} for d, network in enumerate(networks, start=1)}


_CNO = {
    1: {"channel_multiplier": 10},
    2: {"channel_multiplier": 8},
    3: {"channel_multiplier": 9, "latent": 32},
}

# fmt: off
_ENTRIES = (
    ModelEntry("sgno", "Spectral Generator Neural Operator, the paper's settings",
               "model", "sgno", "sgno", _sgno()),
    ModelEntry("sgno-matched", "SGNO with as many real numbers as the paper prints parameters",
               "model", "sgno", "sgno", _sgno(_MATCHED)),
    ModelEntry("sgno-unconstrained", "the generator may have any sign",
               "ablation", "sgno", "sgno", _sgno(generator="unconstrained")),
    ModelEntry("sgno-residual", "plain residual update, no exponential, phi1, cap or budget",
               "ablation", "sgno", "sgno", _sgno(update="residual")),
    ModelEntry("sgno-pointwise", "residual update at every point, no transform",
               "ablation", "sgno", "sgno", _sgno(update="pointwise")),
    ModelEntry("sgno-nocorrection", "spectral carry and local path only",
               "ablation", "sgno", "sgno", _sgno(correction="none")),
    ModelEntry("conv", "APEBench's plain convolutional network", "network", "conv", "apebench",
               _apebench("Conv;34;10;relu", "Conv;26;11;relu", "Conv;26;12;relu")),
    ModelEntry("res", "APEBench's ResNet", "network", "res", "apebench",
               _apebench("Res;26;8;relu", "Res;26;5;relu", "Res;25;6;relu")),
    ModelEntry("unet", "APEBench's U-Net", "network", "unet", "apebench",
               _apebench("UNet;12;2;relu", "UNet;10;2;relu", "UNet;11;2;relu")),
    ModelEntry("dil", "APEBench's dilated ResNet", "network", "dil", "apebench",
               _apebench("Dil;2;32;2;relu", "Dil;2;26;2;relu", "Dil;2;27;2;relu")),
    ModelEntry("fno", "APEBench's Fourier Neural Operator", "network", "fno", "apebench",
               _apebench("FNO;12;18;4;gelu", "FNO;10;6;4;gelu", "FNO;5;7;4;gelu")),
    ModelEntry("cno", "Convolutional Neural Operator", "network", "cno", "cno", _CNO),
    ModelEntry("sgno-x", "SGNO-X: complex state-space generator and bilinear closure, bounded for ever",
               "model", "sgno-x", "sgno-x", _always()),
    ModelEntry("sgno-x-start",
               "SGNO-X by its best recipe: the least-squares start, deterministic, no updates",
               "recipe", "sgno-x", "sgno-x", _always(updates="none")),
    ModelEntry("sgno-x-real", "damping alone, no dispersion",
               "ablation", "sgno-x", "sgno-x", _always(generator="real")),
    ModelEntry("sgno-x-cold", "no warm start, everything drawn at random",
               "ablation", "sgno-x", "sgno-x", _always(start="random")),
    ModelEntry("sgno-x-onestage", "no second stage",
               "ablation", "sgno-x", "sgno-x", _always(second_stage=False)),
    ModelEntry("sgno-x-noclosure", "no products",
               "ablation", "sgno-x", "sgno-x", _always(closure="none")),
    ModelEntry("sgno-x-untrapped", "no trapping set",
               "ablation", "sgno-x", "sgno-x", _always(trapping=False)),
    ModelEntry("equation", "SGNO-X in equation form: the PDE found from the data, in your units, as a step",
               "model", "equation", "equation", _always()),
    ModelEntry("linear", "one complex multiplier per Fourier mode, by least squares",
               "baseline", "linear", "linear", _always()),
    ModelEntry("persistence", "the state stays as it is: what every forecast must beat",
               "baseline", "persistence", "persistence", _always()),
)
# fmt: on
MODELS: dict[str, ModelEntry] = {entry.name: entry for entry in _ENTRIES}


def model_names(role: Role, family: str) -> tuple[str, ...]:
    """The names of one role in one family, in the order of the table."""
    return tuple(e.name for e in MODELS.values() if e.role == role and e.family == family)


def describe(name: str) -> ModelEntry:
    """The entry of a model by the name that a record gives it.

    A run may change the settings of a model under its name with a suffix (`sgno-x-start-s4` has four inner
    steps): it counts as an ablation. Any other name that is not known is taken for a network of others.
    """
    if name in MODELS:
        return MODELS[name]
    changed = MODELS.get(name.rpartition("-")[0])
    if changed is not None and changed.role in ("model", "recipe"):
        return dataclasses.replace(changed, name=name, role="ablation")
    return ModelEntry(name, name, "network", name, "apebench", {})


def get_model(name: str, num_spatial_dims: int) -> "ModelConfig":
    """The config of a model, or of an APEBench string such as `FNO;12;18;4;gelu`, in 1, 2 or 3 dimensions.

    **Raises:** `InputError` for an unknown name, listing the known ones.
    """
    if ";" in name:
        return config_from_json({"kind": "apebench", "network": name})
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    return MODELS[name].config(num_spatial_dims)


def register_model(config_class: C) -> C:
    """Make a model of your own known: it saves, loads and fits like one of the package.

        @sgno.register_model
        @dataclasses.dataclass(frozen=True)
        class MyConfig(sgno.ModelConfig):
            \"\"\"My network.\"\"\"

            kind: ClassVar[str] = "mine"
            width: int = 8

            def build(self, grid, *, key):
                return MyNetwork(self, grid, key=key)   # an eqx.Module with static fields config and grid

        fitted = sgno.fit(u, "mine", settings={"width": 16})

    **Raises:** `InputError` if it is not a frozen dataclass of this form, or if another class has its kind.
    """
    from sgno.config import ModelConfig

    named = f"{config_class.__module__}:{config_class.__qualname__}"
    options = getattr(config_class, "__dataclass_params__", None)
    is_frozen = options is not None and options.frozen
    if not (is_frozen and issubclass(config_class, ModelConfig) and hasattr(config_class, "kind")):
        raise InputError(
            f"{named} cannot be registered: give a frozen dataclass that derives from sgno.ModelConfig and "
            "has a class variable `kind: ClassVar[str]`."
        )
    kind = config_class.kind
    other = _KINDS.get(kind)
    other = other if other is None or isinstance(other, str) else f"{other.__module__}:{other.__qualname__}"
    # The cell of a notebook may run again.
    if other not in (None, named) or (kind in MODELS and kind not in _KINDS):
        raise InputError(f"The kind '{kind}' of {named} is taken by {other or 'a model'}. Choose another.")
    _KINDS[kind] = config_class
    summary = (config_class.__doc__ or kind).strip().partition("\n")[0]
    MODELS[kind] = ModelEntry(kind, summary, "model", kind, kind, _always())
    return config_class


def config_class_of(kind: str) -> "type[ModelConfig]":
    """The class of a kind's config."""
    found = _KINDS[kind]
    if isinstance(found, str):
        module, _, name = found.partition(":")
        return getattr(importlib.import_module(module), name)
    return found


def with_settings(config: "ModelConfig", settings: Settings) -> "ModelConfig":
    """A config with fields replaced. A text may stand for any value, as on a command line: `width=8`,
    `forcing=none`, `cutoff=[10]`."""
    changed = decode_fields(type(config), settings, config.kind, text=True)
    return dataclasses.replace(config, **changed)


def config_from_json(content: Any) -> "ModelConfig":
    """The config that `ModelConfig.to_json` wrote.

    **Raises:** `InputError` for an unknown kind or field, or a value of another type.
    """
    from sgno.config import ModelConfig

    if not isinstance(content, Mapping):
        raise InputError(f"The settings of a model are a {type(content).__name__}, not an object.")
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise unknown_name("kind of model", str(kind)[:100], _KINDS)
    fields = {name: value for name, value in content.items() if name != "kind"}
    for name, value in fields.items():
        if type(value) is int and value > _LARGEST_SETTING:
            raise InputError(
                f"The setting {name} of a {kind} model is {value}, but at most {_LARGEST_SETTING} is read."
            )
    try:
        return decode(config_class_of(kind), fields, f"a {kind} model", {ModelConfig: config_from_json})
    except RecursionError as error:
        raise InputError("The settings of a model are nested too deeply.") from error
