#include "train/progress_line.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "train/svg_plot.hpp"

namespace lockstep {

std::string short_rate(double per_second) {
  constexpr std::array<const char*, 4> kUnits = {"", "k", "M", "G"};
  std::size_t unit = 0;
  while (per_second >= 999.5 && unit + 1 < kUnits.size()) per_second /= 1000, ++unit;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), per_second < 100 ? "%.3g%s" : "%.0f%s", per_second, kUnits[unit]);
  return text.data();
}

int terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  if (const char* columns = std::getenv("COLUMNS"); columns != nullptr && std::atoi(columns) > 0)
    return std::atoi(columns);
  return 100;
}

std::string progress_line(const ProgressState& s, int columns, bool utf8) {
  std::vector<std::string> parts;
  if (s.steps > 0) {
    const auto percent = static_cast<int>(100.0 * static_cast<double>(s.step) / static_cast<double>(s.steps));
    parts.push_back((percent < 10 ? "  " : percent < 100 ? " " : "") + std::to_string(percent) + "%");
  }
  parts.push_back(s.steps > 0 ? join("step ", s.step, "/", s.steps) : join("step ", s.step));
  if (s.epoch >= 0)
    parts.push_back("epoch " + short_number(std::floor(s.epoch)) + (s.epochs > 0 ? "/" + short_number(s.epochs) : ""));
  if (std::isnan(s.loss) || s.loss >= 0) parts.push_back("loss " + short_number(s.loss));
  if (s.validation >= 0) parts.push_back("val " + short_number(s.validation));
  if (s.samples_per_s > 0) parts.push_back(short_rate(s.samples_per_s) + " samples/s");
  if (s.seconds_left >= 0)
    parts.push_back(human_seconds(s.seconds_left < 1 ? 1 : std::round(s.seconds_left)) + " left");

  const auto width = static_cast<std::size_t>(std::max(columns - 1, 10));
  const auto text_of = [&] {
    std::string text;
    for (const auto& part : parts) text += (text.empty() ? "" : "  ") + part;
    return text;
  };
  std::string text = text_of();
  // The time left says more than the rate and the validation loss when there is little room.
  while (text.size() > width && parts.size() > 2) {
    parts.erase(parts.end() - (parts.size() > 3 ? 2 : 1));
    text = text_of();
  }
  if (text.size() > width) text.resize(width);
  constexpr std::size_t kLeast = 10, kMost = 30;
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
