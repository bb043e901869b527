#!/bin/bash
# Checks that need a GPU: compute-sanitizer on the kernels' tests, the reference files on the device, trainings compared with the CPU,
# two ranks on one GPU, NCCL, speed compared with PyTorch, bandwidth. The results go to one JSON and one Markdown file.
#   check.sh [--bin DIR] [--output DIR] [--data DIR] [--seconds S] [--steps PATTERNS | --list] [--precisions LIST] [--variants LIST]
#            [--limit S] [--budget S] [--append] [--jobs N] [--stand-in] [--cases PATTERN]
#   check.sh --output DIR --merge RESULTS.tsv...     writes DIR/gpu-check.* from the results of several runs; needs no GPU
#     --bin       folder of the programs (build-cuda-tests/bin)
#     --output    folder of results.tsv (a line for each step, at once), logs.txt, kernel-times.txt (of the traces), and gpu-check.json
#                 and gpu-check.md (gpu-check)
#     --data      folder of prepared files, named as in configs/ (data); missing ones are generated
#     --seconds   duration of each measurement (5)
#     --steps     only steps whose names match one of these patterns, separated by commas: 'sanitizer/racecheck,speed/hrm'
#     --list      prints the names of all steps and does nothing
#     --precisions  of warm, ours, speed and trace: some of fp32,tf32,bf16
#     --variants  of PyTorch in warm and speed: some of eager,compile,graphs,whole (whole: compiled, the step as one CUDA graph)
#     --limit     ends each command after this many seconds
#     --budget    ends after this many seconds: a command has what is left of them, the steps after that are skipped
#     --append    adds to the results in the output folder; the last result of a step counts
#     --jobs      checks that run at the same time (1); what is measured always runs alone
#     --stand-in  the programs are of the host build (build/cuda-host/bin): times nothing and runs no sanitizer
#     --cases     tries out this script: only test cases whose names match, one reference file, no training
# LOCKSTEP_PYTHON is a Python with torch, for the comparison. Exit code 0: all steps that ran passed; 1: a step failed; 2: wrong usage;
# 77: no GPU.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tests=$(dirname "$here") home=$(dirname "$(dirname "$here")")
bin= output=gpu-check data=$home/data seconds=5 stand_in= cases= steps='*' list= precisions=fp32,tf32,bf16 variants=eager,compile,graphs,whole limit=3600 budget=1000000 append= merge= jobs=1
while [ $# -gt 0 ]; do
  case $1 in
    --bin | --output | --data | --seconds | --cases | --steps | --precisions | --variants | --limit | --budget | --jobs) declare "${1#--}=${2:?$1 needs a value}" && shift ;;
    --stand-in) stand_in=yes ;;
    --list) list=yes ;;
    --append) append=yes ;;
    --merge) merge=yes && shift && break ;;
    *) sed -n 4,24p "$0" >&2; exit 2 ;;
  esac
  shift
done
IFS=, read -ra patterns <<< "$steps"
IFS=, read -ra precisions <<< "$precisions"
IFS=, read -ra variants <<< "$variants"
wants() {  # STEP: whether it was asked for
  [ -z "$list" ] || { echo "$1"; return 1; }
  local pattern
  # shellcheck disable=SC2053
  for pattern in "${patterns[@]}"; do [[ $1 != $pattern ]] || return 0; done
  return 1
}
models=(emulator-1000 emulator-16000 sasrec tisasrec kgat har har-images hrm trm)
alone=(hrm hrm-96 hrm-768 trm trm-attention kgat kgat-bf16 har-images)  # without PyTorch
walls=(sasrec har kgat)
apart_parts=(buckets rows graphs stalled slots test_step_mpi test_tasks_mpi)
early_parts=(code test_ops test_optim golden training)
programs=(test_ops test_optim test_device test_comm test_step test_tasks test_nn test_models) tools=(memcheck racecheck initcheck synccheck)
if [ -n "$list" ]; then
  for program in "${programs[@]}"; do wants "tests/$program"; done
  for tool in "${tools[@]}"; do wants "sanitizer/$tool"; done
  for precision in fp32 tf32 bf16 fp16; do wants "golden/$precision"; done
  for name in training threads bandwidth spmm; do wants "$name"; done
  for part in "${apart_parts[@]}"; do wants "apart/$part"; done
  for name in "${early_parts[@]}"; do wants "early/$name"; done
  for kind in warm speed graphs early trace; do for model in "${models[@]}"; do wants "$kind/$model"; done; done
  for model in "${alone[@]}"; do wants "ours/$model"; done
  for model in "${walls[@]}"; do wants "wall/$model"; done
  for model in sasrec hrm; do wants "tuned/$model"; done
  exit 0
fi
# --- Both files, from results.tsv: of each step the last result ------------------------------------------------------------------
report() {
  local results=$output/results.tsv last date device driver version torch failed
  about() { awk -F'\t' -v what="$1" '$1 == "about" && $2 == what { value = $3 } END { print value }' "$results"; }
  date=$(about date) device=$(about device) driver=$(about driver) version=$(about lockstep) torch=$(about torch)
  last=$(awk -F'\t' '$1 != "about" { step = $1 FS $2; if (!(step in result)) name[++n] = step; result[step] = $0 }
    END { for (i = 1; i <= n; ++i) print result[name[i]] }' "$results")
  awk -F'\t' -v date="$date" -v device="$device" -v driver="$driver" -v version="$version" -v torch="$torch" '
    function text(s) { gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s); return "\"" s "\"" }
    BEGIN { printf "{\"date\":%s,\"device\":%s,\"driver\":%s,\"lockstep\":%s,\"torch\":%s,\"results\":[", text(date), text(device), text(driver), text(version), text(torch) }
    !NF { next }
    { printf "%s\n{\"section\":%s,\"name\":%s,\"outcome\":%s,\"seconds\":%s", (NR > 1 ? "," : ""), text($1), text($2), text($3), $4
      if ($5 != "") printf ",\"value\":%s,\"unit\":%s", $5, text($6)
      if ($7 != "") printf ",\"remark\":%s", text($7)
      printf "}" }
    END { print "\n]}" }' <<< "$last" > "$output/gpu-check.json"
  awk -F'\t' -v date="$date" -v device="$device" -v driver="$driver" -v version="$version" -v torch="$torch" '
    BEGIN { print "# What a GPU showed\n\n" date ", " device (driver != "" ? ", driver " driver : "") "; " version (torch != "" ? "; PyTorch " torch : "") "."
            print "\n| step | | outcome | seconds | |\n|---|---|---|---|---|" }
    !NF { next }
    $3 != "measured" { printf "| %s | %s | %s | %s | %s |\n", $1, $2, $3, $4, $7 }
    $3 == "measured" && $1 == "bandwidth" { bandwidth = bandwidth sprintf("| %s | %s | %.0f %% |\n", $2, $7, 100 * $5) }
    $3 == "measured" && $1 == "spmm" { split($7, part, ", "); spmm = spmm sprintf("| %s | %s | %s | %.2f |\n", $2, part[1], part[2], $5) }
    $3 == "measured" && $1 == "speed" {  # MODEL, PRECISION, WHO
      n = split($2, part, ", "); who = part[n]; row = substr($2, 1, length($2) - length(who) - 2)
      if (!(row in seen)) { seen[row] = ++rows; name[rows] = row }
      rate[row, who] = $5; remark[row] = who == "lockstep" ? $7 : remark[row] }
    function shown(v) { return v == "" ? "not measured" : sprintf("%.4g", v) }
    END {
      if (bandwidth != "") print "\n| kernel | | of a copy on the device |\n|---|---|---|\n" bandwidth
      if (spmm != "") print "\n| sparse product, amazon-book\x27s size | time | of a copy on the device | times ours |\n|---|---|---|---|\n" spmm
      if (rows) print "\n| training, precision | Lockstep, samples/s | | PyTorch, eager | torch.compile | torch.compile, CUDA graphs | torch.compile, whole step as one graph | ratio to the fastest |\n|---|---|---|---|---|---|---|---|"
      for (i = 1; i <= rows; ++i) {
        r = name[i]; mine = rate[r, "lockstep"]; line = ""; best = 0
        n = split("eager compile graphs whole", variant, " ")
        for (v = 1; v <= n; ++v) { theirs = rate[r, "PyTorch " variant[v]]; line = line " | " shown(theirs); if (theirs + 0 > best) best = theirs }
        printf "| %s | %s | %s%s | %s |\n", r, shown(mine), remark[r], line, (best > 0 && mine > 0 ? sprintf("%.2f", mine / best) : "") } }
    ' <<< "$last" > "$output/gpu-check.md"
  failed=$(grep -c $'\tFAILED\t' <<< "$last")
  echo "gpu-check: $output/gpu-check.md and .json; $failed failed"
  [ "$failed" = 0 ]
}
if [ -n "$merge" ]; then
  [ $# -gt 0 ] || { echo "gpu-check: --merge needs the files results.tsv of some runs" >&2; exit 2; }
  mkdir -p "$output" && cat "$@" > "$output/merged" && mv "$output/merged" "$output/results.tsv" || exit 2
  report
  exit
fi

[ -n "$bin" ] || for bin in "$home/build-cuda-tests/bin" "$home/bin"; do [ -x "$bin/lockstep" ] && break; done
[ -x "$bin/lockstep" ] || { echo "gpu-check: no $bin/lockstep: make cuda-tests, or --bin" >&2; exit 2; }
bin=$(cd "$bin" && pwd)
device=$("$bin/lockstep" info 2>/dev/null | sed -n 's/^ *CUDA  *//p')
case $device in
  *"compute capability"*) ;;
  *"not built"*) echo "gpu-check: $bin/lockstep has no CUDA path: make cuda-tests, or --bin" >&2; exit 2 ;;
  *) echo "gpu-check: no GPU here (lockstep info: ${device:-no answer}); docs/cuda-host.md tells what runs without one" >&2; exit 77 ;;
esac
[[ $device == *";"* ]] && device="$(awk -F"; " '{print NF}' <<< "$device") x ${device%%;*}"
mkdir -p "$output" && output=$(cd "$output" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/logs"
results=$output/results.tsv
[ -n "$append" ] || rm -f "$results" "$output/logs.txt" "$output/kernel-times.txt"
mpirun=mpirun
[ -x "$bin/mpirun" ] && mpirun=$bin/mpirun  # a bundle's own
mpirun="$mpirun --oversubscribe --bind-to none"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
python=${LOCKSTEP_PYTHON:-python3}
about() { printf 'about\t%s\t%s\n' "$1" "$2" >> "$results"; }
about date "$(date -u '+%Y-%m-%d %H:%M UTC')"
about device "$device"
about driver "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1)"
about lockstep "$("$bin/lockstep" info 2>/dev/null | head -1)"

# --- Steps: one line each in results.tsv: section, name, outcome, seconds; measurements also value, unit, remark ------------------
note() {  # SECTION NAME OUTCOME SECONDS [VALUE UNIT REMARK]
  local IFS=$'\t' log
  log=$(log_of "$1" "$2")
  (
    [ "$jobs" = 1 ] || flock 9  # checks that end together do not mix their lines
    echo "$*" >> "$results"
    printf '%-8s %-10s %-44s %6s s  %s\n' "$3" "$1" "$2" "$4" "${*:5}" | tr '\t' ' '
    [ ! -s "$log" ] || { echo "=== $1: $2: $3" && tail -n 400 "$log" | cut -c1-2000; } >> "$output/logs.txt"
  ) 9> "$work/lock"
}
time_for() {  # SECONDS: how many of them the budget and --limit leave a command; fails if next to nothing
  local most=$(($1 < limit ? $1 : limit)) left=$((budget - SECONDS))
  echo $((most < left ? most : left))
  [ $left -gt 5 ]
}
log_of() { echo "$work/logs/$(echo "$1-$2" | tr -c 'A-Za-z0-9.\n-' _).log"; }
step() {  # SECTION NAME LIMIT_S COMMAND...
  local section=$1 name=$2 most begin=$SECONDS code=0 log outcome
  most=$(time_for "$3") || { note "$section" "$name" skipped 0 "" "" "no time left"; return 1; }
  log=$(log_of "$section" "$name")
  shift 3
  timeout "$most" "$@" > "$log" 2>&1 || code=$?
  case $code in
    0) outcome=ok ;;
    77) outcome=skipped ;;
    124) outcome=FAILED; echo "gpu-check: no end after $most s" >> "$log" ;;
    *) outcome=FAILED ;;
  esac
  note "$section" "$name" $outcome $((SECONDS - begin)) "" "" "$([ $outcome = ok ] || grep -aE '[^ ]' "$log" | tail -1 | cut -c1-200 | tr '\t' ' ')"
  [ $outcome != FAILED ]
}
check() {  # SECTION NAME LIMIT_S COMMAND...: a step beside up to --jobs others, which together take every core once
  if [ "$jobs" = 1 ]; then
    step "$@"
  else
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((($(nproc) + jobs - 1) / jobs))} step "$@" &
  fi
}

# --- The kernels' tests, plain and under compute-sanitizer ----------------------------------------------------------------------
# Each suite runs by itself: after a fault of the GPU, every later call of a process fails.
suites() {  # PROGRAM: the options that select each of its suites for a GPU, or the cases of a trial
  [ -z "$cases" ] || { echo "-tc=$cases"; return; }
  "$bin/$1" -lts | grep cuda | sed 's/^/-ts=/'
}
tests_of() {  # SECTION PROGRAM LABEL LIMIT_S COMMAND...
  local one name
  for one in $(suites "$2"); do
    name=$([ -n "$cases" ] && echo "$2" || echo "${one#-ts=}")
    check "$1" "$3$name" "$4" "${@:5}" "$bin/$2" "$one"
  done
}
for program in "${programs[@]}"; do
  wants "tests/$program" || continue
  [ -x "$bin/$program" ] || { note tests "$program" skipped 0 "" "" "not built: LOCKSTEP_TESTS=ON"; continue; }
  tests_of tests "$program" "" 1800
  [ -n "$cases" ] || check tests "$program, gradients" 1800 "$bin/$program" "-tc=*gradient*" "-tse=*cuda*"
done
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
for tool in "${tools[@]}"; do
  wants "sanitizer/$tool" || continue
  for program in test_ops test_optim; do
    if [ -n "$stand_in" ]; then
      note sanitizer "$tool, $program" skipped 0 "" "" "the stand-in has checks of its own"
    elif [ -z "$sanitizer" ]; then
      note sanitizer "$tool, $program" skipped 0 "" "" "no compute-sanitizer on this machine"
    elif [ -x "$bin/$program" ]; then
      tests_of sanitizer "$program" "$tool, " 3600 "$sanitizer" --tool "$tool" --error-exitcode 9 --target-processes all
    fi
  done
done

# --- Reference files, trainings ----------------------------------------------------------------------------------------------------
golden=$tests/golden
if [ -n "$cases" ]; then
  golden=$work/golden
  mkdir "$golden" && ln -s "$tests/golden/emulator_default.h5" "$golden/"
fi
wants golden/fp32 && check golden "all reference files on the GPU" 1800 "$tests/cuda_host/verify.sh" "$bin/lockstep" "$golden"
for precision in tf32 bf16 fp16; do
  wants "golden/$precision" && check golden "reference files in $precision" 1800 "$tests/cuda_host/verify.sh" "$bin/lockstep" "$golden" "--precision $precision"
done
sections() {  # SECTION SCRIPT COMMAND...: every section of a script
  local section script=$tests/cuda_host/$2
  for section in $(sed -n 's/^# sections //p' "$script"); do
    # shellcheck disable=SC2086
    check "$1" "${2%.sh}: $section" 1800 env LOCKSTEP_SECTION="$section" "${@:3}" "$script" "$bin/lockstep" "$bin/lockstep-prep" $mpirun
  done
}
if ! wants training; then
  :
elif [ -n "$cases" ]; then
  note training "beside the processor" skipped 0 "" "" "a trial"
else
  sections training train.sh
fi
if wants threads; then
  gpus=$("$bin/lockstep" info | grep -o "compute capability" | wc -l)
  if [ -n "$cases" ]; then
    note threads "a thread for each GPU" skipped 0 "" "" "a trial"
  elif [ "$gpus" -lt 4 ]; then
    note threads "a thread for each GPU" skipped 0 "" "" "it needs four GPUs, and sees $gpus"
  else
    sections threads devices.sh CUDA_VISIBLE_DEVICES=0,1,2,3
  fi
fi

# --- Two ranks on one GPU by NCCL: each has a host name of its own -----------------------------------------------------------------
# NVIDIA does not support this: that it hangs proves nothing, that it passes proves a lot. NCCL takes sockets between the ranks.
together=(env CUDA_VISIBLE_DEVICES=0 NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 LOCKSTEP_TWO_GPUS=yes)
printf '#!/bin/sh\nexec "%s/apart.sh" "%s/lockstep" "$@"\n' "$here" "$bin" > "$work/lockstep-apart" && chmod +x "$work/lockstep-apart"
for part in "${apart_parts[@]}"; do
  wants "apart/$part" || continue
  if [ -n "$cases" ]; then
    note apart "$part" skipped 0 "" "" "a trial"
  elif [[ $part != test_* ]]; then
    # shellcheck disable=SC2086
    check apart "train: $part" 600 "${together[@]}" LOCKSTEP_SECTION="$part" "$tests/cuda_host/train.sh" "$work/lockstep-apart" "$bin/lockstep-prep" $mpirun
  elif [ -x "$bin/$part" ]; then
    # shellcheck disable=SC2086
    check apart "$part" 600 "${together[@]}" $mpirun -n 2 "$here/apart.sh" "$bin/$part" "-tc=*GPU*"
  else
    note apart "$part" skipped 0 "" "" "not built: LOCKSTEP_TESTS=ON"
  fi
done

# --- Kernels that start before the one in front of them has ended ------------------------------------------------------------------
early=(env LOCKSTEP_CUDA_DEPENDENT=1)
if wants early/code; then
  program=$bin/lockstep
  [ -x "$bin/../libexec/lockstep" ] && program=$bin/../libexec/lockstep  # in a bundle
  if [ -n "$stand_in" ]; then
    note early "machine code" skipped 0 "" "" "the stand-in has none"
  else
    check early "machine code: no access before the wait" 600 "$here/waits.sh" "$program"
  fi
fi
for program in test_ops test_optim; do
  wants "early/$program" || continue
  [ -x "$bin/$program" ] || continue
  tests_of early "$program" "" 1800 "${early[@]}"
  [ -n "$cases" ] || check early "$program, gradients" 1800 "${early[@]}" "$bin/$program" "-tc=*gradient*" "-tse=*cuda*"
done
wants early/golden && check early "all reference files on the GPU" 1800 "${early[@]}" "$tests/cuda_host/verify.sh" "$bin/lockstep" "$golden"
if wants early/training && [ -z "$cases" ]; then
  sections early train.sh "${early[@]}"
fi
wait  # from here on, every step has the machine to itself

# --- Bandwidth ------------------------------------------------------------------------------------------------------------------
if [ -x "$bin/bench_bandwidth" ] && wants bandwidth; then
  sizes=()
  [ -n "$stand_in" ] && sizes=(--mib 1 --seconds 0.001)
  if step bandwidth "memory-bound kernels" 600 "$bin/bench_bandwidth" --device cuda --json "${sizes[@]}" && [ -z "$stand_in" ]; then
    sed -nE 's/.*"operation":"([^"]*)".*"bytes_per_s":([^,]*),"of_copy":([^}]*).*/\1\t\2\t\3/p' "$(log_of bandwidth "memory-bound kernels")" |
      while IFS=$'\t' read -r name rate share; do
        note bandwidth "$name" measured 0 "$share" "of the copy" "$(awk -v r="$rate" 'BEGIN {printf "%.0f GB/s", r / 1e9}')"
      done
  fi
fi

# --- The sparse product, compared with cuSPARSE's ----------------------------------------------------------------------------------------
if [ -z "$stand_in" ] && [ -x "$bin/bench_spmm" ] && wants spmm; then
  if step spmm "ours and cuSPARSE's agree" 600 "$bin/bench_spmm" --json; then
    while IFS=$'\t' read -r name seconds share ratio; do
      note spmm "$name" measured 0 "$ratio" "times ours" "$(awk -v s="$seconds" -v c="$share" 'BEGIN {printf "%.0f us, %.0f %%", 1e6 * s, 100 * c}')"
    done < <(sed -nE 's/.*"product":"([^"]*)","seconds":([^,]*),.*"of_copy":([^,]*),"times_ours":([^}]*).*/\1\t\2\t\3\t\4/p' "$(log_of spmm "ours and cuSPARSE's agree")")
    while IFS=$'\t' read -r name why; do
      note spmm "$name" skipped 0 "" "" "cuSPARSE: $why"
    done < <(sed -nE 's/.*"product":"([^"]*)","refused":"([^"]*)".*/\1\t\2/p' "$(log_of spmm "ours and cuSPARSE's agree")")
  fi
fi

# --- Speed, compared with PyTorch ------------------------------------------------------------------------------------------------------
prepared() {  # FILE SOURCE OPTIONS...: the path of a prepared file
  local file=$1
  shift
  if [ -z "$stand_in" ] && [ -f "$data/$file" ]; then
    echo "$data/$file"
    return
  fi
  [ -f "$work/$file" ] || "$bin/lockstep-prep" "$@" --output "$work/$file" --quiet > "$work/prep.log" 2>&1 || cat "$work/prep.log" >&2
  echo "$work/$file"
}
rate_of() { grep -oE "\"$1\": ?[-+0-9.eE]+" | tail -1 | sed -E 's/.*: ?//'; }
have_torch=
[ -z "$stand_in" ] && "$python" -c 'import torch, h5py, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null && have_torch=yes
[ -z "$have_torch" ] || about torch "$("$python" -c 'import torch; print(torch.__version__)' 2>/dev/null)"

ours() {  # NAME PRECISION OPTIONS...: lockstep bench
  local name=$1 precision=$2 size=(--seconds "$seconds") log most
  shift 2
  most=$(time_for 600) || { note speed "$name, $precision, lockstep" skipped 0 "" "" "no time left"; return; }
  log=$(log_of speed "$name, $precision, lockstep")
  [ -n "$stand_in" ] && size=(--steps 2 --warmup 0)
  if ! timeout "$most" "$bin/lockstep" bench --device cuda --json --precision "$precision" "$@" "${size[@]}" > "$log" 2>&1; then
    if grep -q "error: option.*precision" "$log"; then
      note speed "$name, $precision, lockstep" skipped 0 "" "" "$(grep -a error "$log" | tail -1 | cut -c1-160)"
    else
      note speed "$name, $precision, lockstep" FAILED 0 "" "" "$(tail -1 "$log" | cut -c1-160)"
    fi
  elif [ -z "$(rate_of per_s < "$log")" ]; then
    note speed "$name, $precision, lockstep" FAILED 0 "" "" "no rate in its answer"
  elif [ -n "$stand_in" ]; then
    note speed "$name, $precision, lockstep" ok 0 "" "" "ran; the stand-in has no speed"
  else
    note speed "$name, $precision, lockstep" measured 0 "$(rate_of per_s < "$log")" "samples/s" "step $(rate_of median < "$log") s"
  fi
}
peer() {  # NAME PRECISION VARIANT SCRIPT OPTIONS...
  local name=$1 precision=$2 variant=$3 log most status rate
  shift 3
  log=$(log_of speed "$name, $precision, PyTorch $variant")
  if [ -z "$have_torch" ] || ! most=$(time_for 900); then return; fi
  timeout "$most" "$python" -W ignore "$tests/peers/$1" --device cuda --precision "$precision" --seconds "$seconds" --warmup 20 "${@:2}" > "$log" 2>&1
  status=$? rate=$(rate_of per_s < "$log")
  # 124: a compiled program may take longer than the limit to end after it has printed its rate.
  if [[ -n $rate && ($status = 0 || $status = 124) ]]; then
    note speed "$name, $precision, PyTorch $variant" measured 0 "$rate" "samples/s" ""
  else
    note speed "$name, $precision, PyTorch $variant" FAILED 0 "" "" "$(tail -1 "$log" | cut -c1-160)"
  fi
}
[[ -n $have_torch || ($steps != *speed* && $steps != '*') ]] || note speed "PyTorch" skipped 0 "" "" "$([ -n "$stand_in" ] && echo "the stand-in has no speed" || echo "$python has no torch with CUDA, or no h5py; LOCKSTEP_PYTHON names another")"

# Sizes of the published data sets; tiny ones for the host build.
config=$home/configs
of=360000 users=(--users 6000 --min-length 100 --max-length 300) nodes=(--users 6000 --items 3500 --train-items 80 --fillers 5000)
puzzles=() small=() slots=384 hrm=(--warmup 3)
if [ -n "$stand_in" ]; then
  of=100 users=(--users 30) nodes=(--users 30)
  puzzles=(--order 2 --train 24 --test 8) small=(--batch.size 2) slots=2 hrm=(--model.hidden_size 16 --model.num_heads 2)
fi
value() { sed -nE "s/^$2 *= *//p" "$config/$1.ini"; }  # CONFIG KEY: a value of a configuration, so that both sides train the same
# describe MODEL: our options in bench, those of the script for PyTorch in script, and its variants
describe() {
  local batch=${1#*-}
  eager=() compiled=(--variants compile)
  case $1 in
    emulator-*)
      [ -z "$stand_in" ] || batch=4
      bench=(--batch.size "$batch" --rows "$of")
      script=(emulator_peer.py --bench train --batch "$batch") eager=(--variants autograd) compiled=(--variants compiled) ;;
    sasrec | tisasrec)
      local l2 file
      file=$(prepared ml-1m.h5 synth-sequences "${users[@]}") l2=$(value "$1-ml1m" l2_emb)
      bench=(--config "$config/$1-ml1m.ini" --data.path "$file" "${small[@]}")
      script=(sasrec_peer.py --bench "$file" --model "$1" --time-dropout element --heads "$(value "$1-ml1m" num_heads)" --l2 "${l2:-0}"
        --hidden "$(value "$1-ml1m" hidden_units)" --maxlen "$(value "$1-ml1m" maxlen)" --batch "$(value "$1-ml1m" size)")
      eager=(--variants sdpa) compiled=(--variants sdpa+compiled) ;;
    kgat | kgat-bf16)
      local file
      file=$(prepared kgat-ml1m.h5 synth-kg "${nodes[@]}")
      bench=(--config "$config/kgat-ml1m.ini" --data.path "$file" "${small[@]}")
      [ "$1" = kgat ] || bench+=(--model.storage bf16)
      script=(kgat_peer.py --bench cf --data "$file" --batch "$(value kgat-ml1m size)") compiled=(--compile) ;;
    har)
      local file
      file=$(prepared hapt.h5 synth-har --subjects 12)
      bench=(--config "$config/har-hapt.ini" --data.path "$file" "${small[@]}")
      script=(har_peer.py --bench --data "$file" --batch "$(value har-hapt size)") ;;
    har-images)
      local file
      file=$(prepared hapt.h5 synth-har --subjects 12)
      bench=(--config "$config/har-image.ini" --data.path "$file" --batch.accumulate 1)
      script=(har_peer.py --bench --data "$file" --input image --batch "$(value har-image size)") ;;
    hrm* | trm*)
      local file form=hrm-sudoku count=$slots
      file=$(prepared sudoku-1k.h5 synth-sudoku "${puzzles[@]}")
      script=(hrm_peer.py --bench --batch 384) compiled=(--compile)
      case $1 in
        trm) form=hrm-trm-sudoku-mlp script+=(--form mlp_t) ;;
        trm-attention) form=hrm-trm-sudoku ;;
        hrm-*) [ -n "$stand_in" ] || count=$batch ;;
      esac
      bench=(--config "$config/$form.ini" --data.path "$file" --data.group_visits 1 --batch.size "$count" "${hrm[@]}") ;;
  esac
}
# torch.compile takes a minute for a model. Filling its cache for all models at once leaves seconds for each measurement.
declare -A options=([eager]='' [compile]='' [graphs]=--graphs [whole]=--whole)
for model in "${models[@]}"; do
  if ! wants "warm/$model" || [ -z "$have_torch" ]; then continue; fi
  describe "$model"
  for precision in "${precisions[@]}"; do
    for variant in "${variants[@]}"; do
      if [ "$variant" = eager ]; then continue; fi
      # shellcheck disable=SC2086
      check warm "$model, $precision, $variant" 300 "$python" -W ignore "$tests/peers/${script[0]}" "${script[@]:1}" "${compiled[@]}" \
        ${options[$variant]} --device cuda --precision "$precision" --seconds 0.1 --warmup 3
    done
  done
done
wait
for model in "${alone[@]}"; do
  if [ -n "$stand_in" ] && [ "$model" = har-images ]; then continue; fi  # too large for it
  wants "ours/$model" || continue
  describe "$model"
  for precision in "${precisions[@]}"; do
    if [ "$model" = kgat-bf16 ]; then  # tables in halves, products in fp32
      ours "$model" fp32 "${bench[@]}"
      break
    fi
    ours "$model" "$precision" "${bench[@]}"
  done
done
for model in "${walls[@]}"; do  # whole trainings; the seconds are what a user waits
  wants "wall/$model" || continue
  describe "$model"
  length=()
  if [ -n "$stand_in" ]; then
    [ "$model" = sasrec ] || continue  # the other evaluations take minutes there
    length=(--train.steps 2)
  fi
  step wall "$model, a whole training" 300 "$bin/lockstep" train --device cuda "${bench[@]}" "${length[@]}" --run-dir "$work/run-$model"
done
for model in "${models[@]}"; do
  [ -z "$stand_in" ] || [ "$model" != har-images ] || continue
  if wants "speed/$model"; then
    describe "$model"
    for precision in "${precisions[@]}"; do
      ours "$model" "$precision" "${bench[@]}"
      for variant in "${variants[@]}"; do
        form=("${compiled[@]}")
        [ "$variant" != eager ] || form=("${eager[@]}")
        # shellcheck disable=SC2086
        peer "$model" "$precision" "$variant" "${script[@]}" "${form[@]}" ${options[$variant]}
      done
    done
  fi
  if [[ $model =~ ^(sasrec|hrm)$ ]] && wants "tuned/$model"; then  # products by timed algorithms, beside the library's choice
    describe "$model"
    for precision in bf16 fp32; do
      for tuned in false true; do ours "$model, tune_products $tuned" "$precision" "${bench[@]}" --tune-products "$tuned"; done
    done
  fi
  if wants "graphs/$model"; then
    describe "$model"
    for graphs in on off; do ours "$model, graphs $graphs" fp32 "${bench[@]}" --graphs $graphs; done
  fi
  if wants "early/$model"; then
    describe "$model"
    turns=(off on off on)
    [ -z "$stand_in" ] || turns=(on)
    for turn in "${turns[@]}"; do
      [ "$turn" = off ] || export LOCKSTEP_CUDA_DEPENDENT=1
      ours "$model, early starts $turn" fp32 "${bench[@]}"
      unset LOCKSTEP_CUDA_DEPENDENT
    done
  fi
  if wants "trace/$model"; then
    times=$(ls "$bin/../lib/libkernel_times.so" 2> /dev/null)
    if [ -n "$stand_in" ]; then
      note trace "$model" skipped 0 "" "" "the stand-in has no time line"
    elif [ -z "$times" ]; then
      note trace "$model" skipped 0 "" "" "no libkernel_times.so: the toolkit of the build had no CUPTI"
    else
      describe "$model"
      for precision in "${precisions[@]}"; do
        step trace "$model, $precision" 120 env CUDA_INJECTION64_PATH="$times" LOCKSTEP_KERNEL_TIMES="$work/kernels.txt" \
          "$bin/lockstep" bench --device cuda "${bench[@]}" --precision "$precision" --graphs off --steps 20 --warmup 10 &&
          { echo "=== $model, $precision" && cat "$work/kernels.txt"; } >> "$output/kernel-times.txt"
      done
    fi
  fi
done
report
