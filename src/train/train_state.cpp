#include "lockstep/train/train_state.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "lockstep/base/error.hpp"

namespace lockstep {

void History::append(const std::vector<std::pair<std::string, double>>& record) {
  for (const auto& [name, value] : record) {
    std::vector<double>& series = series_[name];
    series.resize(static_cast<std::size_t>(size_ + 1), std::numeric_limits<double>::quiet_NaN());
    series.back() = value;
  }
  ++size_;
  for (auto& [name, series] : series_) {
    series.resize(static_cast<std::size_t>(size_), std::numeric_limits<double>::quiet_NaN());
  }
}

const std::vector<double>& History::series(const std::string& name) const {
  static const std::vector<double> none;
  const auto found = series_.find(name);
  return found == series_.end() ? none : found->second;
}

std::vector<double> History::known(const std::string& name) const {
  std::vector<double> values;
  for (const double value : series(name)) {
    if (!std::isnan(value)) values.push_back(value);
  }
  return values;
}

void History::restore(std::map<std::string, std::vector<double>> series) {
  series_ = std::move(series);
  size_ = series_.empty() ? 0 : static_cast<std::int64_t>(series_.begin()->second.size());
  for (const auto& [name, values] : series_) {
    require_data(static_cast<std::int64_t>(values.size()) == size_, "history of '", name, "': ", values.size(),
                 " records, but other series have ", size_);
  }
}

namespace {

class Packer {
 public:
  template <class T>
  void number(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
  }
  void text(const std::string& value) {
    number(value.size());
    const auto* bytes = reinterpret_cast<const std::byte*>(value.data());
    bytes_.insert(bytes_.end(), bytes, bytes + value.size());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() {
    const auto bytes = take(number<std::size_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> take(std::size_t count) {
    require(count <= bytes_.size(), "unpacking a training state: ", count, " more bytes expected, ", bytes_.size(),
            " left");
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  std::span<const std::byte> bytes_;
};

}  // namespace

std::vector<std::byte> pack(const TrainState& state) {
  Packer out;
  TrainState::visit(state, [&]<class T>(const char*, const T& field) {
    if constexpr (std::is_same_v<T, std::string>) {
      out.text(field);
    } else {
      out.number(field);
    }
  });
  out.number(state.history.all().size());
  for (const auto& [name, values] : state.history.all()) {
    out.text(name);
    out.number(values.size());
    for (const double value : values) out.number(value);
  }
  return out.take();
}

TrainState unpack(std::span<const std::byte> bytes) {
  Unpacker in(bytes);
  TrainState state;
  TrainState::visit(state, [&]<class T>(const char*, T& field) {
    if constexpr (std::is_same_v<T, std::string>) {
      field = in.text();
    } else {
      field = in.number<T>();
    }
  });
  std::map<std::string, std::vector<double>> series;
  for (auto left = in.number<std::size_t>(); left > 0; --left) {
    std::vector<double>& values = series[in.text()];
    for (auto n = in.number<std::size_t>(); n > 0; --n) values.push_back(in.number<double>());
  }
  state.history.restore(std::move(series));
  return state;
}

}  // namespace lockstep
