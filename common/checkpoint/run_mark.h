// Identifies the run of a directory, by a file run_id in it and one beside its checkpoints.
#pragma once

#include <string>

namespace muster {

inline constexpr const char* kRunIdFile = "run_id";

// 32 hexadecimal digits.
bool IsRunId(const std::string& text);

// The run ID in the file in this folder; "" if it is missing or invalid.
std::string RunIdIn(const std::string& folder);

// The run that a checkpoint folder must belong to, according to the run's directory or the file
// beside the folder; "" if neither exists.
std::string ExpectedRunId(const std::string& checkpoint_folder);

// Throws Error(kData) with both runs if the directory belongs to one run, but all its readable
// checkpoints belong to another.
void RequireOwnCheckpoints(const std::string& run_dir);

}  // namespace muster
