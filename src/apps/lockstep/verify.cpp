#include "lockstep/tasks/verify.hpp"

#include <iostream>

#include "apps/lockstep/commands.hpp"
#include "lockstep/prep/reference.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

int run_verify(World& world, const Args& args) {
  std::string model, golden, device, precision;
  std::int64_t threads = 1;
  VerifyOptions how;
  Options options(
      "lockstep verify",
      "Compare this program with a reference file: values, losses, gradients, optimizer steps, products.",
      "The command prints one row per array: the largest difference relative to the largest reference value, "
      "the tolerance and the worst element. The exit code is 0 only if all arrays agree. Several ranks split "
      "each batch and must reach the same weights.");
  options.choice("model", &model, verifiable_kinds().front(), verifiable_kinds(), "model of the reference file");
  options.add("golden=FILE", &golden, "", "reference file").required();
  options.add("double", &how.f64, false,
              "compute in double precision and compare with the double-precision arrays of the file, to 1e-12");
  options.choice("device", &device, "cpu", {"cpu", "cuda"}, "device that computes");
  options.choice(
      "precision", &precision, "fp32", {"fp32", "tf32", "bf16", "fp16"},
      "GPUs only: store values in 16 bits, or round the operands of matrix products to tf32; compares the first batch, "
      "with wider tolerances");
  options.add("threads", &threads, 1, between(1, 1024), "threads per rank");
  options.add("reproducible", &how.step.reproducible, false, "sum gradients in one fixed tree");
  options.example("lockstep verify --golden tests/golden/emulator_default.h5",
                  "the default emulator in single precision");
  options.example("mpirun -n 3 lockstep verify --model emulator --golden tests/golden/emulator_conv.h5 --double",
                  "each batch split over three ranks");
  if (!parse(world, options, args)) return 0;
  how.step.threads = static_cast<int>(threads);
  how.storage = precision == "bf16" ? DType::bf16 : precision == "fp16" ? DType::f16 : DType::f32;
  how.tf32 = precision == "tf32";
  world.together("choosing the device", [&] { how.device = choose_device(world, device); });

  choose_isa(world, "auto");
  ReferenceReport report;
  world.together("verifying", [&] {
    try {
      report = verify(world, model, golden, how);
    } catch (const Error& error) {
      if (error.fault() != Fault::data) throw;
      throw Error(Fault::data,
                  join(error.what(), "; is it a reference file of ", model, "? --model names another kind"));
    }
    report.append(prep::verify_reference(H5File::open(golden)));
    require_data(!report.rows().empty(), "verifying '", golden, "': it is no reference file of ", model);
  });
  if (world.rank() == 0) std::cout << report.text() << std::flush;
  return report.passed() ? 0 : static_cast<int>(Fault::internal);
}

}  // namespace lockstep::apps
