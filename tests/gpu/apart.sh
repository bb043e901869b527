#!/bin/bash
# apart.sh PROGRAM...: runs a rank under a host name of its own, gpu-host-RANK. NCCL refuses two ranks of a host on one GPU, but
# not two hosts that have the same one, so two ranks can try out the code for several GPUs on a single GPU:
#   mpirun -n 2 tests/gpu/apart.sh lockstep train ... --device cuda --backend nccl
# It needs the right to create namespaces, which root has; without it the exit code is 77.
unshare --uts true 2> /dev/null || { echo "apart: $(id -un) may not create a namespace for a host name: run it as root, or with CAP_SYS_ADMIN in a container"; exit 77; }
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
export NCCL_HOSTID=gpu-host-$rank
exec unshare --uts bash -c 'hostname "$NCCL_HOSTID" && exec "$@"' apart "$@"
