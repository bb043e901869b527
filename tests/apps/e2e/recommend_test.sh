#!/usr/bin/env bash
# Recommendations in files: the same bytes on any number of ranks, the lists that `eval` measures, histories from a
# file, bad input, a full disk.
source "$(dirname "$0")/lib.sh" "$@"
ok "$PREP" synth-sequences --users 150 --min-length 12 --max-length 30 --categories 4 --clusters 2 --members 12 --seed 3 --raw raw.tsv --output data.h5
ok "$PREP" synth-kg --seed 7 --val-fraction 0.2 --output planted.h5
for kind in sasrec tisasrec; do
  ok "$LOCKSTEP" train --model.kind $kind --data.path data.h5 --run-dir $kind --batch_size 64 --num_epochs 1 --maxlen 20 --hidden_units 12 --num_heads 2 --time_span 7
done
for kind in bprmf kgat; do
  ok "$LOCKSTEP" train --model.kind $kind --data.path planted.h5 --run-dir $kind --batch.size 256 --optim.lr 0.01 --epochs 1
done
predict() { # CODE RANKS KIND [further options]
  local code=$1 ranks=$2 kind=$3; shift 3
  run $code on $ranks "$LOCKSTEP" predict --checkpoint $kind/checkpoints/final.h5 "$@"
}

# All users, in each format, on one rank and on three.
mkdir 1 3
for kind in tisasrec kgat; do
  for format in h5 csv jsonl; do
    for ranks in 1 3; do
      predict 0 $ranks $kind --all-users --top 5 --output $ranks/$kind.$format
      says_once "wrote $ranks/$kind.$format: [0-9]+ users \(user, item, score\)"
      says_once "left out: the user's items of train, val and test"
    done
    cmp 1/$kind.$format 3/$kind.$format || fail "$kind.$format on three ranks differs"
  done
done
[ "$(wc -l <1/tisasrec.csv)" = 151 ] || fail "not all users"
for kind in sasrec bprmf; do predict 0 2 $kind --all-users --top 5 --output 1/$kind.csv; done
for what in users items; do
  users=; [ $what = items ] || users=--all-users
  for ranks in 1 3; do predict 0 $ranks tisasrec --embeddings $what $users --output $ranks/$what.csv; done
  cmp 1/$what.csv 3/$what.csv || fail "embeddings of $what on three ranks differ"
done

# The data set's histories from a file give its lists; without each user's last event the test items rank as in `eval`.
{ echo user,item,time; tr '\t' , <raw.tsv; } >all.csv
for kind in sasrec tisasrec; do
  predict 0 2 $kind --histories all.csv --top 5 --output histories.csv
  cmp <(sort histories.csv) <(sort 1/$kind.csv) || fail "$kind: the histories of the data set give other lists"
done
awk -F, 'NR > 1 {if ($1 in last) print $1 "," last[$1]; last[$1] = $2} NR == 1 {print "user,item"} END {for (u in last) print u "," last[u] >"targets.csv"}' all.csv >before.csv
predict 0 1 sasrec --histories before.csv --top 10 --output before-lists.csv
hits=$(awk -F, 'NR == FNR {target[$1] = $2; next} FNR > 1 {for (i = 2; i <= 11; ++i) n += $i == target[$1]} END {print n / length(target)}' targets.csv before-lists.csv)
ok "$LOCKSTEP" eval --checkpoint sasrec/checkpoints/final.h5 --split test --eval.candidates full --eval-k 10 --json
awk -v a="$hits" -v b="$(number 'hr@10' last.out)" 'BEGIN {exit !(a > 0 && (a - b) ^ 2 < 1e-8)}' || fail "$hits of the test items are in the lists, eval says $(number 'hr@10' last.out)"

# What lockstep-prep reads, compressed too; unknown items and users without others are left out and counted.
{ echo 'user_id;item_id;timestamp;note'; awk 'BEGIN {FS = "\t"; OFS = ";"} {print $1, $2, $3 ".5", ""}' raw.tsv; echo '7;nothing;1;'; echo 'nobody;nothing;1;'; } | gzip >all.gz
predict 0 2 tisasrec --histories all.gz --unknown skip --top 5 --output histories.csv
says_once "^note: left out of the histories: 2 events of 1 unknown items, 1 users without a known item: 'nobody' "
cmp <(sort histories.csv) <(sort 1/tisasrec.csv) || fail "other columns give other lists"

# Lists on the terminal; candidates by name; users of a file.
{ for i in $(seq 96); do echo "$i::Film $i (1999)::Drama"; done; } >names.dat
predict 0 1 sasrec --user 7,150 --candidates 'Film 5 (1999),6' --item-names names.dat
says '^user 7$' '^user 150$' ' 1 +-?[0-9.]+  Film 5 \(1999\) \(5\)'
printf '7\n\n150\n' >users.txt
predict 0 1 sasrec --users-file users.txt --top 2 --item-names names.dat --output named.jsonl
grep -qE '^\{"user": 150, "item": \[[0-9]+, [0-9]+\], "score": \[-?[0-9.e-]+, -?[0-9.e-]+\], "name": \["Film [0-9]+ \(1999\)", "Film' named.jsonl || fail "$(cat named.jsonl)"

# A catalogue of four items: one user has an item again, two users have all, one lacks an item.
cat >few.csv <<'END'
user_id,item_id,timestamp
"a,b",x,1
"a,b",y,2
"a,b",z,3
"a,b",x,4
bob,x,1
bob,y,2
bob,z,3
bob,w,4
eve,w,1
eve,z,2
eve,y,3
eve,x,4
dan,x,1
dan,y,2
dan,z,3
END
ok "$PREP" sequences --input few.csv --min-user 1 --min-item 1 --output few.h5
for repeats in drop keep; do
  ok "$LOCKSTEP" train --model.kind sasrec --data.path few.h5 --run-dir few-$repeats --batch_size 2 --num_epochs 1 --maxlen 4 --hidden_units 4 --eval.repeats $repeats
done
says 'test, 4 users, sampled-100 ranking of 4 items, known items included'
ok "$LOCKSTEP" eval --checkpoint few-drop/checkpoints/final.h5
says "^test, 1 users, sampled-100 ranking of 4 items, known items left out; HR@K is 1 for K above 3; eval.repeats = drop \(keep evaluates them\) leaves out 1 user whose held-out item is in their history \\('a,b'\\)" \
  "; left out: 2 users without another item to rank \\('bob', 'eve'\\)" 'candidates +1$' 'hr@10 +1$'
ok "$LOCKSTEP" eval --checkpoint few-drop/checkpoints/final.h5 --split validation
run 3 "$LOCKSTEP" train --model.kind sasrec --data.path few.h5 --run-dir few-error --eval.repeats refuse
says_once "1 user whose held-out item is in their history \\('a,b'\\); set eval.repeats = drop"
predict 0 1 few-drop --user dan
says '^left out: the user.s items of train, val and test$' '^note: the lists rank all 4 items$' '^    1 .* w$'
predict 0 1 few-keep --user dan
says '^left out: nothing$' '^    4 '
predict 0 1 few-keep --user dan --exclude all
says_once '^left out: the user.s items of train, val and test$'
predict 0 1 few-drop --user dan --candidates w,x
predict 0 1 few-drop --embeddings items --output few-items.csv
[ "$(wc -l <few-items.csv)" = 5 ] || fail "not all items: $(cat few-items.csv)"
predict 2 1 few-drop --user dan --top 5
says_once 'option top = 5: more than the 4 items'
predict 2 1 few-drop --user 'a,b'
says_once "'a', 'b' are none of the 4 users .*; --users-file FILE takes ids that contain a comma"

# Bad input: one message, and no file.
refused() { # CODE TEXT KIND [options]
  local code=$1 text=$2 kind=$3; shift 3
  predict $code 3 $kind --output refused.csv "$@"
  says_once "$text"
  [ "$(grep -c '^error' last.err)" = 1 ] || fail "not one message: $*"
  ! ls | grep -q refused || fail "a file was left: $*"
}
mkdir taken.csv
printf '7\nnobody\n8\nnone\n' >unknown.txt
printf 'user,item\na,5\na,500\nb,x\n' >unknown.csv
printf '{"user": "a", "items": [5]}\n{"user": "b", "items": []}\n' >empty.jsonl
refused 2 "option user: 'nobody' is none of the 150 users of '[^']*data.h5' \('1' .. '150'\)" sasrec --user 7,nobody
refused 3 "reading 'unknown.txt': 'nobody' \(line 2\), 'none' \(line 4\) are none of the 150 users" tisasrec --users-file unknown.txt
printf 'org remap\na 0\nb 0\n' >twice.txt
refused 3 "reading 'twice.txt', line 3: number 0 is already that of 'a'" kgat --all-users --user-names twice.txt
printf '7\tFilm::7\n' >tabs.dat
predict 0 1 sasrec --user 7 --candidates Film::7 --item-names tabs.dat
says '  Film::7 \(7\)$'
{ echo 'org remap freebase'; echo ' 0 m.0'; for i in $(seq 399); do echo "item-$i $i m.$i"; done; } >nameless.txt  # the first one
predict 0 1 kgat --user 7 --candidates 'm.0,item-5' --item-names nameless.txt
says '  m.0 \(number 0\)$' '  m.5 \(item-5\)$'
printf '0001\tFilm 1\n0002\tFilm 2\n' >none.dat
refused 3 "reading 'none.dat': none of its ids is an item of the data set \('1' .. '96'\)" sasrec --user 7 --item-names none.dat
printf 'org remap\na 0\nb 1\na 2\n' >twice.txt
refused 3 "reading 'twice.txt', line 4: 'a' is already in line 2" kgat --all-users --user-names twice.txt
refused 2 "option user: '7' occurs twice" kgat --user 7,8,7
refused 2 'option top = 401: more than the 400 items' kgat --user 7 --top 401
refused 2 "option candidates: '400' is none of the 400 items" bprmf --all-users --candidates 1,400
refused 3 "'500' \(line 3\), 'x' \(line 4\) are none of the 96 items" sasrec --histories unknown.csv
refused 3 "'b' \(line 2\): a history without items" sasrec --histories empty.jsonl
refused 3 'it has no times, and this model needs them' tisasrec --histories before.csv
refused 2 'the histories of a file have no splits' sasrec --histories before.csv --exclude train
refused 2 'options user, users-file, histories and all-users: 2 of them are set; set exactly one' sasrec --user 7 --all-users
refused 2 'options user, users-file and all-users: 0 of them are set' kgat
refused 2 'options embeddings and top: both are set' kgat --all-users --embeddings users --top 3
predict 2 1 kgat --all-users
says_once 'add --output FILE'
predict 2 1 kgat --all-users --output taken.csv
says_once 'it is a directory'
predict 2 1 sasrec --users-file users.txt --output users.txt --format csv
says_once "it is the input 'users.txt'"

# A full disk: no file may grow beyond 8 KiB.
for name in full.csv full.jsonl full.h5; do
  run 1 bash -c "trap '' XFSZ; ulimit -f 8; exec '$LOCKSTEP' predict --checkpoint sasrec/checkpoints/final.h5 --all-users --top 50 --output $name"
  [ "$(grep -c '^error' last.err)" = 1 ] || fail "not one message"
  says "$name.*: .*[Ff]ile too large"
  ! ls | grep -q full || fail "a partial file was left"
done

python=${LOCKSTEP_PYTHON:-python3}
"$python" -c 'import h5py, pandas' 2>/dev/null || { not_run "reading the files: $python has no h5py or pandas"; passed; }
predict 0 1 tisasrec --all-users --embeddings users --output users.h5
predict 0 1 tisasrec --embeddings items --output items.h5
predict 0 1 tisasrec --all-users --candidates 3,1,2 --output candidates.csv
predict 0 2 kgat --all-users --exclude train+val --top 20 --output known.h5
ok "$LOCKSTEP" eval --checkpoint kgat/checkpoints/final.h5 --split test --json
LIMIT=200 ok "$python" "$tree/tests/apps/e2e/read_predictions.py" "$(number 'recall@20' last.out)"
passed "lists, scores and embeddings of all users and of histories from a file"
