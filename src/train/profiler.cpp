#include "lockstep/train/profiler.hpp"

#include <omp.h>

#include <algorithm>
#include <map>
#include <span>
#include <string_view>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/number.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/device/gpu_tools.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/ops/fma_peak.hpp"

namespace lockstep {

namespace {

/// Spans of all ranks: rank 0 holds them all, and a line of the file takes about 150 bytes.
constexpr std::size_t kMostSpans = std::size_t{1} << 21, kMostPerThread = std::size_t{1} << 17, kLeastPerThread = 64;

/// A lane as sent to rank 0. `name`, and the names of its spans, are indices into the words of its rank.
struct SentLane {
  std::int64_t number, spans;
  std::uint64_t lost;
  std::uint32_t name;
};

/// Assigns an index to each distinct word.
class Words {
 public:
  std::uint32_t operator()(std::string_view word) {
    const auto [at, is_new] = numbers_.try_emplace(std::string(word), static_cast<std::uint32_t>(all.size()));
    if (is_new) all.emplace_back(word);
    return at->second;
  }
  std::vector<std::string> all = {""};

 private:
  std::map<std::string, std::uint32_t> numbers_ = {{"", 0}};
};

/// The elements of all ranks in rank order, on rank 0. Collective.
template <class T>
std::vector<T> collect(Communicator& comm, const std::vector<T>& mine) {
  std::vector<std::span<const std::byte>> to(comm.size());
  to[0] = std::as_bytes(std::span(mine));
  return values_of<T>(comm.all_to_all(to, "profile").bytes);
}

}  // namespace

StepRange read_step_range(const std::string& option, const std::string& text) {
  if (text.empty()) return {};
  const auto number = [&](std::string_view digits) {
    const std::int64_t value = number_in<std::int64_t>(digits).value_or(0);
    require_usage(value >= 1, "option ", option, " = ", text,
                  ": must be a range of steps such as 100..110, counted from 1");
    return value;
  };
  const std::size_t dots = text.find("..");
  const std::string_view all = text;
  const StepRange range = {number(all.substr(0, dots)), dots == std::string::npos ? 0 : number(all.substr(dots + 2))};
  require_usage(dots != std::string::npos, "option ", option, " = ", text,
                ": must be a range of steps such as 100..110, counted from 1");
  require_usage(!range.empty(), "option ", option, " = ", text, ": the first step is after the last; use ", range.last,
                "..", range.first);
  return range;
}

std::vector<ClockOffset> compare_clocks(Communicator& comm, const std::vector<int>& ranks,
                                        const std::function<std::int64_t()>& now_ns) {
  constexpr int kTrips = 20;
  /// Sends a time from one rank to another. Returns it on the receiver.
  const auto send = [&](int from, int to, std::int64_t value) {
    std::int64_t received = 0;
    comm.pass(from, to, std::as_bytes(std::span(&value, 1)), std::as_writable_bytes(std::span(&received, 1)), "clocks");
    return received;
  };
  std::vector<ClockOffset> offsets;
  for (const int rank : ranks) {
    ClockOffset best = {0, -1};
    for (int trip = 0; trip < kTrips; ++trip) {
      const std::int64_t begin = now_ns();
      send(0, rank, begin);
      const std::int64_t there = send(rank, 0, now_ns()), end = now_ns(), error = (end - begin + 1) / 2;
      if (best.error_ns < 0 || error < best.error_ns) best = {begin + (end - begin) / 2 - there, error};
    }
    if (comm.rank() == 0) offsets.push_back(best);
  }
  return offsets;
}

Profiler::Profiler(World& world, int threads, Device device, DType dtype)
    : world_(world), threads_(threads), device_(device), dtype_(dtype) {
  const std::size_t all = static_cast<std::size_t>(world.size()) * static_cast<std::size_t>(threads);
  const std::size_t capacity = std::clamp(kMostSpans / all, kLeastPerThread, kMostPerThread);
#pragma omp parallel num_threads(threads)
  profile::enter(world.rank(), omp_get_thread_num(), capacity);
  profile::take(world.rank());  // discards spans of an earlier recording
  if (device.is_cuda()) show_spans_to_gpu_tools();

  // The ranks of a host share its clock.
  Communicator& comm = world.communicator();
  const std::vector<std::string> hosts = comm.all_gather_text(world.host(), "host names"),
                                 nodes = comm.all_gather_text(join(world.node()), "numbers of the hosts");
  std::vector<int> first_ranks;
  std::map<std::string, std::size_t> place;  // by node: index into first_ranks
  for (std::size_t r = 0; r < nodes.size(); ++r)
    if (nodes[r] != nodes[0] && place.try_emplace(nodes[r], first_ranks.size()).second)
      first_ranks.push_back(static_cast<int>(r));
  const std::vector<ClockOffset> measured = compare_clocks(comm, first_ranks, profile::now_ns);
  if (world.rank() == 0)
    for (std::size_t r = 0; r < nodes.size(); ++r) {
      const ClockOffset offset = nodes[r] == nodes[0] ? ClockOffset{} : measured[place.at(nodes[r])];
      offsets_.push_back(offset);
      ranks_.push_back({hosts[r], 1e-9 * static_cast<double>(offset.error_ns)});
    }
  comm.barrier("begin of the profile");
  profile::start();
}

Timeline Profiler::finish(StepRange steps) {
  Communicator& comm = world_.communicator();
  profile::stop();
  Words word;
  std::vector<SentLane> lanes;
  std::vector<Timeline::Span> spans;
  for (const profile::Lane& lane : profile::take(world_.rank())) {
    lanes.push_back({lane.number, std::ssize(lane.events), lane.lost, word(lane.name)});
    for (const profile::Event& e : lane.events)
      spans.push_back({.name = word(e.name),
                       .detail = word(e.text()),
                       .kind = e.kind,
                       .number = e.number,
                       .flops = e.flops,
                       .begin_ns = e.begin_ns,
                       .end_ns = e.end_ns});
  }
  std::string text;
  for (const std::string& each : word.all) text += each + '\0';
  const std::vector<std::string> words = comm.all_gather_text(text, "profile");
  const std::vector<std::int64_t> counts = collect<std::int64_t>(comm, {std::ssize(lanes)});
  lanes = collect(comm, lanes);
  spans = collect(comm, spans);
  Timeline timeline;
  if (world_.rank() != 0) return timeline;
  timeline.first = steps.first;
  timeline.last = steps.last;
  timeline.ranks = ranks_;
  if (!device_.is_cuda()) timeline.flops_per_thread = ops::measure_fma_peak(dtype_, threads_) / threads_;
  Words all;
  auto lane = lanes.begin();
  auto span = spans.begin();
  for (std::size_t r = 0; r < words.size(); ++r) {
    std::vector<std::uint32_t> names;  // index into `all` of each word of this rank
    for (const std::string& each : split(words[r], '\0')) names.push_back(all(each));
    for (const auto end = lane + counts[r]; lane != end; ++lane) {
      timeline.lanes.push_back({.rank = static_cast<int>(r),
                                .number = static_cast<int>(lane->number),
                                .name = all.all[names[lane->name]],
                                .spans = {span, span + lane->spans}});
      timeline.lost += lane->lost;
      span += lane->spans;
      for (Timeline::Span& s : timeline.lanes.back().spans) {
        s.name = names[s.name];
        s.detail = names[s.detail];
        s.begin_ns += offsets_[r].offset_ns;
        s.end_ns += offsets_[r].offset_ns;
      }
    }
  }
  timeline.words = std::move(all.all);
  std::ranges::sort(timeline.lanes, {}, [](const Timeline::Lane& l) { return std::pair(l.rank, l.number); });
  timeline.arrange();
  return timeline;
}

void report_timeline(const Timeline& t, const std::filesystem::path& file) {
  write_text_atomically(file, chrome_trace(t));
  for (const ReportTable& table : {slowest_operations(t), rank_times(t)}) log::info(table.title, table_text(table));
  if (const std::string slowest = slowest_rank(t); !slowest.empty()) log::info(slowest);
  double error = 0;
  for (const Timeline::Rank& rank : t.ranks) error = std::max(error, rank.clock_error_s);
  log::info("timeline of steps ", t.first, " to ", t.last, ": ", file.string(),
            "; open it in https://ui.perfetto.dev; the ranks ",
            error > 0 ? "agree on the time to " + human_seconds(error) : std::string("share one clock"));
  if (t.lost > 0)
    log::warning("the timeline lacks ", t.lost, " spans: the memory of a thread was full; profile fewer steps");
}

}  // namespace lockstep
