"""What a monitored training run is: its size, its text, its fault; and the command line that says so."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from training_faults import FAULTS, HEALTHY, Fault


@dataclass(frozen=True)
class Run:
    """One training run.

    Parameters
    ----------
    out, text
        Folder of the results, and the text file; None is the sample text bundled with Python.
    steps, batch, length, width
        Updates, windows per update, bytes per window, width of the model.
    base_rate
        Highest learning rate of a healthy run.
    seed
        Decides weights and windows.
    every, checkpoints
        Steps between two samples of the monitor, and between two saved models (0: none).
    fault, fault_step
        What is broken on purpose, and from which step on.
    report_to
        Where Hugging Face's Trainer reports to: "none", "tensorboard", "wandb", "trackio".
    """

    out: Path = Path("out/monitored")
    text: Path | None = None
    steps: int = 1000
    batch: int = 8
    length: int = 128
    width: int = 128
    base_rate: float = 1e-3
    seed: int = 0
    every: int = 10
    checkpoints: int = 0
    fault: Fault = HEALTHY
    fault_step: int = 0
    report_to: str = "none"

    @property
    def rate(self) -> float:
        """Highest learning rate."""
        return self.base_rate * self.fault.rate

    @property
    def warm_up(self) -> int:
        """Steps over which the learning rate rises."""
        return int(self.steps // 10 * self.fault.warm_up)


def read_options(description: str) -> Run:
    """Return the run that the command line describes."""
    usual = Run()
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=form)
    parser.add_argument("-o", "--out", type=Path, default=usual.out)
    parser.add_argument("--text", type=Path, help="a text file; default: sample text bundled with Python")
    for name in ("steps", "batch", "length", "width", "seed", "every", "checkpoints"):
        parser.add_argument(f"--{name}", type=int, default=getattr(usual, name))
    parser.add_argument("--rate", dest="base_rate", type=float, default=usual.base_rate)
    parser.add_argument("--fault", choices=list(FAULTS), help="break the run on purpose")
    parser.add_argument("--fault-step", type=int, help="where the fault begins; default: the middle")
    parser.add_argument("--report-to", default=usual.report_to, help="dashboard of Hugging Face's Trainer")
    given = vars(parser.parse_args())
    name, begin = given.pop("fault"), given.pop("fault_step")
    given["fault"] = HEALTHY if name is None else FAULTS[name]
    given["fault_step"] = given["steps"] // 2 if begin is None else begin
    return Run(**given)
