#include "fault_report.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

namespace {
constexpr std::size_t kNamed = 4;  // ranks at fault that the message describes individually
constexpr std::size_t kTableRows = 64;

std::string call_of(const Whereabouts& at) {
  std::string text = join("#", at.sequence, " ", at.channel.view() == "world" ? "" : join(at.channel.view(), " "),
                          at.operation.view());
  if (!at.type.view().empty()) text += join(" of ", at.count, " ", at.type.view());
  return join(text, " '", at.what.view(), "'");
}

std::string place_of(const RankSeen& r) {
  std::string text = r.at.phase.view().empty() ? std::string("start") : std::string(r.at.phase.view());
  if (r.at.step >= 0) text += join(", step ", r.at.step);
  return text;
}

std::string name_of(const RankSeen& r) {
  const std::string pid = r.identity.pid > 0 ? join(", pid ", r.identity.pid) : std::string();
  return join("rank ", r.identity.rank, " (", r.identity.host.view(), pid, ")");
}

const char* state_of(const RankSeen& r) {
  if (!r.answered) return "no answer";
  if (r.process == Process::dead) return "DEAD";
  if (r.process == Process::stopped) return "STOPPED";
  constexpr const char* kByActivity[] = {"starting", "working", "waiting", "leaving"};
  const auto activity = static_cast<std::size_t>(r.at.activity);
  return activity < std::size(kByActivity) ? kByActivity[activity] : "?";
}

bool same_call(const Whereabouts& a, const Whereabouts& b) {
  return a.sequence == b.sequence && a.channel.view() == b.channel.view() && a.operation.view() == b.operation.view() &&
         a.type.view() == b.type.view() && a.count == b.count && a.what.view() == b.what.view();
}

/// The collective in which the job is stuck: of the collectives of all ranks in which ranks wait, the one with the
/// highest number, then with the most ranks. Without one, the call of the rank that raised the alarm.
const RankSeen* reference_of(const Alarm& alarm, const std::vector<RankSeen>& ranks) {
  const RankSeen* best = nullptr;
  std::ptrdiff_t best_votes = 0;
  for (const RankSeen& r : ranks) {
    if (!waits(r) || r.at.channel.view() != "world") continue;
    const auto votes =
        std::count_if(ranks.begin(), ranks.end(), [&](const RankSeen& o) { return waits(o) && same_call(o.at, r.at); });
    if (best == nullptr || r.at.sequence > best->at.sequence ||
        (r.at.sequence == best->at.sequence && votes > best_votes)) {
      best = &r;
      best_votes = votes;
    }
  }
  if (best != nullptr) return best;
  for (const RankSeen& r : ranks)
    if (r.identity.rank == alarm.rank && waits(r)) return &r;
  return nullptr;
}

/// The kind of fault, most severe first; 9 means no fault.
int blame(const RankSeen& r, const RankSeen* reference) {
  if (r.answered && r.process == Process::dead) return 0;
  if (r.answered && r.process == Process::stopped) return 1;
  if (!r.answered) return 2;
  if (reference == nullptr) return r.at.activity == Activity::in_collective ? 9 : 3;
  if (reference->at.channel.view() != "world")
    return r.identity.node != reference->identity.node || same_call(r.at, reference->at) ? 9 : 3;
  if (r.at.world_sequence < reference->at.sequence) return 3;
  return same_call(r.at, reference->at) ? 9 : 4;
}

std::string accusation(const RankSeen& r, int kind, const RankSeen* reference) {
  const std::string place = join("in ", place_of(r));
  switch (kind) {
    case 0:
      return join(name_of(r), " has died, last seen ", place);
    case 1:
      return join(name_of(r), " is stopped by a signal (SIGSTOP, a debugger?); it was ", place);
    case 2:
      return join(name_of(r), " gives no answer: its process, its host or the network hangs");
    case 3:
      if (r.at.activity == Activity::leaving) return join(name_of(r), " is late: it has left the program");
      if (r.at.activity == Activity::in_collective)
        return join(name_of(r), " is late: it waits in ", call_of(r.at), " ", place);
      return join(name_of(r), " is late: it has been ", place, ", for ", human_seconds(r.age_s),
                  " and has not reached ",
                  reference != nullptr ? call_of(reference->at) : std::string("the next collective"));
    default:
      return join(name_of(r), " calls ", call_of(r.at), " ", place, ", but the others call another collective");
  }
}

std::string table_of(const std::vector<RankSeen>& ranks, const std::vector<const RankSeen*>& at_fault) {
  std::vector<const RankSeen*> rows;
  for (const RankSeen& r : ranks) rows.push_back(&r);
  if (rows.size() > kTableRows) {  // keep the ranks at fault and the first of the others
    std::stable_partition(rows.begin(), rows.end(), [&](const RankSeen* r) {
      return std::find(at_fault.begin(), at_fault.end(), r) != at_fault.end();
    });
    rows.resize(kTableRows);
    std::sort(rows.begin(), rows.end(),
              [](const RankSeen* a, const RankSeen* b) { return a->identity.rank < b->identity.rank; });
  }
  std::size_t host_width = 4, place_width = 5;
  for (const RankSeen* r : rows) {
    host_width = std::max(host_width, r->identity.host.view().size());
    place_width = std::max(place_width, r->at.phase.view().size());
  }
  const auto pad = [](std::string text, std::size_t width) {
    if (text.size() < width) text.append(width - text.size(), ' ');
    return text;
  };
  std::string text = join("\n  rank  ", pad("host", host_width), "      pid  state      for       ",
                          pad("phase", place_width), "      step  collective (last begun)");
  for (const RankSeen* r : rows) {
    const std::string numbers = printed("  %8lld  %-9s  %-8s  ", static_cast<long long>(r->identity.pid), state_of(*r),
                                        r->answered ? human_seconds(r->age_s).c_str() : "-");
    const std::string step =
        r->at.step >= 0 ? printed("%9lld", static_cast<long long>(r->at.step)) : std::string("        -");
    text += join("\n", printed("%6d", r->identity.rank), "  ", pad(std::string(r->identity.host.view()), host_width),
                 numbers, pad(std::string(r->at.phase.view()), place_width), " ", step, "  ",
                 r->answered && r->at.sequence > 0 ? call_of(r->at) : std::string("-"));
  }
  if (rows.size() < ranks.size()) text += join("\n  (", ranks.size() - rows.size(), " more ranks, not at fault)");
  return text;
}
}  // namespace

RankSeen seen_on(const RankBoard& board, Process process) {
  const Whereabouts at = board.whereabouts.load();
  return {board.identity.load(), at, 1e-9 * static_cast<double>(monotonic_ns() - at.since_ns), process, true};
}

bool waits(const RankSeen& r) {
  return r.answered && r.process != Process::dead && r.process != Process::stopped &&
         r.at.activity == Activity::in_collective;
}

std::string report_text(const Alarm& alarm, const std::vector<RankSeen>& ranks) {
  const RankSeen* reference = reference_of(alarm, ranks);
  std::vector<std::pair<int, const RankSeen*>> at_fault;
  for (const RankSeen& r : ranks)
    if (const int kind = blame(r, reference); kind < 9) at_fault.emplace_back(kind, &r);
  std::stable_sort(at_fault.begin(), at_fault.end(), [](const auto& a, const auto& b) { return a.first < b.first; });

  const std::string time = human_seconds(alarm.timeout_s);
  std::string text = alarm.kind == Alarm::Kind::dead   ? join("the job cannot continue: rank ", alarm.rank, " has died")
                     : alarm.kind == Alarm::Kind::slow ? join("no step for ", time, ", and the job still waits")
                                                       : join("no progress for ", time, " (dist.timeout)");
  if (reference != nullptr && alarm.kind != Alarm::Kind::dead) {
    const auto waiting = std::count_if(ranks.begin(), ranks.end(),
                                       [&](const RankSeen& r) { return waits(r) && same_call(r.at, reference->at); });
    text += join(": ", waiting, " of ", ranks.size(), " ranks wait in collective ", call_of(reference->at), " of ",
                 place_of(*reference));
  }
  std::vector<const RankSeen*> culprits;
  for (std::size_t i = 0; i < at_fault.size(); ++i) {
    culprits.push_back(at_fault[i].second);
    if (i < kNamed) text += join(";\n  ", accusation(*at_fault[i].second, at_fault[i].first, reference));
  }
  if (at_fault.size() > kNamed) text += join(";\n  and ", at_fault.size() - kNamed, " more ranks, see the table");
  if (at_fault.empty()) {
    text +=
        ";\n  every rank is in it: the data do not arrive. Run lockstep comm-test on this allocation; the fabric or "
        "its settings (OMPI_MCA_btl, OMPI_MCA_pml, UCX_TLS) may be at fault";
  }
  return alarm.kind == Alarm::Kind::slow ? text : text + table_of(ranks, culprits);
}

}  // namespace lockstep
