#include <algorithm>

#include "lockstep/io/h5.hpp"
#include "lockstep/models/hrm/hrm_weights.hpp"
#include "lockstep/tasks/hrm/hrm_config.hpp"
#include "lockstep/tasks/weight_exchange.hpp"

namespace lockstep {

namespace {

constexpr AskedOption kAsked[] = {
    {"model.num_heads", "8", "model.mlp_t", "false"},  {"model.h_cycles", "2; TRM: 3"},
    {"model.l_cycles", "2; TRM: 6 (mazes and ARC 4)"}, {"model.pos_encodings", "rope"},
    {"model.puzzle_emb_len", "-1; TRM: 16"},           {"model.halt_max_steps", "16"},
    {"model.q_continue", "true; TRM: false"},
};

OptionValues options_of(const NamedArrays& arrays, const Options&) {
  OptionValues values;
  const std::int64_t hidden = extent(arrays, "embed_tokens.embedding_weight", 1),
                     inter = extent(arrays, "L_level.layers.0.mlp.down_proj.weight", 1),
                     h_layers = count_arrays(arrays, "H_level.layers.#.mlp.down_proj.weight"),
                     puzzle = extent(arrays, "puzzle_emb.weights", 1);
  add_size(values, "model.hidden_size", hidden);
  const std::string mixing = "L_level.layers.0.mlp_t.down_proj.weight";
  const std::int64_t length = extent(arrays, mixing, 0), width = extent(arrays, mixing, 1);
  // The largest expansion that has these widths.
  const auto most = [](std::int64_t gated, std::int64_t inputs) {
    return 1.5 * static_cast<double>(gated) / static_cast<double>(inputs);
  };
  if (hidden > 0 && inter > 0)
    values.emplace_back("model.expansion",
                        join(length > 0 ? std::min(most(inter, hidden), most(width, length)) : most(inter, hidden)));
  add_size(values, "model.l_layers", count_arrays(arrays, "L_level.layers.#.mlp.down_proj.weight"));
  add_size(values, "model.h_layers", h_layers);
  values.emplace_back("model.one_network", h_layers == 0 ? "true" : "false");
  values.emplace_back("model.mlp_t", length > 0 ? "true" : "false");
  values.emplace_back("model.puzzle_emb_ndim", std::to_string(puzzle));
  if (puzzle == 0) values.emplace_back("model.puzzle_emb_len", "-1");
  const bool learned = arrays.find("embed_pos.embedding_weight") != nullptr;
  if (learned || length > 0) values.emplace_back("model.pos_encodings", learned ? "learned" : "none");
  return values;
}

void describe_network(const HrmConfig& config, const H5File& checkpoint, const H5File*, const NamedArrays&,
                      WeightMetadata& metadata) {
  HrmArch arch = config.arch();
  arch.seq_len = checkpoint.int_attribute("/", "seq_len");
  arch.vocab = checkpoint.int_attribute("/", "vocab_size");
  arch.identifiers = checkpoint.int_attribute("/", "num_puzzle_identifiers");
  metadata["data.task"] = checkpoint.text_attribute("/", "task");
  metadata[kSegmentsEntry] = std::to_string(config.segments());
  describe(metadata, arch);
}

std::string from_data(const NamedArrays&) { return "cells of a puzzle, symbols, puzzle identifiers"; }

}  // namespace

WeightExchange exchange_hrm() {
  return {.options = options_of,
          .asked = kAsked,
          .upstream = "HRM",
          .from_data = from_data,
          .describe = of_base<describe_network>};
}

}  // namespace lockstep
