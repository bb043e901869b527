/// Writes and reads prepared graphs.
#include "prep/kgat/kg_file.hpp"

#include <algorithm>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/io/dataset_file.hpp"

namespace lockstep::prep {

namespace {
constexpr std::int64_t kChunk = std::int64_t{1} << 20;

const char* name_of(SymmetricForm form) { return form == SymmetricForm::sound ? "sound" : "upstream"; }
}  // namespace

H5Layout kg_layout(const std::vector<std::int64_t>& shape, int deflate) {
  const std::int64_t width = shape.size() > 1 ? shape[1] : 1;
  if (shape[0] * width == 0) return {};
  std::vector<std::int64_t> chunk = {std::min(shape[0], std::max<std::int64_t>(1, kChunk / width))};
  if (shape.size() > 1) chunk.push_back(width);
  return {chunk, deflate};
}

H5Type kg_index_type(std::int64_t entries) {
  return entries <= std::numeric_limits<std::int32_t>::max() ? H5Type::i32 : H5Type::i64;
}

void write_kg_set(const std::filesystem::path& path, const KgSet& set, int deflate) {
  const KgSizes& sizes = set.sizes;
  const Ckg& graph = set.ckg;
  write_dataset(path, kKgatFormat, set.notes, [&](H5File& file) {
    const auto put = [&]<class T>(const std::string& name, const std::vector<T>& values) {
      const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(values.size())};
      file.write<T>(name, std::span<const T>(values), shape, kg_layout(shape, deflate));
    };
    const auto interactions = [&](const std::string& group, const UserItems& part) {
      put(group + "/indptr", part.indptr);
      put(group + "/item", part.item);
    };
    interactions("/cf/train", set.train);
    interactions("/cf/test", set.test);
    if (!set.valid.indptr.empty()) interactions("/cf/valid", set.valid);

    std::vector<std::int32_t> flat;
    flat.reserve(3 * set.triples.size());
    for (const auto& t : set.triples) flat.insert(flat.end(), {t.head, t.relation, t.tail});
    const std::vector<std::int64_t> shape = {sizes.kg_triples, 3};
    file.write<std::int32_t>("/kg/triple", flat, shape, kg_layout(shape, deflate));

    each_array(sizes, graph.nnz(), [&](const char* name, auto array, std::int64_t) { put(name, graph.*array); });
    if (kg_index_type(sizes.ckg_triples()) == H5Type::i32) {
      put("/ckg/rel_perm", std::vector<std::int32_t>(graph.rel_perm.begin(), graph.rel_perm.end()));
    } else {
      put("/ckg/rel_perm", graph.rel_perm);
    }

    const auto attribute = [&](const char* name, const H5Value& value) { file.set_attribute("/", name, value); };
    attribute("name", set.name);
    attribute("n_users", sizes.users);
    attribute("n_items", sizes.items);
    attribute("n_entities", sizes.entities);
    attribute("n_nodes", sizes.nodes());
    attribute("n_kg_relations", sizes.kg_relations);
    attribute("n_relations", sizes.relations());
    attribute("n_cf_train", sizes.train);
    attribute("n_cf_test", sizes.test);
    if (!set.valid.indptr.empty()) attribute("n_cf_valid", static_cast<std::int64_t>(set.valid.item.size()));
    attribute("n_kg_triples", sizes.kg_triples);
    attribute("n_ckg_triples", sizes.ckg_triples());
    attribute("nnz", graph.nnz());
    attribute("symmetric", std::string(name_of(set.symmetric)));
    attribute("sources", set.sources);
    attribute("source_sha256", set.sha256);
  });
}

KgSet read_kg_set(const H5File& file) {
  const DatasetFile stored(file, kKgatFormat);
  KgSet set;
  KgSizes& sizes = set.sizes;
  const auto size = [&](const char* attribute) { return file.int_attribute("/", attribute); };
  set.name = file.text_attribute("/", "name");
  sizes = {size("n_users"),      size("n_items"),    size("n_entities"), size("n_kg_relations"),
           size("n_kg_triples"), size("n_cf_train"), size("n_cf_test")};
  sizes.require_indexable();
  const auto agrees = [&](const char* attribute, std::int64_t expected) {
    require_data(size(attribute) == expected, stored.opening(), ": attribute '", attribute, "' is ", size(attribute),
                 ", the other sizes give ", expected);
  };
  agrees("n_nodes", sizes.nodes());
  agrees("n_relations", sizes.relations());
  agrees("n_ckg_triples", sizes.ckg_triples());
  const std::int64_t nnz = stored.size("nnz", 0, sizes.ckg_triples());
  const std::string form = file.text_attribute("/", "symmetric");
  require_data(form == "sound" || form == "upstream", stored.opening(), ": attribute 'symmetric' is '", form,
               "', expected sound or upstream");
  set.symmetric = form == "sound" ? SymmetricForm::sound : SymmetricForm::upstream;

  const auto fill = [&]<class T>(const std::string& name, std::vector<T>& out, std::int64_t n) {
    out = stored.read<T>(name, {n});
  };
  const auto interactions = [&](const std::string& group, UserItems& part, std::int64_t n) {
    fill(group + "/indptr", part.indptr, sizes.users + 1);
    fill(group + "/item", part.item, n);
  };
  interactions("/cf/train", set.train, sizes.train);
  interactions("/cf/test", set.test, sizes.test);
  if (file.is_group("/cf/valid")) interactions("/cf/valid", set.valid, size("n_cf_valid"));

  const auto flat = stored.read<std::int32_t>("/kg/triple", {sizes.kg_triples, 3});
  set.triples.resize(flat.size() / 3);
  for (std::size_t i = 0; i < set.triples.size(); ++i) set.triples[i] = {flat[3 * i], flat[3 * i + 1], flat[3 * i + 2]};

  Ckg& graph = set.ckg;
  each_array(sizes, nnz, [&](const char* name, auto array, std::int64_t n) { fill(name, graph.*array, n); });
  graph.rel_perm.resize(static_cast<std::size_t>(
      stored.expect("/ckg/rel_perm", {kg_index_type(sizes.ckg_triples())}, {sizes.ckg_triples()})[0]));
  stored.read_into<std::int64_t>("/ckg/rel_perm", {sizes.ckg_triples()}, graph.rel_perm);

  set.sources = file.text_list("/", "sources");
  set.sha256 = file.text_list("/", "source_sha256");
  return set;
}

}  // namespace lockstep::prep
