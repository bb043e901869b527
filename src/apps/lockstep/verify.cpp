#include "lockstep/train/verify.hpp"

#include <iostream>

#include "apps/lockstep/commands.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::apps {

int run_verify(World& world, const Args& args) {
  std::string model, golden, device, precision;
  std::int64_t threads = 1;
  VerifyOptions how;
  Options options("lockstep verify",
                  "Compare this program with a reference file: values, losses, gradients, optimizer steps, products.",
                  "A row per array: the largest difference relative to the largest reference value, what is allowed, "
                  "and the worst element. "
                  "Exit code 0 only if every row holds. On several ranks each batch is split over them, and the same "
                  "weights must come out.");
  options.choice("model", &model, verifiable_models().front(), verifiable_models(),
                 "model that the file is a reference of");
  options.add("golden", &golden, "", "reference file").value_name("FILE").required();
  options.add("double", &how.f64, false,
              "compute in double and compare with the file's double-precision arrays, to 1e-12");
  options.choice("device", &device, "cpu", {"cpu", "cuda"}, "where to compute");
  options.choice(
      "precision", &precision, "fp32", {"fp32", "tf32", "bf16", "fp16"},
      "on GPUs: store values in 16 bits, or round the operands of products to tf32; compares the first batch, "
      "with tolerances to match");
  options.add("threads", &threads, 1, between(1, 1024), "threads per rank");
  options.add("reproducible", &how.reproducible, false, "sum gradients in one fixed tree");
  options.example("lockstep verify --golden tests/golden/emulator_default.h5",
                  "the default emulator in single precision");
  options.example("mpirun -n 3 lockstep verify --model emulator --golden tests/golden/emulator_conv.h5 --double",
                  "each batch split over three ranks");
  if (!parse(world, options, args)) return 0;
  how.threads = static_cast<int>(threads);
  how.storage = precision == "bf16" ? DType::bf16 : precision == "fp16" ? DType::f16 : DType::f32;
  how.tf32 = precision == "tf32";
  world.together("choosing the device", [&] { how.device = choose_device(world, device); });

  VerifyReport report;
  world.together("verifying", [&] { report = verify(world, model, golden, how); });
  if (world.rank() == 0) std::cout << report.text() << std::flush;
  return report.passed() ? 0 : static_cast<int>(Fault::internal);
}

}  // namespace lockstep::apps
