// The line of a lost worker says how its process ended, where the launcher learns that in time.
#include "cli/job/told_losses.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cli/job/supervisor_fixture.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ToldLossesTest : public ::testing::Test {
 protected:
  ToldLossesTest() {
    plan_.dir = nullptr;
    plan_.on_lost = config::Cluster::CONTINUE;
    event_.mutable_member_change()->set_kind(events::MemberChange::LOST);
    event_.mutable_member_change()->set_rank(1);
    event_.mutable_member_change()->set_pid(kPid);
    event_.mutable_member_change()->set_why("its connection ended");
  }
  void IsKilled() { (void)replacements_.OnEnd({1, kPid, {.by_signal = true, .value = 9}}, 0); }
  std::string Said() const {
    std::string text(4096, '\0');
    text.resize(static_cast<size_t>(::pread(file_.get(), text.data(), text.size(), 0)));
    return text;
  }

  static constexpr pid_t kPid = 42;
  JobPlan plan_;
  FakeMembers members_{2};
  UniqueFd file_{::memfd_create("told", MFD_CLOEXEC)};
  Console console_{file_.get()};
  JobDisplay display_{console_, 60};
  Replacements replacements_{plan_, members_};
  ToldLosses told_{true, replacements_, display_};
  events::Event event_;
};

TEST_F(ToldLossesTest, AnEndThatIsKnownIsTold) {
  IsKilled();
  told_.Tell(event_, 10);
  EXPECT_THAT(Said(), HasSubstr("Lost rank 1 (pid 42) at step 0: its connection ended (killed by "
                                "signal 9)"));
}

TEST_F(ToldLossesTest, OneThatComesAMomentLaterToo) {
  told_.Tell(event_, 10);
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_LT(told_.next_check(), 11);
  IsKilled();
  told_.Check(10.1);
  EXPECT_THAT(Said(), HasSubstr("its connection ended (killed by signal 9)"));
  EXPECT_EQ(told_.next_check(), kNever);
}

// Cut off, or stopped: it goes on, and the line does not wait for ever.
TEST_F(ToldLossesTest, OneThatDoesNotComeIsNotWaitedFor) {
  told_.Tell(event_, 10);
  told_.Check(told_.next_check());
  EXPECT_THAT(Said(), AllOf(HasSubstr("its connection ended"), Not(HasSubstr("killed"))));
}

TEST_F(ToldLossesTest, WhoEndsNowWaitsForNothing) {
  told_.Tell(event_, 10);
  told_.Check(10, /*all=*/true);
  EXPECT_THAT(Said(), HasSubstr("its connection ended"));
}

TEST_F(ToldLossesTest, NorDoesWhoseWorkersAreSomebodyElses) {
  ToldLosses told(false, replacements_, display_);
  told.Tell(event_, 10);
  EXPECT_THAT(Said(), HasSubstr("its connection ended"));
}

}  // namespace
}  // namespace muster
