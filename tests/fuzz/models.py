"""Model folders: weights and config, tokenizers, pruned models, manifests. Right is what transformers computes."""

import json
import random
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file

import headscape as hs
from fuzz.mutations import BYTES, PLACES, Mutation
from fuzz.structured import JSON, lying_safetensors
from fuzz.target import Found, Target
from headscape.models.quiet import quiet_transformers
from tiny_models import tiny_causal_model

TINY = Path(__file__).parents[2] / "examples" / "tiny_model"
WORDS = (
    "Call me Ishmael. Some years ago, never mind how long precisely, having little or no money in my purse. "
    * 9
)
IDS = [[5, 9, 2, 17, 30, 8, 4, 11]]
EVEN, UNEVEN = [(0, 1), (0, 3), (1, 0), (1, 2)], [(0, 0), (0, 1), (1, 1), (1, 3)]
FILES = (*BYTES, *PLACES, *JSON, *JSON, *JSON)


@cache
def tiny() -> Any:
    """The small trained model of the examples."""
    return hs.load_model(TINY)


def run(model: Any) -> dict[str, Any]:
    """Return what the model itself computes from the ids."""
    with torch.no_grad():
        return {"output": model(torch.tensor(IDS))[0].numpy()}


def _require_whole(info: dict[str, Any]) -> None:
    # A model whose class is not known is read without its output layer.
    found = {**info, "unexpected_keys": set(info["unexpected_keys"]) - {"lm_head.weight"}}
    names = ("missing_keys", "unexpected_keys", "mismatched_keys")
    wrong = {name: found[name] for name in names if found[name]}
    if wrong:
        raise ValueError(f"weights do not fit the config: {wrong!s:.200}")


def _save_model(root: Path) -> None:
    tiny_causal_model("Llama").save_pretrained(root / "model")


def read_model(root: Path) -> Found:
    loaded = hs.load_model(root / "model")
    return {"probs": hs.capture(loaded, IDS).tensor(0).data, **run(loaded.model)}


def model_meanings(root: Path) -> Sequence[Found]:
    """Load with transformers alone, as the class that the config names, with transformers' own attention."""
    folder = root / "model"
    with quiet_transformers():
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        named = getattr(transformers, (config.architectures or [""])[0], transformers.AutoModel)
        options: dict[str, Any] = {
            "dtype": torch.float32,
            "local_files_only": True,
            "output_loading_info": True,
        }
        model, info = named.from_pretrained(folder, attn_implementation="eager", **options)
        _require_whole(info)
        with torch.no_grad():
            attentions = model.eval()(torch.tensor(IDS), output_attentions=True, return_dict=True).attentions
        probs = np.concatenate([layer[0].numpy() for layer in attentions]).transpose(1, 2, 0)
        return [{"probs": probs, **run(model)}]


def _save_tokenizer(root: Path) -> None:
    shutil.copytree(TINY, root / "model")
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (root / "model" / name).chmod(0o444)


def read_with_tokenizer(root: Path) -> Found:
    capture = hs.capture(hs.load_model(root / "model"), [WORDS], length=16)
    return {"probs": capture.tensor(0).data, "tokens": capture.tokens(0)}


def tokenizer_meanings(root: Path) -> Sequence[Found]:
    """Tokenize with transformers alone, and capture the ids."""
    with quiet_transformers():
        tokenizer = transformers.AutoTokenizer.from_pretrained(root / "model", local_files_only=True)
    ids = tokenizer(WORDS)["input_ids"][:16]
    names = tokenizer.convert_ids_to_tokens(ids)
    texts = [tokenizer.decode([token]) for token in ids]
    labels = tuple(
        name if not text or "\ufffd" in text else text for name, text in zip(names, texts, strict=True)
    )
    return [{"probs": hs.capture(tiny(), [ids]).tensor(0).data, "tokens": labels}]


def _save_pruned(heads: list[tuple[int, int]], root: Path) -> None:
    hs.save_pruned(hs.prune(tiny_causal_model("Llama"), heads), root / "pruned")


def _weights(state: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {name: value.float().numpy() for name, value in sorted(state.items()) if name != "lm_head.weight"}


def read_pruned(root: Path) -> Found:
    pruned = hs.load_pruned(root / "pruned")
    facts = {"removed": pruned.manifest.removed, "name": pruned.manifest.model["weights_hash"]}
    return {**_weights(pruned.model.state_dict()), **facts}


def read_plain(root: Path) -> Found:
    pruned = hs.load_pruned(root / "pruned")
    return {**run(pruned.model), "removed": pruned.manifest.removed}


@cache
def _unmutated(uneven: bool) -> Found:
    pruned = hs.prune(tiny_causal_model("Llama"), UNEVEN if uneven else EVEN)
    return {"removed": pruned.manifest.removed, "name": pruned.manifest.model["weights_hash"]}


def pruned_meanings(root: Path) -> Sequence[Found]:
    """Read the weights with safetensors alone; the record of the removed heads must be the one that was written."""
    return [{**_weights(load_file(root / "pruned" / "model.safetensors")), **_unmutated(True)}]


def plain_meanings(root: Path) -> Sequence[Found]:
    """Load with transformers alone: the config of an evenly pruned model says all."""
    with quiet_transformers():
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            root / "pruned", local_files_only=True, output_loading_info=True
        )
    _require_whole(info)
    return [{**run(model.eval()), "removed": _unmutated(False)["removed"]}]


@cache
def _original() -> Any:
    return tiny_causal_model("Llama")


def _save_manifest(root: Path) -> None:
    from headscape.ablation.repair import Repair

    matrix = _original().model.layers[0].self_attn.o_proj.weight.detach() * 1.25
    hs.export_manifest(hs.prune(_original(), EVEN, repair=Repair({0: matrix}, {})), root / "manifest")


def read_manifest(root: Path) -> Found:
    pruned = hs.apply_manifest(_original(), root / "manifest")
    return {**_weights(pruned.model.state_dict()), "removed": pruned.manifest.removed}


def manifest_meanings(root: Path) -> Sequence[Found]:
    """Cut the same heads, and put the projection of the file in place."""
    pruned = hs.prune(_original(), EVEN)
    weights = _weights(pruned.model.state_dict())
    stored = load_file(root / "manifest" / "repaired.safetensors")["0.weight"].float().numpy()
    name = "model.layers.0.self_attn.o_proj.weight"
    if stored.shape != weights[name].shape:
        raise ValueError(f"a projection {stored.shape} does not fit")
    return [{**weights, name: stored, "removed": pruned.manifest.removed}]


def absurd_sizes(rng: random.Random, root: Path) -> str | None:
    """Let config.json ask for a model that no machine holds."""
    [path] = root.rglob("config.json") if root.exists() else ()
    config = json.loads(path.read_text())
    names = (
        "hidden_size",
        "intermediate_size",
        "vocab_size",
        "num_hidden_layers",
        "num_attention_heads",
        "head_dim",
    )
    name, size = rng.choice(names), rng.choice((10**5, 10**7, 10**9, 2**62))
    config[name] = size
    path.write_text(json.dumps(config))
    return f"absurd_sizes {name} = {size}"


WITH_SIZES: tuple[Mutation, ...] = (*FILES, absurd_sizes, absurd_sizes)

MODELS = (
    Target(
        "model",
        _save_model,
        read_model,
        (*WITH_SIZES, *(lying_safetensors,) * 8),
        1000,
        model_meanings,
        1e-4,
        command=lambda root, out: ["check", root / "model", "--windows", 1, "--length", 8],
    ),
    Target(
        "tokenizer",
        _save_tokenizer,
        read_with_tokenizer,
        FILES,
        600,
        tokenizer_meanings,
        1e-4,
        command=lambda root, out: [
            *("capture", root / "model", "-o", out, "--text", TINY / "config.json"),
            *("--windows", 1, "--length", 8),
        ],
    ),
    Target(
        "pruned model",
        lambda root: _save_pruned(UNEVEN, root),
        read_pruned,
        (*WITH_SIZES, *(lying_safetensors,) * 6),
        500,
        pruned_meanings,
        command=lambda root, out: ["check", root / "pruned", "--windows", 1, "--length", 8],
    ),
    Target(
        "plain pruned model",
        lambda root: _save_pruned(EVEN, root),
        read_plain,
        (*WITH_SIZES, *(lying_safetensors,) * 6),
        400,
        plain_meanings,
        1e-4,
    ),
    Target(
        "manifest",
        _save_manifest,
        read_manifest,
        (*FILES, *(lying_safetensors,) * 6),
        300,
        manifest_meanings,
    ),
)
