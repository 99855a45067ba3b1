"""Train a small image model that needs to look along rows, along columns and around, and find the heads that do.

    python examples/image_heads.py [OUT] [--train] [--steps 1500]

The model sees gray images of 6 x 6 patches and paints each patch anew: red the mean of its row, green the mean of its
column, blue the mean of the patches around it. One layer of three heads can do that in one way that is easy to learn:
a head for every color. ``planted_attention`` is attention that does exactly that, for comparison.

Without ``--train`` the weights in ``examples/image_model`` are used; training them takes one to two minutes.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import ViTConfig, ViTForMaskedImageModeling

import headscape as hs
from headscape.models.anatomy import attention_modules
from headscape.recorder.gates import switched_off

SIDE, PATCH, BATCH, RATE, SEED = 6, 4, 64, 3e-3, 0
STEPS = 1500
MODEL = Path(__file__).parent / "image_model"
COLORS = ("same_row", "same_column", "neighbors")


def neighborhoods() -> np.ndarray:
    """Return for every color which patches it averages over, as (color, patch, patch) truth values."""
    rows, columns = np.divmod(np.arange(SIDE**2), SIDE)
    apart = np.abs(np.stack([np.subtract.outer(rows, rows), np.subtract.outer(columns, columns)]))
    return np.stack([apart[0] == 0, apart[1] == 0, apart.max(axis=0) == 1])


def planted_attention() -> hs.NetworkTensor:
    """Return the attention of three heads that average over rows, columns and neighbors, and of one that is even."""
    patches = np.concatenate([neighborhoods(), np.ones((1, SIDE**2, SIDE**2), dtype=bool)]).astype(np.float64)
    x = np.zeros((len(patches), SIDE**2 + 1, SIDE**2 + 1))
    x[:, 1:, 1:] = patches
    x[:, 0, 1:] = x[3, :, 0] = (
        1.0  # the class token looks at everything, the even head also at the class token
    )
    x[3, 0, 0] = 1.0
    x /= x.sum(axis=2, keepdims=True)
    labels = ["[0]", *(f"{row},{column}" for row in range(SIDE) for column in range(SIDE))]
    return hs.NetworkTensor.from_axes(x, "head,query,key", tokens=labels, field="probs")


def make_model() -> ViTForMaskedImageModeling:
    """Return the untrained model: one layer of three heads."""
    config = ViTConfig(
        image_size=SIDE * PATCH,
        patch_size=PATCH,
        encoder_stride=PATCH,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=1,
        num_attention_heads=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
    )
    return ViTForMaskedImageModeling(config)


def load(folder: Path = MODEL) -> ViTForMaskedImageModeling:
    """Return the trained model."""
    return ViTForMaskedImageModeling.from_pretrained(folder).eval()


def pictures(count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random gray images and what they shall be painted as, both (image, color, height, width)."""
    gray = rng.uniform(-1.0, 1.0, size=(count, SIDE**2))
    weights = neighborhoods() / neighborhoods().sum(axis=2, keepdims=True)
    painted = np.einsum("cpq,nq->ncp", weights, gray)
    both = [np.repeat(gray[:, None], 3, axis=1), painted]
    grids = [
        colors.reshape(count, 3, SIDE, SIDE).repeat(PATCH, axis=2).repeat(PATCH, axis=3) for colors in both
    ]
    return torch.from_numpy(grids[0]).float(), torch.from_numpy(grids[1]).float()


def train(steps: int, seed: int = SEED) -> ViTForMaskedImageModeling:
    """Train and return the model; the error goes to standard error."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    for step in range(steps):
        images, painted = pictures(BATCH, rng)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 50, 3 * (1 - step / steps))
        loss = (model(pixel_values=images).reconstruction - painted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0 or step == steps - 1:
            sys.stderr.write(f"step {step:5d}  mean squared error {loss.item():.5f}\n")
    return model.eval()


def errors(model: ViTForMaskedImageModeling, off: list[tuple[int, int]] | None = None) -> dict[str, float]:
    """Return the share of every color's variance that the model gets wrong, with some heads switched off."""
    images, painted = pictures(64, np.random.default_rng(1))
    with switched_off(attention_modules(model), off or []), torch.no_grad():
        wrong = (model(pixel_values=images).reconstruction - painted).square().mean(dim=(0, 2, 3))
    shares = wrong / painted.square().mean(dim=(0, 2, 3))
    return dict(zip(COLORS, shares.tolist(), strict=True))


def main() -> None:
    """Train the model if asked to, name its heads, and switch them off one by one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", nargs="?", type=Path, default=MODEL, help="folder of the model")
    parser.add_argument("--train", action="store_true", help="train it anew")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    if options.train:
        train(options.steps).save_pretrained(options.out)
    model = load(options.out)
    images, _ = pictures(4, np.random.default_rng(2))
    found = hs.head_patterns(hs.capture(model, images))
    columns = [*COLORS, "name"]
    print("planted", hs.head_patterns(planted_attention())[columns].round(2).to_string(), sep="\n")
    print("trained", found[columns].round(2).to_string(), sep="\n")
    for off in ([], *([pair] for pair in found.index)):
        words = ", ".join(f"{color} {share:.0%}" for color, share in errors(model, off).items())
        which = ", ".join(f"{layer}.{head}" for layer, head in off) or "no head"
        print(f"variance not explained with {which} switched off: {words}")


if __name__ == "__main__":
    main()
