#pragma once
// Shared by the verifications of all models: finds arrays in the reference file and compares them.
#include <optional>
#include <span>
#include <string>
#include <vector>

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

  /// The tolerance of a row: `single` for f32, `in_double` for f64.
  double tolerance(double single, double in_double = 1e-12) const { return f64_ ? in_double : single; }

  /// Adds a row that compares values with group/name; does nothing if the file has no such dataset.
  void relative(const std::string& group, const std::string& name, std::span<const double> values, double tolerance,
                const std::string& remark = "");
  void absolute(const std::string& group, const std::string& name, std::span<const double> values, double tolerance,
                const std::string& remark = "");
  void relative(const std::string& group, const std::string& name, const Tensor& values, double tolerance,
                const std::string& remark = "");
  /// Adds a row for one number that is not a dataset of the file.
  void value(const std::string& name, double value, double reference, double tolerance);
  /// Adds a row that compares values with the rows of a reference that have these numbers.
  void selected(const std::string& group, const std::string& name, std::span<const double> values,
                std::span<const std::int64_t> rows, double tolerance);
  /// Adds a row for each parameter of the store, with values from a flat vector.
  void parameters(const std::string& group, const ParamStore& params, const Tensor& flat, double tolerance,
                  bool absolute, double scale = 1, const std::string& remark = "");

 private:
  void compare(const std::string& group, const std::string& name, std::span<const double> values, double tolerance,
               bool absolute, const std::string& remark);
  /// Binary digits of a product's operands; 0: as many as f32 or f64 have.
  static int digits_of(const VerifyOptions& options) {
    return options.storage == DType::bf16 ? 8 : options.storage == DType::f16 || options.tf32 ? 11 : 0;
  }
  /// The tolerance for few digits; nothing for a row that is not compared with few digits.
  std::optional<double> coarse(const std::string& row_name, double tolerance, bool absolute) const;
  void compare_with(const std::vector<double>& expected, const std::string& row_name, std::span<const double> values,
                    double tolerance, bool absolute);
  const H5File& file_;
  bool f64_;
  int digits_;
  ReferenceReport& report_;
};

/// The elements of a tensor of f32, f64, bf16 or f16.
std::vector<double> doubles(const Tensor& tensor);

}  // namespace lockstep
