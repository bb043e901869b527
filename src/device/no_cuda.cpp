#include "lockstep/base/error.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/device/event.hpp"
#include "lockstep/device/gpu_tools.hpp"
#include "lockstep/device/graph.hpp"
#include "lockstep/device/ledger.hpp"

/// What a build without CUDA answers. It has no GPU, so it can make no event and no graph, and their members never run.
namespace lockstep {

namespace {
[[noreturn]] void refuse(const std::string& doing, const char* why) {
  throw Error(Fault::internal, join(doing, ": ", why));
}
constexpr const char* kNoCuda = "this build has no CUDA";
}  // namespace

int gpu_count() { return 0; }
std::string why_no_gpu() { return "this program was built without CUDA; use 'make cuda'"; }
void require_usable(Device) {}
std::string describe_gpu(int index) { refuse(join("describing cuda:", index), kNoCuda); }
std::string gpu_address(int index) { refuse(join("reading the PCI address of cuda:", index), kNoCuda); }
std::string gpu_uuid(int index) { refuse(join("reading the UUID of cuda:", index), kNoCuda); }
Device current_gpu() { throw Error(Fault::usage, "using a GPU: " + why_no_gpu()); }
CurrentGpu::CurrentGpu(Device) : before_(current_gpu().index) {}
CurrentGpu::~CurrentGpu() {}

Event::Event(Device device, Kind) { refuse("creating an event of " + name(device), "only GPUs have events"); }
void Event::Destroy::operator()(void*) const {}
void Event::record(const Stream&) const {}
bool Event::passed() const { return true; }
void Event::wait() const {}
double Event::seconds_since(const Event&) const { return 0; }

void Graph::Destroy::operator()(void*) const {}
bool Graph::capture(const Stream& stream, const std::function<void()>&) {
  refuse("capturing work on " + name(stream.device()), "only GPUs support graphs");
}
bool Graph::ready() const { return false; }
void Graph::launch(const Stream&) const { refuse("launching a graph", "nothing was captured"); }

std::string why_no_ledger() {
  return "this program was built without CUDA; the stand-in for tests counts (make cuda-host)";
}
void start_ledger() { refuse("keeping a ledger of GPU work", why_no_ledger().c_str()); }
Ledger finish_ledger() { return {}; }

void show_spans_to_gpu_tools() {}

}  // namespace lockstep
