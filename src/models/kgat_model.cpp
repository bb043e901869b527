#include "lockstep/models/kgat_model.hpp"

#include <cmath>
#include <numeric>

#include "lockstep/base/error.hpp"
#include "lockstep/io/h5.hpp"

namespace lockstep {

JudgedUsers::JudgedUsers(const KgData& data)
    : items_{&data.train, data.valid.count() > 0 ? &data.valid : &data.test, &data.test} {
  for (std::size_t s = 0; s < items_.size(); ++s) {
    for (std::int64_t u = 0; u < data.users; ++u) {
      if (!items_[s]->of(u).empty()) users_[s].push_back(static_cast<std::int32_t>(u));
    }
  }
}

void judge(const KgData& data, const JudgedUsers& judged, const RankingMetrics& ranking, const ops::ItemTable& items,
           const Tensor& users, Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) {
  const auto user = [&](std::int64_t i) { return judged.users(split)[static_cast<std::size_t>(first + i)]; };
  // What a training user likes is what is looked for, so it is not left out then.
  const auto left_out = [&](std::int64_t i) {
    return split == Split::train ? std::span<const std::int32_t>() : data.train.of(user(i));
  };
  const std::int64_t depth = ranking.depth();
  auto* top = static_cast<std::int32_t*>(
      tape.host_arena().allocate(static_cast<std::size_t>(count * depth) * sizeof(std::int32_t)));
  ops::top_items(tape.stream(), tape.arena(), items, users, left_out, depth, top);
  tape.stream().synchronize();
  for (std::int64_t i = 0; i < count; ++i)
    ranking.add({top + i * depth, static_cast<std::size_t>(depth)}, judged.items(split).of(user(i)), sums);
}

namespace {

KgatModel::Options checked(KgatModel::Options options, const KgData& data) {
  KgatArch& arch = options.arch;
  arch.nodes = data.nodes(), arch.relations = data.graph.relations, arch.edges = data.graph.nnz();
  const auto layers = static_cast<std::size_t>(arch.layers());
  require_usage(layers >= 1, "option model.conv_dims: at least one layer is needed");
  if (options.message_dropout.size() == 1) options.message_dropout.resize(layers, options.message_dropout.front());
  require_usage(options.message_dropout.empty() || options.message_dropout.size() == layers,
                "option model.mess_dropout: ", options.message_dropout.size(), " rates for ", layers, " layers");
  return options;
}

}  // namespace

KgatModel::KgatModel(Options options, KgData data)
    : options_(checked(std::move(options), data)),
      data_(std::move(data)),
      net_(std::make_unique<Kgat>(options_.arch, options_.dtype, options_.seed)),
      ranking_(options_.cutoffs),
      judged_(data_) {
  if (!options_.pretrained.empty()) load_pretrained();
  if (options_.laplacian == FirstAdjacency::attention) {
    const AttentionPlan plan(data_.graph, 0, data_.graph.nodes, options_.dtype);
    refresh_attention(*net_, data_.graph, plan, options_.parallel_edges);
  } else {
    laplacian(data_.graph, static_cast<Laplacian>(options_.laplacian), net_->adjacency().value);
  }
  propagation_ = std::make_unique<KgatPropagation>(*net_, data_.graph, options_.storage);
}

void KgatModel::load_pretrained() {
  const H5File file = H5File::open(options_.pretrained);
  const std::string group = file.is_group("/model") ? "/model/" : "/";
  const std::int64_t d = options_.arch.embed_dim;
  visit_float(options_.dtype, [&]<class T>() {
    T* table = net_->embedding().value.data<T>();
    const auto fill = [&](const char* name, std::int64_t first, std::int64_t rows) {
      require_data(file.has(group + name), "pre-trained tables ", file.path(), ": no dataset '", group, name,
                   "'; train a model of kind bprmf and give its checkpoint");
      const std::span<T> to(table + first * d, static_cast<std::size_t>(rows * d));
      file.read_into<T>(group + name, to, {rows, d});
      for (T& x : to) x *= static_cast<T>(options_.pretrained_scale);
    };
    fill("item_embed", 0, data_.items);
    fill("user_embed", data_.entities, data_.users);
    // The others are drawn as a table of their own.
    const double whole = std::sqrt(6.0 / static_cast<double>(data_.nodes() + d)),
                 own = std::sqrt(6.0 / static_cast<double>(data_.entities - data_.items + d));
    for (std::int64_t i = data_.items * d; i < data_.entities * d; ++i) table[i] *= static_cast<T>(own / whole);
  });
}

void KgatModel::move_to(Device device) {
  params().move_to(device);
  propagation_ = std::make_unique<KgatPropagation>(*net_, data_.graph, options_.storage);
}

std::int64_t KgatModel::size(Split split) const {
  return split == Split::train ? data_.train.count() : static_cast<std::int64_t>(judged_.users(split).size());
}

ShardLoss KgatModel::loss(Tape&, const Shard&) const {
  throw Error(Fault::usage,
              "a model of kind kgat draws whole batches, not shards of samples: only training and evaluation know it");
}

OwnedTensor KgatModel::propagate() {
  propagation_->adjacency_changed();  // the weights may come from a file
  propagation_->begin(nullptr);
  const ops::RowSet all = ops::RowSet::range(0, data_.graph.nodes);
  for (int l = 0; l < options_.arch.layers(); ++l) propagation_->store(l, all), propagation_->forward(l, all);
  std::vector<std::int32_t> nodes(static_cast<std::size_t>(data_.items));
  std::iota(nodes.begin(), nodes.end(), 0);
  const Device device = net_->params().device();
  const Resident items(std::move(nodes), device);
  OwnedTensor h(options_.dtype, {data_.items, options_.arch.final_width()}, device);
  propagation_->gather(items.span(), h);
  Stream(device).synchronize();  // the list goes
  return h;
}

void KgatModel::begin_evaluation() { items_ = ops::ItemTable(propagate()); }

std::vector<std::vector<RankedItem>> KgatModel::suggest(std::span<const std::int64_t> users, std::int64_t count) {
  const Device device = net_->params().device();
  const OwnedTensor items = propagate(),
                    h(options_.dtype, {static_cast<std::int64_t>(users.size()), options_.arch.final_width()}, device);
  std::vector<std::int32_t> nodes;
  for (const std::int64_t user : users) nodes.push_back(static_cast<std::int32_t>(data_.node_of_user(user)));
  const Resident list(std::move(nodes), device);
  propagation_->gather(list.span(), h);
  return best_items(data_, HostView(items), users, HostView(h), count);
}

void KgatModel::evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const {
  const Tensor h = tape.keep({count, options_.arch.final_width()}, tape.real_dtype());
  auto* nodes =
      static_cast<std::int32_t*>(tape.host_arena().allocate(static_cast<std::size_t>(count) * sizeof(std::int32_t)));
  for (std::int64_t i = 0; i < count; ++i)
    nodes[i] = static_cast<std::int32_t>(data_.node_of_user(judged_.users(split)[static_cast<std::size_t>(first + i)]));
  propagation_->gather({nodes, static_cast<std::size_t>(count)}, h);
  judge(data_, judged_, ranking_, items_, h, tape, split, first, count, sums);
}

void KgatModel::save(H5File& file) const {
  file.set_attribute("/", "n_users", data_.users);
  file.set_attribute("/", "n_items", data_.items);
  file.set_attribute("/", "n_entities", data_.entities);
}

}  // namespace lockstep
