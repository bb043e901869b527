# shellcheck shell=bash disable=SC2154,SC2034
# The models that train.sh and devices.sh train for some steps. Source this where the data shall be created, with $prep
# naming lockstep-prep.
small_models=(  # kind, data, options
  "sasrec sequences.h5 --maxlen 12 --hidden_units 8 --batch.size 16"
  "tisasrec sequences.h5 --maxlen 12 --hidden_units 8 --mhc streams --batch.size 16"
  "kgat kg.h5 --batch.size 32"
  "bprmf kg.h5 --batch.size 32"
  "hrm sudoku.h5 --model.hidden_size 16 --model.num_heads 2 --model.h_layers 1 --model.l_layers 2 --model.halt_max_steps 3 --batch.size 8 --schedule.warmup 0"
  "har har.h5 --model.layers 2 --model.dim 16 --model.heads 2 --model.head_width 8 --model.mlp 32 --batch.size 8 --schedule.warmup 0"
)
small_data() {  # FILE: creates it if it does not exist
  [ ! -f "$1" ] || return 0
  case $1 in
    sequences.h5) set -- "$1" synth-sequences --users 60 --min-length 8 --max-length 12 --categories 4 --clusters 2 --members 5 ;;
    kg.h5) set -- "$1" synth-kg --users 30 ;;
    sudoku.h5) set -- "$1" synth-sudoku --order 2 --train 24 --test 4 ;;
    har.h5) set -- "$1" synth-har --subjects 4 --seconds 10 ;;
  esac
  "$prep" "${@:2}" --output "$1" --quiet
}
