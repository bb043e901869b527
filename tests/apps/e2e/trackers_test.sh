#!/usr/bin/env bash
# lockstep_reader.py --to wandb, mlflow, tensorboard: a tracker has each record once, beside a training and after calls
# were repeated or the run was continued, set back or replaced; of a search, each trial. The trackers' own packages read
# it back.
source "$(dirname "$0")/lib.sh" "$1"
PYTHON=${LOCKSTEP_PYTHON:-python3}
"$PYTHON" -c 'import h5py, numpy' 2>/dev/null || { echo "skipped: $PYTHON has no h5py (python3-h5py)"; exit 77; }
export PYTHONPATH=$tree/src/capi PYTHONDONTWRITEBYTECODE=1 WANDB_MODE=offline WANDB_SILENT=true
export MLFLOW_ALLOW_FILE_STORE=true MLFLOW_TRACKING_URI=file:$work/mlruns
ok "$PREP" synth-icecolumn --rows 600 --output ice.h5
train="$LOCKSTEP train --data.path ice.h5 --batch.size 120 --model.hidden_size 8 --train.log_every 2 --run-dir run"
# send CODE TEXT ARGUMENT...: calls the reader, which says the text; an error is one line
send() {
  run "$1" "$PYTHON" -W ignore "$tree/src/capi/lockstep_reader.py" "${@:3}"
  says "$2"
  [ "$1" = 0 ] || [ "$(wc -l <last.err)" = 1 ] || fail "not one line of error"
}
ok $train --epochs 2
printf '[sweep]\noptim.lr = choice(0.001, 0.01)\n' >space.ini
ok "$LOCKSTEP" sweep --config space.ini --data.path ice.h5 --batch.size 120 --model.hidden_size 8 --epochs 2 \
  --run-dir search
mkdir missing empty
for name in wandb mlflow; do
  echo "raise ModuleNotFoundError('no package $name')" >missing/$name.py
  PYTHONPATH=$work/missing send 2 "no package $name; install it for" --to $name run
done
send 0 'tensorboard --logdir run' --to tensorboard run
send 3 'no events.out.tfevents' --to tensorboard empty

cat >check.py <<'ENDPY'
"""check.py TRACKER RUNS: the run named last has the records of the run directory, each once; there are as many runs.
check.py TRACKER trials: each trial of the search is a run with its learning rate and as many records."""
import glob, json, struct, sys
import lockstep_reader as lockstep


def wandb_records(path):
    """The messages of an offline file: blocks of 32 KiB, as in LevelDB's log."""
    from wandb.proto.wandb_internal_pb2 import Record
    data, at, message = open(path, "rb").read(), 7, b""
    assert data[:4] == b":W&B"
    while at < len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        message += data[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(message)
            message = b""


def items(update):
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in update}


def of_wandb():
    rows, config, summary, runs = [], {}, {}, []
    for path in sorted(glob.glob("wandb/offline-run-*/*.wandb")):
        for record in wandb_records(path):
            if record.WhichOneof("record_type") == "run" and record.run.run_id not in runs:
                assert record.run.project == "ice" and record.run.display_name == "run"
                runs.append(record.run.run_id)
                rows, config = [], items(record.run.config.update)
            summary |= items(record.summary.update)
            if record.history.item:
                rows.append(items(record.history.item))
    assert [row["_step"] for row in rows] == list(range(len(rows)))
    assert config["optim.lr"] == float(run.config["optim.lr"])
    assert summary["state"] == "FINISHED" and summary["data.file"] == "ice.h5" and "columns" not in summary
    return len(runs), lambda name: [(row["step"], row[name]) for row in rows if name in row], summary["best/step"]


def of_mlflow():
    import mlflow
    client = mlflow.MlflowClient()
    runs = client.search_runs([client.get_experiment_by_name("ice").experiment_id], order_by=["attribute.start_time"])
    sent = runs[-1]
    assert sent.info.status == "FINISHED" and sent.info.run_name == "run" and sent.data.tags["data.file"] == "ice.h5"
    assert sent.data.params["optim.lr"] == run.config["optim.lr"] and len(sent.data.params) == len(run.config)
    return (len(runs), lambda name: [(m.step, m.value) for m in client.get_metric_history(sent.info.run_id, name)],
            sent.data.metrics["best/step"])


def trials_of_wandb():
    for path in glob.glob("wandb/offline-run-*/*.wandb"):
        records = list(wandb_records(path))
        run = next(r.run for r in records if r.WhichOneof("record_type") == "run")
        if run.project == "trials":
            yield run.display_name, items(run.config.update)["optim.lr"], sum(bool(r.history.item) for r in records)


def trials_of_mlflow():
    import mlflow
    client = mlflow.MlflowClient()
    for sent in client.search_runs([client.get_experiment_by_name("trials").experiment_id]):
        count = [len(client.get_metric_history(sent.info.run_id, name)) for name in ("loss/train", "loss/validation")]
        yield sent.info.run_name, float(sent.data.params["optim.lr"]), sum(count)


if sys.argv[2] == "trials":
    trials = {"search/trial-1": 0.001, "search/trial-2": 0.01}
    expected = [(name, lr, len(lockstep.Run(name).records)) for name, lr in trials.items()]
    found = sorted({"wandb": trials_of_wandb, "mlflow": trials_of_mlflow}[sys.argv[1]]())
    assert found == expected, f"{found}, expected {expected}"
    sys.exit()
run = lockstep.Run("run")
count, series, best = {"wandb": of_wandb, "mlflow": of_mlflow}[sys.argv[1]]()
assert count == int(sys.argv[2]), f"{count} runs"
for name, key, split in (("loss/train", "loss", "train"), ("lr", "lr", "train"), ("epoch", "epoch", "train"),
                         ("loss/validation", "loss", "validation"), ("metrics/validation/rmse", "rmse", "validation"),
                         ("metrics/test/rmse", "rmse", "test")):
    expected = list(zip(*(column.tolist() for column in run.series(key, split))))
    last = slice(-1 if split == "test" else 0, None)  # a run that is set back drops the test of its former end
    assert series(name)[last] == expected[last], f"{name}: {series(name)}, expected {expected}"
assert best == [r["step"] for r in run.records if r.get("best")][-1]
ENDPY

for name in wandb mlflow; do
  "$PYTHON" -c "import $name" 2>/dev/null || { not_run "$PYTHON has no $name"; continue; }
  to() { send "$1" "$2" --to "$name" --project ice "${@:3}"; }
  ok $train --epochs 2 --resume never --checkpoint.every 1
  cp -r run/config.ini empty && : >empty/metrics.jsonl
  to 3 'has no record yet' empty
  mkdir run/tracker-$name.json
  to 2 'Is a directory' run
  rmdir run/tracker-$name.json

  cp run/metrics.jsonl whole.jsonl
  head -c -20 whole.jsonl >run/metrics.jsonl
  to 0 'ends within a line' run
  cp whole.jsonl run/metrics.jsonl
  to 0 ' 1 new records' run
  ok $train --epochs 3  # continues
  to 0 ' [1-9][0-9]* new records' run
  ok $train --epochs 3 --resume "$(ls -v run/checkpoints/step-*.h5 | head -1)"  # repeats later steps
  to 0 ' 0 new records' run
  ok "$PYTHON" check.py $name 1

  $train --epochs 20 --resume never >job.log 2>&1 &  # another run, followed from its start
  job=$!
  await $job job.log "start" test -s run/.lock
  to 0 'the run is finished' run --follow
  wait $job || fail "the training failed: $(tail -3 job.log)"
  ok "$PYTHON" check.py $name 2

  send 0 'search/trial-2: [1-9][0-9]* new records' --to "$name" --project trials search
  send 0 'search/trial-2: 0 new records' --to "$name" --project trials search
  ok "$PYTHON" check.py $name trials
done
passed "each record once in Weights & Biases and MLflow; TensorBoard's own files"
