#pragma once
// Shared by the verifications of all models: finds arrays in the reference file and compares them.
#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/named.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/models/weights.hpp"
#include "lockstep/tasks/verify.hpp"

namespace lockstep {

/// Sets the parameters from the group /weights of a reference file.
/// errors  data: lists all arrays that are missing, unknown or of another shape
inline void load_reference_weights(ParamStore& params, const H5File& file, NameRules rules = {}) {
  load_arrays(params, from_public(h5_arrays(file, "/weights"), rules), rules,
              "verifying '" + file.path().string() + "'");
}

/// The value of an enumeration that an attribute of a reference file names, perhaps with an ending.
/// errors  data: another text
template <Named E>
E reference_choice(const H5File& file, const char* attribute, std::string_view ending = "") {
  const std::string text = file.text_attribute("/", attribute);
  const std::optional<E> value = named<E>(std::string_view(text).substr(0, text.rfind(ending)));
  require_data(value.has_value(), "reference '", file.path().string(), "': ", attribute, " '", text, "' is unknown");
  return *value;
}

/// The elements of a tensor of f32, f64, bf16, f16 or i32.
std::vector<double> doubles(const Tensor& tensor);

/// Each parameter's name, and its part of a flat vector times `scale`.
std::vector<std::pair<std::string, std::vector<double>>> by_parameter(const ParamStore& params, const Tensor& flat,
                                                                      double scale = 1);

/// Computed values: one number, numbers, or the elements of a tensor.
struct Values {
  std::vector<double> all;
  Values(double value) : all{value} {}
  template <class T>
  Values(const std::vector<T>& values) : all(values.begin(), values.end()) {}
  template <std::convertible_to<Tensor> T>
  Values(const T& tensor) : all(doubles(tensor)) {}
};

/// The tolerance of a row, computed in f32 and in f64.
struct Tolerance {
  double f32, f64;
  constexpr Tolerance(double in_f32, double in_f64) : f32(in_f32), f64(in_f64) {}
  constexpr Tolerance(double both) : Tolerance(both, both) {}
};

/// Compares against the datasets of one file.
class Verifier {
 public:
  Verifier(const H5File& file, const VerifyOptions& options, ReferenceReport& report)
      : file_(file), f64_(options.f64), digits_(digits_of(options)), report_(report) {}
  const H5File& file() const { return file_; }

  /// "outputs/predict" or, in double, "outputs_f64/predict" (in some files "outputs64/predict"). If a file has only the
  /// latter, values of either precision are compared with it.
  std::string path(const std::string& group, const std::string& name) const {
    const std::string single = "/" + group + "/" + name;
    const std::string exact = "/" + group + (file_.has("/outputs64") ? "64/" : "_f64/") + name;
    return f64_ || (!file_.has(single) && file_.has(exact)) ? exact : single;
  }
  bool has(const std::string& group, const std::string& name) const { return file_.has(path(group, name)); }
  /// Integers are converted to double.
  std::vector<double> reference(const std::string& group, const std::string& name) const;

  /// Adds a row that compares values with group/name; does nothing if the file has no such dataset.
  void relative(const std::string& group, const std::string& name, const Values& values, Tolerance tolerance,
                const std::string& remark = "");
  void absolute(const std::string& group, const std::string& name, const Values& values, Tolerance tolerance,
                const std::string& remark = "");
  /// The same for many rows of a group, such as the values that an Observer receives: a function of name, values and
  /// remark.
  auto relative(const std::string& group, Tolerance tolerance) {
    return [=, this](const std::string& name, const Values& values, const std::string& remark = "") {
      relative(group, name, values, tolerance, remark);
    };
  }
  /// Adds a row for one number that is not a dataset of the file.
  void value(const std::string& name, double value, double reference, double tolerance);
  /// Adds a row that compares values with the rows of a reference that have these numbers.
  void selected(const std::string& group, const std::string& name, const Values& values,
                std::span<const std::int64_t> rows, Tolerance tolerance);

 private:
  void compare(const std::string& group, const std::string& name, const Values& values, Tolerance tolerance,
               bool absolute, const std::string& remark);
  /// Binary digits of a product's operands; 0: as many as f32 or f64 have.
  static int digits_of(const VerifyOptions& options) {
    return options.storage == DType::bf16 ? 8 : options.storage == DType::f16 || options.tf32 ? 11 : 0;
  }
  /// The tolerance for few digits; nothing for a row that is not compared with few digits.
  std::optional<double> coarse(const std::string& row_name, double tolerance, bool absolute) const;
  void compare_with(const std::vector<double>& expected, const std::string& row_name, const Values& values,
                    Tolerance tolerance, bool absolute);
  const H5File& file_;
  bool f64_;
  int digits_;
  ReferenceReport& report_;
};

}  // namespace lockstep
