#include "report/html_report.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/build_info.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/report/progress_line.hpp"
#include "report/svg_plot.hpp"

namespace lockstep {

namespace {

// A chart cannot resolve more points than these.
constexpr std::size_t kFinePoints = 400, kCoarsePoints = 160;
constexpr int kTableDigits = 6;

/// The splits, validation first.
std::vector<std::pair<std::string, const RunHistory::Evaluation*>> splits(const RunHistory& history) {
  std::vector<std::pair<std::string, const RunHistory::Evaluation*>> all;
  for (const auto& [split, evaluation] : history.evaluations()) all.emplace_back(split, &evaluation);
  std::stable_partition(all.begin(), all.end(), [](const auto& s) { return s.first == "validation"; });
  return all;
}

constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --ink: #1b2330; --soft: #5c6675; --page: #f6f7f9; --card: #ffffff; --rule: #dfe3e9;
  --s0: #2463c8; --s1: #d9650b; --s2: #16875a; --s3: #b62e70; --s4: #6d4bc3; --s5: #7f7a0c; --s6: #0e8799; --s7: #8a5a3c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa5b5; --page: #12161c; --card: #1a2029; --rule: #2d3542;
  --s0: #6ea3f5; --s1: #f39a4e; --s2: #4fc795; --s3: #ea7fb0; --s4: #a98df0; --s5: #c9c24a; --s6: #54c4d6; --s7: #c79a7c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1200px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 24px; margin: 0 0 2px; } h2 { font-size: 17px; margin: 34px 0 12px; }
.sub { color: var(--soft); margin: 0 0 20px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 12px; }
.tile { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 12px 16px; }
.tile b { display: block; font-size: 23px; font-weight: 620; font-variant-numeric: tabular-nums; } .tile span { color: var(--soft); font-size: 13px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 14px; }
.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 320px), 1fr)); }
figure { margin: 0; background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 12px 12px 6px; }
figcaption { font-weight: 600; font-size: 14px; display: flex; flex-wrap: wrap; gap: 2px 14px; padding: 0 4px 4px; }
svg { display: block; width: 100%; height: auto; }
.legend { display: inline-flex; flex-wrap: wrap; gap: 2px 12px; font-weight: 400; color: var(--soft); font-size: 13px; }
.key::before { content: ""; display: inline-block; width: 11px; height: 11px; border-radius: 3px; background: var(--c); margin-right: 5px; vertical-align: -1px; }
.grid { stroke: var(--rule); stroke-width: 1; fill: none; } .tick { fill: var(--soft); font-size: 11.5px; } .label { fill: var(--soft); font-size: 12px; }
.line { fill: none; stroke: var(--c); stroke-width: 1.8; stroke-linejoin: round; } .band { fill: var(--c); opacity: .16; } .area { fill: var(--c); opacity: .82; }
.dots circle { fill: var(--c); opacity: .45; } .mark { fill: var(--card); stroke: var(--c); stroke-width: 2; } .note { fill: var(--ink); font-size: 12px; paint-order: stroke; stroke: var(--card); stroke-width: 4px; }
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); } .s4 { --c: var(--s4); } .s5 { --c: var(--s5); } .s6 { --c: var(--s6); } .s7 { --c: var(--s7); }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 6px 14px; border-top: 1px solid var(--rule); white-space: nowrap; } tr:first-child th { border-top: 0; color: var(--soft); font-weight: 600; }
th:first-child, td:first-child, .plain td, .plain th { text-align: left; } .plain td:last-child { white-space: normal; }
.gap { height: 12px; }
details { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 10px 16px; } summary { cursor: pointer; font-weight: 600; }
pre { overflow-x: auto; font: 12.5px/1.45 ui-monospace, "SF Mono", Menlo, Consolas, monospace; } footer { color: var(--soft); font-size: 13px; margin-top: 34px; }
)css";

std::string tile(const std::string& value, const std::string& what) {
  return "<div class=\"tile\"><b>" + escape_html(value) + "</b><span>" + escape_html(what) + "</span></div>";
}

std::string table_html(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows,
                       const char* kind) {
  std::string out = std::string("<div class=\"scroll\"><table class=\"") + kind + "\">";
  if (!head.empty()) {
    out += "<tr>";
    for (const auto& cell : head) out += "<th>" + escape_html(cell) + "</th>";
    out += "</tr>";
  }
  for (const auto& row : rows) {
    out += "<tr>";
    for (const auto& cell : row) out += "<td>" + escape_html(cell) + "</td>";
    out += "</tr>";
  }
  return out + "</table></div>";
}

std::string with_step(const RunHistory::EvalPoint& point) {
  return join(short_number(point.value, kTableDigits), " (step ", point.step, ")");
}

SvgPlot::Points points_of(const std::vector<RunHistory::EvalPoint>& series) {
  SvgPlot::Points points;
  for (const auto& p : series) points.emplace_back(static_cast<double>(p.step), p.value);
  return points;
}

/// The loss on a logarithmic axis, unless a value is zero or negative.
std::string loss_chart(const RunHistory& history, const std::string& x_label) {
  SvgPlot plot("Loss", x_label, "loss");
  bool positive = true;
  SvgPlot::Points line;
  std::vector<double> x, low, high;
  for (const auto& p : history.condensed(kFinePoints)) {
    const auto step = static_cast<double>(p.step);
    line.emplace_back(step, p.loss);
    x.push_back(step), low.push_back(p.loss_min), high.push_back(p.loss_max);
    positive = positive && !(p.loss_min <= 0);
  }
  int color = 1;
  std::string note;
  plot.band(0, x, low, high);
  plot.line("training", 0, line);
  for (const auto& [split, part] : splits(history)) {
    const RunHistory::Evaluation& evaluation = *part;
    const auto series = evaluation.series.find("loss");
    if (series == evaluation.series.end()) continue;
    for (const auto& p : series->second) positive = positive && p.value > 0;
    const bool few = series->second.size() < 3;
    if (few)
      plot.dots(split, color, points_of(series->second));
    else
      plot.line(split, color, points_of(series->second));
    if (const auto best = evaluation.best.find("loss"); best != evaluation.best.end())
      plot.mark(static_cast<double>(best->second.step), best->second.value, color,
                "best evaluation: " + short_number(best->second.value));
    ++color;
  }
  return plot.log_y(positive).html();
}

std::string training_chart(const RunHistory& history, const std::string& title, const std::string& x_label,
                           const std::string& y_label, bool from_zero, const auto& value) {
  SvgPlot plot(title, x_label, y_label);
  SvgPlot::Points line;
  double low = 1e300, high = 0;
  for (const auto& p : history.condensed(kCoarsePoints)) {
    const double v = value(p);
    if (!(v > 0)) continue;
    low = std::min(low, v), high = std::max(high, v);
    line.emplace_back(static_cast<double>(p.step), v);
  }
  if (line.empty()) return {};
  plot.line("", 0, line);
  if (from_zero) plot.from_zero();
  // A schedule that ends at zero would stretch a logarithmic axis over ten empty decades.
  return plot.log_y(!from_zero && high > 20 * low && high < 1e5 * low).html();
}

std::string phase_chart(const RunHistory& history, const std::string& x_label) {
  const auto& names = history.phase_names();
  if (names.empty()) return {};
  std::vector<double> x;
  std::vector<std::vector<double>> layers(names.size());
  for (const auto& p : history.condensed(kCoarsePoints)) {
    double total = 0;
    for (const double seconds : p.phases) total += seconds;
    if (!(total > 0)) continue;
    x.push_back(static_cast<double>(p.step));
    for (std::size_t i = 0; i < names.size(); ++i)
      layers[i].push_back(i < p.phases.size() ? 100 * p.phases[i] / total : 0);
  }
  SvgPlot plot("Where the time goes", x_label, "% of training time");
  plot.from_zero().stack(names, x, layers);
  return plot.html();
}

/// The GPUs' measurements: their mean, and a band from the lowest to the highest.
std::string gpu_charts(const RunHistory& history, const std::string& x_label) {
  struct Shown {
    const char *name, *title, *unit;
    double scale;
  };
  constexpr Shown kShown[] = {{"utilization_percent", "GPU utilisation", "%", 1},
                              {"memory_bytes", "GPU memory in use", "GiB", 1.0 / (1 << 30)},
                              {"power_w", "GPU power", "W", 1},
                              {"sm_clock_mhz", "SM clock", "MHz", 1}};
  std::string charts;
  const auto points = history.condensed(kCoarsePoints);
  for (const Shown& shown : kShown) {
    SvgPlot::Points line;
    std::vector<double> x, low, high;
    for (const auto& p : points) {
      const auto found = p.gpus.find(shown.name);
      if (found == p.gpus.end()) continue;
      x.push_back(static_cast<double>(p.step));
      line.emplace_back(x.back(), shown.scale * found->second.mean);
      low.push_back(shown.scale * found->second.low), high.push_back(shown.scale * found->second.high);
    }
    if (line.empty()) continue;
    SvgPlot plot(shown.title, x_label, shown.unit);
    plot.from_zero().size(380, 230).band(0, x, low, high);
    plot.line("", 0, line);
    charts += plot.html();
  }
  return charts.empty() ? ""
                        : "<h2>GPUs: mean, lowest and highest</h2><div class=\"charts small\">" + charts + "</div>";
}

/// A chart per metric. The metrics `f1.walk`, `f1.sit`, ... of classes or outputs are lines of one chart, unless none
/// of them changes (such as the number of samples of a class).
std::string metric_charts(const RunHistory& history, const std::string& x_label) {
  constexpr std::size_t kMost = 12;
  std::string charts;
  std::size_t drawn = 0, left_out = 0;
  for (const auto& [split, part] : splits(history)) {
    const RunHistory::Evaluation& evaluation = *part;
    std::vector<std::pair<std::string, std::vector<std::string>>> groups;  // of series, by the name before the dot
    for (const auto& name : evaluation.names) {
      const auto series = evaluation.series.find(name);
      if (name == "loss" || series == evaluation.series.end() || series->second.size() < 2) continue;
      const std::string metric = name.substr(0, name.find('.'));
      auto group = std::ranges::find_if(groups, [&](const auto& g) { return g.first == metric; });
      if (group == groups.end()) group = groups.insert(groups.end(), {metric, {}});
      group->second.push_back(name);
    }
    int color = 0;
    for (const auto& [metric, names] : groups) {
      if (names.size() > 1 && std::ranges::all_of(names, [&](const std::string& name) {
            return evaluation.lowest.at(name).value == evaluation.highest.at(name).value;
          }))
        continue;
      if (drawn == kMost) {
        left_out += names.size();
        continue;
      }
      double low = HUGE_VAL, high = -HUGE_VAL;
      SvgPlot plot(metric + " (" + split + ")", x_label, metric);
      for (const auto& name : names) {
        plot.line(name == metric ? "" : name.substr(metric.size() + 1), color++, points_of(evaluation.series.at(name)));
        low = std::min(low, evaluation.lowest.at(name).value);
        high = std::max(high, evaluation.highest.at(name).value);
      }
      plot.log_y(low > 0 && high > 20 * low);
      charts += plot.size(380, 230).html();
      ++drawn;
    }
  }
  if (charts.empty()) return {};
  std::string out = "<h2>Metrics during training</h2><div class=\"charts small\">" + charts + "</div>";
  if (left_out > 0)
    out += join("<p class=\"sub\">", left_out,
                " further metrics are in the table of final metrics and in metrics.jsonl.</p>");
  return out;
}

/// The number of metrics named `<metric>.<output>`.
std::int64_t metrics_of(const RunHistory::Evaluation& evaluation, const std::string& output) {
  return std::count_if(evaluation.names.begin(), evaluation.names.end(), [&](const std::string& name) {
    const auto dot = name.find('.');
    return dot != std::string::npos && name.substr(dot + 1) == output;
  });
}

/// The metrics `rmse.aice`, `bias.aice`, `rmse.tsfc`, ... of the last evaluation as a table of outputs by metrics.
std::string output_table(const RunHistory::Evaluation& evaluation) {
  std::vector<std::string> metrics, outputs;
  const auto note = [](std::vector<std::string>& list, const std::string& word) {
    if (std::find(list.begin(), list.end(), word) == list.end()) list.push_back(word);
  };
  for (const auto& name : evaluation.names) {
    const auto dot = name.find('.');
    if (dot == std::string::npos) continue;
    note(metrics, name.substr(0, dot));
    note(outputs, name.substr(dot + 1));
  }
  std::erase_if(metrics, [&](const std::string& metric) {
    return std::none_of(outputs.begin(), outputs.end(), [&](const std::string& output) {
      return evaluation.last.count(metric + "." + output) > 0 && metrics_of(evaluation, output) > 1;
    });
  });
  if (metrics.size() < 2) return {};
  std::vector<std::vector<std::string>> rows;
  for (const auto& output : outputs) {
    if (metrics_of(evaluation, output) < 2) continue;
    std::vector<std::string> row = {output};
    for (const auto& metric : metrics) {
      const auto found = evaluation.last.find(metric + "." + output);
      row.push_back(found == evaluation.last.end() ? "" : short_number(found->second.value, kTableDigits));
    }
    rows.push_back(std::move(row));
  }
  metrics.insert(metrics.begin(), "last evaluation");
  return table_html(metrics, rows, "");
}

std::string metric_tables(const RunHistory& history) {
  std::string out;
  for (const auto& [split, part] : splits(history)) {
    const RunHistory::Evaluation& evaluation = *part;
    out += "<h2>Metrics: " + escape_html(split) + "</h2>";
    const std::string outputs = output_table(evaluation);
    std::vector<std::vector<std::string>> rows;
    for (const auto& name : evaluation.names) {
      const auto series = evaluation.series.find(name);
      const bool repeated = series != evaluation.series.end() && series->second.size() > 1;
      if (!outputs.empty() && name.find('.') != std::string::npos && !repeated) continue;  // the first table shows it
      const auto low = evaluation.lowest.find(name), high = evaluation.highest.find(name);
      rows.push_back({name, short_number(evaluation.last.at(name).value, kTableDigits),
                      low == evaluation.lowest.end() ? "-" : with_step(low->second),
                      high == evaluation.highest.end() ? "-" : with_step(high->second)});
    }
    if (!outputs.empty()) out += outputs + "<div class=\"gap\"></div>";
    out += table_html({"metric", "last", "lowest", "highest"}, rows, "");
  }
  return out;
}

}  // namespace

std::string report_html(const Report& report) {
  const RunHistory& history = report.history;
  const RunFacts& facts = report.facts;
  const std::string x_label = facts.steps_per_epoch > 0 ? join("step (", facts.steps_per_epoch, " per epoch)") : "step";

  std::string tiles;  // first what decides
  for (const auto& [split, part] : splits(history)) {
    const RunHistory::Evaluation& evaluation = *part;
    if (evaluation.names.empty()) continue;
    const std::string& name = evaluation.last.contains(facts.decides) ? facts.decides : evaluation.names.front();
    if (const auto best = evaluation.best.find(name); best != evaluation.best.end())
      tiles += tile(short_number(best->second.value),
                    join(split, " ", name, " at the best evaluation (step ", best->second.step, ")"));
    else
      tiles += tile(short_number(evaluation.last.at(name).value), join(split, " ", name, ", last"));
  }
  tiles += tile(std::to_string(history.last_step()), facts.steps > 0 ? join("of ", facts.steps, " steps") : "steps");
  const auto last = std::find_if(history.training().rbegin(), history.training().rend(),
                                 [](const auto& p) { return !std::isnan(p.loss); });
  if (last != history.training().rend()) tiles += tile(short_number(last->loss), "training loss, last");
  if (history.seconds() > 0) {
    double samples = 0, seconds = 0;
    for (const auto& p : history.training()) samples += p.samples_per_s * p.seconds, seconds += p.seconds;
    if (seconds > 0) tiles += tile(short_rate(samples / seconds), "samples/s, mean");
    tiles += tile(human_seconds(history.seconds()),
                  "training time" + (history.evaluation_seconds() > 0
                                         ? ", evaluation " + human_seconds(history.evaluation_seconds())
                                         : std::string()));
  }

  std::string body = "<h1>" + escape_html(facts.title) + "</h1><p class=\"sub\">" + escape_html(report.outcome) +
                     " · " + escape_html(report.updated) + "</p><div class=\"tiles\">" + tiles + "</div>";
  if (history.empty()) {
    body += "<p>No step has been recorded yet.</p>";
  } else {
    body +=
        "<h2>Training</h2><div class=\"charts\">" + loss_chart(history, x_label) +
        training_chart(history, "Learning rate", x_label, "learning rate", false, [](const auto& p) { return p.lr; }) +
        training_chart(history, "Throughput", x_label, "samples/s", true,
                       [](const auto& p) { return p.samples_per_s; }) +
        phase_chart(history, x_label) +
        training_chart(history, "Gradient norm", x_label, "norm", false,
                       [](const auto& p) { return p.norms > 0 ? p.grad_norm : 0.0; }) +
        "</div>" + gpu_charts(history, x_label) + metric_charts(history, x_label);
  }
  for (const auto& picture : report.pictures)
    body += "<h2>" + escape_html(picture.title) + "</h2><div class=\"charts\">" + picture.svg + "</div>";
  for (const auto& table : report.tables)
    body += "<h2>" + escape_html(table.title) + "</h2>" + table_html(table.columns, table.rows, "");
  body += metric_tables(history);

  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : facts.facts) rows.push_back({name, value});
  if (!rows.empty()) body += "<h2>Run</h2>" + table_html({}, rows, "plain");
  rows.clear();
  for (const auto& [path, what] : report.files) rows.push_back({path, what});
  if (!rows.empty()) body += "<h2>Files</h2>" + table_html({}, rows, "plain");
  if (!facts.config.empty())
    body += "<h2>Configuration</h2><details><summary>config.ini</summary><pre>" + escape_html(facts.config) +
            "</pre></details>";

  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
         "content=\"width=device-width, "
         "initial-scale=1\"><title>" +
         escape_html(facts.title) + "</title><style>" + kStyle + "</style></head><body><main>" + body + "<footer>" +
         escape_html(version_line()) + "</footer></main></body></html>\n";
}

}  // namespace lockstep
