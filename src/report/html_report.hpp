#pragma once
#include <string>
#include <utility>
#include <vector>

#include "lockstep/report/run_log.hpp"
#include "report/run_history.hpp"

namespace lockstep {

/// The contents of report.html.
struct Report {
  const RunFacts& facts;
  const RunHistory& history;
  const std::vector<ReportTable>& tables;
  const std::vector<ReportPicture>& pictures;
  const std::vector<std::pair<std::string, std::string>>& files;  ///< path, description
  std::string outcome;                                            ///< "running" until the run ends
  std::string updated;                                            ///< local time
};

/// One self-contained page: inline SVG and CSS, no scripts, no external files; light or dark as the reader's system.
std::string report_html(const Report& report);

}  // namespace lockstep
