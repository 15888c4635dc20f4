// What a program that trains its own model is told in its environment. The client library reads it
// (client/helper.cc).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

struct ProgramPlace {
  std::string endpoint, config, token;  // config: a path
  std::string worker_program;           // muster-worker; its folder has Muster's programs
  int rank = 0;
  unsigned threads = 1;
  uint64_t seed = 1;    // run.seed
  uint32_t slices = 1;  // run.slices
};

// Lines NAME=VALUE.
std::vector<std::string> ProgramEnvironment(const ProgramPlace& place);

// A source tree and an unpacked archive have the Python client beside their programs. Appends it to
// this process's PYTHONPATH, so that programs can import it where it is not installed.
void OfferPythonClient(const std::string& worker_program);

}  // namespace muster
