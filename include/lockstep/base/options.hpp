#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep {

/// What a value must satisfy, and how a message says it: "must be > 0".
struct Check {
  std::string rule;                        ///< "> 0"; empty accepts everything
  std::function<bool(long double)> holds;  ///< long double holds every int64, uint64 and double exactly
};
inline const Check anything{"", nullptr};
inline const Check positive{"> 0", [](long double v) { return v > 0; }};
inline const Check non_negative{">= 0", [](long double v) { return v >= 0; }};
/// 0 .. 1, both included.
inline const Check fraction{"0..1", [](long double v) { return v >= 0 && v <= 1; }};
/// 0 included, 1 not: decay rates, dropout.
inline const Check below_one{">= 0 and < 1", [](long double v) { return v >= 0 && v < 1; }};
inline const Check odd{"odd and > 0", [](long double v) { return v > 0 && static_cast<std::int64_t>(v) % 2 != 0; }};
inline const Check power_of_two{"a power of two", [](long double v) {
                                  const auto n = static_cast<std::uint64_t>(v < 1 ? 0 : v);
                                  return n != 0 && (n & (n - 1)) == 0;
                                }};
Check at_least(double lowest);
Check between(double lowest, double highest);

/// A type that an option may have. Lists are written with commas: `a,b,c`.
template <class T>
concept OptionValue = std::same_as<T, bool> || std::same_as<T, int> || std::same_as<T, std::int64_t> ||
    std::same_as<T, std::uint64_t> || std::same_as<T, double> || std::same_as<T, std::string> ||
    std::same_as<T, std::vector<std::string>> || std::same_as<T, std::vector<double>>;

/// One line `key = value` of an INI text; the key carries its section: `optim.lr`.
struct IniEntry {
  std::string key, value;
  int line = 0;
};
/// The entries of an INI text: `[section]`, `key = value`, comments from `#` or `;` at the start of a line or after a
/// blank; a value that holds such characters is written in double quotes. errors  Error (usage) naming `source` and the
/// line
std::vector<IniEntry> read_ini(std::string_view text, const std::string& source);

/// One option as the table holds it; what add() returns, to say more about it.
class Option {
 public:
  ~Option();
  /// "s" (values like 90, 1.5h, 10m, 2d are read), "bytes" (4096, 4KiB, 2GB are read), or any word for the help.
  Option& unit(std::string name);
  /// What help shows as the value's name: FILE, DIR, N.
  Option& value_name(std::string name);
  /// A usage error when it is not given.
  Option& required();
  /// A run directory or checkpoint may be continued with another value: how a run is carried out, not what it computes.
  Option& may_change();
  /// Not in help and docs.
  Option& hidden();

  struct Spec;  ///< private to the implementation

 private:
  friend class Options;
  explicit Option(std::unique_ptr<Spec> spec);
  std::unique_ptr<Spec> spec_;
};

/// The one table of a command's options: command line, INI file, help, range checks, `config.ini`, docs/options.md and
/// man page.
///
///     RunConfig cfg;
///     Options options("lockstep train", "Train a model on all ranks");
///     options.section("optim", "Optimiser");
///     options.add("optim.lr", &cfg.lr, 1e-3, positive, "learning rate at world size 1; see optim.scale_lr");
///     options.alias("optim.lr", "lr");
///     options.choice("optim.name", &cfg.optimizer, "adam", {"adam", "adamw", "sgd"}, "update rule");
///     options.add("json", &json, false, "print JSON");  // no dot: command line only, never in an INI file
///     if (!options.parse(args)) return 0;                // --help was asked for and printed
///
/// Keys with a dot are configuration: they are read from `--config FILE`, `--set key=value`, `--key value` and written
/// by ini(). Order: default < file < command line. On the command line `.`, `-` and `_` are the same:
/// `--optim.weight_decay`, `--optim-weight-decay`. A bool takes `--flag`, `--no-flag`, `--flag=false`. Values are
/// stored in the targets by parse(), the defaults already by add().
///
/// errors  Error (usage): `option optim.lr = -0.001: must be > 0`; unknown keys name the nearest known one; a key that
///         is given twice in one file or twice on the command line. Error (internal) for a table that contradicts itself
class Options {
 public:
  /// `program` as a user types it ("lockstep train"); one sentence that says what it does; further paragraphs for help
  /// and man page.
  explicit Options(std::string program, std::string summary = "", std::string description = "");
  Options(Options&&) noexcept;
  Options& operator=(Options&&) noexcept;
  ~Options();

  /// Title of the keys `prefix.*` in help and docs, in the order of these calls.
  void section(std::string prefix, std::string title, std::string description = "");

  template <OptionValue T>
  Option& add(std::string key, T* target, std::type_identity_t<T> initial, Check check, std::string help) {
    return insert(std::move(key), target, std::move(initial), std::move(check), std::move(help));
  }
  template <OptionValue T>
  Option& add(std::string key, T* target, std::type_identity_t<T> initial, std::string help) {
    return insert(std::move(key), target, std::move(initial), anything, std::move(help));
  }
  /// A string that is one of `values`.
  Option& choice(std::string key, std::string* target, std::string initial, std::vector<std::string> values,
                 std::string help);
  /// A second name, on the command line and (as `section.name` or plain `name`) in files; one letter makes `-x`.
  void alias(const std::string& key, std::string other);
  /// A word of the command line that stands for a value: `--name` means `--key value`.
  void shorthand(const std::string& name, const std::string& key, const std::string& value);
  /// Another default for a key of the table, for those who know better than the table's author: a model whose paper uses
  /// another learning rate. errors  Error (internal): the key is not there, or would refuse the value
  void set_default(const std::string& key, const std::string& value);
  /// Words without dashes: at least `least`, at most `most` of them.
  void positional(std::string name, std::vector<std::string>* target, std::string help, std::size_t least = 0,
                  std::size_t most = std::numeric_limits<std::size_t>::max());
  /// A command line that works, with what it does, for the end of help and the man page.
  void example(std::string command, std::string what);

  /// Reads an INI file's text; the default opens the path. A program on several ranks passes one that broadcasts rank
  /// 0's text.
  using Reader = std::function<std::string(const std::string& path)>;
  static std::string read_file(const std::string& path);
  /// The files that `--config` and `-c` name among these words.
  static std::vector<std::string> config_files(const std::vector<std::string>& args);

  /// What these words and the INI files they name give to a key (the first of `names`, the others are aliases), before
  /// there is a table: "" when nothing. The command line wins over files, later files over earlier ones.
  static std::string peek(const std::vector<std::string>& args, const std::vector<std::string>& names,
                          const Reader& read = read_file);

  /// While it lives, what parse() would print for `--help` is kept here instead.
  class Capture {
   public:
    Capture();
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    ~Capture();
    std::string text;
  };
  /// Parses the words after the command's name. False when `--help` (or `-h`) was given: the text is printed by rank 0,
  /// nothing else is to be done. `--help=markdown`, `--help=markdown-command`, `--help=markdown-configuration` and
  /// `--help=man` print those forms.
  bool parse(const std::vector<std::string>& args, const Reader& read = read_file);
  /// Sets values from an INI text (a checkpoint's /config); unknown keys are errors.
  void parse_ini(std::string_view text, const std::string& source);

  /// True when a file or the command line gave this key.
  bool given(const std::string& key) const;
  /// "default", "FILE:12" or "command line".
  std::string origin(const std::string& key) const;
  /// The value as text, as ini() writes it.
  std::string value(const std::string& key) const;
  /// The default in the same form.
  std::string initial(const std::string& key) const;
  /// All keys of the configuration (with a dot), in table order.
  std::vector<std::string> keys() const;

  /// The resolved configuration, with comments; parse_ini() of it gives the same values, bit for bit.
  std::string ini() const;
  /// Keys whose value differs from that of another resolved configuration, may_change() ones left out: "optim.lr: 0.001
  /// there, 0.01 here". A key that the other text lacks counts with its default; one that this table lacks is a
  /// difference.
  std::vector<std::string> differences(std::string_view other_ini, const std::string& source) const;
  /// An error that names this option, its value and where it came from, for checks that involve several options:
  /// `option batch.size = 50000 (FILE:3): ` + what.
  [[noreturn]] void reject(const std::string& key, const std::string& what) const;

  std::string help(int columns = 100) const;
  /// What markdown() covers: all, or only the keys with a dot, or only the command line.
  enum class Part : std::uint8_t { all, configuration, command };
  /// One table per section (docs/options.md), of all keys or those that `include` accepts.
  std::string markdown(Part part = Part::all, const std::function<bool(const std::string& key)>& include = {}) const;
  /// Manual page (troff, man macros) of section 1.
  std::string man() const;

 private:
  template <class T>
  Option& insert(std::string key, T* target, T initial, Check check, std::string help);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
