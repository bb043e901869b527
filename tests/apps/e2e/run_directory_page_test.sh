#!/usr/bin/env bash
# docs/run-directory.md and the Metrics tables of docs/models/ name every file, key and word that a run writes, and no other.
# Short trainings of every kind of model write; a name that only one side has fails.
source "$(dirname "$0")/systems.sh"
source "$(dirname "$0")/lib.sh" "$1"
page=$tree/docs/run-directory.md

# Documented names that no run here writes or leaves: fp16 and measurements of GPUs need a GPU, votes need ARC tasks,
# initial.h5 weights of another program, rescue-N.h5 a lost rank, and the previous best files are removed by the next
# checkpoint.
unwritten='initial.h5 checkpoints/rescue-N.h5 checkpoints/previous-best/ tracker-NAME.json metrics.loss_scale metrics.skipped_steps metrics.pass@K'
unwritten+=' training gpus.RANK.utilization_percent training gpus.RANK.memory_bytes training gpus.RANK.power_w training gpus.RANK.sm_clock_mhz'

# --- the runs; the first directory also holds a former run
small_data
emulator() { ok "$LOCKSTEP" train $(small_options emulator) --run-dir emulator --epochs 2 --jacobian.every 1 "$@"; }
emulator --checkpoint.every 1
SLURM_JOB_ID=7 emulator --resume never --checkpoint.every 1 --checkpoint.best_keep 2 --profile 2..3 --reproducible
ok "$LOCKSTEP" eval --checkpoint emulator/checkpoints/best.h5 --record
ok "$LOCKSTEP" train $(small_options emulator) --run-dir ensemble --epochs 1 --ensemble.members 2
train() { ok on "${ranks:-1}" "$LOCKSTEP" train --model.kind "$1" $(small_options "$1") --run-dir "$1" --epochs 1 "${@:2}"; }
train har --schedule.warmup 0
for kind in kgat bprmf sasrec; do train $kind; done
ranks=2 train tisasrec
train hrm --schedule.warmup 0 --eval.tries 2

# rows HEADER FILE: the rows of the tables whose first column is called HEADER
rows() {
  awk -F'|' -v header="$1" '
    !/^\|/ {inside = 0}
    inside && !/^\|[ -]*-/
    /^\|/ && $2 ~ "^ *" header " *$" {inside = 1}' "$2"
}
# names HEADER FILE: the names in backticks in the first column of these tables
names() { rows "$@" | cut -d'|' -f2 | grep -oE '`[^`]+`' | tr -d '`'; }
# as_regex: names as expressions. Capital letters stand for a name or a number, * for anything.
as_regex() { sed -E 's/[.+]/\\&/g; s/\*/.*/g; s/[A-Z]+/[A-Za-z0-9_.+-]+/g; s|/$||; s/^/^/; s/$/$/'; }
# compare WHAT WRITTEN DOCUMENTED [OPTIONAL]: each line of the first file matches a name of the second or third, each name of the second a line
compare() {
  local name found=0
  as_regex <"$3" >expressions
  [ -z "${4:-}" ] || as_regex <"$4" >>expressions
  [ -s "$2" ] && [ -s "$3" ] || fail "$1: nothing to compare"
  ! grep -vE -f expressions "$2" >undocumented || fail "$1: written, but not documented: $(tr '\n' ' ' <undocumented)"
  while read -r name; do
    case " $unwritten " in *" $name "*) continue ;; esac
    grep -qE -e "$(as_regex <<<"$name")" "$2" || fail "$1: '$name' is documented, but no run writes it"
    found=$((found + 1))
  done <"$3"
  echo "$1: $found names"
}
# keys FILE: "training KEY" or "evaluation KEY" for each value of a file of JSON lines
keys() {
  awk '{
    record = index($0, "\"split\":\"train\"") ? "training" : "evaluation"
    depth = 0
    for (i = 1; i <= length($0); ++i) {
      c = substr($0, i, 1)
      if (c == "{") ++depth
      if (c == "}") --depth
      if (c != "\"") continue
      end = index(substr($0, i + 1), "\"") + i
      if (substr($0, end + 1, 1) == ":") {
        path[depth] = (depth > 1 ? path[depth - 1] "." : "") substr($0, i + 1, end - i - 1)
        if (substr($0, end + 2, 1) != "{") print record, path[depth]
      }
      i = end
    }
  }' "$@" | sort -u
}
# words FILE...: the words that are no numbers in the lines of steps
words() { sed -nE 's/^.{19}  (step .*)/\1/p' "$@" | tr ' ' '\n' | grep -vE '^([-+0-9]|nan|inf)' | sort -u; }

# --- files
(cd emulator && find . -mindepth 1 -name 'previous-*' -prune -printf '%P\n' -o -type f -printf '%P\n') >written
find kgat ensemble -maxdepth 1 -type d '(' -name pretrain -o -name 'member-*' ')' -printf '%f\n' >>written
names file "$page" >documented
compare "files" written documented

# --- metrics.jsonl: keys of this page in the records for which it names them; metrics of a model on the page of the model
kinds="emulator har kgat bprmf sasrec tisasrec hrm"
declare -A page_of=([bprmf]=kgat [tisasrec]=sasrec)
rows key "$page" | tr -d '`' |
  while IFS=' |' read -r _ key records _; do for record in ${records/all/training evaluation}; do echo "$record $key"; done; done >documented
keys $(printf '%s/metrics.jsonl ' $kinds) emulator/evaluations.jsonl >every_key
grep -vF ' metrics.' every_key >written
grep -vF ' metrics.' documented >plain
compare "keys of metrics.jsonl" written plain
sed -n 's/^training \(metrics\..*\)/\1/p' documented >common
for kind in $kinds; do
  keys $kind/metrics.jsonl | sed -n 's/^[a-z]* \(metrics\..*\)/\1/p' | sort -u >written
  names metric "$tree/docs/models/${page_of[$kind]:-$kind}.md" | sed 's/^/metrics./' >own
  [ $kind != bprmf ] || sed -i /triples_loss/d own  # on kgat's page
  compare "metrics of $kind" written own common
  compare "metrics of every kind" written common own
done

# A ranking has no loss: no record, line or chart calls one of its metrics so.
for kind in kgat bprmf; do
  ! grep -v '"split":"train"' $kind/metrics.jsonl | grep -q '"loss"' || fail "$kind: an evaluation's record has a loss"
  ! grep -q ' loss ' $kind/val.log || fail "$kind: val.log has a loss"
  ! grep -qE '(validation|test) loss, (best|last)' $kind/report.html || fail "$kind: the report has a loss of an evaluation"
  ! grep -qaE 'loss/(validation|test)' $kind/events.out.tfevents.* || fail "$kind: TensorBoard has a loss of an evaluation"
done

# The examples are records as a run of SASRec writes them now.
awk '/^```json/ {inside = 1; next} /^```/ {if (inside) print ""; inside = 0} inside {printf "%s", $0}' "$page" | tr -d ' ' >examples
keys examples >documented
keys sasrec/metrics.jsonl >written
cmp -s written documented || fail "the examples' keys are not those of a run: $(diff written documented)"

# --- train.log and val.log
names 'word of train.log' "$page" >documented
words $(printf '%s/train.log ' $kinds) >written
names key "$page" | sed -n 's/^seconds\.//p' >phases
compare "words of train.log" written documented phases
names 'word of val.log' "$page" >documented
words $(printf '%s/val.log ' $kinds) >written
for kind in $kinds; do names metric "$tree/docs/models/${page_of[$kind]:-$kind}.md"; done | sort -u >metric_names
compare "words of val.log" written documented metric_names
passed "the pages name what runs write"
