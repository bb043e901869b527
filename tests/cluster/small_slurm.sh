#!/usr/bin/env bash
# A small Slurm on one machine, for the tests of slurm/. Its daemons are real: munged and slurmctld on `head`, a slurmd
# on each of node1..nodeN. A node is a set of namespaces (network, host name, IPC, mounts, processes) on a private
# bridge, 10.77.0.i; the machine's own network is not changed. Needs root and the packages munge, slurmctld, slurmd,
# slurm-client, iproute2, util-linux.
#
#   small_slurm.sh up N            start N nodes; exit code 77 and a reason if this machine cannot
#   small_slurm.sh down            stop everything and remove the state directory
#   small_slurm.sh exec NODE CMD   run a command on head or nodeK, in the current directory
#   small_slurm.sh wait JOB S      wait for the end of a job, at most S seconds; prints its record; exit 0 if COMPLETED
#   small_slurm.sh link NODE down|up      disconnect or connect a node
#   small_slurm.sh shape RATE|off [NODE]  limit all links, or one node's, to a rate such as 1gbit (tc tbf)
#
# SMALL_SLURM_DIR (short: unix sockets lie in it) holds the state; SMALL_SLURM_CPUS (64), SMALL_SLURM_GPUS (4) per node.
# SMALL_SLURM_SHM=one: all nodes share the machine's /dev/shm, which the NCCL of tests/cuda_host needs.
set -u -o pipefail
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
D=${SMALL_SLURM_DIR:?names the state directory}
NET=10.77.0

cannot() { echo "no Slurm can be started here: $*" >&2; exit 77; }
die() { echo "small_slurm: $*" >&2; exit 1; }
nodes() { seq -f 'node%g' 1 "$(<"$D/nodes")"; }
pid_of() { cat "$D/run/$1.pid" 2>/dev/null; }

# Runs a command in the node's namespaces, with the environment that daemons and jobs share.
inside() {
  local node=$1 pid; shift
  pid=$(pid_of "$node") && [ -n "$pid" ] || die "$node is not there"
  nsenter -t "$pid" -n -u -i -m -p -- env SLURM_CONF="$D/slurm.conf" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_mpi_yield_when_idle=1 "$@"
}

# PID 1 of a node: sets up host name and mounts, writes its PID, and reaps children.
# shellcheck disable=SC2016
init='
  dir=$1 name=$2
  read -r me _ </proc/self/stat
  echo "$name" >/proc/sys/kernel/hostname
  mount -t proc proc /proc && mount --bind "$dir/hosts" /etc/hosts && ip link set lo up || exit 1
  [ "${SMALL_SLURM_SHM:-}" = one ] || mount -t tmpfs -o mode=1777 shm /dev/shm || exit 1
  echo "$me" >"$dir/run/$name.new" && mv "$dir/run/$name.new" "$dir/run/$name.pid"
  trap : TERM INT HUP
  while :; do sleep 3600 & wait $!; done'
boot() {
  local node=$1 k=${1#node} i
  setsid unshare --net --uts --ipc --mount --pid --fork --kill-child --propagation slave bash -c "$init" init "$D" "$node" \
    </dev/null >"$D/log/$node.log" 2>&1 &
  for ((i = 0; i < 200; i++)); do [ -s "$D/run/$node.pid" ] && break; sleep 0.05; done
  [ -s "$D/run/$node.pid" ] || die "$node did not start: $(cat "$D/log/$node.log")"
  if [ "$node" = head ]; then
    inside head bash -c "ip link add br0 type bridge && ip link set br0 up && ip addr add $NET.254/24 dev br0" || die "no bridge"
  else
    nsenter -t "$(pid_of head)" -n ip link add "v$k" type veth peer name eth0 netns "$(pid_of "$node")" || die "no veth pair"
    inside head ip link set "v$k" master br0 up
    inside "$node" bash -c "ip addr add $NET.$k/24 dev eth0 && ip link set eth0 up" || die "no address for $node"
  fi
}

configuration() {
  local count=$1 gpus=${SMALL_SLURM_GPUS:-4} i
  for ((i = 0; i < gpus; i++)); do ln -sfn /dev/null "$D/gpu/nvidia$i"; done  # Slurm schedules them; CUDA cannot use them
  printf 'AutoDetect=off\nName=gpu File=%s\n' "$D/gpu/nvidia[0-$((gpus - 1))]" >"$D/gres.conf"
  {
    printf '127.0.0.1 localhost\n%s.254 head\n' "$NET"
    for ((i = 1; i <= count; i++)); do printf '%s.%d node%d\n' "$NET" "$i" "$i"; done
  } >"$D/hosts"
  cat >"$D/slurm.conf" <<EOF
ClusterName=small
SlurmctldHost=head($NET.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$D/run/munge.socket
CredType=cred/munge
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool/%n
TmpFS=$D/tmp/%n
SlurmctldPidFile=$D/run/slurmctld.daemon
SlurmdPidFile=$D/run/slurmd.%n.daemon
SlurmctldLogFile=$D/log/slurmctld.log
SlurmdLogFile=$D/log/slurmd.%n.log
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=5
EnforcePartLimits=ALL
MessageTimeout=10
TCPTimeout=5
GresTypes=gpu
EOF
  for ((i = 1; i <= count; i++)); do
    printf 'NodeName=node%d NodeAddr=%s.%d Sockets=2 CoresPerSocket=%d ThreadsPerCore=1 RealMemory=65536 Gres=gpu:%d State=UNKNOWN\n' \
      "$i" "$NET" "$i" "$((${SMALL_SLURM_CPUS:-64} / 2))" "$gpus"
  done >>"$D/slurm.conf"
  echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP" >>"$D/slurm.conf"
}

up() {
  local count=$1 c reason node i
  for c in munged slurmctld slurmd sbatch ip tc unshare nsenter; do
    command -v "$c" >/dev/null || cannot "no $c (Debian: munge slurmctld slurmd slurm-client iproute2 util-linux)"
  done
  [ "$EUID" = 0 ] || cannot "namespaces need root"
  [ "${#D}" -le 60 ] || cannot "SMALL_SLURM_DIR is too long for unix sockets: $D"
  reason=$(unshare --net --uts --ipc --mount --pid --fork bash -c \
    'ip link set lo up && ip link add b0 type bridge && ip link add v0 type veth peer name v1 && mount -t tmpfs none /mnt' 2>&1) ||
    cannot "no namespaces with a bridge: $reason"
  mkdir -p "$D"/{run,log,gpu,state} && echo "$count" >"$D/nodes" || die "cannot make $D"
  chmod 755 "$D" "$D/run"
  for node in head $(nodes); do mkdir -p "$D/spool/$node" "$D/tmp/$node"; done
  configuration "$count"
  (umask 077; head -c 128 /dev/urandom >"$D/munge.key")
  for node in head $(nodes); do boot "$node"; done
  inside head munged --force --key-file="$D/munge.key" --socket="$D/run/munge.socket" --pid-file="$D/run/munged.daemon" \
    --log-file="$D/log/munged.log" --seed-file="$D/run/munged.seed" || cannot "munged did not start: $(tail -n 2 "$D/log/munged.log")"
  inside head slurmctld -f "$D/slurm.conf" || cannot "slurmctld did not start"
  for node in $(nodes); do inside "$node" slurmd -f "$D/slurm.conf" -N "$node" || cannot "slurmd of $node did not start"; done
  for ((i = 0; i < 150; i++)); do
    [ "$(inside head sinfo -h -N -o '%t' 2>/dev/null | grep -c idle)" = "$count" ] && return 0
    sleep 0.2
  done
  cannot "its nodes are not ready after 30 s: $(inside head sinfo -h -N -o '%N %t' 2>&1 | tr '\n' ' ')"
}

down() {
  local node
  [ -f "$D/nodes" ] || return 0
  for node in $(nodes) head; do kill -KILL "$(pid_of "$node")" 2>/dev/null; done  # PID 1 of a namespace takes all with it
  for _ in $(seq 50); do rm -rf "$D" 2>/dev/null && break; sleep 0.1; done
}

await() {
  local record state limit=$((SECONDS + $2))
  while [ "$SECONDS" -lt "$limit" ]; do
    record=$(inside head timeout 20 scontrol -o show job "$1" 2>/dev/null)
    state=$(sed -n 's/.* JobState=\([A-Z_]*\).*/\1/p' <<<"$record" | sort -u)
    case $state in
      *PENDING* | *RUNNING* | *COMPLETING* | *CONFIGURING* | *REQUEUE* | '') sleep 0.3 ;;
      *)
        grep -oE '(JobState|Restarts|ExitCode|RunTime)=[^ ]*' <<<"$record" | tr '\n' ' '
        echo
        [ "$state" = COMPLETED ]
        return
        ;;
    esac
  done
  echo "job $1 is still ${state:-unknown} after $2 s"
  return 1
}

shape() {
  local node end
  for node in ${2:-$(nodes)}; do
    # One queue per direction: at each end of the node's veth pair.
    for end in "$node eth0" "head v${node#node}"; do
      set -- "$1" $end
      inside "$2" tc qdisc del dev "$3" root 2>/dev/null
      [ "$1" = off ] || inside "$2" tc qdisc add dev "$3" root tbf rate "$1" burst 128kb latency 200ms || cannot "no traffic shaping (tc tbf)"
    done
  done
}

verb=${1:-}; shift
case $verb in
  up) up "$1" ;;
  down) down ;;
  exec) node=$1; shift; inside "$node" setpriv --pdeathsig TERM bash -c 'cd "$0" && exec "$@"' "$PWD" "$@" ;;
  wait) await "$1" "$2" ;;
  link) inside head ip link set "v${1#node}" "$2" ;;
  shape) shape "$@" ;;
  *) die "unknown verb '$verb'" ;;
esac
