#!/usr/bin/env bash
# Activity recognition through the programs: signals to a quality that a broken model cannot reach, pictures, one process as good as two,
# micro-batches as good as a batch, and wrong input named.
source "$(dirname "$0")/lib.sh" "$@"
needs h5diff hdf5-tools
ok "$PREP" synth-har --subjects 8 --output data.h5
OPTIONS="--model.kind har --data.path data.h5 --seed 1"
SMALL="$OPTIONS --model.dim 16 --model.layers 1 --model.heads 2 --model.mlp 32 --model.hidden 16 --warmup-epochs 0 --lr 0.003"

# --- signals on two ranks; the figures of the test windows are those of eval
ok on 2 "$LOCKSTEP" train $SMALL --run-dir run --epochs 8 --batch-size 16
exists run/checkpoints/best.h5 run/report.html
grep -q 'aria-label="confusion"' run/report.html || fail "report.html has no confusion matrix"
ok on 2 "$LOCKSTEP" eval --config run/config.ini --checkpoint run/checkpoints/best.h5 --split test --json
below 0.8 "$(number accuracy last.out)" "80 % against the accuracy"
below 0.8 "$(number macro_f1 last.out)" "80 % against the macro F1"
says '"tables":\{"confusion":\{"rows":\["WALKING",' '"classes":\{"rows":.*"columns":\["precision","recall","f1","support"\]'
ok "$LOCKSTEP" eval --checkpoint run/checkpoints/best.h5
says '^classes$' 'precision +recall' '^confusion$' '^  SITTING( +[0-9]+){6}$'

# --- one process with two replicas is two processes, to the bit; so are shards of another number of threads
SHORT="$SMALL --epochs 1 --reproducible --augment.shift --augment.turn 10 --augment.stretch 0.1"
ok on 2 "$LOCKSTEP" train $SHORT --run-dir ddp --batch-size 12
ok "$LOCKSTEP" train $SHORT --run-dir dp --batch-size 12 --parallel dp --replicas 2 --threads 2
says 'dp with 2 replicas' 'batch: 24 over 2 replicas \(12 each\)'
same_model ddp/checkpoints/final.h5 dp/checkpoints/final.h5
ok "$LOCKSTEP" train $SHORT --run-dir one --batch-size 12
differing_model ddp/checkpoints/final.h5 one/checkpoints/final.h5

# --- four micro-batches are one batch
ok "$LOCKSTEP" train $SHORT --run-dir large --batch-size 24
ok "$LOCKSTEP" train $SHORT --run-dir micro --batch-size 6 --grad-accum-steps 4
close_model large/checkpoints/final.h5 micro/checkpoints/final.h5 2e-4

# --- stopped and started again, the run ends as if it had not been
ok "$LOCKSTEP" train $SHORT --run-dir halves --batch-size 24 --steps 9 --checkpoint.every_steps 9
ok "$LOCKSTEP" train $SHORT --run-dir halves --batch-size 24 --steps 0
same_model large/checkpoints/final.h5 halves/checkpoints/final.h5

# --- pictures, every mode, a frozen encoder that begins with another run's weights
PICTURE="$OPTIONS --model.input image --model.image 32 --patch-size 8 --model.dim 16 --model.layers 1 --model.heads 2 --model.head_width 8 --model.mlp 16 \
  --hidden-dims 8 --warmup-epochs 0 --epochs 1 --batch-size 16"
for mode in flatten independent average first; do ok "$LOCKSTEP" train $PICTURE --data-pct 10 --mode $mode --run-dir image-$mode; done
for name in $(h5ls image-flatten/checkpoints/final.h5/model | awk '/^encoder/ {print $1}'); do
  h5copy -i image-flatten/checkpoints/final.h5 -o encoder.h5 -s "/model/$name" -d "/$name"
done
ok "$LOCKSTEP" train $PICTURE --data-pct 10 --run-dir frozen --encoder-weights encoder.h5 --freeze-encoder
values() { h5dump -y -w 0 -d /model/encoder.encoder_layers.0.mlp.dense1.weight "$1/checkpoints/final.h5" | awk '/DATA/ {on = 1} on {print} on && /}/ {exit}'; }
[ -n "$(values frozen)" ] && [ "$(values frozen)" = "$(values image-flatten)" ] || fail "a frozen encoder is not what it began with"
# A resumed run has its weights from the checkpoint: it does not need that file. Another file is another configuration.
mv encoder.h5 moved.h5
ok "$LOCKSTEP" train ${PICTURE/epochs 1/epochs 2} --data-pct 10 --run-dir frozen --encoder-weights encoder.h5 --freeze-encoder
says 'continuing from'
run 2 "$LOCKSTEP" train ${PICTURE/epochs 1/epochs 2} --data-pct 10 --run-dir frozen --encoder-weights moved.h5 --freeze-encoder
says 'model.encoder_weights: encoder.h5 there, moved.h5 here'
ok "$LOCKSTEP" bench $PICTURE --sweep-batch --seconds 0.01 --warmup 1
says 'windows/s' 'images/s' 'recommended: --batch.per_rank'

# --- recordings for tests alone are judged by a trained model, if their sampling rate is that of the training
for recording in a b c; do awk -v s=$recording 'BEGIN {print "x,y"; for (t = 0; t < 64; ++t) print sin(t * (s == "a" ? 1 : 2)), cos(t)}' >$recording.csv; done
printf '%s\n' a.csv,walk,1,train b.csv,sit,2,train c.csv,sit,3,val >own.csv
echo c.csv,sit,3,test >tests.csv
ok "$PREP" har own.csv --rate 50 --window 16 --output own.h5
ok "$PREP" har own.csv --rate 25 --window 16 --output slow.h5
ok "$PREP" har tests.csv --rate 50 --window 16 --like own.h5 --output tests.h5
ok "$LOCKSTEP" train $SMALL --data.path own.h5 --run-dir own --model.patch 4 --epochs 1 --batch-size 4
ok "$LOCKSTEP" eval --checkpoint own/checkpoints/final.h5 --data.path tests.h5 --split test
says ', 4 test samples of tests.h5'
run 2 on 2 "$LOCKSTEP" train $SMALL --data.path own.h5 --run-dir bad --model.patch 4 --augment.turn 10
says_once 'augment.turn = 10: no three neighbouring channels of .*own.h5. are named like .* they are x, y;'
ok "$PREP" har own.csv --rate 50 --window 16 --stride 20 --output apart.h5
run 2 "$LOCKSTEP" train $SMALL --data.path apart.h5 --run-dir bad --model.patch 4 --augment.shift
says 'augment.shift = true: no training window of .*apart.h5. overlaps or touches the next'
run 3 "$LOCKSTEP" train $SMALL --data.path tests.h5 --run-dir bad --model.patch 4
says 'no training windows; it serves only to evaluate'
run 3 "$LOCKSTEP" eval --checkpoint own/checkpoints/final.h5 --data.path slow.h5 --split val
says 'trained on other windows' 'sampling rate in Hz: 50 there, 25 here'

# --- recordings without labels: the class of each window and of each recording, the same bytes on 1 and 3 ranks
printf '%s\n' c.csv,,anna, a.csv,walk,bob,test b.csv,,, >new.csv
run 3 "$PREP" har new.csv --rate 50 --window 16 --like own.h5 --output new.h5
says 'new.csv:1: the label is empty; --unlabelled'
ok "$PREP" har new.csv --unlabelled --rate 50 --window 16 --stride 4 --units g,m/s2 --like own.h5 --output new.h5
ok "$PREP" check new.h5
says '26 windows have no label'
NEW="predict --checkpoint own/checkpoints/final.h5 --input new.h5"
for format in csv h5 jsonl; do
  ok "$LOCKSTEP" $NEW --output windows.$format --recordings votes.$format
  for file in windows votes; do mv $file.$format one-$file.$format; done
  ok on 3 "$LOCKSTEP" $NEW --output windows.$format --recordings votes.$format
  for file in windows votes; do cmp one-$file.$format $file.$format || fail "$file.$format differs on 3 ranks"; done
done
run 2 "$LOCKSTEP" $NEW --data.path own.h5 --output windows.csv
says 'option input' 'data.path names the windows, too'
run 2 "$LOCKSTEP" $NEW --output votes.csv --recordings ./votes.csv
says 'the same file'
ok "$LOCKSTEP" $NEW --output windows.csv --recordings votes.csv
says 'of 13 labelled windows' 'of 1 recordings with one label' '^confusion$' '^classes$' 'does not say the units of its channels; those of new.h5 are g, m/s2'
[ "$(head -1 windows.csv)" = window,recording,subject,start,start_s,class,label,probability_sit,probability_walk,truth ] || fail "other columns: $(head -1 windows.csv)"
[ "$(wc -l <windows.csv)" = 40 ] || fail "windows.csv has not a line for each of 39 windows"
awk -F, 'NR > 1 && ($8 + $9 < 0.999999 || $8 + $9 > 1.000001 || ($9 > $8 ? $7 != "walk" : $7 != "sit")) {exit 1}' windows.csv || fail "labels and probabilities do not agree"
awk -F, 'NR > 1 {n[$2, $7]++} END {while ((getline line < "votes.csv") > 0) {split(line, v, ","); if (v[1] != "recording" && (v[6] != n[v[1], "sit"] + 0 || v[7] != n[v[1], "walk"] + 0)) exit 1}}' windows.csv || fail "the votes are not those of the windows"
grep -q '^c.csv,anna,13,' votes.csv || fail "no vote for c.csv of anna"
run 3 "$LOCKSTEP" eval --checkpoint own/checkpoints/final.h5 --data.path new.h5
says 'window 0 has no label; such a set serves lockstep predict only'
run 3 "$LOCKSTEP" $NEW --split val --output windows.csv
says 'new.h5: it has no validation windows'
ok "$LOCKSTEP" predict --checkpoint own/checkpoints/final.h5 --split val --output windows.csv
says 'accuracy [01.]+ of 4 labelled windows'
# one message names every difference
ok "$PREP" har own.csv --rate 50 --window 16 --units g --output units.h5
ok "$LOCKSTEP" train $SMALL --data.path units.h5 --run-dir units --model.patch 4 --epochs 1 --batch-size 4
printf '%s\n' a.csv,run,1,train b.csv,sit,2,val >other.csv
ok "$PREP" har other.csv --rate 25 --window 32 --columns y --units m/s2 --output other.h5
run 3 on 2 "$LOCKSTEP" predict --checkpoint units/checkpoints/final.h5 --data.path other.h5 --split val --output windows.csv
says_once 'classes: 2 \(sit, walk\) there, 2 \(run, sit\) here; channels: 2 \(x, y\) there, 1 \(y\) here; units: 2 \(g, g\) there, 1 \(m/s2\) here; samples of a window: 16 there, 32 here; sampling rate in Hz: 50 there, 25 here'

# --- folds over subjects: the same on 1 and 3 ranks, and after an interruption; a class with few windows weighs more
NO_FOLDS="folds $SMALL --epochs 2 --batch-size 16 --reproducible --data.balance weights"
FOLDS="$NO_FOLDS --data.folds 4"
ok "$LOCKSTEP" $FOLDS --run-dir folds
exists folds/report.html folds/fold-4/report.html folds/fold-1/checkpoints/final.h5
below 0.5 "$(number accuracy folds/folds.json)" "50 % against the accuracy of a fold"
[ "$(grep -o '"tests": "subjects [^"]*"' folds/folds.json | grep -o '[0-9]*' | sort -n | tr '\n' ' ')" = '1 2 3 4 5 6 7 8 ' ] || fail "each subject is not tested once"
[ "$(tr -d '\n ' <folds/folds.json | grep -oE '"confusion":[^]]*][^]]*][^]]*' | grep -oE '[0-9]+\.0' | awk '{n += $1} END {print n}')" = "$(h5ls data.h5/train data.h5/val data.h5/test | awk '/labels/ {gsub(/[{}]/, ""); n += $3} END {print n}')" ] || fail "the summed confusion has not every window once"
grep -q '"protocol":"test, mean of 4 folds","data":{"file":"data.h5","hash":"[0-9a-f]\{16\}"}' folds/metrics.jsonl || fail "the record of all folds does not say what it is of"
run 2 "$LOCKSTEP" compare folds
says 'lockstep compare folds/fold-1 OTHER/fold-1'
ok "$LOCKSTEP" compare folds/fold-1
run 85 on 3 "$LOCKSTEP" $FOLDS --run-dir folds3 --run.max_hours 0.000001
says '0 of 4 folds are finished; the same command continues'
ok on 3 "$LOCKSTEP" $FOLDS --run-dir folds3
cmp folds/folds.json folds3/folds.json || fail "folds.json differs after an interruption and on 3 ranks"
ok "$LOCKSTEP" $FOLDS --run-dir folds
! grep -q "train loss" last.err || fail "a finished fold was trained again"
cmp folds/folds.json folds3/folds.json || fail "folds.json differs after another start"
run 2 on 2 "$LOCKSTEP" $FOLDS --run-dir folds --weight-decay 0.1
says 'holds a run of another configuration' 'optim.weight_decay'
ok on 2 "$LOCKSTEP" train $SMALL --epochs 2 --batch.size 16 --reproducible --data.folds 4 --data.fold 2 --data.balance weights --run-dir fold2
same_model folds/fold-2/checkpoints/final.h5 fold2/checkpoints/final.h5
ok "$LOCKSTEP" eval --checkpoint folds/fold-2/checkpoints/final.h5 --json
[ "$(number accuracy last.out)" = "$(sed -n '/"fold": 2/,$p' folds/folds.json >two && number accuracy two)" ] || fail "eval of a fold tests other windows"
for wrong in '9 has.8.subjects;.there.must.be.at.least.as.many.as.folds' '1 must.be.a.number.of.folds,.at.least.2' 'none lockstep.folds.needs.a.number.of.folds,.or.subjects'; do
  run 2 on 2 "$LOCKSTEP" $NO_FOLDS --run-dir bad --data.folds ${wrong% *}
  says_once "${wrong#* }"
done
run 2 "$LOCKSTEP" folds --model.kind sasrec --data.path data.h5
says 'lockstep folds is for model.kind = har'
run 2 "$LOCKSTEP" $FOLDS --run-dir bad --data.fold 2
says 'lockstep train trains this one'

# --- wrong input
run 2 "$LOCKSTEP" predict --model.kind sasrec --checkpoint run/checkpoints/best.h5 --user 1
says 'option model.kind = sasrec: checkpoint run/checkpoints/best.h5 holds a model of kind har'
run 2 "$LOCKSTEP" train $SMALL --run-dir bad --gpu-ids 0,7
says 'gpu_ids' 'only with --device cuda'
run 2 "$LOCKSTEP" train $SMALL --run-dir bad --parallel dp --replicas 2 --device cuda
says 'dist.replicas = 2' 'dist.gpu_ids'
run 2 on 2 "$LOCKSTEP" train $SMALL --run-dir bad --parallel dp --replicas 2
says_once '(^| )error'
run 2 "$LOCKSTEP" train $SMALL --run-dir bad --replicas 2
says 'replicas'
run 2 "$LOCKSTEP" train $SMALL --run-dir bad --hidden-dims 64,x
says 'hidden'
run 3 "$LOCKSTEP" train $SMALL --run-dir bad --encoder-weights run/checkpoints/best.h5
says 'reading encoder weights' 'not in this network'
passed "activities"
