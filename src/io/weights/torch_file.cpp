#include <algorithm>
#include <optional>
#include <set>

#include "elements.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/torch_archive.hpp"

/// The archive of torch.save: NAME/data.pkl, and the storages NAME/data/0, NAME/data/1, ...
/// source  PyTorch torch/serialization.py, torch/_utils.py
namespace lockstep {

namespace {

using Value = PickleValue;
using Kind = PickleValue::Kind;

constexpr std::string_view kStorage = "Storage", kTorch = "torch.", kTensor = "torch._utils._rebuild_tensor_v2",
                           kParameter = "torch._utils._rebuild_parameter", kOrdered = "collections.OrderedDict";
/// Arrays may share a storage. All of them together hold at most this many times its elements.
constexpr std::size_t kMostShared = 16;

bool is_storage(std::string_view name) {
  return name.starts_with(kTorch) && name.ends_with(kStorage) &&
         std::ranges::any_of(weights::kElements, [&](const weights::Element& e) {
           return !e.torch.empty() && name.size() == kTorch.size() + e.torch.size() + kStorage.size() &&
                  name.substr(kTorch.size(), e.torch.size()) == e.torch;
         });
}
bool is_dictionary(const Value& value) { return value.is(Kind::dictionary) || value.calls(kOrdered); }
/// A dictionary with tensors, and its path.
struct Candidate {
  std::string path;
  const Value* dictionary;
  bool pure;  ///< holds tensors only
};

/// Finds all dictionaries of named tensors in a pickle. Skips those under numeric keys, such as optimizer states.
class Search {
 public:
  explicit Search(const Value& root) { visit("", root); }
  const std::vector<Candidate>& found() const { return found_; }

 private:
  void visit(const std::string& path, const Value& value) {
    constexpr std::size_t kDeepest = 100;
    if (!is_dictionary(value) || !seen_.insert(&value).second || seen_.size() > kMost || depth_ > kDeepest) return;
    ++depth_;
    std::size_t tensors = 0;
    for (const auto& [key, entry] : value.entries) {
      if (!key->is(Kind::text)) continue;
      if (torch_tensor(*entry) != nullptr)
        ++tensors;
      else
        visit(path.empty() ? key->text : path + "." + key->text, *entry);
    }
    if (tensors > 0) found_.push_back({path, &value, tensors == value.entries.size()});
    --depth_;
  }
  static constexpr std::size_t kMost = 100'000;
  std::set<const Value*> seen_;
  std::vector<Candidate> found_;
  std::size_t depth_ = 0;
};

const Value& choose(const Value& root, const std::string& key, const std::string& reading) {
  const Search search(root);
  std::vector<Candidate> candidates = search.found();
  const auto paths = [&] { return listed(candidates, ", ", [](const auto& c) { return "'" + c.path + "'"; }); };
  require_data(!candidates.empty(), reading, ": it holds no dictionary of named tensors; save a state_dict()");
  if (!key.empty()) {
    const auto named = std::ranges::find(candidates, key, &Candidate::path);
    require_usage(named != candidates.end(), reading, ": option --key = '", key, "': dictionaries of tensors are ",
                  paths());
    return *named->dictionary;
  }
  // One that holds other things too, such as the state of a generator, is left aside unless it may be the network.
  std::set<std::string_view> arrays;
  for (const Candidate& c : candidates)
    for (const auto& [name, entry] : c.dictionary->entries)
      if (c.pure) arrays.insert(name->text);
  const auto names_one = [&](const auto& named) {
    return torch_tensor(*named.second) != nullptr && arrays.contains(named.first->text);
  };
  if (!arrays.empty())
    std::erase_if(candidates,
                  [&](const Candidate& c) { return std::ranges::none_of(c.dictionary->entries, names_one); });
  require_usage(candidates.size() == 1, reading,
                ": it holds several dictionaries of tensors; choose one with --key: ", paths());
  return *candidates.front().dictionary;
}

std::optional<std::vector<std::int64_t>> extents(const Value& value) {
  const Value& tuple = value.calls("torch.Size") && !value.items.empty() ? *value.items[0] : value;
  if (!tuple.is(Kind::tuple)) return std::nullopt;
  std::vector<std::int64_t> out;
  for (const Value* item : tuple.items) {
    if (!item->is(Kind::integer)) return std::nullopt;
    out.push_back(item->integer);
  }
  return out;
}

}  // namespace

bool is_torch_global(std::string_view name) {
  return name == kOrdered || name == kTensor || name == kParameter || name == "torch.Size" || is_storage(name) ||
         name == "torch._utils._rebuild_sparse_tensor" || name == "torch.serialization._get_layout";
}

const PickleValue* torch_tensor(const PickleValue& value) {
  if (value.calls(kTensor)) return &value;
  return value.calls(kParameter) && !value.items.empty() && value.items[0]->calls(kTensor) ? value.items[0] : nullptr;
}

std::string torch_folder(const ZipReader& archive, const std::string& reading) {
  constexpr std::string_view kPickle = "data.pkl";
  const auto pickle = std::ranges::find_if(archive.names(), [&](const std::string& name) {
    return name == kPickle || (name.ends_with(kPickle) && name.find('/') == name.size() - kPickle.size() - 1);
  });
  require_data(pickle != archive.names().end(), reading, ": a ZIP archive without data.pkl, not of torch.save");
  std::string folder = pickle->substr(0, pickle->size() - kPickle.size());
  require_data(!archive.has(folder + "byteorder") || archive.read(folder + "byteorder") == "little", reading,
               ": its numbers are big-endian");
  return folder;
}

NamedArray TorchTensors::read(const std::string& name, const Value& tensor) {
  const std::string what = join(reading_, ": array '", name, "'");
  const auto expect = [&](bool good) {
    require_data(good, what, " is not described as a tensor of torch.save; the file is damaged");
  };
  expect(tensor.items.size() >= 4 && tensor.items[0]->is(Kind::stored) && tensor.items[1]->is(Kind::integer));
  require_data(tensor.items.size() <= 6 || tensor.items[6]->entries.empty(), what,
               " is a negated or conjugated view of its storage, which is not read; save its .resolve_neg()");
  const Value& id = *tensor.items[0]->items[0];
  expect(id.is(Kind::tuple) && id.items.size() == 5 && id.items[1]->is(Kind::global) && id.items[2]->is(Kind::text) &&
         is_storage(id.items[1]->text));
  const std::string& type = id.items[1]->text;
  NamedArray out;
  out.name = name;
  out.stored = type.substr(kTorch.size(), type.size() - kTorch.size() - kStorage.size());
  const weights::Element& kind = weights::find_element(&weights::Element::torch, out.stored, what);
  const std::string& bytes = storage(id.items[2]->text);
  const std::size_t held = bytes.size() / kind.width;

  const auto [shape, strides] = std::pair{extents(*tensor.items[2]), extents(*tensor.items[3])};
  expect(shape.has_value() && strides.has_value() && shape->size() == strides->size());
  const std::int64_t count = weights::checked_count(*shape, held, what), offset = tensor.items[1]->integer;
  require_data(offset >= 0 && std::ranges::all_of(*strides, [](std::int64_t stride) { return stride >= 0; }), what,
               " has the offset ", offset, " and the strides ", shape_text(*strides),
               ", of which one is negative; it is damaged");
  std::uint64_t last = static_cast<std::uint64_t>(offset);
  bool inside = count == 0 || last < held;
  for (std::size_t axis = 0; axis < shape->size() && inside && count > 0; ++axis) {
    const auto steps = static_cast<std::uint64_t>((*shape)[axis] - 1);
    inside = steps == 0 || static_cast<std::uint64_t>((*strides)[axis]) <= (held - 1 - last) / steps;
    if (inside) last += steps * static_cast<std::uint64_t>((*strides)[axis]);
  }
  require_data(inside, what, " has the shape ", shape_text(*shape), ", the strides ", shape_text(*strides),
               " and the offset ", offset, ", but its storage is too short: ", held,
               " values; the file is damaged or truncated");
  std::size_t& shared = shared_[id.items[2]->text];
  shared += static_cast<std::size_t>(count);
  require_data(shared / kMostShared <= held, what, ": too many tensors share its storage of ", held, " values");
  kind.read(count == 0 ? nullptr : bytes.data() + static_cast<std::size_t>(offset) * kind.width, {*shape, *strides},
            count, out);
  return out;
}

const std::string& TorchTensors::storage(const std::string& key) {
  const auto found = storages_.find(key);
  return found != storages_.end() ? found->second : storages_.emplace(key, archive_.read(folder_ + key)).first->second;
}

NamedArrays torch_arrays(std::string_view bytes, const std::string& source, const std::string& key) {
  const std::string reading = "reading '" + source + "'";
  const ZipReader archive(bytes, reading);
  const std::string folder = torch_folder(archive, reading);
  require_data(
      !archive.has(folder + "constants.pkl"), reading,
      ": a TorchScript archive; save module.state_dict() with torch.save instead, or, for a feed-forward network, use "
      "lockstep export --checkpoint FILE.ts");
  const Pickled pickled(archive.read(folder + "data.pkl"), reading, is_torch_global);
  const Value& dictionary = choose(pickled.root(), key, reading);
  TorchTensors tensors(archive, folder + "data/", reading);
  std::vector<NamedArray> arrays;
  for (const auto& [name, value] : dictionary.entries)
    if (const Value* tensor = torch_tensor(*value); tensor != nullptr && name->is(Kind::text))
      arrays.push_back(tensors.read(name->text, *tensor));
  return weights::sorted(std::move(arrays), reading);
}

}  // namespace lockstep
