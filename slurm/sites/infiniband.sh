# shellcheck shell=bash
# InfiniBand: MPI over UCX. `ompi_info | grep ucx` shows whether this Open MPI has it; the job ends with a message if
# not. NCCL uses InfiniBand by itself; its start goes through TCP on INTERFACE.
INTERFACE=${INTERFACE:-ib0}
export OMPI_MCA_pml=${OMPI_MCA_pml:-ucx}
export UCX_TLS=${UCX_TLS:-all}
export NCCL_IB_DISABLE=${NCCL_IB_DISABLE:-0}
