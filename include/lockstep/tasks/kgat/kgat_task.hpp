#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/named.hpp"
#include "lockstep/models/kgat/kgat.hpp"
#include "lockstep/models/kgat/kgat_propagation.hpp"
#include "lockstep/ops/graph_attention.hpp"
#include "lockstep/tasks/kgat/ranking_task.hpp"

namespace lockstep {

/// The attribute of a checkpoint that was trained with a GraphControl other than whole.
inline constexpr const char* kGraphAttribute = "graph";

/// How the ranks share the propagation of a step.
enum class KgatMode : std::uint8_t {
  replicate,    ///< every rank computes all rows; nothing is exchanged
  nested_rows,  ///< a rank computes and updates the rows that it owns; a layer takes the rows on which the batch depends
};
constexpr auto names_of(KgatMode) { return std::array{"replicate", "nested-rows"}; }

/// The adjacency before the first refresh of the attention.
enum class FirstAdjacency : std::uint8_t { random_walk, symmetric, symmetric_upstream, attention };
constexpr auto names_of(FirstAdjacency) {
  return std::array{"random-walk", "symmetric", "symmetric-upstream", "attention"};
}

/// KGAT with its data: parameters, propagation, ranking. KgatProgram trains it.
class KgatTask final : public RankingTask {
 public:
  struct Options {
    KgatArch arch;  ///< the constructor fills in the sizes of the data
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    FirstAdjacency laplacian = FirstAdjacency::random_walk;
    ops::ParallelEdges parallel_edges = ops::ParallelEdges::per_triple;
    GraphControl graph = GraphControl::whole;  ///< what `data` holds
    bool attention = true;                     ///< refreshed after each epoch; otherwise the first adjacency stays
    bool triples = true;                       ///< train the loss of triples too
    std::vector<double> message_dropout;       ///< per layer
    double node_dropout = 0;
    std::optional<DType> storage;  ///< bf16, f16: the type in which products read the embeddings
    double cf_l2 = 1e-5, kg_l2 = 1e-5;
    std::int64_t kg_batch =
        0;  ///< samples of a step on triples, counted as the batch is; 0: twice those on interactions
    std::vector<std::int64_t> cutoffs = {20, 40, 60, 80, 100};
    std::optional<KgatMode> mode;  ///< none: nested_rows on CPUs, replicate on GPUs
    double row_threshold = 0.7;    ///< of nested_rows
    std::string pretrained;        ///< a file with user_embed and item_embed, or bprmf (KgatConfig); "": none
    double pretrained_scale = 1;   ///< multiplies these tables
  };
  /// errors  Error (usage): options that contradict each other; (data): pre-trained tables of other sizes
  KgatTask(Options options, KgData data);

  const Options& options() const { return options_; }
  Kgat& net() { return *net_; }
  KgatPropagation& propagation() { return *propagation_; }
  const char* kind() const override { return "kgat"; }
  ParamStore& params() override { return net_->params(); }
  void move_to(Device device) override;
  std::unique_ptr<TrainingProgram> make_program(World& world, const RunConfig& config, int threads) override;
  void save(H5File& file) const override;
  OwnedTensor item_rows() override;
  /// The graph shuffled, and removed; none if the task was trained with one of them. Attention is computed again from
  /// the weights, any other adjacency from the graph.
  std::vector<Control> controls() const override;

 private:
  void load_pretrained();
  std::unique_ptr<SampleTask> control(GraphControl graph) const;
  std::int64_t width() const override { return options_.arch.final_width(); }
  std::int64_t first_user() const override { return data().entities; }
  void user_rows(Stream&, std::span<const std::int32_t> list, const Tensor& rows) const override {
    propagation_->gather(list, rows);
  }

  Options options_;
  std::unique_ptr<Kgat> net_;
  std::unique_ptr<KgatPropagation> propagation_;
};

}  // namespace lockstep
