#include "lockstep/nn/mhc.hpp"

#include "lockstep/base/profile.hpp"
#include "lockstep/ops/hyper_connections.hpp"
#include "lockstep/ops/row_groups.hpp"

namespace lockstep {
namespace {

using ops::HyperConnection;

HyperConnection connection_of(const Tape& t, const MhcSite& s) {
  return {.alpha_pre = t.value(*s.alpha_pre),
          .alpha_post = t.value(*s.alpha_post),
          .alpha_res = t.value(*s.alpha_res),
          .weight_pre = t.value(*s.phi_pre.weight),
          .weight_post = t.value(*s.phi_post.weight),
          .weight_res = t.value(*s.phi_res.weight),
          .bias_pre = t.value(*s.phi_pre.bias),
          .bias_post = t.value(*s.phi_post.bias),
          .bias_res = t.value(*s.phi_res.bias),
          .sinkhorn_steps = s.iterations};
}
ops::HyperConnectionGradients gradients_of(Tape& t, const MhcSite& s) {
  return {t.grad_of(*s.alpha_pre),      t.grad_of(*s.alpha_post),      t.grad_of(*s.alpha_res),
          t.grad_of(*s.phi_pre.weight), t.grad_of(*s.phi_post.weight), t.grad_of(*s.phi_res.weight),
          t.grad_of(*s.phi_pre.bias),   t.grad_of(*s.phi_post.bias),   t.grad_of(*s.phi_res.bias)};
}

}  // namespace

MhcSite add_mhc_site(ParamStore& params, const std::string& name, const MhcShape& shape, std::int64_t site) {
  const std::int64_t n = shape.streams;
  require(n >= 1 && n <= HyperConnection::kMostStreams && shape.iterations >= 1 &&
              shape.iterations <= HyperConnection::kMostSteps,
          "hyper-connections with ", n, " streams and ", shape.iterations, " iterations: must be 1 to ",
          HyperConnection::kMostStreams, " and 1 to ", HyperConnection::kMostSteps);
  const auto constant = [](auto value) {
    return [=](const Philox&, std::uint64_t element) { return value(static_cast<std::int64_t>(element)); };
  };
  MhcSite s;
  s.iterations = shape.iterations;
  const auto add = [&](const char* map, std::int64_t rows, const Param*& alpha, Linear& phi, auto bias) {
    const double gate = shape.gate;
    alpha = &params.add(name + ".alpha_" + map, {}, constant([=](std::int64_t) { return gate; }));
    phi = add_linear(params, name + ".phi_" + map, n * shape.columns, rows,
                     init::xavier_normal(n * shape.columns, rows), constant(bias));
  };
  add("pre", n, s.alpha_pre, s.phi_pre, [=](std::int64_t k) { return n == 1 ? 10.0 : k == site % n ? 4.0 : -4.0; });
  add("post", n, s.alpha_post, s.phi_post, [](std::int64_t) { return 0.0; });
  add("res", n * n, s.alpha_res, s.phi_res, [=](std::int64_t k) { return k / n == k % n ? 0.0 : -8.0; });
  return s;
}

MhcRead mhc_read(Tape& t, Var x, const MhcSite& site) {
  const bool equal = x.shape().rank() == 2;
  require(equal || x.shape().rank() == 3, "mhc: the streams must be (N, n, C) or (N, C), not ", x.shape());
  const std::int64_t rows = x.shape()[0], n = site.streams(), columns = n * (equal ? 2 : 2 + n);
  const MhcSite* s = &site;
  const Param* params[] = {s->alpha_pre,      s->alpha_post,   s->alpha_res,     s->phi_pre.weight, s->phi_post.weight,
                           s->phi_res.weight, s->phi_pre.bias, s->phi_post.bias, s->phi_res.bias};
  MhcRead read;
  const DType real = t.real_dtype();
  profile::Span maps("mhc_maps");
  read.maps = t.output({rows, columns}, t.wants_grad({x}, {s->phi_pre.weight}), real);
  const Tensor raw = t.keep({rows, columns}, real), scale = t.keep({rows}, real);
  ops::hyper_maps_forward(t.stream(), read.maps.value(), raw, scale, x.value(), connection_of(t, site));
  t.record("mhc_maps", read.maps, std::span<const Param* const>(params), [=, &t] {
    ops::hyper_maps_backward(t.stream(), t.grad_of(x), gradients_of(t, *s), read.maps.grad(), raw, scale, x.value(),
                             connection_of(t, *s));
  });
  maps.end();
  const profile::Span span("mhc_read");
  read.u = t.output({rows, x.columns()}, t.wants_grad({x, read.maps}));
  ops::hyper_read_forward(t.stream(), read.u.value(), x.value(), read.maps.value(), n);
  t.record("mhc_read", read.u, {}, [=, &t] {
    ops::hyper_read_backward(t.stream(), t.grad_of(x), t.grad_of(read.maps), read.u.grad(), x.value(),
                             read.maps.value(), n);
  });
  return read;
}

Var mhc_write(Tape& t, Var x, const MhcRead& read, Var y, const MhcSite& site, MhcResult result) {
  const std::int64_t n = site.streams();
  const Var maps = read.maps;
  const profile::Span span("mhc_write");
  const Shape shape = result == MhcResult::sum ? y.shape() : Shape{y.rows(), n, y.columns()};
  Var out = t.output(shape, t.wants_grad({x, y, maps}));
  ops::hyper_write_forward(t.stream(), out.value(), x.value(), maps.value(), y.value(), n);
  t.record("mhc_write", out, {}, [=, &t] {
    ops::hyper_write_backward(t.stream(), t.grad_of(x), t.grad_of(maps), t.grad_of(y), out.grad(), x.value(),
                              maps.value(), y.value(), n);
  });
  return out;
}

Var copy_to_streams(Tape& t, Var x, std::int64_t n) {
  const profile::Span span("copy_to_streams");
  Var y = t.output({x.rows(), n, x.columns()}, t.wants_grad({x}));
  ops::copy_rows(t.stream(), {y.value(), false}, x.value(), n);
  t.record("copy_to_streams", y, {}, [=, &t] { ops::sum_rows(t.stream(), t.grad_of(x), y.grad(), n); });
  return y;
}

Var sum_streams(Tape& t, Var x) {
  const std::int64_t rows = x.shape()[0], n = x.shape()[1], c = x.shape()[2];
  const profile::Span span("sum_streams");
  Var y = t.output({rows, c}, t.wants_grad({x}));
  ops::sum_rows(t.stream(), {y.value(), false}, x.value(), n);
  t.record("sum_streams", y, {}, [=, &t] { ops::copy_rows(t.stream(), t.grad_of(x), y.grad(), n); });
  return y;
}

}  // namespace lockstep
