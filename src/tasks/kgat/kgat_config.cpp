#include "lockstep/tasks/kgat/kgat_config.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/tasks/kgat/kgat_sampler.hpp"
#include "lockstep/train/run_config.hpp"

namespace lockstep {

namespace {

constexpr const char* kBprmf = "bprmf";

/// Defaults of the reference programs, for keys that every kind has.
void set_common_defaults(Options& o) {
  o.set_defaults({"batch.size = 1024", "optim.lr = 0.0001", "optim.weight_decay = 0", "train.epochs = 1000",
                  "eval.every = 10", "stop.patience = 10", "run.seed = 2019"});
  o.alias("batch.size", "cf_batch_size");
  o.alias("eval.every", "evaluate_every");
  o.alias("train.epochs", "n_epoch");
  o.alias("stop.patience", "stopping_steps");
}

/// errors  Error (usage) naming the options that a program with LazyAdam does not support
void require_plain_adam(const RunConfig& config, const char* kind) {
  const auto& o = config.optim;
  require_usage(o.name == "adam" && o.weight_decay == 0, "option optim.name = ", o.name,
                ", optim.weight_decay = ", o.weight_decay, ": a model of kind ", kind,
                " is trained by adam without weight decay");
  require_usage(o.ema == 0, "option optim.ema = ", o.ema, ": a model of kind ", kind, " is trained without it");
  require_usage(!o.lazy, "option optim.lazy = true: a model of kind ", kind,
                " is trained by adam that moves every row; omit it");
}

void add_cutoffs(Options& o, std::vector<std::int64_t>* target) {
  o.add("eval.k,eval.ks,Ks,topk", target, {20, 40, 60, 80, 100}, between(1, 1e6),
        "cutoffs K of precision, recall, NDCG and hit, ascending; recall at the first one selects the best weights");
}

void require_graph(const H5File& file) {
  require_data(file.has_attribute("/", "n_ckg_triples"), "planning for ", file.path(),
               ": not a prepared knowledge graph; make it with lockstep-prep kg");
}

}  // namespace

void KgatConfig::add_options(Options& o) {
  set_common_defaults(o);
  KgatArch& arch = model_.arch;
  o.add("model.embed_dim,embed_size,embed_dim", &arch.embed_dim, 64, between(1, kMostWidth),
        "width of the embeddings of entities and users");
  o.add("model.relation_dim,kge_size,relation_dim", &arch.relation_dim, 64, between(1, kMostWidth),
        "width of the space of each relation");
  o.add("model.conv_dims,conv_dim_list,layer_size", &arch.conv_dims, {64, 32, 16}, between(1, kMostWidth),
        "widths of the propagation layers");
  o.choice("model.aggregator,aggregation_type,alg_type", &arch.aggregator, ops::Aggregator::bi_interaction,
           "how a node's embedding and its neighbours' sum become the next layer's")
      .value_alias("bi", "bi-interaction");
  o.choice("model.laplacian,laplacian_type,adj_type", &model_.laplacian, FirstAdjacency::random_walk,
           "adjacency of the first epoch; symmetric-upstream as the reference programs compute it, attention from the "
           "initial embeddings")
      .value_alias("si", "random-walk")
      .value_alias("bi", "symmetric");
  o.choice("model.parallel_edges", &model_.parallel_edges, ops::ParallelEdges::per_triple,
           "softmax over the triples of a head, or (as the PyTorch program) over its neighbours with the logits of "
           "parallel triples added");
  o.add("model.mess_dropout,mess_dropout", &model_.message_dropout, {0.1, 0.1, 0.1}, below_one,
        "dropout of the layers' outputs: one rate for all layers, or one per layer");
  o.add("model.node_dropout,node_dropout", &model_.node_dropout, 0, below_one,
        "share of the edges that a step leaves out");
  o.add("model.leaky_slope", &arch.slope, 0.01, non_negative,
        "slope of LeakyReLU below 0 (the TensorFlow program: 0.2)");
  o.add("model.attention,use_att", &model_.attention, true,
        "recompute the adjacency from the embeddings after each epoch");
  o.add("model.kge,use_kge", &model_.triples, true, "also train on the triples of the graph");
  o.choice(
      "data.graph", &model_.graph, GraphControl::whole,
      "knowledge graph: that of the data set (whole), with the tails of each relation permuted at random by run.seed "
      "(shuffled), or none (removed); shuffled and removed are controls that show the value of the graph");
  o.add("model.pretrain=bprmf|FILE|none", &model_.pretrained, "",
        "bprmf: first train matrix factorisation, in the folder pretrain of the run directory, and start from its best "
        "tables; FILE: start from those of a bprmf checkpoint, or of any HDF5 file with user_embed and item_embed; "
        "none or empty: start from random ones");
  o.add("model.pretrain_epochs", &pretrain_epochs_, 60, at_least(1),
        "pretrain = bprmf: passes over the interactions, unless a stop.* rule ends it earlier");
  o.add("model.pretrain_lr", &pretrain_lr_, 0.001, positive, "pretrain = bprmf: its optim.lr");
  o.add("model.pretrain_l2", &pretrain_l2_, 0.01, non_negative, "pretrain = bprmf: its loss.cf_l2");
  o.add("model.pretrain_scale", &model_.pretrained_scale, 1, positive,
        "factor for these tables; larger ones weigh more against the layers, whose outputs have length 1");
  o.add("batch.kg_size,kg_batch_size", &model_.kg_batch, 0, non_negative,
        "triples per step, counted as batch.size is; 0: twice batch.size");
  o.choice("model.storage", &storage_, "fp32", {"fp32", "bf16", "fp16"},
           "type in which products with the adjacency read embeddings; sums, weights and updates follow run.precision");
  o.choice("dist.mode", &mode_, "auto", {"auto", "replicate", "nested-rows"},
           "how the ranks share the propagation: every rank computes all rows, or a rank computes its own rows among "
           "those on which the batch depends. On CPUs both give the same bits, on GPUs they agree to rounding. auto: "
           "nested-rows on CPUs, replicate on GPUs")
      .may_change();
  o.add("dist.row_threshold", &model_.row_threshold, 0.7, fraction,
        "nested-rows: a layer that needs more than this share of the nodes computes all of them; 0: every layer does")
      .may_change();
  o.section("loss", "Loss");
  o.add("loss.cf_l2,cf_l2loss_lambda", &model_.cf_l2, 1e-5, non_negative,
        "weight of the embeddings' squares in the loss of interactions");
  o.add("loss.kg_l2,kg_l2loss_lambda", &model_.kg_l2, 1e-5, non_negative,
        "weight of the projections' squares in the loss of triples");
  add_cutoffs(o, &model_.cutoffs);
}

KgatTask::Options KgatConfig::resolved(DType dtype) const {
  KgatTask::Options options = model_;
  if (options.pretrained == "none") options.pretrained.clear();
  options.dtype = dtype;
  std::vector<double>& rates = options.message_dropout;  // equal ones, as by default, are one for all layers
  if (!rates.empty() && std::ranges::count(rates, rates.front()) == std::ssize(rates)) rates.resize(1);
  options.mode = named<KgatMode>(mode_);  // auto: none
  if (storage_ != "fp32") options.storage = storage_ == "bf16" ? DType::bf16 : DType::f16;
  require_usage(!options.storage || dtype == DType::f32, "option model.storage = ", storage_,
                ": needs run.precision = fp32");
  return options;
}

void KgatConfig::check() const {
  const KgatTask::Options options = resolved();
  const RankingMetrics metrics{options.cutoffs};  // checks them
  const auto layers = static_cast<std::size_t>(options.arch.layers()), rates = options.message_dropout.size();
  require_usage(rates == 1 || rates == layers, "option model.mess_dropout: ", rates, " rates for the ", layers,
                " layers of model.conv_dims");
}

std::optional<Pretraining> KgatConfig::pretraining() const {
  if (model_.pretrained != kBprmf) return {};
  return Pretraining{kBprmf,
                     {{"train.epochs", join(pretrain_epochs_)},
                      {"optim.lr", exact(pretrain_lr_)},
                      {"loss.cf_l2", exact(pretrain_l2_)}}};
}

void KgatConfig::require_supported(const RunConfig& config, int) const { require_plain_adam(config, "kgat"); }

std::unique_ptr<Task> KgatConfig::load(const TaskSource& source) const {
  KgatTask::Options options = resolved(source.dtype);
  options.seed = source.seed;
  if (options.pretrained == kBprmf) options.pretrained = source.pretrained.string();
  if (!source.reads_initial_weights()) options.pretrained.clear();
  std::uint64_t shuffled_by = source.seed;
  if (source.checkpoint != nullptr) {
    const H5File& file = *source.checkpoint;
    const std::string trained = file.has_attribute("/", kGraphAttribute) ? file.text_attribute("/", kGraphAttribute)
                                                                         : name(GraphControl::whole);
    require_usage(trained == name(options.graph), "option data.graph = ", name(options.graph),
                  ": the checkpoint was trained with ", trained,
                  ", and its attention belongs to that graph; use data.graph = ", trained,
                  ", or eval --controls, which evaluates weights with other graphs");
    shuffled_by = static_cast<std::uint64_t>(file.int_attribute("/", "seed"));
  }
  KgData data = source.data_memory.data_set(source.path, KgData::read).with(options.graph, shuffled_by);
  return std::make_unique<KgatTask>(std::move(options), std::move(data));
}

TaskNeeds KgatConfig::needs(const std::filesystem::path& path, DType dtype, const PlannedStep& step) const {
  const H5File file = H5File::open(path);
  require_graph(file);
  const auto size = [&](const char* attribute) { return file.int_attribute("/", attribute); };
  const KgatTask::Options options = resolved(dtype);
  const KgatArch& arch = options.arch;
  const bool removed = options.graph == GraphControl::removed;
  const std::int64_t nodes = size("n_nodes"), relations = size("n_relations"),
                     nnz = removed ? 2 * size("n_cf_train") : size("nnz"),
                     triples = removed ? 2 * size("n_cf_train") : size("n_ckg_triples");
  TaskNeeds needs;
  needs.row_sparse = needs.state_divided = true;
  needs.train_samples = size("n_cf_train");
  const std::int64_t kg_batch = options.kg_batch == 0 ? 2 * step.samples : options.kg_batch * step.scale;
  needs.steps_per_epoch = needs.train_samples / step.samples + 1 + (options.triples ? triples / kg_batch + 1 : 0);
  needs.fixed_parameters = nnz;
  needs.parameters = nodes * arch.embed_dim + relations * arch.relation_dim * (1 + arch.embed_dim) + nnz;
  std::int64_t columns = 0, widest = 0, outputs = 0, aggregators = 0, shared = arch.width(arch.layers());
  for (int l = 0; l < arch.layers(); ++l) {
    const std::int64_t in = arch.width(l), out = arch.width(l + 1);
    const std::int64_t weights = arch.aggregator == ops::Aggregator::gcn ? in * out + out : 2 * in * out + 2 * out;
    needs.parameters += weights - (arch.aggregator == ops::Aggregator::graphsage ? out : 0);
    columns += in + 2 * out;
    outputs += out;
    aggregators += weights;
    shared += 2 * in;
    widest = std::max(widest, in);
  }
  needs.data_bytes = 8.0 * static_cast<double>(3 * nodes + needs.train_samples + size("n_cf_test") + 2 * triples) +
                     20.0 * static_cast<double>(nnz);
  const bool spread = step.ranks > 1 && !step.on_gpu && options.mode != KgatMode::replicate;
  if (spread) needs.data_bytes += static_cast<double>(nodes * shared) * static_cast<double>(size_bytes(dtype));
  // Arrays of the propagation; of a step on interactions, the rows of users and two items and their gradients; of a
  // step on triples, the gradient of each chunk's projection. Two optimizers update the embeddings, and store the last
  // step of every row.
  const auto element = static_cast<double>(size_bytes(dtype));
  const double adjacencies = options.node_dropout > 0 ? 3 : 1;
  const double rows = 6 * static_cast<double>(step.samples * arch.final_width());
  const std::int64_t chunks = kg_batch / KgBatch::kChunk + std::min(kg_batch, relations);
  const double projections =
      options.triples ? static_cast<double>(chunks * arch.relation_dim * (arch.embed_dim + 1)) : 0;
  const double segments = step.on_gpu ? 1 : static_cast<double>(step.shards);
  needs.rank_bytes =
      element * (static_cast<double>(nodes * (columns + widest)) + adjacencies * static_cast<double>(nnz) + rows +
                 2 * projections + segments * static_cast<double>(aggregators)) +
      static_cast<double>(nodes * (outputs + 16));
  needs.gradient_buffers = 1;
  if (options.triples) needs.parameters_with_two_states = nodes * arch.embed_dim;
  if (step.on_gpu)  // the graph, and KgatSampler::tables()
    needs.gpu_data_bytes = 20.0 * static_cast<double>(nnz) + 12.0 * static_cast<double>(nodes + size("n_users")) +
                           4.0 * static_cast<double>(needs.train_samples) + 8.0 * static_cast<double>(triples);
  return needs;
}

void BprmfConfig::add_options(Options& o) {
  set_common_defaults(o);
  o.add("model.embed_dim,embed_size,embed_dim", &model_.embed_dim, 64, between(1, kMostWidth),
        "width of the embeddings of users and items");
  o.section("loss", "Loss");
  o.add("loss.cf_l2,l2loss_lambda", &model_.l2, 1e-5, non_negative, "weight of the embeddings' squares");
  add_cutoffs(o, &model_.cutoffs);
}

void BprmfConfig::check() const { RankingMetrics{model_.cutoffs}; }

void BprmfConfig::require_supported(const RunConfig& config, int) const {
  require_plain_adam(config, kBprmf);
  require_usage(config.run.graphs != "on",
                "option run.graphs = on: steps of bprmf cannot be captured in graphs; use auto");
  require_usage(!is_half(config.storage()), "option run.precision = ", config.precision(),
                ": a model of kind bprmf has no matrix products to train in half precision; use fp32");
}

std::unique_ptr<Task> BprmfConfig::load(const TaskSource& source) const {
  BprmfTask::Options options = model_;
  options.dtype = source.dtype;
  options.seed = source.seed;
  return std::make_unique<BprmfTask>(std::move(options), source.data_memory.data_set(source.path, KgData::read));
}

TaskNeeds BprmfConfig::needs(const std::filesystem::path& path, DType dtype, const PlannedStep& step) const {
  const H5File file = H5File::open(path);
  require_graph(file);
  const auto size = [&](const char* attribute) { return file.int_attribute("/", attribute); };
  TaskNeeds needs;
  needs.row_sparse = true;
  needs.train_samples = size("n_cf_train");
  needs.steps_per_epoch = needs.train_samples / step.samples + 1;
  needs.parameters = (size("n_users") + size("n_items")) * model_.embed_dim;
  needs.data_bytes = 8.0 * static_cast<double>(size("n_nodes") * 3 + needs.train_samples + size("n_cf_test") +
                                               2 * size("n_ckg_triples")) +
                     20.0 * static_cast<double>(size("nnz"));
  // The rows of users and two items and their gradients, of this step and the one before; the last step of every row.
  needs.rank_bytes =
      12 * static_cast<double>(size_bytes(dtype)) * static_cast<double>(step.samples * model_.embed_dim) +
      8 * static_cast<double>(size("n_users") + size("n_items"));
  needs.gradient_buffers = 0;
  return needs;
}

}  // namespace lockstep
