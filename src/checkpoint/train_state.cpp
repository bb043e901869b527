#include "lockstep/checkpoint/train_state.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {
using Json = nlohmann::json;
constexpr const char *kHistory = "history", *kProducts = "products";
}  // namespace

void History::append(const std::vector<std::pair<std::string, double>>& record) {
  for (const auto& [name, value] : record) {
    std::vector<double>& series = series_[name];
    series.resize(size_ + 1, std::numeric_limits<double>::quiet_NaN());
    series.back() = value;
  }
  ++size_;
  for (auto& [name, series] : series_) series.resize(size_, std::numeric_limits<double>::quiet_NaN());
}

void History::drop_last() {
  --size_;
  for (auto& [name, series] : series_) series.pop_back();
  std::erase_if(series_, [&](const auto& entry) { return known(entry.first).empty(); });
}

const std::vector<double>& History::series(const std::string& name) const {
  static const std::vector<double> none;
  const auto found = series_.find(name);
  return found == series_.end() ? none : found->second;
}

std::vector<double> History::known(const std::string& name) const {
  std::vector<double> values;
  for (const double value : series(name))
    if (!std::isnan(value)) values.push_back(value);
  return values;
}

void History::restore(std::map<std::string, std::vector<double>> series) {
  series_ = std::move(series);
  size_ = series_.empty() ? 0 : static_cast<std::int64_t>(series_.begin()->second.size());
  for (const auto& [name, values] : series_)
    require_data(static_cast<std::int64_t>(values.size()) == size_, "history of '", name, "': ", values.size(),
                 " records, but other series have ", size_);
}

std::string pack(const TrainState& state) {
  Json json;
  TrainState::visit(state, [&](const char* name, const auto& field) { json[name] = field; });
  json[kHistory] = state.history.all();
  json[kProducts] = state.products;
  std::string bytes;
  Json::to_cbor(json, bytes);
  return bytes;
}

TrainState unpack(const std::string& bytes) {
  const Json json = Json::from_cbor(bytes);
  TrainState state;
  TrainState::visit(state, [&](const char* name, auto& field) { json.at(name).get_to(field); });
  json.at(kProducts).get_to(state.products);
  state.history.restore(json.at(kHistory).get<std::map<std::string, std::vector<double>>>());
  return state;
}

}  // namespace lockstep
