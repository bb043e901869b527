#!/usr/bin/env python3
"""A random search over a small emulator with Optuna and PyTorch, as an expert would write it: the baseline of sweep.

  optuna_peer.py DATA.h5 TRIALS EPOCHS [PROCESSES]
                                one JSON line: seconds, best loss, per cent of the time outside of trainings

The network, batches and steps are those of tests/bench/compare_sweep.sh. The processes share one study in a journal
file and have one thread each; each of them reads and normalises the data once.
"""
import json
import multiprocessing
import sys
import tempfile
import time

from common import torch

import optuna
from emulator_peer import build_network, forward, gradient_autograd, read

HIDDEN, LAYERS, BATCH = 32, 2, 80


class Alone:
    """What gradient_autograd needs of common.Place."""

    autocast = staticmethod(torch.enable_grad)


def train(data, epochs, lr, seed):
    """The best validation loss of a training with Adam."""
    x, y, vx, vy = data
    torch.manual_seed(seed)
    net = build_network(x.shape[1], y.shape[1], HIDDEN, LAYERS)
    net["flat"].grad = net["flat_grad"]
    adam = torch.optim.Adam([net["flat"].requires_grad_()], lr, fused=True)
    step, best = gradient_autograd(net, 1, 1, Alone), float("inf")
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(BATCH):
            step(x.index_select(0, rows), y.index_select(0, rows))
            adam.step()
        with torch.inference_mode():
            best = min(best, torch.nn.functional.mse_loss(forward(net, net["p"], vx), vy).item())
    return best


def work(path, journal, trials, epochs, busy):
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(journal))
    study = optuna.load_study(study_name="emulator", storage=storage, sampler=optuna.samplers.RandomSampler())
    data = read(path)

    def objective(trial):
        begin = time.perf_counter()
        best = train(data, epochs, trial.suggest_float("lr", 1e-3, 1e-1, log=True), trial.number)
        busy.value += time.perf_counter() - begin
        return best

    study.optimize(objective, n_trials=trials)


def main():
    path, trials, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    processes = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    fork = multiprocessing.get_context("fork")  # PyTorch is imported once
    with tempfile.TemporaryDirectory() as folder:
        journal = folder + "/journal"
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(journal))
        study = optuna.create_study(study_name="emulator", storage=storage)
        busy, begin = [fork.Value("d", 0.0) for _ in range(processes)], time.perf_counter()
        ranks = [fork.Process(target=work, args=(path, journal, trials // processes, epochs, b)) for b in busy]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        seconds = time.perf_counter() - begin
        idle = 100 - 100 * sum(b.value for b in busy) / processes / seconds
        print(json.dumps({"seconds": seconds, "trials": len(study.trials), "best": study.best_value, "idle": idle,
                          "optuna": optuna.__version__}))


if __name__ == "__main__":
    main()
