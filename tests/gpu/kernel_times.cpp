// The time of every kernel, copy and clearing of memory of a program, as the GPU runs them:
//   CUDA_INJECTION64_PATH=libkernel_times.so LOCKSTEP_KERNEL_TIMES=FILE PROGRAM...
// CUDA loads the library when it starts. When the program ends, FILE has a summary of the later half of all work, the
// longest first, then the last 500 pieces of work in order.
#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Work {
  std::string name;
  std::uint64_t start = 0, end = 0;  // ns
  unsigned blocks = 0, threads = 0, registers = 0;
  double us() const { return static_cast<double>(end - start) / 1e3; }
};
struct Recorded {
  std::mutex mutex;
  std::vector<Work> work;
};
/// Never destroyed, because CUPTI's thread may outlive static objects.
Recorded& recorded() {
  static auto* const all = new Recorded;
  return *all;
}

void give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  constexpr std::size_t kBytes = std::size_t{8} << 20, kAlignment = 8;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBytes));
  *size = *buffer == nullptr ? 0 : kBytes;
  *most_records = 0;  // as many as fit
}

void take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  const std::lock_guard lock(recorded().mutex);
  std::vector<Work>& work = recorded().work;
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto& k = *reinterpret_cast<const CUpti_ActivityKernel9*>(record);
      work.push_back({k.name, k.start, k.end, static_cast<unsigned>(k.gridX * k.gridY * k.gridZ),
                      static_cast<unsigned>(k.blockX * k.blockY * k.blockZ), k.registersPerThread});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
      work.push_back({"copy", copy.start, copy.end});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto& set = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      work.push_back({"clear", set.start, set.end});
    }
  }
  std::free(buffer);
}

std::string readable(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                     std::free);
  return std::string(plain ? plain.get() : name.c_str()).substr(0, 120);
}

void write_times() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::lock_guard lock(recorded().mutex);
  std::vector<Work>& work = recorded().work;
  const char* path = std::getenv("LOCKSTEP_KERNEL_TIMES");
  std::FILE* const file = path != nullptr && *path != '\0' ? std::fopen(path, "w") : stderr;
  if (file == nullptr || work.empty()) return;
  std::sort(work.begin(), work.end(), [](const Work& a, const Work& b) { return a.start < b.start; });
  struct Sum {
    double total = 0;
    std::vector<double> us;
    const Work* one = nullptr;
  };
  std::map<std::string, Sum> sums;
  const std::size_t half = work.size() / 2;
  for (std::size_t i = half; i < work.size(); ++i) {
    Sum& sum = sums[work[i].name + " " + std::to_string(work[i].blocks) + " " + std::to_string(work[i].threads)];
    sum.total += work[i].us();
    sum.us.push_back(work[i].us());
    sum.one = &work[i];
  }
  std::vector<Sum> order;
  for (auto& [name, sum] : sums) order.push_back(std::move(sum));
  std::sort(order.begin(), order.end(), [](const Sum& a, const Sum& b) { return a.total > b.total; });
  std::fprintf(file, "the later %zu of %zu pieces of work, in %.1f us\n%10s %7s %10s %10s\n", work.size() - half,
               work.size(), static_cast<double>(work.back().end - work[half].start) / 1e3, "total us", "times",
               "median us", "least us");
  for (Sum& sum : order) {
    std::sort(sum.us.begin(), sum.us.end());
    std::fprintf(file, "%10.1f %7zu %10.2f %10.2f  %s, %u x %u threads, %u registers\n", sum.total, sum.us.size(),
                 sum.us[sum.us.size() / 2], sum.us.front(), readable(sum.one->name).c_str(), sum.one->blocks,
                 sum.one->threads, sum.one->registers);
  }
  constexpr std::size_t kLast = 500;
  std::fprintf(file, "\nthe last ones in order: us, us since the one before\n");
  for (std::size_t i = work.size() > kLast ? work.size() - kLast : 1; i < work.size(); ++i)
    std::fprintf(file, "%10.2f %8.2f  %s, %u x %u\n", work[i].us(),
                 (static_cast<double>(work[i].start) - static_cast<double>(work[i - 1].end)) / 1e3,
                 readable(work[i].name).c_str(), work[i].blocks, work[i].threads);
  std::fflush(file);
}

}  // namespace

/// CUDA calls it when it has loaded the library.
extern "C" int InitializeInjection() {
  cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET})
    cuptiActivityEnable(kind);
  std::atexit(write_times);
  return 1;
}
