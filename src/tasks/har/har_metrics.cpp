#include "tasks/har/har_metrics.hpp"

#include <algorithm>

#include "lockstep/models/har/har.hpp"

namespace lockstep {

namespace {

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

std::int64_t largest_class(std::span<const double> values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

void HarSums::add(const Tensor& logits, std::span<const std::int32_t> labels, std::int64_t group) const {
  const auto width = static_cast<std::size_t>(classes);
  std::vector<double> rows_of(labels.size() * width), windows(rows_of.size() / static_cast<std::size_t>(group));
  window_log_probabilities(logits, classes, 1, rows_of);
  window_log_probabilities(logits, classes, group, windows);
  for (std::size_t n = 0; n < labels.size(); ++n)
    *correct += largest_class(std::span(rows_of).subspan(n * width, width)) == labels[n];
  for (std::size_t w = 0; w < windows.size() / width; ++w)
    confusion[labels[w * static_cast<std::size_t>(group)] * classes +
              largest_class(std::span(windows).subspan(w * width, width))] += 1;
}

std::vector<Metric> har_metrics(const std::vector<double>& sums, const std::vector<std::string>& classes,
                                bool per_channel) {
  std::vector<double> copy = sums;
  const auto count = std::ssize(classes);
  const HarSums s(copy.data(), count);
  const MetricTable each = class_scores(har_confusion(sums, classes));
  enum Score : std::uint8_t { kPrecision, kRecall, kF1, kSupport };
  const auto score = [&](std::int64_t k, Score which) { return each.values[4 * k + which]; };
  double macro_precision = 0, macro_recall = 0, macro_f1 = 0, weighted_f1 = 0, windows = 0, correct = 0, present = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    if (score(k, kSupport) == 0) continue;
    present += 1;
    macro_precision += score(k, kPrecision);
    macro_recall += score(k, kRecall);
    macro_f1 += score(k, kF1);
    weighted_f1 += score(k, kF1) * score(k, kSupport);
    windows += score(k, kSupport);
    correct += s.confusion[k * count + k];
  }
  std::vector<Metric> out = {{"accuracy", ratio(correct, windows), true},
                             {"loss", ratio(*s.loss, *s.rows)},
                             {"macro_f1", ratio(macro_f1, present), true},
                             {"weighted_f1", ratio(weighted_f1, windows), true},
                             {"macro_precision", ratio(macro_precision, present), true},
                             {"macro_recall", ratio(macro_recall, present), true}};
  if (per_channel) out.push_back({"channel_accuracy", ratio(*s.correct, *s.rows), true});
  for (std::int64_t k = 0; k < count; ++k) {
    const std::string& name = classes[k];
    out.push_back({"accuracy." + name, score(k, kRecall), true});
    out.push_back({"precision." + name, score(k, kPrecision), true});
    out.push_back({"f1." + name, score(k, kF1), true});
    out.push_back({"support." + name, score(k, kSupport), true});
  }
  return out;
}

MetricTable har_confusion(const std::vector<double>& sums, const std::vector<std::string>& classes) {
  return {"confusion", classes, classes, {sums.begin() + 3, sums.end()}};
}

}  // namespace lockstep
