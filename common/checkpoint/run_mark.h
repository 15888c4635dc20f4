// Identifies the run that a directory belongs to, by a file run_id in the directory and one beside
// its checkpoints.
#pragma once

#include <string>

namespace muster {

inline constexpr const char* kRunIdFile = "run_id";

// Whether `text` has 32 hexadecimal digits.
bool IsRunId(const std::string& text);

// Returns the run ID from the file in this folder; "" if the file is missing or invalid.
std::string RunIdIn(const std::string& folder);

// Returns the ID of the run that a checkpoint folder must belong to, according to the run's
// directory or the file beside the folder; "" if neither exists.
std::string ExpectedRunId(const std::string& checkpoint_folder);

// Throws Error(kData) that names both runs if the directory belongs to one run but all its readable
// checkpoints belong to another.
void RequireOwnCheckpoints(const std::string& run_dir);

// Throws Error(kData) if another run has claimed the folder for checkpoints, in which this run then
// cannot write any.
void RequireOwnFolder(const std::string& run_dir);

}  // namespace muster
