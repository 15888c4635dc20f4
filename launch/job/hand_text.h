// What `muster server` tells the person who starts the workers. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "common/link/tcp_address.h"
#include "launch/job/run_dir.h"

namespace muster {

// Where the server listens, and the command lines of its workers. `token_file` is empty where the
// token came from the environment.
std::vector<std::string> HandLines(const ListenAddress& address, const std::string& endpoint,
                                   int workers, const RunDir& dir, const std::string& token_file);

}  // namespace muster
