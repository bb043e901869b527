#include "tasks/har/har_metrics.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {

namespace {

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

void window_log_probabilities(const Tensor& logits, std::int64_t classes, std::int64_t group, std::span<double> out) {
  const auto width = static_cast<std::size_t>(classes);
  std::ranges::fill(out, 0.0);
  visit_float(logits.dtype(), [&]<class T>() {
    const T* x = logits.data<T>();
    for (std::size_t n = 0; n < out.size() / width * static_cast<std::size_t>(group); ++n, x += classes) {
      const double most = static_cast<double>(*std::max_element(x, x + classes));
      double sum = 0;
      for (std::size_t k = 0; k < width; ++k) sum += std::exp(static_cast<double>(x[k]) - most);
      double* to = out.data() + n / static_cast<std::size_t>(group) * width;
      for (std::size_t k = 0; k < width; ++k) to[k] += static_cast<double>(x[k]) - most - std::log(sum);
    }
  });
  for (double& value : out) value /= static_cast<double>(group);
}

std::int64_t largest_class(std::span<const double> values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

void HarSums::add(const Tensor& logits, std::span<const std::int32_t> labels, std::int64_t group) const {
  const auto width = static_cast<std::size_t>(classes);
  std::vector<double> rows_of(labels.size() * width), windows(rows_of.size() / static_cast<std::size_t>(group));
  window_log_probabilities(logits, classes, 1, rows_of);
  window_log_probabilities(logits, classes, group, windows);
  for (std::size_t n = 0; n < labels.size(); ++n)
    *right += largest_class(std::span(rows_of).subspan(n * width, width)) == labels[n];
  for (std::size_t w = 0; w < windows.size() / width; ++w)
    confusion[labels[w * static_cast<std::size_t>(group)] * classes +
              largest_class(std::span(windows).subspan(w * width, width))] += 1;
}

std::vector<Metric> har_metrics(const std::vector<double>& sums, const std::vector<std::string>& classes,
                                bool per_channel) {
  std::vector<double> copy = sums;
  const auto count = static_cast<std::int64_t>(classes.size());
  const HarSums s(copy.data(), count);
  const auto at = [&](std::int64_t truth, std::int64_t predicted) { return s.confusion[truth * count + predicted]; };
  struct ClassMetrics {
    double support = 0, precision = 0, recall = 0, f1 = 0;
  };
  std::vector<ClassMetrics> each(classes.size());
  ClassMetrics macro, weighted;
  double windows = 0, right = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    double predicted = 0;
    ClassMetrics& f = each[static_cast<std::size_t>(k)];
    for (std::int64_t other = 0; other < count; ++other) {
      f.support += at(k, other);
      predicted += at(other, k);
    }
    f.precision = ratio(at(k, k), predicted);
    f.recall = ratio(at(k, k), f.support);
    f.f1 = ratio(2 * f.precision * f.recall, f.precision + f.recall);
    macro.precision += f.precision / static_cast<double>(count);
    macro.recall += f.recall / static_cast<double>(count);
    macro.f1 += f.f1 / static_cast<double>(count);
    weighted.f1 += f.f1 * f.support;
    windows += f.support;
    right += at(k, k);
  }
  std::vector<Metric> out = {{"accuracy", ratio(right, windows), true},
                             {"loss", ratio(*s.loss, *s.rows)},
                             {"macro_f1", macro.f1, true},
                             {"weighted_f1", ratio(weighted.f1, windows), true},
                             {"macro_precision", macro.precision, true},
                             {"macro_recall", macro.recall, true}};
  if (per_channel) out.push_back({"channel_accuracy", ratio(*s.right, *s.rows), true});
  for (std::size_t k = 0; k < classes.size(); ++k) {
    out.push_back({"accuracy." + classes[k], each[k].recall, true});
    out.push_back({"precision." + classes[k], each[k].precision, true});
    out.push_back({"f1." + classes[k], each[k].f1, true});
    out.push_back({"support." + classes[k], each[k].support, true});
  }
  return out;
}

MetricTable har_confusion(const std::vector<double>& sums, const std::vector<std::string>& classes) {
  return {"confusion", classes, classes, {sums.begin() + 3, sums.end()}};
}

}  // namespace lockstep
