#include "lockstep/optim/flat_gradient.hpp"

namespace lockstep {

NonzeroElements::NonzeroElements(const ParamStore& params) {
  for (const Param& p : params.all()) {
    if (!p.row_sparse || p.shape.size() == 0) continue;
    tables_.push_back({.param = &p,
                       .range = {p.offset, p.offset + p.shape.size()},
                       .columns = p.shape.size() / p.shape[0],
                       .rows = std::vector<std::uint64_t>(bitmap_words(p.shape[0]))});
  }
}

std::span<std::uint64_t> NonzeroElements::rows_of(const Param& param) {
  const auto found = std::ranges::find(tables_, &param, &Table::param);
  require(found != tables_.end(), "looking up the touched rows of ", param.name, ": it is not row-sparse");
  return found->rows;
}

void NonzeroElements::add_all(FlatRange within) {
  for (Table& t : tables_) {
    if (t.range.begin < within.begin || t.range.begin >= within.end) continue;
    std::fill(t.rows.begin(), t.rows.end(), ~std::uint64_t{0});
    if (const std::int64_t rest = t.param->shape[0] % 64; rest > 0) t.rows.back() >>= 64 - rest;
  }
}

}  // namespace lockstep
