#include "common/tensors/tensor_type.h"

#include <array>

#include "common/base/join.h"

namespace muster {
namespace {

struct Entry {
  const char* name;
  size_t bytes;
};

// In the order of TensorType.
constexpr std::array<Entry, 15> kEntries = {{{"BOOL", 1},
                                             {"U8", 1},
                                             {"I8", 1},
                                             {"F8_E5M2", 1},
                                             {"F8_E4M3", 1},
                                             {"U16", 2},
                                             {"I16", 2},
                                             {"F16", 2},
                                             {"BF16", 2},
                                             {"U32", 4},
                                             {"I32", 4},
                                             {"F32", 4},
                                             {"U64", 8},
                                             {"I64", 8},
                                             {"F64", 8}}};
static_assert(kEntries.size() == static_cast<size_t>(TensorType::kF64) + 1);

const Entry& EntryOf(TensorType type) { return kEntries[static_cast<size_t>(type)]; }

}  // namespace

const char* Name(TensorType type) { return EntryOf(type).name; }

size_t BytesOf(TensorType type) { return EntryOf(type).bytes; }

std::optional<TensorType> TensorTypeOf(std::string_view name) {
  for (size_t i = 0; i < kEntries.size(); ++i) {
    if (name == kEntries[i].name) return static_cast<TensorType>(i);
  }
  return std::nullopt;
}

std::string TensorTypeNames() {
  std::array<const char*, kEntries.size()> names{};
  for (size_t i = 0; i < kEntries.size(); ++i) names[i] = kEntries[i].name;
  return Join(names, ", ");
}

}  // namespace muster
