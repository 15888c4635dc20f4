// Descriptions of other users' processes are safe to print on a terminal.
#include "cli/gpu/process_info.h"

#include <gmock/gmock.h>

#include <cerrno>

#include "tests/cli/gpu/gpu_fixture.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;

TEST(ProcessInfoTest, AProcessAndItsOwner) {
  const ProcessText self = DescribeProcess(::getpid());
  EXPECT_TRUE(self.seen);
  EXPECT_EQ(self.user, UserName(::geteuid()));
  EXPECT_THAT(self.command, HasSubstr(program_invocation_short_name));
  ASSERT_TRUE(self.since.has_value());
  EXPECT_LE(*self.since, std::time(nullptr) + 2);
  EXPECT_FALSE(DescribeProcess(1 << 30).seen);
  EXPECT_EQ(UserName(4294967000u), "user 4294967000");
}

}  // namespace
}  // namespace muster::testing
