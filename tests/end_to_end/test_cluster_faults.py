"""Faults of a cluster, with a real scheduler and real workers on loopback: nothing that is finished is lost."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed")

import headscape as hs
from cli_runs import environment, headscape, headscape_here, one_line, one_object
from headscape.engine import LocalEngine, dask
from headscape.engine.dask import DaskEngine
from headscape.errors import EngineError
from headscape.geometry.streamed_blocks import HeadBlocks
from headscape.geometry.streamed_geometry import streamed_heads

pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")


@contextmanager
def process(*arguments, **options):
    """Run a Python module until the block ends."""
    command = [sys.executable, "-m", *map(str, arguments)]
    given = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
        "text": True,
        "env": environment(),
        **options,
    }
    with subprocess.Popen(command, **given) as running:
        try:
            yield running
        finally:
            running.kill()


def waited(condition, seconds=90):
    """Wait until something is true, and return it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not become true"
        time.sleep(0.05)
    return found


@contextmanager
def scheduler(protocol="tcp", **options):
    """A scheduler of its own process, and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ("--host", "127.0.0.1", "--port", port, "--no-dashboard", "--no-show", "--protocol", protocol)
    with process("distributed.cli.dask_scheduler", *arguments, **options) as running:
        waited(lambda: listens(port))
        yield running, f"{protocol}://127.0.0.1:{port}"


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def worker(address, folder, *more, **options):
    """A worker process without a nanny that would start it anew."""
    arguments = (
        address,
        "--nthreads",
        1,
        "--local-directory",
        folder,
        "--no-dashboard",
        "--host",
        "127.0.0.1",
    )
    return process("distributed.cli.dask_worker", *arguments, *(more or ("--no-nanny",)), **options)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(4, 2, 3, 24, 4)), rng.normal(size=(4, 2, 3, 24, 4))
    return hs.Capture.from_arrays(queries, keys).save(tmp_path_factory.mktemp("faults") / "capture")


def commands_of(page, language):
    """The commands of a page of the documentation, in one language."""
    text = Path(__file__).parents[2].joinpath("docs", "guides", page).read_text(encoding="utf-8")
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.M | re.S)
    return [textwrap.dedent(block) for block in found]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
def test_a_cluster_with_tls_as_the_guide_sets_it_up(tmp_path):
    """With the commands of the guide; without certificates nobody is let in."""
    making = next(block for block in commands_of("cluster.md", "sh") if "openssl" in block)
    subprocess.run(making, shell=True, check=True, cwd=tmp_path, capture_output=True)
    (tmp_path / "config").mkdir()
    config = next(block for block in commands_of("cluster.md", "yaml") if "tls" in block)
    (tmp_path / "config" / "tls.yaml").write_text(config.replace("/home/me/tls", str(tmp_path)))
    safe = {"env": {**environment(), "DASK_CONFIG": str(tmp_path / "config")}}
    with scheduler("tls", **safe) as (_, address), worker(address, tmp_path / "a", "--no-nanny", **safe):
        with pytest.raises(EngineError, match="needs TLS certificates"):
            DaskEngine(address)
        code = "import sys; from headscape.engine.dask import DaskEngine\n"
        code += "with DaskEngine(sys.argv[1]) as engine: print(sum(engine.map(abs, range(-3, 3))))"
        done = subprocess.run([sys.executable, "-c", code, address], capture_output=True, text=True, **safe)
    assert done.stdout.strip() == "9", done.stderr


class Meeting:
    """A task that says that it runs, and waits until it may go on."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self, task):
        # Whoever comes first waits; a second try of the same task goes through.
        try:
            Path(self.folder, f"{task}").write_text(str(os.getpid()), encoding="utf-8")
            waits = not Path(self.folder, f"{task}-again").exists()
            Path(self.folder, f"{task}-again").touch()
            while waits and not Path(self.folder, "go").exists():
                time.sleep(0.05)
        except OSError as error:
            raise RuntimeError(str(error)) from error
        return task * task


@contextmanager
def in_the_middle(engine, folder, n):
    """Map n tasks, give the process that runs one of them, and check the results when the block has done its harm."""
    found = []

    def run():
        try:
            found.extend(engine.map(Meeting(folder), range(n)))
        except Exception as error:
            found.append(error)

    folder.mkdir()
    thread = threading.Thread(target=run)
    thread.start()
    running = waited(lambda: [p for p in folder.glob("*") if p.name.isdigit() and p.read_text()])
    yield int(running[0].read_text())
    thread.join(120)
    assert found == [n * n for n in range(n)]


def test_workers_that_are_silent_for_a_while_or_killed(tmp_path):
    """What they were doing is done by others, or by new ones, to whom the function is sent again."""
    with scheduler() as (_, address), ExitStack() as stack:
        workers = [stack.enter_context(worker(address, tmp_path / str(i))) for i in range(2)]
        engine = stack.enter_context(DaskEngine(address))
        waited(lambda: engine.workers == 2)
        with in_the_middle(engine, tmp_path / "silent", 6) as victim:
            os.kill(victim, signal.SIGSTOP)
            (tmp_path / "silent" / "go").touch()
            time.sleep(1)
            os.kill(victim, signal.SIGCONT)
        with in_the_middle(engine, tmp_path / "killed", 6) as victim:
            os.kill(victim, signal.SIGKILL)
            (tmp_path / "killed" / "go").touch()
        (last,) = (one for one in workers if one.pid != victim)
        with in_the_middle(engine, tmp_path / "all-killed", 3) as victim:
            assert victim == last.pid
            last.kill()
            (tmp_path / "all-killed" / "go").touch()
            stack.enter_context(worker(address, tmp_path / "new"))


def test_a_disk_full_on_a_worker_and_the_scheduler_lost(tmp_path, capture, monkeypatch):
    """Workers write nothing, so a full disk does not matter; a lost scheduler is one error, and a rerun resumes."""
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    expected = streamed_heads(capture).geometry.emd
    monkeypatch.setattr(dask, "CONNECT", 3.0)
    with ExitStack() as stack:
        running, address = stack.enter_context(scheduler())
        stack.enter_context(worker(address, tmp_path / "a"))
        engine = stack.enter_context(DaskEngine(address))
        engine.client.run(exec, full)  # every write to a file fails from now on, as on a full disk
        found = streamed_heads(capture, path=tmp_path / "full", engine=engine).geometry.emd
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        monkeypatch.setattr(dask, "PATIENCE", 1.0)

        def lose(stage, done, total):
            if stage == "EMD of head" and done == 3:
                running.kill()
                running.wait()

        with pytest.raises(EngineError, match="What was finished is kept"):
            streamed_heads(capture, path=tmp_path / "run", engine=engine, progress=lose)
    kept = len(list((tmp_path / "run" / "parts").glob("*-block-*")))
    assert kept >= 2
    computed, distances = [], HeadBlocks.distances
    monkeypatch.setattr(
        HeadBlocks, "distances", lambda self, task: computed.append(task) or distances(self, task)
    )
    found = streamed_heads(capture, path=tmp_path / "run", engine=LocalEngine(1)).geometry.emd
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    resumed = set(computed)
    streamed_heads(capture, engine=LocalEngine(1))
    assert len(resumed) == len(set(computed)) - kept


def eat(megabytes):
    """Take memory, at a pace at which a nanny can see it."""
    held = []
    for _ in range(megabytes // 20):
        held.append(np.ones(20 * 2**17))
        time.sleep(0.05)
    return len(held)


def test_a_worker_out_of_memory(tmp_path, monkeypatch):
    """It is ended by its nanny before the machine suffers, and small tasks go on; a task too large is one error."""
    once = {"env": {**environment(), "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}}
    with scheduler(**once) as (_, address), ExitStack() as stack:
        more = ("--nanny", "--memory-limit", "600MiB", "--nworkers", 1)
        stack.enter_context(worker(address, tmp_path / "a", *more))
        engine = stack.enter_context(DaskEngine(address))
        monkeypatch.setattr(dask, "LOSSES", 1)
        assert list(engine.map(eat, [40, 40])) == [2, 2]
        with pytest.raises(EngineError, match="memory"):
            list(engine.map(eat, [4000]))
        assert list(engine.map(eat, [40])) == [2]


class Cable:
    """The connection between a worker and its scheduler, which can be cut and mended."""

    def __init__(self, port):
        self._target, self._pairs, self._cut = port, [], False
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self._server.accept()
                if self._cut:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._pairs += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one, other):
        try:
            while data := one.recv(1 << 16):
                other.sendall(data)
        except OSError:
            pass
        finally:
            for end in (one, other):
                end.close()

    def cut(self):
        self._cut = True
        while self._pairs:
            end = self._pairs.pop()
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def mend(self):
        self._cut = False


def test_a_worker_that_loses_the_network_for_a_while(tmp_path):
    with scheduler() as (_, address), ExitStack() as stack:
        cable = Cable(int(address.rsplit(":", 1)[1]))
        stack.enter_context(worker(cable.address, tmp_path / "far", "--nanny", "--nworkers", 1))
        engine = stack.enter_context(DaskEngine(address))
        with in_the_middle(engine, tmp_path / "meet", 4):
            cable.cut()
            (tmp_path / "meet" / "go").touch()
            time.sleep(1)
            cable.mend()
            stack.enter_context(worker(address, tmp_path / "near"))


def test_torn_and_deleted_chunks_are_noticed_and_computed_again(tmp_path, capture):
    options = {"out": tmp_path / "study", "stages": ["entropy", "energy"]}
    first = hs.analyze(capture, **options)
    parts = tmp_path / "study" / "parts"
    torn = next(p for p in (parts / "geometry-window-00001").glob("head.emd/c.*") if p.is_file())
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])
    next(p for p in (parts / "energy-window-00002").glob("*/c.*") if p.is_file()).unlink()
    kept = (parts / "energy-window-00001").stat().st_mtime_ns
    again = hs.analyze(capture, **options)
    assert (again.heads == first.heads).all().all()
    assert (parts / "energy-window-00001").stat().st_mtime_ns == kept


def test_ctrl_c_stops_in_seconds_and_keeps_what_is_done(tmp_path, capture):
    folder = capture._windows[0].store.path
    command = ("organize", folder, "--memory", "2GiB", "--n-iter", 4, "--engine", "dask", "--workers", 1)
    code = "from headscape.cli.main import run; run()"
    arguments = [sys.executable, "-c", code, *map(str, command), "-o", str(tmp_path / "out")]
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()}
    blocks = tmp_path / "out" / "blocks" / "parts"
    with subprocess.Popen(arguments, **given, start_new_session=True) as running:
        waited(lambda: running.poll() is not None or list(blocks.glob("emd-*")), 300)
        assert running.poll() is None, running.stderr.read()
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to the workers too
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert "Traceback" not in said
    kept = {path.name: path.stat().st_mtime_ns for path in blocks.glob("*")}
    assert {"grams"} < set(kept)
    assert len([name for name in kept if "block" not in name]) < 1 + 3 * 4  # of 4 iterations
    one_object(headscape(*command[:6], "-o", tmp_path / "out", "--json", "--threads", 1))
    assert all(
        (blocks / name).stat().st_mtime_ns == at for name, at in kept.items() if (blocks / name).exists()
    )


def test_memory_and_dry_run(tmp_path, capture, monkeypatch, capsys):
    folder = capture._windows[0].store.path
    arguments = ("organize", folder, "-o", tmp_path / "out", "--threads", 1)
    plan = one_object(
        headscape_here(monkeypatch, capsys, *arguments, "--memory", "1GiB", "--dry-run", "--json")
    )
    assert plan["heads"] == 6
    assert plan["memory_bytes"] <= 2**30
    assert plan["expected_seconds"] > 0
    assert not (tmp_path / "out").exists()
    summary = one_object(headscape_here(monkeypatch, capsys, *arguments, "--memory", "1GiB", "--json"))
    assert {axis: found["points"] for axis, found in summary["axes"].items()} == {
        "query": 24,
        "key": 24,
        "head": 6,
    }
    loaded = hs.Organization.load(tmp_path / "out" / "organization")
    np.testing.assert_allclose(loaded.emd["head"], hs.organize(capture.tensor(0)).emd["head"], rtol=1e-5)
    heads = ("--memory", "1GiB", "--heads-only", "--approximate", "--json")
    summary = one_object(headscape_here(monkeypatch, capsys, *arguments[:3], tmp_path / "heads", *heads))
    assert list(summary["axes"]) == ["head"]
    assert 0 < summary["parameters"]["errors"]["head"]["relative_error_95"] < 0.1
    loaded = hs.Organization.load(tmp_path / "heads" / "organization")
    np.testing.assert_allclose(loaded.emd["head"], streamed_heads(capture).geometry.emd, rtol=0.2)
    wrong = {("--memory", "lots"): "4GiB", ("--memory", "1MiB"): "at least", ("--dry-run",): "--memory"}
    for options, words in {**wrong, ("--approximate",): "--memory", ("--heads-only",): "--memory"}.items():
        one_line(headscape_here(monkeypatch, capsys, *arguments, *options), words)
