#include <regex>

#include "support/test.hpp"

namespace {

/// Which layers a layer may include directly, from the table of docs/overview.md. It may also include what those may
/// include.
const std::map<std::string, std::vector<std::string>>& may_include() {
  static const auto all = [] {
    const std::string page = read_text(source_path("docs/overview.md"));
    const std::regex row(R"re(\n\| `(\w+)(?:/<\w+>)?` \|[^|\n]*\|([^|\n]*)\|)re"), name(R"(\w+)");
    std::map<std::string, std::vector<std::string>> found;
    for (std::sregex_iterator at(page.begin(), page.end(), row), end; at != end; ++at) {
      const std::string below = (*at)[2];
      for (std::sregex_iterator to(below.begin(), below.end(), name); to != end; ++to)
        found[(*at)[1]].push_back(to->str());
      found.try_emplace((*at)[1]);
    }
    return found;
  }();
  return all;
}

std::set<std::string> reachable(const std::string& layer) {
  std::set<std::string> all = {layer};
  for (const auto& below : may_include().at(layer)) all.merge(reachable(below));
  return all;
}

/// The folder of helpers for kernels, such as vectors. Layers above ops, such as optim, have kernels too.
constexpr const char* kSharedByKernels = "ops/common/";
/// What the C interfaces share.
constexpr const char* kSharedByInterfaces = "capi/capi.hpp";

/// A header of another project, and where it may be included: the beginning of the path, relative to the root.
struct Foreign {
  std::string header;
  std::vector<std::string> homes;
};
const std::vector<Foreign> kForeign = {
    {"mpi", {"src/comm/", "src/fit/fit.cpp", "include/lockstep/lockstep_train.h"}},
    {"hdf5", {"src/io/"}},
    {"H5", {"src/io/"}},
    {"netcdf", {"src/prep/"}},
    {"boost/", {"src/base/", "src/report/"}},
    {"nlohmann/",
     {"include/lockstep/base/json.hpp", "src/base/", "src/doctor/", "src/io/", "src/models/", "src/formats/",
      "src/prep/", "src/report/", "src/checkpoint/", "src/tasks/", "src/apps/"}},
    {"xxhash", {"src/base/"}},
    {"openssl/", {"src/base/", "src/io/", "src/prep/"}},
    {"zlib", {"src/base/", "src/io/", "src/formats/", "src/prep/", "src/report/"}},
    {"cblas", {"src/ops/"}},
};
bool is_cuda_header(const std::string& header) {
  return header.starts_with("cuda") || header.starts_with("cublas") || header.starts_with("cusparse") ||
         header.starts_with("nccl") || header.starts_with("nvtx");
}
bool may_see_cuda(const std::string& path) {
  return path.starts_with("src/device/") || path.starts_with("include/lockstep/device/cuda_") ||
         path.ends_with("_cuda.cu") || (path.starts_with("src/comm/") && path.find("nccl") != std::string::npos);
}

/// "ops" for src/ops/..., include/lockstep/ops/...; the C header is capi's.
std::string layer_of(const std::string& path) {
  if (path == "include/lockstep/lockstep.h") return "capi";
  if (path == "include/lockstep/lockstep_train.h") return "fit";
  std::vector<std::string> parts;
  for (const auto& part : fs::path(path)) parts.push_back(part.string());
  if (parts.size() > 2 && parts[0] == "src") return parts[1];
  if (parts.size() > 3 && parts[0] == "include") return parts[2];
  return "";
}

/// What is wrong with the #include lines of one file; `path` relative to the root.
std::vector<std::string> violations(const std::string& path, const std::string& text) {
  std::vector<std::string> found;
  const std::string layer = layer_of(path);
  if (may_include().count(layer) == 0) return {path + ": its folder is no layer"};
  const auto allowed = reachable(layer);
  std::istringstream in(text);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const auto hash = line.find_first_not_of(" \t");
    if (hash == std::string::npos || line[hash] != '#') continue;
    const auto word = line.find("include", hash);
    const auto open = line.find_first_of("<\"", hash);
    if (word == std::string::npos || open == std::string::npos) continue;
    const auto close = line.find_first_of(">\"", open + 1);
    const std::string header = line.substr(open + 1, close - open - 1);
    const std::string where = join(path, ":", number, ": ", layer, " includes ", header);
    if (line[open] == '"') {
      std::string target;
      if (header.starts_with("lockstep/"))
        target = layer_of("include/" + header);
      else if (header.find('/') != std::string::npos)
        target = layer_of("src/" + header);
      else
        continue;  // made by the build, in the layer's own folder
      if (may_include().count(target) == 0)
        found.push_back(where + ", which belongs to no layer");
      else if (allowed.count(target) == 0)
        found.push_back(where + ", but " + layer + " may not include " + target);
      else if (!header.starts_with("lockstep/") && target != layer && !header.starts_with(kSharedByKernels) &&
               header != kSharedByInterfaces)
        found.push_back(where + ", which is private to " + target);
      continue;
    }
    for (const auto& foreign : kForeign)
      if (header.starts_with(foreign.header) &&
          std::none_of(foreign.homes.begin(), foreign.homes.end(),
                       [&](const std::string& home) { return path.starts_with(home); }))
        found.push_back(where + ", which has its home in " + foreign.homes.front());
    if (is_cuda_header(header) && !may_see_cuda(path)) found.push_back(where + ", a CUDA header");
  }
  return found;
}

/// Functions that tests of a GPU call.
constexpr std::array kAsks = {"gpu_count()", " devices())", "kGpu"};

bool is_source(const fs::path& path) {
  const std::string extension = path.extension().string();
  for (const char* known : {".cpp", ".hpp", ".h", ".c", ".cu", ".cuh", ".f90"})
    if (extension == known) return true;
  return false;
}
/// The test cases of a file that ask for a GPU, but are none of those that tests/CMakeLists.txt runs on the stand-in
/// for one: these have "cuda" in their suite's name or "gradient" in their own.
std::vector<std::string> left_out(const std::string& text) {
  static const std::regex begin(R"re((TEST_SUITE|TEST_CASE)(?:_FIXTURE)?\([^"()]*"([^"]*)")re"),
      own(R"re(test_suite\("([^"]*)")re");
  std::vector<std::string> found;
  std::string suite;
  for (std::sregex_iterator at(text.begin(), text.end(), begin), end; at != end;) {
    const std::smatch head = *at++;
    if (head[1] == "TEST_SUITE") {
      suite = head[2];
      continue;
    }
    const auto from = to_size(head.position());
    const std::string body = text.substr(from, at == end ? std::string::npos : to_size(at->position()) - from);
    std::smatch other;
    const std::string in = std::regex_search(body, other, own) ? other[1].str() : suite, name = head[2];
    const bool asks =
        std::any_of(kAsks.begin(), kAsks.end(), [&](const char* word) { return body.find(word) != std::string::npos; });
    if (asks && in.find("cuda") == std::string::npos && name.find("gradient") == std::string::npos)
      found.push_back(name);
  }
  return found;
}
/// The kernels of a file that take gpu::Earlier but do not wait in their first statement, or name it in another place
/// than the first.
std::vector<std::string> without_wait(const std::string& text) {
  static const std::regex kernel(R"re((\w+)\s*\(([^(){};]*\bEarlier\b[^{};]*)\{\s*([^;]*;))re");
  static const std::regex first(R"re(\s*(gpu::)?Earlier earlier\b)re");
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), kernel), end; at != end; ++at)
    if (!std::regex_search((*at)[2].str(), first, std::regex_constants::match_continuous) ||
        (*at)[3] != "earlier.wait();")
      found.push_back((*at)[1]);
  return found;
}
/// All sources below these folders of the tree, relative to its root, in order.
std::vector<std::string> sources(const std::vector<std::string>& folders) {
  const fs::path root = source_path();
  std::vector<std::string> all;
  for (const auto& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.is_regular_file() && is_source(entry.path()))
        all.push_back(fs::relative(entry.path(), root).generic_string());
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

TEST_SUITE("tree.layering") {
  TEST_CASE("every #include follows the arrows between the layers") {
    const auto files = sources({"src", "include"});
    REQUIRE(files.size() > 40);
    for (const auto& file : files)
      for (const auto& violation : violations(file, read_text(source_path(file)))) FAIL_CHECK(violation);
  }

  TEST_CASE("docs/overview.md lists the folders of src") {
    std::set<std::string> layers, folders;
    for (const auto& [layer, below] : may_include()) layers.insert(layer);
    for (const auto& entry : fs::directory_iterator(source_path("src")))
      if (entry.is_directory()) folders.insert(entry.path().filename());
    CHECK(layers == folders);
  }

  TEST_CASE("a wrong arrow is found") {
    const auto wrong = [](const std::string& path, const std::string& line) {
      return violations(path, "// x\n  #  include " + line + "\n");
    };
    CHECK(wrong("src/ops/a.cpp", "\"lockstep/nn/tape.hpp\"") ==
          std::vector<std::string>{"src/ops/a.cpp:2: ops includes lockstep/nn/tape.hpp, but ops may not include nn"});
    CHECK(wrong("include/lockstep/tensor/a.hpp", "\"lockstep/io/h5.hpp\"").size() == 1);
    CHECK(wrong("include/lockstep/io/a.hpp", "\"lockstep/tensor/tensor.hpp\"").size() == 1);
    CHECK(wrong("src/prep/a.cpp", "\"lockstep/comm/world.hpp\"").size() == 1);
    CHECK(wrong("src/models/a.cpp", "\"lockstep/comm/world.hpp\"").size() == 1);
    CHECK(wrong("src/models/a.cpp", "\"lockstep/optim/optimizer.hpp\"").size() == 1);
    CHECK(wrong("src/capi/a.cpp", "\"lockstep/train/trainer.hpp\"").size() == 1);
    CHECK(wrong("src/train/a.cpp", "\"lockstep/prep/a.hpp\"").size() == 1);
    CHECK(wrong("src/train/a.cpp", "\"models/private.hpp\"").size() == 1);
    CHECK(wrong("src/optim/a_cpu.cpp", "\"ops/common/simd.hpp\"").empty());
    CHECK(wrong("src/io/a.cpp", "\"ops/common/simd.hpp\"").size() == 1);
    CHECK(wrong("src/train/a.cpp", "\"lockstep/nowhere/a.hpp\"").size() == 1);
    CHECK(wrong("src/strange/a.cpp", "<vector>").size() == 1);
    CHECK(wrong("src/train/a.cpp", "<mpi.h>").size() == 1);
    CHECK(wrong("src/data/a.cpp", "<hdf5.h>").size() == 1);
    CHECK(wrong("src/io/a.cpp", "<netcdf.h>").size() == 1);
    CHECK(wrong("src/ops/gemm.cpp", "<cuda_runtime.h>").size() == 1);
    CHECK(wrong("src/train/a.cpp", "<nccl.h>").size() == 1);
    CHECK(wrong("include/lockstep/base/options.hpp", "<boost/program_options.hpp>").size() == 1);
  }

  TEST_CASE("right arrows are let through") {
    const auto wrong = [](const std::string& path, const std::string& line) {
      return violations(path, "#include " + line + "\n");
    };
    CHECK(wrong("src/train/a.cpp", "\"lockstep/base/error.hpp\"").empty());
    CHECK(wrong("src/models/a.cpp", "\"lockstep/io/h5.hpp\"").empty());
    CHECK(wrong("src/apps/lockstep/a.cpp", "\"lockstep/prep/a.hpp\"").empty());
    CHECK(wrong("src/apps/lockstep/a.cpp", "\"apps/lockstep/commands.hpp\"").empty());
    CHECK(wrong("src/comm/a.cpp", "<mpi.h>").empty());
    CHECK(wrong("src/comm/nccl_communicator.cpp", "<nccl.h>").empty());
    CHECK(wrong("src/ops/gemm_cuda.cu", "<cuda_runtime.h>").empty());
    CHECK(wrong("src/capi/a.cpp", "\"lockstep/lockstep.h\"").empty());
    CHECK(violations("src/base/a.cpp", "#pragma once\n// #include <mpi.h>\nint x;\n").empty());
  }
}

TEST_SUITE("tree.sources") {
  TEST_CASE("no file is longer than 800 lines") {
    for (const auto& file : sources({"src", "include", "tests"})) {
      const std::string text = read_text(source_path(file));
      const auto lines = std::count(text.begin(), text.end(), '\n');
      CAPTURE(file);
      CHECK(lines <= 800);
    }
  }

  TEST_CASE("tests that ask for a GPU are among those that run on the stand-in for one") {
    for (const auto& file : sources(
             {"tests/device", "tests/models", "tests/nn", "tests/ops", "tests/optim", "tests/train", "tests/tasks"})) {
      if (!file.ends_with("_test.cpp") || file.ends_with("_mpi_test.cpp")) continue;
      CAPTURE(file);
      CHECK(left_out(read_text(source_path(file))) == std::vector<std::string>{});
    }
    const std::string text = "(\"a\") {\n gpu_count();\n}\n TEST_CASE(\"b\") {}\n";
    CHECK(left_out("TEST_SUITE(\"ops\") { TEST_CASE" + text) == std::vector<std::string>{"a"});
    CHECK(left_out("TEST_SUITE(\"ops.cuda\") { TEST_CASE" + text).empty());
  }

  TEST_CASE("a kernel that may start early waits in its first statement") {
    std::size_t kernels = 0;
    for (const auto& file : sources({"src"})) {
      if (!file.ends_with(".cu") && !file.ends_with("_cuda.hpp")) continue;
      const std::string text = read_text(source_path(file));
      CAPTURE(file);
      CHECK(without_wait(text) == std::vector<std::string>{});
      for (auto at = text.find("earlier.wait();"); at != std::string::npos; at = text.find("earlier.wait();", at + 1))
        ++kernels;
    }
    CHECK(kernels > 80);
    const std::string good = "__global__ void f(gpu::Earlier earlier, int n) {\n  earlier.wait();\n  g(n);\n}\n";
    CHECK(without_wait(good).empty());
    CHECK(without_wait("__global__ void f(Earlier earlier, int n) {\n  if (n > 0) return;\n  earlier.wait();\n}\n") ==
          std::vector<std::string>{"f"});
    CHECK(without_wait("__global__ void f(gpu::Earlier, int n) {\n  g(n);\n}\n" + good) ==
          std::vector<std::string>{"f"});
    CHECK(without_wait("__global__ void f(int n, gpu::Earlier earlier) {\n  earlier.wait();\n}\n") ==
          std::vector<std::string>{"f"});
  }

  TEST_CASE("every header is included once: #pragma once stands first") {
    for (const auto& file : sources({"src", "include"})) {
      if (!file.ends_with(".hpp")) continue;
      CAPTURE(file);
      CHECK(read_text(source_path(file)).starts_with("#pragma once\n"));
    }
  }
}
