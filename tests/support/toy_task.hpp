#pragma once
#include <cstdint>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/base/permutation.hpp"
#include "lockstep/base/philox.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/train/task.hpp"

namespace lockstep::test {

/// A model whose gradient is known by hand, with data made from the sample's number: parameters w0, w1, ... (width k +
/// 3 each),
///
///   loss of sample i = weight_i sum_k (w_k . x_ik - t_ik)^2 / 2,   weight_i in {1, 2, 3}
///
/// one record per parameter, so that parameters become ready one after the other, last one first.
class ToyTask : public ShardTask {
 public:
  explicit ToyTask(DType dtype = DType::f32, std::int64_t samples = 100, int count = 5)
      : samples_(samples), params_(dtype) {
    for (int k = 0; k < count; ++k) params_.add("w" + std::to_string(k), Shape{k + 3}, init::normal(0.5));
    params_.allocate(11);
  }
  const char* kind() const override { return "toy"; }
  ParamStore& params() override { return params_; }
  std::int64_t size(Split split) const override {
    return split == Split::train ? samples_ : split == Split::validation ? samples_ / 3 : 0;
  }

  ShardLoss loss(Tape& tape, const Shard& shard) const override {
    if (shard.first <= fails_at && fails_at < shard.first + shard.count)
      throw std::runtime_error("sample " + std::to_string(fails_at) + " is bad");
    {
      const std::lock_guard lock(mutex_);
      computed.push_back(shard);
    }
    const Permutation order(samples_, shard.seed, static_cast<std::uint64_t>(shard.epoch));
    double weight = 0;
    Var sum = visit_float(tape.dtype(), [&]<class T>() {
      Var loss;
      for (const Param& p : params_.all()) {
        const std::int64_t width = p.shape.size();
        Var next = tape.output(Shape{1}, true);
        T total = loss ? *loss.value().template data<T>() : T{0};
        Tensor kept = tape.keep(Shape{shard.count, width + 1});  // x, and weight * error
        for (std::int64_t i = 0; i < shard.count; ++i) {
          T* row = kept.data<T>() + i * (width + 1);
          const std::int64_t sample = order(shard.first + i);
          const double w = weight_of(sample);
          T error = static_cast<T>(-target(p, sample));
          for (std::int64_t c = 0; c < width; ++c) {
            row[c] = static_cast<T>(input(p, sample, c));
            error += row[c] * p.value.template data<T>()[c];
          }
          row[width] = static_cast<T>(w) * error;
          total += static_cast<T>(w) * error * error / 2;
          if (!loss) weight += w;
        }
        *next.value().template data<T>() = total;
        const Var before = loss;
        tape.record("toy", next, {&p}, [=, &tape, &p] {
          const T dy = *next.grad().template data<T>();
          const Target to = tape.grad_of(p);
          for (std::int64_t i = 0; i < shard.count; ++i) {
            const T* row = kept.data<T>() + i * (width + 1);
            for (std::int64_t c = 0; c < width; ++c) to.tensor.template data<T>()[c] += dy * row[width] * row[c];
          }
          if (!before) return;
          const Target back = tape.grad_of(before);
          T* d = back.tensor.template data<T>();
          *d = back.accumulate ? *d + dy : dy;
        });
        loss = next;
      }
      return loss;
    });
    return {sum, weight};
  }

  std::int64_t samples_in_cache() const override { return in_cache; }
  RowCounts count_rows(const Shard& shard, std::span<std::int64_t> each) const override {
    ++row_counts;
    if (most_rows == 0) return {};
    const Permutation order(samples_, shard.seed, static_cast<std::uint64_t>(shard.epoch));
    RowCounts all;
    for (std::int64_t i = 0; i < shard.count; ++i) {
      const std::int64_t rows = order(shard.first + i) % (most_rows + 1);
      all.rows += rows;
      if (!each.empty()) each[static_cast<std::size_t>(i)] = rows;
    }
    return all;
  }
  std::int64_t sum_count() const override { return 2; }
  void evaluate(Tape&, Split, std::int64_t first, std::int64_t count, double* sums) const override {
    visit_float(params_.dtype(), [&]<class T>() {
      for (std::int64_t sample = first; sample < first + count; ++sample) {
        for (const Param& p : params_.all()) {
          double error = -target(p, sample);
          for (std::int64_t c = 0; c < p.shape.size(); ++c)
            error += input(p, sample, c) * static_cast<double>(p.value.template data<T>()[c]);
          sums[0] += error * error / 2;
        }
        sums[1] += 1;
      }
    });
  }
  std::vector<Metric> metrics(Split, const std::vector<double>& sums) const override {
    return {{"count", sums[1]}, {"loss", sums[0] / sums[1]}};
  }
  void save(H5File&) const override {}
  std::uint64_t data_hash() const override { return 42; }

  /// The gradient of the sum over positions [first, first + count) of an epoch's order, in double and in order; the
  /// loss and weight beside it.
  std::vector<double> reference(std::uint64_t seed, std::int64_t epoch, std::int64_t first, std::int64_t count,
                                double& loss, double& weight) const {
    std::vector<double> gradient(static_cast<std::size_t>(params_.flat_size()), 0);
    const Permutation order(samples_, seed, static_cast<std::uint64_t>(epoch));
    loss = weight = 0;
    visit_float(params_.dtype(), [&]<class T>() {
      for (std::int64_t i = first; i < first + count; ++i) {
        const std::int64_t sample = order(i);
        weight += weight_of(sample);
        for (const Param& p : params_.all()) {
          double error = -target(p, sample);
          for (std::int64_t c = 0; c < p.shape.size(); ++c)
            error += input(p, sample, c) * static_cast<double>(p.value.template data<T>()[c]);
          loss += weight_of(sample) * error * error / 2;
          for (std::int64_t c = 0; c < p.shape.size(); ++c) {
            gradient[static_cast<std::size_t>(p.offset + c)] += weight_of(sample) * error * input(p, sample, c);
          }
        }
      }
    });
    return gradient;
  }

  std::int64_t fails_at = -1;  ///< a position whose shard throws
  std::int64_t in_cache = 0;   ///< samples_in_cache()
  std::int64_t most_rows = 0;  ///< of a sample; 0: samples do not differ in rows
  mutable int row_counts = 0;  ///< calls of count_rows()
  mutable std::vector<Shard> computed;

 private:
  static double weight_of(std::int64_t sample) { return static_cast<double>(1 + sample % 3); }
  static double input(const Param& p, std::int64_t sample, std::int64_t c) {
    return 2 * Philox(3, static_cast<std::uint64_t>(p.index), "x", static_cast<std::uint64_t>(sample))
                   .uniform(static_cast<std::uint64_t>(c)) -
           1;
  }
  static double target(const Param& p, std::int64_t sample) {
    return Philox(3, static_cast<std::uint64_t>(p.index), "t", static_cast<std::uint64_t>(sample)).uniform(0);
  }
  std::int64_t samples_;
  ParamStore params_;
  mutable std::mutex mutex_;
};

}  // namespace lockstep::test
