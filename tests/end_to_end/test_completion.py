"""Completion in the shell: what a shell asks for when Tab is pressed, and the script that makes it ask."""

import os
import subprocess
import sys

import pytest

from cli_runs import environment, headscape

NAMED = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
"""Lets the shell be named: tests have no shell above them that could be detected."""
HEAVY = ("torch", "transformers", "numba", "matplotlib", "plotly", "pandas", "zarr", "scipy")


def completed(words):
    """Return what bash would offer behind some words."""
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", "from headscape.cli.main import app; app(prog_name='headscape')"],
        env={**environment(), **asked, "_HEADSCAPE_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_commands_are_completed():
    assert completed("headscape pr") == ["prune"]
    assert {"analyze", "ablate", "check", "entropy", "patterns"} <= set(completed("headscape "))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("headscape analyze --qui", {"--quick", "--quiet"}),
        ("headscape prune --dry", {"--dry-run"}),
        ("headscape analyze --sample r", {"random"}),
        ("headscape organize --tree ", {"flexible", "binary", "linkage"}),
    ],
)
def test_options_and_their_words_are_completed(words, expected):
    assert set(completed(words)) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_the_program(shell):
    done = headscape("--show-completion", shell, env={**environment(), **NAMED})
    assert done.returncode == 0, done.stderr
    assert "_HEADSCAPE_COMPLETE" in done.stdout


def test_bash_offers_what_the_program_completes(tmp_path):
    """Source the script in a bash of its own and ask as readline does."""
    script = headscape("--show-completion", "bash", env={**environment(), **NAMED}).stdout
    (tmp_path / "headscape").write_text(
        f"#!{sys.executable}\nfrom headscape.cli.main import app; app(prog_name='headscape')\n"
    )
    (tmp_path / "headscape").chmod(0o755)
    name = script.split("complete -o default -F ")[1].split()[0]
    ask = f'COMP_WORDS=(headscape ene); COMP_CWORD=1; {name} headscape; echo "${{COMPREPLY[@]}}"'
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{ask}"],
        env={**environment(), "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["energy"], done.stderr


def test_it_is_installed_for_bash(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from headscape.cli.main import app; app(prog_name='headscape')",
            "--install-completion",
            "bash",
        ],
        env={**environment(), "HOME": str(tmp_path), **NAMED},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    [script] = (tmp_path / ".bash_completions").iterdir()
    assert "_HEADSCAPE_COMPLETE" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()


def test_completion_loads_nothing_that_takes_seconds():
    code = f"import sys, headscape.cli.main; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
