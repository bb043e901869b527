#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/named.hpp"
#include "lockstep/io/weights.hpp"
#include "lockstep/nn/params.hpp"

namespace lockstep {

/// The name and form of parameters in the public code, if they differ from ours. `#` stands for a number.
struct NameRule {
  enum class Use : std::uint8_t {
    both,
    import,  ///< another spelling, which an export does not write
  };
  const char* ours;
  const char* theirs;  ///< "": the public code has no such array; import leaves it to Task::weights_imported()
  /// The public array stacks the rows of `parts` parameters; this one is number `part`, from 0.
  int part = 0, parts = 1;
  Use use = Use::both;
};
using NameRules = std::span<const NameRule>;

NamedArray array_of(const Param& param);
/// All parameters as arrays, by our names.
NamedArrays arrays_of(const ParamStore& params);
/// Sets a parameter from an array of its shape, rounded to its dtype.
void assign(Param& param, const NamedArray& array);
/// Converts arrays with our names to arrays of the public code, and back. Does not change arrays without a rule, or
/// whose rows cannot be divided. errors  data: two arrays become one
NamedArrays to_public(NamedArrays arrays, NameRules rules);
NamedArrays from_public(NamedArrays arrays, NameRules rules);
/// Removes the prefixes that wrappers add to names: `module.` (data parallel), `_orig_mod.` (compiled), `model.inner.`
/// (HRM's training head). errors  data: two arrays become one
NamedArrays without_prefixes(NamedArrays arrays);

/// Sets the parameters from arrays of our names, rounded to the parameters' dtype. Parameters without public name may
/// be missing.
/// errors  data, beginning with `what`: lists all arrays that are missing, unknown or of the wrong shape
void load_arrays(ParamStore& params, const NamedArrays& arrays, NameRules rules, const std::string& what);
/// load_arrays() for the parameters whose names begin with `prefix`, which the arrays omit.
void load_arrays_below(const std::string& prefix, ParamStore& params, const NamedArrays& arrays,
                       const std::string& what);

/// Text about a network: the metadata of a weight file.
using WeightMetadata = std::map<std::string, std::string>;

/// Our weight files have these entries; others describe the kind's architecture and data ("model.KEY", "data.KEY").
inline constexpr const char *kWeightsFormat = "lockstep-weights", *kFormatEntry = "format", *kKindEntry = "kind";
/// errors  data, beginning with `what`: the metadata are not those of an export of this kind
void require_exported(const WeightMetadata& metadata, const std::string& kind, const std::string& what);

/// Writes or reads the fields of a description as text entries. One list of calls `fields("model.dim", dim)` serves
/// both.
class TextFields {
 public:
  explicit TextFields(WeightMetadata* write_to) : to_(write_to) {}
  /// Error messages begin with `what`.
  TextFields(const WeightMetadata* read_from, std::string what) : from_(read_from), what_(std::move(what)) {}

  /// T: bool, std::int64_t, double, std::string, or a vector of such; an enumeration with names. Vectors are JSON.
  /// errors  data: a missing or malformed entry; an integer beyond +-2^31
  template <class T>
  void operator()(const std::string& key, T& field);
  template <Named Enum>
  void operator()(const std::string& key, Enum& field) {
    std::string text = name(field);
    (*this)(key, text);
    const std::optional<Enum> value = named<Enum>(text);
    if (!value) refuse(key, text);
    field = *value;
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const std::string& text) const;
  WeightMetadata* to_ = nullptr;
  const WeightMetadata* from_ = nullptr;
  std::string what_;
};

/// errors  data, beginning with `what`: the arrays do not hold this number of values: they are of another architecture
void require_values(const NamedArrays& arrays, std::int64_t expected, const std::string& what);

}  // namespace lockstep
