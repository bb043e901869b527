#include "tasks/har/har_metrics.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {

namespace {

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

std::int64_t largest(const double* x, std::int64_t n) { return std::max_element(x, x + n) - x; }

}  // namespace

void HarSums::add(const Tensor& logits, std::span<const std::int32_t> labels, std::int64_t group) const {
  std::vector<double> row(static_cast<std::size_t>(classes)), mean(row.size());
  visit_float(logits.dtype(), [&]<class T>() {
    const T* x = logits.data<T>();
    for (std::size_t n = 0; n < labels.size(); ++n, x += classes) {
      std::copy_n(x, classes, row.begin());
      const double most = *std::max_element(row.begin(), row.end());
      double sum = 0;
      for (const double v : row) sum += std::exp(v - most);
      const bool first = static_cast<std::int64_t>(n) % group == 0;
      for (std::size_t k = 0; k < row.size(); ++k) mean[k] = (first ? 0 : mean[k]) + row[k] - most - std::log(sum);
      if (largest(row.data(), classes) == labels[n]) *right += 1;
      if (static_cast<std::int64_t>(n + 1) % group == 0)
        confusion[labels[n] * classes + largest(mean.data(), classes)] += 1;
    }
  });
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
