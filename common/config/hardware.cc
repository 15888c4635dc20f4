#include "common/config/hardware.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "common/base/error.h"
#include "common/base/leading_zero.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr int kMostCards = 1024;  // as for cluster.workers

[[noreturn]] void Refuse(const std::string& what, const std::string& text) {
  throw Error(ExitCode::kUsage,
              "expected auto, auto:N, cpu, or a list of GPUs, each as an index or a UUID prefix "
              "(0,2,GPU-8f3a; run `muster gpus` to list them), got \"{}\": {}",
              text, what);
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool IsNumber(const std::string& text) {
  return !text.empty() && text.size() <= 4 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

// Returns an index, or a UUID as NVML writes it, with the prefix in capitals.
std::string CardName(const std::string& word, const std::string& text) {
  if (HasLeadingZero(word)) Refuse(word + ": " + kLeadingZero, text);
  if (IsNumber(word)) return word;
  const std::string lower = Lower(word);
  for (const char* const kind : {"GPU-", "MIG-"}) {
    const bool starts = lower.starts_with(Lower(kind)) && lower.size() > 4;
    if (starts && lower.find_first_not_of("0123456789abcdefgpu-/", 4) == std::string::npos) {
      return kind + word.substr(4);
    }
  }
  for (const char* const kind : {"gpu:", "cuda:"}) {  // PyTorch counts the visible ones only
    if (!lower.starts_with(kind)) continue;
    Refuse(fmt::format("write the number alone, as `muster gpus` counts: {}",
                       lower.substr(lower.find(':') + 1)),
           text);
  }
  Refuse(word.empty() ? "a list element is empty" : "\"" + word + "\" is neither", text);
}

}  // namespace

DeviceWish ParseDevices(const std::string& text) {
  using Kind = DeviceWish::Kind;
  const std::string lower = Lower(Trimmed(text));
  if (lower.empty()) return {};
  if (lower == "cpu") return {.kind = Kind::kCpu};
  if (lower == "auto") return {.kind = Kind::kAuto};
  if (lower.starts_with("auto:")) {
    const std::string number = lower.substr(5);
    if (HasLeadingZero(number)) Refuse(number + ": " + kLeadingZero, text);
    if (!IsNumber(number) || std::stoi(number) < 1 || std::stoi(number) > kMostCards) {
      Refuse("expected a number from 1 to 1024 after \"auto:\"", text);
    }
    return {.kind = Kind::kAuto, .count = std::stoi(number)};
  }
  DeviceWish wish{.kind = Kind::kNamed};
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    wish.names.push_back(CardName(Trimmed(text.substr(at, comma - at)), text));
    at = comma + 1;
  }
  for (auto name = wish.names.begin(); name != wish.names.end(); ++name) {
    if (std::find(wish.names.begin(), name, *name) != name)
      Refuse("\"" + *name + "\" is listed twice", text);
  }
  return wish;
}

// __builtin_cpu_supports also checks that the kernel saves the registers.
std::vector<config::Server::InstructionSet> HostInstructionSets() {
  std::vector<config::Server::InstructionSet> sets{config::Server::SCALAR};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) sets.push_back(config::Server::AVX2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
    sets.push_back(config::Server::AVX512);
  }
#endif
  return sets;
}

config::Server::InstructionSet ChooseInstructionSet(config::Server::InstructionSet wanted) {
  const std::vector<config::Server::InstructionSet> sets = HostInstructionSets();
  if (wanted == config::Server::AUTO) return sets.back();
  if (std::ranges::find(sets, wanted) != sets.end()) return wanted;
  std::vector<std::string> names;
  names.reserve(sets.size());
  for (const auto set : sets) names.push_back(config::Server::InstructionSet_Name(set));
  throw Error(ExitCode::kUsage,
              "server.instruction_set: the server's CPU does not support {}, only {}; AUTO selects "
              "the widest",
              config::Server::InstructionSet_Name(wanted), Join(names, ", "));
}

}  // namespace muster
