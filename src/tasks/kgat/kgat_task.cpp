#include "lockstep/tasks/kgat/kgat_task.hpp"

#include <cmath>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/device/cuda_types.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/models/kgat/kgat_attention.hpp"

namespace lockstep {

namespace {

KgatTask::Options checked(KgatTask::Options options, const KgData& data) {
  KgatArch& arch = options.arch;
  arch.nodes = data.nodes();
  arch.relations = data.graph.relations;
  arch.edges = data.graph.nnz();
  const auto layers = static_cast<std::size_t>(arch.layers());
  require_usage(layers >= 1, "option model.conv_dims: at least one layer is needed");
  if (options.message_dropout.size() == 1) options.message_dropout.resize(layers, options.message_dropout.front());
  require_usage(options.message_dropout.empty() || options.message_dropout.size() == layers,
                "option model.mess_dropout: ", options.message_dropout.size(), " rates for ", layers, " layers");
  return options;
}

}  // namespace

KgatTask::KgatTask(Options options, KgData data)
    : RankingTask(std::move(data), options.cutoffs),
      options_(checked(std::move(options), this->data())),
      net_(std::make_unique<Kgat>(options_.arch, options_.dtype, options_.seed)) {
  const KgGraph& graph = this->data().graph;
  if (!options_.pretrained.empty()) load_pretrained();
  if (options_.laplacian == FirstAdjacency::attention) {
    const AttentionPlan plan(graph, 0, graph.nodes, options_.dtype);
    refresh_attention(*net_, graph, plan, options_.parallel_edges);
  } else {
    laplacian(graph, static_cast<Laplacian>(options_.laplacian), net_->adjacency().value);
  }
  propagation_ = std::make_unique<KgatPropagation>(*net_, graph, options_.storage);
}

void KgatTask::load_pretrained() {
  const H5File file = H5File::open(options_.pretrained);
  const std::string group = file.is_group("/model") ? "/model/" : "/";
  if (log::speaker().rank == 0 && file.has_attribute("/", "data_hash") &&
      file.text_attribute("/", "data_hash") != hex64(data().hash))
    log::warning("model.pretrain = ", options_.pretrained, ": it was trained on other data than ", data().path,
                 "; its rows must belong to the same users and items");
  const std::int64_t d = options_.arch.embed_dim;
  visit_float(options_.dtype, [&]<class T>() {
    T* table = net_->embedding().value.data<T>();
    const auto fill = [&](const char* name, std::int64_t first, std::int64_t rows) {
      require_data(file.has(group + name), "pre-trained tables ", file.path(), ": no dataset '", group, name,
                   "'; train a model of kind bprmf and name its checkpoint");
      const std::span<T> to(table + first * d, static_cast<std::size_t>(rows * d));
      file.read_into<T>(group + name, to, {rows, d});
      for (T& x : to) x *= static_cast<T>(options_.pretrained_scale);
    };
    fill("item_embed", 0, data().items);
    fill("user_embed", data().entities, data().users);
    // The other entities keep their random values, scaled to the bound of a separate table.
    const double now = std::sqrt(6.0 / static_cast<double>(data().nodes() + d)),
                 own = std::sqrt(6.0 / static_cast<double>(data().entities - data().items + d));
    for (std::int64_t i = data().items * d; i < data().entities * d; ++i) table[i] *= static_cast<T>(own / now);
  });
}

std::vector<Control> KgatTask::controls() const {
  if (options_.graph != GraphControl::whole) return {};
  std::vector<Control> all;
  for (const GraphControl graph : {GraphControl::shuffled, GraphControl::removed})
    all.push_back({join("graph ", name(graph)), [this, graph] { return control(graph); }});
  return all;
}

std::unique_ptr<SampleTask> KgatTask::control(GraphControl graph) const {
  Options options = options_;
  options.graph = graph;
  options.pretrained.clear();
  auto task = std::make_unique<KgatTask>(options, data().with(graph, options.seed));
  Kgat& net = *task->net_;
  for (const Param& p : net_->params().all()) {
    if (&p == &net_->adjacency()) continue;
    const HostView values(p.value);
    copy(Stream(), net.params().at(p.name).value, values);
  }
  const KgGraph& other = task->data().graph;
  if (options.attention || options.laplacian == FirstAdjacency::attention)
    refresh_attention(net, other, AttentionPlan(other, 0, other.nodes, options.dtype), options.parallel_edges);
  return task;
}

void KgatTask::move_to(Device device) {
  if (device.is_cuda() && options_.storage) require_cuda_type(name(*options_.storage));
  params().move_to(device);
  propagation_ = std::make_unique<KgatPropagation>(*net_, data().graph, options_.storage);
}

OwnedTensor KgatTask::item_rows() {
  propagation_->begin(nullptr);
  propagation_->forward();
  const Device device = net_->params().device();
  const Resident list(consecutive<std::int32_t>(data().items), device);
  OwnedTensor rows(options_.dtype, {data().items, width()}, device);
  propagation_->gather(list.span(), rows);
  Stream(device).synchronize();  // the list is freed
  return rows;
}

void KgatTask::save(H5File& file) const {
  file.set_attribute("/", "n_users", data().users);
  file.set_attribute("/", "n_items", data().items);
  file.set_attribute("/", "n_entities", data().entities);
  if (options_.graph != GraphControl::whole)
    file.set_attribute("/", kGraphAttribute, std::string(name(options_.graph)));
}

}  // namespace lockstep
