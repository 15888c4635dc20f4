// A job whose server and workers the test starts one by one, with `muster server` and `muster
// worker`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/real_job.h"

namespace muster::testing {

class HandJob : public RealJob {
 protected:
  // Writes config.txtpb, the tiny config for 2 workers with its data, and token, with mode 0600.
  HandJob();

  using Words = std::vector<std::string>;

  // Starts `muster server` with the run directory "run". Its output goes to server.log.
  std::unique_ptr<Process> Server(const Words& more, const ProcessOptions& options = {});
  // Waits a few seconds for the endpoint that the server prints, or returns "".
  std::string Endpoint(const Process& server) const;
  // Starts `muster worker` with the token file. `config` may be another one.
  std::unique_ptr<Process> Worker(int rank, const std::string& endpoint, const Words& more = {},
                                  const ProcessOptions& options = {},
                                  const std::string& config = "config.txtpb");
  // Starts a worker with these arguments only.
  std::unique_ptr<Process> PlainWorker(const Words& words, const ProcessOptions& options = {});

  // Expects that each ends soon and successfully.
  template <typename... Processes>
  static void ExpectSuccess(const Processes&... processes) {
    (ExpectSuccessOf(*processes), ...);
  }

  // Writes a file that only its owner can read.
  void WriteToken(const std::string& name, const std::string& token) const;
  // Copies config.txtpb to a new name with one text replaced by another.
  void WriteConfigWith(const std::string& name, const std::string& text,
                       const std::string& replacement) const;
  // The hash that `muster launch` gives with the same config.
  std::string LaunchedHash();
  std::string TokenFile() const { return Path("token"); }
  const std::string& token() const { return token_; }

 private:
  static void ExpectSuccessOf(Process& process) {
    EXPECT_EQ(process.Wait(100), 0) << process.Log();
  }

  std::string token_;  // unique, because other tests run at the same time
  int workers_ = 0;
};

// A free port of the loopback interface.
int FreePort();

}  // namespace muster::testing
