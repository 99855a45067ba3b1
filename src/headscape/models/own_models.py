"""Model classes by the name that a config gives: those of transformers, and our own."""

from pathlib import Path
from typing import Any

MODEL_TYPE = "transfo-xl"


def model_class(architecture: str) -> Any:
    """Return the class of that name, or None if neither transformers nor headscape has it."""
    import transformers

    from headscape.models.transformer_xl.model import TransfoXLLMHeadModel

    if architecture == TransfoXLLMHeadModel.__name__:
        return TransfoXLLMHeadModel
    return getattr(transformers, architecture, None)


def register_own_models() -> None:
    """Let the auto classes of transformers know our own models."""
    from headscape.models.transformer_xl.model import register

    register()


def has_own_vocabulary(model: Any, folder: Path) -> bool:
    """Tell whether the tokenizer of a model's folder is one that transformers no longer has."""
    return model.config.model_type == MODEL_TYPE and not (folder / "tokenizer.json").exists()


def own_tokenizer(model: Any, folder: Path) -> Any:
    """Return the word tokenizer of a Transformer-XL's folder, or None if it has no vocabulary that can be read."""
    from headscape.models.transformer_xl.vocabulary import folder_tokenizer

    return folder_tokenizer(folder, model.config.vocab_size)
