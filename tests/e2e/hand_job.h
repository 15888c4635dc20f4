// A job whose server and workers the test starts one by one, with `muster server` and
// `muster worker`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/real_job.h"

namespace muster::testing {

class HandJob : public RealJob {
 protected:
  // Files: config.txtpb, the tiny config for 2 workers with its data; token, of mode 0600.
  HandJob();

  using Words = std::vector<std::string>;

  // `muster server` with the run directory "run"; its terminal is server.log.
  std::unique_ptr<Process> Server(const Words& more, const ProcessOptions& options = {});
  // What it says it listens at; "" if it does not within some seconds.
  std::string Endpoint(const Process& server) const;
  // `muster worker` with the token file; `config` may be another one.
  std::unique_ptr<Process> Worker(int rank, const std::string& endpoint, const Words& more = {},
                                  const ProcessOptions& options = {},
                                  const std::string& config = "config.txtpb");
  // Starts a worker with these arguments only.
  std::unique_ptr<Process> PlainWorker(const Words& words, const ProcessOptions& options = {});

  // Each ends well, and soon.
  template <typename... Processes>
  static void ExpectSuccess(const Processes&... processes) {
    (ExpectSuccessOf(*processes), ...);
  }

  // A file that only its owner can read.
  void WriteToken(const std::string& name, const std::string& token) const;
  // config.txtpb with one text replaced by another, under a new name.
  void WriteConfigWith(const std::string& name, const std::string& text,
                       const std::string& replacement) const;
  // The hash that the same config gives under `muster launch`.
  std::string LaunchedHash();
  std::string TokenFile() const { return Path("token"); }
  const std::string& token() const { return token_; }

 private:
  static void ExpectSuccessOf(Process& process) { EXPECT_EQ(process.Wait(40), 0) << process.Log(); }

  std::string token_;  // of this test alone: others run beside it
  int workers_ = 0;
};

// A port of the loopback interface that nobody uses now.
int FreePort();

}  // namespace muster::testing
