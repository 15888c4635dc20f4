// Runs the real `muster` with stand-ins for the server, the workers, NVML and the CUDA driver.
#pragma once

#include <string>
#include <vector>

#include "tests/cli/job/job_fixture.h"

namespace muster::testing {

// Each test's GPUs have unique UUIDs, because tests that run at the same time share the lock
// folder.
class GpuJobTest : public JobTest {
 protected:
  GpuJobTest();
  ~GpuJobTest() override;  // removes the locks

  std::string Uuid(int card) const;
  // Writes the file of GPUs: one line each, which starts with uuid=…
  void Cards(const std::vector<std::string>& keys_of_each);
  void IdleCards(int count) { Cards(std::vector<std::string>(static_cast<size_t>(count))); }

  // A variable of a running process, or "".
  static std::string VariableOf(pid_t pid, const std::string& name);
  // The process of this rank, or the one that evaluates.
  pid_t WorkerPid(int rank) const;
  // Runs muster gpus run -n COUNT -- true: whether that many GPUs are idle. Stores its output in
  // `said`.
  bool AreIdle(int count, std::string* said = nullptr);

 private:
  std::string own_;  // a part of the UUIDs
};

}  // namespace muster::testing
