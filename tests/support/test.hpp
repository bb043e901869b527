#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/io/h5.hpp"
#include "support/errors.hpp"
#include "support/outcome.hpp"
#include "support/paths.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"
#include "support/threads.hpp"
#include "support/tolerance.hpp"

namespace lockstep::test {
/// A count or an index as containers have it.
constexpr std::size_t to_size(auto n) { return static_cast<std::size_t>(n); }
}  // namespace lockstep::test

// What nearly every test uses, and the precompiled header of their programs. Only a test includes it, hence the using
// directives. Each test case runs in an empty folder of its own, which is removed afterwards (support/outcome.cpp).
using namespace lockstep;
using namespace lockstep::test;
using doctest::Approx;
namespace fs = std::filesystem;
