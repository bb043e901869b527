#include <exception>

#include "lockstep/base/hash.hpp"
#include "lockstep/ops/gemm.hpp"
#include "lockstep/train/agreement.hpp"
#include "lockstep/train/trainer.hpp"
#include "train/staged_file.hpp"

namespace lockstep {

void place_task(World& world, const RunConfig& config, Task& model) {
  model.move_to(choose_device(world, config.run.device, config.dist.gpu_ids));
  ops::allow_tf32(config.precision() == "tf32");
  if (!is_half(config.storage())) return;
  require_usage(model.params().dtype() == DType::f32, "option run.precision = ", config.precision(),
                ": these options of model.kind = ", model.kind(), " compute in fp64; use fp32");
  model.params().store_as(config.storage());
}

std::unique_ptr<Task> load_task(World& world, const RunConfig& config, DataMemory& data_memory,
                                const H5File* checkpoint, WeightSource weights) {
  std::unique_ptr<Task> model;
  std::exception_ptr failure;
  std::unique_ptr<StagedFile> staged;
  if (!config.data.stage.empty() && !data_memory.has_data_set()) {
    staged = std::make_unique<StagedFile>(world, config.data.path, config.data.stage);
    data_memory.read_from(staged->path());
  }
  try {
    model = config.task->load({.path = config.data.path,
                               .seed = config.run.seed,
                               .dtype = config.dtype(),
                               .data_memory = data_memory,
                               .checkpoint = checkpoint,
                               .weights = weights,
                               .pretrained = config.pretrained});
  } catch (const CollectiveError&) {
    throw;  // all ranks have thrown it
  } catch (...) {
    failure = std::current_exception();
  }
  // Other ranks call together() here or in NodeDataMemory::place(); the calls match, so all ranks fail together.
  world.together("loading the data set", [&] {
    if (failure) std::rethrow_exception(failure);
    require_usage(config.data.layout != "divided" || model->row_source() != nullptr,
                  "option data.layout = divided: model.kind = ", config.model_kind,
                  ": its data set is needed whole on each node; use replicate or auto");
    place_task(world, config, *model);
  });
  if (staged) data_memory.read_from("");
  warn_of_shared_gpus(world, model->params().device());
  require_same(world, "data set", hex64(model->data_hash()), "all ranks must read the same file");
  return model;
}

}  // namespace lockstep
