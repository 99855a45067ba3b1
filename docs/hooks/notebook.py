"""Runs the notebooks of the documentation and shows their cells with what they print, return and draw.

A notebook ``guides/x.ipynb`` becomes the page ``guides/x.md``; the file itself stays as a download. Cells run in one
namespace, in the notebook's folder, as in Jupyter. A cell that fails stops the build.
"""

import ast
import base64
import contextlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File


def on_files(files: Any, config: Any) -> Any:
    """Add the page of every notebook."""
    for file in [f for f in files if f.src_uri.endswith(".ipynb")]:
        page = file.src_uri.removesuffix(".ipynb") + ".md"
        files.append(File.generated(config, page, content=_page(Path(file.abs_src_path))))
    return files


def _page(path: Path) -> str:
    """Return a notebook as Markdown, its cells run."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    namespace: dict[str, Any] = {"__name__": "__main__"}
    parts = []
    with _drawing_to_files(), contextlib.chdir(path.parent):
        for number, cell in enumerate(cells, 1):
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                parts.append(source)
                continue
            try:
                shown = _run(source, namespace)
            except Exception as error:
                raise PluginError(f"{path.name}, cell {number}: {type(error).__name__}: {error}") from error
            parts += [f"```python\n{source}\n```", shown]
    parts.insert(1, f"[Download this page as a notebook]({path.name}){{ download }}")
    return "\n\n".join(parts)


@contextlib.contextmanager
def _drawing_to_files() -> Any:
    """Draw without a screen, as a build server has none."""
    before = os.environ.get("MPLBACKEND")
    os.environ["MPLBACKEND"] = "agg"
    yield
    os.environ.pop("MPLBACKEND") if before is None else os.environ.update(MPLBACKEND=before)


def _run(source: str, namespace: dict[str, Any]) -> str:
    """Run a cell; return what it printed, the value of its last line, and its figures."""
    import matplotlib.pyplot as plt

    plt.close("all")  # what is open was not drawn by this cell
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), namespace)
        if isinstance(last, ast.Expr) and not source.rstrip().endswith(";"):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
        elif isinstance(last, ast.Expr):
            exec(compile(ast.Module([last], []), "<cell>", "exec"), namespace)
    shown = [_block(printed.getvalue()), _value(value)]
    shown += [_figure(figure) for figure in map(plt.figure, plt.get_fignums()) if figure is not value]
    plt.close("all")
    return "\n\n".join(part for part in shown if part)


def _value(value: Any) -> str:
    """Return a value as a notebook shows it: as HTML where it can, else as text."""
    if value is None:
        return ""
    if hasattr(value, "savefig"):
        return _figure(value)
    if hasattr(value, "_repr_html_"):
        table = re.sub(r"<style.*?</style>| border=\"1\"", "", value._repr_html_(), flags=re.DOTALL)
        return f'<div class="output" markdown="0">\n{table}\n</div>'
    return _block(value if isinstance(value, str) else repr(value))


def _block(text: str) -> str:
    return f"```{{ .text .output }}\n{text.rstrip()}\n```" if text.strip() else ""


def _figure(figure: Any) -> str:
    picture = io.BytesIO()
    figure.savefig(picture, dpi=90, bbox_inches="tight")
    return f"![](data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()})"
