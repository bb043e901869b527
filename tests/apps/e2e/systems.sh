# Data and options for tests that train every system.
# tiny_data: the data of tiny_systems, in the working directory
tiny_data() {
  ok "$PREP" synth-icecolumn --rows 600 --seed 3 --output data.h5
  ok "$PREP" synth-kg --seed 7 --users 60 --output kg.h5
  ok "$PREP" synth-sequences --users 30 --min-length 12 --max-length 20 --categories 4 --clusters 2 --members 12 --seed 3 --output sequences.h5
  ok "$PREP" synth-sudoku --order 2 --train 20 --test 6 --min-givens 6 --max-givens 9 --num-aug 4 --output sudoku.h5
  ok "$PREP" synth-har --subjects 4 --seconds 10 --output har.h5
}
# tiny_systems: a line NAME OPTION... for each system, all reproducible
tiny_systems() {
  cat <<END
emulator --data.path data.h5 --batch.size 100 --model.hidden_size 16 --epochs 2 --reproducible
kgat --model.kind kgat --dist.mode replicate --reproducible --data.path kg.h5 --batch.size 256 --epochs 2 --model.mess_dropout 0.1 --model.conv_dims 16,8 --model.embed_dim 16
bprmf --model.kind bprmf --reproducible --data.path kg.h5 --batch.size 64 --epochs 1 --steps 4 --model.embed_dim 16
tisasrec --model.kind tisasrec --reproducible --data.path sequences.h5 --batch_size 16 --num_epochs 1 --maxlen 12 --hidden_units 12 --num_heads 2 --time_span 7
hrm --model.kind hrm --reproducible --data.path sudoku.h5 --data.group_visits 4 --epochs 1 --batch.size 10 --steps 3 --model.hidden_size 16 --model.num_heads 2 --model.expansion 1 --model.h_layers 1 --model.l_layers 1 --model.halt_max_steps 2 --schedule.warmup 2 --dist.shards 4
har --model.kind har --reproducible --data.path har.h5 --batch.size 12 --epochs 1 --steps 3 --model.dim 16 --model.layers 1 --model.heads 2 --model.mlp 32 --model.hidden 16 --warmup-epochs 0
END
}
# small_data: the data of small_options, in the working directory
small_data() {
  ok "$PREP" synth-icecolumn --rows 600 --output emulator.h5
  ok "$PREP" synth-har --subjects 6 --output har.h5
  ok "$PREP" synth-kg --seed 7 --output kgat.h5
  ok "$PREP" synth-sequences --users 100 --output tisasrec.h5
  ok "$PREP" synth-sudoku --order 2 --train 20 --test 10 --min-givens 4 --max-givens 8 --num-aug 4 --output hrm.h5
}
# small_options KIND: its data and a small network
small_options() {
  case $1 in
    emulator) echo "--data.path emulator.h5 --batch.size 50 --model.hidden_size 8" ;;
    har) echo "--data.path har.h5 --batch.size 32 --model.dim 16 --model.layers 1 --model.heads 2 --model.mlp 32 --model.hidden 16 --model.mode independent" ;;
    kgat) echo "--data.path kgat.h5 --batch.size 256 --model.embed_dim 16 --model.conv_dims 16 --model.mess_dropout 0.1 --model.pretrain bprmf --model.pretrain_epochs 1" ;;
    bprmf) echo "--data.path kgat.h5 --batch.size 256 --model.embed_dim 16" ;;
    sasrec | tisasrec) echo "--data.path tisasrec.h5 --batch.size 25 --model.maxlen 10 --model.hidden_units 8" ;;
    hrm) echo "--data.path hrm.h5 --batch.size 8 --model.hidden_size 32 --model.num_heads 2 --model.h_layers 1 --model.l_layers 1 --model.halt_max_steps 2 --data.group_visits 2" ;;
  esac
}
