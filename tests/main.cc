// GoogleTest's main with a deadline for each case. All cases of a program run in one process
// (muster_test in cmake/MusterTargets.cmake), so a case that hangs must be named, not only its
// program. Its argument is the number of seconds for each case. Without it there is no deadline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace muster::testing {
namespace {

unsigned case_seconds = 0;
std::string too_late;  // prepared in advance, because a signal handler cannot format it

void OnAlarm(int) {
  (void)!::write(STDERR_FILENO, too_late.data(), too_late.size());
  ::_exit(1);
}

class CaseDeadline final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& info) override {
    too_late = std::string("[  FAILED  ] ") + info.test_suite_name() + "." + info.name() +
               ": expected its end within " + std::to_string(case_seconds) +
               " s; the program's other cases were not run\n";
    ::alarm(case_seconds);
  }
  void OnTestEnd(const ::testing::TestInfo&) override { ::alarm(0); }
};

}  // namespace
}  // namespace muster::testing

int main(int argc, char** argv) {
  using namespace muster::testing;
  // Programs that a test starts must not inherit that nohup or a script in the background started
  // it.
  for (const int signal : {SIGINT, SIGHUP}) std::signal(signal, SIG_DFL);
  ::testing::InitGoogleMock(&argc, argv);
  if (argc > 1) {
    case_seconds = static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10));
    std::signal(SIGALRM, OnAlarm);
    ::testing::UnitTest::GetInstance()->listeners().Append(new CaseDeadline);
  }
  return RUN_ALL_TESTS();
}
