"""The word vocabulary of a Transformer-XL: one word per line of ``vocab.txt``, most frequent first.

The published vocabularies are pickled (``vocab.pkl``, ``vocab.bin``), and pickles are not read: a folder without
``vocab.txt`` or ``tokenizer.json`` is used with token ids.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import transformers

from headscape.errors import FileFormatError, InputError

FILE = "vocab.txt"
UNKNOWN, END_OF_LINE = "<unk>", "<eos>"


def word_tokenizer(words: Sequence[str]) -> Any:
    r"""Return a tokenizer of words between blanks, as in the files of WikiText; a line end is the token "<eos>".

    Examples
    --------
    >>> tokenizer = word_tokenizer(["<eos>", "the", "<unk>", "cat"])
    >>> tokenizer("the big cat\n")["input_ids"]
    [1, 2, 3, 0]
    """
    numbers = {word: number for number, word in enumerate(words)}
    if len(numbers) < len(words) or UNKNOWN not in numbers:
        raise InputError(
            f"a vocabulary must have every word once, and {UNKNOWN!r} for words that it does not have."
        )
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token=UNKNOWN))
    if END_OF_LINE in numbers:
        inner.normalizer = tokenizers.normalizers.Replace("\n", f" {END_OF_LINE} ")
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    named = {"eos_token": END_OF_LINE} if END_OF_LINE in numbers else {}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token=UNKNOWN, **named)


def folder_tokenizer(folder: Path, vocab_size: int) -> Any:
    """Return the tokenizer of a model's folder by its ``vocab.txt``, or None if there is none."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        # The published code takes what stands before the first blank; a count may follow.
        words = [line.split()[0] for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        if len(words) > vocab_size:
            raise InputError(f"it has {len(words)} words, but the model only {vocab_size}")
        return word_tokenizer(words)
    except (UnicodeDecodeError, InputError) as error:
        raise FileFormatError(f"{path} is damaged ({error}). Copy or download it again.") from error
