#include "symbols.hpp"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "error.hpp"

namespace cuda_host {

namespace {

struct Symbol {
  std::uintptr_t address = 0;  // of a variable: relative to its module, or to the module's thread-local storage
  std::size_t size = 0;
  std::string name;
  bool thread_local_storage = false;
};
struct Module {
  std::string path;
  std::uintptr_t base = 0, begin = 0, end = 0;
  std::vector<Symbol> functions;  // in the order of addresses
  std::vector<Symbol> shared;
};

/// A local variable with a mangled name `_ZZ<function>E<length>sm_...` is, by naming convention, an array in shared
/// memory.
bool is_shared_variable(std::string_view name) {
  if (!name.starts_with("_ZZ")) return false;
  for (auto at = name.find("sm_"); at != std::string_view::npos; at = name.find("sm_", at + 1))
    if (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9') return true;
  return false;
}

void read_symbols(Module& module) {
  std::ifstream in(module.path, std::ios::binary);
  const auto read = [&](std::uint64_t offset, void* into, std::size_t size) {
    in.seekg(static_cast<std::streamoff>(offset));
    return static_cast<bool>(in.read(static_cast<char*>(into), static_cast<std::streamsize>(size)));
  };
  ElfW(Ehdr) header;
  if (!read(0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return;
  std::vector<ElfW(Shdr)> sections(header.e_shnum);
  if (!read(header.e_shoff, sections.data(), sections.size() * sizeof(ElfW(Shdr)))) return;
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    std::vector<ElfW(Sym)> symbols(section.sh_size / sizeof(ElfW(Sym)));
    std::string names(sections[section.sh_link].sh_size, '\0');
    if (!read(section.sh_offset, symbols.data(), section.sh_size) ||
        !read(sections[section.sh_link].sh_offset, names.data(), names.size()))
      return;
    for (const auto& symbol : symbols) {
      const char* name = names.c_str() + symbol.st_name;
      const int type = ELF64_ST_TYPE(symbol.st_info);
      if (type == STT_FUNC && symbol.st_value != 0)
        module.functions.push_back({module.base + symbol.st_value, symbol.st_size, name});
      if ((type == STT_TLS || type == STT_OBJECT) && is_shared_variable(name))
        module.shared.push_back({symbol.st_value, symbol.st_size, name, type == STT_TLS});
    }
  }
  std::sort(module.functions.begin(), module.functions.end(),
            [](const Symbol& a, const Symbol& b) { return a.address < b.address; });
}

const std::vector<Module>& modules() {
  static const auto* const all = [] {
    auto* found = new std::vector<Module>;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* into) {
          Module module;
          module.path = *info->dlpi_name ? info->dlpi_name : "/proc/self/exe";
          module.base = info->dlpi_addr;
          module.begin = ~std::uintptr_t{0};
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& segment = info->dlpi_phdr[i];
            if (segment.p_type != PT_LOAD) continue;
            module.begin = std::min(module.begin, module.base + segment.p_vaddr);
            module.end = std::max(module.end, module.base + segment.p_vaddr + segment.p_memsz);
          }
          static_cast<std::vector<Module>*>(into)->push_back(std::move(module));
          return 0;
        },
        found);
    return found;
  }();
  return *all;
}

/// The module that contains the address, with its symbols read; null if there is none.
const Module* module_of(const void* address) {
  static std::mutex mutex;
  static std::map<const Module*, bool> read;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const Module& module : modules()) {
    if (at < module.begin || at >= module.end) continue;
    const std::lock_guard lock(mutex);
    if (!std::exchange(read[&module], true)) read_symbols(const_cast<Module&>(module));
    return &module;
  }
  return nullptr;
}

const Symbol* function_at(const Module& module, const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto after = std::upper_bound(module.functions.begin(), module.functions.end(), at,
                                      [](std::uintptr_t a, const Symbol& s) { return a < s.address; });
  return after == module.functions.begin() ? nullptr : &*std::prev(after);
}

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  std::string result = status == 0 ? text.get() : name;
  // "void lockstep::(anonymous namespace)::f<float>(int)" becomes "f<float>".
  for (const std::string_view noise : {"(anonymous namespace)::", "lockstep::", "ops::", "void "})
    for (auto at = result.find(noise); at != std::string::npos; at = result.find(noise)) result.erase(at, noise.size());
  int depth = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    depth += result[i] == '<' ? 1 : result[i] == '>' ? -1 : 0;
    if (result[i] == '(' && depth == 0) return result.substr(0, i);
  }
  return result;
}

/// The calling thread's block of a module's thread-local storage.
std::byte* thread_storage(const Module& module) {
  std::pair<std::uintptr_t, void*> search = {module.base, nullptr};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* into) {
        auto& [base, found] = *static_cast<decltype(search)*>(into);
        if (info->dlpi_addr == base && info->dlpi_tls_data) found = info->dlpi_tls_data;
        return 0;
      },
      &search);
  return static_cast<std::byte*>(search.second);
}

}  // namespace

std::string function_name(const void* address) {
  const Module* module = module_of(address);
  const Symbol* function = module ? function_at(*module, address) : nullptr;
  return function ? demangled(function->name) : text(address);
}

std::string at(const void* instruction) {
  const Module* module = module_of(instruction);
  const Symbol* function = module ? function_at(*module, instruction) : nullptr;
  if (!function) return text(", at ", instruction);
  return text(", in ", demangled(function->name), " (", module->path, "+0x", std::hex,
              reinterpret_cast<std::uintptr_t>(instruction) - module->base, ")");
}

std::span<const std::span<std::byte>> shared_variables(const void* kernel) {
  thread_local std::map<const void*, std::vector<std::span<std::byte>>> known;
  const auto [entry, added] = known.try_emplace(kernel);
  if (!added) return entry->second;
  const Module* module = module_of(kernel);
  const Symbol* function = module ? function_at(*module, kernel) : nullptr;
  if (!function) return {};
  const std::string own = "_ZZ" + function->name.substr(2) + "E";
  for (const Symbol& variable : module->shared) {
    const bool of_another_kernel =
        variable.name.find("_kernel") != std::string::npos && !variable.name.starts_with(own);
    if (!of_another_kernel)
      entry->second.emplace_back(
          (variable.thread_local_storage ? thread_storage(*module) : reinterpret_cast<std::byte*>(module->base)) +
              variable.address,
          variable.size);
  }
  return entry->second;
}

}  // namespace cuda_host
