#!/usr/bin/env bash
# Puzzles: one trajectory for 1, 2 and 4 ranks; a run resumed in the middle of its segments; solving a text file.
source "$(dirname "$0")/lib.sh" "$@"
needs h5diff hdf5-tools

ok "$PREP" synth-sudoku --order 2 --train 40 --test 12 --min-givens 6 --max-givens 9 --num-aug 20 --augment online --output data.h5
train() { # RUN_DIR RANKS [further options]
  local dir=$1 ranks=$2; shift 2
  ok on "$ranks" "$LOCKSTEP" train --model.kind hrm --data.path data.h5 --run-dir "$dir" --data.group_visits 10 --epochs 2 --batch.size 22 \
    --model.hidden_size 16 --model.num_heads 2 --model.expansion 1 --model.h_layers 1 --model.l_layers 1 --model.halt_max_steps 4 \
    --optim.lr 0.003 --schedule.warmup 3 --dist.shards 8 "$@"
  exists "$dir/checkpoints/final.h5"
}
train whole 1 --reproducible
grep -q 'report.html' <(ls whole) || fail "no report"
grep -q 'no validation samples; 12 of the 12 test samples' whole/train.log || fail "nothing says that test puzzles validate"
grep -q 'first test puzzle' whole/report.html || fail "no picture of a puzzle in the report"
# colours_defined FILE: the page defines every colour that its pictures use
colours_defined() {
  local name
  for name in $(grep -oE 'var\(--[a-z0-9]+' "$1" | sort -u | cut -c5-); do grep -qE -- "[ ;{]$name:" "$1" || fail "$1 does not define $name"; done
}
colours_defined whole/report.html
# A plan knows the steps that the run took, and that checkpoints hold the carried states.
ok "$LOCKSTEP" plan --config whole/config.ini
steps=$(grep -oE 'steps: [0-9]+ per epoch' whole/train.log | grep -oE '[0-9]+')
says "^  $steps steps per epoch, 2 epochs" 'carried states +[0-9.]+ KiB +of all 22 samples'
ok "$LOCKSTEP" plan --config whole/config.ini --train.steps 7
says '7 steps \(train.steps\)'
for ranks in 2 4; do
  train r$ranks $ranks --reproducible
  same_model whole/checkpoints/final.h5 r$ranks/checkpoints/final.h5
  h5diff -q whole/checkpoints/final.h5 r$ranks/checkpoints/final.h5 /program >/dev/null 2>&1 || fail "carried states differ on $ranks ranks"
done

# Until a puzzle is solved, the latest weights are the best ones.
train unsolved 1 --optim.lr 1e-9
[ "$(grep -c '"best":true' unsolved/metrics.jsonl)" = 2 ] || fail "the weights of the first evaluation count as the best"

# 7 steps in, sequences are in the middle of their segments; the rest on another number of ranks.
train parts 2 --reproducible --train.steps 7 --schedule.total 36 --checkpoint.layout sharded
train parts 1 --reproducible --train.steps 0 --schedule.total 36
train straight 1 --reproducible --schedule.total 36
same_model straight/checkpoints/final.h5 parts/checkpoints/final.h5
h5diff -q straight/checkpoints/final.h5 parts/checkpoints/final.h5 /program >/dev/null 2>&1 || fail "carried states differ after a resume"

# TRM with a layer across positions, and a depth that grows: one trajectory on 1, 2 and 3 ranks, and of a run resumed in stage 2 of 3.
mixing=(--model.mlp_t --model.pos_encodings none --model.one_network --model.last_cycle_gradient --no-model.q_continue --optim.ema 0.9 --model.h_cycles 3
  --model.l_cycles 3 --loss.segment_decay 0.7 --reproducible --schedule.total 36)
train mixed 1 "${mixing[@]}" --schedule.depth cgar
for ranks in 2 3; do
  train mixed$ranks $ranks "${mixing[@]}" --schedule.depth cgar
  same_model mixed/checkpoints/final.h5 mixed$ranks/checkpoints/final.h5
done
train mixed_parts 2 "${mixing[@]}" --schedule.depth cgar --train.steps 15
train mixed_parts 1 "${mixing[@]}" --schedule.depth cgar --train.steps 0
same_model mixed/checkpoints/final.h5 mixed_parts/checkpoints/final.h5
train mixed_full 1 "${mixing[@]}"
differing_model mixed/checkpoints/final.h5 mixed_full/checkpoints/final.h5  # the depth curriculum has an effect
ok "$LOCKSTEP" predict --checkpoint mixed/checkpoints/final.h5 --input <(printf '1.....2...3....4\n') --output mixed.txt
ok "$LOCKSTEP" export --checkpoint mixed/checkpoints/final.h5 --format safetensors --output mixed.safetensors
ok "$LOCKSTEP" import --model.kind hrm --weights mixed.safetensors --data.path data.h5 --output again.h5
ok on 2 "$LOCKSTEP" eval --checkpoint mixed/checkpoints/final.h5 --tries 3 --json
grep '^{' last.out >mixed.json
ok "$LOCKSTEP" eval --checkpoint again.h5 --tries 3 --json --eval.segments 4
[ "$(grep -o '"loss": *[0-9.e-]*' <(grep '^{' last.out))" = "$(grep -o '"loss": *[0-9.e-]*' mixed.json)" ] || fail "imported weights evaluate differently"
for side in 4 5; do ok "$PREP" synth-maze --side $side --min-path 1 --train 6 --test 3 --output maze$side.h5; done
ok "$LOCKSTEP" train --model.kind hrm --data.path maze4.h5 --run-dir maze "${mixing[@]}" --train.steps 1 --batch.size 4 --model.hidden_size 8 --model.expansion 1 \
  --model.l_layers 1 --model.halt_max_steps 1 --schedule.warmup 0 --dist.shards 2
run 3 "$LOCKSTEP" eval --checkpoint maze/checkpoints/final.h5 --data.path maze5.h5 --other-data
says 'its puzzles have 25 cells, but those of checkpoint .* have 16; a network with model.mlp_t needs puzzles of its own length'
run 2 "$LOCKSTEP" train --model.kind hrm --data.path data.h5 --run-dir none --model.mlp_t
says 'model.pos_encodings = rope: model.mlp_t has no attention'
run 2 "$LOCKSTEP" train --model.kind hrm --data.path data.h5 --run-dir none "${mixing[@]}" --model.expansion 0.001
says 'model.expansion = 0.001: rounds the width of a gated layer to 0'

printf '1...\n' >bad.txt
run 3 "$LOCKSTEP" predict --checkpoint whole/checkpoints/final.h5 --input bad.txt
says 'line 1: the puzzle has 4 cells'
printf '................\n\n11..............\n1..............1\n' >bad.txt
run 3 on 2 "$LOCKSTEP" predict --checkpoint whole/checkpoints/final.h5 --input bad.txt --output answers.txt
says 'line 1: ' 'line 4: ' 'of 2 puzzles solved; 1 line is no puzzle'
says_once "line 3: the puzzle contradicts itself: digit 1 twice in row 1"
[ "$(awk '{print length($0)}' answers.txt | xargs)" = '16 0 0 16' ] || fail "answers are not on the lines of their puzzles"
printf '12x.............\n' >bad.txt
run 3 "$LOCKSTEP" predict --checkpoint whole/checkpoints/final.h5 --input bad.txt
says "'x' in cell 3"
printf '1.....2...3....4\n..4.3....1......\n' >puzzles.txt
ok on 2 "$LOCKSTEP" predict --checkpoint whole/checkpoints/final.h5 --input puzzles.txt --output answers.txt
says 'line 2: ' 'of 2 puzzles solved'
[ "$(wc -l <answers.txt)" = 2 ] || fail "answers.txt has not two lines"
ok "$LOCKSTEP" predict --checkpoint whole/checkpoints/final.h5 --input puzzles.txt --output answers.txt --segments 3
for format in csv h5; do
  ok "$LOCKSTEP" predict --checkpoint whole/checkpoints/final.h5 --input puzzles.txt --output answers.$format --segments 3
  cp answers.$format one.$format
  ok on 3 "$LOCKSTEP" predict --checkpoint whole/checkpoints/final.h5 --input puzzles.txt --output answers.$format --segments 3
  cmp one.$format answers.$format || fail "answers.$format differs on 3 ranks"
done
[ "$(head -1 answers.csv)" = line,puzzle,answer,defect,segments,settled_after,halts_after,q_halt,q_continue,tries,agreeing ] || fail "other columns: $(head -1 answers.csv)"
[ "$(cut -d, -f3 answers.csv | tail -2 | tr '\n' ' ')" = "$(tr '\n' ' ' <answers.txt)" ] && [ "$(cut -d, -f5 answers.csv | tail -2 | xargs)" = '3 3' ] || fail "the table differs from answers.txt"
# A network that halts stops; one that never halts takes all segments.
ok "$LOCKSTEP" predict --checkpoint whole/checkpoints/final.h5 --input puzzles.txt --output halted.csv --segments 9 --halt
awk -F, 'NR > 1 && ($5 != ($7 > 0 ? $7 : 9) || ($7 > 0) != ($8 > $9)) {exit 1}' halted.csv || fail "segments and halting values do not agree"
ok "$LOCKSTEP" eval --checkpoint whole/checkpoints/final.h5 --json
says 'exact_accuracy'
# Several tries at each puzzle: the same answers on any number of ranks and threads.
for ranks in 1 2 3; do
  ok on $ranks "$LOCKSTEP" eval --checkpoint whole/checkpoints/final.h5 --tries 5 --eval.combine rules --halt --threads $ranks --json
  says '"exact.rules@1":' '"segments@4":' '"exact.rules@5":'
  grep '^{' last.out >eval$ranks.json
  ok on $ranks "$LOCKSTEP" predict --checkpoint whole/checkpoints/final.h5 --input puzzles.txt --output tries.csv --tries 5 --eval.combine votes --eval.noise 0.3 \
    --threads $ranks
  says 'of [1-5] tries agree' 'of 2 puzzles solved; 5 tries, combined by votes'
  mv tries.csv tries$ranks.csv
  cmp eval1.json eval$ranks.json && cmp tries1.csv tries$ranks.csv || fail "tries differ on $ranks ranks"
done
run 2 "$LOCKSTEP" eval --checkpoint whole/checkpoints/final.h5 --tries 0
says 'option eval.tries = 0: must be 1..1000000'
run 2 "$LOCKSTEP" predict --checkpoint whole/checkpoints/final.h5 --input puzzles.txt --tries 2 --eval.noise -1
says 'option eval.noise = -1'
run 2 on 2 "$LOCKSTEP" eval --checkpoint whole/checkpoints/final.h5 --split train
says_once 'option split = train: model.kind = hrm evaluates held-out samples only'

# Validation puzzles of the data set choose the best weights, not test puzzles.
ok "$PREP" synth-sudoku --order 2 --train 40 --test 12 --val 9 --min-givens 6 --max-givens 9 --num-aug 20 --augment online --output val.h5
train val 2 --data.path val.h5 --epochs 1
grep -q '9 validation, 12 test samples' val/train.log || fail "the log does not count the validation puzzles"
grep -q 'no validation samples' val/train.log && fail "test puzzles validate although there are validation puzzles"
for part in val:9 test:12; do
  ok "$LOCKSTEP" eval --checkpoint val/checkpoints/best.h5 --split ${part%:*}
  says "best.h5, ${part#*:} ${part%:*} samples"
done
run 2 "$LOCKSTEP" eval --checkpoint val
says 'name a checkpoint file, such as val/checkpoints/best.h5, or the run directory of an ensemble'
run 2 "$LOCKSTEP" info val
says "opening 'val': it is a directory; name a file, such as val/checkpoints/best.h5"
h5diff -q val.h5 data.h5 /train/all/inputs >/dev/null || fail "validation puzzles change the training puzzles"

# The variants of an ARC task vote, on any number of ranks.
TINY="--data.group_visits 8 --train.steps 1 --batch.size 2 --model.hidden_size 8 --model.num_heads 2 --model.expansion 1 \
  --model.h_layers 1 --model.l_layers 1 --model.halt_max_steps 1 --schedule.warmup 0 --dist.shards 2"
mkdir evaluation
for task in a b; do
  printf '{"train": [{"input": [[1, 2]], "output": [[2, 1]]}], "test": [{"input": [[3, 4], [5, 6]], "output": [[4, 3], [6, 5]]}]}' >evaluation/$task.json
done
cp -r evaluation held-out
ok "$PREP" arc --input held-out --num-aug 3 --output arc.h5
says 'warning: the name of no folder or file has the word evaluation or test, so all tests are for training'
ok "$PREP" arc --input evaluation --num-aug 3 --output arc.h5
for ranks in 1 2; do
  ok on $ranks "$LOCKSTEP" train --model.kind hrm --data.path arc.h5 --run-dir arc$ranks $TINY --eval.best pass@2
  ok on $ranks "$LOCKSTEP" eval --checkpoint arc$ranks/checkpoints/final.h5 --json
  says '"pass@1": ?0' '"pass@2": ?0' '"pass@1000": ?0'
  colours_defined arc$ranks/report.html
  grep -q '#ffdc00' arc$ranks/report.html || fail "the grid is not drawn in the colours of ARC"
done
run 2 "$LOCKSTEP" predict --checkpoint arc1/checkpoints/final.h5
says 'options output and submission: neither is set'
run 2 "$LOCKSTEP" predict --checkpoint arc1/checkpoints/final.h5 --submission s.json --tries 2
says 'puzzles of task arc have no common symmetries'
run 2 "$LOCKSTEP" eval --checkpoint arc1/checkpoints/final.h5 --tries 2
says 'puzzles of task arc have no common symmetries'
run 2 "$LOCKSTEP" predict --checkpoint arc1/checkpoints/final.h5 --input puzzles.txt --submission s.json
says 'puzzles of task arc have no text form'
run 2 "$LOCKSTEP" predict --checkpoint whole/checkpoints/final.h5 --input puzzles.txt --submission s.json
says 'only tasks of ARC have one'

# The baseline answers the test inputs that the network answers: those with a known output, wherever they are in the file.
mkdir -p half/evaluation
for open in a b; do
  for task in a b; do
    output=', "output": [[3, 4], [5, 6]]'; [ $task != $open ] || output=
    echo '{"train": [{"input": [[1, 2]], "output": [[1, 2]]}], "test": [{"input": [[3, 4], [5, 6]]'"$output"'}]}' >half/evaluation/$task.json
  done
  ok "$PREP" arc --input half/evaluation --num-aug 3 --output half.h5
  ok "$LOCKSTEP" train --model.kind hrm --data.path half.h5 --run-dir half-$open $TINY
  ok "$LOCKSTEP" eval --checkpoint half-$open/checkpoints/final.h5 --baseline --json
  says '"samples":4,' '"most frequent answers":\{"exact_accuracy":1\.0,"accuracy":1\.0'
done

# Tasks without answers, as in a contest: two attempts at each of their inputs, the same on any number of ranks.
for task in a b; do sed -i 's/, "output": \[\[4, 3\], \[6, 5\]\]//' evaluation/$task.json; done
printf '{"train": [{"input": [[1, 2]], "output": [[2, 1]]}], "test": [{"input": [[3]]}, {"input": [[5, 6]]}]}' >evaluation/c.json
ok "$PREP" arc --input evaluation --num-aug 3 --output open.h5
ok "$LOCKSTEP" train --model.kind hrm --data.path open.h5 --run-dir open $TINY
run 3 "$LOCKSTEP" eval --checkpoint open/checkpoints/final.h5
says 'it has no test samples'
for ranks in 1 3; do
  ok on $ranks "$LOCKSTEP" predict --checkpoint open/checkpoints/final.h5 --submission s$ranks.json --output table.csv
  says 'two attempts at each test input of 3 tasks'
  mv table.csv t$ranks.csv
done
cmp s1.json s3.json && cmp t1.csv t3.csv || fail "attempts differ on 3 ranks"
grep -qE '^\{"a":\[\{"attempt_1":\[\[.*\]\],"attempt_2":\[\[.*\]\]\}\],"b":\[\{.*"c":\[\{"attempt_1".*\},\{"attempt_1".*\}\]\}$' s1.json || fail "no submission: $(cut -c1-200 s1.json)"
[ "$(wc -l <t1.csv)" = 17 ] || fail "the table has not a row for each variant of each test input"
run 3 "$LOCKSTEP" predict --checkpoint open/checkpoints/final.h5 --data.path arc.h5 --submission s.json
says 'it was trained on other data|open/checkpoints/final.h5'
passed "puzzles are learnt, resumed and solved"
