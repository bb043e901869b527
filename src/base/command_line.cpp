#include <algorithm>
#include <boost/program_options.hpp>
#include <cctype>
#include <iostream>
#include <optional>
#include <set>

#include "base/options_impl.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

namespace po = boost::program_options;

namespace {

std::string* captured = nullptr;

/// Marks a value after `=`: Boost rejects a value that is empty or looks like an option.
constexpr char kAttached = '\x02';
constexpr const char* kWord = "\x01word";  // an argument without dashes

void print(const std::string& text) {
  if (captured != nullptr)
    *captured += text;
  else if (log::speaker().rank == 0)
    std::cout << text << std::flush;
}

constexpr char kForeign = '\x03';  // before a word of another program

/// A value from the command line. parse() stores it after the files.
struct Typed {
  Option::Spec* row;
  std::string value;
};

}  // namespace

Options::Capture::Capture() {
  require(captured == nullptr, "Options::Capture: another one is active");
  captured = &text;
}
Options::Capture::~Capture() { captured = nullptr; }

bool Options::parse(const std::vector<std::string>& args, const Reader& read) {
  Impl& table = *impl_;
  const bool configurable = table.has_configuration();

  // Resolves names (any separator, aliases, --no-flag). Boost then finds the value of each option.
  const auto resolve = [&](const std::string& arg) -> std::pair<std::string, std::string> {
    if (arg.size() < 2 || arg[0] != '-' || arg == "--") return {};
    if (arg[1] != '-' && (std::isdigit(static_cast<unsigned char>(arg[1])) != 0 || arg[1] == '.')) return {};  // -0.5
    const auto equals = arg.find('=');
    const std::string typed = arg.substr(0, equals);
    const std::string name = typed.substr(typed[1] == '-' ? 2 : 1);
    const std::string value = equals == std::string::npos ? "" : kAttached + arg.substr(equals + 1);
    const std::string flag = value.empty() ? "true" : value;
    const bool single = typed[1] != '-';
    if (const Impl::Word* word = table.find_word(name); !single && word != nullptr)
      return {kForeign + word->names.front(), word->takes_value ? value : flag};
    if (!single || name.size() == 1) {
      if (name == "help" || name == "h") return {"help", flag};
      if (configurable && (name == "config" || (name == "c" && table.find("c") == nullptr))) return {"config", value};
      if (configurable && name == "set") return {"set", value};
      if (Option::Spec* row = table.find(name); row != nullptr) return {row->key, row->flag() ? flag : value};
    }
    if (const auto found = table.shorthands.find(fold(name)); !single && found != table.shorthands.end()) {
      require_usage(equals == std::string::npos, "option ", typed, " takes no value");
      return {found->second.first->key, kAttached + found->second.second};
    }
    if (!single && fold(name).starts_with("no.")) {
      Option::Spec* row = table.find(name.substr(3));
      if (row != nullptr && row->flag()) {
        require_usage(equals == std::string::npos, "option ", typed, " takes no value");
        return {row->key, "false"};
      }
    }
    throw Error(Fault::usage,
                join("unknown option ", typed,
                     single && name.size() > 1 && table.find(name) != nullptr ? "; did you mean -" + typed + "?"
                                                                              : table.suggestion(name, "--")));
  };

  // `--flag true` becomes `--flag=true`: Boost would take the value for a positional argument.
  std::vector<std::string> joined;
  bool options_end = false;
  for (const std::string& arg : args) {
    options_end = options_end || arg == "--";
    const bool is_truth = truth(arg) == "true" || truth(arg) == "false";
    if (!options_end && !joined.empty() && is_truth && joined.back().starts_with("--")) {
      const Option::Spec* row = table.find(joined.back().substr(2));
      const Impl::Word* word = table.find_word(joined.back().substr(2));
      if (word != nullptr ? !word->takes_value : row != nullptr && row->flag()) {
        joined.back() += "=" + arg;
        continue;
      }
    }
    joined.push_back(arg);
  }

  po::options_description known;
  const auto declare = [&](const std::string& key) {
    known.add(
        boost::shared_ptr<po::option_description>(new po::option_description(key.c_str(), po::value<std::string>())));
  };
  for (const char* key : {"help", "config", "set", kWord}) declare(key);
  for (const auto& option : table.options) declare(option->spec_->key);
  for (const auto& word : table.words) declare(kForeign + word->names.front());
  po::positional_options_description words;
  words.add(kWord, -1);

  const auto without_value = [&](std::string key) {
    key.erase(0, key.find_first_not_of('-'));
    const Option::Spec* row = table.find(key);
    throw Error(Fault::usage, join("option --", row != nullptr ? row->key : key, " needs a value",
                                   row != nullptr    ? " (" + row->placeholder() + ")"
                                   : key == "config" ? " (FILE)"
                                                     : " (KEY=VALUE)"));
  };
  po::parsed_options parsed(&known);
  try {
    using style = po::command_line_style::style_t;
    parsed = po::command_line_parser(joined)
                 .options(known)
                 .positional(words)
                 .style(style::allow_long | style::long_allow_adjacent | style::long_allow_next | style::allow_short |
                        style::allow_dash_for_short | style::short_allow_next)
                 .extra_parser(resolve)
                 .run();
  } catch (const po::error_with_option_name& e) {
    without_value(e.get_option_name());
  } catch (const po::error& e) {
    throw Error(Fault::usage, join("command line: ", e.what()));
  }

  std::vector<Typed> typed;
  std::set<const Option::Spec*> seen;
  std::vector<std::string> configs, given_words;
  std::vector<std::pair<const Impl::Word*, std::string>> foreign;
  std::optional<std::string> help;
  const auto type = [&](Option::Spec& row, const std::string& value) {
    if (seen.insert(&row).second) {
      typed.push_back({&row, value});
      return;
    }
    auto& first = std::find_if(typed.begin(), typed.end(), [&](const Typed& t) { return t.row == &row; })->value;
    if (row.list()) {
      first += (first.empty() ? "" : ",") + value;
    } else if (first != value) {
      log::info("option ", row.key, " is given twice on the command line: ", value, " replaces ", first);
      first = value;
    }
  };
  for (const auto& option : parsed.options) {
    std::string value = option.value.empty() ? "" : option.value.front();
    const bool attached = value.starts_with(kAttached);
    if (attached) value.erase(0, 1);
    if (option.position_key >= 0 || option.string_key == kWord) {
      for (const std::string& word : option.value) {
        const auto equals = word.find('=');
        std::string name = equals == std::string::npos ? "" : word.substr(0, equals);
        name.erase(0, name.find_first_not_of('+'));  // Hydra, which HRM and TRM use, adds keys by +key=value
        Option::Spec* row = table.find(name);
        const Impl::Word* theirs = table.find_word(name);
        if (row != nullptr && row->configuration())
          type(*row, word.substr(equals + 1));
        else if (theirs != nullptr)
          foreign.emplace_back(theirs, word.substr(equals + 1));
        else
          given_words.push_back(word);
      }
      continue;
    }
    if (!attached && value.size() > 2 && value.starts_with("--")) without_value(option.string_key);
    if (option.string_key.starts_with(kForeign)) {
      foreign.emplace_back(table.find_word(option.string_key.substr(1)), value);
    } else if (option.string_key == "help") {
      help = value;
    } else if (option.string_key == "config") {
      configs.push_back(value);
    } else if (option.string_key == "set") {
      const auto equals = value.find('=');
      require_usage(equals != std::string::npos && equals > 0, "option --set '", value, "': expected key=value");
      const std::string key = trim(value.substr(0, equals));
      Option::Spec* row = table.find(key);
      require_usage(row != nullptr && row->configuration(), "option --set: unknown key ", key,
                    table.suggestion(key, ""));
      type(*row, trim(value.substr(equals + 1)));
    } else {
      type(table.at(option.string_key), value);
    }
  }

  if (help) {
    if (*help == "true")
      print(this->help());
    else if (*help == "markdown")
      print(markdown());
    else if (*help == "markdown-command")
      print(markdown(Part::command));
    else if (*help == "markdown-configuration")
      print(markdown(Part::configuration));
    else if (*help == "man")
      print(man());
    else
      throw Error(Fault::usage, "option --help = " + *help + ": must be nothing, markdown or man");
    return false;
  }

  for (const auto& path : configs) {
    const std::string text = read(path);
    is_yaml(path) ? table.apply(read_yaml(text, path), path) : parse_ini(text, path);
  }
  for (const auto& [row, value] : typed) row->set(value, "command line");
  for (const auto& [word, value] : foreign) {
    const Reply reply = word->reply(truth(value));
    for (const auto& [key, meant] : reply.keys) {
      seen.insert(&table.at(key));
      table.at(key).set(meant, "command line");
    }
    if (!reply.note.empty()) log::info("option --", word->names.front(), ": ", reply.note);
  }
  table.choose_alternatives([&](const Option::Spec& row) { return seen.contains(&row); });
  for (const auto& option : table.options) {
    const Option::Spec& row = *option->spec_;
    require_usage(!row.needed || row.origin != "default", "option --", row.key, " ", row.placeholder(),
                  " is missing: ", row.help);
  }

  std::size_t next = 0;
  for (const auto& positional : table.positionals) {
    std::vector<std::string> mine;
    while (next < given_words.size() && mine.size() < positional.most) mine.push_back(given_words[next++]);
    require_usage(mine.size() >= positional.least, positional.name, " is missing: ", positional.help, "; see ",
                  table.program, " --help");
    *positional.target = std::move(mine);
  }
  if (next < given_words.size()) {
    const std::string& word = given_words[next];
    const auto equals = word.find('=');
    // --hidden-dims 64 32
    const auto at = std::ranges::find(args, word);
    const bool second = at - args.begin() >= 2 && !at[-1].starts_with("-") && at[-2].starts_with("--");
    throw Error(Fault::usage, join("unexpected argument '", word, "'",
                                   equals != std::string::npos && configurable
                                       ? table.suggestion(word.substr(0, equals), "")
                                       : join(second ? join("; values of one option are separated by commas, as in ",
                                                            at[-2], " ", at[-1], ",", word)
                                                     : "",
                                              "; see ", table.program, " --help")));
  }
  return true;
}

}  // namespace lockstep
