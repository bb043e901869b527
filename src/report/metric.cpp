#include "lockstep/report/metric.hpp"

#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

MetricTable class_scores(const MetricTable& confusion) {
  const std::size_t count = confusion.rows.size();
  const auto ratio = [](double a, double b) { return b > 0 ? a / b : 0; };
  MetricTable scores{"classes", confusion.rows, {"precision", "recall", "f1", "support"}, {}};
  for (std::size_t k = 0; k < count; ++k) {
    double support = 0, predicted = 0;
    for (std::size_t other = 0; other < count; ++other) {
      support += confusion.values[k * count + other];
      predicted += confusion.values[other * count + k];
    }
    const double correct = confusion.values[k * count + k], precision = ratio(correct, predicted),
                 recall = ratio(correct, support);
    scores.values.insert(scores.values.end(),
                         {precision, recall, ratio(2 * precision * recall, precision + recall), support});
  }
  return scores;
}

std::string text_of(const MetricTable& table) {
  std::vector<std::vector<std::string>> rows = {{""}};
  rows[0].insert(rows[0].end(), table.columns.begin(), table.columns.end());
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    rows.push_back({table.rows[r]});
    for (std::size_t c = 0; c < table.columns.size(); ++c)
      rows.back().push_back(join(table.values[r * table.columns.size() + c]));
  }
  return table.name + "\n" + aligned(rows, Align::right);
}

}  // namespace lockstep
