#!/usr/bin/env bash
# lockstep_reader.py reads what the programs write: checkpoints of both layouts, with and without averages, records,
# predictions; and it refuses damage with one message.
source "$(dirname "$0")/lib.sh" "$1"
PYTHON=${LOCKSTEP_PYTHON:-python3}
"$PYTHON" -c 'import h5py, numpy' 2>/dev/null || { echo "skipped: $PYTHON has no h5py (python3-h5py)"; exit 77; }
ok "$PREP" synth-icecolumn --rows 600 --output ice.h5
OPTIONS="--data.path ice.h5 --batch.size 120 --epochs 3 --model.hidden_size 8 --reproducible --seed 4 --train.log_every 2"
ok on 2 "$LOCKSTEP" train $OPTIONS --optim.ema 0.9 --run-dir single
ok on 3 "$LOCKSTEP" train $OPTIONS --optim.ema 0.9 --run-dir sharded --checkpoint.layout sharded
ok "$LOCKSTEP" train $OPTIONS --run-dir plain --resume never
ok "$LOCKSTEP" predict --checkpoint plain/checkpoints/final.h5 --input ice.h5 --output predictions.h5
ok "$LOCKSTEP" export --checkpoint plain/checkpoints/final.h5 --format safetensors --output plain.safetensors
mkdir moved && mv sharded/checkpoints/* moved/ && mv moved/final.h5 moved/renamed.h5
cat >check.py <<'END'
import json, struct, sys
import h5py
import numpy as np
import lockstep_reader as lockstep

single, plain = lockstep.Checkpoint("single/checkpoints/final.h5"), lockstep.Checkpoint("plain/checkpoints/final.h5")
sharded = lockstep.Checkpoint("moved/renamed.h5")  # the parts keep the old name
assert single.kind == "emulator" and single.seed == 4 and single.ranks == 2 and sharded.ranks == 3
assert single.config["optim.ema"] == "0.9" and single.config["run.reproducible"] == "true", single.config
assert single.state["step"] == sharded.state["step"] > 0 and single.state["finished"] == 1
assert single.has_average and not plain.has_average
assert sorted(single) == sorted(sharded) and any(name.startswith("optim/") for name in single)
for name in single:
    if name == "config" or name.startswith("state/"):
        continue
    assert single[name].dtype == sharded[name].dtype and np.array_equal(single[name], sharded[name]), name
name = "network.0.weight"
assert single.weight(name).shape == (8, 9) == sharded.weight(name, average=False).shape
assert np.array_equal(single.weight(name), single["ema/" + name])
assert np.array_equal(single.weight(name, average=False), single["model/" + name])
assert not np.array_equal(single.weight(name), single.weight(name, average=False))
assert list(single.weights()) == single.names() and len(single.names()) == 8

# The weights are those that another format has.
with open("plain.safetensors", "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    begin = file.tell()
    for name, weight in plain.weights().items():
        first, last = header[name]["data_offsets"]
        file.seek(begin + first)
        assert np.array_equal(np.frombuffer(file.read(last - first), "<f4").reshape(header[name]["shape"]), weight), name

run = lockstep.Run("plain")
steps, rmse = run.series("rmse", split="validation")
assert list(steps) == sorted(steps) and len(steps) == 3
assert np.array_equal(rmse, plain.history()["rmse"]), (rmse, plain.history())
assert run.checkpoint().state["best_epoch"] >= 1 and run.config == plain.config and run.pretraining is None
assert len(run.series("lr")[0]) == len([r for r in run.records if r["split"] == "train"]) > 3
with open("plain/metrics.jsonl", "a") as file:
    file.write('{"step": 9')  # a run that is killed within a line
assert len(lockstep.Run("plain").records) == len(run.records)

columns = lockstep.Predictions("predictions.h5")
with h5py.File("ice.h5") as data:
    assert columns["y"].shape == data["y"].shape
    assert np.isfinite(columns["y"]).all()
assert "y" in columns and "x" not in columns

with h5py.File("texts.h5", "w") as file:  # columns of any kind, with attributes
    file["item"] = np.array([b"shoe", b"hat"])
    file["item"].attrs["units"] = "name"
    file["score"] = np.array([[1.0, 0.5], [2.0, 0.25]])
    file.attrs["command"] = "predict"
texts = lockstep.Predictions("texts.h5")
assert list(texts["item"]) == ["shoe", "hat"] and texts.column_attributes["item"] == {"units": "name"}
assert texts.attributes["command"] == "predict" and texts["score"].shape == (2, 2)

assert lockstep.read_config('[a]\nb = "x \\"#\\" y\\n" ; c\n; d = 1\nc = 2 # e\nf =\n[g]\nh=i#j') == {
    "a.b": 'x "#" y\n', "a.c": "2", "a.f": "", "g.h": "i#j"}


def refused(make, *words):
    try:
        make()
    except lockstep.ReaderError as error:
        assert all(word in str(error) for word in words), error
        assert "\n" not in str(error).strip()
    else:
        sys.exit(f"not refused: {words}")


whole = open("single/checkpoints/final.h5", "rb").read()
for name, data in (("cut.h5", whole[:-100]), ("longer.h5", whole + b"x"), ("empty.h5", b"")):
    open(name, "wb").write(data)
    refused(lambda: lockstep.Checkpoint(name), name, "mark of a whole checkpoint")
refused(lambda: lockstep.Checkpoint("nothing.h5"), "nothing.h5", "no such file")
refused(lambda: lockstep.Checkpoint("ice.h5"), "ice.h5")
refused(lambda: lockstep.Predictions("check.py"), "check.py", "not an HDF5 file")
refused(lambda: lockstep.Run("moved"), "moved", "config.ini")
part = next(p for p in __import__("pathlib").Path("moved").glob("final.h5.*part-1-of-3"))
part.rename("part")
refused(lambda: lockstep.Checkpoint("moved/renamed.h5"), part.name, "no such file")
END
export PYTHONPATH=$tree/src/capi PYTHONDONTWRITEBYTECODE=1
ok "$PYTHON" check.py
passed "checkpoints of both layouts, records and predictions in Python"
