// EXPECT_MUSTER_ERROR(statement, ExitCode::kData, HasSubstr("…")): expects that the statement
// throws an Error with this code and a matching message.
#pragma once

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "common/base/error.h"

#define EXPECT_MUSTER_ERROR(statement, expected_code, matcher)    \
  try {                                                           \
    statement;                                                    \
    ADD_FAILURE() << "expected an Error, but nothing was thrown"; \
  } catch (const ::muster::Error& error) {                        \
    EXPECT_EQ(error.code(), expected_code) << error.what();       \
    EXPECT_THAT(std::string(error.what()), matcher);              \
  }
