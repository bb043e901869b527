# shellcheck shell=bash disable=SC2154,SC2034
# The models that train.sh and devices.sh take some steps of. To be sourced where the data may lie, with $prep naming lockstep-prep.
"$prep" synth-sequences --output sequences.h5 --users 60 --min-length 8 --max-length 12 --categories 4 --clusters 2 --members 5 --quiet
"$prep" synth-kg --output kg.h5 --users 30 --quiet
"$prep" synth-sudoku --output sudoku.h5 --order 2 --train 24 --test 8 --quiet
"$prep" synth-har --output har.h5 --subjects 4 --seconds 20 --quiet
small_models=(  # kind, data, options
  "sasrec sequences.h5 --maxlen 12 --hidden_units 8 --batch.size 16"
  "tisasrec sequences.h5 --maxlen 12 --hidden_units 8 --mhc streams --batch.size 16"
  "kgat kg.h5 --batch.size 32"
  "bprmf kg.h5 --batch.size 32"
  "hrm sudoku.h5 --model.hidden_size 16 --model.num_heads 2 --batch.size 8 --schedule.warmup 0"
  "har har.h5 --batch.size 8 --schedule.warmup 0"
)
