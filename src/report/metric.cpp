#include "lockstep/report/metric.hpp"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "lockstep/base/error.hpp"

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
  std::ostringstream out;
  std::size_t label = 0;
  for (const std::string& row : table.rows) label = std::max(label, row.size());
  const std::size_t count = table.columns.size();
  const auto width = [&](std::size_t c) {
    std::size_t longest = std::max<std::size_t>(6, table.columns[c].size());
    for (std::size_t r = 0; r < table.rows.size(); ++r)
      longest = std::max(longest, join(table.values[r * count + c]).size());
    return static_cast<int>(longest);
  };
  out << table.name << "\n" << std::string(label + 2, ' ');
  for (std::size_t c = 0; c < count; ++c) out << "  " << std::setw(width(c)) << std::right << table.columns[c];
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    out << "\n  " << std::setw(static_cast<int>(label)) << std::left << table.rows[r];
    for (std::size_t c = 0; c < count; ++c)
      out << "  " << std::setw(width(c)) << std::right << join(table.values[r * count + c]);
  }
  return out.str() + "\n";
}

}  // namespace lockstep
