#include "lockstep/formats/emulator_files.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <optional>
#include <tuple>

#include "files.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/file_kind.hpp"
#include "lockstep/io/weights.hpp"
#include "lockstep/models/emulator/emulator_operators.hpp"

namespace lockstep {
namespace {

constexpr std::string_view kZipMagic = "PK\x03\x04";
constexpr std::int64_t kSelfTestRows = 4;
constexpr double kDoubleTolerance = 1e-9, kSingleTolerance = 1e-3;

/// Predictions and physical Jacobians at x, in double; the arithmetic is in T.
template <class T>
std::pair<std::vector<double>, std::vector<double>> evaluate(const EmulatorOperators<T>& operators, std::int64_t rows,
                                                             const std::vector<double>& x) {
  const EmulatorArch& arch = operators.arch();
  std::vector<double> y(rows * arch.n_out), j(static_cast<std::size_t>(rows * arch.n_out * arch.n_in));
  const StateView<const double> view{x.data(), arch.n_in, 1};
  operators.template predict<double>(rows, view, {y.data(), arch.n_out, 1});
  operators.template jacobian<double>(rows, view, {}, JacobianUnits::physical, j.data());
  return {std::move(y), std::move(j)};
}

/// max |a - b| / max |b|, with each value in units of its column; infinite if a difference is not finite.
double deviation(const std::vector<double>& a, const std::vector<double>& b, std::size_t columns, const auto& unit) {
  double largest = 0, scale = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double u = unit(i % columns);
    const double difference = std::abs(a[i] - b[i]) / u;
    if (!std::isfinite(difference)) return HUGE_VAL;
    largest = std::max(largest, difference);
    scale = std::max(scale, std::abs(b[i]) / u);
  }
  return largest == 0 ? 0 : largest / scale;
}

template <class T>
void check_with(const Emulator& network, const EmulatorSelfTest& test, const std::string& source, double tolerance,
                const char* precision) {
  auto [y, j] = evaluate(EmulatorOperators<T>(network), test.rows, test.x);
  const Moments& m = network.moments();
  const std::size_t n_in = m.input_mean.size(), n_out = m.output_mean.size();
  // Compare deviations from the mean: an offset of 273 K must not hide an error of 0.1 K.
  std::vector<double> expected = test.y;
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] -= m.output_mean[i % n_out];
    expected[i] -= m.output_mean[i % n_out];
  }
  const double dy = deviation(y, expected, n_out, [&](std::size_t o) { return m.output_std[o]; });
  const double dj =
      deviation(j, test.j, n_out * n_in, [&](std::size_t k) { return m.output_std[k / n_in] / m.input_std[k % n_in]; });
  files::require_model(
      dy <= tolerance && dj <= tolerance, source, "in ", precision, " precision its self-test rows deviate by ", dy,
      " (prediction) and ", dj,
      " (Jacobian) from the values in the file; the file is damaged, or this program computes wrongly on this machine");
}

}  // namespace

EmulatorSelfTest make_selftest(const Emulator& network) {
  const Moments& m = network.moments();
  const auto n_in = static_cast<std::size_t>(network.arch().n_in);
  EmulatorSelfTest out;
  out.rows = kSelfTestRows;
  for (std::int64_t row = 0; row < kSelfTestRows; ++row)
    for (std::size_t i = 0; i < n_in; ++i) {
      // Multiples of the golden ratio modulo 1 are evenly spread. States are rounded to f32, the dtype of most files.
      const double u =
          std::fmod(0.6180339887498949 * static_cast<double>(static_cast<std::size_t>(row) * n_in + i + 1), 1.0);
      out.x.push_back(static_cast<float>(m.input_mean[i] + (2 * u - 1) * m.input_std[i]));
    }
  std::tie(out.y, out.j) = evaluate(EmulatorOperators<double>(network), out.rows, out.x);
  return out;
}

void check_selftest(const Emulator& network, const EmulatorSelfTest& test, const std::string& source) {
  const std::int64_t n_in = network.arch().n_in, n_out = network.arch().n_out;
  const auto is = [&](const std::vector<double>& values, std::int64_t per_row) {
    return std::ssize(values) == test.rows * per_row;
  };
  files::require_model(test.rows >= 1 && is(test.x, n_in) && is(test.y, n_out) && is(test.j, n_out * n_in), source,
                       "its self-test has no rows of ", n_in, " inputs and ", n_out, " outputs; the file is damaged");
  check_with<double>(network, test, source, kDoubleTolerance, "double");
  check_with<float>(network, test, source, kSingleTolerance, "single");
}

std::string read_model_bytes(const std::filesystem::path& path) {
  std::error_code status;
  const auto refuse = [&](const char* why) {
    throw ModelFileError(ModelFileReason::unreadable, Fault::usage, join("opening model '", path.string(), "': ", why));
  };
  if (!std::filesystem::exists(path, status)) refuse("no such file");
  if (!std::filesystem::is_regular_file(path, status)) refuse("not a regular file");
  std::ifstream in(path, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  if (in.bad() || !in.is_open()) refuse("not readable");
  return bytes;
}

TrainedEmulator files::read_checked(const std::string& source, EmulatorSelfTest* out,
                                    const std::function<TrainedEmulator(EmulatorSelfTest&)>& read) {
  const auto refuse = [](ModelFileReason reason, const Error& error) {
    throw ModelFileError(reason, error.fault(), error.what(), error.where());
  };
  EmulatorSelfTest test;
  std::optional<TrainedEmulator> emulator;
  try {
    emulator.emplace(read(test));
  } catch (const ModelFileError&) {
    throw;
  } catch (const Error& error) {
    refuse(ModelFileReason::damaged, error);
  }
  try {
    check_selftest(emulator->network, test, source);
  } catch (const Error& error) {
    refuse(ModelFileReason::selftest, error);
  }
  if (out) *out = std::move(test);
  return std::move(*emulator);
}

TrainedEmulator files::read_flat(std::string_view bytes, const std::string& source, const std::filesystem::path& folder,
                                 EmulatorSelfTest* selftest) {
  const auto read = is_lsem(bytes)                 ? read_lsem
                    : is_safetensors(bytes)        ? read_safetensors
                    : bytes.starts_with(kZipMagic) ? read_torchscript
                                                   : nullptr;
  const bool onnx = read == nullptr && kind_of_bytes(bytes) == FileKind::onnx;
  if (read != nullptr || onnx)
    return read_checked(source, selftest, [&](EmulatorSelfTest& test) {
      return onnx ? read_onnx(bytes, source, folder, test) : read(bytes, source, test);
    });
  const auto refuse = [&](Fault fault, const char* why) {
    throw ModelFileError(ModelFileReason::format, fault, join("opening model '", source, "': ", why));
  };
  if (bytes.empty()) refuse(Fault::data, "the file is empty");
  if (bytes.starts_with(kHdf5Magic)) refuse(Fault::usage, "an HDF5 model can only be opened as a file");
  throw ModelFileError(
      ModelFileReason::format, Fault::data,
      join("opening model '", source,
           "': neither .lsem nor safetensors nor HDF5 nor ONNX nor TorchScript; it is damaged or foreign: name another "
           "file, or export the model again"));
}

TrainedEmulator read_flat_emulator(const std::filesystem::path& path, EmulatorSelfTest* selftest) {
  const std::string bytes = read_model_bytes(path);
  if (bytes.starts_with(files::kHdf5Magic)) {
    throw ModelFileError(ModelFileReason::format, Fault::usage,
                         join("opening model '", path.string(),
                              "': it is HDF5, and this library was built without HDF5; convert it by `lockstep export "
                              "--format lsem`"));
  }
  return files::read_flat(bytes, path.string(), std::filesystem::absolute(path).parent_path(), selftest);
}

TrainedEmulator read_emulator(std::span<const std::byte> bytes, const std::string& source, EmulatorSelfTest* selftest) {
  return files::read_flat({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, source, {}, selftest);
}

}  // namespace lockstep
