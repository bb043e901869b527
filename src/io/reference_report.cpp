#include "lockstep/io/reference_report.hpp"

#include <iomanip>
#include <sstream>

namespace lockstep {

ReferenceRow& ReferenceReport::add(const std::string& name, double tolerance, Difference difference) {
  ReferenceRow& row = rows_.emplace_back();
  row.name = name;
  row.tolerance = tolerance;
  row.absolute = difference == Difference::absolute;
  return row;
}

ReferenceRow& ReferenceReport::state(const std::string& name, const std::string& note) {
  ReferenceRow& row = add(name, 0, Difference::relative);
  row.note = note;
  return row;
}

std::size_t ReferenceReport::failed() const {
  return static_cast<std::size_t>(std::ranges::count_if(rows_, [](const ReferenceRow& row) { return !row.passed(); }));
}

std::string ReferenceReport::text() const {
  if (rows_.empty()) return "";
  std::size_t width = 6;
  for (const ReferenceRow& row : rows_) width = std::max(width, row.name.size());
  std::ostringstream out;
  const auto begin = [&](const std::string& name) { out << std::left << std::setw(static_cast<int>(width)) << name; };
  begin("tensor");
  out << "   max error   tolerance         worst\n";
  for (const ReferenceRow& row : rows_) {
    begin(row.name);
    out << std::right << std::scientific << std::setprecision(2) << std::setw(12) << row.error << std::setprecision(1)
        << std::setw(12) << row.tolerance << (row.absolute ? "a " : "  ") << (row.passed() ? "ok    " : "FAIL  ");
    out << std::defaultfloat << std::setprecision(9);
    if (!row.note.empty())
      out << row.note;
    else if (row.worst >= 0)
      out << "[" << row.worst << "] " << row.value << ", expected " << row.expected;
    out << "\n";
  }
  out << rows_.size() - failed() << " of " << rows_.size() << " arrays agree";
  if (std::ranges::any_of(rows_, &ReferenceRow::absolute))
    out << " (a: absolute error, the others relative to the largest reference value)";
  out << "\n";
  return std::move(out).str();
}

}  // namespace lockstep
