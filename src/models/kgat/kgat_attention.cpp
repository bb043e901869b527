#include "lockstep/models/kgat/kgat_attention.hpp"

#include <algorithm>
#include <bit>

#include "lockstep/base/profile.hpp"

namespace lockstep {

namespace {

/// Appends the nodes of a set to `list`, ascending, stores the index of each within the set in `slot`, and clears the
/// set.
void list_members(std::vector<std::uint64_t>& bits, std::vector<std::int32_t>& slot, std::vector<std::int32_t>& list) {
  std::int32_t next = 0;
  for (std::size_t w = 0; w < bits.size(); ++w) {
    for (std::uint64_t left = bits[w]; left != 0; left &= left - 1) {
      const std::size_t node = 64 * w + static_cast<std::size_t>(std::countr_zero(left));
      slot[node] = next++;
      list.push_back(static_cast<std::int32_t>(node));
    }
    bits[w] = 0;
  }
}

}  // namespace

AttentionPlan::AttentionPlan(const KgGraph& graph, std::int64_t first, std::int64_t last, DType dtype, Device device)
    : first_(first),
      last_(last),
      triple_ptr_{0},
      head_ptr_{0},
      tail_ptr_{0},
      row_ptr_(graph.adj_indptr, device),
      edge_ptr_(graph.edge_ptr, device),
      scratch_(std::make_unique<Arena>(device)),
      logits_(dtype, {graph.triples()}, device) {
  std::vector<std::int64_t> place;
  std::vector<std::int32_t> heads, tails, head_slot, tail_slot;
  const std::int64_t begin = graph.indptr[first], end = graph.indptr[last];
  std::vector<std::int32_t> head(end - begin);
  for (std::int64_t h = first; h < last; ++h) {
    const auto n = static_cast<std::size_t>(h);
    std::fill(head.begin() + (graph.indptr[n] - begin), head.begin() + (graph.indptr[n + 1] - begin),
              static_cast<std::int32_t>(h));
  }
  std::vector<std::uint64_t> head_bits((graph.nodes + 63) / 64, 0), tail_bits(head_bits);
  std::vector<std::int32_t> slot_of_head(graph.nodes), slot_of_tail(slot_of_head);
  const auto mark = [](std::vector<std::uint64_t>& bits, std::int32_t node) {
    bits[static_cast<std::size_t>(node) / 64] |= std::uint64_t{1} << (node % 64);
  };
  for (std::size_t r = 0; r < static_cast<std::size_t>(graph.relations); ++r) {
    // Triples are sorted by head.
    const auto all = graph.rel_perm.subspan(graph.rel_indptr[r], graph.rel_indptr[r + 1] - graph.rel_indptr[r]);
    const auto low = std::lower_bound(all.begin(), all.end(), begin), high = std::lower_bound(low, all.end(), end);
    place.insert(place.end(), low, high);
    for (auto e = low; e != high; ++e) {
      mark(head_bits, head[*e - begin]);
      mark(tail_bits, graph.tail[*e]);
    }
    list_members(head_bits, slot_of_head, heads);
    list_members(tail_bits, slot_of_tail, tails);
    for (auto e = low; e != high; ++e) {
      head_slot.push_back(slot_of_head[head[*e - begin]]);
      tail_slot.push_back(slot_of_tail[graph.tail[*e]]);
    }
    triple_ptr_.push_back(std::ssize(place));
    head_ptr_.push_back(std::ssize(heads));
    tail_ptr_.push_back(std::ssize(tails));
  }
  place_ = Resident(std::move(place), device);
  heads_ = Resident(std::move(heads), device);
  tails_ = Resident(std::move(tails), device);
  head_slot_ = Resident(std::move(head_slot), device);
  tail_slot_ = Resident(std::move(tail_slot), device);
}

ops::RelationTriples AttentionPlan::of(std::int64_t relation) const {
  const auto r = static_cast<std::size_t>(relation);
  const auto part = [&]<class T>(const Resident<T>& all, const std::vector<std::int64_t>& ptr) {
    return all.span().subspan(ptr[r], ptr[r + 1] - ptr[r]);
  };
  return {part(heads_, head_ptr_), part(tails_, tail_ptr_), part(head_slot_, triple_ptr_),
          part(tail_slot_, triple_ptr_), part(place_, triple_ptr_)};
}

void refresh_attention(Kgat& net, const KgGraph& graph, const AttentionPlan& plan, ops::ParallelEdges parallel) {
  const profile::Span span("attention of the graph");
  const std::int64_t k = net.arch().relation_dim, d = net.arch().embed_dim;
  Stream stream(net.params().device());
  net.params().refresh(stream);
  plan.scratch().reset();
  for (std::int64_t r = 0; r < graph.relations; ++r) {
    const ops::RelationTriples triples = plan.of(r);
    if (triples.place.empty()) continue;
    ops::attention_logits(stream, plan.scratch(), triples, net.embedding().stored,
                          net.matrices().stored.slice(r, 1).reshaped({d, k}),
                          net.translations().stored.slice(r, 1).reshaped({k}), plan.logits());
  }
  ops::attention_softmax(stream, parallel, plan.row_ptr(), plan.edge_ptr(), plan.first(), plan.last(), plan.logits(),
                         net.adjacency().value);
}

}  // namespace lockstep
