#include "lockstep/report/parallel_axes.hpp"

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "report/svg_plot.hpp"

namespace lockstep {

std::string parallel_axes_svg(const std::vector<ParallelAxis>& axes, const std::vector<std::string>& notes,
                              std::size_t best) {
  constexpr double kBetween = 150, kSide = 70, kTop = 34, kHeight = 260;
  const auto x = [&](std::size_t axis) { return kSide + kBetween * static_cast<double>(axis); };
  const auto y = [&](double place) { return printed("%.1f", kTop + (1 - place) * kHeight); };
  std::string svg = join("<figure><svg viewBox=\"0 0 ", 2 * kSide + kBetween * static_cast<double>(axes.size() - 1),
                         " ", kTop + kHeight + 16, "\" role=\"img\" aria-label=\"parallel coordinates\">");
  for (std::size_t l = notes.size(); l-- > 0;) {  // the best ones above the others
    svg += join("<path class=\"line ", l < best ? "s1" : "s0", "\" opacity=\"", l < best ? ".95" : ".25", "\" d=\"");
    for (std::size_t a = 0; a < axes.size(); ++a) svg += join(a == 0 ? "M" : "L", x(a), " ", y(axes[a].places[l]));
    svg += join("\"><title>", escape_html(notes[l]), "</title></path>");
  }
  for (std::size_t a = 0; a < axes.size(); ++a) {
    svg += join("<path class=\"grid\" d=\"M", x(a), " ", kTop, "V", kTop + kHeight, "\"/><text class=\"label\" x=\"",
                x(a), "\" y=\"16\" text-anchor=\"middle\">", escape_html(axes[a].title), "</text>");
    for (const auto& [place, text] : axes[a].marks)
      svg += join("<text class=\"note\" x=\"", x(a) + 5, "\" y=\"", y(place), "\" dy=\"4\">", escape_html(text),
                  "</text>");
  }
  return svg + "</svg></figure>";
}

}  // namespace lockstep
