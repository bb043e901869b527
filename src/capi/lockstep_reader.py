"""Reads the files that Lockstep writes, with only numpy and h5py: checkpoints, run directories, predictions.

    import lockstep_reader as lockstep

    run = lockstep.Run("runs/sasrec-ml1m")
    print(run.config["optim.lr"], run.series("ndcg@10", split="validation"))
    best = run.checkpoint("best")
    table = best.weight("item_emb.weight")          # averaged where the checkpoint has averages
    scores = lockstep.Predictions("top.h5")["score"]

A missing, truncated or wrong file raises ReaderError, which tells what could not be read, why, and what to change.
Checksums are not verified, because that needs XXH3; `lockstep checkpoint verify FILE` verifies them.

As a program it sends a run to a tracker of experiments, for which it needs the tracker's own package:
`lockstep_reader.py --to wandb runs/sasrec-ml1m --follow`.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np

__all__ = ["Checkpoint", "Predictions", "ReaderError", "Run", "TrackerError", "read_config", "send"]

_MARK_BYTES = 64
_MARK_BEGIN = b"\nlockstep end mark 1:         "
_CHECKPOINT_FORMAT, _CHECKPOINT_VERSION = "lockstep-checkpoint", 1


class ReaderError(Exception):
    """A file is missing, damaged or not of the expected kind."""


def _value(value: Any) -> Any:
    """An attribute as a Python value: str, int, float, or an array."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray) and value.dtype.kind in "SO":
        return [_value(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def _array(dataset: h5py.Dataset) -> np.ndarray:
    """The whole dataset; strings as an array of str."""
    if dataset.dtype.kind in "SO":
        return np.array([_value(v) for v in np.asarray(dataset[()]).ravel()], dtype=str).reshape(dataset.shape)
    return dataset[()]


def _open(path: Path) -> h5py.File:
    if not path.exists():
        raise ReaderError(f"opening {path}: there is no such file")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise ReaderError(f"opening {path}: {error}; it is damaged, or not an HDF5 file") from error


def _end_mark(path: Path) -> str:
    """The end mark of a checkpoint or part, which holds its length."""
    if not path.exists():
        raise ReaderError(f"opening {path}: there is no such file")
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _MARK_BYTES))
        mark = file.read()
    if not mark.startswith(_MARK_BEGIN) or mark[len(_MARK_BEGIN):].split(b" ")[0] != b"%016x" % (size - _MARK_BYTES):
        raise ReaderError(f"opening {path}: its {size} bytes do not end with the mark of a whole checkpoint; it is "
                          "truncated, changed, or not a checkpoint of lockstep")
    return mark.decode()


def _datasets(group: h5py.Group) -> Iterator[str]:
    """The absolute paths of all datasets below a group, sorted by name within each group."""
    for name in sorted(group):
        item = group[name]
        if isinstance(item, h5py.Dataset):
            yield item.name
        else:
            yield from _datasets(item)


def read_config(text: str) -> dict[str, str]:
    """The keys of a configuration (config.ini, Checkpoint.config_text): {"optim.lr": "0.001"}."""
    values: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            section = line[1:line.index("]")].strip()
            continue
        key, _, value = (part.strip() for part in line.partition("="))
        if value.startswith('"'):
            plain, rest = "", iter(value[1:])
            for c in rest:
                if c == '"':
                    break
                if c == "\\":
                    c = next(rest, "").replace("n", "\n")
                plain += c
            value = plain
        else:
            for mark in (" #", " ;", "\t#", "\t;"):
                value = value.split(mark)[0]
            value = "" if value[:1] in ("#", ";") else value.rstrip()
        values[f"{section}.{key}" if section else key] = value
    return values


class Checkpoint(Mapping[str, np.ndarray]):
    """The arrays of a checkpoint by name: {"model/item_emb.weight": ..., "optim/...", "ema/..."}.

    A checkpoint of checkpoint.layout = sharded is the manifest; its parts lie beside it. Arrays are read when they are
    accessed. Attributes: path, kind (model.kind), seed, ranks, config_text, config, state (progress of the run: step,
    epoch, best, finished, ...), attributes (all of the file's root).
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        _end_mark(self.path)
        with _open(self.path) as file:
            self.attributes: dict[str, Any] = {name: _value(v) for name, v in file.attrs.items()}
            if self.attributes.get("format") != _CHECKPOINT_FORMAT:
                raise ReaderError(f"opening {self.path}: its format is {self.attributes.get('format')!r}, expected "
                                  f"{_CHECKPOINT_FORMAT!r}")
            if self.attributes.get("version") != _CHECKPOINT_VERSION:
                raise ReaderError(f"opening {self.path}: its format version is {self.attributes.get('version')}, this "
                                  f"reader knows {_CHECKPOINT_VERSION}")
            self.kind: str = self.attributes["model_kind"]
            self.seed: int = self.attributes["seed"]
            self.ranks: int = self.attributes["ranks"]
            self.config_text: str = "".join(_array(file["config"]).ravel())
            self.config = read_config(self.config_text)
            self.state: dict[str, Any] = {}
            if "state" in file:
                self.state = {name: _value(v) for name, v in file["state"].attrs.items()}
            self._slices: dict[str, list[Path]] = {}
            self._shapes: dict[str, tuple[int, ...]] = {}
            if "parts" in file:
                self._find_parts(file)
            else:
                self._slices = {name: [self.path] for name in _datasets(file)}
        self._slices = {name.lstrip("/"): files for name, files in self._slices.items()}

    def _find_parts(self, file: h5py.File) -> None:
        marks = list(_array(file["parts"]))
        number = _value(file["parts"].attrs["number"])

        def part(manifest: str, index: int) -> Path:
            return self.path.with_name(f"{manifest}.{number}.part-{index}-of-{len(marks)}")

        name = self.path.name
        if not part(name, 0).exists():  # the manifest was renamed
            name = _value(file["parts"].attrs.get("manifest", name))
        parts = [part(name, index) for index in range(len(marks))]
        for path, mark in zip(parts, marks):
            if _end_mark(path).strip() != mark.strip():
                raise ReaderError(f"opening {self.path}: its part {path.name} belongs to another checkpoint")
            with _open(path) as slices:
                for array in _datasets(slices):
                    self._slices.setdefault(array, []).append(path)

        def visit(name: str, item: Any) -> None:
            if "sharded_shape" in item.attrs:
                self._shapes["/" + name] = tuple(int(n) for n in np.atleast_1d(item.attrs["sharded_shape"]))

        file.visititems(visit)
        for name in _datasets(file):
            if name != "/parts":
                self._slices[name] = [self.path]

    def __getitem__(self, name: str) -> np.ndarray:
        name = name.lstrip("/")
        if name not in self._slices:
            raise KeyError(f"checkpoint {self.path} has no array {name!r}")
        slices = []
        for path in self._slices[name]:
            with _open(path) as file:
                slices.append(_array(file[name]))
        shape = self._shapes.get("/" + name)
        if shape is None:
            return slices[0]
        whole = np.concatenate([part.ravel() for part in slices])
        if whole.size != int(np.prod(shape)):
            raise ReaderError(f"reading {name} of {self.path}: its parts hold {whole.size} elements, expected {shape}")
        return whole.reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._slices)

    def __len__(self) -> int:
        return len(self._slices)

    def _under(self, group: str) -> list[str]:
        return [name[len(group) + 1:] for name in self if name.startswith(group + "/")]

    @property
    def has_average(self) -> bool:
        """Whether the run kept a moving average of its weights (optim.ema), which evaluation and export use."""
        return any(name.startswith("ema/") for name in self)

    def names(self) -> list[str]:
        """The names of the weights: "blocks.0.attn.q.weight"."""
        return self._under("model")

    def weight(self, name: str, average: bool = True) -> np.ndarray:
        """A weight by name; the moving average if there is one and `average` is true."""
        return self[("ema/" if average and self.has_average else "model/") + name]

    def weights(self, average: bool = True) -> dict[str, np.ndarray]:
        """All weights by name."""
        return {name: self.weight(name, average) for name in self.names()}

    def history(self) -> dict[str, np.ndarray]:
        """The values of each metric at the evaluations of the run, oldest first; NaN where one was not computed."""
        if "state/history/names" in self:
            return dict(zip(self["state/history/names"].tolist(), self["state/history/values"]))
        return {_series(name): self["state/history/" + name] for name in self._under("state/history")}


def _series(link: str) -> str:  # of a dataset of an older file
    for code, character in (("%2F", "/"), ("%2E", "."), ("%25", "%")):
        link = link.replace(code, character)
    return link


class Run:
    """A run directory: its configuration, records and checkpoints.

    Attributes: path, config_text, config ({"optim.lr": "0.001"}), records (the lines of metrics.jsonl as dicts; a number
    that was not finite is None), whole (false if metrics.jsonl ends within a line).
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        for name in ("config.ini", "metrics.jsonl"):
            if not (self.path / name).exists():
                raise ReaderError(f"opening the run {self.path}: there is no {name}; name the folder of --run-dir")
        self.config_text = (self.path / "config.ini").read_text()
        self.config = read_config(self.config_text)
        self.records: list[dict[str, Any]] = []
        self.whole = True
        lines = (self.path / "metrics.jsonl").read_bytes().splitlines()  # the last may end within a character
        for number, line in enumerate(lines, 1):
            try:
                self.records.append(json.loads(line))
            except ValueError as error:
                if number == len(lines):  # the run is writing this line, or was killed while it did
                    self.whole = False
                    break
                raise ReaderError(f"reading {self.path / 'metrics.jsonl'}, line {number}: {error}") from error

    def series(self, name: str, split: str = "train") -> tuple[np.ndarray, np.ndarray]:
        """Steps and values of a metric or a field of the records ("loss", "lr", "samples_per_s"), of one split:
        "train", "validation" or "test". NaN where a value was not finite."""
        found = [(r["step"], r.get("metrics", {}).get(name, r.get(name))) for r in self.records
                 if r["split"] == split and (name in r.get("metrics", {}) or name in r)]
        if not found:
            raise KeyError(f"no {split} record of {self.path} has {name!r}")
        return (np.array([step for step, _ in found], dtype=np.int64),
                np.array([np.nan if value is None else value for _, value in found], dtype=np.float64))

    def checkpoint(self, name: str = "best") -> Checkpoint:
        """A checkpoint of the run: "best", "final", "step-1200"."""
        return Checkpoint(self.path / "checkpoints" / f"{name}.h5")

    @property
    def name(self) -> str:
        """The name of the run directory; of a trial, "SEARCH/trial-1"."""
        names = self.path.resolve().parts
        return "/".join(names[-2:] if names[-1].startswith("trial-") else names[-1:])

    @property
    def pretraining(self) -> Run | None:
        """The run that trained the initial weights (model.pretrain = bprmf), or None."""
        return Run(self.path / "pretrain") if (self.path / "pretrain").is_dir() else None


class Predictions(Mapping[str, np.ndarray]):
    """The columns of an HDF5 file of `lockstep predict` or `lockstep jacobian`, or of any file of datasets, by name.

    Attributes: path, attributes (of the file), column_attributes (of each column: units and the like).
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        with _open(self.path) as file:
            self.attributes = {name: _value(v) for name, v in file.attrs.items()}
            self.column_attributes = {name.lstrip("/"): {a: _value(v) for a, v in file[name].attrs.items()}
                                      for name in _datasets(file)}

    def __getitem__(self, name: str) -> np.ndarray:
        name = name.lstrip("/")
        if name not in self.column_attributes:
            raise KeyError(f"{self.path} has no column {name!r}; it has {', '.join(self) or 'none'}")
        with _open(self.path) as file:
            return _array(file[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.column_attributes)

    def __len__(self) -> int:
        return len(self.column_attributes)


class TrackerError(ReaderError):
    """A tracker of experiments cannot be used as it was asked for."""


def _scalars(record: dict[str, Any]) -> dict[str, float]:
    """The values of a record under the names that the run's TensorBoard files use; those of GPUs are under system/."""
    split, metrics = record["split"], dict(record["metrics"])
    values = {f"loss/{split}": record["loss"]} if "loss" in record else {}
    if split == "train":
        values |= {name: record[name] for name in ("epoch", "lr", "grad_norm", "slowest_by") if name in record}
        values["throughput/samples_per_s"] = record["samples_per_s"]
        values |= {f"seconds/{phase}": value for phase, value in record["seconds"].items() if phase != "total"}
        for rank, gpu in record.get("gpus", {}).items():
            values |= {f"system/gpu/{rank}/{name}": value for name, value in gpu.items()}
    else:
        metrics.pop("loss", None)
    values |= {f"metrics/{split}/{name}": value for name, value in metrics.items()}
    if record.get("best"):
        values |= {"best/step": record["step"]} | {f"best/{name}": value for name, value in metrics.items()}
    return {name: math.nan if value is None else value for name, value in values.items()}


class _Wandb:
    """A run of Weights & Biases. Each record is a row of its history, with the run's step as `step`: its own step
    numbers count rows, because it drops rows of an earlier step."""

    def __init__(self, project: str | None):
        import wandb
        self.wandb, self.project, self.refusals = wandb, project, (wandb.Error, ValueError, OSError)
        self.where = project or ""

    def begin(self, run: Run, key: str | None) -> str:
        config = {}
        for name, value in run.config.items():
            try:
                config[name] = json.loads(value)
            except ValueError:
                config[name] = value
        settings = self.wandb.Settings(console="off", disable_code=True, disable_git=True, x_disable_stats=True)
        self.run = self.wandb.init(project=self.project, id=key, resume="allow", name=run.name,
                                   config=config, settings=settings)
        self.run.define_metric("*", step_metric="step")
        return self.run.id

    def log(self, records: list[dict[str, Any]], rows: int) -> None:
        for row, record in enumerate(records, rows):
            values = {"step": record["step"], "_timestamp": record["time"]} | _scalars(record)
            self.run.log(values, step=row, commit=True)

    def end(self, texts: dict[str, str], state: str) -> None:
        self.run.summary.update({**texts, "state": state})
        self.run.finish(exit_code=int(state == "KILLED"))


class _Mlflow:
    """A run of MLflow. Its names have no characters such as @: ndcg@10 becomes ndcg_10."""

    def __init__(self, project: str | None):
        import mlflow
        self.mlflow, self.project, self.refusals = mlflow, project, (mlflow.MlflowException, ImportError, OSError)
        self.where = f"{mlflow.get_tracking_uri()} {project or ''}"

    def begin(self, run: Run, key: str | None) -> str:
        if key is None and self.project:
            self.mlflow.set_experiment(self.project)
        self.run = self.mlflow.start_run(key, run_name=run.name, log_system_metrics=False).info.run_id
        if key is None:  # a parameter cannot change later
            self.mlflow.log_params(run.config)
        return self.run

    def log(self, records: list[dict[str, Any]], rows: int) -> None:
        metric = self.mlflow.entities.Metric
        self.mlflow.MlflowClient().log_batch(
            self.run, [metric(re.sub(r"[^\w\-. :/]", "_", name), value, int(1000 * r["time"]), r["step"])
                       for r in records for name, value in _scalars(r).items()])

    def end(self, texts: dict[str, str], state: str) -> None:
        self.mlflow.set_tags(texts)
        self.mlflow.end_run(state)


def _state(path: Path) -> str:
    """Whether a run is RUNNING, FINISHED or KILLED: it touches its .lock every 5 s, and empties it at its end."""
    lock = path / ".lock"
    if not lock.exists() or lock.stat().st_size == 0:
        return "FINISHED"
    return "RUNNING" if time.time() - lock.stat().st_mtime < 60 else "KILLED"


def send(path: str | Path, to: str, project: str | None = None, follow: bool = False) -> str:
    """Sends the configuration, records and state of a run to a tracker ("wandb", "mlflow"); returns what it did.

    `tracker-TO.json` in the run directory holds the last step sent of each split, for each project: another call sends
    later steps alone, also after the run was resumed. follow: goes on until the run has ended. Of a search it sends each
    trial, as a run of its own.
    """
    path = Path(path)
    if to == "tensorboard":
        if not any(path.glob("events.out.tfevents.*")):
            raise ReaderError(f"showing the run {path}: it has no events.out.tfevents.*; name the folder of --run-dir")
        return f"{path} already holds the event files of the training: tensorboard --logdir {path}"
    while trials := [file.parent for file in path.glob("trial-*/metrics.jsonl") if b"\n" in file.read_bytes()]:
        state = _state(path)
        lines = [send(trial, to, project) for trial in sorted(trials, key=lambda trial: int(trial.name[6:]))]
        if not follow or state != "RUNNING":
            return "\n".join(lines)
        time.sleep(2)
    try:
        tracker = {"wandb": _Wandb, "mlflow": _Mlflow}[to](project)
    except ImportError as error:
        raise TrackerError(f"sending the run {path} to {to}: {error}; install it for {sys.executable}") from error
    place, sent = path / f"tracker-{to}.json", None
    while sent is None:
        begun = time.monotonic()
        while follow and not (path / "metrics.jsonl").exists() and time.monotonic() - begun < 60:
            time.sleep(1)
        Run(path)
        try:
            with open(os.open(place, os.O_RDWR | os.O_CREAT, 0o666), "r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                sent = _send(path, tracker, place, file, follow)
        except BlockingIOError as error:
            raise TrackerError(f"sending the run {path} to {to}: another process does so; wait for its end") from error
        except tracker.refusals as error:
            raise TrackerError(f"sending the run {path} to {to}: {' '.join(str(error).split())}") from error
    return sent


def _send(path: Path, tracker: _Wandb | _Mlflow, place: Path, file: IO[str], follow: bool) -> str | None:
    """send() with the opened file of the position. None: the run was moved, because another began in its directory."""
    position = json.JSONDecoder().raw_decode(file.read() or "{}")[0]
    sent = position.setdefault(tracker.where, {"key": None, "rows": 0, "steps": {}, "state": ""})
    begun, first, texts = False, sent["rows"], {}
    try:
        while True:
            state = _state(path)  # before the records: none is written after the end
            try:
                run = Run(path)
            except ReaderError:
                if place.exists():
                    raise
            if not place.exists():  # it is moved before the records
                state = "KILLED"
                return None
            new = [r for r in run.records if r["step"] > sent["steps"].get(r["split"], -1)]
            if not begun and run.records and (new or state not in ("RUNNING", sent["state"])):
                sent["key"] = tracker.begin(run, sent["key"])
                begun = True
            if begun:
                tracker.log(new, sent["rows"])
                sent["rows"] += len(new)
                sent["steps"] |= {r["split"]: r["step"] for r in new}
                sent["state"] = state
                text = json.dumps(position).encode()
                os.pwrite(file.fileno(), text, 0)
                os.ftruncate(file.fileno(), len(text))
            if not follow or state != "RUNNING":
                break
            time.sleep(2)
    finally:
        if begun:
            for r in run.records:
                if r["split"] != "train":
                    texts |= {f"protocol/{r['split']}": r["protocol"], "data.file": r["data"]["file"],
                              "data.hash": r["data"]["hash"]}
            tracker.end(texts, state)
    if not run.records:
        raise ReaderError(f"sending the run {path}: its metrics.jsonl has no record yet; repeat the command later")
    if not run.whole:
        print(f"{path / 'metrics.jsonl'} ends within a line; another call sends it when it is whole", file=sys.stderr)
    return f"{path}: {sent['rows'] - first} new records of {len(run.records)} sent; the run is {state.lower()}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Sends a run to a tracker of experiments.")
    parser.add_argument("run", metavar="RUN", help="the run directory")
    parser.add_argument("--to", required=True, choices=["wandb", "mlflow", "tensorboard"])
    parser.add_argument("--project", help="the project of Weights & Biases, or experiment of MLflow")
    parser.add_argument("--follow", action="store_true", help="go on until the run has ended")
    arguments = parser.parse_args()
    try:
        print(send(arguments.run, arguments.to, arguments.project, arguments.follow))
    except ReaderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, TrackerError) else 3
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
