// Short attempts at what a run does. Each returns "" or the system's reason why it does not work.
#pragma once

#include <string>

namespace muster {

std::string TryToWrite(const std::string& directory);
std::string TryToShareMemory();  // a sealed memfd, as weights and gradients lie in
std::string TryLoopbackTcp();    // a port that the kernel chooses
std::string TryUnixSocket();     // in the abstract namespace

}  // namespace muster
