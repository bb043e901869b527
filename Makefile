# Short commands. `make help` lists them. Everything is built in build/ by CMake; nothing is downloaded except
# distribution packages by `make deps`.
SHELL := /bin/bash
.DEFAULT_GOAL := build

BUILD ?= build
BUILD_TYPE ?= Release
TARGETS ?= all
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
CMAKE_ARGS ?=
RANKS ?= 2
DEMO ?= demo
MUTATE ?=
GPU_CHECK ?=
BUNDLE ?=
BASE ?=
FILES ?=

# Debian and Ubuntu names.
PACKAGES := g++ cmake ninja-build pkg-config openmpi-bin libopenmpi-dev libhdf5-dev libboost-program-options-dev \
  libboost-dev nlohmann-json3-dev libxxhash-dev zlib1g-dev libnetcdf-dev libssl-dev
# What tests and examples need besides.
TEST_PACKAGES := doctest-dev librandom123-dev libboost-context-dev gfortran procps xz-utils groff-base hdf5-tools python3-h5py
# For those who change the sources. One version of each, so that all see the same layout and findings.
DEV_PACKAGES := clang-format-14 clang-tidy-16 ccache
MPIRUN = OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe --bind-to none

# All clones and build folders share what ccache keeps: paths inside the tree count relative to the build folder.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := true
export CCACHE_PCH_EXTSUM := true
export CCACHE_SLOPPINESS := pch_defines,time_macros

.NOTPARALLEL:
.PHONY: help deps deps-build deps-dev configure build cuda cuda-tests cuda-host bundle gpu-check gpu-quarter mutate demo check test test-mpi bench size format format-check lint install docs clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

# $(call install,PACKAGES): those that are missing.
install = missing=$$(for p in $(1); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if ! command -v dpkg-query >/dev/null; then echo "deps: not a Debian or Ubuntu system: install the equivalents of: $(1)"; exit 0; fi; \
	if [ -n "$$missing" ]; then echo "deps: installing" $$missing; \
	  sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi

deps:  ## install the distribution packages that are missing (apt; as root or with sudo)
	@$(call install,$(PACKAGES) $(TEST_PACKAGES))

deps-build:
	@$(call install,$(PACKAGES))

deps-dev: deps  ## the same, with what format and lint need
	@$(call install,$(DEV_PACKAGES))

configure:
	@cmake -S . -B $(BUILD) $$(command -v ninja >/dev/null && [ ! -f $(BUILD)/Makefile ] && echo -G Ninja) \
	  -DCMAKE_BUILD_TYPE=$(BUILD_TYPE) $$(command -v ccache >/dev/null && echo -DCMAKE_CXX_COMPILER_LAUNCHER=ccache) $(CMAKE_ARGS)

build: configure  ## the programs and libraries, in build/bin and build/lib
	@cmake --build $(BUILD) -j $(JOBS) --target $(TARGETS)

# Beside $(BUILD), not in it: the sources then have the same paths from both folders, and ccache returns what was compiled
# without CUDA for all layers but device, comm, ops and optim.
cuda:  ## the programs with the CUDA path, in build-cuda/bin: needs the CUDA Toolkit and NCCL
	@$(MAKE) --no-print-directory build BUILD=$(BUILD)-cuda CMAKE_ARGS="$(CMAKE_ARGS) -DLOCKSTEP_CUDA=ON -DLOCKSTEP_TESTS=OFF -DLOCKSTEP_BENCH=OFF"

# Not in the same folder: the tests check gradients in fp64, so nearly every kernel is compiled with other options.
cuda-tests:
	@$(MAKE) --no-print-directory build BUILD=$(BUILD)-cuda-tests TARGETS=gpu_programs CMAKE_ARGS="-DLOCKSTEP_CUDA_TYPES=fp32,fp64,bf16,fp16 $(CMAKE_ARGS) -DLOCKSTEP_CUDA=ON -DLOCKSTEP_TESTS=ON -DLOCKSTEP_BENCH=ON"

gpu-check: cuda-tests  ## on a machine with a GPU: compute-sanitizer, reference files, trainings, speed; gpu-check/gpu-check.md
	@tests/gpu/check.sh --bin $(BUILD)-cuda-tests/bin $(GPU_CHECK)

bundle: cuda-tests  ## build/bundle.tar.xz: the CUDA programs and tests with their libraries, for a machine that has none of them
	@tests/gpu/bundle.sh $(BUNDLE) $(BUILD)-cuda-tests $(BUILD)/bundle.tar.xz

# One architecture, that of H100 and H200.
gpu-quarter: CMAKE_ARGS += -DCMAKE_CUDA_ARCHITECTURES=90a-real -DLOCKSTEP_NETCDF=OFF
gpu-quarter: BUNDLE += --without-nccl --raw raw
gpu-quarter: bundle  ## a bundle with the raw files of raw/ for fifteen minutes with a GPU; docs/design/gpu-check.md

cuda-host: configure  ## lockstep with the CUDA path on a stand-in for the GPU, in build/cuda-host/bin: for tests
	@cmake --build $(BUILD) -j $(JOBS) --target cuda_host_lockstep

demo: CMAKE_ARGS += -DLOCKSTEP_TESTS=OFF -DLOCKSTEP_BENCH=OFF
demo: TARGETS = lockstep lockstep-prep
demo: deps-build build  ## all five systems on 2 ranks, on synthetic data: a minute after the build
	@MPIRUN="env $(MPIRUN)" src/apps/demo.sh $(BUILD)/bin $(DEMO) $(RANKS)

test: CMAKE_ARGS += -DLOCKSTEP_TESTS=ON
# Two tests for each core: half of their time they wait, for programs that start and for deadlines.
test: deps build  ## build, then every test, multi-rank ones included
	@cd $(BUILD) && ctest --output-on-failure -j $$((2 * $(JOBS)))

check: CMAKE_ARGS += -DLOCKSTEP_TESTS=ON
check: build  ## build, then the unit tests: one and a half minutes on two cores
	@cd $(BUILD) && ctest --output-on-failure -L unit -j $(JOBS)

test-mpi: CMAKE_ARGS += -DLOCKSTEP_TESTS=ON
test-mpi: build  ## build, then the multi-rank tests
	@cd $(BUILD) && ctest --output-on-failure -L mpi

mutate: CMAKE_ARGS += -DLOCKSTEP_TESTS=ON
mutate: build  ## does a test fail when a CUDA kernel is wrong? MUTATE="--per-function 5 rope.cu": which, and how many
	@tests/mutation/mutate.py --build $(BUILD) --jobs $(JOBS) $(MUTATE)

bench: CMAKE_ARGS += -DLOCKSTEP_BENCH=ON
bench: TARGETS = lockstep lockstep-prep bench_columns bench_item_softmax bench_kgat
bench: build  ## all comparisons in one report, build/bench/report.md; with PyTorch where LOCKSTEP_PYTHON names a Python that has it
	@BUILD=$(BUILD) tests/bench/report.sh

size:  ## lines of each folder of src, include and tests; BASE=COMMIT: and how many more than there
	@tests/tree/size.sh $(BASE)

# FILES, or what differs from the commit BASE, or all; $(call chosen,cpp|hpp): of these, sources that end so.
chosen = $(if $(FILES),printf '%s\n' $(FILES),$(if $(BASE),git diff --name-only --diff-filter=d $(BASE),git ls-files)) | \
  { grep -E '^(src|include|tests)/.*\.($(1))$$' || true; }
format:  ## clang-format over all sources, or FILES="..." or what differs from BASE=COMMIT
	@$(call chosen,cpp|hpp|h|c|cu) | xargs -r -P $(JOBS) -n 50 clang-format-14 -i

format-check:  ## is that without effect?
	@$(call chosen,cpp|hpp|h|c|cu) | xargs -r -P $(JOBS) -n 50 clang-format-14 --dry-run --Werror

# clang-tidy cannot read GCC's precompiled headers. Headers are checked with the sources that include them; those of
# FILES and BASE also alone. CUDA is left out.
lint:  ## clang-tidy over all sources, or FILES="..." or what differs from BASE=COMMIT; warnings are errors
	@$(MAKE) --no-print-directory configure BUILD=$(BUILD)/lint CMAKE_ARGS="$(CMAKE_ARGS) -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON" >/dev/null
	@cmake --build $(BUILD)/lint --target lockstep_git_id >/dev/null
	@$(call chosen,cpp$(if $(FILES)$(BASE),|hpp)) | grep -vE '(_cuda|/cuda_\w+|ops/common/map)\.hpp$$|^tests/(cuda_host|gpu|mutation|bench/bench_spmm)' | \
	  python3 tests/tree/lint.py $(BUILD)/lint $(JOBS)

install: build  ## into PREFIX (/usr/local)
	@cmake --install $(BUILD) --prefix $(PREFIX)

docs: build  ## the generated pages, pictures and man pages, from options tables, headers and benchmarks
	@$(BUILD)/bin/lockstep help --markdown > docs/options.md
	@$(BUILD)/bin/lockstep-prep help --markdown > docs/prep-options.md
	@$(BUILD)/bin/lockstep help --man $(BUILD)/man/man1
	@$(BUILD)/bin/lockstep-prep help --man $(BUILD)/man/man1
	@python3 docs/reference.py && python3 docs/pictures/draw.py

clean:  ## remove build/, build-cuda/ and the demo's output
	@rm -rf $(BUILD) $(BUILD)-cuda $(BUILD)-cuda-tests $(DEMO)
