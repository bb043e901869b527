#!/usr/bin/env bash
# The command lines of the guides of the five public programs: each runs, or is answered with the words to use.
# `train KIND WORD...` stands for the program of the guide; docs/quick-reference.md has the pairs.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$tree/tests/apps/e2e/systems.sh"
small_data
mkdir data
cp tisasrec.h5 data/ml-1m.h5
cp kgat.h5 data/kgat-last-fm.h5
short="--steps 2 --eval.final none"
# runs RANKS KIND WORD... / answered TEXT KIND WORD...
runs() { ok on "$1" "$LOCKSTEP" train --model.kind "$2" $short "${@:3}" --resume never; }
answered() { run 2 "$LOCKSTEP" train --model.kind "$2" "${@:3}"; says "$1"; }
items=(--hidden_units 8 --num_heads 1)
graph=(--model.embed_dim 16 --model.conv_dims 16 --model.mess_dropout 0.1)
cells=(--model.hidden_size 32 --model.num_heads 2 --model.h_layers 1 --model.l_layers 1 --model.halt_max_steps 2)
windows=(--data.path har.h5 --model.dim 16 --model.layers 1 --model.heads 2 --model.mlp 32 --model.hidden 16)

# --- sequences
runs 4 tisasrec --dataset=ml-1m --train_dir=tisasrec_4gpu --batch_size=64 --use_amp --multi_gpu --master_port=29500 "${items[@]}"
says 'batch: 64 over 4 ranks \(16 each\)' 'option --use_amp: CPUs compute in fp32' 'option --multi_gpu: nothing: mpirun or srun starts a rank' \
  'option --master_port: nothing' 'option --dataset: data.path = data/ml-1m.h5'
exists tisasrec_4gpu/{train.log,val.log,checkpoints/best.h5,checkpoints/final.h5} tisasrec_4gpu/events.out.tfevents.*
runs 2 tisasrec --dataset=ml-1m --train_dir=tisasrec_2gpu --batch_size=32 --use_amp --multi_gpu "${items[@]}"
runs 1 tisasrec --dataset=ml-1m --train_dir=tisasrec_lowmem --batch_size=64 --maxlen=100 --use_amp --mhc_no_amp "${items[@]}"
says 'option --mhc_no_amp: all sums are fp32 anyway'
runs 1 sasrec --dataset=ml-1m --train_dir=words --num_workers=8 --lr=0.0005 --warmup_steps=500 --no_mhc --no_time --inference_only=false --batch_size 64 "${items[@]}"
says 'option --num_workers: nothing: the threads of a rank draw its samples' 'learning rate: 5e-04|learning rate: 0.0005'
for backend in gloo mpi; do runs 2 sasrec --dataset=ml-1m --train_dir=backend --backend=$backend --batch_size 64 "${items[@]}"; says 'gradients by mpi'; done
answered 'option --inference_only: lockstep eval --checkpoint FILE' sasrec --inference_only=true
answered 'option --dataset = ml-20m: there is neither data/ml-20m.h5 nor data/tisasrec-ml-20m.h5; prepare the data with lockstep-prep sequences' tisasrec --dataset ml-20m
answered 'option run.backend = nccl' sasrec --dataset ml-1m --backend=nccl --batch_size 64 "${items[@]}"
# Weights of a checkpoint, of a file of lockstep export, and of another program, whose options must be given.
network=(--model.pad_mask key --model.ln_eps 1e-8 --model.ffn_residual true)
final=tisasrec_4gpu/checkpoints/final.h5
ok "$LOCKSTEP" export --checkpoint $final --output own.safetensors
ok python3 - own.safetensors other.pth <<'PY'
# The arrays of a safetensors file as torch.save writes them, without torch.
import collections, io, itertools, json, pickle, sys, types, zipfile
Storage = type("FloatStorage", (), {"__module__": "torch"})
def _rebuild_tensor_v2(*parts): pass
_rebuild_tensor_v2.__module__ = "torch._utils"
for name, member in ("torch", Storage), ("torch._utils", _rebuild_tensor_v2):
    sys.modules[name] = types.ModuleType(name)
    setattr(sys.modules[name], member.__name__, member)
class Tensor:
    def __init__(self, key, shape):
        self.storage, self.shape = Storage(), tuple(shape)
        strides = list(itertools.accumulate([1, *shape[:0:-1]], lambda a, b: a * b))[::-1]
        self.storage.key, self.storage.count, self.strides = key, strides[0] * shape[0], tuple(strides)
    def __reduce__(self):
        return _rebuild_tensor_v2, (self.storage, 0, self.shape, self.strides, False, collections.OrderedDict())
class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        return ("storage", Storage, value.key, "cpu", value.count) if isinstance(value, Storage) else None
data = open(sys.argv[1], "rb").read()
size = int.from_bytes(data[:8], "little")
header = {n: a for n, a in json.loads(data[8:8 + size]).items() if n != "__metadata__"}
text = io.BytesIO()
Pickler(text, 2).dump(collections.OrderedDict((n, Tensor(str(i), a["shape"])) for i, (n, a) in enumerate(header.items())))
with zipfile.ZipFile(sys.argv[2], "w") as file:
    file.writestr("other/data.pkl", text.getvalue())
    for i, a in enumerate(header.values()):
        file.writestr(f"other/data/{i}", data[8 + size + a["data_offsets"][0]:8 + size + a["data_offsets"][1]])
PY
for file in $final own.safetensors other.pth; do
  words=(); [ $file = own.safetensors ] || words=("${items[@]}")
  [ $file != other.pth ] || { answered 'the arrays do not determine these options of the network:' tisasrec --dataset ml-1m --state_dict_path=$file; words+=("${network[@]}"); }
  runs 2 tisasrec --dataset=ml-1m --train_dir=from-${file##*/} --batch_size=64 --state_dict_path=$file --inference_only=false "${words[@]}"
  [ $file = $final ] || says "first weights, from .*$file: tisasrec, [0-9]* arrays" "from the (arrays|configuration) in $file: "
  same_model from-final.h5/checkpoints/final.h5 from-${file##*/}/checkpoints/final.h5
done
for word in --nnodes=2 --node_rank=0 --master_addr=host1 --nproc_per_node=4; do
  answered 'srun or mpirun --hostfile starts the ranks of all nodes, see docs/launching.md' sasrec $word
done

# --- KGAT
runs 2 kgat --dataset last-fm --batch_size_per_gpu 64 --epochs 1 --run-dir kgat "${graph[@]}"
says 'data.path = data/kgat-last-fm.h5' 'batch: 128 over 2 ranks \(64 each\) of interactions; 256 of triples'
mkdir configs
printf '[model]\nkind = kgat\nembed_dim = 16\nconv_dims = 16\n[batch]\nsize = 96\n' >configs/kgat-last-fm.ini
runs 2 kgat --dataset last-fm --batch.accumulate 2 --lr-scaling sqrt
says 'option --dataset: the configuration is configs/kgat-last-fm.ini' 'batch: 192 over 2 ranks \(96 each\) of interactions, 2 micro-batches of 96 at once; 384 of triples' 'scaled by scale_lr = sqrt'
exists runs/kgat-last-fm/checkpoints/final.h5
runs 1 kgat --data.path kgat.h5 --run-dir words --n_epoch 1 --embed_dim 16 --relation_dim 8 --layer_size '[16, 8]' --alg_type bi --adj_type si \
  --use_att true --use_kge false --mess_dropout '[0.1, 0.1]' --Ks '[20, 40]'
says 'model.conv_dims = 16,8, model.aggregator = bi-interaction, model.laplacian = random-walk' 'model.kge = false, eval.k = 20,40'
answered 'option --num_gpus = 2: with --device cuda; on CPUs, mpirun -n 2 lockstep train' kgat --num_gpus 2
answered 'option --fp16: CPUs compute in fp32 or fp64' kgat --fp16 --dataset last-fm

# --- the emulator: YAML with sections and scalars
cat >config.yaml <<'YAML'
# of the public program
data:
  data_path: emulator.h5
  validation_split: 0.1
training:
  batch_size: 50
  optimizer:
    type: "adam"
    learning_rate: 0.001  # lr
  scheduler: null
  epochs: 1
  log_interval: 2
  use_ema: false
  ema_decay: 0.9
model:
  input_size: 14
  hidden_size: 8
variables:
  input_variables:
    - 'sst'  # of the public list
output:
  model_dir: "yaml run"
YAML
runs 2 emulator --config config.yaml --optim.scale_lr sqrt --data.layout divided
says 'batch: 50 over 2 ranks' 'learning rate: 0.00141.*scaled by scale_lr = sqrt'
says 'config.yaml:[0-9]*: data.validation_split: nothing: lockstep-prep chooses columns and rows' \
  'config.yaml:[0-9]*: training.log_interval: nothing: each epoch has a record'
exists 'yaml run/checkpoints/final.h5'
grep -qx 'ema = 0' 'yaml run/config.ini' || fail "use_ema: false was ignored"
sed -i 's/use_ema: false/use_ema: true/' config.yaml
runs 1 emulator --config config.yaml
grep -qx 'ema = 0.9' 'yaml run/config.ini' || fail "use_ema: true was ignored"
refuses() { printf '%b' "$1" >bad.yaml; run 2 "$LOCKSTEP" train --config bad.yaml; says "bad.yaml:$2"; }
refuses 'training:\n\tbatch_size: 5\n' '2: a tab before the key; indent with blanks'
refuses 'training: &base\n  batch_size: 5\n' "1: '&base' is not a scalar; anchors"
refuses 'training:\n  batch_size: 5\n  batch_size: 6\n' '3: training.batch_size is already set in line 2'
refuses 'training:\n  batch_size: 5\n  puzzle_emb_lr: 6\n' '3: unknown key training.puzzle_emb_lr'
refuses 'puzzle_emb_lr: 6\n' '1: unknown key puzzle_emb_lr for model.kind = emulator; it is a key of hrm'
refuses 'training:\n  deep:\n    batch_size: 5\n' '3: unknown key training.deep.batch_size'
refuses 'training:\n  batch_size: 5\n    deep: 5\n' "3: 'deep: 5' is indented otherwise than the keys of its map, by 2 blanks"
refuses 'training:\n    batch_size: 5\n  epochs: 5\n' "3: 'epochs: 5' is indented otherwise than the keys of its map, by 0 blanks"
refuses 'data:\n  - path: a\n' "2: '- path: a': only lists of scalars"
refuses 'data\n' "1: 'data' is neither section: nor key: value"

# --- HRM: key=value without dashes
runs 2 hrm data_path=hrm.h5 epochs=20 eval_interval=10 lr=1e-4 puzzle_emb_lr=1e-4 weight_decay=1.0 puzzle_emb_weight_decay=1.0 global_batch_size=8 "${cells[@]}" \
  --data.group_visits 2 --run-dir hrm
says 'batch: 8 over 2 ranks'
grep -qxE 'puzzle_lr = (0.0001|1e-0?4)' hrm/config.ini && grep -qx 'puzzle_weight_decay = 1' hrm/config.ini && grep -qx 'every = 10' hrm/config.ini ||
  fail "the words did not reach the configuration"
runs 1 hrm data_path=hrm.h5 epochs=1 lr_min_ratio=0.1 lr_warmup_steps=3 global_batch_size=8 arch.loss.loss_type=softmax_cross_entropy arch.L_cycles=1 \
  arch.pos_encodings=learned "${cells[@]}" --data.group_visits 2 --run-dir full
for line in 'min_ratio = 0.1' 'warmup = 3' 'name = softmax' 'l_cycles = 1' 'pos_encodings = learned'; do grep -qx "$line" full/config.ini || fail "no $line"; done
trm=(evaluators=[] lr=1e-4 arch.mlp_t=True arch.pos_encodings=none arch.L_layers=1 arch.H_cycles=1 arch.L_cycles=2 +run_name=trm ema=True)
runs 1 hrm data_paths=[hrm.h5] global_batch_size=8 "${trm[@]}" "${cells[@]}" --data.group_visits 2
for line in 'ema = 0.999' 'mlp_t = true'; do grep -qx "$line" runs/trm/config.ini || fail "no $line"; done
says 'option --evaluators: nothing: '
answered 'option --arch = trm: --config configs/hrm-trm-sudoku.ini' hrm arch=trm data_path=hrm.h5
mkdir npy
answered 'option data.path = .*npy: it is a folder; lockstep-prep hrm-npy --input DIR' hrm data_path=npy
answered "unexpected argument 'puzzle_emb_lrx=1'; did you mean optim.puzzle_lr\?" hrm puzzle_emb_lrx=1
answered 'unknown option --puzzle_emb_lr for model.kind = har; it is a key of hrm' har --puzzle_emb_lr 1
answered "unexpected argument 'puzzle_emb_lr=1' for model.kind = har; it is a key of hrm" har puzzle_emb_lr=1
# A directory for each start, named by all ranks alike.
for start in 1 2; do
  runs 2 hrm --data.path hrm.h5 --batch.size 8 "${cells[@]}" --data.group_visits 2 --run-dir auto --checkpoint.layout sharded
  says 'run directory: runs/hrm-[0-9]{8}-[0-9]{6}$'
  sleep 1
done
[ "$(ls -d runs/hrm-*/checkpoints | wc -l)" = 2 ] || fail "not a directory for each start"

# --- HAR
runs 4 har --multi-gpu ddp --mode flatten --epochs 20 --batch-size 8 --lr 4e-3 --warmup-epochs 2 --num-workers 4 --save-dir checkpoints/ddp_4gpu --weight-decay 1e-4 "${windows[@]}"
says 'batch: 32 over 4 ranks \(8 each\)'
exists checkpoints/ddp_4gpu/checkpoints/final.h5
says 'precision fp32 \(auto: that of CPUs\)'
ok on 4 "$LOCKSTEP" train --model.kind har $short --batch-size 8 --lr 4e-3 --warmup-epochs 2 --save-dir checkpoints/ddp_4gpu --weight-decay 1e-4 "${windows[@]}" --steps 3
says 'continuing from checkpoints/ddp_4gpu/'
runs 8 har --multi-gpu ddp --epochs 20 --batch-size 4 --lr 4e-3 --no-amp --log-interval 1 --save-dir ddp_8gpu "${windows[@]}"
says 'batch: 32 over 8 ranks \(4 each\)'
answered 'option dist.gpu_ids = 0,...: only with --device cuda' har --multi-gpu dp --gpu-ids 0,1 --batch-size 8 "${windows[@]}"
answered 'options batch.size = 8 and batch.per_rank = 4 .*: only one of them can hold; give one' har --batch-size 4 --batch.size 8 "${windows[@]}"
answered "unexpected argument '32'; values of one option are separated by commas, as in --hidden-dims 64,32" har --hidden-dims 64 32 "${windows[@]}"
answered 'option batch.per_rank = 0: must be >= 1' har --batch-size 0 "${windows[@]}"
answered 'option run.precision = bf16: only with run.device = cuda' har --precision bf16 "${windows[@]}"
runs 1 har --multi-gpu dp --replicas 2 --batch-size 8 --save-dir dp "${windows[@]}"
says 'batch: 16 over 2 replicas \(8 each\)'
runs 4 har --batch-size 4 --grad-accum-steps 4 --save-dir accum "${windows[@]}"
says 'batch: 64 over 4 ranks \(16 each\), in 4 micro-batches of 16'

# --- a checkpoint after each epoch, while that is cheap: clocks choose the files, not the weights
epochs=(--dataset=ml-1m --batch_size=64 --num_epochs 6 --eval.final none --eval.every 100 --checkpoint.copy false "${items[@]}")
ok on 2 "$LOCKSTEP" train --model.kind sasrec "${epochs[@]}" --train_dir often
says_once 'checkpoints: writing one took .* s, so there is not one after each epoch but about every '
ok on 2 "$LOCKSTEP" train --model.kind sasrec "${epochs[@]}" --train_dir each --checkpoint.every 1
[ "$(ls each/checkpoints/step-*.h5 | wc -l)" = 3 ] || fail "checkpoint.every = 1 left no 3 checkpoints"
same_model often/checkpoints/final.h5 each/checkpoints/final.h5

# --- the card has the words that are no options
for word in train_distributed.sh torchrun torch.distributed.launch hpc/train.sh MASTER_ADDR MASTER_PORT TORCH_DISTRIBUTED_DEBUG \
  NCCL_DEBUG NCCL_IB_DISABLE NCCL_P2P_LEVEL NCCL_SOCKET_IFNAME OMP_NUM_THREADS NUM_GPUS BATCH_SIZE; do
  grep -q "$word" "$tree/docs/quick-reference.md" || fail "docs/quick-reference.md lacks $word"
done
passed "the command lines of the guides"
