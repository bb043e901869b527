#include "lockstep/models/hrm/hrm_weights.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"

namespace lockstep {

namespace {

void visit(TextFields& fields, HrmArch& a) {
  fields("model.seq_len", a.seq_len);
  fields("model.vocab_size", a.vocab);
  fields("model.num_puzzle_identifiers", a.identifiers);
  fields("model.hidden_size", a.hidden);
  fields("model.num_heads", a.heads);
  fields("model.expansion", a.expansion);
  fields("model.h_layers", a.h_layers);
  fields("model.l_layers", a.l_layers);
  fields("model.h_cycles", a.h_cycles);
  fields("model.l_cycles", a.l_cycles);
  fields("model.puzzle_emb_ndim", a.puzzle_ndim);
  fields("model.puzzle_emb_len", a.puzzle_positions);
  fields("model.pos_encodings", a.positions);
  fields("model.rms_norm_eps", a.rms_eps);
  fields("model.rope_theta", a.rope_theta);
  fields("model.one_network", a.one_network);
  fields("model.last_cycle_gradient", a.last_cycle_gradient);
}

constexpr const char* kMixing = "model.mlp_t";  ///< absent from files of earlier versions

}  // namespace

void describe(WeightMetadata& metadata, HrmArch arch) {
  TextFields fields(&metadata);
  visit(fields, arch);
  fields(kMixing, arch.mlp_t);
}

HrmArch parse_hrm(const WeightMetadata& metadata, const std::string& what) {
  require_exported(metadata, "hrm", what);
  HrmArch a;
  TextFields fields(&metadata, what);
  visit(fields, a);
  if (metadata.contains(kMixing)) fields(kMixing, a.mlp_t);
  constexpr std::int64_t kLongest = std::int64_t{1} << 20;  // no array may have these extents to bound them
  const bool possible = std::min({a.seq_len, a.vocab, a.identifiers, a.hidden, a.heads, a.h_layers, a.l_layers,
                                  a.h_cycles, a.l_cycles}) >= 1 &&
                        std::min(a.puzzle_ndim, a.puzzle_positions) >= -1 && a.expansion > 0 && a.expansion < 1e6 &&
                        std::max(a.seq_len, a.puzzle_positions) <= kLongest && a.rms_eps > 0 && a.rope_theta > 0;
  require_data(possible && (a.positions == "rope" || a.positions == "learned" || a.positions == "none"), what,
               ": its metadata have an extent that is out of range or an unknown encoding of positions");
  try {
    a.check();
  } catch (const Error& error) {
    throw Error(Fault::data, what + ": " + error.what());
  }
  return a;
}

}  // namespace lockstep
