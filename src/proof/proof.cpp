#include "lockstep/proof/proof.hpp"

#include <algorithm>
#include <charconv>
#include <map>

#include "lockstep/base/build_info.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/checkpoint/checkpoint_copy.hpp"
#include "lockstep/io/atomic_file.hpp"

namespace lockstep {

namespace {

constexpr const char* kRun = "run";
constexpr const char* kLink = "link";
constexpr const char* kEnd = "end";
constexpr const char* kFormat = "1";
constexpr std::string_view kHash = "\tchain=";

/// A line without its hash and line break.
std::string content_of(const ProofChain::Entry& entry) {
  if (entry.is_run) {
    const ProofRun& r = entry.run;
    return join(kRun, "\tformat=", kFormat, "\tstep=", r.step, "\tkind=", r.kind, "\tseed=", r.seed,
                "\tdata=", r.data_hash, "\tbuild=", r.build, "\tisa=", r.isa, "\tdevice=", r.device,
                "\tprecision=", r.precision, "\tdevices=", r.devices, "\ttotal=", r.total, "\tevery=", r.every,
                "\tparameters=", listed(r.parameters, ","));
  }
  const ProofLink& l = entry.link;
  return join(l.last ? kEnd : kLink, "\tstep=", l.step, "\tepoch=", l.epoch, "\tposition=", l.position,
              "\tbatch=", hex64(l.batch), "\tloss=", hex64(l.loss), "\tweights=", listed(l.weights, ",", hex64),
              "\toptimizer=", hex64(l.optimizer), "\tprogram=", hex64(l.program), "\taverage=", hex64(l.average));
}

std::string line_of(const ProofChain::Entry& entry) { return join(content_of(entry), kHash, hex64(entry.hash), "\n"); }

/// The fields of a line. errors  Error (data)
class Fields {
 public:
  explicit Fields(std::string_view line) {
    const std::vector<std::string> words = split(line, '\t');
    require_data(!words.empty(), "it is empty");
    kind = words.front();
    for (std::size_t i = 1; i < words.size(); ++i) {
      const std::size_t at = words[i].find('=');
      require_data(at != std::string::npos, "a field has no value");
      values_[words[i].substr(0, at)] = words[i].substr(at + 1);
    }
  }
  const std::string& text(const std::string& key) const {
    const auto found = values_.find(key);
    require_data(found != values_.end(), "it has no field '", key, "'");
    return found->second;
  }
  template <class T>
  T number(const std::string& key, int base = 10) const {
    return parsed<T>(text(key), base);
  }
  template <class T>
  static T parsed(const std::string& word, int base) {
    T value{};
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
    require_data(error == std::errc() && stop == word.data() + word.size(), "'", word, "' is not a number");
    return value;
  }
  std::uint64_t hash(const std::string& key) const { return number<std::uint64_t>(key, 16); }
  std::string kind;

 private:
  std::map<std::string, std::string> values_;
};

ProofChain::Entry entry_of(std::string_view line) {
  const Fields fields(line);
  ProofChain::Entry entry;
  entry.is_run = fields.kind == kRun;
  const auto step = fields.number<std::int64_t>("step");
  require_data(step >= 0, "its step is ", step);
  if (entry.is_run) {
    require_data(fields.text("format") == kFormat, "its format is ", fields.text("format"), ", this program reads ",
                 kFormat);
    entry.run = {.step = step,
                 .kind = fields.text("kind"),
                 .data_hash = fields.text("data"),
                 .build = fields.text("build"),
                 .isa = fields.text("isa"),
                 .device = fields.text("device"),
                 .precision = fields.text("precision"),
                 .seed = fields.number<std::uint64_t>("seed"),
                 .devices = fields.number<std::int64_t>("devices"),
                 .total = fields.number<std::int64_t>("total"),
                 .every = fields.number<std::int64_t>("every"),
                 .parameters = split(fields.text("parameters"), ',')};
    require_data(entry.run.every >= 1, "its interval is ", entry.run.every);
    return entry;
  }
  require_data(fields.kind == kLink || fields.kind == kEnd, "it is neither a run nor a link");
  entry.link = {.step = step,
                .epoch = fields.number<std::int64_t>("epoch"),
                .position = fields.number<std::int64_t>("position"),
                .batch = fields.hash("batch"),
                .loss = fields.hash("loss"),
                .weights = {},
                .optimizer = fields.hash("optimizer"),
                .program = fields.hash("program"),
                .average = fields.hash("average"),
                .last = fields.kind == kEnd};
  for (const std::string& word : split(fields.text("weights"), ','))
    entry.link.weights.push_back(Fields::parsed<std::uint64_t>(word, 16));
  return entry;
}

std::uint64_t hash_of_batch(const TrainState& s, std::uint64_t seed, const std::string& data_hash) {
  return hash64(join(data_hash, " ", seed, " ", s.step, " ", s.epoch, " ", s.position));
}

std::uint64_t hash_of_loss(const TrainState& s) {
  const double sums[] = {s.epoch_loss,           s.epoch_weight,     s.epoch_batch_means,
                         s.epoch_gradient_norms, s.loss_scale.value, static_cast<double>(s.loss_scale.steps)};
  return hash64(sums, sizeof sums, static_cast<std::uint64_t>(s.epoch_steps));
}

/// Arrays by their path in a checkpoint.
using Hashes = std::map<std::string, std::uint64_t>;

std::uint64_t hash_of_group(const Hashes& arrays, const std::string& group) {
  std::string text;
  for (auto at = arrays.lower_bound(group); at != arrays.end() && at->first.starts_with(group); ++at)
    text += at->first + " " + hex64(at->second) + "\n";
  return hash64(text);
}

ProofLink link_of(const Hashes& arrays, const std::vector<std::string>& parameters, const TrainState& state,
                  std::uint64_t seed, const std::string& data_hash) {
  ProofLink link{.step = state.step,
                 .epoch = state.epoch,
                 .position = state.position,
                 .batch = hash_of_batch(state, seed, data_hash),
                 .loss = hash_of_loss(state),
                 .weights = {},
                 .optimizer = hash_of_group(arrays, "/optim/"),
                 .program = hash_of_group(arrays, "/program/"),
                 .average = hash_of_group(arrays, "/ema/")};
  for (const std::string& name : parameters) {
    const auto found = arrays.find("/model/" + name);
    link.weights.push_back(found == arrays.end() ? 0 : found->second);
  }
  return link;
}

std::uint64_t hash_of_array(const CheckpointReader& reader, const std::string& array) {
  const H5Info info = reader.info(array);
  return visit_numbers(info.type, [&]<class T>() {
    std::vector<T> values(info.elements());
    reader.read_into<T>(array, values);
    return hash64(values.data(), values.size() * sizeof(T));
  });
}

}  // namespace

std::string proof_build() {
  const BuildInfo& b = build_info();
  return join("lockstep ", b.version, " (git ", b.git, "), ", b.compiler, " ", b.type);
}

ProofLink proof_link(const CheckpointParts& parts) {
  const std::vector<NamedTensor> tensors = arrays_of(parts);
  std::vector<std::uint64_t> hashes(tensors.size());
  // Arrays on a GPU are hashed one after the other: a transfer is slower than a hash.
  const bool on_host = !parts.params->device().is_cuda();
#pragma omp parallel for schedule(dynamic) if (on_host)
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const HostView host(tensors[i].value);
    hashes[i] = hash64(host->raw(), host->size_bytes());
  }
  Hashes arrays;
  for (std::size_t i = 0; i < tensors.size(); ++i) arrays[tensors[i].name] = hashes[i];
  std::vector<std::string> parameters;
  for (const Param& p : parts.params->all()) parameters.push_back(p.name);
  return link_of(arrays, parameters, *parts.state, parts.seed, hex64(parts.data_hash));
}

std::string proof_difference(const ProofLink& expected, const ProofLink& found,
                             const std::vector<std::string>& parameters) {
  std::string list;
  const auto add = [&](bool differs, const std::string& what) {
    if (differs) list += (list.empty() ? "" : "; ") + what;
  };
  add(expected.batch != found.batch, "batch");
  std::string first;
  std::size_t differing = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (i < expected.weights.size() && i < found.weights.size() && expected.weights[i] == found.weights[i]) continue;
    if (differing++ == 0) first = parameters[i];
  }
  add(differing > 0, join("weights, first those of '", first, "' (", differing, " of ", parameters.size(), " arrays)"));
  add(expected.optimizer != found.optimizer, "optimizer states");
  add(expected.program != found.program, "carried states");
  add(expected.average != found.average, "averaged weights");
  add(expected.loss != found.loss, "losses");
  return list;
}

ProofChain::ProofChain(std::string_view text, std::string source) : source_(std::move(source)) {
  std::size_t at = 0, line = 1;
  for (std::uint64_t before = 0; at < text.size(); ++line) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string_view::npos) break;
    const std::string_view whole = text.substr(at, end - at);
    const std::size_t mark = whole.rfind(kHash);
    require_data(line > 1 || whole.starts_with(join(kRun, "\tformat=")), "proof chain '", source_,
                 "': it does not begin with the header of a proof chain; restore the file or remove it");
    const std::string_view content = whole.substr(0, mark);
    const std::uint64_t hash = hash64(content, before);
    require_data(mark != std::string_view::npos && whole.substr(mark + kHash.size()) == hex64(hash), "proof chain '",
                 source_, "': line ", line,
                 " does not follow from the lines before it: a line was changed, removed or added; restore the file, "
                 "or remove it and continue without this proof");
    Entry entry;
    try {
      entry = entry_of(content);
    } catch (const Error& error) {
      throw Error(Fault::data, join("proof chain '", source_, "': line ", line, ": ", error.what()));
    }
    require_data(entries_.empty() || entry.step() >= entries_.back().step(), "proof chain '", source_, "': line ", line,
                 " is of step ", entry.step(), ", after one of step ", entries_.empty() ? 0 : entries_.back().step());
    entry.hash = before = hash;
    at = end + 1;
    entries_.push_back(std::move(entry));
  }
}

ProofChain ProofChain::read(const std::filesystem::path& path) {
  require_usage(std::filesystem::exists(path), "opening proof chain ", path,
                ": no such file; a run writes it with --reproducible and run.proof_every > 0");
  return {read_text_file(path), path.string()};
}

const ProofLink* ProofChain::link(std::int64_t step) const {
  auto found = std::ranges::lower_bound(entries_, step, {}, &Entry::step);
  while (found != entries_.end() && found->is_run && found->step() == step) ++found;
  return found == entries_.end() || found->step() != step ? nullptr : &found->link;
}

std::int64_t ProofChain::last_link(std::int64_t step) const {
  std::int64_t last = -1;
  for (const Entry& e : entries_)
    if (!e.is_run && e.link.step <= step) last = e.link.step;
  return last;
}

const ProofRun& ProofChain::run(std::int64_t step) const {
  const ProofRun* current = &entries_.front().run;
  for (const Entry& e : entries_)
    if (e.is_run && e.run.step <= step) current = &e.run;
  return *current;
}

bool ProofChain::is_cut_before(std::int64_t step) const {
  if (step == 0) return false;
  const ProofRun& now = run(step - 1);
  const std::int64_t expected = (step - 1) / now.every * now.every;
  return expected >= now.step && last_link(step - 1) < expected;
}

void ProofChain::cut(std::int64_t step) {
  const auto later = std::ranges::find_if(entries_, [&](const Entry& e) { return e.step() > step || e.link.last; });
  entries_.erase(later, entries_.end());
}

std::string ProofChain::add(Entry entry) {
  entry.hash = hash64(content_of(entry), entries_.empty() ? 0 : entries_.back().hash);
  entries_.push_back(std::move(entry));
  return line_of(entries_.back());
}

std::string ProofChain::text() const {
  std::string all;
  for (const Entry& entry : entries_) all += line_of(entry);
  return all;
}

std::string ProofChain::compare(const CheckpointReader& checkpoint) const {
  if (entries_.empty()) return "the chain is empty";
  const TrainState state = checkpoint.state();
  const ProofRun& now = run(state.step);
  const auto same = [&](const char* what, const auto& mine, const auto& theirs) {
    require_data(mine == theirs, "proof chain '", source_, "' is of another run: its ", what, " is ", mine,
                 ", that of the checkpoint ", theirs);
  };
  same("kind of model", now.kind, checkpoint.model_kind());
  same("seed", now.seed, checkpoint.seed());
  same("data set", now.data_hash, checkpoint.data_hash());
  require_data(!is_cut_before(state.step), "proof chain '", source_, "': its last link before step ", state.step,
               " is of step ", last_link(state.step - 1), ": its end was cut off");
  const ProofLink* known = link(state.step);
  // A run that was stopped between the end of an epoch and its evaluation has written its checkpoint before the link.
  if (known == nullptr || known->epoch != state.epoch || known->position != state.position)
    return join("the chain has no link of this state, its last one before is of step ", last_link(state.step - 1),
                "; lockstep replay computes the steps between");
  Hashes arrays;
  for (const std::string& array : checkpoint.arrays("/model")) arrays[array] = hash_of_array(checkpoint, array);
  const bool whole = checkpoint.has_optimizer();
  for (const char* group : {"/optim", "/program", "/ema"})
    for (const std::string& array : checkpoint.arrays(group)) arrays[array] = hash_of_array(checkpoint, array);
  ProofLink found = link_of(arrays, now.parameters, state, checkpoint.seed(), checkpoint.data_hash());
  found.last = known->last;
  if (!whole) found.optimizer = known->optimizer, found.program = known->program, found.loss = known->loss;
  const std::string difference = proof_difference(*known, found, now.parameters);
  require_data(difference.empty(), "it differs from the chain '", source_, "' of step ", state.step,
               " in: ", difference, "; it belongs to another run, was changed, or was computed wrongly");
  return whole ? "agrees with the chain" : "its weights agree with the chain";
}

}  // namespace lockstep
