// Says of an allocation that fails what it was for.
#pragma once

#include <string_view>

#include "common/base/error.h"

namespace muster {

// allocate(), whose Error says `what` first.
template <typename Allocate>
auto NameFailure(std::string_view what, Allocate&& allocate) {
  try {
    return allocate();
  } catch (const Error& error) {
    throw Error(error.code(), "{}: {}", what, error.what());
  }
}

}  // namespace muster
