#include "lockstep/models/bprmf.hpp"

#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/ops/node_rows.hpp"

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
  const Tensor rows = tape.keep({count, options_.embed_dim}, tape.real_dtype());
  const auto [users] = for_kernels(
      tape.stream(), tape.arena(),
      std::span(judged_.users(split)).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
  ops::gather_node_rows(tape.stream(), rows, 0, users_->value, users, ops::RowScale::none);
  judge(data_, judged_, ranking_, packed_, rows, tape, split, first, count, sums);
}

std::vector<std::vector<RankedItem>> BprmfModel::suggest(std::span<const std::int64_t> users, std::int64_t count) {
  const std::int64_t d = options_.embed_dim;
  const OwnedTensor rows(options_.dtype, {static_cast<std::int64_t>(users.size()), d});
  const HostView table(users_->value);
  visit_float(options_.dtype, [&]<class T>() {
    for (std::size_t m = 0; m < users.size(); ++m)
      std::copy_n(table->data<const T>() + users[m] * d, d, rows->data<T>() + static_cast<std::int64_t>(m) * d);
  });
  return best_items(data_, HostView(items_->value), users, rows, count);
}

void BprmfModel::save(H5File& file) const {
  file.set_attribute("/", "n_users", data_.users);
  file.set_attribute("/", "n_items", data_.items);
}

}  // namespace lockstep
