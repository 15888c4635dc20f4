// The element types of the safetensors format, by its names.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

// All of them can be listed and copied as bytes; what can be read as numbers, the reader says.
enum class TensorType {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kU16,
  kI16,
  kF16,
  kBF16,
  kU32,
  kI32,
  kF32,
  kU64,
  kI64,
  kF64,
};

const char* Name(TensorType type);  // "F32"
size_t BytesOf(TensorType type);    // of an element
std::optional<TensorType> TensorTypeOf(std::string_view name);
std::string TensorTypeNames();  // all of them, for a message

}  // namespace muster
