#include "apps/lockstep/search_range.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep::apps {

namespace {
constexpr double kMostPoints = 1e6;

/// A number, or NaN.
double number_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' || !std::isfinite(value) ? std::nan("") : value;
}
}  // namespace

SearchRange::SearchRange(std::string key, const std::string& text, bool whole) : key_(std::move(key)), whole_(whole) {
  const auto allow = [&](bool holds, const auto&... what) {
    require_usage(holds, "option sweep.", key_, " = ", text, ": ", what...,
                  "; write choice(A, B, ...), range(N), log(A .. B), uniform(A .. B), or with a number of points for a "
                  "grid log(A .. B, N)");
  };
  const std::string all = trim(text);
  const std::size_t open = all.find('(');
  allow(open != std::string::npos && all.ends_with(')'), "no range");
  const std::string word = trim(all.substr(0, open));
  std::vector<std::string> parts = split(all.substr(open + 1, all.size() - open - 2), ',');
  for (std::string& part : parts) part = trim(part);
  if (word == "choice") {
    allow(!parts.empty() && std::ranges::none_of(parts, &std::string::empty), "an empty choice");
    list_ = parts;
    for (const std::string& value : parts) allow(std::ranges::count(parts, value) == 1, value, " occurs twice");
    return;
  }
  allow(word == "range" || word == "uniform" || word == "log", "'", word, "' is no kind of range");
  allow(parts.size() == 1 || (parts.size() == 2 && word != "range"), parts.size(), " parts");
  const std::size_t dots = parts[0].find("..");
  if (dots == std::string::npos) {
    allow(word == "range", "two ends are needed");
    high_ = number_of(parts[0]) - 1;
  } else {
    low_ = number_of(trim(parts[0].substr(0, dots)));
    high_ = number_of(trim(parts[0].substr(dots + 2)));
  }
  allow(std::isfinite(low_) && std::isfinite(high_), "an end is no number");
  if (word == "range") {
    allow(low_ == std::floor(low_) && high_ == std::floor(high_), "an end is no whole number");
    allow(low_ <= high_, "an empty range");
    allow(high_ - low_ < kMostPoints, "more than a million values");
    for (int i = 0; i <= static_cast<int>(high_ - low_); ++i) list_.push_back(printed("%.0f", low_ + i));
    return;
  }
  kind_ = word == "log" ? Kind::log : Kind::uniform;
  allow(low_ < high_, "an empty range");
  allow(kind_ != Kind::log || low_ > 0, "the logarithm needs numbers above 0");
  if (parts.size() == 1) return;
  points_ = number_of(parts[1]);
  allow(points_ >= 2 && points_ <= kMostPoints && points_ == std::floor(points_),
        "the number of points is 2 to 1000000");
}

double SearchRange::count() const {
  require_usage(!is_interval() || points_ > 0, "option sweep.", key_, ": a grid needs the number of points, as in ",
                kind_ == Kind::log ? "log(" : "uniform(", number(low_), " .. ", number(high_),
                ", 5); or choose random");
  return is_interval() ? points_ : static_cast<double>(list_.size());
}

std::string SearchRange::value(std::size_t i) const {
  return is_interval() ? number(inverse(static_cast<double>(i) / (points_ - 1))) : list_[i];
}

std::string SearchRange::at(double u) const {
  if (!is_interval()) return list_[static_cast<std::size_t>(u * static_cast<double>(list_.size()))];
  return number(inverse(u));
}

double SearchRange::place(const std::string& value) const {
  if (!is_interval()) {
    const auto found = std::ranges::find(list_, value) - list_.begin();
    return list_.size() < 2 ? 0.5 : static_cast<double>(found) / static_cast<double>(list_.size() - 1);
  }
  const double v = number_of(value);
  const double u = kind_ == Kind::log ? std::log(v / low_) / std::log(high_ / low_) : (v - low_) / (high_ - low_);
  return std::clamp(u, 0.0, 1.0);
}

std::vector<std::string> SearchRange::ends() const {
  return is_interval() ? std::vector{number(low_), number(high_)} : list_;
}

double SearchRange::inverse(double u) const {
  return kind_ == Kind::log ? low_ * std::pow(high_ / low_, u) : low_ + u * (high_ - low_);
}

std::string SearchRange::number(double value) const {
  return whole_ ? printed("%.0f", value) : exact(std::strtod(printed("%.4g", value).c_str(), nullptr));
}

}  // namespace lockstep::apps
