#include <algorithm>
#include <set>

#include "lockstep/base/log.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep {

namespace {

/// The numbers of the GPUs to use: `gpu_ids`, or all visible GPUs.
std::vector<int> usable_gpus(const World& world, const std::vector<std::string>& gpu_ids) {
  require_usage(built_with_cuda(),
                "option run.device = cuda: this program was built without CUDA; use 'make cuda', or cpu");
  const int visible = gpu_count();
  require_usage(visible > 0, "option run.device = cuda: this process sees no GPU on ", world.host(), ": ",
                visible > 0 ? "" : why_no_gpu(), "; or use cpu");
  std::vector<int> usable;
  for (const std::string& id : gpu_ids) {
    const bool number =
        !id.empty() && id.size() < 5 && std::ranges::all_of(id, [](char c) { return c >= '0' && c <= '9'; });
    require_usage(number && std::stoi(id) < visible, "option dist.gpu_ids: '", id, "' is not one of the GPUs 0 .. ",
                  visible - 1, " that this process sees on ", world.host());
    usable.push_back(std::stoi(id));
  }
  if (usable.empty())
    for (int i = 0; i < visible; ++i) usable.push_back(i);
  return usable;
}

}  // namespace

Device choose_device(World& world, const std::string& kind, const std::vector<std::string>& gpu_ids) {
  if (kind == "cpu") {
    require_usage(gpu_ids.empty(), "option dist.gpu_ids = ", gpu_ids.empty() ? "" : gpu_ids.front(),
                  gpu_ids.size() > 1 ? ",..." : "", ": only with --device cuda");
    return {};
  }
  const std::vector<int> usable = usable_gpus(world, gpu_ids);
  const auto index = static_cast<std::size_t>(world.node_rank()) % usable.size();
  const Device device{DeviceKind::cuda, usable[index]};
  require_usable(device);
  return device;
}

void warn_of_shared_gpus(World& world, Device device) {
  if (!device.is_cuda()) return;
  // By UUID: a process may see only its own GPU, as number 0.
  const auto gpus = world.node_communicator().all_gather_text(gpu_uuid(device.index), "GPUs of this host");
  const std::set<std::string> different(gpus.begin(), gpus.end());
  if (different.size() < gpus.size() && world.node_rank() == 0)
    log::warning(gpus.size(), " ranks on ", world.host(), " share ", different.size(),
                 different.size() == 1 ? " GPU" : " GPUs");
}

int on_each_gpu(World& world, const RunConfig& config, const std::function<int(World&)>& body) {
  if (!config.threads_are_ranks()) return body(world);
  std::vector<int> gpus;
  world.together("choosing the GPUs", [&] {
    require_usage(world.size() == 1, "option dist.parallel = dp: one process drives all GPUs, but ", world.size(),
                  " were started; start one, or choose ddp");
    gpus = usable_gpus(world, config.dist.gpu_ids);
    const std::set<int> different(gpus.begin(), gpus.end());
    require_usage(different.size() == gpus.size(),
                  "option dist.gpu_ids: with dist.parallel = dp each GPU can be named only once");
  });
  return run_as_threads(world, static_cast<int>(gpus.size()), body);
}

}  // namespace lockstep
