"""GGUF files, converted once into the cache.

transformers needs half a minute to read a small GGUF file and a tenth of a second to read the same model as
safetensors. So a GGUF file is converted when it is first used, under a lock, into a folder whose name holds
the hash of the file and the version of the conversion; a folder with its final name is complete.
"""

import hashlib
import io
import logging
import shutil
import uuid
from collections.abc import Mapping
from contextlib import redirect_stderr
from importlib import import_module
from pathlib import Path
from typing import Any

from filelock import FileLock

from headscape.errors import HeadscapeError, MissingDependencyError, ModelError
from headscape.models.lazy_torch import torch
from headscape.models.quiet import quiet_transformers
from headscape.models.whole_weights import load_whole, require_sane_sizes
from headscape.tensor.cache import cache_folder
from headscape.tensor.store import explain_write_errors

logger = logging.getLogger(__name__)

CONVERTER = 2
"""Version of the conversion; 1 left out the special tokens that a file asks for."""
# Vocabularies that start every text with BOS unless the file says otherwise, as llama.cpp reads them.
_BOS_BY_DEFAULT = {
    "tokenizer.ggml.model": ("llama",),
    "tokenizer.ggml.pre": (
        *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        *("jina-v5-nano", "tekken", "chameleon"),
    ),
}


def folder_of_gguf(path: Path) -> Path:
    """Return the folder of the cache that holds a GGUF file's model once it is converted."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "blake2b").hexdigest()[:16]
    return cache_folder() / "models" / f"{path.stem}-{digest}-v{CONVERTER}"


def converted_gguf(path: Path) -> Path:
    """Return a folder with the GGUF file's model and tokenizer as safetensors, converting it if it is new."""
    folder = folder_of_gguf(path)
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
    # The reader of GGUF files draws its progress bar whatever the settings are.
    with quiet_transformers(), redirect_stderr(io.StringIO()):
        try:
            plain, tokenizer, wrong = _read(path)
        except HeadscapeError:
            raise
        except ImportError as error:
            raise MissingDependencyError(
                "GGUF files need gguf and accelerate. Install them with: pip install 'headscape[models]'"
            ) from error
        except Exception as error:  # the reader raises whatever a damaged file makes it stumble over
            raise ModelError(
                f"{path} is not a complete GGUF file of a supported model ({type(error).__name__}: {error}). Download "
                "it again."
            ) from error
        if wrong:
            raise ModelError(
                f"the weights in {path} do not fit {type(plain).__name__}: {wrong}. Download it again."
            )
        # The weights are plain float32 now; what is left of the quantization would refuse to be saved.
        plain.hf_quantizer = None
        if hasattr(plain.config, "quantization_config"):
            del plain.config.quantization_config
        with explain_write_errors(folder):
            plain.save_pretrained(folder)
            tokenizer.save_pretrained(folder)


def _read(path: Path) -> tuple[Any, Any, str]:
    """Return the model and the tokenizer of a GGUF file, and which of the weights do not fit."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    reader = import_module("gguf").GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items() if len(field.data) == 1}
    require_sane_sizes(fields, path)
    blocks = (tensor.name.split(".") for tensor in reader.tensors if tensor.name.startswith("blk."))
    layers = len({number for _, number, *_ in blocks})
    wanted = fields.get(f"{fields.get('general.architecture')}.block_count", layers)
    if layers > wanted:  # transformers leaves out what it has no place for
        raise ModelError(f"{path} has {layers} layers, but its block_count is {wanted}. Download it again.")
    options = {"gguf_file": path.name, "local_files_only": True}
    tokenizer: Any = AutoTokenizer.from_pretrained(str(path.parent), **options)
    _add_special_tokens(tokenizer, fields, path)
    model, wrong = load_whole(AutoModelForCausalLM, path.parent, dtype=torch.float32, **options)
    return model, tokenizer, wrong


def _add_special_tokens(tokenizer: Any, fields: Mapping[str, Any], path: Path) -> None:
    """Let a tokenizer put BOS and EOS around every text as the file says; transformers reads only their ids."""
    bos = any(fields.get(name) in known for name, known in _BOS_BY_DEFAULT.items())
    defaults = {"bos": bos and tokenizer.bos_token is not None, "eos": tokenizer.add_eos_token}
    wanted = {name: bool(fields.get(f"tokenizer.ggml.add_{name}_token", defaults[name])) for name in defaults}
    for name, add in wanted.items():
        if add and getattr(tokenizer, f"{name}_token") is None:
            raise ModelError(
                f"{path} says that {name.upper()} is added to every text, but not which token that is. Download it "
                "again."
            )
        setattr(tokenizer, f"add_{name}_token", add)
    ids = tokenizer("a")["input_ids"]
    for name, place in (("bos", 0), ("eos", -1)):
        if wanted[name] and ids[place] != getattr(tokenizer, f"{name}_token_id"):
            raise ModelError(
                f"the tokenizer of {path} does not add {name.upper()} to a text, as the file says. Convert the model "
                "to a folder with transformers, and pass that."
            )
