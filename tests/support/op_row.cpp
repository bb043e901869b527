#include "support/op_row.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/ops/isa.hpp"
#include "support/devices.hpp"
#include "support/elements.hpp"
#include "support/threads.hpp"

namespace lockstep::test {

using Role = Place::Role;

// --- The arrays of a call --------------------------------------------------------------------------------------------

Tensor Place::drawn(const std::string& name, Shape shape, DType dtype, DType rounded, double size, Role role) {
  if (size == 1 && rounded == dtype) return noted(name, random_tensor(dtype, shape, Site(name)), role);
  const OwnedTensor values = random_tensor(DType::f64, shape, Site(name));
  for (double& x : values->span<double>()) x *= size;
  return noted(name, converted(converted(values, rounded), dtype), role);
}

Tensor Place::noted(const std::string& name, const Tensor& before, Role role) {
  const bool given = given_ != nullptr && given_->contains(name);
  const Tensor values = given ? given_->at(name).view() : before;
  Array& array = arrays_.emplace_back(Array{name, put(values), {}, role});
  if (!stream.device().is_cuda()) array.before = on_cpu(values);
  return array.tensor;
}

std::span<const std::int32_t> Place::list(const std::string& name, const std::vector<std::int32_t>& values) {
  const Tensor t = ints(name, values, {static_cast<Int>(values.size())});
  return host(elements<std::int32_t>(t));
}

Tensor Place::over(const std::string& name, const Tensor& start) { return noted(name, on_cpu(start), Role::output); }

void Place::out_values(const std::string& name, const std::vector<double>& values, double tolerance) {
  Array& array = arrays_.emplace_back(Array{name, {}, {}, Role::sum, false, tolerance});
  array.before = on_cpu(Tensor::of(values.data(), {static_cast<Int>(values.size())}));
  array.tensor = array.before;
}

Tensor Place::put(const Tensor& values) {
  tensors_.emplace_back(values.dtype(), Shape{values.size() + shift}, stream.device());
  const Tensor there = tensors_.back()->slice(shift, values.size()).reshaped(values.shape());
  copy(stream, there, values);
  stream.synchronize();
  return there;
}

const Place::Array* Place::find(const std::string& name) const {
  const auto found = std::ranges::find(arrays_, name, &Array::name);
  return found == arrays_.end() ? nullptr : &*found;
}

Plain::Array Plain::in(const std::string& name) {
  const Place::Array* array = call_.find(name);
  if (array == nullptr) return {};
  inputs_.push_back(converted(array->before, DType::f64));
  return {inputs_.back()->data<double>(), inputs_.back()->shape()};
}

std::vector<std::int32_t> Plain::list(const std::string& name) const {
  return elements<std::int32_t>(call_.find(name)->before);
}

Plain::Array Plain::out(const std::string& name) {
  const Place::Array* array = call_.find(name);
  require(array != nullptr && array->written(), "a definition writes '", name, "', which the call does not");
  const OwnedTensor& result = results_.try_emplace(name, DType::f64, array->tensor.shape()).first->second;
  return {result->data<double>(), result->shape()};
}

// --- What every op must keep to --------------------------------------------------------------------------------------

namespace {

bool is_float(const Tensor& t) { return t.dtype() == DType::f32 || t.dtype() == DType::f64; }

/// The part of an array that belongs to `count` of the op's `rows` rows.
Tensor part(const Tensor& t, Int rows, Int first, Int count) {
  const Int each = t.shape()[0] / rows;
  return t.slice(first * each, count * each);
}

class Check {
 public:
  explicit Check(const OpRow& row) : row_(row) {}

  void on_cpu(const Sizes& sizes) {
    const Threads one(1);
    const ops::Isa before = ops::active_isa();
    for (const ops::Isa isa : ops::available_isas()) {
      ops::use_isa(isa);
      for (const DType dtype : {DType::f32, DType::f64}) {
        std::string text;
        for (const Int size : sizes) text += join(text.empty() ? "" : ", ", size);
        where_ = join("(", text, ") ", name(dtype), " ", name(isa), ": ");
        guarded([&] { one_dtype(sizes, dtype); });
      }
    }
    ops::use_isa(before);
  }

  void refusals() {
    for (const Refused& refused : row_.refused) {
      where_ = "refused " + refused.array + ": ";
      Place::Given given;
      given.emplace(refused.array, OwnedTensor(DType::f32, refused.shape));
      std::string message = "no error";
      try {
        run(refused.sizes, DType::f32, false, &given);
      } catch (const Error& error) {
        message = error.what();
      }
      if (message != refused.message) complain(message, " instead of ", refused.message);
    }
  }

  void on_gpu(const Sizes& sizes, bool adds) {
    where_ = "";
    guarded([&] { complain(device_faults([&](Place& p) { row_.run(p, sizes); }, row_.gpu, adds)); });
  }

  const std::string& found() const { return found_; }

 private:
  using Call = std::unique_ptr<Place>;

  void complain(const auto&... parts) {
    const std::string fault = join(parts...);
    if (!fault.empty() && found_.size() < 4000) found_ += where_ + fault + "\n";
  }
  void guarded(const std::function<void()>& f) {
    try {
      f();
    } catch (const std::exception& error) {
      complain(error.what());
    }
  }
  /// `least`: the smallest number that the difference is relative to.
  void compare(const std::string& array, const Tensor& value, const Tensor& expected, double tolerance,
               const char* with, double least = 0) {
    const Difference d = difference(value, expected);
    if (!(d < tolerance) && !(std::abs(d.value - d.reference) < tolerance * least))
      complain(array, " differs from ", with, " by ", d);
  }
  Call run(const Sizes& sizes, DType dtype, bool adds = false, const Place::Given* given = nullptr,
           DType storage = DType::u8) const {
    auto call = std::make_unique<Place>(dtype, Device{}, storage == DType::u8 ? dtype : storage, adds, given);
    row_.run(*call, sizes);
    return call;
  }
  void same_results(const Place& value, const Place& expected, const std::string& how) {
    for (std::size_t i = 0; i < expected.arrays().size(); ++i)
      if (expected.arrays()[i].written() && !same_bits(value.arrays()[i].tensor, expected.arrays()[i].tensor))
        complain(expected.arrays()[i].name, " has other bits ", how);
  }

  void one_dtype(const Sizes& sizes, DType dtype) {
    const Call call = run(sizes, dtype);
    results(*call, sizes);
    if (dtype == DType::f64 && row_.gradient > 0) gradients(*call, sizes);
    targets(*call, *run(sizes, dtype, true));
    for (const int threads : {2, 3}) {
      const Threads now(threads);
      same_results(*run(sizes, dtype), *call, join("on ", threads, " threads"));
    }
    Call inside;
#pragma omp parallel num_threads(2)
#pragma omp single
    inside = run(sizes, dtype);
    same_results(*inside, *call, "in a parallel region");
    if (!row_.rows || sizes[0] == 0) return;
    for (const Int count : {1, 3, 7, 31, 62})
      for (Int first = 0; first < sizes[0] && count < sizes[0]; first += std::max(count, sizes[0] / 6))
        row_bits(*call, sizes, first, std::min(count, sizes[0] - first));
    not_a_number(*call, sizes);
  }

  /// Against the definition, the other results in f32 against f64, and repeated results against the first.
  void results(const Place& call, const Sizes& sizes) {
    Plain plain(call);
    if (row_.definition) row_.definition(plain, sizes);
    const Call exact = run(sizes, DType::f64, false, nullptr, call.dtype());
    for (std::size_t i = 0; i < call.arrays().size(); ++i) {
      const Place::Array& array = call.arrays()[i];
      if (!array.written() || !is_float(array.tensor)) continue;
      const auto defined = plain.results().find(array.name);
      const bool single = call.dtype() == DType::f32;
      if (defined != plain.results().end())
        compare(array.name, array.tensor, defined->second, single ? row_.f32 : row_.f64, "the definition");
      else if (single)
        compare(array.name, array.tensor, exact->arrays()[i].tensor, row_.f32_rest, "f64", 1);
      const std::size_t end = array.name.rfind(" again");
      if (end != std::string::npos && !same_bits(array.tensor, call.find(array.name.substr(0, end))->tensor))
        complain(array.name, " has other bits");
    }
  }

  /// sum_y dy y.
  double weighted(const Sizes& sizes, const Place::Given& given) const {
    const Call call = run(sizes, DType::f64, false, &given);
    double sum = 0;
    for (const Place::Array& y : call->arrays()) {
      const Place::Array* dy = call->find("d" + y.name);
      if (!y.written() || (dy == nullptr && y.name != "loss")) continue;
      for (Int i = 0; i < y.tensor.size(); ++i)
        sum += (dy ? dy->before->data<double>()[i] : 1) * y.tensor.data<double>()[i];
    }
    return sum;
  }
  void gradients(const Place& call, const Sizes& sizes) {
    constexpr Int kMost = 8;  // elements of an array
    constexpr double kStep = 1e-3;
    for (const Place::Array& x : call.arrays()) {
      const Place::Array* dx = x.written() || !is_float(x.tensor) ? nullptr : call.find("d" + x.name);
      if (dx == nullptr || !dx->written()) continue;
      Place::Given given;
      const OwnedTensor& changed = given.emplace(x.name, test::on_cpu(x.before)).first->second;
      double worst = 0, largest = 1;
      const Int size = changed->size(), count = std::min(size, kMost);
      for (Int k = 0; k < count; ++k) {
        const Int i = count == 1 ? 0 : k * (size - 1) / (count - 1);
        const double before = changed->data<double>()[i];
        const auto at = [&](double steps) {
          changed->data<double>()[i] = before + steps * kStep;
          return weighted(sizes, given);
        };
        const double numeric = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * kStep);
        changed->data<double>()[i] = before;
        const double found = dx->tensor.data<double>()[i] - (dx->adds ? dx->before->data<double>()[i] : 0);
        largest = std::max(largest, std::abs(numeric));
        worst = std::max(worst, std::isfinite(found) ? std::abs(numeric - found) : INFINITY);
      }
      if (!(worst < row_.gradient * largest)) complain(dx->name, " differs from differences by ", worst);
    }
  }

  void targets(const Place& stored, const Place& added) {
    for (std::size_t i = 0; i < stored.arrays().size(); ++i) {
      const Place::Array &one = stored.arrays()[i], &other = added.arrays()[i];
      if (!one.written() || one.adds == other.adds) {
        if (one.written() && !same_bits(one.tensor, other.tensor)) complain(one.name, " changes where others add");
        continue;
      }
      const OwnedTensor sum = converted(one.tensor, DType::f64), before = converted(one.before, DType::f64);
      for (Int k = 0; k < sum->size(); ++k) sum->data<double>()[k] += before->data<double>()[k];
      compare(one.name, other.tensor, sum, one.tensor.dtype() == DType::f32 ? 1e-5 : 1e-13, "its old values and more");
    }
  }

  void row_bits(const Place& call, const Sizes& sizes, Int first, Int count) {
    Place::Given given;
    for (const Place::Array& array : call.arrays())
      if (array.role == Role::rows || array.role == Role::output)
        given.emplace(array.name, test::on_cpu(part(array.before, sizes[0], first, count)));
    Sizes fewer = sizes;
    fewer[0] = count;
    const Call alone = run(fewer, call.dtype(), false, &given);
    for (std::size_t i = 0; i < call.arrays().size(); ++i)
      if (call.arrays()[i].role == Role::output &&
          !same_bits(alone->arrays()[i].tensor, part(call.arrays()[i].tensor, sizes[0], first, count)))
        complain(call.arrays()[i].name, " has other bits in a call of rows ", first, " to ", first + count - 1);
  }

  void not_a_number(const Place& call, const Sizes& sizes) {
    const auto input =
        std::ranges::find_if(call.arrays(), [](const auto& a) { return a.role == Role::rows && is_float(a.tensor); });
    if (input == call.arrays().end() || input->tensor.size() == 0) return;
    const Int row = sizes[0] / 2;
    Place::Given given;
    const OwnedTensor& values = given.emplace(input->name, test::on_cpu(input->before)).first->second;
    const Tensor of_row = part(values, sizes[0], row, 1);
    visit_float(values->dtype(), [&]<class T>() { std::ranges::fill(of_row.span<T>(), static_cast<T>(NAN)); });
    const Call found = run(sizes, call.dtype(), false, &given);
    bool seen = false, any = false;
    for (std::size_t i = 0; i < call.arrays().size(); ++i) {
      const Place::Array &array = found->arrays()[i], &clean = call.arrays()[i];
      if (!array.written() || !is_float(array.tensor) || array.tensor.size() == 0) continue;
      const bool of_rows = array.role == Role::output;
      const OwnedTensor own = converted(of_rows ? part(array.tensor, sizes[0], row, 1) : array.tensor, DType::f64);
      seen |= std::ranges::any_of(own->span<double>(), [](double x) { return std::isnan(x); });
      any = true;
      for (const auto& [from, to] : {std::pair<Int, Int>{0, row}, {row + 1, sizes[0]}})
        if (of_rows &&
            !same_bits(part(array.tensor, sizes[0], from, to - from), part(clean.tensor, sizes[0], from, to - from)))
          complain(array.name, " has a NaN's traces in other rows");
    }
    if (any && !seen) complain("a NaN of ", input->name, " is in no result");
  }

  const OpRow& row_;
  std::string where_, found_;
};

}  // namespace

std::string device_faults(const std::function<void(Place&)>& run, const OnGpu& tolerances, bool adds) {
  std::string found;
  const Device gpu{DeviceKind::cuda, 0};
  const std::tuple<DType, DType, double> kinds[] = {{DType::f32, DType::f32, tolerances.f32},
                                                    {DType::f64, DType::f64, tolerances.f64},
                                                    {DType::bf16, DType::f64, tolerances.bf16},
                                                    {DType::f16, DType::f64, tolerances.f16}};
  for (const auto& [dtype, exact, tolerance] : kinds) {
    if (tolerance == 0) continue;
    Place here(exact, {}, dtype, adds), there(dtype, gpu, dtype, adds), again(dtype, gpu, dtype, adds);
    run(here);
    for (Place* const place : {&there, &again}) {
      const BlockOrder order(place == &there ? "forward" : "reverse");
      run(*place);
      place->stream.synchronize();
    }
    for (std::size_t i = 0; i < here.arrays().size(); ++i) {
      const Place::Array& expected = here.arrays()[i];
      if (!expected.written()) continue;
      const HostView value(there.arrays()[i].tensor), repeated(again.arrays()[i].tensor);
      const std::string what = join(name(dtype), " on a GPU: ", expected.name);
      const Difference d = is_float(expected.tensor) ? difference(value, expected.tensor) : Difference{};
      if (!(d < std::min(tolerance, expected.tolerance))) found += join(what, " differs from the CPU by ", d, "\n");
      if (!is_float(expected.tensor) && !same_bits(value, expected.tensor)) found += what + " is not the CPU's\n";
      if (!same_bits(value, repeated)) found += what + " depends on the order of blocks\n";
    }
    adds = !adds;
  }
  return found;
}

std::string faults(const OpRow& row) {
  Check check(row);
  const auto all = [](const std::vector<Sizes>& own, const std::vector<Sizes>& more) {
    std::vector<Sizes> sizes = own;
    sizes.insert(sizes.end(), more.begin(), more.end());
    return sizes;
  };
  if (!on_stand_in()) {
    for (const Sizes& sizes : all(row.sizes, row.cpu_sizes)) check.on_cpu(sizes);
    check.refusals();
  }
  bool adds = false;
  if (gpu_count() > 0)
    for (const Sizes& sizes : all(row.sizes, row.gpu_sizes)) check.on_gpu(sizes, adds = !adds);
  return check.found();
}
std::string faults(Sized<Place> run, Sized<Plain> definition, std::vector<Sizes> sizes, OpRow row) {
  row.run = std::move(run), row.definition = std::move(definition), row.sizes = std::move(sizes);
  return faults(row);
}

}  // namespace lockstep::test
