// The supervisor's decisions if one srun carries all workers.
#include "tests/cli/job/supervisor_fixture.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class SrunTest : public SupervisorTest {
 protected:
  SrunTest() {
    cluster_.set_on_lost_worker(config::Cluster::REPLACE);
    plan_.srun = [](const std::string&) { return std::vector<std::string>(); };
    plan_.in_slurm = true;
    members_.by_srun_ = true;
    Anew();
  }
};

TEST_F(SrunTest, ALostWorkerIsNoFailure) {
  Running();
  EXPECT_EQ(members_.size(), 2u);
  Changed(events::MemberChange::LOST, 1);
  Pass(5);
  Beat();
  EXPECT_THAT(members_.replaced_, IsEmpty());
  EXPECT_THAT(Sent(), IsEmpty());  // its process may have the number of one of this host
  Exits(kSrunRank, 137);           // that of the lost worker, after the last step
  Completed();
  Exits(kServer, 0);
  EXPECT_TRUE(Over());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
  EXPECT_FALSE(Outcome().failure);
}

TEST_F(SrunTest, SrunThatCannotStartTheWorkersIsTheCause) {
  Listening();
  Exits(kSrunRank, 1);
  Exits(kServer, ExitCode::kTerminated);
  const JobOutcome outcome = Outcome();
  EXPECT_EQ(outcome.exit_code, ExitCode::kFailure);
  EXPECT_THAT(outcome.failure->what,
              HasSubstr("srun (pid 99) failed with exit code 1: words of -2"));
  EXPECT_EQ(outcome.log_path, "log of -2");
  EXPECT_FALSE(outcome.lost_server);
}

TEST_F(SrunTest, SrunsLogShowsWhyWorkersAreMissing) {
  Listening();
  ServerFails("rank 1 did not join", 5);
  Exits(kServer, 5);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kDeadline);
  EXPECT_EQ(Outcome().log_path, "log of -2");
  Anew();
  Running();
  ServerFails("a disk", 1);
  Exits(kServer, 1);
  EXPECT_EQ(Outcome().log_path, "log of -1");
}

TEST_F(SrunTest, WithoutWorkersTheJobEnds) {
  for (const int code : {0, 137}) {
    Anew();
    Running();
    Exits(kSrunRank, code);
    EXPECT_THAT(Sent(), IsEmpty());  // the server may explain it
    Pass(9);
    Beat();
    Pass(2);
    EXPECT_THAT(Sent(), Not(IsEmpty()));
    Exits(kServer, ExitCode::kTerminated);
    EXPECT_EQ(Outcome().exit_code, ExitCode::kProcessDied);
    EXPECT_THAT(Outcome().failure->what, HasSubstr("srun (pid 99)"));
  }
}

TEST_F(SrunTest, TheServersReportComesFirst) {
  Running();
  Exits(kSrunRank, 3);
  ServerFails("rank 1: no data", 3, 1);
  Exits(kServer, 3);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kData);
  EXPECT_THAT(Outcome().failure->what, HasSubstr("rank 1: no data"));
}

// Slurm signals every process of the job at the same moment.
TEST_F(SrunTest, ASignalToAllProcesses) {
  Running();
  Exits(kSrunRank, 143);
  Signalled(SIGTERM);
  Exits(kServer, ExitCode::kTerminated);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kTerminated);
  EXPECT_FALSE(Outcome().failure);
}

TEST_F(SrunTest, TermAfterUsr1DoesNotEndTheWriting) {
  Running();
  Signalled(SIGUSR1);
  Pass(1);
  Saving();
  Signalled(SIGTERM);
  for (const auto& [rank, signal] : members_.sent_) EXPECT_NE(signal, SIGKILL) << rank;
  Exits(kServer, ExitCode::kTerminated);
  Exits(kSrunRank, 143);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kTerminated);
  EXPECT_EQ(Outcome().stop_signal, SIGUSR1);
}

// A user in a salloc shell who sends a second signal wants an end at once; Slurm does not.
TEST_F(SrunTest, ASecondSignalInAShell) {
  for (const bool has_terminal : {true, false}) {
    for (const int first : {SIGTERM, SIGUSR1}) {
      plan_.has_terminal = has_terminal;
      Anew();
      Running();
      Signalled(first);
      Pass(1);
      (void)Sent();
      Signalled(SIGTERM);
      bool killed = false;
      for (const auto& [rank, signal] : Sent()) killed |= signal == SIGKILL;
      EXPECT_EQ(killed, has_terminal && first == SIGTERM) << has_terminal << " " << first;
    }
  }
}

TEST_F(SrunTest, SrunHasTimeToEndTheWorkersOfALostServer) {
  Running();
  Ends(kServer, {.by_signal = true, .value = SIGKILL});
  Pass(1);
  EXPECT_THAT(Sent(), ::testing::Contains(std::pair(kSrunRank, SIGTERM)));
  Pass(4);
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(1);
  EXPECT_THAT(Sent(), ::testing::Contains(std::pair(kSrunRank, SIGKILL)));
}

}  // namespace
}  // namespace muster
