#include "tasks/sequences/history_file.hpp"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>

#include "lockstep/base/csv.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/sequence_window.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {
namespace {

/// One user's events in the order of the file.
struct Events {
  std::int64_t line = 0;  ///< the first
  std::vector<std::int32_t> items;
  std::vector<std::int64_t> times;
};

class Reader {
 public:
  Reader(const std::string& path, const IdTable& items, const std::string& known_items)
      : path_(path), items_(items), known_items_(known_items), in_(open_text(path)) {}

  void read() {
    while (next() && text_.empty()) {
    }
    if (text_.starts_with("{")) {
      do {
        if (!text_.empty()) read_object();
      } while (next());
    } else if (!text_.empty()) {
      read_header();
      while (next())
        if (!text_.empty()) read_event();
    }
    if (!unknown_.empty())
      throw Error(Fault::data, join("reading '", path_, "': ", listed(unknown_), unknown_.size() == 1 ? " is" : " are",
                                    " none of ", known_items_));
    std::vector<WrittenId> empty;
    for (std::size_t u = 0; u < events.size(); ++u)
      if (events[u].items.empty()) empty.push_back({users[u], events[u].line});
    require_data(empty.empty(), "reading '", path_, "': ", listed(empty), ": a history without items");
    require_data(!users.empty(), "reading '", path_, "': it contains no histories");
  }

  std::vector<std::string> users;
  std::vector<Events> events;
  bool timed = false;  ///< every event has a time

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw Error(Fault::data, join("reading '", path_, "', line ", line_, ": ", parts...));
  }
  bool next() {
    if (!next_line(in_, text_, line_, path_)) return false;
    text_ = trim(text_);
    return true;
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
  void add_item(Events& to, const std::string& item) {
    const std::int64_t number = items_.find(item);
    if (number < 0) unknown_.push_back({item, line_});
    to.items.push_back(static_cast<std::int32_t>(number + 1));
  }
  std::int64_t checked_time(std::int64_t time) const {
    if (time < 0 || time > kLargestTime) fail("time ", time, " is out of range; it must be 0 .. ", kLargestTime);
    return time;
  }

  void read_header() {
    if (!split_csv(text_, fields_)) fail(kCsvDefect);
    const auto column = [&](const char* name) {
      const auto at = std::find(fields_.begin(), fields_.end(), name);
      return at == fields_.end() ? std::string::npos : static_cast<std::size_t>(at - fields_.begin());
    };
    user_ = column("user");
    item_ = column("item");
    time_ = column("time");
    timed = time_ != std::string::npos;
    width_ = fields_.size();
    if (user_ == std::string::npos || item_ == std::string::npos)
      fail("neither a JSON object nor a CSV header with the columns user and item (and time)");
  }
  void read_event() {
    if (!split_csv(text_, fields_)) fail(kCsvDefect);
    if (fields_.size() != width_) fail(fields_.size(), " fields, the header has ", width_);
    Events& events_of = of(fields_[user_]);
    add_item(events_of, fields_[item_]);
    if (!timed) return;
    const std::string& text = fields_[time_];
    std::int64_t time = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), time);
    if (error != std::errc() || end != text.data() + text.size())
      fail("time '", text, "' is not a whole number of seconds");
    events_of.times.push_back(checked_time(time));
  }

  std::string id_of(const nlohmann::json& value) const {
    if (value.is_number_integer()) return value.dump();
    if (!value.is_string()) fail("an id must be a text or a whole number");
    return value.get<std::string>();
  }
  void read_object() {
    const nlohmann::json object = nlohmann::json::parse(text_, nullptr, false);
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
    for (const auto& item : items) add_item(to, id_of(item));
    const bool has_times = object.contains("times");
    if (known > 0 && has_times != timed) fail(has_times ? "times, unlike the lines before" : "no array 'times'");
    timed = has_times;
    if (!timed) return;
    const nlohmann::json times = array("times");
    if (times.size() != items.size()) fail(items.size(), " items and ", times.size(), " times");
    for (const auto& time : times) {
      if (!time.is_number_integer()) fail("a time is not a whole number of seconds");
      if (time.is_number_unsigned() && time.get<std::uint64_t>() > static_cast<std::uint64_t>(kLargestTime))
        fail("time ", time.dump(), " is out of range; it must be 0 .. ", kLargestTime);
      to.times.push_back(checked_time(time.get<std::int64_t>()));
    }
  }

  std::string path_;
  const IdTable& items_;
  const std::string& known_items_;
  std::ifstream in_;
  std::string text_;
  std::int64_t line_ = 0;
  std::vector<std::string> fields_;
  std::size_t user_ = 0, item_ = 0, time_ = 0, width_ = 0;
  std::unordered_map<std::string, std::size_t> number_;
  std::vector<WrittenId> unknown_;
};

}  // namespace

UserHistory Histories::of(std::int64_t user) const {
  const auto first = static_cast<std::size_t>(offsets[static_cast<std::size_t>(user)]),
             count = static_cast<std::size_t>(offsets[static_cast<std::size_t>(user) + 1]) - first;
  return {std::span(item).subspan(first, count),
          time.empty() ? std::span<const std::int64_t>() : std::span(time).subspan(first, count)};
}

Histories read_histories(const std::string& path, const IdTable& items, const std::string& known_items, bool timed,
                         const std::string& scale) {
  Reader reader(path, items, known_items);
  reader.read();
  require_data(!timed || reader.timed, "reading '", path, "': it has no times, and this model needs them");
  Histories histories{.users = std::move(reader.users), .offsets = {0}, .item = {}, .time = {}};
  for (const Events& events : reader.events) {
    std::vector<std::size_t> order(events.items.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (reader.timed)
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return events.times[a] < events.times[b]; });
    std::vector<std::int64_t> raw;
    for (const std::size_t k : order) {
      histories.item.push_back(events.items[k]);
      if (timed) raw.push_back(events.times[k]);
    }
    histories.offsets.push_back(static_cast<std::int64_t>(histories.item.size()));
    histories.time.resize(histories.time.size() + raw.size());
    scale_times(raw, scale, std::span(histories.time).last(raw.size()));
  }
  return histories;
}

}  // namespace lockstep
