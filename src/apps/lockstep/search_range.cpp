#include "apps/lockstep/search_range.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lockstep/base/error.hpp"
#include "lockstep/base/number.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::apps {

SearchRange::SearchRange(std::string key, const std::string& text, bool whole) : key_(std::move(key)), whole_(whole) {
  constexpr double kMostPoints = 1e6;
  const auto allow = [&](bool holds, const auto&... what) {
    require_usage(holds, "option sweep.", key_, " = ", text, ": ", what...,
                  "; write choice(A, B, ...), range(N), log(A .. B), uniform(A .. B), or with a number of points for a "
                  "grid log(A .. B, N)");
  };
  const auto number = [](const std::string& of) { return number_in<double>(trim(of)).value_or(NAN); };
  const std::string all = trim(text);
  const std::size_t open = all.find('(');
  allow(open != std::string::npos && all.ends_with(')'), "no range");
  const std::string word = trim(all.substr(0, open));
  std::vector<std::string> parts = split(all.substr(open + 1, all.size() - open - 2), ',');
  for (std::string& part : parts) part = trim(part);
  if (word == "choice") {
    allow(!parts.empty() && std::ranges::none_of(parts, &std::string::empty), "an empty choice");
    for (const std::string& value : parts) allow(std::ranges::count(parts, value) == 1, value, " occurs twice");
    list_ = parts;
    return;
  }
  log_ = word == "log";
  allow(word == "range" || word == "uniform" || log_, "'", word, "' is no kind of range");
  allow(parts.size() == 1 || (parts.size() == 2 && word != "range"), parts.size(), " parts");
  const std::size_t dots = parts[0].find("..");
  allow(dots != std::string::npos || word == "range", "two ends are needed");
  low_ = dots == std::string::npos ? 0 : number(parts[0].substr(0, dots));
  high_ = dots == std::string::npos ? number(parts[0]) - 1 : number(parts[0].substr(dots + 2));
  allow(std::isfinite(low_) && std::isfinite(high_), "an end is no number");
  if (word == "range") {
    allow(low_ == std::floor(low_) && high_ == std::floor(high_), "an end is no whole number");
    allow(low_ <= high_, "an empty range");
    allow(high_ - low_ < kMostPoints, "more than a million values");
    for (int i = 0; i <= static_cast<int>(high_ - low_); ++i) list_.push_back(printed("%.0f", low_ + i));
    return;
  }
  allow(low_ < high_, "an empty range");
  allow(!log_ || low_ > 0, "the logarithm needs numbers above 0");
  if (parts.size() == 1) return;
  points_ = number(parts[1]);
  allow(points_ >= 2 && points_ <= kMostPoints && points_ == std::floor(points_),
        "the number of points is 2 to 1000000");
  for (std::size_t i = 1; i < static_cast<std::size_t>(points_); ++i)
    allow(value(i) != value(i - 1), value(i), " occurs twice among ", points_, " points");
}

double SearchRange::count() const {
  if (!is_interval()) return static_cast<double>(list_.size());
  require_usage(points_ > 0, "option sweep.", key_, ": a grid needs the number of points, as in ",
                log_ ? "log(" : "uniform(", at(0), " .. ", at(1), ", 5); or choose random");
  return points_;
}

std::string SearchRange::value(std::size_t i) const {
  return is_interval() ? at(static_cast<double>(i) / (points_ - 1)) : list_[i];
}

std::string SearchRange::at(double u) const {
  if (!is_interval()) return list_[static_cast<std::size_t>(u * static_cast<double>(list_.size()))];
  const double value = log_ ? low_ * std::pow(high_ / low_, u) : low_ + u * (high_ - low_);
  return whole_ ? printed("%.0f", value) : exact(std::strtod(printed("%.4g", value).c_str(), nullptr));
}

double SearchRange::place(const std::string& value) const {
  if (!is_interval()) {
    const auto found = std::ranges::find(list_, value) - list_.begin();
    return list_.size() < 2 ? 0.5 : static_cast<double>(found) / static_cast<double>(list_.size() - 1);
  }
  const double v = std::strtod(value.c_str(), nullptr);
  const double u = log_ ? std::log(v / low_) / std::log(high_ / low_) : (v - low_) / (high_ - low_);
  return std::clamp(u, 0.0, 1.0);
}

}  // namespace lockstep::apps
