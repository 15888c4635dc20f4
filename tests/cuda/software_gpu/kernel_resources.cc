#include "tests/cuda/software_gpu/kernel_resources.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <mutex>

#include "tests/cuda/software_gpu/elf_image.h"

namespace muster::software_gpu {
namespace {

using Table = std::map<std::string, KernelResources>;

// NVIDIA documents none of these; cuobjdump shows the same numbers.
constexpr uint32_t kFatbinMagic = 0xBA55ED50;
constexpr uint16_t kCodeOfACard = 2;  // 1 would be PTX
constexpr uint32_t kInfoSection = 0x70000000;
constexpr unsigned char kWithSize = 4;  // a record format: its size, then that many bytes
constexpr unsigned char kMaxThreads = 0x05;
constexpr unsigned char kRegisterCount = 0x2f;
constexpr const char* kSharedPrefix = ".nv.shared.";
constexpr const char* kInfoPrefix = ".nv.info";

// The same on all GPUs since sm_60.
constexpr int kRegisterFile = 65536;  // per multiprocessor, and so per block
constexpr int kRegisterUnit = 256;    // registers of a warp are rounded up to a multiple
constexpr int kThreadsOfWarp = 32;

std::string After(const std::string& text, const std::string& prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : "";
}

// Reads the records of an .nv.info section.
void ReadInfo(const ElfSection& section, const std::vector<ElfSymbol>& symbols, Table& table) {
  const std::string kernel = After(section.name, std::string(kInfoPrefix) + ".");
  for (uint64_t at = 0; at < section.bytes.size();) {
    const auto format = ReadAt<unsigned char>(section.bytes, at);
    const auto what = ReadAt<unsigned char>(section.bytes, at + 1);
    const uint64_t value = at + 4;
    at = value + (format == kWithSize ? ReadAt<uint16_t>(section.bytes, at + 2) : 0);
    if (format != kWithSize) continue;
    if (what == kRegisterCount && kernel.empty()) {
      const ElfSymbol& symbol = symbols.at(ReadAt<uint32_t>(section.bytes, value));
      table[std::string(symbol.name)].registers = ReadAt<int>(section.bytes, value + 4);
    } else if (what == kMaxThreads) {
      int& most = table[kernel].most_threads;
      most = 1;
      for (int i = 0; i < 3; ++i) most *= ReadAt<int>(section.bytes, value + 4 * i);
    }
  }
}

Table ReadCubin(std::string_view code) {
  const std::vector<ElfSection> sections = ReadElfSections(code);
  const std::vector<ElfSymbol> symbols = ReadElfSymbols(sections);
  Table table;
  for (const ElfSection& section : sections) {
    if (section.type == kInfoSection) ReadInfo(section, symbols, table);
    const std::string kernel = After(section.name, kSharedPrefix);
    if (!kernel.empty() && !kernel.starts_with("reserved.")) {
      table[kernel].shared_bytes = section.size;
    }
  }
  return table;
}

void Merge(const Table& from, Table& to) {
  for (const auto& [kernel, needs] : from) {
    if (needs.registers == 0) continue;  // not a kernel
    KernelResources& most = to[HostNameOf(kernel)];
    most.registers = std::max(most.registers, needs.registers);
    most.shared_bytes = std::max(most.shared_bytes, needs.shared_bytes);
    most.most_threads = std::max(most.most_threads, needs.most_threads);
  }
}

// Reads a fatbin: a header, then code for each architecture.
void ReadFatbin(std::string_view fatbin, Table& table) {
  for (uint64_t at = 0; at < fatbin.size();) {
    const auto kind = ReadAt<uint16_t>(fatbin, at);
    const auto header = ReadAt<uint32_t>(fatbin, at + 4);
    const auto bytes = ReadAt<uint64_t>(fatbin, at + 8);
    RequireBytes(fatbin, at + header, bytes);
    if (kind == kCodeOfACard) Merge(ReadCubin(fatbin.substr(at + header, bytes)), table);
    at += header + bytes;
  }
}

// The functions of a program or library, by offset.
class Functions {
 public:
  explicit Functions(const std::string& module) : file_(module) {
    for (const ElfSymbol& symbol : ReadElfSymbols(ReadElfSections(file_.bytes()))) {
      if (ELF64_ST_TYPE(symbol.info) == STT_FUNC) functions_.push_back(symbol);
    }
    std::sort(functions_.begin(), functions_.end(),
              [](const ElfSymbol& a, const ElfSymbol& b) { return a.value < b.value; });
  }
  std::vector<std::string> NamesAt(uint64_t offset) const {
    std::vector<std::string> names;
    auto at = std::partition_point(functions_.begin(), functions_.end(),
                                   [&](const ElfSymbol& f) { return f.value < offset; });
    for (; at != functions_.end() && at->value == offset; ++at) names.emplace_back(at->name);
    return names;
  }

 private:
  const MappedFile file_;
  std::vector<ElfSymbol> functions_;
};

const Functions& FunctionsOf(const std::string& module) {
  static auto* const known = new std::map<std::string, Functions>;
  return known->try_emplace(module, module).first->second;
}

}  // namespace

Table ReadKernelResources(const std::string& library) {
  const MappedFile file(library);
  Table table;
  for (const ElfSection& section : ReadElfSections(file.bytes())) {
    if (section.name != ".nv_fatbin") continue;
    for (uint64_t at = 0; at + 16 <= section.bytes.size();) {
      if (ReadAt<uint32_t>(section.bytes, at) != kFatbinMagic) {
        at += 8;  // padding
        continue;
      }
      const auto header = ReadAt<uint16_t>(section.bytes, at + 6);
      const auto bytes = ReadAt<uint64_t>(section.bytes, at + 8);
      RequireBytes(section.bytes, at + header, bytes);
      ReadFatbin(section.bytes.substr(at + header, bytes), table);
      at += header + bytes;
    }
  }
  return table;
}

// Replaces "46_GLOBAL__N__3fcf18d5_13_batch_norm_cu_2f964238", whose name has 46 letters, by
// "12_GLOBAL__N_1".
std::string HostNameOf(std::string kernel) {
  const std::string unnamed = "_GLOBAL__N__";
  for (size_t at = 0; (at = kernel.find(unnamed, at)) != std::string::npos;) {
    if (at < 2 || std::isdigit(kernel[at - 1]) == 0 || std::isdigit(kernel[at - 2]) == 0) break;
    const auto letters = static_cast<size_t>(std::stoi(kernel.substr(at - 2, 2)));
    kernel.replace(at - 2, 2 + letters, "12_GLOBAL__N_1");
  }
  return kernel;
}

std::vector<std::string> NamesOfCode(const void* address) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Dl_info info = {};
  if (dladdr(address, &info) == 0) return {};
  const auto base = reinterpret_cast<uintptr_t>(info.dli_fbase);
  // For the program itself this is argv[0], which may be relative to another folder.
  const std::string module = info.dli_fname;
  const bool is_library = module.find(".so") != std::string::npos;
  return FunctionsOf(is_library ? module : "/proc/self/exe")
      .NamesAt(reinterpret_cast<uintptr_t>(address) - base);
}

std::string WhyTooLarge(const KernelResources& kernel, size_t threads, size_t dynamic_bytes,
                        size_t most_shared_bytes) {
  if (kernel.most_threads > 0 && threads > static_cast<size_t>(kernel.most_threads)) {
    return fmt::format("{} threads (its __launch_bounds__ say at most {})", threads,
                       kernel.most_threads);
  }
  const size_t warps = (threads + kThreadsOfWarp - 1) / kThreadsOfWarp;
  const int of_warp =
      (kernel.registers * kThreadsOfWarp + kRegisterUnit - 1) / kRegisterUnit * kRegisterUnit;
  const size_t registers = warps * static_cast<size_t>(of_warp);
  if (registers > kRegisterFile) {
    return fmt::format("{} threads that need {} registers each: {} of the {} that a GPU has",
                       threads, kernel.registers, registers, kRegisterFile);
  }
  const size_t shared = kernel.shared_bytes + dynamic_bytes;
  if (shared > most_shared_bytes) {
    return fmt::format("{} bytes of shared memory, {} of them its own (at most {})", shared,
                       kernel.shared_bytes, most_shared_bytes);
  }
  return "";
}

}  // namespace muster::software_gpu
