#!/usr/bin/env bash
# The batch is that of all ranks: each shipped configuration trains to the same bits on 1, 2 and 3 ranks.
# batch.per_rank grows with the ranks instead; runs of earlier versions, with batch.scope, are understood.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$tree/tests/apps/e2e/systems.sh"
small_data
last=--eval.final\ none
for config in "$tree"/configs/*.ini; do
  name=$(basename "$config" .ini)
  kind=$(awk '/^\[/ {section = $1} section == "[model]" && $1 == "kind" {print $3}' "$config")
  for ranks in 1 2 3; do
    # shellcheck disable=SC2046
    ok on $ranks "$LOCKSTEP" train --config "$config" $(small_options "$kind") --reproducible --epochs 1 --steps 2 $last --run-dir "$name-$ranks"
    [ $ranks = 1 ] || for group in /model /optim; do
      h5diff "$name-1/checkpoints/final.h5" "$name-$ranks/checkpoints/final.h5" $group >diff.out 2>&1 || fail "$name: $group differs on $ranks ranks"
    done
  done
  ! grep -E '^(per_rank|scope)' "$config" || fail "$name counts the samples of a rank"
done

# --- batch.per_rank, and the words of the guides for it
HAR="$(small_options har | sed 's/--batch.size 32//') --model.kind har --reproducible --epochs 1 --steps 2 $last"
for words in '--batch.per_rank 8' '--batch-size 8' '--batch_size_per_gpu 8' '--batch.size 16'; do
  # shellcheck disable=SC2086
  ok on 2 "$LOCKSTEP" train $HAR $words --run-dir "har${words// /}"
  says 'batch: 16 over 2 ranks \(8 each\)'
  same_model har--batch.per_rank8/checkpoints/final.h5 "har${words// /}/checkpoints/final.h5"
done
ok "$LOCKSTEP" train $HAR --batch.per_rank 8 --run-dir alone
says 'batch: 8 on 1 rank'
differing_model alone/checkpoints/final.h5 har--batch.per_rank8/checkpoints/final.h5
run 2 "$LOCKSTEP" train $HAR --batch.per_rank 8 --batch.size 16
says 'options batch.size = 16 and batch.per_rank = 8 \(command line\): only one of them can hold; give one'
run 2 "$LOCKSTEP" train $HAR --batch.per_rank 0
says 'option batch.per_rank = 0: must be >= 1'
# The command line replaces what the file says, either way.
printf '[batch]\nsize = 16\n' >size.ini
printf '[batch]\nper_rank = 16\n' >each.ini
ok on 2 "$LOCKSTEP" train $HAR --config size.ini --batch.per_rank 4 --run-dir a
says 'batch: 8 over 2 ranks \(4 each\)'
ok on 2 "$LOCKSTEP" train $HAR --config each.ini --batch.size 6 --run-dir b
says 'batch: 6 over 2 ranks \(3 each\)'
printf '[batch]\nsize = 16\nper_rank = 16\n' >both.ini
run 2 "$LOCKSTEP" train $HAR --config both.ini
says 'options batch.size = 16 and batch.per_rank = 16 \(both.ini:3\)'

# --- earlier versions wrote batch.scope into files and checkpoints
printf '[batch]\nsize = 8\nscope = rank\n' >old.ini
ok on 2 "$LOCKSTEP" train $HAR --config old.ini --run-dir old
says 'old.ini:3: batch.scope = rank with batch.size = 8 is read as batch.per_rank = 8; write that instead' 'batch: 16 over 2 ranks'
printf '[batch]\nsize = 16\nscope = global\n' >all.ini
ok on 2 "$LOCKSTEP" train $HAR --config all.ini --run-dir all
says 'batch: 16 over 2 ranks'
run 2 "$LOCKSTEP" train $HAR --batch.scope rank
says 'unknown option --batch.scope; batch.size counts the samples of all ranks, batch.per_rank those of each'
# A run directory of such a version is continued.
sed -i 's/^size = 16$/size = 16\nscope = global/' har--batch.size16/config.ini
ok on 2 "$LOCKSTEP" train $HAR --batch.size 16 --run-dir har--batch.size16
passed "the batch of all ranks, or of each"
