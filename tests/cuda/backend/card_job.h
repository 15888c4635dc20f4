// Jobs with --devices, with stand-ins for NVML and the CUDA driver and a software GPU in each
// worker.
#pragma once

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/base/paths.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {

class CardJob : public RealJob {
 protected:
  CardJob() : own_(fmt::format("c0{:010x}", ::getpid())) {
    ::setenv("FAKE_CARDS", Path("cards").c_str(), 1);
    ::setenv("LD_LIBRARY_PATH", FakeDriverDir().c_str(), 1);
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    std::ofstream(Path("cards")).flush();
  }
  ~CardJob() override {
    for (const char* const folder : {"/run/lock", "/tmp"}) {
      std::error_code ignored;
      for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
        if (entry.path().filename().string().find(own_) != std::string::npos) {
          std::filesystem::remove(entry.path(), ignored);
        }
      }
    }
  }

  std::string Uuid(int card) const {
    return fmt::format("GPU-{:04x}0000-0000-0000-0000-{}", card, own_);
  }
  // Sets the number of GPUs of this machine and the index of the lost one, if any.
  void Cards(int count, int lost = -1, bool sensors_hang = false) const {
    std::string lines;
    for (int card = 0; card < count; ++card) {
      lines += fmt::format("uuid={} temp={} power={} util={}{}{}\n", Uuid(card), 40 + 10 * card,
                           100 + 100 * card, 1 + 2 * card, card == lost ? " fail=memory:15" : "",
                           sensors_hang ? " hang=search" : "");
    }
    const std::filesystem::path next = Path("cards.next");
    std::ofstream(next) << lines;
    std::filesystem::rename(next, Path("cards"));
  }

 private:
  const std::string own_;  // part of the UUIDs of this test's GPUs
};

}  // namespace muster::testing
