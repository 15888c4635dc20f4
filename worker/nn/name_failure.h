// Adds the purpose of an allocation to its error.
#pragma once

#include <string_view>

#include "common/base/error.h"

namespace muster {

// Calls allocate() and prefixes its Error with `what`.
template <typename Allocate>
auto NameFailure(std::string_view what, Allocate&& allocate) {
  try {
    return allocate();
  } catch (const Error& error) {
    throw Error(error.code(), "{}: {}", what, error.what());
  }
}

}  // namespace muster
