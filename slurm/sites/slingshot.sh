# shellcheck shell=bash
# HPE Slingshot (Cray EX): MPI and NCCL over libfabric's cxi provider. NCCL needs the plugin aws-ofi-nccl: without it
# NCCL_NET makes it fail at once instead of falling back to TCP.
INTERFACE=${INTERFACE:-}                                  # MPI does not use TCP here
export NCCL_NET=${NCCL_NET:-AWS Libfabric}
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-hsn}      # NCCL's start goes through TCP
export NCCL_CROSS_NIC=${NCCL_CROSS_NIC:-1}
export NCCL_NET_GDR_LEVEL=${NCCL_NET_GDR_LEVEL:-PHB}
# LL128 with GPUDirect has given wrong sums on Slingshot: `lockstep comm-test` checks every collective exactly.
export NCCL_PROTO=${NCCL_PROTO:-^LL128}
export FI_CXI_DISABLE_HOST_REGISTER=${FI_CXI_DISABLE_HOST_REGISTER:-1}
export FI_MR_CACHE_MONITOR=${FI_MR_CACHE_MONITOR:-userfaultfd}
export FI_CXI_DEFAULT_CQ_SIZE=${FI_CXI_DEFAULT_CQ_SIZE:-131072}
export FI_CXI_RDZV_PROTO=${FI_CXI_RDZV_PROTO:-alt_read}
export FI_CXI_RX_MATCH_MODE=${FI_CXI_RX_MATCH_MODE:-hybrid}
