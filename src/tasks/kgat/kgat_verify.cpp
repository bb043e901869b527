#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>
#include <tuple>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/models/kgat/kgat_weights.hpp"
#include "lockstep/ops/transr.hpp"
#include "lockstep/tasks/kgat/kgat_task.hpp"
#include "tasks/kgat/kgat_step.hpp"
#include "tasks/verifier.hpp"

namespace lockstep {
namespace {

// Tolerances in single precision, relative to an array's largest value. In brackets: the difference between PyTorch's
// own single and double precision.
constexpr double kDouble = 1e-10;
constexpr Tolerance kForward{1e-5, kDouble};   // [4e-6]
constexpr Tolerance kGradient{5e-5, kDouble};  // [1e-5]
constexpr Tolerance kWeights{1e-5, kDouble};   // absolute [5e-7]
constexpr Tolerance kMoments{1e-4, kDouble};
constexpr Tolerance kAdjacency{1e-6, kDouble};  // absolute
constexpr double kMetrics = 1e-7;  // absolute: the reference program computes precision and the others in single

/// The reference's graph and interactions as a data set that owns its memory.
struct ReferenceData {
  KgData data;
  std::vector<std::int64_t> train_ptr, test_ptr;
  std::vector<std::int32_t> train, test;
  std::vector<std::int64_t> of_reference;  ///< our triple for each triple of the reference, in its order

  explicit ReferenceData(const H5File& file) {
    data.path = file.path();
    data.users = file.int_attribute("/", "n_users");
    data.items = file.int_attribute("/", "n_items");
    data.entities = file.int_attribute("/", "n_entities");
    read_graph(file);
    read_interactions(file);
  }

 private:
  void read_graph(const H5File& file);
  void read_interactions(const H5File& file);
};

void ReferenceData::read_graph(const H5File& file) {
  const auto heads = file.read<std::int32_t>("/inputs/ckg_h"), relations = file.read<std::int32_t>("/inputs/ckg_r"),
             tails = file.read<std::int32_t>("/inputs/ckg_t");
  const std::int64_t nodes = data.nodes(), count = file.int_attribute("/", "n_relations");
  require_data(relations.size() == heads.size() && tails.size() == heads.size(), "reference ", file.path(), ": ",
               heads.size(), " heads, ", relations.size(), " relations and ", tails.size(),
               " tails of triples; generate the file again");
  std::vector<Triple> triples;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    require_data(std::min({heads[i], relations[i], tails[i]}) >= 0 && std::max(heads[i], tails[i]) < nodes &&
                     relations[i] < count,
                 "reference ", file.path(), ": triple ", i, " is (", heads[i], ", ", relations[i], ", ", tails[i],
                 "), with ", nodes, " nodes and ", count, " relations; generate the file again");
    triples.push_back({heads[i], relations[i], tails[i]});
  }
  const auto order = indices_by<std::int64_t>(std::ssize(triples), [&](std::int64_t i) {
    const Triple& t = triples[i];
    return std::tuple(t.head, t.tail, t.relation);
  });
  of_reference.resize(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) of_reference[order[i]] = static_cast<std::int64_t>(i);
  data.own_graph(index_triples(nodes, count, triples), count);
}

void ReferenceData::read_interactions(const H5File& file) {
  const auto read = [&](const char* dataset, std::vector<std::int64_t>& ptr, std::vector<std::int32_t>& items) {
    const auto bytes = file.read<std::uint8_t>(dataset);
    std::istringstream text(std::string(bytes.begin(), bytes.end()));
    std::map<std::int64_t, std::vector<std::int32_t>> of;
    for (std::string line; std::getline(text, line);) {
      std::istringstream words(line);
      std::int64_t user = 0;
      if (!(words >> user)) continue;
      for (std::int32_t item; words >> item;) of[user].push_back(item);
    }
    ptr = {0};
    for (std::int64_t u = 0; u < data.users; ++u) {
      std::vector<std::int32_t>& mine = of[u];
      std::sort(mine.begin(), mine.end());
      mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
      items.insert(items.end(), mine.begin(), mine.end());
      ptr.push_back(std::ssize(items));
    }
    return UserItems{ptr, items};
  };
  data.train = read("/raw/train.txt", train_ptr, train);
  data.test = read("/raw/test.txt", test_ptr, test);
}

/// Compares a model with one reference file.
class KgatVerification {
 public:
  KgatVerification(Verifier& v, World& world, const H5File& file, DType dtype, Device device)
      : v_(v),
        world_(world),
        file_(file),
        reference_(file),
        dtype_(dtype),
        device_(device),
        model_(options(), reference_.data) {
    model_.move_to(device);
  }

  void run() {
    load_weights();
    laplacians();
    attention();
    for (const char* mode : {"laplacian", "per_triple", "sum_logits"}) interactions(mode);
    triples();
    for (const char* mode : {"per_triple", "sum_logits"}) trajectory(mode);
  }

 private:
  /// The training step on all ranks.
  KgatStep make_step(ops::ParallelEdges parallel_edges = ops::ParallelEdges::per_triple) {
    KgatStepOptions o;
    o.cf_l2 = model_.options().cf_l2;
    o.kg_l2 = model_.options().kg_l2;
    o.parallel_edges = parallel_edges;
    if (device_.is_cuda()) o.mode = KgatMode::replicate;  // as training does
    o.world = &world_;
    return {world_.communicator(), model_.net(), model_.propagation(), o};
  }
  void output(const std::string& name, const Values& values) { v_.relative("outputs", name, values, kForward); }
  const KgGraph& graph() const { return reference_.data.graph; }

  KgatTask::Options options() const {
    KgatTask::Options o;
    o.arch.embed_dim = file_.int_attribute("/", "embed_dim");
    o.arch.relation_dim = file_.int_attribute("/", "relation_dim");
    o.arch.conv_dims = file_.int_list("/", "conv_dims");
    o.cutoffs = file_.int_list("/", "Ks");
    o.arch.aggregator = reference_choice<ops::Aggregator>(file_, "aggregator");
    o.arch.slope = file_.real_attribute("/", "leaky_slope");
    o.cf_l2 = file_.real_attribute("/", "cf_lambda");
    o.kg_l2 = file_.real_attribute("/", "kg_lambda");
    o.dtype = dtype_;
    return o;
  }

  void load_weights() { load_reference_weights(model_.params(), file_, kgat_names()); }
  void set_laplacian(Laplacian kind) {
    laplacian(graph(), kind, HostView(model_.net().adjacency().value, HostView::Access::write));
    model_.propagation().adjacency_changed();
  }
  void refresh(const std::string& mode) {
    refresh_attention(model_.net(), graph(), plan_, named<ops::ParallelEdges>(mode).value());
    model_.propagation().adjacency_changed();
  }

  /// Compares our values with the reference's entries, which omit zeros.
  void compare_adjacency(const std::string& group, const std::string& name) {
    if (!v_.has(group, name + "/val")) return;
    const auto row = v_.reference(group, name + "/row"), column = v_.reference(group, name + "/col");
    const std::vector<double> values = doubles(model_.net().adjacency().value);
    std::vector<double> ours;
    double listed = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto r = static_cast<std::size_t>(row[i]);
      const auto first = graph().col.begin() + graph().adj_indptr[r],
                 last = graph().col.begin() + graph().adj_indptr[r + 1];
      const auto found = std::lower_bound(first, last, static_cast<std::int32_t>(column[i]));
      const bool found_entry = found != last && *found == static_cast<std::int32_t>(column[i]);
      ours.push_back(found_entry ? values[found - graph().col.begin()] : NAN);
      listed += std::abs(ours.back());
    }
    double all = 0;
    for (const double value : values) all += std::abs(value);
    if (std::abs(all - listed) > kAdjacency.f32 * all) ours.clear();  // an entry is missing in the reference
    v_.absolute(group, name + "/val", ours, kAdjacency);
  }

  void laplacians() {
    for (const auto& [kind, name] : {std::pair{Laplacian::random_walk, "random_walk"},
                                     {Laplacian::symmetric, "symmetric"},
                                     {Laplacian::symmetric_upstream, "symmetric_upstream"}}) {
      set_laplacian(kind);
      compare_adjacency("laplacian", name);
    }
  }

  void attention() {
    refresh("per_triple");
    std::vector<double> v, pi;
    const std::vector<double> ours = doubles(plan_.logits());
    for (const std::int64_t e : reference_.of_reference) v.push_back(ours[e]);
    output("attention/logits", v);
    const auto head = file_.read<std::int64_t>("/inputs/ckg_h");
    std::map<std::int64_t, double> most, sum;
    for (std::size_t i = 0; i < v.size(); ++i)
      most[head[i]] = most.count(head[i]) ? std::max(most[head[i]], v[i]) : v[i];
    for (std::size_t i = 0; i < v.size(); ++i) sum[head[i]] += std::exp(v[i] - most[head[i]]);
    for (std::size_t i = 0; i < v.size(); ++i) pi.push_back(std::exp(v[i] - most[head[i]]) / sum[head[i]]);
    v_.absolute("outputs", "attention/pi_per_triple", pi, kAdjacency);
    compare_adjacency("outputs", "attention/A_per_triple");
    refresh("sum_logits");
    compare_adjacency("outputs", "attention/A_sum_logits");
  }

  CfBatch cf_batch(int number) const {
    CfBatch batch;
    const std::string group = join("/inputs/cf", number, "/");
    batch.user = file_.read<std::int32_t>(group + "user");
    batch.liked = file_.read<std::int32_t>(group + "pos");
    batch.other = file_.read<std::int32_t>(group + "neg");
    batch.index();
    return batch;
  }
  KgBatch kg_batch(int number) const {
    KgBatch batch;
    const std::string group = join("/inputs/kg", number, "/");
    batch.head = file_.read<std::int32_t>(group + "h");
    batch.relation = file_.read<std::int32_t>(group + "r");
    batch.tail = file_.read<std::int32_t>(group + "pos_t");
    batch.other = file_.read<std::int32_t>(group + "neg_t");
    batch.index();
    return batch;
  }

  OwnedTensor rows_of_h(const std::vector<std::int32_t>& nodes) {
    const Resident<std::int32_t> list(std::span<const std::int32_t>(nodes), device_);
    OwnedTensor h(dtype_, {std::ssize(nodes), model_.net().arch().final_width()}, device_);
    model_.propagation().gather(list.span(), h);
    Stream(device_).synchronize();  // the list is freed
    return h;
  }

  /// Compares, for one adjacency, every layer on all rows, then loss and gradient of a batch.
  void interactions(const std::string& mode) {
    const std::string group = "cf_" + mode + "/";
    mode == "laplacian" ? set_laplacian(Laplacian::random_walk) : refresh(mode);
    KgatPropagation& p = model_.propagation();
    const KgatArch& arch = model_.net().arch();
    p.begin(nullptr);
    p.forward();
    const std::vector<double> all = doubles(rows_of_h(consecutive<std::int32_t>(arch.nodes)));
    std::int64_t offset = arch.embed_dim;
    for (int l = 0; l < arch.layers(); ++l) {
      const std::string layer = group + join("layer", l, "/");
      output(layer + "side", p.s(l));
      output(layer + "out", p.x(l + 1));
      std::vector<double> normed;
      for (std::int64_t n = 0; n < arch.nodes; ++n) {
        const auto from = all.begin() + n * arch.final_width() + offset;
        normed.insert(normed.end(), from, from + arch.width(l + 1));
      }
      output(layer + "norm_out", normed);
      offset += arch.width(l + 1);
    }
    output(group + "all_embed", all);

    const CfBatch batch = cf_batch(0);
    const KgatTask::Options& o = model_.options();
    KgatStep step = make_step();
    const ops::RankingSums sums = step.step_cf(batch, 0, 0).sums;
    const std::vector<double> rows = doubles(rows_of_h(batch.rows()));
    const auto dot = [&](std::int32_t a, std::int32_t b) {
      const auto at = [&](std::int32_t row) { return rows.begin() + row * arch.final_width(); };
      return std::inner_product(at(a), at(a) + arch.final_width(), at(b), 0.0);
    };
    const ops::RankedPairs pairs = batch.pairs();
    std::vector<double> liked, other;
    for (std::size_t b = 0; b < batch.user.size(); ++b) {
      liked.push_back(dot(pairs.user[b], pairs.liked[b]));
      other.push_back(dot(pairs.user[b], pairs.other[b]));
    }
    output(group + "pos_score", liked);
    output(group + "neg_score", other);
    const auto count = static_cast<double>(batch.count());
    output(group + "bpr_loss", sums.loss / count);
    output(group + "l2", sums.half_square / count);
    output(group + "cf_loss", (sums.loss + o.cf_l2 * sums.half_square) / count);
    step.exchange().share(step.embedding_gradient(), ops::RowSet::range(0, arch.nodes), "gradient to compare");
    v_.relative("grads", group + model_.net().embedding().name, step.embedding_gradient(), kGradient);
    const std::int64_t begin = model_.net().aggregators_begin(), end = model_.net().aggregators_end();
    for (const Param& param : model_.params().all()) {
      if (param.offset < begin || param.offset >= end) continue;
      v_.relative("grads", group + param.name,
                  step.aggregator_gradient().slice(param.offset - begin, param.shape.size()), kGradient);
    }
  }

  void triples() {
    const KgBatch batch = kg_batch(0);
    const KgatTask::Options& o = model_.options();
    const KgatArch& arch = model_.net().arch();
    // Our triples are in the order of their relations: `order` maps it to the reference's.
    const auto relation = file_.read<std::int32_t>("/inputs/kg0/r");
    const auto order =
        indices_by<std::int64_t>(std::ssize(relation), [&](std::int64_t triple) { return relation[triple]; });
    const std::int64_t width = arch.relation_dim;
    const auto k = static_cast<std::size_t>(width);
    const std::vector<double> no_rows(order.size() * k), no_scores(order.size());
    std::array<std::vector<double>, 3> rows = {no_rows, no_rows, no_rows};
    std::array<std::vector<double>, 2> f = {no_scores, no_scores};
    const OwnedTensor projected(dtype_, {3 * batch.count(), width}, device_),
        score(dtype_, {2 * batch.count()}, device_);
    Arena arena(device_);
    Stream stream(device_);
    const auto [chunks, head, tail, other] =
        for_kernels(stream, arena, batch.chunks, batch.head, batch.tail, batch.other);
    const auto chunk_sums = arena.host().array<ops::RankingSums>(std::ssize(chunks));
    ops::transr(stream, {chunks, head, tail, other}, model_.net().embedding().value, model_.net().matrices().value,
                model_.net().translations().value, o.kg_l2, batch.count(),
                {.projected = projected, .score = score, .drows = {}, .drelations = {}}, chunk_sums);
    const std::vector<double> p = doubles(projected), scores = doubles(score);
    for (const KgBatch::Chunk& chunk : batch.chunks) {
      const auto first = static_cast<std::size_t>(chunk.first), n = static_cast<std::size_t>(chunk.count);
      for (std::size_t i = 0; i < n; ++i) {
        const auto to = static_cast<std::size_t>(order[first + i]);
        for (std::size_t role = 0; role < 3; ++role)
          std::copy_n(p.begin() + (3 * first + role * n + i) * k, k, rows[role].begin() + to * k);
        for (std::size_t role = 0; role < 2; ++role) f[role][to] = scores[2 * first + role * n + i];
      }
    }
    KgatStep step = make_step();
    const ops::RankingSums sums = step.step_kg(batch, 0).sums;
    output("kg/proj_h", rows[0]);
    output("kg/proj_pos_t", rows[1]);
    output("kg/proj_neg_t", rows[2]);
    output("kg/pos_score", f[0]);
    output("kg/neg_score", f[1]);
    const auto count = static_cast<double>(batch.count());
    output("kg/rank_loss", sums.loss / count);
    output("kg/l2", sums.half_square / count);
    output("kg/kg_loss", (sums.loss + o.kg_l2 * sums.half_square) / count);
    const auto dense = [&](const Param& p, const std::vector<std::int32_t>& rows_of, const Tensor& gradient) {
      std::vector<double> all(p.shape.size(), 0);
      const std::vector<double> some = doubles(gradient);
      const std::size_t width = some.size() / rows_of.size();
      for (std::size_t i = 0; i < rows_of.size(); ++i)
        std::copy_n(some.begin() + i * width, width, all.begin() + static_cast<std::size_t>(rows_of[i]) * width);
      v_.relative("grads", "kg/" + p.name, all, kGradient);
    };
    const KgatStep::KgGradient& gradient = step.kg_gradient();
    dense(model_.net().embedding(), batch.rows(), gradient.nodes);
    dense(model_.net().translations(), batch.relations, gradient.translations);
    dense(model_.net().matrices(), batch.relations, gradient.matrices);
  }

  void compare_weights(KgatStep& step, const std::string& name) {
    step.settle();
    for (const Param& p : model_.params().all()) v_.absolute("after_steps", name + "/" + p.name, p.value, kWeights);
  }

  /// Compares two epochs: three steps on interactions, three on triples, attention; two and one, attention; evaluation.
  void trajectory(const std::string& mode) {
    load_weights();
    set_laplacian(Laplacian::random_walk);
    KgatStep step = make_step(named<ops::ParallelEdges>(mode).value());
    const double lr = file_.real_attribute("/", "lr");
    std::vector<double> cf_losses, kg_losses;
    const auto step_cf = [&](int first, int last) {
      for (int i = first; i <= last; ++i) cf_losses.push_back(step.step_cf(cf_batch(i), i, lr).loss);
    };
    const auto step_kg = [&](int first, int last) {
      for (int i = first; i <= last; ++i) kg_losses.push_back(step.step_kg(kg_batch(i), lr).loss);
    };
    step_cf(0, 2);
    compare_weights(step, mode + "/epoch1_cf");
    step_kg(0, 2);
    compare_weights(step, mode + "/epoch1_kg");
    step.refresh_adjacency();
    compare_adjacency("after_steps", mode + "/epoch1_A");
    step_cf(3, 4);
    step_kg(3, 3);
    compare_weights(step, mode + "/epoch2");
    const auto compare_moments = [&](const char* group, const Optimizer& adam) {
      for (const NamedTensor& t : adam.state()) v_.relative("after_steps", mode + group + t.name, t.value, kMoments);
    };
    compare_moments("/epoch2_adam_cf/", step.cf_optimizer());
    compare_moments("/epoch2_adam_kg/", step.kg_optimizer());
    step.refresh_adjacency();
    compare_adjacency("after_steps", mode + "/epoch2_A");
    v_.relative("after_steps", mode + "/cf_losses", cf_losses, kForward);
    v_.relative("after_steps", mode + "/kg_losses", kg_losses, kForward);
    evaluation(mode + "/eval/");
  }

  void evaluation(const std::string& group) {
    model_.begin_evaluation();
    const std::vector<double> users = v_.reference("after_steps", group + "user");
    const std::int64_t items = reference_.data.items, width = model_.net().arch().final_width();
    const std::vector<std::int32_t> user_nodes(users.begin(), users.end());
    const auto count = std::ssize(users);
    const OwnedTensor of_items = rows_of_h(consecutive<std::int32_t>(items)), of_users = rows_of_h(user_nodes);
    std::vector<double> scores;
    const std::vector<double> u = doubles(of_users), i = doubles(of_items);
    for (std::int64_t a = 0; a < count; ++a)
      for (std::int64_t b = 0; b < items; ++b)
        scores.push_back(
            std::inner_product(u.begin() + a * width, u.begin() + (a + 1) * width, i.begin() + b * width, 0.0));
    v_.relative("after_steps", group + "scores", scores, kForward);

    // The reference puts the training items after the others, in no order.
    std::vector<double> ranking = v_.reference("after_steps", group + "ranking");
    Arena arena(device_), scratch(device_);
    const auto top = arena.host().array<std::int32_t>(count * items);
    Stream stream(device_);
    const auto user_of = [&](std::int64_t a) { return static_cast<std::int64_t>(users[a]) - reference_.data.entities; };
    ops::top_items(
        stream, scratch, ops::ItemTable(of_items), of_users,
        [&](std::int64_t a) { return reference_.data.train.of(user_of(a)); }, items, top.data());
    stream.synchronize();
    for (std::size_t a = 0; a < top.size(); ++a)
      if (top[a] >= 0) ranking[a] = top[a];
    v_.absolute("after_steps", group + "ranking", ranking, 0);

    std::map<std::string, std::vector<double>> metrics_by_name;
    const RankingMetrics metrics(model_.options().cutoffs);
    for (std::int64_t a = 0; a < count; ++a) {
      std::vector<double> sums(metrics.sum_count(), 0);
      metrics.add({top.data() + a * items, static_cast<std::size_t>(metrics.depth())},
                  reference_.data.test.of(user_of(a)), sums.data());
      for (const Metric& m : metrics.metrics(sums))
        metrics_by_name[m.name.substr(0, m.name.find('@'))].push_back(m.value);
    }
    for (const char* name : {"precision", "recall", "ndcg", "hit"})
      v_.absolute("after_steps", group + name, metrics_by_name[name], kMetrics);
  }

  Verifier& v_;
  World& world_;
  const H5File& file_;
  ReferenceData reference_;
  DType dtype_;
  Device device_;
  KgatTask model_;
  const AttentionPlan plan_{graph(), 0, graph().nodes, dtype_, device_};
};

}  // namespace

void verify_kgat(World& world, const H5File& file, const VerifyOptions& options, ReferenceReport& report) {
  require_usage(!is_half(options.storage) && !options.tf32,
                "option precision: reference files of kgat are compared in fp32 and with --double only");
  if (!file.has("/weights")) return;
  Verifier v(file, options, report);
  KgatVerification(v, world, file, options.f64 ? DType::f64 : DType::f32, options.device).run();
}

}  // namespace lockstep
