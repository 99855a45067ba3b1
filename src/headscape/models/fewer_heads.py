"""Models with fewer heads than their config says: how they are built again from a folder.

The config of a pruned model holds a record under the key ``headscape_pruning``: which heads every layer keeps.
If the config could not be edited so that transformers builds the right shapes by itself, the model is built
whole (without memory: on the meta device), cut to the record's shapes, and filled by ``from_pretrained``. No
code from the folder is run: the class comes from transformers or headscape, by the name that the config gives.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headscape.errors import FileFormatError, HeadscapeError, ModelError
from headscape.models.adapters.protocol import LayerHeads
from headscape.models.anatomy import adapter_for
from headscape.models.own_models import model_class
from headscape.models.whole_weights import load_whole, require_sane_sizes
from headscape.tensor.safe_reading import read_json_object
from headscape.tensor.store import check_format

KEY = "headscape_pruning"
KIND = "pruning"
NEWEST = 1


def pruning_record(config: Any) -> Mapping[str, Any] | None:
    """Return the record of removed heads in a model's config, or None if there is none."""
    record: Mapping[str, Any] | None = getattr(config, KEY, None)
    return record


def layers_of(record: Any, path: Path) -> tuple[LayerHeads, ...]:
    """Return the layers of a record, or raise a :class:`FileFormatError` if it is damaged or too new."""
    if not isinstance(record, Mapping):
        raise FileFormatError(f"{path} is damaged: its {KEY} is not a JSON object. Write it again.")
    check_format(record.get("format"), KIND, NEWEST, path)
    try:
        layers = tuple(
            LayerHeads(
                **{name: int(entry[name]) for name in ("layer", "n_heads", "n_kv_heads")},
                module=str(entry["module"]),
                kept=tuple(map(int, entry["kept"])),
            )
            for entry in record["layers"]
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"the layers in {path} are damaged ({error!r}). Write it again.") from error
    for layer in layers:
        _require_possible(layer, path)
    return layers


def load_with_fewer_heads(folder: Path, **options: Any) -> Any:
    """Return the pruned model in a folder: every weight must be there, with the shape the record says."""
    config, kind = _config_and_class(folder)
    record = pruning_record(config)
    layers = layers_of(record, folder / "config.json")
    assert record is not None  # layers_of raises otherwise
    built = kind if record.get("plain") else _sliced_class(kind, layers)
    try:
        model, wrong = load_whole(
            built, folder, config=config, local_files_only=True, use_safetensors=True, **options
        )
    except HeadscapeError:
        raise
    except Exception as error:  # loading ends in every kind of exception, from OSError to SafetensorError
        raise FileFormatError(
            f"the weights in {folder} are damaged, incomplete or do not fit its config.json ({first_line(error)}). "
            "Copy the folder again."
        ) from error
    if wrong:
        raise FileFormatError(
            f"the weights in {folder} do not fit its config.json: {wrong}. Copy the folder again."
        )
    model.__class__ = kind
    return model.eval()


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, with the next if it ends in a colon; its name if it says nothing."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(line.strip() for line in lines[: 2 if lines[0].endswith(":") else 1])


def _config_and_class(folder: Path) -> tuple[Any, Any]:
    import transformers

    read_json_object(folder / "config.json", folder)  # raises for what is no JSON object
    try:
        values, _ = transformers.PreTrainedConfig.get_config_dict(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise FileFormatError(
            f"{folder} has no complete config.json ({first_line(error)}). Copy it again."
        ) from error
    require_sane_sizes(values, folder / "config.json")
    if KEY not in values:
        raise FileFormatError(
            f"{folder} is not a model that headscape pruned: its config.json has no {KEY!r}. Load it with "
            "hs.load_model."
        )
    if values.get("auto_map"):
        raise ModelError(
            f"{folder} brings code of its own (auto_map), which a pruned model never needs. It is not loaded."
        )
    named = values.get("architectures")
    architecture = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""
    kind = model_class(architecture) if architecture else None
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        raise FileFormatError(
            f"{folder / 'config.json'} must name a model class of transformers under 'architectures', but says "
            f"{architecture!r}. Copy it again, or update transformers."
        )
    try:
        config_class: Any = kind.config_class
        return config_class.from_dict(values), kind
    except Exception as error:  # the configs' own checks have exceptions of their own
        raise FileFormatError(
            f"{folder / 'config.json'} is damaged ({first_line(error)}). Copy it again."
        ) from error


def _sliced_class(kind: Any, layers: tuple[LayerHeads, ...]) -> Any:
    """Return a class that builds a model and cuts it at once, so that weights of the cut shapes are loaded."""

    def build(self: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, *args, **kwargs)
        try:
            adapter_for(self).slice(self, layers)
        except AttributeError as error:
            raise FileFormatError(
                f"the pruning record names a module that {kind.__name__} does not have ({error}). Copy the folder "
                "again."
            ) from error

    # transformers looks up conversions of weights by the class's name and module: they must stay the same.
    return type(kind.__name__, (kind,), {"__init__": build, "__module__": kind.__module__})


def _require_possible(layer: LayerHeads, path: Path) -> None:
    """Raise unless the kept heads exist and leave every group of shared keys the same number."""
    sizes = set()
    if 0 < layer.n_kv_heads <= layer.n_heads and layer.n_heads % layer.n_kv_heads == 0:
        group = layer.n_heads // layer.n_kv_heads
        sizes = {sum(head // group == kv for head in layer.kept) for kv in layer.kept_kv}
    in_order = layer.kept == tuple(sorted(set(layer.kept)))
    if len(sizes) != 1 or not in_order or layer.kept[0] < 0 or layer.kept[-1] >= layer.n_heads:
        raise FileFormatError(
            f"layer {layer.layer} in {path} cannot keep the heads {list(layer.kept)} of {layer.n_heads} with "
            f"{layer.n_kv_heads} key-value heads: the record is damaged. Write it again."
        )
