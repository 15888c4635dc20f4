// The reader's error for a file that is not in safetensors format.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"
#include "common/tensors/safetensors_reader.h"

namespace muster::testing {

// Returns "no error" for a valid file.
inline std::string ReaderError(const std::string& path) {
  try {
    const SafetensorsReader reader(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    return error.what();
  }
  return "no error";
}

}  // namespace muster::testing
