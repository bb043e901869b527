# shellcheck shell=bash
# Common functions of the job scripts, for Slurm and for PBS: threads, launcher, preflight, signals, requeue. Reasons:
# docs/cluster.md.
#
# Variables that a script may set: LOCKSTEP_HOME, LOCKSTEP, LOCKSTEP_PREP, LAUNCHER, SRUN_MPI, SRUN_FLAGS,
# MPIEXEC, MPIRUN_FLAGS, INTERFACE, SITE, WAIT, PREFLIGHT, RETRIES, RESCUES, SPARES, GROW, MAX_RESTARTS; under PBS also
# SCRIPT and STOP_BEFORE.

# Before all else: without a trap a signal ends the script.
say() { echo "[$(date +%H:%M:%S)] $*"; }
interrupted=0 stopping=0 cancelled=0 step=
on_signal() {
  [ "$1" = TERM ] && cancelled=1
  interrupted=1
  stopping=1
  say "the job got SIG$1: the ranks write a checkpoint and stop"
  # USR1 for both: mpirun passes it on at once, but after SIGTERM it kills its ranks a second later.
  [ -n "$step" ] && kill -USR1 "$step" 2>/dev/null
}
trap 'on_signal USR1' USR1
trap 'on_signal TERM' TERM
trap on_news USR2

LOCKSTEP=${LOCKSTEP:-$LOCKSTEP_HOME/build/bin/lockstep}
LOCKSTEP_PREP=${LOCKSTEP_PREP:-$(dirname "$(type -P "$LOCKSTEP" || echo "$LOCKSTEP")")/lockstep-prep}
for program in "$LOCKSTEP" "$LOCKSTEP_PREP"; do
  type -P "$program" >/dev/null ||
    { say "there is no program $program: build it (make; for the GPU scripts make cuda), or set LOCKSTEP_HOME or LOCKSTEP"; exit 127; }
done
if [ -n "${CONFIG:-}" ] && { [ ! -f "$CONFIG" ] || [ ! -r "$CONFIG" ]; }; then
  say "CONFIG=$CONFIG: no such file can be read from $PWD; name one relative to this folder, or by its full path"
  exit 2
fi
if [ -n "${PBS_JOBID:-}" ]; then
  LAUNCHER=mpirun
  JOB=${PBS_JOBID%%.*} START=${START:-0}
  NODES=$(sort -u "$PBS_NODEFILE" | wc -l) NODE_LIST=$(sort -u "$PBS_NODEFILE" | paste -sd,)
  # The file has one line per rank (mpiprocs). ompthreads sets OMP_NUM_THREADS.
  RANKS_PER_NODE=$(($(wc -l <"$PBS_NODEFILE") / NODES))
  THREADS=${OMP_NUM_THREADS:-${NCPUS:-1}}
else
  LAUNCHER=${LAUNCHER:-srun}
  JOB=$SLURM_JOB_ID START=${SLURM_RESTART_COUNT:-0} NODES=$SLURM_JOB_NUM_NODES NODE_LIST=$SLURM_JOB_NODELIST
  gpus=${SLURM_GPUS_PER_NODE:-${SLURM_GPUS_ON_NODE:-1}}
  RANKS_PER_NODE=${SLURM_NTASKS_PER_NODE:-${gpus##*:}}  # without a number of tasks, one per GPU
  export SLURM_TASKS_PER_NODE="$RANKS_PER_NODE(x$NODES)"  # mpirun starts no more
  # Whole nodes (--exclusive) come without SLURM_CPUS_PER_TASK: the node's processors are shared among its ranks.
  PROCESSORS=$SLURM_CPUS_ON_NODE
  if [ "${SLURM_HINT:-}" = nomultithread ]; then  # Slurm counts the hardware threads, of which a rank gets one per core
    cores=$(lscpu -p=SOCKET,CORE 2>/dev/null | grep -v '^#' | sort -u | wc -l)
    [ "$cores" -gt 0 ] && [ "$cores" -lt "$PROCESSORS" ] && PROCESSORS=$cores
  fi
  THREADS=${SLURM_CPUS_PER_TASK:-$((PROCESSORS > RANKS_PER_NODE ? PROCESSORS / RANKS_PER_NODE : 1))}
fi
[ "${OMP_NUM_THREADS:-$THREADS}" = "$THREADS" ] || say "threads: OMP_NUM_THREADS=$OMP_NUM_THREADS of the environment, not the $THREADS of the allocation"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$THREADS}
export LOCKSTEP_PROGRESS=${LOCKSTEP_PROGRESS:-lines}
if [ -n "${SITE:-}" ]; then
  [ -r "$LOCKSTEP_HOME/slurm/sites/$SITE.sh" ] || { echo "SITE=$SITE: there is no $LOCKSTEP_HOME/slurm/sites/$SITE.sh"; exit 2; }
  source "$LOCKSTEP_HOME/slurm/sites/$SITE.sh"
fi
if [ -n "${INTERFACE:-}" ]; then
  # The daemons of Open MPI 4, of 5 (PRRTE), and of MPICH (Hydra) have names of their own.
  export OMPI_MCA_btl_tcp_if_include=$INTERFACE OMPI_MCA_oob_tcp_if_include=$INTERFACE PRTE_MCA_prte_if_include=$INTERFACE
  export HYDRA_IFACE=$INTERFACE
  export NCCL_SOCKET_IFNAME=$INTERFACE UCX_NET_DEVICES=${UCX_NET_DEVICES:-all}
fi

SPARES=${SPARES:-0}
[[ $SPARES =~ ^[0-9]+$ && $SPARES -lt $NODES ]] || { say "SPARES=$SPARES: the job has $NODES nodes; at least one must train"; exit 2; }
[[ ${GROW:-0} =~ ^[0-9]+$ ]] || { say "GROW=$GROW: it is a number of seconds"; exit 2; }
NODES=$((NODES - SPARES))
WANTED=$NODES
MPIEXEC=${MPIEXEC:-mpirun}
# Slurm's interface for the MPI library of the program.
if [ "$LAUNCHER" != mpirun ] && [ -z "${SRUN_MPI:-}" ]; then
  case $(LOCKSTEP_MPI=never "$LOCKSTEP" --version 2>/dev/null) in *MPICH*) SRUN_MPI=pmi2 ;; *) SRUN_MPI=pmix ;; esac
fi
# Sets the command that starts a program on every rank: on NODES nodes, without those of LOST (separated by commas).
LOST=
set_launch() {
  local cores hosts=
  if [ "$LAUNCHER" = mpirun ]; then
    if [ -n "$LOST" ] || [ "$SPARES" != 0 ]; then
      hosts=$(hosts_of_job | grep -vxFf <(tr , '\n' <<<"$LOST") | head -n "$NODES" | sed "s/$/:$RANKS_PER_NODE/" | paste -sd,)
    fi
    # Without support for PBS, mpirun needs the list of nodes from PBS.
    if [[ $("$MPIEXEC" --version 2>&1) == *HYDRA* ]]; then  # MPICH
      launch=("$MPIEXEC" -n $((NODES * RANKS_PER_NODE)) -ppn "$RANKS_PER_NODE" ${MPIRUN_FLAGS:--bind-to core:$THREADS})
      [ -z "${PBS_NODEFILE:-}" ] || launch+=(-f "$PBS_NODEFILE")
    else
      cores=:PE=$THREADS
      [[ ${MPIRUN_FLAGS:-} != *"bind-to none"* ]] || cores=  # Open MPI 5 refuses both together
      launch=("$MPIEXEC" --map-by "ppr:$RANKS_PER_NODE:node$cores" ${MPIRUN_FLAGS:---bind-to core})
      [ -z "${PBS_NODEFILE:-}" ] || launch+=(--hostfile "$PBS_NODEFILE")
    fi
    [ -z "$hosts" ] || launch+=(--host "$hosts")
    return
  fi
  # srun does not inherit sbatch's --cpus-per-task (Slurm 22.05 and later).
  # Not --kill-on-bad-exit=1: ranks that stop cleanly exit with 85, and the first exit would kill the others (143, 137).
  # --wait: seconds from the end of the first rank until Slurm ends the step; lockstep ends earlier, with a report.
  launch=(srun --mpi="$SRUN_MPI" --kill-on-bad-exit=0 --wait="${WAIT:-60}" --ntasks=$((NODES * RANKS_PER_NODE))
    --ntasks-per-node="$RANKS_PER_NODE" --cpus-per-task="$THREADS" ${SRUN_FLAGS:---cpu-bind=cores})
  [ "$SPARES" = 0 ] && [ -z "$LOST" ] || launch+=(--nodes="$NODES" --no-kill)
  [ -z "$LOST" ] || launch+=(--exclude="$LOST")
}
hosts_of_job() { if [ -n "${PBS_JOBID:-}" ]; then sort -u "$PBS_NODEFILE"; else scontrol show hostnames "$NODE_LIST"; fi; }
set_launch

# data_of CONFIG: the value of data.path in a configuration file.
data_of() {
  sed -nE -e '1s/^\xEF\xBB\xBF//;s/\r$//;/=[[:space:]]*"/!s/[[:space:]]+[#;].*//' \
    -e '/^[[:space:]]*\[/{s/[][[:space:]]//g;s/$/./;h}' -e '/=/{G;s/=[[:space:]]*"([^"]*)".*\n/=\1\n/' \
    -e 's/^[[:space:]]*([^=[:space:]]+)[[:space:]]*=[[:space:]]*([^\n]*[^[:space:]])[[:space:]]*\n(.*)$/\3\1=\2/;s/^data\.path=//p}' "$1" | tail -n 1
}
if [ -n "${CONFIG:-}" ] && [ -z "${DATA:-}" ]; then
  DATA=$(data_of "$CONFIG")
  [ -n "$DATA" ] || { say "no path = FILE in the section [data] of $CONFIG: set DATA"; exit 2; }
fi

if [ -n "${PBS_JOBID:-}" ]; then
  # PBS has no signal ahead of the time limit: a timer sends it. USR1 as from Slurm, so that the job comes back.
  limit=$(qstat -f "$PBS_JOBID" | sed -nE 's/.*Resource_List\.walltime = ([0-9]+):([0-9]+):([0-9]+).*/\1*3600+10#\2*60+10#\3/p')
  if [ -n "$limit" ]; then
    limit=$((10#$limit))
    (sleep $((limit > ${STOP_BEFORE:-300} ? limit - ${STOP_BEFORE:-300} : 0)) && kill -USR1 $$) &
    timer=$!
    trap 'pkill -P $timer; kill $timer 2>/dev/null' EXIT
  fi
fi

# If the job may start again, perhaps on other nodes, training requires a run directory that all of them see.
RECORD="$(scontrol -o show job "$JOB" 2>/dev/null) "
if [ "${MAX_RESTARTS:-100}" != 0 ] &&
  { [ -n "${PBS_JOBID:-}" ] || [[ $RECORD == *" Requeue=1 "* || $RECORD == *" ExpeditedRequeue=Yes "* ]]; }; then
  export LOCKSTEP_REQUEUE=yes
  # An option of sbatch since Slurm 25.11, which other versions and sites refuse.
  if [[ $RECORD != *" ExpeditedRequeue=Yes "* && $(scontrol show config 2>/dev/null) == *enable_expedited_requeue* ]]; then
    say "with sbatch --requeue=expedite this Slurm starts the job again at once if it loses a node"
  fi
fi

# run COMMAND...: runs it on every rank while this shell handles signals. Returns the launcher's exit code.
run() { attend "${launch[@]}" "$@"; }

# attend COMMAND...: runs it on this node while this shell handles signals. Returns its exit code, or 85 without running
# it if the job has to stop.
attend() {
  local code rc=
  [ "$stopping" = 0 ] || return 85
  "$@" &
  step=$!
  while :; do
    interrupted=0
    wait "$step"
    code=$?
    # A signal ends `wait` early: wait again. 127 means that the exit code was already returned.
    if [ -z "$rc" ] || [ "$code" != 127 ]; then rc=$code; fi
    [ "$interrupted" = 1 ] || break
  done
  step=
  return "$rc"
}

# The newest checkpoint of the run, or of the runs in its folders.
newest() {
  ls -t "${RUN_DIR:-.}"/checkpoints/{step,rescue}-*.h5 "${RUN_DIR:-.}"/*/checkpoints/{step,rescue}-*.h5 2>/dev/null | head -n 1
}
BEFORE=$(newest)

# The checkpoints of starts that lost a rank, the newest first, and whether the present start of train() has made one.
rescues_of_run() { ls -t "${RUN_DIR:-.}"/{,pretrain/}checkpoints/rescue-*.h5 2>/dev/null; }
rescued() { rescues_of_run | grep -qvxFf <(echo "$known"); }

# train COMMAND...: as run, and again at once after the loss of a rank whose state another rank has saved, or to take
# back a node; at most RESCUES (10) times an hour. Under mpirun the exit code is that of the lost rank: the run directory
# decides.
train() {
  local rc known watcher why rescues=()
  while :; do
    known=$(rescues_of_run) growing=0 asked=0
    watch_run &
    watcher=$!
    disown  # bash reports no killed job
    run "$@"
    rc=$?
    kill "$watcher" 2>/dev/null
    [ "$stopping" = 0 ] || return "$rc"
    if [ "$growing" = 1 ] && [ "$rc" = 85 ]; then
      why="a node answers again"
    elif [[ ! $rc =~ ^(0|2|3|85|126|127)$ ]] && rescued; then
      why="a rank was lost (exit code $rc), and its state is saved"
    else
      return "$rc"
    fi
    rescues=($SECONDS "${rescues[@]}")
    if [ "${#rescues[@]}" -gt "${RESCUES:-10}" ] && [ $((SECONDS - rescues[${RESCUES:-10}])) -lt 3600 ]; then
      say "$why: ${RESCUES:-10} starts within an hour are enough (RESCUES)"
      return "$rc"
    fi
    [ "$asked" = 1 ] || leave_out_lost
    [ "$NODES" -gt 0 ] || return "$rc"
    set_launch
    say "$why: starting again on $NODES nodes${LOST:+, without $LOST}"
  done
}

# Sends SIGUSR2 to this script if a rank was lost, or if one of the nodes that were left out answers again (asked every
# GROW seconds).
watch_run() {
  local host next=$((SECONDS + ${GROW:-0}))
  while sleep 1; do
    if rescued; then kill -USR2 $$; return; fi
    [ "${GROW:-0}" != 0 ] && [ "$NODES" -lt "$WANTED" ] && [ "$SECONDS" -ge "$next" ] || continue
    for host in ${LOST//,/ }; do
      if answers "$host"; then kill -USR2 $$; return; fi
    done
    next=$((SECONDS + GROW))
  done
}
on_news() {
  local saved
  interrupted=1
  if rescued; then
    leave_out_lost
    asked=1
    # The launcher waits for a lost node: srun longer than KillWait. The ranks have ended, if none writes best.h5.
    saved=$(rescues_of_run | head -n 1)
    [ -z "$LOST" ] || [ -n "$(find "${saved%/*}" -name 'best*.tmp.*' -newer "$saved")" ] || kill -KILL "$step" 2>/dev/null
  else
    growing=1
    kill -USR1 "$step" 2>/dev/null
  fi
}

# answers HOST: whether Slurm can start a program on this node of the job.
answers() { timeout 20 srun --mpi=none --overlap --nodes=1 --ntasks=1 --nodelist="$1" true >/dev/null 2>&1; }

# Leaves out the nodes that do not answer within 20 s, or within 4 s after the first one, in favour of spare ones.
leave_out_lost() {
  local host hosts folder answering all until=$((SECONDS + 20))
  [ -z "${PBS_JOBID:-}" ] && [ "$SLURM_JOB_NUM_NODES" -gt 1 ] || return 0
  hosts=$(hosts_of_job)
  all=$(wc -w <<<"$hosts") folder=$(mktemp -d)
  for host in $hosts; do answers "$host" && : >"$folder/$host" & done
  while answering=$(ls "$folder" | wc -l) && [ "$answering" -lt "$all" ] && [ "$SECONDS" -lt "$until" ]; do
    [ "$answering" = 0 ] || [ "$until" -le $((SECONDS + 4)) ] || until=$((SECONDS + 4))
    sleep 0.2
  done
  LOST=$(ls "$folder" | grep -vxFf - <(echo "$hosts") | paste -sd,)
  rm -rf "$folder"
  NODES=$((answering < WANTED ? answering : WANTED))
  export LOCKSTEP_LEFT_OUT=$LOST
  [ -z "$LOST" ] || export SLURM_OVERLAP=1  # the earlier step may wait for a lost node
}

# What a start of a job leaves for the next one: the data set that was checked, with its size and time, and the faults
# since the last progress. Another job, also one with the same number, does not use it.
CHECKED=${RUN_DIR:-.}/.checked FAULTS=${RUN_DIR:-.}/.faults
forget() { rm -f "$CHECKED" "$FAULTS"; }
[ "$START" != 0 ] || forget
note() { mkdir -p "${RUN_DIR:-.}" && echo "$2" >"$1"; }

# quietly COMMAND...: prints one line, or the output of a command that fails.
quietly() {
  local rc=0 output=$(mktemp)
  "$@" >"$output" 2>&1 || rc=$?
  if [ "$rc" = 0 ]; then say "preflight: the ranks can work together"; else cat "$output"; fi
  rm -f "$output"
  return "$rc"
}

# preflight DATA: checks that the data set is whole and that the ranks can communicate; ends the job otherwise. A later
# start of the same job does not check the same file again.
preflight() {
  local rc file lead begin end quietly=
  say "job $JOB, start $((START + 1)): $NODES nodes ($NODE_LIST), $RANKS_PER_NODE ranks per node, $THREADS threads per rank"
  lead=$(sed -nE 's/^#SBATCH --signal=.*@([0-9]+).*/\1/p' "$0")
  if [[ -n $lead && $RECORD =~ StartTime=([^ ]+).*\ EndTime=([^ ]+) ]] &&
    begin=$(date -d "${BASH_REMATCH[1]}" +%s 2>/dev/null) && end=$(date -d "${BASH_REMATCH[2]}" +%s 2>/dev/null) &&
    [ $((end - begin)) -lt $((lead + 60)) ]; then
    say "warning: the time limit is $((end - begin)) s, and --signal stops the job $lead s before it: raise --time"
  fi
  [ "${PREFLIGHT:-yes}" != no ] || return 0
  file=$(stat -L -c '%s %y %n' -- "$1" 2>/dev/null)
  if [ -n "$file" ] && [ "$file" = "$(cat "$CHECKED" 2>/dev/null)" ]; then
    say "preflight: the data set is the one that an earlier start has checked"
  else
    attend "$LOCKSTEP_PREP" check "$1" || {
      rc=$?
      [ "$stopping" = 0 ] || leave 85
      case $rc in
        3) say "preflight: the data set is refused" ;;
        126 | 127) say "preflight: $LOCKSTEP_PREP cannot be started" ;;
        137) say "preflight: the data set could not be checked: the system has killed the check, most often for lack of memory" ;;
        *) say "preflight: the data set could not be checked" ;;
      esac
      leave "$rc"
    }
    note "$CHECKED" "$file"
  fi
  [ "${PREFLIGHT:-yes}" != quick ] || quietly=quietly
  $quietly run "$LOCKSTEP" comm-test --max-bytes 4MiB --budget 5 --timeout 60 || {
    rc=$?
    [ "$stopping" = 0 ] || leave 85
    case $rc in
      126 | 127) say "preflight: ${launch[0]} cannot be started, or it cannot start $LOCKSTEP" ;;
      *) say "preflight: the ranks cannot work together (exit code $rc)" ;;
    esac
    leave "$rc"
  }
}

requeue() {
  if [ "$START" -ge "${MAX_RESTARTS:-100}" ]; then say "not requeued: started ${MAX_RESTARTS:-100} times already"; return 1; fi
  # Printed before the call, because a requeued job may be killed at once.
  say "requeueing: $1"
  if [ -z "${PBS_JOBID:-}" ]; then
    scontrol requeue "$JOB" || { say "not requeued: Slurm refuses (--no-requeue, or JobRequeue=0 at this site); submit it again to continue"; return 1; }
  else
    # A user may not rerun a job of PBS: the next start is a new job with the same settings, log and run directory.
    START=$((START + 1)) qsub -V -N "$PBS_JOBNAME" ${QSUB_FLAGS:-} "$LOCKSTEP_HOME/slurm/$SCRIPT" ||
      { say "not requeued: qsub refuses; submit it again to continue"; return 1; }
  fi
}

# leave CODE: ends the job. 85 (stopped cleanly before the end) after a checkpoint requeues it, unless it is being
# cancelled; a fault of the machine (1, 86, or killed by a signal: above 128, or the signal's number from MPICH's mpirun)
# and 85 without a checkpoint of this start requeue it, but without progress only RETRIES times; wrong usage (2) and bad
# data (3) never do.
leave() {
  local rc=$1 job= again=no count=0 reached= newest
  newest=$(newest)
  say "exit code $rc"
  if [ "$cancelled" = 1 ]; then job=$(scontrol -o show job "$JOB" 2>/dev/null); fi
  # A job that Slurm sends SIGTERM while it runs has to make room for another one (preemption with a grace time), and
  # continues later. A job that loses a node may have been requeued by Slurm.
  if [ "$rc" = 85 ] && [[ $job == *JobState=RUNNING\ * ]]; then cancelled=0; fi
  if [[ $job =~ Restarts=([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -gt "$START" ]; then
    again=yes
    say "Slurm has requeued the job: it continues from its last checkpoint"
  elif [ "$cancelled" = 1 ]; then
    case $job in
      *Reason=NodeDown*) say "a node of the job has failed: submit it again to continue" ;;
      *Reason=TimeLimit*) say "the job is at its time limit: submit it again to continue" ;;
      *) say "cancelled: submit it again to continue" ;;
    esac
  elif [ "$rc" = 85 ] && [ "$newest" != "$BEFORE" ]; then
    requeue "it continues from its last checkpoint" && again=yes
  elif [[ ! $rc =~ ^(0|2|3|126|127)$ ]]; then  # 126, 127: there is no such program
    [ "$rc" != 85 ] || say "stopped without a new checkpoint: ${newest:-there is none yet}"
    [ -f "$FAULTS" ] && read -r count reached <"$FAULTS"
    [ "$newest" = "$reached" ] || count=0
    if [ "$count" -lt "${RETRIES:-1}" ]; then
      note "$FAULTS" "$((count + 1)) $newest"
      requeue "fault $((count + 1)) since the last progress, of which ${RETRIES:-1} are forgiven" && again=yes
    fi
  fi
  [ "$again" = yes ] || forget
  exit "$rc"
}
