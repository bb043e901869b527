#include "lockstep/models/sequences/sasrec_weights.hpp"

namespace lockstep {

namespace {

void visit(TextFields& fields, SasRecArch& a) {
  fields("model.items", a.items);
  fields("model.maxlen", a.slots);
  fields("model.hidden_units", a.hidden);
  fields("model.num_heads", a.heads);
  fields("model.num_blocks", a.blocks);
  fields("model.time_span", a.time_span);
  fields("model.norm", a.norm);
  fields("model.pad_mask", a.pad_mask);
  fields("model.ffn_residual", a.ffn_residual);
  fields("model.ln_eps", a.ln_eps);
  fields("model.mhc", a.mhc);
  fields("model.mhc_expansion_rate", a.streams);
  fields("model.mhc_sinkhorn_iter", a.sinkhorn_iterations);
}

}  // namespace

NameRules sasrec_names() {
  constexpr auto kImport = NameRule::Use::import;
  static constexpr NameRule kNames[] = {
      {"attention_layers.#.q_w.weight", "attention_layers.#.in_proj_weight", 0, 3, kImport},
      {"attention_layers.#.k_w.weight", "attention_layers.#.in_proj_weight", 1, 3, kImport},
      {"attention_layers.#.v_w.weight", "attention_layers.#.in_proj_weight", 2, 3, kImport},
      {"attention_layers.#.q_w.bias", "attention_layers.#.in_proj_bias", 0, 3, kImport},
      {"attention_layers.#.k_w.bias", "attention_layers.#.in_proj_bias", 1, 3, kImport},
      {"attention_layers.#.v_w.bias", "attention_layers.#.in_proj_bias", 2, 3, kImport},
      {"attention_layers.#.out_w.weight", "attention_layers.#.out_proj.weight", 0, 1, kImport},
      {"attention_layers.#.out_w.bias", "attention_layers.#.out_proj.bias", 0, 1, kImport},
  };
  return kNames;
}

void describe(WeightMetadata& metadata, SasRecArch arch) {
  TextFields fields(&metadata);
  visit(fields, arch);
}

SasRecArch parse_sasrec(const WeightMetadata& metadata, const std::string& what) {
  const auto kind = metadata.find(kKindEntry);
  SasRecArch arch;
  arch.timed = kind != metadata.end() && kind->second == "tisasrec";
  require_exported(metadata, arch.timed ? "tisasrec" : "sasrec", what);
  TextFields fields(&metadata, what);
  visit(fields, arch);
  arch.check(Fault::data);
  return arch;
}

}  // namespace lockstep
