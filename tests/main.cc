// GoogleTest's main, with a deadline for each case. A program runs all of its cases in one process
// (muster_test in cmake/MusterTargets.cmake), and a case that hangs is to be named, and not only
// its program. Arguments of its own: how many seconds a case may take; without it, any time.
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
std::string too_late;  // what is said then: nothing can be put together in a signal's handler

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
  ::testing::InitGoogleMock(&argc, argv);
  if (argc > 1) {
    case_seconds = static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10));
    std::signal(SIGALRM, OnAlarm);
    ::testing::UnitTest::GetInstance()->listeners().Append(new CaseDeadline);
  }
  return RUN_ALL_TESTS();
}
