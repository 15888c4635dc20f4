// Where the processes of a job run: `muster launch --log-placement`.
#pragma once

#include <sys/types.h>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace muster {

// The cores that a process of this host may use, as "0-3,8"; "-" where that cannot be found out.
std::string CoresOf(pid_t pid);

// Numbers in ascending order as ranges: {0, 1, 2, 5} -> "0-2,5".
std::string RangesText(const std::vector<int>& numbers);

// A table of ranks with host, pid, device, threads and cores, from the server's "started" report.
std::vector<std::string> PlacementLines(const nlohmann::json& started,
                                        const std::function<std::string(pid_t)>& cores_of);

}  // namespace muster
