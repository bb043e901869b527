// How a C++ program shares one trained network between threads: each thread scores a part of the samples with a
// workspace of its own.
//
//   scores MODEL.safetensors OUTPUT INPUT...
//
// Each INPUT is a file with the elements of one input, for as many samples as it holds; OUTPUT gets those of the first
// output.
#include <lockstep/lockstep.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

void check(int status) {
  if (status != LSEM_OK) throw std::runtime_error(lsem_last_error());
}

struct Close {
  void operator()(lsnet_model* m) const { lsnet_close(m); }
  void operator()(lsnet_workspace* w) const { lsnet_workspace_free(w); }
};
using Model = std::unique_ptr<lsnet_model, Close>;
using Workspace = std::unique_ptr<lsnet_workspace, Close>;

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(std::string(path) + " is not readable");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::size_t bytes_of_sample(const lsnet_model* model, int is_output, int i) {
  std::size_t bytes = lsnet_array_type(model, is_output, i) == LSNET_I64 ? sizeof(std::int64_t) : sizeof(float);
  for (int axis = 1; axis < lsnet_array_rank(model, is_output, i); ++axis)
    bytes *= static_cast<std::size_t>(lsnet_array_extent(model, is_output, i, axis));
  return bytes;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) throw std::runtime_error("usage: scores MODEL.safetensors OUTPUT INPUT...");
  lsnet_model* opened = nullptr;
  const std::string bytes = read(argv[1]);
  check(lsnet_open_mem(bytes.data(), bytes.size(), &opened));
  const Model model(opened);
  std::vector<std::string> inputs;
  for (int i = 3; i < argc; ++i) inputs.push_back(read(argv[i]));
  if (static_cast<int>(inputs.size()) != lsnet_arrays(opened, 0)) throw std::runtime_error("wrong number of inputs");
  const std::size_t n = inputs[0].size() / bytes_of_sample(opened, 0, 0), each = bytes_of_sample(opened, 1, 0);
  std::string scores(n * each, '\0');

  constexpr std::size_t kThreads = 3;
  std::vector<std::thread> threads;
  std::vector<std::string> errors(kThreads);
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::size_t first = t * n / kThreads, count = (t + 1) * n / kThreads - first;
      std::vector<const void*> in;
      for (std::size_t i = 0; i < inputs.size(); ++i)
        in.push_back(inputs[i].data() + first * bytes_of_sample(opened, 0, static_cast<int>(i)));
      void* out = scores.data() + first * each;
      const Workspace workspace(lsnet_workspace_new());
      if (lsnet_predict(opened, static_cast<long>(count), in.data(), &out, workspace.get()) != LSEM_OK)
        errors[t] = lsem_last_error();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors)
    if (!error.empty()) throw std::runtime_error(error);
  std::ofstream(argv[2], std::ios::binary) << scores;
  std::printf("%zu samples in %zu threads\n", n, kThreads);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
