#!/bin/bash
# Packs the programs of a build and their libraries, for a machine without MPI, HDF5 and Boost:
#   bundle.sh [--without-nccl] [--raw FOLDER] BUILD OUTPUT.tar[.xz|.gz]
# The bundle runs from any folder. It uses the target machine's C library (of the version that it prints, or newer), CUDA libraries and
# driver, and includes NCCL unless the machine has it. --raw adds the raw files of FOLDER that prepare.sh reads.
# The extension of the output selects the compression. docs/design/gpu-check.md explains its use.
set -euo pipefail
nccl='' raw=''
while true; do
  case ${1:-} in
    --without-nccl) nccl='|libnccl' ;;
    --raw) raw=${2:?--raw needs a folder} && shift ;;
    *) break ;;
  esac
  shift
done
[ $# = 2 ] || { sed -n 2,5p "$0" >&2; exit 2; }
source=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd) output=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
home=$work/lockstep-bundle
mkdir -p "$home"/{bin,libexec,lib/openmpi,lib/pmix,share,tests}

# Programs lie in libexec/. bin/ has a link per program to a script that starts it with the bundled libraries.
for program in lockstep lockstep-prep test_{ops,optim,device,comm,step,step_mpi,tasks,tasks_mpi,nn,models} bench_bandwidth bench_spmm; do
  [ -x "$build/bin/$program" ] && cp "$build/bin/$program" "$home/libexec/"
done
[ -x "$home/libexec/lockstep" ] || { echo "bundle: no $build/bin/lockstep: build first" >&2; exit 2; }
mpirun=$(readlink -f "$(command -v mpirun)") && cp "$mpirun" "$home/libexec/mpirun"
[ ! -e "$build/lib/libkernel_times.so" ] || cp "$build/lib/libkernel_times.so" "$home/lib/"
strip "$home"/libexec/*

# Open MPI's components, except those for networks and schedulers, which a single machine does not need.
path_of() { ompi_info --parsable --path "$1" | cut -d: -f3; }
find "$(path_of pkglibdir)" -name 'mca_*.so' | grep -vE 'ucx|ofi|psm|atomic|openib|monitoring|memheap|scoll|spml|sshmem|slurm|gridengine|flux|jsm|romio' |
  xargs cp -t "$home/lib/openmpi"
pmix=$(ldd "$home"/lib/openmpi/mca_pmix_ext*.so 2>/dev/null | awk '$1 ~ /^libpmix\.so/ {print $3}' | xargs -r readlink -f)
if [ -n "$pmix" ]; then  # a separate library with components of its own
  cp "$(dirname "$pmix")"/pmix/*.so "$home/lib/pmix/"
fi
cp -rL "$(path_of pkgdatadir)" "$home/share/openmpi"

# All libraries that these depend on, directly or indirectly, except the C library and CUDA.
find "$home/libexec" "$home/lib" -type f -exec ldd {} \; 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  grep -vE "/(libc|libm|libdl|libpthread|librt|libresolv|libutil|libcuda|libcudart|libcublas|libcublasLt|libcusparse|libcupti|libnvJitLink|libnvidia-[a-z]*$nccl)\.so" |
  while read -r library; do cp -L "$library" "$home/lib/"; done

wanted=$(ldd "$home"/libexec/* | grep -oE "lib(cudart|cublasLt|cusparse|nvJitLink${nccl/lib/})\.so\.[0-9]+" | sort -u | tr '\n' ' ' || true)  # none in a build without CUDA
cupti=$(ldd "$home"/lib/libkernel_times.so 2> /dev/null | grep -oE 'libcupti\.so\.[0-9]+' | head -1 || true)
cat > "$home/bin/start" <<END
#!/bin/sh
# Starts the program with this link's name, with the libraries of this folder. CUDA's come from CUDA_HOME, the usual places, or the
# packages of a Python with PyTorch (LOCKSTEP_PYTHON).
wanted="${wanted:-libcublasLt.so}"
[ -z "\$CUDA_INJECTION64_PATH" ] || wanted="\$wanted $cupti"  # of libkernel_times.so
END
cat >> "$home/bin/start" <<'END'
home=$(cd "$(dirname "$0")/.." && pwd)
path=$home/lib
has() {  # LIBRARY: whether a folder of the path has it
  (IFS=: && for folder in $path; do [ ! -e "$folder/$1" ] || exit 0; done; exit 1)
}
look() {  # FOLDER: added to the path if it has a library that no folder before it has
  for library in $wanted; do
    if [ -e "$1/$library" ] && ! has "$library"; then path=$path:$1; fi
  done
}
missing() {
  for library in $wanted; do
    has "$library" || /sbin/ldconfig -p 2> /dev/null | grep -q "$library " || return 0
  done
  return 1
}
case $LD_LIBRARY_PATH in
  "$home/lib"*) ;;
  *)
    for folder in ${CUDA_HOME:+"$CUDA_HOME/lib64" "$CUDA_HOME/lib" "$CUDA_HOME/extras/CUPTI/lib64"} /usr/local/cuda/lib64 /usr/local/cuda/lib \
      /usr/local/cuda/extras/CUPTI/lib64; do look "$folder"; done
    if missing; then
      packages=$("${LOCKSTEP_PYTHON:-python3}" -c 'import glob, nvidia
for folder in nvidia.__path__: print(*glob.glob(folder + "/*/lib"), sep="\n")' 2> /dev/null)
      IFS='
' && for folder in $packages; do IFS=' ' && look "$folder"; done
      unset IFS
    fi
    export LD_LIBRARY_PATH="$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    ;;
esac
export OPAL_PREFIX="$home" OMPI_MCA_mca_base_component_path="$home/lib/openmpi" OMPI_MCA_plm=isolated
export PMIX_INSTALL_PREFIX="$home" PMIX_MCA_mca_base_component_path="$home/lib/pmix"
exec "$home/libexec/$(basename "$0")" "$@"
END
chmod +x "$home/bin/start"
for program in "$home"/libexec/*; do ln -s start "$home/bin/$(basename "$program")"; done

# The files that tests/gpu/check.sh needs.
cp -r "$source/configs" "$source/LICENSE" "$home/"
cp -r "$source"/tests/{golden,gpu,peers} "$home/tests/"
mkdir "$home/tests/cuda_host"
cp "$source"/tests/cuda_host/*.sh "$home/tests/cuda_host/"
mkdir "$home/data" "$home/raw"
for name in ratings.dat.xz kgat-ml1m hapt_raw.tar.xz; do
  if [ -e "${raw:-/none}/$name" ]; then cp -rL "$raw/$name" "$home/raw/"; fi
done
# The programs contain the same kernels, further apart than xz looks by default. --x86 makes machine code a twentieth smaller.
XZ_OPT=${XZ_OPT:---x86 --lzma2=preset=6,dict=512MiB} tar -C "$work" -caf "$output" lockstep-bundle
library=$(find "$home/libexec" "$home/lib" -type f -exec objdump -T {} + 2> /dev/null | grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -1)
echo "$output: $(du -h "$output" | cut -f1), needs the C library ${library#GLIBC_} or newer; unpack it, then lockstep-bundle/bin/lockstep info"
