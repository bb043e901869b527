#include "tasks/sequences/history_file.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/json.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/interaction_lines.hpp"
#include "lockstep/io/line_reader.hpp"
#include "lockstep/samples/sequence_window.hpp"

namespace lockstep {
namespace {

/// One user's events in the order of the file.
struct Events {
  std::int64_t line = 0;  ///< the first
  std::vector<std::int32_t> items;
  std::vector<Moment> times;
};

class Reader {
 public:
  Reader(const std::string& path, const IdTable& items, Unknown unknown)
      : path_(path), items_(items), unknown_(unknown) {}

  void read(const InteractionOptions& options) {
    LineReader lines(path_);
    bool more = next(lines);
    if (more && text_.starts_with("{") && parse_json(text_).contains("items")) {
      unit_ = time_unit(options.time_unit);
      require_usage(options.columns.empty() && options.where.empty() && options.user_column.empty() &&
                        options.item_column.empty() && options.time_column.empty(),
                    "options columns, user-column, item-column, time-column, where: '", path_,
                    "' has an object per user, with the keys user, items and times; omit them");
      for (; more; more = next(lines)) read_object();
    } else {
      InteractionFile file(path_, options);
      timed = file.has_time();
      while (file.next()) {
        line_ = file.line();
        add(of(file.user()), file.item(), file.time());
      }
      reading = file.reading();
    }
    require_data(!users.empty(), "reading '", path_, "': it contains no histories");
  }

  std::vector<std::string> users;
  std::vector<Events> events;
  std::vector<WrittenId> unknown;  ///< events of items that the table lacks
  bool timed = false;              ///< every event has a time
  std::string reading;

 private:
  [[noreturn]] void fail(const auto&... parts) const {
    throw Error(Fault::data, join("reading '", path_, "', line ", line_, ": ", parts...));
  }
  /// The next line that is not empty.
  bool next(LineReader& lines) {
    while (lines.next(text_)) {
      ++line_;
      text_ = trim(text_);
      if (!text_.empty()) return true;
    }
    return false;
  }
  /// The events of a user; adds an unknown user.
  Events& of(const std::string& user) {
    if (user.empty()) fail("no user");
    const auto [at, is_new] = number_.emplace(user, users.size());
    if (is_new) {
      users.push_back(user);
      events.push_back({line_, {}, {}});
    }
    return events[at->second];
  }
  void add(Events& to, const std::string& item, const Moment& time) {
    const std::int64_t number = items_.find(item);
    if (number == IdTable::kSeveral) fail("'", item, "' is the name of several items; give the id instead");
    if (number < 0) unknown.push_back({item, line_});
    if (number < 0 && unknown_ == Unknown::skip) return;
    to.items.push_back(static_cast<std::int32_t>(number + 1));
    if (timed) to.times.push_back(time);
  }

  std::string id_of(const nlohmann::json& value) const {
    if (value.is_number_integer()) return json_text(value);
    if (!value.is_string()) fail("an id must be a text or a whole number");
    return value.get<std::string>();
  }
  Moment time_of(const nlohmann::json& value) const {
    Moment time;
    const TimeFault fault = read_time(value.is_string() ? value.get<std::string>() : json_text(value), time, unit_);
    if (fault == TimeFault::no_time) fail("time ", json_text(value), " is neither a number of seconds nor a date");
    if (fault == TimeFault::too_large || time.seconds < 0 || time.seconds > kLargestTime)
      fail("time ", json_text(value), " is out of range; it must be 0 .. ", kLargestTime);
    return time;
  }
  void read_object() {
    if (nests_deeply(text_)) fail("its lists and objects are nested too deeply");
    const nlohmann::json object = parse_json(text_);
    const auto array = [&](const char* key) {
      const auto at = object.find(key);
      if (at == object.end() || !at->is_array()) fail("no array '", key, "'");
      return *at;
    };
    if (!object.is_object() || !object.contains("user"))
      fail(R"(expected an object such as {"user": "anna", "items": ["12", "7"], "times": [10, 35]})");
    const std::size_t known = users.size();
    const std::string user = id_of(object["user"]);
    Events& to = of(user);
    if (users.size() == known) fail("user '", user, "' occurs twice, first in line ", to.line);
    const nlohmann::json items = array("items");
    const bool has_times = object.contains("times");
    if (known > 0 && has_times != timed) fail(has_times ? "times, unlike the lines before" : "no array 'times'");
    timed = has_times;
    const nlohmann::json times = timed ? array("times") : nlohmann::json::array();
    if (timed && times.size() != items.size()) fail(items.size(), " items and ", times.size(), " times");
    for (std::size_t k = 0; k < items.size(); ++k) add(to, id_of(items[k]), timed ? time_of(times[k]) : Moment{});
  }

  const std::string path_;
  const IdTable& items_;
  const Unknown unknown_;
  TimeUnit unit_;
  std::string text_;
  std::int64_t line_ = 0;
  std::unordered_map<std::string, std::size_t> number_;
};

}  // namespace

UserHistory Histories::of(std::int64_t user) const {
  const auto first = static_cast<std::size_t>(offsets[user]),
             count = static_cast<std::size_t>(offsets[static_cast<std::size_t>(user) + 1]) - first;
  return {std::span(item).subspan(first, count),
          time.empty() ? std::span<const std::int64_t>() : std::span(time).subspan(first, count)};
}

Histories read_histories(const std::string& path, const InteractionOptions& options, const IdTable& items,
                         const std::string& known_items, Unknown unknown, bool timed, const std::string& scale) {
  Reader reader(path, items, unknown);
  reader.read(options);
  require_data(!timed || reader.timed, "reading '", path, "': it has no times, and this model needs them");
  Histories histories{
      .users = {}, .offsets = {0}, .item = {}, .time = {}, .reading = reader.reading, .times = "", .left_out = ""};
  std::int64_t first = kLargestTime, last = 0;
  std::vector<WrittenId> empty;
  for (std::size_t u = 0; u < reader.users.size(); ++u) {
    const Events& events = reader.events[u];
    if (events.items.empty()) {
      empty.push_back({reader.users[u], events.line});
      continue;
    }
    histories.users.push_back(std::move(reader.users[u]));
    auto order = consecutive<std::size_t>(std::ssize(events.items));
    if (reader.timed)
      std::ranges::stable_sort(
          order, {}, [&](std::size_t k) { return std::pair(events.times[k].seconds, events.times[k].fraction); });
    std::vector<std::int64_t> raw;
    for (const std::size_t k : order) {
      histories.item.push_back(events.items[k]);
      if (timed) raw.push_back(events.times[k].seconds);
    }
    if (timed) first = std::min(first, raw.front()), last = std::max(last, raw.back());
    histories.offsets.push_back(std::ssize(histories.item));
    histories.time.resize(histories.time.size() + raw.size());
    scale_times(raw, scale, std::span(histories.time).last(raw.size()));
  }
  const std::string no_items = empty.empty() ? "" : listed(empty) + ": a history without items";
  const std::string skip = "; --unknown skip leaves them out";
  if (unknown == Unknown::refuse) {
    require_data(reader.unknown.empty(), "reading '", path, "': ", listed(reader.unknown),
                 reader.unknown.size() == 1 ? " is" : " are", " none of ", known_items, skip);
    require_data(empty.empty(), "reading '", path, "': ", no_items, skip);
  }
  require_data(!histories.users.empty(), "reading '", path, "': no history has one of ", known_items);
  constexpr std::int64_t k2100 = 4102444800;
  if (timed)
    histories.times = join(date_time_text(first), " to ", date_time_text(last), " UTC",
                           last >= k2100 ? "; numbers in another unit need --time-unit" : "");
  std::unordered_set<std::string> distinct;
  for (const WrittenId& id : reader.unknown) distinct.insert(id.text);
  if (!distinct.empty())
    histories.left_out = join(reader.unknown.size(), " events of ", distinct.size(), " unknown items");
  if (!empty.empty())
    histories.left_out +=
        join(histories.left_out.empty() ? "" : ", ", empty.size(), " users without a known item: ", listed(empty));
  return histories;
}

}  // namespace lockstep
