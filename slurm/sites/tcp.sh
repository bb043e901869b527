# shellcheck shell=bash
# Ethernet: MPI and NCCL over TCP on one interface. Without INTERFACE Open MPI tries every interface of a host,
# management networks and container bridges included, and may hang: loopback and bridges are left out here.
export OMPI_MCA_pml=${OMPI_MCA_pml:-ob1}
export OMPI_MCA_btl=${OMPI_MCA_btl:-self,vader,tcp}
if [ -z "${INTERFACE:-}" ]; then
  for list in OMPI_MCA_btl_tcp_if_exclude OMPI_MCA_oob_tcp_if_exclude PRTE_MCA_prte_if_exclude; do
    export "$list=${!list:-lo,docker0,virbr0}"
  done
  export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-^lo,docker,virbr}
fi
export NCCL_IB_DISABLE=${NCCL_IB_DISABLE:-1}
