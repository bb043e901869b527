#include "lockstep/models/bprmf.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep {

BprmfModel::BprmfModel(Options options, KgData data)
    : options_(std::move(options)),
      data_(std::move(data)),
      params_(options_.dtype),
      ranking_(options_.cutoffs),
      judged_(data_) {
  const auto table = [&](const char* name, std::int64_t rows) {
    const double bound = std::sqrt(6.0 / static_cast<double>(rows + options_.embed_dim));
    return &params_.add(name, {rows, options_.embed_dim}, init::uniform(bound));
  };
  users_ = table("user_embed", data_.users);
  items_ = table("item_embed", data_.items);
  params_.allocate(options_.seed);
}

std::int64_t BprmfModel::size(Split split) const {
  return split == Split::train ? data_.train.count() : static_cast<std::int64_t>(judged_.users(split).size());
}

ShardLoss BprmfModel::loss(Tape&, const Shard&) const {
  throw Error(Fault::usage,
              "a model of kind bprmf draws whole batches, not shards of samples: only training and evaluation know it");
}

void BprmfModel::evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const {
  const std::int64_t d = options_.embed_dim;
  const Tensor rows = tape.keep({count, d});
  visit_float(options_.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t user = judged_.users(split)[static_cast<std::size_t>(first + i)];
      std::copy_n(users_->value.data<const T>() + user * d, d, rows.data<T>() + i * d);
    }
  });
  judge(data_, judged_, ranking_, packed_, rows, tape, split, first, count, sums);
}

std::vector<std::vector<RankedItem>> BprmfModel::suggest(std::span<const std::int64_t> users, std::int64_t count) {
  const std::int64_t d = options_.embed_dim;
  const OwnedTensor rows(options_.dtype, {static_cast<std::int64_t>(users.size()), d});
  visit_float(options_.dtype, [&]<class T>() {
    for (std::size_t m = 0; m < users.size(); ++m)
      std::copy_n(users_->value.data<const T>() + users[m] * d, d, rows->data<T>() + static_cast<std::int64_t>(m) * d);
  });
  return best_items(data_, items_->value, users, rows, count);
}

void BprmfModel::save(H5File& file) const {
  file.set_attribute("/", "n_users", data_.users);
  file.set_attribute("/", "n_items", data_.items);
}

}  // namespace lockstep
