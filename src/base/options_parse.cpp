#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/options_impl.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

void Options::Impl::apply(const std::vector<IniEntry>& entries, const std::string& source) {
  std::map<const Option::Spec*, std::string> seen;
  for (const auto& entry : entries) {
    const std::string where = join(source, ":", entry.line);
    Option::Spec* row = find(entry.key);
    if (const Word* word = row == nullptr ? find_word(entry.key) : nullptr) {
      const Reply reply = word->reply(truth(entry.value));
      for (const auto& [key, meant] : reply.keys) {
        seen.emplace(&at(key), entry.key);
        at(key).set(meant, where);
      }
      if (!reply.note.empty()) log::info(where, ": ", entry.key, ": ", reply.note);
      continue;
    }
    // The suggestion builds the tables of all kinds.
    if (row == nullptr) throw Error(Fault::usage, join(where, ": unknown key ", entry.key, suggestion(entry.key, "")));
    require_usage(row->configuration(), where, ": ", entry.key, " is an option of the command line, not of a file");
    const auto [first, fresh] = seen.emplace(row, entry.key);
    require_usage(fresh, where, ": ", entry.key, " is another name of ", first->second, ", which is already set");
    row->set(entry.value, where);
  }
  choose_alternatives([&](const Option::Spec& row) { return seen.contains(&row); });
}

std::vector<IniEntry> Options::Impl::entries_of(std::string_view text, const std::string& source) const {
  std::vector<IniEntry> entries = read_ini(text, source);
  if (translate) translate(entries, source);
  return entries;
}

void Options::Impl::choose_alternatives(const std::function<bool(const Option::Spec&)>& set) {
  for (const auto& option : options) {
    Option::Spec& row = *option->spec_;
    if (row.other.empty()) continue;
    Option::Spec& other = at(row.other);
    require_usage(!set(row) || !set(other), "options ", other.key, " = ", other.text(), " and ", row.key, " = ",
                  row.text(), " (", row.origin, "): only one of them can hold; give one");
    if (set(row)) other.reset();
    if (set(other)) row.reset();
  }
}

bool Options::Impl::replaced(const Option::Spec& row) const {
  if (!row.other.empty()) return row.origin == "default";
  return std::ranges::any_of(options, [&](const auto& option) {
    const Option::Spec& each = *option->spec_;
    return each.other == row.key && each.origin != "default";
  });
}

void Options::parse_ini(std::string_view text, const std::string& source) {
  impl_->apply(impl_->entries_of(text, source), source);
}

std::string Options::read_file(const std::string& path) {
  require_usage(!std::filesystem::is_directory(path), "configuration '", path, "': is a directory");
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  require_usage(in.good(), "configuration '", path, "': ", errno != 0 ? std::strerror(errno) : "cannot be read");
  return std::move(text).str();
}

std::string Options::Impl::suggestion(const std::string& name, const char* dashes) const {
  std::vector<std::string> candidates;
  for (const auto& option : options) {
    const Option::Spec& row = *option->spec_;
    candidates.push_back(row.key);
    for (const auto& alias : row.aliases) candidates.push_back(alias);
  }
  for (const auto& word : words) candidates.insert(candidates.end(), word->names.begin(), word->names.end());
  if (has_configuration()) candidates.insert(candidates.end(), {"config", "set"});
  candidates.push_back("help");
  // The name of a section stands for its first key: --data is --data.path.
  const auto first =
      std::ranges::find_if(options, [&](const auto& o) { return !name.empty() && o->spec_->section() == name; });
  std::string near = first != options.end() ? (*first)->spec_->key : nearest(name, candidates);
  if (near.empty()) {  // other separators, or no section: --weight-dcay
    std::map<std::string, std::string> folded;
    std::vector<std::string> alike;
    for (const auto& candidate : candidates) {
      alike.push_back(fold(candidate));
      folded.emplace(alike.back(), candidate);
      if (const auto dot = candidate.find('.'); dot != std::string::npos) {
        alike.push_back(fold(candidate.substr(dot + 1)));
        folded.emplace(alike.back(), candidate);
      }
    }
    const std::string match = nearest(fold(name), alike);
    if (!match.empty()) near = folded.at(match);
  }
  std::string known = explain ? explain(name) : "";
  if (near.empty() && known.empty()) {
    constexpr std::size_t kFew = 8;
    std::vector<std::string> own;  // without the keys of a configuration
    for (const auto& option : options)
      if (!option->spec_->configuration()) own.push_back(dashes + option->spec_->key);
    const bool names = *dashes != 0 && !own.empty() && own.size() <= kFew;
    return join(names ? "; " + program + " has " + lockstep::listed(own) : "", "; see ", program, " --help");
  }
  if (near.empty()) return known;
  if (const Option::Spec* row = find(near); row != nullptr) near = row->key;
  return join(known, "; did you mean ", dashes, near, "?");
}

std::vector<std::string> Options::config_files(const std::vector<std::string>& args) {
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < args.size() && args[i] != "--"; ++i) {
    if (args[i].starts_with("--config=") || args[i].starts_with("-c=")) {
      paths.push_back(args[i].substr(args[i].find('=') + 1));
    } else if ((args[i] == "--config" || args[i] == "-c") && i + 1 < args.size()) {
      paths.push_back(args[++i]);
    }
  }
  return paths;
}

std::string Options::peek(const std::vector<std::string>& args, const std::vector<std::string>& names,
                          const Reader& read) {
  const auto named = [&](const std::string& key) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return fold(name) == fold(key); });
  };
  std::string value;
  for (const std::string& path : config_files(args)) {
    const std::string text = read(path);
    for (const IniEntry& entry : is_yaml(path) ? read_yaml(text, path) : read_ini(text, path))
      if (named(entry.key)) value = entry.value;
  }
  for (std::size_t i = 0; i < args.size() && args[i] != "--"; ++i) {
    const bool dashes = args[i].starts_with("--");
    if (!dashes && args[i].find('=') == std::string::npos) continue;  // key=value needs no dashes
    std::string word = args[i].substr(dashes ? 2 : 0);
    if (word == "set" && i + 1 < args.size()) {
      word = args[++i];
    } else if (word.starts_with("set=")) {
      word.erase(0, 4);
    }
    const auto equals = word.find('=');
    if (!named(trim(word.substr(0, equals)))) continue;
    if (equals != std::string::npos) {
      value = trim(word.substr(equals + 1));
    } else if (i + 1 < args.size()) {
      value = args[i + 1];
    }
  }
  return value;
}

}  // namespace lockstep
