#include <algorithm>
#include <map>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/report/timeline.hpp"
#include "report/svg_plot.hpp"

namespace lockstep {

namespace {

constexpr std::size_t kMostLanes = 32;
constexpr std::size_t kMostSpans = 6000;
// A thread has one row per nesting depth inside the step; spans deeper than the last row cover the spans in that row.
constexpr int kWidth = 1140, kLeft = 150, kRow = 9, kRows = 4, kGap = 6, kTop = 8, kBottom = 26;
constexpr double kNarrowest = 0.4;
// Colours of the page, by profile::Kind.
constexpr const char* kColours[] = {"s6", "s0", "s1", "s3"};
constexpr const char* kLegend[] = {"phase", "forward", "backward", "collective"};

/// The step of median length on rank 0: its number, its first begin and its last end over all ranks.
struct Step {
  std::uint32_t number = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
};

Step median_step(const Timeline& t) {
  std::map<std::uint32_t, Step> steps;
  std::vector<const Timeline::Span*> of_rank_0;
  for (const Timeline::Lane& lane : t.lanes)
    for (const Timeline::Span& s : lane.spans) {
      if (t.words[s.name] != "step") continue;
      const auto [at, is_first] = steps.try_emplace(s.number, Step{s.number, s.begin_ns, s.end_ns});
      at->second.begin_ns = std::min(at->second.begin_ns, s.begin_ns);
      at->second.end_ns = std::max(at->second.end_ns, s.end_ns);
      if (lane.rank == 0) of_rank_0.push_back(&s);
    }
  if (of_rank_0.empty()) return {};
  const auto middle = of_rank_0.begin() + static_cast<std::ptrdiff_t>(of_rank_0.size() / 2);
  std::ranges::nth_element(of_rank_0, middle, {}, [](const auto* s) { return s->end_ns - s->begin_ns; });
  return steps.at((*middle)->number);
}

}  // namespace

ReportPicture timeline_picture(const Timeline& t) {
  const Step step = median_step(t);
  if (step.number == 0) return {};
  std::vector<const Timeline::Lane*> lanes;
  const auto in_step = [&](const Timeline::Span& s) { return s.end_ns > step.begin_ns && s.begin_ns < step.end_ns; };
  for (const Timeline::Lane& lane : t.lanes)
    if (std::ranges::any_of(lane.spans, in_step)) lanes.push_back(&lane);
  const std::size_t shown = std::min(lanes.size(), kMostLanes);
  const int each = kRows * kRow + kGap, height = kTop + static_cast<int>(shown) * each + kBottom;
  const double scale = (kWidth - kLeft) / static_cast<double>(step.end_ns - step.begin_ns);
  std::string svg =
      join("<svg viewBox=\"0 0 ", kWidth, " ", height, "\" role=\"img\" aria-label=\"step ", step.number, "\">");
  std::size_t drawn = 0;
  for (std::size_t l = 0; l < shown; ++l) {
    const int top = kTop + static_cast<int>(l) * each;
    svg += join("<text class=\"tick\" x=\"0\" y=\"", top + each / 2, "\">rank ", lanes[l]->rank, ", ",
                escape_html(lanes[l]->name), "</text>");
    for (const Timeline::Span& s : lanes[l]->spans) {
      if (!in_step(s) || drawn == kMostSpans) continue;
      const double begin = kLeft + scale * static_cast<double>(std::max(s.begin_ns, step.begin_ns) - step.begin_ns),
                   end = kLeft + scale * static_cast<double>(std::min(s.end_ns, step.end_ns) - step.begin_ns);
      if (end - begin < kNarrowest) continue;
      ++drawn;
      svg += join("<rect class=\"", kColours[static_cast<std::size_t>(s.kind)], "\" fill=\"var(--c)\" x=\"",
                  printed("%.1f", begin), "\" y=\"", top + kRow * std::clamp(s.depth - 1, 0, kRows - 1), "\" width=\"",
                  printed("%.1f", end - begin), "\" height=\"", kRow - 1, "\"><title>", escape_html(t.label(s)), ", ",
                  human_seconds(1e-9 * static_cast<double>(s.end_ns - s.begin_ns)), "</title></rect>");
    }
  }
  svg += join("<text class=\"label\" x=\"", kLeft, "\" y=\"", height - 8, "\">0</text><text class=\"label\" x=\"",
              kWidth, "\" y=\"", height - 8, "\" text-anchor=\"end\">",
              human_seconds(1e-9 * static_cast<double>(step.end_ns - step.begin_ns)), "</text></svg>");
  std::string caption = "<span class=\"legend\">";
  for (std::size_t kind = 0; kind < Timeline::kKinds; ++kind)
    caption += join("<span class=\"key ", kColours[kind], "\">", kLegend[kind], "</span>");
  if (shown < lanes.size()) caption += join("<span>", shown, " of ", lanes.size(), " threads</span>");
  return {join("Timeline of step ", step.number),
          "<figure><figcaption>" + caption + "</span></figcaption>" + svg + "</figure>"};
}

}  // namespace lockstep
