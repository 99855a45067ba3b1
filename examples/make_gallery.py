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
HEAD = "16.0"
PARTS = {
    "findings": "report_findings.png",
    "map": "report_map.png",
    "tree": "report_tree.png",
    "panel": "report_head.png",
}
"""Elements of the page by their id, and the file of their picture."""
sys.path.insert(0, str(ROOT / "tests"))


def save_figures(study: hs.Study) -> None:
    """Write some of the figures for papers."""
    figures = study.figures()
    for name, file in FIGURES.items():
        figures[name].savefig(IMAGES / f"{file}.png", dpi=110)


def save_screenshots(report: Path) -> None:
    """Write the report as it opens, its parts, and the tree in dark colors."""
    from browser import browser, open_page

    with browser(1440, 1060) as page:
        open_page(page, report, f"#head={HEAD}")
        _shoot(page, "report.png")
    with browser(1440, 2600) as page:  # tall, so that every chart is drawn and fits
        open_page(page, report, f"#head={HEAD}")
        time.sleep(1.5)
        for part, file in PARTS.items():
            page.find_element("id", part).screenshot(str(IMAGES / file))
    with browser(1440, 1060) as page:
        open_page(page, report, f"#head={HEAD}")
        page.execute_script(
            "document.documentElement.style.scrollBehavior = 'auto';"
            "document.getElementById('theme').click();"
            "document.getElementById('order-organized').click();"
            "document.getElementById('tree').scrollIntoView();"
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
