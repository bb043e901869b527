#include "tasks/har/har_neighbours.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace lockstep {

HarNeighbours::HarNeighbours(const HarData& data, std::span<const std::int32_t> train)
    : channels_(data.channels()), length_(data.length()) {
  const auto all = std::ssize(train), used = std::min(all, kMostWindows);
  const auto window_of = [&](std::int64_t i) { return train[i * all / used]; };
  const std::size_t width = 6 * static_cast<std::size_t>(channels_);
  features_.resize(static_cast<std::size_t>(used) * width);
  const auto add = [&](std::int64_t i) {
    std::ranges::copy(features_of(data.window(window_of(i))), features_.begin() + i * static_cast<std::int64_t>(width));
  };
  data.signals.sum_over(used, window_of, add, features_);
  for (std::int64_t i = 0; i < used; ++i) classes_.push_back(data.label(window_of(i)));
  mean_.resize(width);
  scale_.resize(width);
  for (std::size_t f = 0; f < width; ++f) {
    const auto mean_of = [&](const auto& term) {
      double sum = 0;
      for (std::size_t at = f; at < features_.size(); at += width) sum += term(features_[at]);
      return sum / static_cast<double>(used);
    };
    mean_[f] = mean_of([](double x) { return x; });
    const double deviation = std::sqrt(mean_of([&](double x) { return (x - mean_[f]) * (x - mean_[f]); }));
    scale_[f] = deviation > 1e-10 * std::abs(mean_[f]) ? 1 / deviation : 0;
  }
  for (std::size_t at = 0; at < features_.size(); ++at)
    features_[at] = (features_[at] - mean_[at % width]) * scale_[at % width];
}

std::vector<double> HarNeighbours::features_of(const double* window) const {
  std::vector<double> out;
  const auto samples = static_cast<double>(length_);
  for (const double *x = window, *end = window + channels_ * length_; x < end; x += length_) {
    const auto [least, most] = std::minmax_element(x, x + length_);
    const double mean = std::accumulate(x, x + length_, 0.0) / samples;
    double square = 0, step = 0, crossings = 0;
    for (std::int64_t t = 0; t < length_; ++t) {
      square += (x[t] - mean) * (x[t] - mean);
      if (t == 0) continue;
      step += std::abs(x[t] - x[t - 1]);
      crossings += (x[t] > mean) != (x[t - 1] > mean);
    }
    out.insert(out.end(), {mean, std::sqrt(square / samples), *least, *most, step / samples, crossings / samples});
  }
  return out;
}

std::int32_t HarNeighbours::class_of(const double* window) const {
  std::vector<double> features = features_of(window);
  const std::size_t width = features.size();
  for (std::size_t f = 0; f < width; ++f) features[f] = (features[f] - mean_[f]) * scale_[f];
  std::vector<std::pair<double, std::size_t>> near(classes_.size());  // distance, window
  for (std::size_t n = 0; n < near.size(); ++n) {
    double distance = 0;
    for (std::size_t f = 0; f < width; ++f) {
      const double d = features[f] - features_[n * width + f];
      distance += d * d;
    }
    near[n] = {distance, n};
  }
  const auto end = near.begin() + std::min(kNeighbours, std::ssize(near));
  std::partial_sort(near.begin(), end, near.end());
  std::map<std::int32_t, int> votes;
  for (auto n = near.begin(); n != end; ++n) ++votes[classes_[n->second]];
  std::int32_t best = classes_[near.front().second];
  for (auto n = near.begin(); n != end; ++n)
    if (votes[classes_[n->second]] > votes[best]) best = classes_[n->second];
  return best;
}

}  // namespace lockstep
