#include "lockstep/report/timeline.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "lockstep/base/build_info.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/json.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

namespace {

using profile::Kind;

constexpr const char* kKindNames[] = {"phase", "forward", "backward", "collective"};
const char* name_of(Kind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

std::string microseconds(std::int64_t ns) { return printed("%.3f", static_cast<double>(ns) / 1e3); }
std::string percent(double part) { return printed("%.1f %%", 100 * part); }
double seconds(std::int64_t ns) { return 1e-9 * static_cast<double>(ns); }

/// The last rank to begin a collective, and when.
struct Arrival {
  std::int64_t begin_ns = 0;
  int rank = 0;
};

/// By sequence number, the collectives that all ranks have recorded.
std::map<std::uint32_t, Arrival> last_arrivals(const Timeline& t) {
  std::map<std::uint32_t, std::map<int, std::int64_t>> begins;
  for (const Timeline::Lane& lane : t.lanes)
    for (const Timeline::Span& s : lane.spans) {
      if (s.kind != Kind::collective || s.number == 0) continue;
      const auto [at, is_first] = begins[s.number].try_emplace(lane.rank, s.begin_ns);
      if (!is_first) at->second = std::min(at->second, s.begin_ns);
    }
  std::map<std::uint32_t, Arrival> last;
  for (const auto& [number, of_ranks] : begins) {
    if (of_ranks.size() < t.ranks.size()) continue;
    const auto latest = std::ranges::max_element(of_ranks, {}, [](const auto& r) { return r.second; });
    last[number] = {latest->second, latest->first};
  }
  return last;
}

/// Seconds of one rank.
struct RankTime {
  double training = 0, collectives = 0, waiting = 0;
  double delayed_others = 0;
  std::map<std::string, double> waits;  ///< by what it waited for
};

std::vector<RankTime> times_of(const Timeline& t) {
  std::vector<RankTime> times(t.ranks.size());
  const std::map<std::uint32_t, Arrival> last = last_arrivals(t);
  for (const Timeline::Lane& lane : t.lanes) {
    RankTime& time = times[lane.rank];
    for (const Timeline::Span& s : lane.spans) {
      if (lane.number == 0 && s.depth == 0) time.training += seconds(s.end_ns - s.begin_ns);
      if (s.kind != Kind::collective) continue;
      time.collectives += seconds(s.self_ns);
      if (s.waited_ns == 0) continue;
      time.waiting += seconds(s.waited_ns);
      time.waits[t.label(s)] += seconds(s.waited_ns);
      times[last.at(s.number).rank].delayed_others += seconds(s.waited_ns);
    }
  }
  return times;
}

}  // namespace

void Timeline::arrange() {
  for (Lane& lane : lanes) {
    std::ranges::sort(lane.spans, {}, [](const Span& s) { return std::tuple(s.begin_ns, -s.end_ns); });
    std::vector<Span*> open;
    for (Span& s : lane.spans) {
      while (!open.empty() && open.back()->end_ns <= s.begin_ns) open.pop_back();
      s.depth = static_cast<int>(open.size());
      s.self_ns = s.end_ns - s.begin_ns;
      if (!open.empty()) open.back()->self_ns -= s.self_ns;
      open.push_back(&s);
    }
  }
  const std::map<std::uint32_t, Arrival> last = last_arrivals(*this);
  for (Lane& lane : lanes)
    for (Span& s : lane.spans) {
      const auto found = s.kind == Kind::collective && s.number > 0 ? last.find(s.number) : last.end();
      if (found == last.end() || found->second.rank == lane.rank) continue;
      s.waited_ns = std::max<std::int64_t>(0, std::min(s.end_ns, found->second.begin_ns) - s.begin_ns);
    }
}

std::string chrome_trace(const Timeline& t) {
  std::int64_t origin = 0;
  bool any = false;
  for (const Timeline::Lane& lane : t.lanes)
    if (!lane.spans.empty() && (!std::exchange(any, true) || lane.spans.front().begin_ns < origin))
      origin = lane.spans.front().begin_ns;
  const std::map<std::uint32_t, Arrival> last = last_arrivals(t);
  std::string out =
      join("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":", json_quoted(version_line()),
           ",\"first_step\":", t.first, ",\"last_step\":", t.last, ",\"lost_spans\":", t.lost, "},\n\"traceEvents\":[");
  const char* comma = "\n";
  const auto event = [&](const std::string& text) {
    out += comma;
    out += text;
    comma = ",\n";
  };
  for (std::size_t r = 0; r < t.ranks.size(); ++r)
    event(join("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", r,
               ",\"args\":{\"name\":", json_quoted(join("rank ", r, ", ", t.ranks[r].host)),
               ",\"clock_error_us\":", printed("%.3f", 1e6 * t.ranks[r].clock_error_s), "}}"));
  for (const Timeline::Lane& lane : t.lanes) {
    const std::string place = join("\"pid\":", lane.rank, ",\"tid\":", lane.number);
    event(join("{\"ph\":\"M\",\"name\":\"thread_name\",", place, ",\"args\":{\"name\":", json_quoted(lane.name), "}}"));
    for (const Timeline::Span& s : lane.spans) {
      std::string arguments;
      const auto argument = [&](const char* name, const std::string& value) {
        arguments += join(arguments.empty() ? "\"" : ",\"", name, "\":", value);
      };
      if (s.kind == Kind::collective) {
        if (const auto found = last.find(s.number); s.number > 0 && found != last.end()) {
          argument("waited_us", microseconds(s.waited_ns));
          argument("last_rank", join(found->second.rank));
        }
      } else if (s.detail != 0) {
        argument("detail", json_quoted(t.words[s.detail]));
      }
      if (s.number > 0) argument("number", join(s.number));
      if (s.flops > 0) argument("flops_per_thread", printed("%.6g", static_cast<double>(s.flops)));
      const std::string& name = s.kind == Kind::collective ? t.label(s) : t.words[s.name];
      event(join("{\"ph\":\"X\",\"name\":", json_quoted(name), ",\"cat\":\"", name_of(s.kind), "\",", place,
                 ",\"ts\":", microseconds(s.begin_ns - origin), ",\"dur\":", microseconds(s.end_ns - s.begin_ns),
                 ",\"args\":{", arguments, "}}"));
    }
  }
  return out + "\n]}\n";
}

ReportTable slowest_operations(const Timeline& t, std::size_t most) {
  struct Sum {
    std::int64_t calls = 0, self_ns = 0;
    double flops = 0;
  };
  std::map<std::pair<std::string, Kind>, Sum> sums;
  double all = 0;  // seconds of the training threads
  for (const Timeline::Lane& lane : t.lanes)
    for (const Timeline::Span& s : lane.spans) {
      Sum& sum = sums[{s.kind == Kind::collective ? t.label(s) : t.words[s.name], s.kind}];
      ++sum.calls;
      sum.self_ns += s.self_ns;
      sum.flops += static_cast<double>(s.flops);
      all += seconds(s.self_ns);
    }
  std::vector<std::pair<std::pair<std::string, Kind>, Sum>> rows(sums.begin(), sums.end());
  std::ranges::stable_sort(rows, std::greater(), [](const auto& row) { return row.second.self_ns; });
  rows.resize(std::min(rows.size(), most));
  ReportTable table{.title = join("Operations of steps ", t.first, " to ", t.last, ", all ranks and threads"),
                    .columns = {"operation", "kind", "calls", "time", "share", "GFLOP/s per thread", "of FMA peak"},
                    .rows = {}};
  for (const auto& [what, sum] : rows) {
    const double rate = sum.self_ns > 0 ? sum.flops / seconds(sum.self_ns) : 0;
    table.rows.push_back({what.first, name_of(what.second), join(sum.calls), human_seconds(seconds(sum.self_ns)),
                          percent(all > 0 ? seconds(sum.self_ns) / all : 0),
                          rate > 0 ? printed("%.1f", rate / 1e9) : "",
                          rate > 0 && t.flops_per_thread > 0 ? percent(rate / t.flops_per_thread) : ""});
  }
  return table;
}

ReportTable rank_times(const Timeline& t) {
  ReportTable table{
      .title = join("Ranks in steps ", t.first, " to ", t.last),
      .columns = {"rank", "recorded", "in collectives", "of it waiting for others", "others waited for it"},
      .rows = {}};
  const std::vector<RankTime> times = times_of(t);
  for (std::size_t r = 0; r < times.size(); ++r)
    table.rows.push_back({join(r), human_seconds(times[r].training), human_seconds(times[r].collectives),
                          human_seconds(times[r].waiting), human_seconds(times[r].delayed_others)});
  return table;
}

std::string table_text(const ReportTable& table) {
  std::vector<std::vector<std::string>> rows = {table.columns};
  rows.insert(rows.end(), table.rows.begin(), table.rows.end());
  const std::string lines = "\n" + aligned(rows, Align::right);
  return lines.substr(0, lines.size() - 1);
}

std::string slowest_rank(const Timeline& t) {
  if (t.ranks.size() < 2) return {};
  const std::vector<RankTime> times = times_of(t);
  const auto slowest = std::ranges::max_element(times, {}, &RankTime::delayed_others);
  std::string text = join("the slowest is rank ", slowest - times.begin(), ": the others waited ",
                          human_seconds(slowest->delayed_others), " for it in all");
  const auto wait = std::ranges::max_element(slowest->waits, {}, [](const auto& w) { return w.second; });
  if (wait == slowest->waits.end()) return text + "; it waited for no rank";
  return text + join("; it waited ", human_seconds(slowest->waiting), ", most for '", wait->first, "' (",
                     human_seconds(wait->second), ")");
}

}  // namespace lockstep
