// The message with which a call refuses what the user gave.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"

namespace muster {

// Expects an Error with the code of a wrong command line or config.
template <typename Call>
std::string RefusalOf(const Call& call) {
  try {
    call();
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "";
}

}  // namespace muster
