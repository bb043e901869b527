#!/bin/bash
# Verifies every reference file on cuda:0 (DEVICE=cpu: on the processor), in single and double precision, or with
# OPTIONS:   verify.sh LOCKSTEP GOLDEN_DIR [OPTIONS...]
# Prints one line per file and the report of files that fail. Exit code 1 if any fails. Precisions that a model does not
# support are skipped.
lockstep=$1 golden=$2 failed=0
shift 2
[ $# -gt 0 ] || set -- --no-double --double
for file in "$golden"/*.h5; do
  name=$(basename "$file" .h5)
  case $name in
    tisasrec_data | hrm_prep | emulator_prep) continue ;;  # of the preparation programs
    tisasrec_tisasrec* | tisasrec_default_tisasrec*) model=tisasrec ;;
    tisasrec_*) model=sasrec ;;
    *) model=${name%%_*} ;;
  esac
  for how in "$@"; do
    # shellcheck disable=SC2086
    if report=$("$lockstep" verify --device "${DEVICE:-cuda}" --model "$model" --golden "$file" $how 2>&1); then
      echo "ok      $name $how"
    elif [[ $report == *"option precision"* ]]; then
      echo "none    $name $how"
    else
      failed=1
      echo "FAILED  $name $how"
      echo "$report" | grep -E "FAIL|rror" | head -20
    fi
  done
done
exit $failed
