// What `muster server` tells the person who starts the workers. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "common/link/tcp_address.h"
#include "launch/job/run_dir.h"

namespace muster {

struct HandAddress {
  ListenAddress address;
  std::string endpoint;  // as the server says it, with the port that it got
  bool encrypted = false;
};

// Where the server listens, and the command lines of its workers. `token_file` is empty where the
// token came from the environment.
std::vector<std::string> HandLines(const HandAddress& where, int workers, const RunDir& dir,
                                   const std::string& token_file);

}  // namespace muster
