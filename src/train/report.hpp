#pragma once
#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/run_log.hpp"
#include "train/run_history.hpp"

namespace lockstep {

/// Everything that report.html shows.
struct Report {
  const RunFacts& facts;
  const RunHistory& history;
  const std::vector<ReportTable>& tables;
  const std::vector<ReportScatter>& scatters;
  const std::vector<ReportPicture>& pictures;
  const std::vector<std::pair<std::string, std::string>>& files;  ///< path as shown, what it is
  std::string outcome;                                            ///< "running" until the end
  std::string updated;                                            ///< local time
};

/// One self-contained page: inline SVG and CSS, no scripts, nothing fetched; light or dark as the reader's system.
std::string report_html(const Report& report);

}  // namespace lockstep
