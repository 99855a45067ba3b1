"""Two processes that train one model (DDP, gloo): rank 0 writes; with reduce="mean" both are measured."""

import socket

import numpy as np
import torch

import headscape as hs
from monitor_training import batch_at, forward, trainable


def own_rows(rank):
    return batch_at(10 + rank, rows=2)


def train_in_process(rank, port, folder):
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    train_one_step(rank, folder)
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


def test_rank_0_writes_its_own_rows_or_the_mean_over_ranks(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(train_in_process, (port, str(tmp_path)), nprocs=2)
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
