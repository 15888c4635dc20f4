#include "cli/process/json_program.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/error.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(JsonProgram, ObjectsComeFromStandardOutputAloneAsTheyArePrinted) {
  const auto results = RunJsonProgram(
      "/bin/sh", {"-c", R"(echo '{"a":1}'; echo '{"no":1}' >&2; echo words; printf '{"a":2}')"},
      60);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[1]["a"], 2);
  // The program is still running when the first objects are read.
  int objects = 0;
  StreamJsonProgram({.program = "/bin/sh", .arguments = {"-c", "while :; do echo '{}'; done"}}, 60,
                    [&](const nlohmann::json& /*object*/) { return ++objects < 3; });
  EXPECT_EQ(objects, 3);
}

// A user need not know which program found it.
TEST(JsonProgram, AnErrorOfTheProgramIsTheWholeMessage) {
  try {
    (void)RunJsonProgram(
        "/bin/sh", {"-c", "echo '12:00 worker error: x.bin: no {file}' >&2; echo bye >&2; exit 3"},
        60);
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_STREQ(error.what(), "x.bin: no {file}");
  }
}

TEST(JsonProgram, AFailureHasItsCodeAndLastWords) {
  try {
    (void)RunJsonProgram("/bin/sh", {"-c", "echo '{}'; echo out; echo err >&2; exit 3"}, 60);
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("ended with exit code 3: err"), Not(HasSubstr("out"))));
  }
}

}  // namespace
}  // namespace muster
