#pragma once
// What the verifications of all models share: comparing arrays and finding them in the reference file.
#include <span>
#include <string>
#include <vector>

#include "lockstep/io/h5.hpp"
#include "lockstep/nn/params.hpp"
#include "lockstep/train/verify.hpp"

namespace lockstep {

/// Compares against the datasets of one file.
class Verifier {
 public:
  Verifier(const H5File& file, const VerifyOptions& options, VerifyReport& report)
      : file_(file), f64_(options.f64), report_(report) {}
  const H5File& file() const { return file_; }

  /// "outputs/predict" or "outputs_f64/predict", by the precision that is checked.
  std::string path(const std::string& group, const std::string& name) const {
    return "/" + group + (f64_ ? "_f64/" : "/") + name;
  }
  bool has(const std::string& group, const std::string& name) const { return file_.has(path(group, name)); }
  /// Integers are read as numbers.
  std::vector<double> reference(const std::string& group, const std::string& name) const;

  /// What a row may differ by: single for f32, 1e-12 in double.
  double tolerance(double single) const { return f64_ ? 1e-12 : single; }

  /// A row for values against group/name, skipped when the file has no such dataset.
  void relative(const std::string& group, const std::string& name, std::span<const double> values, double tolerance,
                const std::string& remark = "");
  void absolute(const std::string& group, const std::string& name, std::span<const double> values, double tolerance,
                const std::string& remark = "");
  void relative(const std::string& group, const std::string& name, const Tensor& values, double tolerance,
                const std::string& remark = "");
  /// A row for one number that is no dataset of the file.
  void value(const std::string& name, double value, double reference, double tolerance);
  /// Each parameter of the store, taken from a flat vector.
  void parameters(const std::string& group, const ParamStore& params, const Tensor& flat, double tolerance,
                  bool absolute, double scale = 1, const std::string& remark = "");

 private:
  void compare(const std::string& group, const std::string& name, std::span<const double> values, double tolerance,
               bool absolute, const std::string& remark);
  const H5File& file_;
  bool f64_;
  VerifyReport& report_;
};

/// The elements of an f32 or f64 tensor.
std::vector<double> doubles(const Tensor& tensor);

/// References of prepared data are for the program that prepares data, which lies beside this one: whether it finds them
/// right. Collective.
bool run_prep(World& world, const std::filesystem::path& golden);

/// One verification per model.
void verify_emulator(World& world, const H5File& file, const VerifyOptions& options, VerifyReport& report);
void verify_hrm(World& world, const H5File& file, const VerifyOptions& options, VerifyReport& report);
void verify_kgat(World& world, const H5File& file, const VerifyOptions& options, VerifyReport& report);

}  // namespace lockstep
