#include "lockstep/report/progress_line.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "report/svg_plot.hpp"

namespace lockstep {

std::string short_rate(double per_second) {
  constexpr std::array<const char*, 4> kUnits = {"", "k", "M", "G"};
  std::size_t unit = 0;
  while (per_second >= 999.5 && unit + 1 < kUnits.size()) per_second /= 1000, ++unit;
  return printed("%.3g%s", per_second, kUnits[unit]);
}

int terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  if (const char* columns = std::getenv("COLUMNS"); columns != nullptr && std::atoi(columns) > 0)
    return std::atoi(columns);
  return 100;
}

std::string progress_line(const ProgressState& s, int columns, bool utf8) {
  struct Part {
    std::string text;
    int worth;  // the part of least worth is dropped first
  };
  std::vector<Part> parts;
  if (s.steps > 0) {
    const auto percent = static_cast<int>(100.0 * static_cast<double>(s.step) / static_cast<double>(s.steps));
    parts.push_back({(percent < 10 ? "  " : percent < 100 ? " " : "") + std::to_string(percent) + "%", 5});
  }
  parts.push_back({s.steps > 0 ? join(s.unit, " ", s.step, "/", s.steps) : join(s.unit, " ", s.step), 9});
  if (s.epoch >= 0)
    parts.push_back(
        {"epoch " + short_number(std::floor(s.epoch)) + (s.epochs > 0 ? "/" + short_number(s.epochs) : ""), 3});
  if (std::isnan(s.loss) || s.loss >= 0) parts.push_back({"loss " + short_number(s.loss), 8});
  if (s.validation >= 0) parts.push_back({"val " + short_number(s.validation), 1});
  if (s.samples_per_s > 0) parts.push_back({short_rate(s.samples_per_s) + "/s", 2});
  if (s.seconds_left >= 0)
    parts.push_back({human_seconds(s.seconds_left < 1 ? 1 : std::round(s.seconds_left)) + " left", 7});

  constexpr std::size_t kLeast = 10, kMost = 30;
  const auto width = static_cast<std::size_t>(std::max(columns - 1, 10));
  std::string text;
  const auto compose = [&] {
    text.clear();
    for (const auto& part : parts) text += (text.empty() ? "" : "  ") + part.text;
  };
  const auto drop_below = [&](int worth, std::size_t limit) {
    for (compose(); text.size() > limit; compose()) {
      const auto least =
          std::min_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.worth < b.worth; });
      if (least->worth >= worth) return;
      parts.erase(least);
    }
  };
  if (s.steps > 0 && width > 40) drop_below(3, width - kLeast - 1);
  drop_below(9, width);
  if (text.size() > width) text.resize(width);
  if (s.steps <= 0 || text.size() + kLeast + 1 > width) return text;
  const std::size_t room = std::min(kMost, width - text.size() - 1);
  const double done = std::clamp(static_cast<double>(s.step) / static_cast<double>(s.steps), 0.0, 1.0);
  const auto full = static_cast<std::size_t>(done * static_cast<double>(room));
  std::string bar;
  for (std::size_t i = 0; i < room; ++i) {
    if (utf8)
      bar += i < full ? "\u2501" : i == full ? "\u2578" : "\u2500";
    else
      bar += i < full ? '=' : i == full ? '>' : '.';
  }
  return bar + " " + text;
}

}  // namespace lockstep
