// The real `muster` with stand-ins for the server, the workers, NVML and CUDA's driver.
#pragma once

#include <string>
#include <vector>

#include "tests/cli/job/job_fixture.h"

namespace muster::testing {

// Each test has cards with UUIDs of its own, so that tests that run at the same time, whose locks
// are in one folder, have nothing to do with one another.
class GpuJobTest : public JobTest {
 protected:
  GpuJobTest();
  ~GpuJobTest() override;  // removes their locks

  std::string Uuid(int card) const;
  // The file of the cards: a line each, which begins with uuid=…
  void Cards(const std::vector<std::string>& keys_of_each);
  void IdleCards(int count) { Cards(std::vector<std::string>(static_cast<size_t>(count))); }

  // The variable of a process that runs; "" if it has none.
  static std::string VariableOf(pid_t pid, const std::string& name);
  // The process of this rank.
  pid_t WorkerPid(int rank) const;
  // muster gpus run -n COUNT -- true: whether so many cards are idle. Its words are in `said`.
  bool AreIdle(int count, std::string* said = nullptr);

 private:
  std::string own_;  // part of the UUIDs
};

}  // namespace muster::testing
