"""Make the pictures of the documentation from a finished study.

    python examples/make_gallery.py out/demo

Writes figures and screenshots of the report into docs/images; the screenshots need selenium and Chromium.
"""

import sys
import time
from pathlib import Path
from typing import Any

import headscape as hs

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
FIGURES = {
    "affinity_head": "gallery_affinity_head",
    "diffusion_map_head_2d": "gallery_diffusion_map",
    "entropy_entropies": "gallery_entropies",
}
sys.path.insert(0, str(ROOT / "tests"))


def save_figures(study: hs.Study) -> None:
    """Write some of the figures for papers."""
    figures = study.figures()
    for name, file in FIGURES.items():
        figures[name].savefig(IMAGES / f"{file}.png", dpi=110)


def save_screenshots(report: Path) -> None:
    """Write the report as it opens, and further down in dark colors."""
    from browser import browser, open_page

    with browser(1440, 1060) as page:
        open_page(page, report, "#head=11.6")
        _shoot(page, "report.png")
        page.execute_script(
            "document.documentElement.style.scrollBehavior = 'auto';"
            "document.getElementById('theme').click();"
            "document.getElementById('order-organized').click();"
            "document.getElementById('map').scrollIntoView();"
        )
        _shoot(page, "report_dark.png")


def _shoot(page: Any, name: str) -> None:
    time.sleep(1.5)
    page.save_screenshot(str(IMAGES / name))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    study = hs.Study.load(folder)
    save_figures(study)
    save_screenshots(study.report(folder / "report.html"))
