// The header of a .npy file: its type and shape.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/tensors/safetensors_header.h"

namespace muster {

// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
struct NpyHeader {
  std::string type;
  bool fortran = false;
  std::vector<int64_t> shape;
};

// Reads the text of a header as Python and NumPy do: keys in any order, either quote, any white
// space, and the integers such as 64L that Python 2 wrote. Returns nothing if it is not valid.
std::optional<NpyHeader> ReadNpyHeader(std::string_view text);

// Returns the type as in a header, such as "<f4", or "" for a type that NumPy lacks.
const char* NumpyType(TensorType type);
// Returns NumPy's name of the type, such as "float32".
const char* NumpyName(TensorType type);
// Returns the type that a header names, or nothing if it is not one of plain numbers.
std::optional<TensorType> TypeOfNumpy(const std::string& numpy_type);

// Returns what an array of this unsupported type is, and how to store it instead.
std::string AdviceOnNumpyType(const std::string& type, const std::string& name);

}  // namespace muster
