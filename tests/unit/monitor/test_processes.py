"""Two processes that train one model (DDP, gloo): rank 0 writes; with reduce="mean" both are measured."""

import socket
import warnings

import numpy as np
import pytest
import torch

import headscape as hs
from headscape.errors import InputError
from headscape.monitor import sampling
from monitor_training import batch_at, forward, trainable


def own_rows(rank):
    return batch_at(10 + rank, rows=2)


def train_in_process(rank, port, folder, train=None):
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    (train or train_one_step)(rank, folder)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def train_one_step(rank, folder):
    """Apart from the process group, which must outlive the model that uses it."""
    model = torch.nn.parallel.DistributedDataParallel(trainable("Llama"))
    for reduce in (None, "mean"):
        monitor = hs.HeadMonitor(model, every=1, path=f"{folder}/{reduce}", reduce=reduce)
        forward(model, own_rows(rank), monitor).backward()
        monitor.step()
        monitor.close()


def in_two_processes(folder, *train):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(train_in_process, (port, str(folder), *train), nprocs=2)


def test_rank_0_writes_its_own_rows_or_the_mean_over_ranks(tmp_path):
    in_two_processes(tmp_path)
    tables = []
    for rank in range(2):
        model = trainable("Llama")
        monitor = hs.HeadMonitor(model, every=1)
        forward(model, own_rows(rank), monitor)
        monitor.step()
        tables.append(monitor.table())
    first, mean = (hs.MonitorRun.load(tmp_path / name).table() for name in ("None", "mean"))
    np.testing.assert_allclose(first["mu_K"], tables[0]["mu_K"], rtol=1e-6)
    np.testing.assert_allclose(mean["mu_K"], (tables[0]["mu_K"] + tables[1]["mu_K"]) / 2, rtol=1e-6)
    wanted = np.maximum(tables[0]["logit_max"], tables[1]["logit_max"])
    np.testing.assert_allclose(mean["logit_max"], wanted, rtol=1e-6)


def fail_in_one_process(rank, folder):
    """The first of two samples fails in the second process."""
    model = torch.nn.parallel.DistributedDataParallel(trainable("Llama"))
    monitor = hs.HeadMonitor(model, every=1, path=f"{folder}/run", reduce="mean", stop_on=["any"])
    measure = sampling.head_metrics
    for step in range(2):
        sampling.head_metrics = None if rank == 1 and step == 0 else measure
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            forward(model, own_rows(rank), monitor).backward()
            monitor.step()
        wanted = ("another process has none", "a measure failed")[rank]
        assert [wanted in str(each.message) for each in told] == [True] * (step == 0)
    monitor.close()


def test_a_process_without_a_sample_does_not_hold_up_the_others(tmp_path):
    in_two_processes(tmp_path, fail_in_one_process)
    assert hs.MonitorRun.load(tmp_path / "run").steps.tolist() == [1]


def test_before_the_process_group_exists_the_launcher_tells_the_rank(tmp_path, monkeypatch):
    """As in Lightning, which makes the group when training begins: two monitors must not write one file."""
    model = trainable("Llama")
    for name, number in (("LOCAL_RANK", "0"), ("LOCAL_RANK", "1"), ("RANK", "2"), ("NODE_RANK", "1")):
        with monkeypatch.context() as environment:
            environment.setenv("WORLD_SIZE", "4")
            environment.setenv(name, number)
            monitor = hs.HeadMonitor(model, every=1, path=tmp_path / f"{name}{number}")
            forward(model, own_rows(0), monitor)
            monitor.step()
            assert len(monitor.run.samples) == (number == "0")
            assert (tmp_path / f"{name}{number}").exists() == (number == "0")
            with pytest.raises(InputError, match='needs reduce="mean"'):
                hs.HeadMonitor(model, stop_on=["any"])
