# For tests that train every system on a tiny configuration, as reproducibly as it can: source it before lib.sh.
# The data of tiny_systems, in the working directory.
tiny_data() {
  ok "$PREP" synth-icecolumn --rows 600 --seed 3 --output data.h5
  ok "$PREP" synth-kg --seed 7 --users 60 --output kg.h5
  ok "$PREP" synth-sequences --users 30 --min-length 12 --max-length 20 --categories 4 --clusters 2 --members 12 --seed 3 --output sequences.h5
  ok "$PREP" synth-sudoku --order 2 --train 20 --test 6 --min-givens 6 --max-givens 9 --num-aug 4 --output sudoku.h5
  ok "$PREP" synth-har --subjects 4 --seconds 10 --output har.h5
}
# NAME OPTION..., a line for each system
tiny_systems() {
  cat <<END
emulator --data.path data.h5 --batch.size 100 --model.hidden_size 16 --epochs 2 --reproducible
kgat --model.kind kgat --dist.mode replicate --reproducible --data.path kg.h5 --batch.size 256 --batch.scope global --epochs 2 --model.mess_dropout 0.1 --model.conv_dims 16,8 --model.embed_dim 16
bprmf --model.kind bprmf --reproducible --data.path kg.h5 --batch.size 64 --batch.scope global --epochs 1 --steps 4 --model.embed_dim 16
tisasrec --model.kind tisasrec --reproducible --data.path sequences.h5 --batch_size 16 --num_epochs 1 --maxlen 12 --hidden_units 12 --num_heads 2 --time_span 7
hrm --model.kind hrm --reproducible --data.path sudoku.h5 --data.group_visits 4 --epochs 1 --batch.size 10 --steps 3 --model.hidden_size 16 --model.num_heads 2 --model.expansion 1 --model.h_layers 1 --model.l_layers 1 --model.halt_max_steps 2 --schedule.warmup 2 --dist.shards 4
har --model.kind har --reproducible --data.path har.h5 --batch-size 12 --batch.scope global --epochs 1 --steps 3 --model.dim 16 --model.layers 1 --model.heads 2 --model.mlp 32 --model.hidden 16 --warmup-epochs 0
END
}
