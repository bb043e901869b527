#!/bin/bash
# A bundle runs from any folder, and uses nothing of this machine except the C library:   bundle_test.sh BUILD
set -euo pipefail
for tool in ompi_info strip; do
  command -v $tool > /dev/null || { echo "skipped: no $tool"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/raw"
awk 'BEGIN {for (n = 0; n < 4000; ++n) print n % 200 + 1 "::" n * n % 53 + 1 "::5::" 978300000 + 60 * n}' | xz > "$work/raw/ratings.dat.xz"
"$1/bin/lockstep-prep" synth-kg --users 30 --text "$work/raw/kgat-ml1m" --output "$work/kg.h5" --quiet
xz "$work"/raw/kgat-ml1m/*.txt
"$(dirname "$0")/bundle.sh" --raw "$work/raw" "$1" "$work/bundle.tar"
mkdir "$work/another place"
tar -C "$work/another place" -xf "$work/bundle.tar"
cd "$work/another place/lockstep-bundle"
clean() { env -i PATH=/usr/bin:/bin HOME="$work" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$@"; }

for program in libexec/* lib/*.so* lib/*/*.so; do
  clean LD_LIBRARY_PATH="$PWD/lib" ldd "$program"
done | awk '$2 == "=>" && $3 !~ /another/ {print $1}' | sort -u > "$work/outside"
if grep -vE '^(libc|libm|libdl|libpthread|librt|libresolv|libutil|libcuda|libcudart|libcublasLt)\.so|^linux-vdso' "$work/outside"; then
  echo "FAILED: these libraries come from outside the bundle"
  exit 1
fi
clean bin/mpirun --oversubscribe --bind-to none -n 2 bin/lockstep info | tee "$work/info"
[ "$(grep -cE '^ +[01]  ' "$work/info")" = 2 ] || { echo "FAILED: not two ranks"; exit 1; }
clean bin/lockstep-prep synth-icecolumn --rows 400 --output "$work/ice.h5" --quiet
clean bin/mpirun --oversubscribe --bind-to none -n 2 bin/lockstep train --config configs/emulator-icecolumn.ini --data.path "$work/ice.h5" \
  --batch.size 50 --epochs 2 --threads 1 --run-dir "$work/run"
clean bin/lockstep verify --model emulator --golden tests/golden/emulator_default.h5 | tail -1
clean tests/gpu/prepare.sh
clean bin/lockstep-prep check data/ml-1m.h5 data/kgat-ml1m.h5
# CUDA's libraries come from the first folder that has them, never from a folder that only exists.
ln -s start bin/paths
# shellcheck disable=SC2016
printf '#!/bin/sh\necho "$LD_LIBRARY_PATH"\n' > libexec/paths && chmod +x libexec/paths
wanted=$(sed -n 's/^wanted="\(.*\)"/\1/p' bin/start)
mkdir -p "$work/a CUDA/lib64" "$work/a CUDA/lib" "$work/site/nvidia/cu13/lib"
touch "$work/a CUDA/lib/$wanted" "$work/site/nvidia/cu13/lib/libof_python.so.1"
paths() { case $1 in *"$2"*) ;; *) echo "FAILED: '$2' is not in '$1'"; exit 1 ;; esac; }
paths "$(clean bin/paths)." "lib$([ -e "/usr/local/cuda/lib64/$wanted" ] && echo :/usr/local/cuda/lib64)."
paths "$(clean CUDA_HOME="$work/a CUDA" bin/paths)." "lib:$work/a CUDA/lib."
sed -i "s/^wanted=.*/wanted=\"$wanted libof_python.so.1\"/" bin/start
paths "$(clean CUDA_HOME="$work/a CUDA" PYTHONPATH="$work/site" bin/paths)." "lib:$work/a CUDA/lib:$work/site/nvidia/cu13/lib."
echo "ok"
