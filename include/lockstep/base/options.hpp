#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/named.hpp"

namespace lockstep {

/// A condition on a value, with the text of its error message: "must be > 0".
struct Check {
  std::string rule;                        ///< "> 0"; empty accepts every value
  std::function<bool(long double)> holds;  ///< long double represents every int64, uint64 and double exactly
};
inline const Check anything{"", nullptr};
inline const Check positive{"> 0", [](long double v) { return v > 0; }};
inline const Check non_negative{">= 0", [](long double v) { return v >= 0; }};
/// The closed interval 0 .. 1.
inline const Check fraction{"0..1", [](long double v) { return v >= 0 && v <= 1; }};
/// The half-open interval [0, 1): decay rates, dropout.
inline const Check below_one{">= 0 and < 1", [](long double v) { return v >= 0 && v < 1; }};
inline const Check odd{"odd, 1..9999",
                       [](long double v) { return v > 0 && v < 1e4 && static_cast<std::int64_t>(v) % 2 != 0; }};
Check at_least(double lowest);
Check between(double lowest, double highest);
/// Upper limits of network sizes, far above any real use, so that a typing error cannot start hours of allocation or
/// overflow the parameter count. ParamStore::allocate() compares the required memory with that of the machine.
inline constexpr double kMostWidth = 1e6, kMostLayers = 1000, kMostCycles = 1000;

/// The types that an option may have. Lists are written with commas: `a,b,c`.
template <class T>
concept OptionValue =
    std::same_as<T, bool> || std::same_as<T, int> || std::same_as<T, std::int64_t> || std::same_as<T, std::uint64_t> ||
    std::same_as<T, double> || std::same_as<T, std::string> || std::same_as<T, std::vector<std::string>> ||
    std::same_as<T, std::vector<double>> || std::same_as<T, std::vector<std::int64_t>>;

/// One line `key = value` of an INI text. The key includes its section: `optim.lr`.
struct IniEntry {
  std::string key, value;
  int line = 0;
};
/// Reads the entries of an INI text: `[section]`, `key = value`, comments from `#` or `;` at the start of a line or
/// after a blank. A value that contains such characters is written in double quotes.
///
/// errors   Error (usage) that names `source` and the line
std::vector<IniEntry> read_ini(std::string_view text, const std::string& source);
/// Reads the entries of a YAML text of maps and scalars: `section:`, below it `key: value` or another map, a list of
/// scalars as `[a, b]` or as lines `- a`. The value of a list has commas.
///
/// errors   Error (usage) that names `source` and the line: anything else, such as anchors, maps in braces, tabs
std::vector<IniEntry> read_yaml(std::string_view text, const std::string& source);
/// The line `key = value` with its line break, in the form that read_ini() reads. Quotes the value where necessary.
std::string ini_line(const std::string& key, const std::string& value);

/// One option of the table. add() returns it for further settings.
class Option {
 public:
  ~Option();
  /// "s", "min" and "h" accept values like 1.5h, 10m, 2d, and a plain number in that unit; "bytes" accepts 4096, 4KiB,
  /// 2GB; any other word appears in the help only.
  Option& unit(std::string name);
  /// Accepts `word` for one of the values of a choice.
  Option& value_alias(std::string word, std::string value);
  /// Makes a missing value a usage error.
  Option& required();
  /// Allows a run directory or checkpoint to be continued with another value. For options that change how a run
  /// executes, not what it computes.
  Option& may_change();
  /// Makes this key and another one alternatives: whichever the command line, or else the last file, gives is in
  /// effect, the other has its default and is not in ini(). To give both in one place is a usage error. Without either,
  /// the other one is in effect.
  Option& instead_of(std::string other);
  /// The first start puts a value in the place of this one, and later starts may give either: differences() does not
  /// report a table that has it.
  Option& settled_by_first_start(std::string value);
  /// If this key differs, differences() reports only this key: it decides which other keys exist and what they mean.
  Option& decides_others();

  struct Spec;  ///< private to the implementation

 private:
  friend class Options;
  explicit Option(std::unique_ptr<Spec> spec);
  std::unique_ptr<Spec> spec_;
};

/// The table of a command's options. It defines the command line, the INI file, help, range checks, `config.ini`,
/// docs/options.md and the man page.
///
///     RunConfig cfg;
///     Options options("lockstep train", "Train a model on all ranks");
///     options.section("optim", "Optimiser");
///     options.add("optim.lr,lr", &cfg.lr, 1e-3, positive, "learning rate at world size 1; see optim.scale_lr");
///     options.choice("optim.name", &cfg.optimizer, "adam", {"adam", "adamw", "sgd"}, "update rule");
///     options.add("json", &json, false, "print JSON");  // no dot: command line only, never in an INI file
///     if (!options.parse(args)) return 0;                // --help was given: the text is printed
///
/// Keys with a dot are configuration: parse() reads them from `--config FILE` (INI; YAML if it ends in .yaml or .yml),
/// `--set key=value`, `--key value` and `key=value`, and ini() writes them. Order: default < file < command line. On
/// the command line `.`, `-` and `_` are equivalent: `--optim.weight_decay`, `--optim-weight-decay`. A bool accepts
/// `--flag`, `--no-flag`, `--flag false` and `--flag=false`. add() stores the defaults in the targets, parse() stores
/// the values.
///
/// errors   Error (usage): `option optim.lr = -0.001: must be > 0`; an unknown key, with the nearest known one; a key
///          that occurs twice in one file. Error (internal) if the table contradicts itself
/// If a key occurs twice on the command line, the last value wins and the log says so. Lists are joined.
class Options {
 public:
  /// `program` is the command as a user types it ("lockstep train"), `summary` one sentence on its purpose, and
  /// `description` further paragraphs for help and man page.
  explicit Options(std::string program, std::string summary = "", std::string description = "");
  Options(Options&&) noexcept;
  Options& operator=(Options&&) noexcept;
  ~Options();

  /// Sets the title of the keys `prefix.*` in help and docs. Sections appear in the order of these calls.
  void section(std::string prefix, std::string title, std::string description = "");
  /// Option::may_change() for the keys that a section has so far, except some.
  void may_change(const std::string& section, const std::set<std::string>& except = {});

  /// names  the key, then its other names as alias() takes them, then a placeholder of the value for the help:
  ///        "run.dir,output.model_dir=DIR"
  template <OptionValue T>
  Option& add(std::string names, T* target, std::type_identity_t<T> initial, Check check, std::string help) {
    return insert<T>(std::move(names), target, std::move(initial), std::move(check), std::move(help));
  }
  template <OptionValue T>
  Option& add(std::string names, T* target, std::type_identity_t<T> initial, std::string help) {
    return insert<T>(std::move(names), target, std::move(initial), anything, std::move(help));
  }
  /// Where an option has its value.
  template <class T>
  struct Target {
    std::function<T()> get;
    std::function<void(T)> set;
    Target(T* place) : get([place] { return *place; }), set([place](T value) { *place = std::move(value); }) {}
    template <Named E>
    Target(E* place)
        : get([place] { return name(*place); }), set([place](const T& word) { *place = named<E>(word).value(); }) {}
  };
  /// Adds a string option that must be one of `values`.
  Option& choice(std::string names, Target<std::string> target, std::string initial, std::vector<std::string> values,
                 std::string help);
  /// Adds an option whose value is one of an enumeration, by its name.
  template <Named E>
  Option& choice(std::string names, E* target, std::type_identity_t<E> initial, std::string help) {
    return choice(std::move(names), target, name(initial), choices<E>(), std::move(help));
  }
  /// Adds a second name for a key, on the command line and (as `section.name` or plain `name`) in files. One letter
  /// makes `-x`.
  void alias(const std::string& key, std::string other);
  /// What a word of another program means here.
  struct Reply {
    std::string note = {};                                       ///< for the log; "": nothing
    std::vector<std::pair<std::string, std::string>> keys = {};  ///< values, as if the command line had given them
  };
  /// Accepts `--name` of another program that is no other name of a key, or of another one than the table would find.
  /// The reply comes after all other values are stored. It throws Error (usage) to refuse the word.
  ///
  /// names        spellings that count, separated by commas: `num_workers,num-workers`
  /// takes_value  else `--name true|false` is allowed too
  /// help         its meaning, for help and docs
  void word(const std::string& names, bool takes_value, std::string help,
            std::function<Reply(const std::string& value)> reply);
  /// Adds a command-line word for one value of a key: `--name` means `--key value`.
  void shorthand(const std::string& name, const std::string& key, const std::string& value);
  /// Replaces the default of a key, for example by the learning rate of a model's paper.
  /// errors   Error (internal): unknown key, or a value that the option does not accept
  void set_default(const std::string& key, const std::string& value);
  /// The same for several keys, as in "optim.lr = 0.001".
  void set_defaults(const std::vector<std::string>& assignments);
  /// Adds words without dashes: at least `least` and at most `most` of them.
  void positional(std::string name, std::vector<std::string>* target, std::string help, std::size_t least = 0,
                  std::size_t most = std::numeric_limits<std::size_t>::max());
  /// Adds a paragraph to the description. Lines that begin with "- " are a list.
  void describe(const std::string& paragraph);
  /// Restricts the configuration keys in help, docs and man page to these keys and sections: "run.threads", "eval.*". A
  /// second call narrows the list. The other keys still work.
  void list_only(std::vector<std::string> keys);
  /// Marks keys, in docs/options.md, that only those need who measure or search for faults.
  void expert(const std::vector<std::string>& keys);
  /// Sets a function that returns text to add to the error about an unknown name, such as the program that has this
  /// option, or "".
  void explain_unknown(std::function<std::string(const std::string& name)> explain);
  /// Sets a function that translates entries of files and checkpoints of earlier versions, before they are read.
  void translate_entries(std::function<void(std::vector<IniEntry>&, const std::string& source)> translate);
  /// Whether the table has a key or an alias of this name.
  bool knows(const std::string& name) const;
  /// Whether help lists this key.
  bool lists(const std::string& key) const;
  /// Adds a working command line and its purpose to the end of help and the man page.
  void example(std::string command, std::string what);

  /// Reads the text of an INI file. The default opens the path; a program with several ranks passes a function that
  /// broadcasts the text from rank 0.
  using Reader = std::function<std::string(const std::string& path)>;
  static std::string read_file(const std::string& path);
  /// The files that `--config` and `-c` name in `args`.
  static std::vector<std::string> config_files(const std::vector<std::string>& args);

  /// The value of a key in `args` and the INI files that they name, or "", for use before a table exists. `names` holds
  /// the key and its aliases. The command line wins over files, later files win over earlier ones.
  static std::string peek(const std::vector<std::string>& args, const std::vector<std::string>& names,
                          const Reader& read = read_file);

  /// While an object of this class lives, it collects the text that parse() would print for `--help`.
  class Capture {
   public:
    Capture();
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    ~Capture();
    std::string text;
  };
  /// Parses the words after the command's name. Returns false if `--help` or `-h` was given: rank 0 has printed the
  /// text and the caller is done. `--help=markdown`, `--help=markdown-command`, `--help=markdown-configuration` and
  /// `--help=man` print those formats.
  bool parse(const std::vector<std::string>& args, const Reader& read = read_file);
  /// Sets values from an INI text (such as /config of a checkpoint). An unknown key is an error.
  void parse_ini(std::string_view text, const std::string& source);

  /// Whether a file or the command line set this key.
  bool given(const std::string& key) const;
  /// "default", "FILE:12" or "command line".
  std::string origin(const std::string& key) const;
  /// The value as text; ini_line() makes a line of ini() of it.
  std::string value(const std::string& key) const;
  /// The default, in the format of value().
  std::string initial(const std::string& key) const;
  /// The values that a key accepts, as help shows them: "pre|post", "N", "true|false".
  std::string accepted(const std::string& key) const;
  /// All keys of the configuration (with a dot), in table order.
  std::vector<std::string> keys() const;
  /// The spellings other than a key, as the command line has them, with what they stand for: {"--lr", "optim.lr"},
  /// {"--fp16", "--precision fp16 on a GPU"}.
  std::vector<std::pair<std::string, std::string>> spellings() const;

  /// The resolved configuration as INI text with comments. parse_ini() restores the same values bit for bit.
  std::string ini() const;
  /// Compares the values with another resolved configuration, except for may_change() keys: "optim.lr: 0.001 there,
  /// 0.01 here". A key that the other text lacks counts with its default. A key that this table lacks is a difference.
  std::vector<std::string> differences(std::string_view other_ini, const std::string& source) const;
  /// Throws an error that names the option, its value and its origin: `option batch.size = 50000 (FILE:3): ` + what.
  /// For checks that involve several options.
  [[noreturn]] void reject(const std::string& key, const std::string& what) const;

  std::string help(int columns = 100) const;
  /// The scope of markdown(): all keys, only keys with a dot, or only command-line options.
  enum class Part : std::uint8_t { all, configuration, command };
  /// One Markdown table per section (docs/options.md).
  std::string markdown(Part part = Part::all) const;
  /// The manual page (section 1, troff with man macros).
  std::string man() const;

 private:
  template <class T>
  Option& insert(std::string names, Target<T> target, T initial, Check check, std::string help);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
