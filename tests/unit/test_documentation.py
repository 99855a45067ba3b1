"""The hooks of the documentation: roles and papers become links, formulas MathML, notebooks pages with their output."""

import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("latex2mathml")
DOCS = Path(__file__).parents[2] / "docs"
WIDEST_CODE = 92


def hook(name):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "hooks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(url, content):
    return SimpleNamespace(page=SimpleNamespace(url=url, content=content))


def test_roles_become_links_to_the_reference_and_plain_code_elsewhere():
    pages = [
        page("guides/a.html", ":func:<code>headscape.organize</code> and :meth:<code>save</code>"),
        page("reference/g.html", '<h3 id="headscape.geometry.organization.organize">'),
        page("reference/s.html", '<h3 id="headscape.x.A.save"><h3 id="headscape.x.B.save">'),
    ]
    hook("links").on_env(None, SimpleNamespace(documentation_pages=lambda: pages))
    link = '<a href="../reference/g.html#headscape.geometry.organization.organize"><code>organize</code></a>'
    assert pages[0].page.content == f"{link} and <code>save</code>"


def test_functions_win_over_methods_of_the_same_name():
    places = dict.fromkeys(["headscape.recorder.capturing.capture", "headscape.x.Evaluator.capture"], "")
    assert hook("links")._target("headscape.capture", places) == "headscape.recorder.capturing.capture"


def test_papers_and_models_become_links_in_text_only():
    paper = "arXiv 2506.15541"
    content = f"<h2>{paper}</h2><p>{paper}, <code>{paper}</code>; SmolLM2-135M, SmolLM2-135M</p>"
    found = hook("links").on_page_content(content)
    assert found.count("https://arxiv.org/abs/2506.15541") == 1
    assert found.count("https://huggingface.co/") == 1
    assert "<h2>arXiv 2506.15541</h2>" in found


def test_formulas_become_mathml():
    content = r'<span class="arithmatex">\(a \le b\)</span><div class="arithmatex">\[ x &lt; y \]</div>'
    found = hook("formulas").on_page_content(content)
    assert found.count("<math") == 2
    assert 'display="block"' in found
    assert "arithmatex" not in found


def test_every_formula_of_the_pages_is_understood():
    formulas = hook("formulas")
    for path in DOCS.rglob("*.md"):
        text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for latex in re.findall(r"\$\$(.+?)\$\$", text, flags=re.DOTALL):
            math = formulas.convert(latex.strip())
            assert "&amp;" not in math, (path.name, latex)
            assert "\\" not in math, (path.name, latex)


def notebook(path, *sources):
    cells = [{"cell_type": "code", "source": source} for source in sources]
    title = {"cell_type": "markdown", "source": ["# Title"]}
    path.write_text(json.dumps({"cells": [title, *cells]}))
    return path


def test_cells_share_a_namespace_and_show_output_values_and_figures(tmp_path):
    draw = "import matplotlib.pyplot as plt\nplt.plot([0, 1]);"
    found = hook("notebook")._page(notebook(tmp_path / "n.ipynb", "a = 2\nprint('printed')", "a + 40", draw))
    assert "printed" in found
    assert "42" in found
    assert found.count("data:image/png;base64,") == 1


def test_a_failing_cell_is_named_and_stops_the_build(tmp_path):
    from mkdocs.exceptions import PluginError

    with pytest.raises(PluginError, match=r"n\.ipynb, cell 3: ZeroDivisionError"):
        hook("notebook")._page(notebook(tmp_path / "n.ipynb", "a = 0", "1 / a"))


def test_the_tutorial_is_a_valid_notebook_without_stored_output():
    content = json.loads((DOCS / "guides" / "tutorial.ipynb").read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    assert all(not cell["outputs"] for cell in content["cells"] if cell["cell_type"] == "code")


def test_code_of_the_pages_fits():
    long = [
        (path.name, line)
        for path in DOCS.rglob("*.md")
        for block in re.findall(
            r"^```(?:sh|python)\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S
        )
        for line in block.splitlines()
        if len(line) > WIDEST_CODE
    ]
    assert not long


def test_the_glossary_has_every_term_of_ours():
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    words = {word for row in re.findall(r"^\| ([^|]+) \|", text, re.M) for word in row.split(", ")}
    wanted = "pattern name sink support consensus folder window field source stage finding notice gate"
    assert {*wanted.split(), "chance level", "first test", "loss increase"} <= words


def test_every_function_and_command_of_the_papers_page_is_there():
    import typer.main

    import headscape as hs
    from headscape.cli.main import app
    from headscape.study.reproduction.experiments import EXPERIMENTS

    text = (DOCS / "theory" / "paper_to_command.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`hs\.(\w+)`", text))
    assert len(names) > 30
    assert names <= set(hs.__all__)
    commands = set(re.findall(r"`headscape (\w+)", text))
    assert commands <= set(typer.main.get_command(app).commands)
    reproduced = set(re.findall(r"`headscape reproduce ([a-z][\w-]+)", text))
    assert reproduced == {one.name for one in EXPERIMENTS}


def test_claims_become_one_table_and_a_section_each():
    seen = {"network": "net", "data": "6 windows", "found": "It is 0.5.", "verdict": "agrees"}
    seen |= {"figure": "0.5", "control": False}
    untrained = seen | {"network": "random net", "figure": "0.1", "control": True}
    one = {"name": "table-1", "paper": "2506.15541", "place": "table 1", "title": "Heads"}
    one |= {"claim": "They are.", "measure": "share", "remark": "Read so."}
    data = {"experiments": [one | {"verdict": "agrees", "observations": [seen, untrained]}]}
    data["times"] = {"experiment table-1": {"seconds": 90.0, "cpu_seconds": 60.0}}
    overview, details = hook("results")._claims(data), hook("results")._details(data)
    assert "[Heads](#table-1)" in overview
    figures = "share<br>net: **0.5** (agrees)<br>random net, control: **0.1** (agrees)"
    assert f"| They are. | **agrees** | {figures} |" in overview
    assert "## Heads { #table-1 }" in details
    assert "Read so." in details
    assert "| net | 6 windows | It is 0.5. | agrees |" in details
    assert "| It is 0.5. | control: agrees |" in details
    assert "| experiment table-1 | 1.5 | 1.0 |" in hook("results")._times(data)


def test_the_committed_findings_have_every_experiment():
    import json

    from headscape.study.reproduction.experiments import EXPERIMENTS

    data = json.loads((DOCS / "results" / "reproduction.json").read_text(encoding="utf-8"))
    assert not data["parameters"]["quick"]
    found = {one["name"]: one for one in data["experiments"]}
    assert list(found) == [one.name for one in EXPERIMENTS]
    for one in EXPERIMENTS:
        assert {name: found[one.name][name] for name in one.describe()} == one.describe()


def test_the_citation_names_this_version():
    import headscape as hs

    citation = (DOCS.parent / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {hs.__version__}" in citation
    assert "2506.15541" in citation
    assert "2605.02907" in citation
