#include "lockstep/train/profiler.hpp"

#include <omp.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <span>
#include <string_view>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/profile.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/device/gpu_tools.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/ops/fma_peak.hpp"

namespace lockstep {

namespace {

/// Spans of all ranks: rank 0 holds them all, and a line of the file takes about 150 bytes.
constexpr std::size_t kMostSpans = std::size_t{1} << 21, kMostPerThread = std::size_t{1} << 17, kLeastPerThread = 64;

/// A span on its way to rank 0. Words are indices into the text that travels with it.
struct SentSpan {
  std::int64_t begin_ns, end_ns;
  std::uint32_t name, detail, number, kind;
  float flops;
};
struct SentLane {
  std::int64_t number, spans, lost;
  std::uint32_t name;
};

/// The lanes of this rank as bytes: number of lanes and of bytes of text; the lanes, each followed by its spans; the text,
/// words that end with a zero each.
class Packer {
 public:
  std::vector<std::byte> packed(const std::vector<profile::Lane>& lanes) {
    std::vector<std::byte> body;
    for (const profile::Lane& lane : lanes) {
      put(body, SentLane{lane.number, static_cast<std::int64_t>(lane.events.size()),
                         static_cast<std::int64_t>(lane.lost), word(lane.name)});
      for (const profile::Event& e : lane.events)
        put(body, SentSpan{e.begin_ns, e.end_ns, word(e.name), word(e.text()), e.number,
                           static_cast<std::uint32_t>(e.kind), e.flops});
    }
    std::vector<std::byte> all;
    put(all, static_cast<std::int64_t>(lanes.size()));
    put(all, static_cast<std::int64_t>(text_.size()));
    all.insert(all.end(), body.begin(), body.end());
    const auto text = std::as_bytes(std::span<const char>(text_));
    all.insert(all.end(), text.begin(), text.end());
    return all;
  }

 private:
  template <class T>
  static void put(std::vector<std::byte>& to, const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    to.insert(to.end(), bytes.begin(), bytes.end());
  }
  std::uint32_t word(std::string_view text) {
    const auto [at, is_new] = words_.try_emplace(std::string(text), static_cast<std::uint32_t>(words_.size()));
    if (is_new) text_ += at->first + '\0';
    return at->second;
  }
  std::map<std::string, std::uint32_t, std::less<>> words_;
  std::string text_;
};

/// Adds the lanes of a rank to a timeline.
class Unpacker {
 public:
  Unpacker(Timeline& to, std::map<std::string, std::uint32_t>& words) : to_(to), words_(words) {}
  void unpack(int rank, std::span<const std::byte> bytes, std::int64_t offset_ns) {
    bytes_ = bytes;
    const auto lanes = take<std::int64_t>();
    const auto size = static_cast<std::size_t>(take<std::int64_t>());
    const std::vector<std::uint32_t> names = read_words(bytes.last(size));
    for (std::int64_t l = 0; l < lanes; ++l) {
      const auto head = take<SentLane>();
      Timeline::Lane& lane = to_.lanes.emplace_back();
      lane = {.rank = rank, .number = static_cast<int>(head.number), .name = to_.words[names[head.name]], .spans = {}};
      to_.lost += static_cast<std::uint64_t>(head.lost);
      for (std::int64_t i = 0; i < head.spans; ++i) {
        const auto s = take<SentSpan>();
        lane.spans.push_back({.name = names[s.name],
                              .detail = names[s.detail],
                              .kind = static_cast<profile::Kind>(s.kind),
                              .number = s.number,
                              .flops = s.flops,
                              .begin_ns = s.begin_ns + offset_ns,
                              .end_ns = s.end_ns + offset_ns});
      }
    }
  }

 private:
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  std::vector<std::uint32_t> read_words(std::span<const std::byte> text) {
    std::vector<std::uint32_t> places;
    for (const char *at = reinterpret_cast<const char*>(text.data()), *end = at + text.size(); at < end;) {
      const std::string word(at);
      at += word.size() + 1;
      const auto [place, is_new] = words_.try_emplace(word, static_cast<std::uint32_t>(to_.words.size()));
      if (is_new) to_.words.push_back(word);
      places.push_back(place->second);
    }
    return places;
  }
  Timeline& to_;
  std::map<std::string, std::uint32_t>& words_;
  std::span<const std::byte> bytes_;
};

}  // namespace

StepRange read_step_range(const std::string& option, const std::string& text) {
  if (text.empty()) return {};
  const auto number = [&](std::string_view digits) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    require_usage(error == std::errc() && end == digits.data() + digits.size() && value >= 1, "option ", option, " = ",
                  text, ": must be a range of steps such as 100..110, counted from 1");
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
  const auto count = static_cast<std::size_t>(comm.size());
  /// Sends a time from one rank to another. Returns it on the receiver.
  const auto send = [&](int from, int to, std::int64_t value) {
    std::vector<std::span<const std::byte>> sent(count);
    std::vector<std::int64_t> sizes(count, 0);
    std::int64_t received = 0;
    if (comm.rank() == from) sent[static_cast<std::size_t>(to)] = std::as_bytes(std::span(&value, 1));
    const bool receives = comm.rank() == to;
    if (receives) sizes[static_cast<std::size_t>(from)] = sizeof received;
    comm.all_to_all_known(sent, sizes, std::as_writable_bytes(std::span(&received, receives ? 1 : 0)), "clocks");
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
  const std::size_t room = std::clamp(kMostSpans / all, kLeastPerThread, kMostPerThread);
#pragma omp parallel num_threads(threads)
  profile::enter(world.rank(), omp_get_thread_num(), room);
  profile::take(world.rank());  // what an earlier recording left
  if (device.is_cuda()) show_spans_to_gpu_tools();

  // The ranks of a host share its clock.
  Communicator& comm = world.communicator();
  const std::vector<std::string> hosts = comm.all_gather_text(world.host(), "host names"),
                                 nodes = comm.all_gather_text(join(world.node()), "numbers of the hosts");
  std::vector<int> firsts;
  std::map<std::string, std::size_t> place;  // by node, in firsts
  for (std::size_t r = 0; r < nodes.size(); ++r)
    if (nodes[r] != nodes[0] && place.try_emplace(nodes[r], firsts.size()).second)
      firsts.push_back(static_cast<int>(r));
  const std::vector<ClockOffset> measured = compare_clocks(comm, firsts, profile::now_ns);
  if (world.rank() == 0) {
    for (std::size_t r = 0; r < nodes.size(); ++r) {
      const ClockOffset offset = nodes[r] == nodes[0] ? ClockOffset{} : measured[place.at(nodes[r])];
      offsets_.push_back(offset);
      ranks_.push_back({hosts[r], 1e-9 * static_cast<double>(offset.error_ns)});
    }
  }
  comm.barrier("begin of the profile");
  profile::start();
}

Timeline Profiler::finish(StepRange steps) {
  Communicator& comm = world_.communicator();
  profile::stop();
  const std::vector<std::byte> mine = Packer().packed(profile::take(world_.rank()));
  std::vector<std::span<const std::byte>> to(static_cast<std::size_t>(comm.size()));
  to[0] = mine;
  const std::vector<std::vector<std::byte>> all = comm.all_to_all(to, "profile");
  Timeline timeline;
  if (world_.rank() != 0) return timeline;
  timeline.first = steps.first;
  timeline.last = steps.last;
  timeline.ranks = ranks_;
  if (!device_.is_cuda()) timeline.flops_per_thread = ops::measure_fma_peak(dtype_, threads_) / threads_;
  std::map<std::string, std::uint32_t> words = {{"", 0}};
  for (std::size_t r = 0; r < all.size(); ++r)
    Unpacker(timeline, words).unpack(static_cast<int>(r), all[r], offsets_[r].offset_ns);
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
