#include "lockstep/formats/network_onnx.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/models/sequences/sasrec_weights.hpp"
#include "lockstep/tasks/sequences/sequence_config.hpp"
#include "lockstep/tasks/weight_exchange.hpp"

namespace lockstep {

namespace {

constexpr AskedOption kAsked[] = {
    {"model.num_heads", "1"},
    {"model.norm", "SASRec: post, pre with --norm_first, original in older versions; TiSASRec: original"},
    {"model.ffn_residual", "true", "model.norm", "original"},
    {"model.pad_mask", "SASRec: none; TiSASRec: query"},
    {"model.ln_eps", "1e-8"},
    {"model.mhc", "collapsed (SASRec.pytorch of baka-world)"},
    {"model.mhc_sinkhorn_iter", "20", "model.mhc", "streams|collapsed"},
};

OptionValues options_of(const NamedArrays& arrays, const Options&) {
  OptionValues values;
  add_size(values, "model.hidden_units", extent(arrays, "item_emb.weight", 1));
  add_size(values, "model.maxlen", extent(arrays, "abs_pos_K_emb.weight", 0));
  add_size(values, "model.maxlen", extent(arrays, "pos_emb.weight", 0) - 1);
  add_size(values, "model.time_span", extent(arrays, "time_matrix_K_emb.weight", 0) - 1);
  add_size(values, "model.num_blocks", count_arrays(arrays, "forward_layernorms.#.weight"));
  const std::int64_t streams = extent(arrays, "mhc_attn.0.phi_pre.weight", 0);
  add_size(values, "model.mhc_expansion_rate", streams);
  if (streams == 0) {
    values.emplace_back("model.mhc", "none");
    if (arrays.find("time_matrix_K_emb.weight") != nullptr)
      values.emplace_back("model.norm", "original");  // TiSASRec without streams has no other form
  }
  return values;
}

void describe_network(const SequenceConfig& config, const H5File& checkpoint, const H5File* data, const NamedArrays&,
                      WeightMetadata& metadata) {
  SasRecArch arch = config.model_options(DType::f32, 0).arch;
  arch.items = checkpoint.int_attribute(kSequenceGroup, "items");
  describe(metadata, arch);
  if (data == nullptr) return;
  SequenceNames names = SequenceNames::read(*data);
  TextFields fields(&metadata);
  fields("data.items", names.items);
}

std::string from_data(const NamedArrays&) { return "number and ids of the items"; }

}  // namespace

WeightExchange exchange_sequence() {
  return {.names = sasrec_names(),
          .options = options_of,
          .asked = kAsked,
          .upstream = "pmixer's code",
          .from_data = from_data,
          .describe = of_base<describe_network>,
          .names_in_data = true,
          .onnx = sasrec_onnx};
}

}  // namespace lockstep
