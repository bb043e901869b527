#include "report/run_history.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {

namespace {

void add(RunHistory::GpuRange& to, const RunHistory::GpuRange& more) {
  const auto before = static_cast<double>(to.count), added = static_cast<double>(more.count);
  to = {.mean = (to.mean * before + more.mean * added) / (before + added),
        .low = to.count == 0 ? more.low : std::min(to.low, more.low),
        .high = to.count == 0 ? more.high : std::max(to.high, more.high),
        .count = to.count + more.count};
}

/// Merges `a` and its successor `b`: means are weighted by the number of records.
RunHistory::TrainPoint merged(const RunHistory::TrainPoint& a, const RunHistory::TrainPoint& b) {
  RunHistory::TrainPoint m = b;
  const auto n = static_cast<double>(a.records + b.records);
  const auto mean = [&](double x, double y) {  // NaN: a record without a loss
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) ? y : x;
    return (x * static_cast<double>(a.records) + y * static_cast<double>(b.records)) / n;
  };
  m.loss = mean(a.loss, b.loss);
  m.loss_min = std::fmin(a.loss_min, b.loss_min);
  m.loss_max = std::fmax(a.loss_max, b.loss_max);
  m.lr = b.lr;
  if (a.norms + b.norms > 0)
    m.grad_norm = (a.grad_norm * static_cast<double>(a.norms) + b.grad_norm * static_cast<double>(b.norms)) /
                  static_cast<double>(a.norms + b.norms);
  // Total samples / total seconds, not the mean of the rates.
  const double samples = a.samples_per_s * a.seconds + b.samples_per_s * b.seconds;
  m.seconds = a.seconds + b.seconds;
  m.samples_per_s = m.seconds > 0 ? samples / m.seconds : mean(a.samples_per_s, b.samples_per_s);
  m.records = a.records + b.records;
  m.norms = a.norms + b.norms;
  m.phases.resize(std::max(a.phases.size(), b.phases.size()));
  for (std::size_t i = 0; i < a.phases.size(); ++i) m.phases[i] += a.phases[i];
  for (const auto& [name, range] : a.gpus) add(m.gpus[name], range);
  return m;
}

}  // namespace

void RunHistory::add(const StepRecord& record) {
  const double loss = record.loss.value_or(std::nan(""));
  TrainPoint point{.step = record.step,
                   .epoch = record.epoch,
                   .loss = loss,
                   .loss_min = loss,
                   .loss_max = loss,
                   .lr = record.lr,
                   .grad_norm = record.grad_norm >= 0 ? record.grad_norm : 0,
                   .samples_per_s = record.samples_per_s,
                   .seconds = record.seconds,
                   .records = 1,
                   .norms = record.grad_norm >= 0 ? 1 : 0,
                   .phases = {},
                   .gpus = {}};
  for (const GpuValues& gpu : record.gpus)
    for (const Metric& v : gpu.values) lockstep::add(point.gpus[v.name], {v.value, v.value, v.value, 1});
  for (const auto& [name, seconds] : record.phases) {
    auto known = std::find(phase_names_.begin(), phase_names_.end(), name);
    if (known == phase_names_.end()) known = phase_names_.insert(phase_names_.end(), name);
    const auto index = static_cast<std::size_t>(known - phase_names_.begin());
    if (point.phases.size() <= index) point.phases.resize(index + 1);
    point.phases[index] += seconds;
  }
  seconds_ += record.seconds;
  last_step_ = std::max(last_step_, record.step);
  if (!training_.empty() && training_.back().records < per_point_) {
    training_.back() = merged(training_.back(), point);
    return;
  }
  training_.push_back(std::move(point));
  if (training_.size() < kLimit) return;
  per_point_ *= 2;
  for (std::size_t i = 0; i + 1 < training_.size(); i += 2) training_[i / 2] = merged(training_[i], training_[i + 1]);
  training_.resize(training_.size() / 2);
}

std::vector<RunHistory::TrainPoint> RunHistory::condensed(std::size_t most) const {
  const std::size_t group = (training_.size() + most - 1) / std::max<std::size_t>(most, 1);
  std::vector<TrainPoint> points;
  for (std::size_t i = 0; i < training_.size(); ++i) {
    if (i % group == 0)
      points.push_back(training_[i]);
    else
      points.back() = merged(points.back(), training_[i]);
  }
  return points;
}

void RunHistory::add(const EvalRecord& record) {
  Evaluation& split = evaluations_[record.split];
  last_step_ = std::max(last_step_, record.step);
  evaluation_seconds_ += record.seconds;
  const auto put = [&](const std::string& name, double value) {
    const EvalPoint point{record.step, record.epoch, value};
    if (split.last.find(name) == split.last.end()) split.names.push_back(name);
    split.last[name] = point;
    if (!std::isfinite(value)) return;
    if (const auto it = split.lowest.find(name); it == split.lowest.end() || value < it->second.value)
      split.lowest[name] = point;
    if (const auto it = split.highest.find(name); it == split.highest.end() || value > it->second.value)
      split.highest[name] = point;
    const std::string key = record.split + '\n' + name;
    std::int64_t& per_point = per_eval_point_.try_emplace(key, 1).first->second;
    std::int64_t& filled = in_last_[key];
    std::vector<EvalPoint>& points = split.series[name];
    if (!points.empty() && filled < per_point) {
      EvalPoint& end = points.back();
      const auto n = static_cast<double>(filled);
      end = {point.step, point.epoch, (end.value * n + value) / (n + 1)};
      ++filled;
      return;
    }
    points.push_back(point);
    filled = 1;
    if (points.size() < kLimit) return;
    per_point *= 2;
    filled = per_point;
    for (std::size_t i = 0; i + 1 < points.size(); i += 2)
      points[i / 2] = {points[i + 1].step, points[i + 1].epoch, (points[i].value + points[i + 1].value) / 2};
    points.resize(points.size() / 2);
  };
  if (record.loss) put("loss", *record.loss);
  for (const auto& metric : record.metrics)
    if (metric.name != "loss") put(metric.name, metric.value);
  if (record.best) split.best = split.last;
}

}  // namespace lockstep
