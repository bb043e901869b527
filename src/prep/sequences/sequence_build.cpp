/// Turns raw interactions into a data set: filter, dense numbers, order, scaled times, split.
#include <algorithm>
#include <charconv>
#include <numeric>

#include "lockstep/base/error.hpp"
#include "lockstep/prep/sequences/interactions.hpp"

namespace lockstep::prep {

namespace {

constexpr std::int64_t kLargestKeptId = std::int64_t{1} << 28;  ///< kept ids index rows: bounds the offsets to 2 GiB

enum class IdKind : std::uint8_t { integer, too_large, text };

/// Integers must be canonical, `7` and not `007`, so that different texts stay different ids.
IdKind kind_of(const std::string& id, std::int64_t& value) {
  const auto [after, failed] = std::from_chars(id.data(), id.data() + id.size(), value);
  if (after != id.data() + id.size()) return IdKind::text;
  if (failed == std::errc::result_out_of_range) return IdKind::too_large;
  return failed == std::errc{} && std::to_string(value) == id ? IdKind::integer : IdKind::text;
}

/// The dense numbers of users or items.
struct Dense {
  std::vector<std::int32_t> number;  ///< of each entry of the table; 0 when it was dropped
  RawIds raw;
};

class Numbering {
 public:
  Numbering(const Interactions& raw, const IdTable& table, const char* what, const SequenceOptions& options)
      : raw_(raw), table_(table), what_(what), options_(options) {}

  /// `used` marks entries that still have interactions.
  Dense number(const std::vector<bool>& used) {
    read_kinds();
    std::vector<std::int32_t> order;
    for (std::size_t entry = 0; entry < table_.size(); ++entry)
      if (used[entry]) order.push_back(static_cast<std::int32_t>(entry));
    Dense dense;
    dense.number.assign(table_.size(), 0);
    if (options_.keep_ids) return keep(order, std::move(dense));
    const auto id = [&](std::int32_t entry) -> const std::string& {
      return table_.id(static_cast<std::size_t>(entry));
    };
    const auto value = [&](std::int32_t entry) { return values_[entry]; };
    std::sort(order.begin(), order.end(),
              [&](std::int32_t a, std::int32_t b) { return text_ ? id(a) < id(b) : value(a) < value(b); });
    dense.raw.is_text = text_;
    for (std::size_t k = 0; k < order.size(); ++k) {
      dense.number[order[k]] = static_cast<std::int32_t>(k + 1);
      if (text_) {
        dense.raw.texts.push_back(id(order[k]));
      } else {
        dense.raw.numbers.push_back(value(order[k]));
      }
    }
    return dense;
  }

 private:
  [[noreturn]] void fail(std::size_t entry, const auto&... parts) const {
    const auto place = table_.place(entry);
    throw Error(Fault::data, join("reading '", raw_.files[place.file].string(), "', line ", place.line, ": ", what_,
                                  " id '", table_.id(entry), "' ", parts...));
  }

  /// Fills values_ and decides whether the ids are text.
  void read_kinds() {
    values_.assign(table_.size(), 0);
    text_ = options_.ids == "text";
    if (text_ && !options_.keep_ids) return;
    std::size_t integers = 0, first_text = table_.size(), first_large = table_.size(), texts = 0;
    for (std::size_t entry = 0; entry < table_.size(); ++entry) {
      const IdKind kind = kind_of(table_.id(entry), values_[entry]);
      integers += kind == IdKind::integer;
      texts += kind == IdKind::text;
      if (kind == IdKind::text) first_text = std::min(first_text, entry);
      if (kind == IdKind::too_large) first_large = std::min(first_large, entry);
    }
    if (first_text < table_.size()) {
      if (options_.ids == "integer" || options_.keep_ids)
        fail(first_text, "is not an integer", options_.keep_ids ? ", so ids cannot be kept" : "");
      if (texts == 1 && integers > 0 && table_.place(first_text).line == 1 &&
          !raw_.readings.front().starts_with("json") &&
          table_.id(first_text).find_first_of("0123456789") == std::string::npos)
        fail(first_text, "among integers: is it a header? Remove it, or read the file with --format csv");
      text_ = true;
    } else if (first_large < table_.size()) {
      fail(first_large, "is out of range: it does not fit 64 bits; --ids text takes ids as text");
    }
  }

  Dense keep(const std::vector<std::int32_t>& order, Dense dense) const {
    std::int64_t largest = 0;
    for (const std::int32_t entry : order) {
      const std::int64_t value = values_[entry];
      if (value < 1 || value > kLargestKeptId)
        fail(static_cast<std::size_t>(entry), "is out of range: kept ids are 1 .. ", kLargestKeptId);
      dense.number[entry] = static_cast<std::int32_t>(value);
      largest = std::max(largest, value);
    }
    dense.raw.numbers.resize(largest);
    std::iota(dense.raw.numbers.begin(), dense.raw.numbers.end(), std::int64_t{1});
    return dense;
  }

  const Interactions& raw_;
  const IdTable& table_;
  const char* what_;
  const SequenceOptions& options_;
  std::vector<std::int64_t> values_;
  bool text_ = false;
};

std::vector<std::int64_t> counts(const std::vector<std::int32_t>& entries, std::size_t size) {
  std::vector<std::int64_t> count(size, 0);
  for (const std::int32_t entry : entries) ++count[entry];
  return count;
}

}  // namespace

SequenceSet make_sequences(const Interactions& raw, const SequenceOptions& options, SequenceReport& report) {
  const auto user_count = counts(raw.user, raw.users.size()), item_count = counts(raw.item, raw.items.size());
  report = {std::ssize(raw), std::ssize(raw.users), std::ssize(raw.items), 0, 0};
  std::vector<bool> user_used(raw.users.size(), false), item_used(raw.items.size(), false);
  std::vector<std::size_t> kept;
  for (std::size_t line = 0; line < raw.size(); ++line) {
    const auto user = static_cast<std::size_t>(raw.user[line]), item = static_cast<std::size_t>(raw.item[line]);
    const bool few_user = user_count[user] < options.min_user, few_item = item_count[item] < options.min_item;
    report.few_user += few_user;
    report.few_item += few_item && !few_user;
    if (few_user || few_item) continue;
    user_used[user] = item_used[item] = true;
    kept.push_back(line);
  }
  require_data(!kept.empty(), "preparing sequences: the filter leaves none of ", raw.size(), " interactions (",
               report.few_user, " of users with fewer than ", options.min_user, ", ", report.few_item,
               " of items with fewer than ", options.min_item, "); lower --min-user or --min-item");

  const Dense users = Numbering(raw, raw.users, "user", options).number(user_used);
  const Dense items = Numbering(raw, raw.items, "item", options).number(item_used);
  SequenceSet set;
  set.users = users.raw;
  set.items = items.raw;
  set.min_user = options.min_user;
  set.min_item = options.min_item;
  set.min_split = options.min_split;
  set.time_scale = options.time_scale;
  set.keep_ids = options.keep_ids;
  const auto user_of = [&](std::size_t line) { return static_cast<std::size_t>(users.number[raw.user[line]]); };

  // Groups lines by user in file order, then sorts each user's lines stably by time.
  set.offsets.assign(users.raw.size() + 1, 0);
  for (const std::size_t line : kept) ++set.offsets[user_of(line)];
  std::partial_sum(set.offsets.begin(), set.offsets.end(), set.offsets.begin());
  std::vector<std::int64_t> next(set.offsets.begin(), set.offsets.end() - 1);
  std::vector<std::size_t> order(kept.size());
  for (const std::size_t line : kept) order[next[user_of(line) - 1]++] = line;
  if (raw.has_time)
    for (std::size_t u = 0; u + 1 < set.offsets.size(); ++u)
      std::stable_sort(order.begin() + set.offsets[u], order.begin() + set.offsets[u + 1],
                       [&](std::size_t a, std::size_t b) {
                         if (raw.time[a] != raw.time[b] || raw.fraction.empty()) return raw.time[a] < raw.time[b];
                         return raw.fraction[a] < raw.fraction[b];
                       });
  set.item.reserve(order.size());
  for (const std::size_t line : order) {
    set.item.push_back(items.number[raw.item[line]]);
    if (raw.has_time) set.time_raw.push_back(raw.time[line]);
  }
  derive(set, std::ssize(items.raw));
  require_data(std::any_of(set.n_train.begin(), set.n_train.end(), [](std::int32_t m) { return m >= 2; }),
               "preparing sequences: no user has two interactions to train on; ", set.n_users(), " users have ",
               set.rows(), " interactions after the filter");
  return set;
}

}  // namespace lockstep::prep
