#include "lockstep/tasks/kgat/bprmf_task.hpp"

#include <cmath>

#include "lockstep/io/h5.hpp"
#include "lockstep/ops/node_rows.hpp"

namespace lockstep {

BprmfTask::BprmfTask(Options options, KgData data)
    : RankingTask(std::move(data), options.cutoffs), options_(std::move(options)), params_(options_.dtype) {
  const auto table = [&](const char* name, std::int64_t rows) {
    const double bound = std::sqrt(6.0 / static_cast<double>(rows + options_.embed_dim));
    return &params_.add(name, {rows, options_.embed_dim}, init::uniform(bound));
  };
  users_ = table("user_embed", this->data().users);
  items_ = table("item_embed", this->data().items);
  params_.allocate(options_.seed);
}

OwnedTensor BprmfTask::item_rows() {
  const Stream stream(params_.device());
  OwnedTensor rows(options_.dtype, items_->shape, params_.device());
  copy(stream, rows, items_->value);
  return rows;
}

void BprmfTask::user_rows(Stream& stream, std::span<const std::int32_t> list, const Tensor& rows) const {
  ops::gather_node_rows(stream, rows, 0, users_->value, list, ops::RowScale::none);
}

void BprmfTask::save(H5File& file) const {
  file.set_attribute("/", "n_users", data().users);
  file.set_attribute("/", "n_items", data().items);
}

}  // namespace lockstep
