"""GGUF files, converted once into the cache.

transformers needs half a minute to read a small GGUF file and a tenth of a second to read the same model as
safetensors. So a GGUF file is converted when it is first used, under a lock, into a folder whose name holds
the hash of the file; a folder with its final name is complete.
"""

import hashlib
import io
import logging
import shutil
import uuid
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from filelock import FileLock

from headscape.errors import MissingDependencyError, ModelError
from headscape.models.lazy_torch import torch
from headscape.models.quiet import quiet_transformers
from headscape.tensor.cache import cache_folder
from headscape.tensor.store import explain_write_errors

logger = logging.getLogger(__name__)


def converted_gguf(path: Path) -> Path:
    """Return a folder with the GGUF file's model and tokenizer as safetensors, converting it if it is new."""
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
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # The reader of GGUF files draws its progress bar whatever the settings are.
    with quiet_transformers(), redirect_stderr(io.StringIO()):
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
                f"{path} is not a complete GGUF file of a supported model ({type(error).__name__}: {error}). Download "
                "it again."
            ) from error
        plain: Any = model
        # The weights are plain float32 now; what is left of the quantization would refuse to be saved.
        plain.hf_quantizer = None
        if hasattr(plain.config, "quantization_config"):
            del plain.config.quantization_config
        with explain_write_errors(folder):
            plain.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
