#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/models/kgat/kgat_weights.hpp"
#include "lockstep/ops/embedding.hpp"
#include "lockstep/ops/row_scores.hpp"

namespace lockstep {
namespace {

class BprmfFunction : public ArrayFunction {
 public:
  BprmfFunction(BprmfSizes sizes, const NamedArrays& file, const std::string& what)
      : ArrayFunction({}, {}, 1), sizes_(sizes), params_(dtype_of_arrays(file)) {
    users_ = &params_.add("user_embed.weight", {sizes.users, sizes.width}, init::zeros());
    items_ = &params_.add("item_embed.weight", {sizes.items, sizes.width}, init::zeros());
    params_.allocate(0);
    load_arrays(params_, file, {}, what);
    set("items_per_user", 1);
  }

  void set(const std::string& name, std::int64_t value) override {
    if (name != "items_per_user") ArrayFunction::set(name, value);
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    require_usage(value >= 1 && value <= kMost, "setting 'items_per_user' = ", value, ": must be 1 to ", kMost);
    set_arrays({{"users", DType::i64, {}}, {"items", DType::i64, {value}}}, {{"scores", DType::f32, {value}}},
               static_cast<double>(sizes_.width + 2 * value));
  }

 private:
  void run(Arena& arena, std::int64_t first, std::int64_t n, std::span<const void* const> inputs,
           std::span<void* const> outputs) const override {
    const auto *users = static_cast<const std::int64_t*>(inputs[0]),
               *items = static_cast<const std::int64_t*>(inputs[1]);
    const std::int64_t each = this->outputs()[0].count(), count = n * each;
    const std::span<std::int32_t> ids = allocate(arena, DType::i32, {count}).span<std::int32_t>(),
                                  user_ids = allocate(arena, DType::i32, {n}).span<std::int32_t>();
    for (std::int64_t b = 0; b < n; ++b) {
      require_usage(users[b] >= 0 && users[b] < sizes_.users, "sample ", first + b, ": user ", users[b],
                    ", must be 0 to ", sizes_.users - 1);
      user_ids[b] = static_cast<std::int32_t>(users[b]);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      require_usage(items[i] >= 0 && items[i] < sizes_.items, "sample ", first + i / each, ", place ", i % each,
                    ": item ", items[i], ", must be 0 to ", sizes_.items - 1);
      ids[i] = static_cast<std::int32_t>(items[i]);
    }
    Stream stream;
    const Tensor rows = allocate(arena, params_.dtype(), {n, sizes_.width}),
                 scores = allocate(arena, params_.dtype(), {n, each});
    ops::embedding_forward(stream, rows, users_->value, user_ids, 1);
    ops::row_scores(stream, scores, rows, items_->value, ids);
    visit_float(params_.dtype(), [&]<class T>() {
      std::transform(scores.data<T>(), scores.data<T>() + count, static_cast<float*>(outputs[0]),
                     [](T score) { return static_cast<float>(score); });
    });
  }

  BprmfSizes sizes_;
  ParamStore params_;
  const Param *users_ = nullptr, *items_ = nullptr;
};

}  // namespace

std::unique_ptr<ArrayFunction> bprmf_function(const NamedArrays& file, const std::string& what) {
  BprmfSizes sizes;
  parse(file.metadata, what, sizes);
  require_values(file, (sizes.users + sizes.items) * sizes.width, what);
  return std::make_unique<BprmfFunction>(sizes, file, what);
}

}  // namespace lockstep
