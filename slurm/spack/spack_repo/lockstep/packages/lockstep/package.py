"""Spack recipe. It builds the branch main of the checkout that it lies in (docs/install.md):

spack repo add slurm/spack/spack_repo/lockstep && spack install lockstep
"""

from pathlib import Path

from spack_repo.builtin.build_systems.cmake import CMakeBuilder, CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Lockstep(CMakePackage, CudaPackage):
    """Synchronous data-parallel training of published networks over MPI, and liblockstep, which evaluates them."""

    git = Path(__file__).resolve().parents[6].as_uri()

    license("Apache-2.0")

    version("main", branch="main")

    variant("capi_hdf5", default=True, description="liblockstep reads HDF5 model files; without, it needs no HDF5")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi@3:")
    depends_on("hdf5@1.10: ~mpi")
    depends_on("netcdf-c ~mpi")
    depends_on("boost@1.74: +program_options")
    depends_on("nlohmann-json@3.9:")
    depends_on("openssl")
    depends_on("xxhash")
    depends_on("zlib-api")
    depends_on("cuda@12:", when="+cuda")
    conflicts("cuda_arch=none", when="+cuda", msg="NCCL needs the architecture: cuda_arch=90, for example")
    for arch in CudaPackage.cuda_arch_values:
        depends_on(f"nccl +cuda cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")
    # `spack install --test=root lockstep` builds and runs the unit tests.
    depends_on("doctest", type="test")
    depends_on("random123", type="test")
    depends_on("boost +context", type="test")
    depends_on("python@3:", type="test")

    def cmake_args(self):
        args = [
            self.define("LOCKSTEP_TESTS", self.run_tests),
            self.define("LOCKSTEP_BENCH", False),
            self.define("LOCKSTEP_WERROR", False),
            self.define_from_variant("LOCKSTEP_CAPI_HDF5", "capi_hdf5"),
            self.define_from_variant("LOCKSTEP_CUDA", "cuda"),
        ]
        if self.spec.satisfies("+cuda"):
            args.append(CMakeBuilder.define_cuda_architectures(self))
        return args

    def check(self):
        with working_dir(self.builder.build_directory):
            ctest("--output-on-failure", "-L", "unit")

    def setup_run_environment(self, env):
        env.set("LOCKSTEP", self.prefix.bin.lockstep)
        env.set("LOCKSTEP_HOME", self.prefix.share.lockstep)
